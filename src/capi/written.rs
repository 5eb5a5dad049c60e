//! Files that GTiff writes as a whole: whether all of their tiles are there afterwards, and copies that
//! have no name until they are finished.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;

use super::guard::guard;
use super::handles::text;
use super::output;
use crate::error::{Cause, Error, Result};
use crate::gdal::beside::{self, Beside};
use crate::gdal::vsi::{VsiFile, VsiSource};
use crate::gdal::{foreign, log};
use crate::io::ByteSource;
use crate::tiff::complete::{self, Expectation, Whole};

/// A copy that GTiff writes, and what it writes beside it.
pub struct Unfinished {
    files: Beside,
    /// The target's name among them.
    file: String,
    /// The name that GTiff knows the target by.
    name: CString,
    published: bool,
}

/// The file, if it can be read back; there may be one handle only.
fn reread(path: &str) -> Option<Box<dyn ByteSource>> {
    if let Some(unnamed) = beside::reread(path) {
        return Some(Box::new(unnamed));
    }
    if foreign::is_foreign(path) {
        return None;
    }
    // SAFETY: no handle.
    let file = unsafe { VsiFile::open(path, std::ptr::null_mut()) }.ok()?;
    Some(Box::new(VsiSource::new(file)))
}

pub(super) unsafe extern "C" fn written_count(path: *const c_char) -> i64 {
    // SAFETY: a C string.
    let counted = guard(None, || Ok(reread(&unsafe { text(path) }).map(|s| complete::count(&*s))));
    counted.and_then(Result::ok).map_or(-1, |count| count as i64)
}

pub(super) unsafe extern "C" fn written_check(
    path: *const c_char,
    shown: *const c_char,
    skip: i64,
    whole: c_int,
) -> c_int {
    guard(1, || {
        // SAFETY: C strings.
        let (path, shown) = unsafe { (text(path), text(shown)) };
        let Some(source) = reread(&path) else {
            log::debug(&format!("{shown}: cannot be read back, its tiles are not checked"));
            return Ok(0);
        };
        let whole = [Whole::None, Whole::Images][..].get(whole as usize).copied();
        let whole = whole.unwrap_or(Whole::All);
        let expected = Expectation { skip: skip.max(0) as usize, whole };
        complete::check(&*source, expected)
            .map_err(|error| Error::File(Cause(format!("{shown}: GTiff wrote it, and {error}"))))?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn unfinished_begin(
    path: *const c_char,
    least_bytes: i64,
) -> *mut Unfinished {
    guard(std::ptr::null_mut(), || {
        // SAFETY: a C string.
        let path = unsafe { text(path) };
        let file = Path::new(&path).file_name().and_then(|name| name.to_str());
        let fits = output::check_space(&path, least_bytes.max(0) as u64).is_ok();
        let Some(file) = file.filter(|_| fits && beside::can_begin(&path)) else {
            return Ok(std::ptr::null_mut());
        };
        let files = Beside::new(Path::new(&path));
        let name = log::c_string(&files.name(file));
        let unfinished = Unfinished { files, file: file.into(), name, published: false };
        Ok(Box::into_raw(Box::new(unfinished)))
    })
}

pub(super) unsafe extern "C" fn unfinished_name(unfinished: *const Unfinished) -> *const c_char {
    // SAFETY: a handle from `unfinished_begin`.
    unsafe { &*unfinished }.name.as_ptr()
}

pub(super) unsafe extern "C" fn unfinished_publish(unfinished: *mut Unfinished) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `unfinished_begin`, which nobody else uses.
        let unfinished = unsafe { &mut *unfinished };
        unfinished.files.publish(Some(&unfinished.file))?;
        unfinished.published = true;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn unfinished_free(unfinished: *mut Unfinished) {
    guard((), || {
        if unfinished.is_null() {
            return Ok(());
        }
        // SAFETY: made by Box::into_raw, freed once.
        let unfinished = unsafe { Box::from_raw(unfinished) };
        if !unfinished.published {
            unfinished.files.remove();
        }
        Ok(())
    });
}
