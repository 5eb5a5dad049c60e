//! Ranges for NVIDIA's profilers, where their library is there: what a thread does with a batch.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

use super::library::Library;

struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

fn nvtx() -> Option<&'static Nvtx> {
    static FOUND: OnceLock<Option<Nvtx>> = OnceLock::new();
    let find = || {
        let library = Library::open(Path::new("libnvToolsExt.so.1"))?;
        // SAFETY: the types as in nvToolsExt.h.
        unsafe {
            let (push, pop) =
                (library.function("nvtxRangePushA"), library.function("nvtxRangePop"));
            Some(Nvtx { push: push?, pop: pop? })
        }
    };
    FOUND.get_or_init(find).as_ref()
}

/// While it lives, the thread is shown to do this.
pub(super) struct Range(Option<&'static Nvtx>);

impl Range {
    /// Begins one.
    pub(super) fn new(name: &CStr) -> Range {
        let nvtx = nvtx();
        if let Some(nvtx) = nvtx {
            // SAFETY: a C string, which is copied.
            unsafe { (nvtx.push)(name.as_ptr()) };
        }
        Range(nvtx)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(nvtx) = self.0 {
            // SAFETY: ends the range that this thread began last.
            unsafe { (nvtx.pop)() };
        }
    }
}
