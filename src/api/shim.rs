//! What the C API asks of the shim, and the driver it works with. `src/shim/bridge.h` says the
//! same in C.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_NULL_ARGUMENT, GPUGTIFF_UNSUPPORTED, Outcome, fail,
};
use crate::capi::API;
use crate::capi::bridge::Api;
use crate::gdal::dataset::driver_item;

unsafe extern "C" {
    fn gpugtiff_shim_driver(api: *const Api) -> *mut c_void;
    pub(super) fn gpugtiff_shim_open(
        path: *const c_char,
        options: *const *const c_char,
    ) -> *mut c_void;
    pub(super) fn gpugtiff_shim_kind(dataset: *mut c_void) -> c_int;
    pub(super) fn gpugtiff_shim_file(dataset: *mut c_void) -> *const c_void;
    pub(super) fn gpugtiff_shim_image(dataset: *mut c_void) -> *const c_void;
    pub(super) fn gpugtiff_shim_close(dataset: *mut c_void) -> c_int;
    pub(super) fn gpugtiff_shim_discard(dataset: *mut c_void);
}

/// Our driver, registered with GDAL if its name is free. Nothing else is registered.
pub(super) fn driver() -> Outcome<*mut c_void> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the table is static.
    let driver = unsafe { gpugtiff_shim_driver(&API) };
    match driver.is_null() {
        true => fail(GPUGTIFF_UNSUPPORTED, "this GDAL has no GTiff driver, which is needed"),
        false => Ok(driver),
    }
}

/// A C string that must be there.
///
/// # Safety
/// `text` must be NULL or a C string, for as long as the answer is used.
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Outcome<&'a CStr> {
    match text.is_null() {
        true => fail(GPUGTIFF_NULL_ARGUMENT, format!("the {what} is NULL")),
        // SAFETY: the caller's promise.
        false => Ok(unsafe { CStr::from_ptr(text) }),
    }
}

/// Refuses options that the driver does not have: GDAL would only warn. `item` is the driver's
/// list of them.
///
/// # Safety
/// `driver` must be ours, `options` NULL or a NULL-terminated list of C strings.
pub(super) unsafe fn check_options(
    driver: *mut c_void,
    item: &CStr,
    options: *const *const c_char,
) -> Outcome<()> {
    if options.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let known = unsafe { driver_item(driver, item) }.to_string_lossy().to_ascii_uppercase();
    for i in 0.. {
        // SAFETY: entries up to the NULL are C strings.
        let option = unsafe { *options.add(i) };
        if option.is_null() {
            break;
        }
        // SAFETY: as above.
        let option = unsafe { CStr::from_ptr(option) }.to_string_lossy();
        let Some((name, _)) = option.split_once(['=', ':']) else {
            let text = format!("the option '{option}' is not of the form NAME=VALUE");
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        };
        let name = name.trim().to_ascii_uppercase();
        let quoted = ['\'', '"'].map(|quote| format!("NAME={quote}{name}{quote}"));
        if !quoted.iter().any(|quoted| known.contains(quoted.as_str())) {
            let text = format!("there is no option {name}: see the driver's list of options");
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
    }
    Ok(())
}
