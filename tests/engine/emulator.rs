//! The CUDA engine on the emulated driver, which is built beside this test.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use gpugtiff::engine::Engine;
use gpugtiff::engine::cuda::{CudaEngine, Gds, Refusal, Settings, Verify, Whereabouts};

use crate::on_file::OnFile;

/// Where it is.
pub(crate) fn path() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libemulated_cuda.so")
}

/// Loads the emulator as libcuda.so.1; whoever asks for that name from now on gets it.
fn load() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let beside = path();
        let name = CString::new(beside.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a C string; the library was made for this.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "{} could not be loaded", beside.display());
        beside
    })
    .clone()
}

/// An engine of its own.
pub(crate) fn engine(verify: Verify) -> CudaEngine {
    try_engine(verify, 64 << 20).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// An engine, or why there is none.
pub(crate) fn try_engine(verify: Verify, batch_bytes: usize) -> Result<CudaEngine, Refusal> {
    CudaEngine::new(settings(verify, batch_bytes))
}

/// The same, reading local files past the host.
pub(crate) fn try_direct(verify: Verify, batch_bytes: usize) -> Result<CudaEngine, Refusal> {
    let (gds, cufile) = (Gds::Yes, Some(load()));
    CudaEngine::new(Settings { gds, cufile, ..settings(verify, batch_bytes) })
}

/// One that looks for nvJPEG2000 where it is not.
pub(crate) fn without_nvjpeg2k() -> CudaEngine {
    let nvjpeg2k = Some("/nonexistent/libnvjpeg2k.so.0".into());
    let settings = Settings { nvjpeg2k, ..settings(Verify::No, 64 << 20) };
    CudaEngine::new(settings).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The same with what users have by default, given real files.
pub(crate) fn on_file(verify: Verify) -> OnFile {
    OnFile(try_direct(verify, 64 << 20).unwrap_or_else(|refusal| panic!("{refusal}")))
}

pub(crate) fn settings(verify: Verify, batch_bytes: usize) -> Settings {
    Settings {
        whereabouts: Whereabouts { device: None, nvcomp: Some(load()) },
        device_bytes: None,
        batch_bytes,
        verify,
        levels_given: (true, true),
        patient: true,
        nvjpeg2k: Some(load()),
        ..Settings::default()
    }
}

/// Changes a setting of the emulator's, by its name without EMUCUDA_.
pub(crate) fn set(name: &str, value: &str) {
    let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
    // SAFETY: two C strings, as it is declared.
    unsafe {
        let set: unsafe extern "C" fn(*const c_char, *const c_char) -> u32 =
            std::mem::transmute(symbol(c"emucudaSet"));
        assert_eq!(set(name.as_ptr(), value.as_ptr()), 0, "{name:?}={value:?}");
    }
}

/// Its report begins anew.
pub(crate) fn reset() {
    // SAFETY: as it is declared.
    unsafe {
        let reset: unsafe extern "C" fn() -> u32 = std::mem::transmute(symbol(c"emucudaReset"));
        reset();
    }
}

/// A function of the emulator's.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    load();
    // SAFETY: a C string; the emulator was loaded for everybody.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

/// What the engine counted under this name.
pub(crate) fn count(engine: &dyn Engine, name: &str) -> u64 {
    let counters = engine.report().counters;
    counters.iter().find(|(key, _)| *key == name).unwrap_or_else(|| panic!("{name}")).1
}
