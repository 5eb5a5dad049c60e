//! GDAL's conversion between sample types.

use std::ffi::c_void;

use gdal_sys::{GDALCopyWords64, GDALDataType};

/// One side of a copy: where, what type, and how far from one sample to the next.
#[derive(Debug, Clone, Copy)]
pub struct Words<P> {
    /// The first sample.
    pub data: P,
    /// GDAL's data type.
    pub kind: GDALDataType::Type,
    /// Bytes from one sample to the next.
    pub step: isize,
}

/// Copies `count` samples with GDAL's rounding and clamping.
///
/// # Safety
/// Both sides must be valid for `count` samples of their type at their steps, and
/// must not overlap.
pub unsafe fn copy(from: Words<*const u8>, to: Words<*mut u8>, count: usize) {
    match (i32::try_from(from.step), i32::try_from(to.step)) {
        // SAFETY: the caller's promise.
        (Ok(from_step), Ok(to_step)) => unsafe {
            GDALCopyWords64(
                from.data.cast::<c_void>(),
                from.kind,
                from_step,
                to.data.cast::<c_void>(),
                to.kind,
                to_step,
                count as _,
            );
        },
        // Steps beyond 2 GiB: GDAL's function takes ints, so one sample at a time.
        _ => {
            for i in 0..count as isize {
                // SAFETY: sample `i` of both sides is inside the caller's promise.
                unsafe {
                    let source = from.data.offset(i * from.step).cast::<c_void>();
                    let target = to.data.offset(i * to.step).cast::<c_void>();
                    GDALCopyWords64(source, from.kind, 0, target, to.kind, 0, 1);
                }
            }
        }
    }
}
