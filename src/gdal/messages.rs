//! What GDAL says during a call, kept for the caller instead of printed.
//!
//! Failures stay here; warnings go on to the thread's own error handler when the call is
//! over. The thread's last error is afterwards what it was before.

use std::ffi::{CStr, CString, c_char, c_void};

use gdal_sys::{
    CPLErr, CPLError, CPLErrorSetState, CPLGetErrorHandlerUserData, CPLGetLastErrorMsg,
    CPLGetLastErrorNo, CPLGetLastErrorType, CPLPopErrorHandler, CPLPushErrorHandlerEx,
    CPLSetCurrentErrorHandlerCatchDebug,
};

use crate::process::memory;

/// One of GDAL's messages.
#[derive(Debug, Clone)]
struct Message {
    class: CPLErr::Type,
    number: i32,
    text: CString,
}

/// The failures of one call, in order.
#[derive(Debug, Default)]
pub struct Failures(Vec<Message>);

impl Failures {
    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Warnings apart from what is worse.
    pub fn split_warnings(self) -> (Failures, Failures) {
        let (failures, warnings) =
            self.0.into_iter().partition(|message| message.class >= CPLErr::CE_Failure);
        (Failures(failures), Failures(warnings))
    }

    /// The number (CPLE_…) of the first.
    pub fn number(&self) -> Option<i32> {
        self.0.first().map(|message| message.number)
    }

    /// All of them, each once.
    pub fn text(&self) -> String {
        let mut texts: Vec<String> = Vec::new();
        for message in &self.0 {
            let text = message.text.to_string_lossy().into_owned();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts.join("; ")
    }
}

/// While it lives, this thread's messages come to it.
struct Handler {
    /// From Box::into_raw: GDAL has the pointer too.
    held: *mut Vec<Message>,
    before: Message,
}

unsafe extern "C" fn hold(class: CPLErr::Type, number: i32, text: *const c_char) {
    // SAFETY: the user data is the list of the `Handler` that this thread pushed last, and
    // only this thread touches it.
    let held = unsafe { CPLGetErrorHandlerUserData().cast::<Vec<Message>>().as_mut() };
    if let Some(held) = held {
        // SAFETY: GDAL passes a C string.
        let message = Message { class, number, text: unsafe { CStr::from_ptr(text) }.to_owned() };
        // The first ones say what went wrong.
        let _ = memory::push(held, message, "messages");
    }
}

impl Handler {
    fn push() -> Handler {
        let held: *mut Vec<Message> = Box::into_raw(Box::default());
        // SAFETY: the list lives until `drop` has popped the handler. GDAL's text is copied at
        // once.
        unsafe {
            let before = Message {
                class: CPLGetLastErrorType(),
                number: CPLGetLastErrorNo(),
                text: CStr::from_ptr(CPLGetLastErrorMsg()).to_owned(),
            };
            CPLPushErrorHandlerEx(Some(hold), held.cast::<c_void>());
            // Debugging lines go where they always go.
            CPLSetCurrentErrorHandlerCatchDebug(0);
            Handler { held, before }
        }
    }

    /// What was said.
    fn take(&mut self) -> Vec<Message> {
        // SAFETY: made by `push`; nothing is said meanwhile on this thread.
        std::mem::take(unsafe { &mut *self.held })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let before = &self.before;
        // SAFETY: pops what `push` pushed on this thread, after which nobody has the list; GDAL
        // copies the text.
        unsafe {
            CPLPopErrorHandler();
            drop(Box::from_raw(self.held));
            CPLErrorSetState(before.class, before.number, before.text.as_ptr());
        }
    }
}

/// Runs `work` and gives back all that was said meanwhile, warnings too.
pub fn capture_all<T>(work: impl FnOnce() -> T) -> (T, Failures) {
    let mut handler = Handler::push();
    let result = work();
    let said = handler.take();
    (result, Failures(said))
}

/// Runs `work` and gives back what failed in it.
pub fn capture<T>(work: impl FnOnce() -> T) -> (T, Failures) {
    let mut handler = Handler::push();
    let result = work();
    let (failures, others): (Vec<_>, Vec<_>) =
        handler.take().into_iter().partition(|message| message.class >= CPLErr::CE_Failure);
    let before = handler.before.clone();
    drop(handler);
    for Message { class, number, text } in others {
        // SAFETY: the format takes one string, which lives until the call returns; the state
        // is put back as above.
        unsafe {
            CPLError(class, number, c"%s".as_ptr(), text.as_ptr());
            CPLErrorSetState(before.class, before.number, before.text.as_ptr());
        }
    }
    (result, Failures(failures))
}
