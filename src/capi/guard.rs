//! The one place where panics and errors turn into CPLErrors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};
use crate::gdal::log;
use crate::process::memory;

/// Runs `work`; on an error or a panic raises one CPLError and returns `otherwise`.
pub(super) fn guard<T>(otherwise: T, work: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(|| memory::caught(work))) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            log::failure(&error, &error.to_string());
            otherwise
        }
        Err(panic) => {
            log::panicked(&format!("internal error: {}", panic_text(&*panic)));
            otherwise
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic")
}

/// An error with the place it happened at in front of its text.
pub(super) struct Located<'a> {
    pub(super) place: String,
    pub(super) error: &'a Error,
}

impl Located<'_> {
    pub(super) fn raise(&self) {
        log::failure(self.error, &format!("{}: {}", self.place, self.error));
    }
}
