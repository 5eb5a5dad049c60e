//! JPEG 2000 by GDAL's own driver, one codestream at a time, on any thread.
//!
//! Refuses whatever the driver has something to say about: a warning is a pixel that may be wrong.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;

use gdal_sys::{
    CPLErr, GDALClose, GDALDataType, GDALDatasetH, GDALDatasetRasterIOEx, GDALGetDriverByName,
    GDALGetRasterCount, GDALGetRasterXSize, GDALGetRasterYSize, GDALOpenEx, GDALRWFlag,
};

use super::memory::MemoryFile;
use super::messages;
use super::vsi::Override;
use crate::engine::cpu::jpeg2000::Order;

const DRIVER: &CStr = c"JP2OpenJPEG";

// Flags of gdal.h that gdal-sys, made from functions, does not carry.
const OF_RASTER: u32 = 0x02;
const OF_VERBOSE_ERROR: u32 = 0x40;
const OF_INTERNAL: u32 = 0x80;

/// Decodes a codestream.
pub fn decode(order: Order<'_>) -> Result<(), String> {
    // SAFETY: a C string.
    if unsafe { GDALGetDriverByName(DRIVER.as_ptr()) }.is_null() {
        return Err("this GDAL has no JP2OpenJPEG driver".into());
    }
    // There is a tile for each of our threads, and it is small.
    let _alone = Override::set(c"GDAL_NUM_THREADS", c"1");
    let (result, said) = messages::capture_all(|| read(order));
    match result {
        Ok(()) if said.is_empty() => Ok(()),
        Err(what) if said.is_empty() => Err(what.into()),
        _ => Err(format!("JP2OpenJPEG says '{}'", said.text())),
    }
}

/// A dataset, closed when dropped.
struct Opened(GDALDatasetH);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by GDALOpenEx, closed once.
        unsafe { GDALClose(self.0) };
    }
}

fn read(order: Order<'_>) -> Result<(), &'static str> {
    let header = order.header;
    let refused = "JP2OpenJPEG does not take it";
    let file = MemoryFile::new("j2k", order.stream).ok_or("no file in /vsimem/")?;
    let drivers: [*const c_char; 2] = [DRIVER.as_ptr(), null()];
    let no_siblings: [*const c_char; 1] = [null()];
    let flags = OF_RASTER | OF_VERBOSE_ERROR | OF_INTERNAL;
    // SAFETY: C strings and lists that end with NULL.
    let dataset = unsafe {
        let siblings = no_siblings.as_ptr();
        GDALOpenEx(file.path().as_ptr(), flags, drivers.as_ptr(), null(), siblings)
    };
    if dataset.is_null() {
        return Err(refused);
    }
    let dataset = Opened(dataset);
    let wanted = [header.width, header.height, header.components].map(|n| n as c_int);
    // SAFETY: the dataset is open.
    let found = unsafe {
        [
            GDALGetRasterXSize(dataset.0),
            GDALGetRasterYSize(dataset.0),
            GDALGetRasterCount(dataset.0),
        ]
    };
    if found != wanted {
        return Err("JP2OpenJPEG sees another image in it");
    }
    let (kind, sample) = match (header.bits, header.signed) {
        (8, false) => (GDALDataType::GDT_Byte, 1),
        (16, false) => (GDALDataType::GDT_UInt16, 2),
        (16, true) => (GDALDataType::GDT_Int16, 2),
        _ => return Err("samples of a depth that no TIFF has"),
    };
    let pixel = sample * header.components;
    let last_row = order.row_bytes.checked_mul(header.height - 1);
    let end = last_row.and_then(|at| at.checked_add(pixel * header.width));
    if end.is_none_or(|end| end > order.pixels.len()) || pixel * header.width > order.row_bytes {
        return Err("an image larger than its tile");
    }
    let [width, height, bands] = wanted;
    // SAFETY: the dataset is open and used by this thread alone; the pixels are within the
    // buffer, as was just found.
    let result = unsafe {
        GDALDatasetRasterIOEx(
            dataset.0,
            GDALRWFlag::GF_Read,
            0,
            0,
            width,
            height,
            order.pixels.as_mut_ptr().cast(),
            width,
            height,
            kind,
            bands,
            std::ptr::null_mut(),
            pixel as i64,
            order.row_bytes as i64,
            sample as i64,
            std::ptr::null_mut(),
        )
    };
    if result == CPLErr::CE_None { Ok(()) } else { Err(refused) }
}
