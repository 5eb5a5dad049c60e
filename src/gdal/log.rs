//! Messages and configuration.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::{Arc, PoisonError, RwLock};

use gdal_sys::{CPLDebug, CPLErr, CPLError, CPLGetConfigOption};

use crate::error::Error;

// Numbers of cpl_error.h that gdal-sys, made from functions, does not carry.
const CPLE_APP_DEFINED: i32 = 1;
const CPLE_OUT_OF_MEMORY: i32 = 2;
const CPLE_FILE_IO: i32 = 3;
const CPLE_ILLEGAL_ARG: i32 = 5;
const CPLE_NOT_SUPPORTED: i32 = 6;
const CPLE_ASSERTION_FAILED: i32 = 7;
const CPLE_USER_INTERRUPT: i32 = 9;

/// The driver's name in messages.
pub const NAME: &str = "GPUGTiff";

/// A C string; what follows a NUL is lost.
pub(crate) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A call fails.
    Failure,
    /// The user should know.
    Warning,
    /// A line for CPL_DEBUG.
    Debug,
}

/// Who is told what we say, beside GDAL. Called on the thread that says it.
pub type Listener = Arc<dyn Fn(Level, &CStr) + Send + Sync>;

static LISTENER: RwLock<Option<Listener>> = RwLock::new(None);

/// Has another listener from now on, or none.
pub fn listen(listener: Option<Listener>) {
    *LISTENER.write().unwrap_or_else(PoisonError::into_inner) = listener;
}

fn tell(level: Level, text: &CStr) {
    // A copy, so that a listener may put another in its place.
    let listener = LISTENER.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(listener) = listener {
        listener(level, text);
    }
}

thread_local! {
    static LAST_FAILURE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// The last failure that this thread raised, once.
pub fn take_last_failure() -> Option<Error> {
    LAST_FAILURE.try_with(|last| last.take()).ok().flatten()
}

/// Raises a failure on this thread.
pub fn failure(error: &Error, text: &str) {
    // A thread that is ending has nobody to ask.
    let _ = LAST_FAILURE.try_with(|last| last.replace(Some(error.clone())));
    raise(CPLErr::CE_Failure, code(error), text);
}

/// Raises the failure for a panic that was caught.
pub fn panicked(text: &str) {
    raise(CPLErr::CE_Failure, CPLE_ASSERTION_FAILED, text);
}

/// Raises a warning on this thread.
pub fn warning(text: &str) {
    raise(CPLErr::CE_Warning, CPLE_APP_DEFINED, text);
}

fn raise(class: CPLErr::Type, number: i32, text: &str) {
    let text = c_string(&format!("{NAME}: {text}"));
    let failed = class >= CPLErr::CE_Failure;
    tell(if failed { Level::Failure } else { Level::Warning }, &text);
    // SAFETY: the format takes one string, which lives until the call returns.
    unsafe { CPLError(class, number, c"%s".as_ptr(), text.as_ptr()) };
}

/// A line for CPL_DEBUG.
pub fn debug(text: &str) {
    let text = c_string(text);
    tell(Level::Debug, &text);
    // SAFETY: as in `raise`.
    unsafe { CPLDebug(c"GPUGTIFF".as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
}

/// A configuration option, the thread's before the process's.
pub fn config(name: &str) -> Option<String> {
    let name = c_string(name);
    // SAFETY: the name is a C string. GDAL's answer stays valid until this thread
    // changes the option, and is copied at once.
    unsafe {
        let value = CPLGetConfigOption(name.as_ptr(), std::ptr::null());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

fn code(error: &Error) -> i32 {
    match error {
        Error::Corrupt { .. } | Error::Device(_) => CPLE_APP_DEFINED,
        Error::Unsupported(_) | Error::TooLarge | Error::TooManyTiles(_) => CPLE_NOT_SUPPORTED,
        Error::Io { .. } | Error::Write { .. } | Error::File(_) => CPLE_FILE_IO,
        Error::OutOfMemory { .. } => CPLE_OUT_OF_MEMORY,
        Error::BadOption { .. } => CPLE_ILLEGAL_ARG,
        Error::Interrupted => CPLE_USER_INTERRUPT,
    }
}
