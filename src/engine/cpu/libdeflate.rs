//! libdeflate's compressor and decompressor of zlib streams, each allocated once.
//!
//! Through libdeflate-sys: the safe crate panics where a compressor cannot be allocated, and here that
//! is an error as any other. Nothing is allocated after `new`.

use std::ffi::c_int;
use std::ptr::NonNull;

use libdeflate_sys as sys;

/// A decompressor.
pub(super) struct Decompressor(NonNull<sys::libdeflate_decompressor>);

/// Why a stream was not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The stream or its checksum is wrong.
    BadData,
    /// It holds more than there is room for.
    TooLong,
}

// SAFETY: plain memory that belongs to its owner; used by one thread at a time, through `&mut`.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// `None` where there is no memory for it.
    pub(super) fn new() -> Option<Decompressor> {
        // SAFETY: allocates; null says that it could not.
        NonNull::new(unsafe { sys::libdeflate_alloc_decompressor() }).map(Decompressor)
    }

    /// Decompresses into the front of `dst`; returns how many bytes were made.
    pub(super) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, Refused> {
        let mut made = 0;
        // SAFETY: the decompressor is alive; both slices are valid for their lengths.
        let result = unsafe {
            sys::libdeflate_zlib_decompress(
                self.0.as_ptr(),
                src.as_ptr().cast(),
                src.len(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                &mut made,
            )
        };
        match result {
            sys::libdeflate_result_LIBDEFLATE_SUCCESS => Ok(made),
            sys::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE => Err(Refused::TooLong),
            _ => Err(Refused::BadData),
        }
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` and freed once.
        unsafe { sys::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

/// A compressor of one level.
pub(super) struct Compressor(NonNull<sys::libdeflate_compressor>);

// SAFETY: plain memory that belongs to its owner; used by one thread at a time, through `&mut`.
unsafe impl Send for Compressor {}

impl Compressor {
    /// A compressor of a level from 1 to 12; `None` where there is no memory for it.
    pub(super) fn new(level: i32) -> Option<Compressor> {
        // SAFETY: allocates; null says that it could not.
        NonNull::new(unsafe { sys::libdeflate_alloc_compressor(level as c_int) }).map(Compressor)
    }

    /// Compresses into the front of `dst`; `None` if it does not fit.
    pub(super) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // SAFETY: the compressor is alive; both slices are valid for their lengths.
        let made = unsafe {
            sys::libdeflate_zlib_compress(
                self.0.as_ptr(),
                src.as_ptr().cast(),
                src.len(),
                dst.as_mut_ptr().cast(),
                dst.len(),
            )
        };
        (made > 0).then_some(made)
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` and freed once.
        unsafe { sys::libdeflate_free_compressor(self.0.as_ptr()) };
    }
}

/// The most bytes that a compressor of any level makes of `len` bytes.
pub(super) fn bound(len: usize) -> usize {
    // SAFETY: without a compressor the library answers for all of them.
    unsafe { sys::libdeflate_zlib_compress_bound(std::ptr::null_mut(), len) }
}

/// The Adler-32 checksum.
pub(super) fn adler32(data: &[u8]) -> u32 {
    // SAFETY: the slice is valid for its length.
    unsafe { sys::libdeflate_adler32(1, data.as_ptr().cast(), data.len()) }
}
