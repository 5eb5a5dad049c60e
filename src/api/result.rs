//! What every function of the C API answers: a number, and for failures a sentence that the
//! thread can ask for.
//!
//! `guard` is the one place where errors and panics become results. Nothing here knows what
//! was asked for.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::capi::panic_text;
use crate::error::Error;
use crate::gdal::log;
use crate::gdal::messages::{Failures, capture};

/// How a call ended: #GPUGTIFF_OK, #GPUGTIFF_DONE, or a negative number that says why it failed.
/// After a failure gpugtiff_error_message() has a sentence, and neither out-parameters nor
/// pixels were written, unless the function says otherwise.
#[allow(non_camel_case_types)]
pub type gpugtiff_result = i32;

/// All went well.
pub const GPUGTIFF_OK: gpugtiff_result = 0;
/// There is nothing more to come. Not a failure: no message is left.
pub const GPUGTIFF_DONE: gpugtiff_result = 1;
/// A pointer that must point to something is NULL.
pub const GPUGTIFF_NULL_ARGUMENT: gpugtiff_result = -1;
/// The handle was freed, or is of another kind.
pub const GPUGTIFF_BAD_HANDLE: gpugtiff_result = -2;
/// An argument means nothing: an option, the size of a struct, a type, a band, a level.
pub const GPUGTIFF_BAD_ARGUMENT: gpugtiff_result = -3;
/// The window is empty or leaves the image.
pub const GPUGTIFF_OUT_OF_IMAGE: gpugtiff_result = -4;
/// Strides that put pixels outside the given bytes or on top of each other, or that overflow.
pub const GPUGTIFF_BAD_STRIDE: gpugtiff_result = -5;
/// Host memory where device memory was said, or the reverse.
pub const GPUGTIFF_WRONG_MEMORY: gpugtiff_result = -6;
/// Pointer, stream and device do not belong together.
pub const GPUGTIFF_WRONG_DEVICE: gpugtiff_result = -7;
/// There is no such GPU, or none that can be used.
pub const GPUGTIFF_NO_DEVICE: gpugtiff_result = -8;
/// The dataset was not opened by this driver, or by another copy of this library.
pub const GPUGTIFF_FOREIGN_DATASET: gpugtiff_result = -9;
/// The file does not exist, cannot be opened, or is no TIFF.
pub const GPUGTIFF_OPEN_FAILED: gpugtiff_result = -10;
/// The file is damaged.
pub const GPUGTIFF_CORRUPT: gpugtiff_result = -11;
/// Reading or writing failed.
pub const GPUGTIFF_IO: gpugtiff_result = -12;
/// An allocation was refused.
pub const GPUGTIFF_OUT_OF_MEMORY: gpugtiff_result = -13;
/// Valid, but not done by this library or by this GDAL.
pub const GPUGTIFF_UNSUPPORTED: gpugtiff_result = -14;
/// The caller asked to stop.
pub const GPUGTIFF_INTERRUPTED: gpugtiff_result = -15;
/// The GPU failed.
pub const GPUGTIFF_DEVICE_FAILED: gpugtiff_result = -16;
/// Not now: the writer is finished already, or there is no batch yet.
pub const GPUGTIFF_STATE: gpugtiff_result = -17;
/// A fault of this library. Please report it.
pub const GPUGTIFF_PANIC: gpugtiff_result = -18;

/// Why a call fails: what C sees, and a sentence.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) code: gpugtiff_result,
    pub(super) text: String,
}

pub(super) type Outcome<T> = std::result::Result<T, Failure>;

/// A failure.
pub(super) fn fail<T>(code: gpugtiff_result, text: impl Into<String>) -> Outcome<T> {
    Err(Failure { code, text: text.into() })
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { code: code(&error), text: error.to_string() }
    }
}

fn code(error: &Error) -> gpugtiff_result {
    match error {
        Error::Corrupt { .. } => GPUGTIFF_CORRUPT,
        Error::Unsupported(_) | Error::TooLarge | Error::TooManyTiles(_) => GPUGTIFF_UNSUPPORTED,
        Error::Io { .. } | Error::Write { .. } | Error::File(_) => GPUGTIFF_IO,
        Error::OutOfMemory { .. } => GPUGTIFF_OUT_OF_MEMORY,
        Error::BadOption { .. } => GPUGTIFF_BAD_ARGUMENT,
        Error::Device(_) => GPUGTIFF_NO_DEVICE,
        Error::Interrupted => GPUGTIFF_INTERRUPTED,
    }
}

/// What GDAL's numbers (cpl_error.h) are here; `otherwise` for those that say nothing.
fn gdal_code(number: i32, otherwise: gpugtiff_result) -> gpugtiff_result {
    match number {
        2 => GPUGTIFF_OUT_OF_MEMORY,
        3 => GPUGTIFF_IO,
        4 => GPUGTIFF_OPEN_FAILED,
        5 => GPUGTIFF_BAD_ARGUMENT,
        6 => GPUGTIFF_UNSUPPORTED,
        7 => GPUGTIFF_PANIC,
        9 => GPUGTIFF_INTERRUPTED,
        _ => otherwise,
    }
}

