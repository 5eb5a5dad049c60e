//! Files that GTiff has no codec for: what it is shown instead, and what is refused because of it.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::sync::PoisonError;

use super::guard::guard;
use super::handles::{File, text};
use crate::error::Error;
use crate::gdal::log;
use crate::gdal::overlaid::Overlaid;
use crate::tiff::overlay::{Overlay, Wanted};

/// The overlay of a file.
pub(super) struct Shown {
    overlaid: Overlaid,
    /// Where the directories are that differ there.
    directories: BTreeSet<u64>,
}

pub(super) unsafe extern "C" fn file_overlay(
    file: *mut File,
    directory: *const c_char,
) -> *const c_char {
    guard(std::ptr::null(), || {
        // SAFETY: a handle from `file_open` that nobody else has yet, and a C string.
        let (file, directory) = unsafe { (&mut *file, text(directory)) };
        let wanted = match directory.strip_prefix("off:") {
            Some(offset) => offset.parse().map(Wanted::At),
            None if directory.is_empty() => Ok(Wanted::First),
            None => directory.parse().map(Wanted::Number),
        };
        let Ok(wanted) = wanted else { return Ok(std::ptr::null()) };
        let source = file.source.clone()?;
        // GTiff has said what is wrong with it.
        let Ok(overlay) = Overlay::new(&*source, wanted) else { return Ok(std::ptr::null()) };
        if overlay.directories.is_empty() {
            return Ok(std::ptr::null());
        }
        let overlaid = Overlaid::new(&file.path, source.len(), &overlay.patches);
        file.shown = overlaid.map(|overlaid| Shown { overlaid, directories: overlay.directories });
        Ok(file.shown.as_ref().map_or(std::ptr::null(), |it| it.overlaid.path().as_ptr()))
    })
}

pub(super) unsafe extern "C" fn file_is_overlaid(file: *const File, ifd_offset: u64) -> c_int {
    // SAFETY: a handle from `file_open`.
    let shown = unsafe { &*file }.shown.as_ref();
    c_int::from(shown.is_some_and(|it| it.directories.contains(&ifd_offset)))
}

pub(super) unsafe extern "C" fn file_refuse(file: *const File, what: *const c_char) {
    guard((), || {
        // SAFETY: a handle from `file_open` and a C string.
        let (file, what) = unsafe { (&*file, text(what)) };
        let reason = file.shared.gtiff_reason.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = reason.as_deref().unwrap_or("JPEG 2000, which GTiff has no codec for");
        let error = Error::Unsupported(format!("{what} of '{}'", file.path));
        log::failure(&error, &format!("{error}: {reason}"));
        Ok(())
    });
}
