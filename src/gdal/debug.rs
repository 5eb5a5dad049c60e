//! Keeps GTiff's lines out of CPL_DEBUG=GPUGTIFF.
//!
//! GDAL prints a category that occurs anywhere in the value of CPL_DEBUG, and GTIFF occurs in
//! GPUGTIFF. A filter in front of the process's error handler drops those lines, and passes on
//! everything else. It is put there only where CPL_DEBUG names us and not GTiff as well.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use gdal_sys::{CPLErr, CPLErrorHandler, CPLGetErrorHandlerUserData, CPLSetErrorHandlerEx};

use super::log;

/// The handler that was there before.
static BEFORE: OnceLock<CPLErrorHandler> = OnceLock::new();

/// Puts the filter in place, once, if CPL_DEBUG calls for it.
pub fn keep_gtiff_out() {
    if BEFORE.get().is_some() || !log::config("CPL_DEBUG").is_some_and(|value| is_for_us(&value)) {
        return;
    }
    BEFORE.get_or_init(|| {
        // SAFETY: the filter lives as long as the process, whose workers run this library's code.
        // It gets the user data of the handler that it calls.
        unsafe { CPLSetErrorHandlerEx(Some(filter), CPLGetErrorHandlerUserData()) }
    });
}

unsafe extern "C" fn filter(class: CPLErr::Type, number: i32, text: *const c_char) {
    if class == CPLErr::CE_Debug && !text.is_null() {
        // SAFETY: GDAL passes a C string.
        let line = unsafe { CStr::from_ptr(text) }.to_bytes();
        let gtiffs = line.get(..6).is_some_and(|name| name.eq_ignore_ascii_case(b"GTIFF:"));
        if gtiffs && log::config("CPL_DEBUG").is_some_and(|value| is_for_us(&value)) {
            return;
        }
    }
    if let Some(Some(before)) = BEFORE.get() {
        // SAFETY: the handler that GDAL had, with the arguments that it was to get.
        unsafe { before(class, number, text) };
    }
}

/// Whether a value of CPL_DEBUG names us, and GTiff only as a part of our name.
fn is_for_us(value: &str) -> bool {
    let value = value.to_ascii_uppercase();
    value.contains("GPUGTIFF") && !value.replace("GPUGTIFF", "").contains("GTIFF")
}

#[cfg(test)]
mod tests {
    use super::is_for_us;

    #[test]
    fn gtiff_is_heard_where_it_is_named() {
        for value in ["GPUGTIFF", "GPUGTiff", "gpugtiff", "GDAL,GPUGTIFF", "GPUGTIFF,VRT"] {
            assert!(is_for_us(value), "{value}");
        }
        for value in ["ON", "", "GTIFF", "GTiff", "GPUGTIFF,GTIFF", "GTiff,GPUGTiff", "GDAL"] {
            assert!(!is_for_us(value), "{value}");
        }
    }
}
