//! Bytes of ours under a name of GDAL's, in /vsimem/.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};

use gdal_sys::{VSIFCloseL, VSIFileFromMemBuffer, VSIUnlink};

use super::log::c_string;

/// A file that is there as long as this is.
#[derive(Debug)]
pub struct MemoryFile<'a> {
    path: CString,
    /// What GDAL reads; goes after the file.
    _bytes: Cow<'a, [u8]>,
}

impl MemoryFile<'_> {
    /// Names the bytes, which are not copied; `None` where GDAL refuses. Whoever opens the file must
    /// close it before it goes, and not write.
    pub fn new<'a>(extension: &str, bytes: impl Into<Cow<'a, [u8]>>) -> Option<MemoryFile<'a>> {
        let bytes = bytes.into();
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Another copy of this library counts too, from another address.
        let name = format!("/vsimem/.gpugtiff_{:p}_{count}.{extension}", &raw const COUNTER);
        let path = c_string(&name);
        let data = bytes.as_ptr().cast_mut();
        // SAFETY: GDAL reads the bytes until the file is removed, which `drop` does while they
        // live; it does not take them over.
        let file = unsafe { VSIFileFromMemBuffer(path.as_ptr(), data, bytes.len() as u64, 0) };
        if file.is_null() {
            return None;
        }
        // SAFETY: the handle is ours.
        unsafe { VSIFCloseL(file) };
        Some(MemoryFile { path, _bytes: bytes })
    }

    /// Its name.
    pub fn path(&self) -> &CStr {
        &self.path
    }
}

impl Drop for MemoryFile<'_> {
    fn drop(&mut self) {
        // SAFETY: a C string.
        unsafe { VSIUnlink(self.path.as_ptr()) };
    }
}
