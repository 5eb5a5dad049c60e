//! Small TIFFs in memory, read by GDAL's plain GTiff driver, on any thread.
//!
//! Refuses whatever the driver has something to say about while it reads: a warning is a pixel that
//! may be wrong.

use std::ffi::{c_char, c_int, c_void};

use super::memory::MemoryFile;
use super::messages;
use crate::engine::gtiff::Order;
use crate::process::fork;

unsafe extern "C" {
    /// In `src/shim/excerpt.cpp`: reads all of a file, pixel by pixel; 0 if that worked.
    fn gpugtiff_shim_read_excerpt(
        path: *const c_char,
        size: *const c_int,
        kind: c_int,
        data: *mut c_void,
        spacing: *const i64,
    ) -> c_int;
}

/// Reads all of it, or tells what GTiff said.
pub fn read(order: Order<'_>) -> Result<(), String> {
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
