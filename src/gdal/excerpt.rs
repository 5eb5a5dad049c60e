//! Small TIFFs in memory, read by GDAL's plain GTiff driver, on any thread.
//!
//! Refuses whatever the driver has something to say about while it reads: a warning is a pixel that
//! may be wrong.

use std::ffi::{c_char, c_int, c_void};

use super::libtiff::{self, Tiff};
use super::memory::MemoryFile;
use super::messages;
use super::vsi::Override;
use crate::engine::gtiff::{Decoder, Gdal, Opener, Opening, Order};
use crate::process::fork;

/// Has GTiff make RGB of JPEG's YCbCr on this thread, whatever the user has set since the file was
/// opened: files that were opened otherwise have no excerpts.
fn convert_colours() -> Override {
    Override::set(c"CONVERT_YCBCR_TO_RGB", c"YES")
}

unsafe extern "C" {
    /// In `src/shim/excerpt.cpp`: opens a file and lends its libtiff handle; NULL if it is not as
    /// expected.
    fn gpugtiff_shim_open_excerpt(
        path: *const c_char,
        size: *const c_int,
        kind: c_int,
        tiff: *mut Tiff,
    ) -> *mut c_void;

    /// In `src/shim/excerpt.cpp`: closes it.
    fn gpugtiff_shim_close_excerpt(dataset: *mut c_void);

    /// In `src/shim/excerpt.cpp`: reads all of a file, pixel by pixel; 0 if that worked.
    fn gpugtiff_shim_read_excerpt(
        path: *const c_char,
        size: *const c_int,
        kind: c_int,
        data: *mut c_void,
        spacing: *const i64,
    ) -> c_int;
}

/// What the engine needs of GDAL.
pub const GDAL: Gdal = Gdal { read, opener };

/// Reads all of it, or tells what GTiff said.
fn read(order: Order<'_>) -> Result<(), String> {
    let row = order.width * order.sample_bytes;
    let band = row.checked_mul(order.height);
    let Some(band) = band.filter(|b| b.checked_mul(order.bands) == Some(order.samples.len()))
    else {
        return Err("an image of another size than its buffer".into());
    };
    let file = MemoryFile::new("tif", order.file).ok_or("no file in /vsimem/")?;
    let size = [order.width, order.height, order.bands].map(|n| n as c_int);
    let spacing = [order.sample_bytes, row, band].map(|n| n as i64);
    // A child that is forked now would find GDAL's locks taken, and nobody to release them.
    let _whole = fork::hold_off();
    let _rgb = convert_colours();
    let (failed, said) = messages::capture_all(|| {
        let data = order.samples.as_mut_ptr().cast();
        // SAFETY: a C string, three sizes and three distances; the buffer holds as many bands of this
        // size, as was just found.
        unsafe {
            gpugtiff_shim_read_excerpt(
                file.path().as_ptr(),
                size.as_ptr(),
                order.kind as c_int,
                data,
                spacing.as_ptr(),
            )
        }
    });
    // The file goes while forks are still held off.
    drop(file);
    match failed {
        0 if said.is_empty() => Ok(()),
        _ if said.is_empty() => Err("another image than was expected".into()),
        _ => Err(said.text()),
    }
}

fn opener() -> Option<Opener> {
    libtiff::library().is_some().then_some(open)
}

/// A dataset of GTiff's, whose libtiff handle decodes bytes that are not in its file.
struct TiffDecoder {
    library: &'static libtiff::Library,
    dataset: *mut c_void,
    tiff: Tiff,
    /// Goes after the dataset.
    file: Option<MemoryFile<'static>>,
}

// SAFETY: GTiff and libtiff keep nothing that belongs to a thread, and one thread at a time has it.
unsafe impl Send for TiffDecoder {}

/// `None` where GTiff does not read the file so that a tile has as many bytes as is said.
fn open(opening: Opening) -> Option<Box<dyn Decoder>> {
    let library = libtiff::library()?;
    let size = [opening.width, opening.height, opening.bands].map(|n| n as c_int);
    // A child that is forked now would find GDAL's locks taken, and nobody to release them.
    let _whole = fork::hold_off();
    let _rgb = convert_colours();
    let file = MemoryFile::new("tif", opening.file)?;
    let mut tiff = std::ptr::null_mut();
    // SAFETY: a C string and three sizes; the handle belongs to the dataset.
    let (dataset, _) = messages::capture_all(|| unsafe {
        let path = file.path().as_ptr();
        gpugtiff_shim_open_excerpt(path, size.as_ptr(), opening.kind as c_int, &mut tiff)
    });
    if dataset.is_null() {
        return None;
    }
    let decoder = TiffDecoder { library, dataset, tiff, file: Some(file) };
    if tiff.is_null() {
        return None;
    }
    let tile_size = if opening.tiled { library.tile_size } else { library.strip_size };
    // SAFETY: the handle of an open dataset of the GTiff driver, of the libtiff that GDAL uses.
    let bytes = unsafe { tile_size(tiff) };
    (usize::try_from(bytes) == Ok(opening.tile_bytes))
        .then(|| Box::new(decoder) as Box<dyn Decoder>)
}

impl Decoder for TiffDecoder {
    fn decode(&mut self, bytes: &mut [u8], pixels: &mut [u8]) -> Result<(), String> {
        let (bytes_len, pixels_len) = (bytes.len() as isize, pixels.len() as isize);
        let _whole = fork::hold_off();
        let (done, said) = messages::capture_all(|| {
            let (bytes, pixels) = (bytes.as_mut_ptr().cast(), pixels.as_mut_ptr().cast());
            // SAFETY: libtiff's handle, which is ours alone for now; it reads and writes within the
            // lengths, which are those of slices. The file has one tile.
            unsafe { (self.library.read)(self.tiff, 0, bytes, bytes_len, pixels, pixels_len) }
        });
        match done {
            0 if said.is_empty() => Err("a tile that cannot be decoded".into()),
            _ if said.is_empty() => Ok(()),
            _ => Err(said.text()),
        }
    }
}

impl Drop for TiffDecoder {
    fn drop(&mut self) {
        let _whole = fork::hold_off();
        messages::capture_all(|| {
            // SAFETY: a dataset that `open` got, closed once.
            unsafe { gpugtiff_shim_close_excerpt(self.dataset) };
        });
        self.file = None;
    }
}
