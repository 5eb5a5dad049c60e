//! Files that GTiff has no codec for: what it is shown instead, and what is refused because of it.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

use super::guard::guard;
use super::handles::{File, text};
use crate::error::Error;
use crate::gdal::log;
use crate::tiff::overlay::{Overlay, Patch, Wanted};

/// The overlay of a file.
pub(super) struct Shown {
    overlay: Overlay,
    /// Why directories that differ there are not read by us.
    reasons: Mutex<BTreeMap<u64, String>>,
}

impl Shown {
    /// Remembers why a directory is not read by us, if nobody else reads it.
    pub(super) fn refused(&self, ifd_offset: u64, error: &Error) {
        if self.overlay.directories.contains(&ifd_offset) {
            let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
            reasons.insert(ifd_offset, error.to_string());
        }
    }
}

pub(super) unsafe extern "C" fn file_overlay(
    file: *mut File,
    directory: *const c_char,
    count: *mut usize,
) -> *const Patch {
    guard(std::ptr::null(), || {
        // SAFETY: a handle from `file_open` that nobody else has yet, and a C string.
        let (file, directory) = unsafe { (&mut *file, text(directory).to_ascii_lowercase()) };
        let wanted = match directory.strip_prefix("off:") {
            Some(offset) => offset.parse().map(Wanted::At),
            None if directory.is_empty() => Ok(Wanted::First),
            None => directory.parse().map(Wanted::Number),
        };
        let Ok(wanted) = wanted else { return Ok(std::ptr::null()) };
        // GTiff has the only handle.
        if file.foreign {
            return Ok(std::ptr::null());
        }
        let source = file.source.clone()?;
        // GTiff has said what is wrong with it.
        let Ok(overlay) = Overlay::new(&*source, wanted) else { return Ok(std::ptr::null()) };
        if overlay.directories.is_empty() {
            return Ok(std::ptr::null());
        }
        let shown = file.shown.insert(Shown { overlay, reasons: Mutex::default() });
        // SAFETY: the shim's variable.
        unsafe { *count = shown.overlay.patches.len() };
        Ok(shown.overlay.patches.as_ptr())
    })
}

pub(super) unsafe extern "C" fn file_is_overlaid(file: *const File, ifd_offset: u64) -> c_int {
    // SAFETY: a handle from `file_open`.
    let shown = unsafe { &*file }.shown.as_ref();
    c_int::from(shown.is_some_and(|it| it.overlay.directories.contains(&ifd_offset)))
}

pub(super) unsafe extern "C" fn file_refuse(
    file: *const File,
    ifd_offset: u64,
    what: *const c_char,
) {
    guard((), || {
        // SAFETY: a handle from `file_open` and a C string.
        let (file, what) = unsafe { (&*file, text(what)) };
        let reasons = file.shown.as_ref().map(|it| &it.reasons);
        let reasons = reasons.map(|it| it.lock().unwrap_or_else(PoisonError::into_inner));
        let reason = reasons.as_ref().and_then(|it| it.get(&ifd_offset)).map(String::as_str);
        let reason = reason.unwrap_or("JPEG 2000, which GTiff has no codec for");
        let error = Error::Unsupported(format!("{what} of '{}'", file.path));
        log::failure(&error, &format!("{error}: {reason}"));
        Ok(())
    });
}
