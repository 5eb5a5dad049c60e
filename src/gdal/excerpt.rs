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
    let pixel = order.bands * order.sample_bytes;
    let end = (order.height.max(1) - 1)
        .checked_mul(order.row_bytes)
        .and_then(|at| at.checked_add(pixel.checked_mul(order.width)?));
    if end.is_none_or(|end| end > order.pixels.len()) {
        return Err("an image larger than its buffer".into());
    }
    let file = MemoryFile::new("tif", order.file).ok_or("no file in /vsimem/")?;
    let size = [order.width, order.height, order.bands].map(|n| n as c_int);
    let spacing = [pixel, order.row_bytes, order.sample_bytes].map(|n| n as i64);
    // A child that is forked now would find GDAL's locks taken, and nobody to release them.
    let _whole = fork::hold_off();
    let (failed, said) = messages::capture_all(|| {
        let data = order.pixels.as_mut_ptr().cast();
        // SAFETY: a C string, three sizes and three distances; the pixels are within the buffer, as was
        // just found.
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