/// The failure that GDAL's messages tell of. Where they are our own, what we knew when we
/// raised them says more than GDAL's number does.
fn told(failures: &Failures, what: &str, otherwise: gpugtiff_result) -> Failure {
    let ours = log::take_last_failure().map(|error| code(&error));
    let gdal = || gdal_code(failures.number().unwrap_or(0), otherwise);
    let said = failures.text();
    let text =
        if said.is_empty() { format!("{what} failed, and GDAL gave no reason") } else { said };
    Failure { code: ours.unwrap_or_else(gdal), text }
}

/// Calls GDAL: `work` says whether it went well. `what` and `otherwise` are for the failures
/// that GDAL does not explain.
pub(super) fn ask_gdal<T>(
    what: &str,
    otherwise: gpugtiff_result,
    work: impl FnOnce() -> Option<T>,
) -> Outcome<T> {
    log::take_last_failure();
    let (answer, failures) = capture(work);
    answer.ok_or_else(|| told(&failures, what, otherwise))
}

/// The same where GDAL has no other way to say that something failed than a message.
pub(super) fn ask_gdal_strictly(
    what: &str,
    otherwise: gpugtiff_result,
    work: impl FnOnce() -> bool,
) -> Outcome<()> {
    log::take_last_failure();
    let (fine, failures) = capture(work);
    match fine && failures.is_empty() {
        true => Ok(()),
        false => Err(told(&failures, what, otherwise)),
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    // A thread that is ending has nobody to read it.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = log::c_string(text);
        }
    });
}

/// Runs the work of one function: its failure, or its panic, becomes the thread's message.
pub(super) fn guard(work: impl FnOnce() -> Outcome<()>) -> gpugtiff_result {
    guard_result(|| work().map(|()| GPUGTIFF_OK))
}

/// The same for a function that has more than one good result.
pub(super) fn guard_result(work: impl FnOnce() -> Outcome<gpugtiff_result>) -> gpugtiff_result {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failure)) => failure,
        Err(panic) if panic.is::<Error>() => match panic.downcast::<Error>() {
            Ok(error) => Failure::from(*error),
            Err(_) => Failure { code: GPUGTIFF_PANIC, text: String::new() },
        },
        Err(panic) => {
            let text = format!("internal error: {}", panic_text(&*panic));
            Failure { code: GPUGTIFF_PANIC, text }
        }
    };
    remember(&failure.text);
    failure.code
}

/// The same for a function that has no result.
pub(super) fn guard_quietly(work: impl FnOnce()) {
    guard(|| {
        work();
        Ok(())
    });
}

/// The last failure of this thread, as a sentence; empty if there was none. It stays as it is
/// when later calls succeed. The text is valid until this thread's next failure. Thread-safe:
/// each thread has its own.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_error_message() -> *const c_char {
    let message = LAST.try_with(|last| last.try_borrow().map(|last| last.as_ptr()));
    message.ok().and_then(Result::ok).unwrap_or(c"".as_ptr())
}

/// The name of a result, such as "GPUGTIFF_CORRUPT". Never NULL; the text is static.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_result_name(result: gpugtiff_result) -> *const c_char {
    name(result).as_ptr()
}

fn name(result: gpugtiff_result) -> &'static CStr {
    match result {
        GPUGTIFF_OK => c"GPUGTIFF_OK",
        GPUGTIFF_DONE => c"GPUGTIFF_DONE",
        GPUGTIFF_NULL_ARGUMENT => c"GPUGTIFF_NULL_ARGUMENT",
        GPUGTIFF_BAD_HANDLE => c"GPUGTIFF_BAD_HANDLE",
        GPUGTIFF_BAD_ARGUMENT => c"GPUGTIFF_BAD_ARGUMENT",
        GPUGTIFF_OUT_OF_IMAGE => c"GPUGTIFF_OUT_OF_IMAGE",
        GPUGTIFF_BAD_STRIDE => c"GPUGTIFF_BAD_STRIDE",
        GPUGTIFF_WRONG_MEMORY => c"GPUGTIFF_WRONG_MEMORY",
        GPUGTIFF_WRONG_DEVICE => c"GPUGTIFF_WRONG_DEVICE",
        GPUGTIFF_NO_DEVICE => c"GPUGTIFF_NO_DEVICE",
        GPUGTIFF_FOREIGN_DATASET => c"GPUGTIFF_FOREIGN_DATASET",
        GPUGTIFF_OPEN_FAILED => c"GPUGTIFF_OPEN_FAILED",
        GPUGTIFF_CORRUPT => c"GPUGTIFF_CORRUPT",
        GPUGTIFF_IO => c"GPUGTIFF_IO",
        GPUGTIFF_OUT_OF_MEMORY => c"GPUGTIFF_OUT_OF_MEMORY",
        GPUGTIFF_UNSUPPORTED => c"GPUGTIFF_UNSUPPORTED",
        GPUGTIFF_INTERRUPTED => c"GPUGTIFF_INTERRUPTED",
        GPUGTIFF_DEVICE_FAILED => c"GPUGTIFF_DEVICE_FAILED",
        GPUGTIFF_STATE => c"GPUGTIFF_STATE",
        GPUGTIFF_PANIC => c"GPUGTIFF_PANIC",
        _ => c"an unknown result",
    }
}
