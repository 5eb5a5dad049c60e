//! The engine under test, and whether it stands on hardware.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::OnceLock;

use gpugtiff::engine::Engine;
use gpugtiff::engine::cuda::{CudaEngine, Gds, Refusal, Settings, Verify, Whereabouts};

/// The emulated driver and nvCOMP, if they are to be used.
pub(crate) fn emulator() -> Option<PathBuf> {
    std::env::var_os("GPUGTIFF_EMULATED_CUDA").map(PathBuf::from)
}

/// Sizes are to be small: an emulated GPU is a few thousand times slower.
pub(crate) fn small() -> bool {
    std::env::var_os("GPUGTIFF_HARDWARE_SMALL").is_some_and(|value| value != "0")
}

/// The first on hardware, the second where sizes are to be small.
pub(crate) fn sized<T>(full: T, reduced: T) -> T {
    if small() { reduced } else { full }
}

/// Threads that the CPU has.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Makes the emulator the driver of this process: whoever asks for libcuda.so.1 from now on gets
/// it, as that is what it calls itself.
fn load(path: PathBuf) -> PathBuf {
    static LOADED: OnceLock<()> = OnceLock::new();
    LOADED.get_or_init(|| {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a C string; the library was made for this, and is never unloaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "{} could not be loaded", path.display());
    });
    path
}

/// An engine of its own, with the memory that users have by default.
pub(crate) fn engine(verify: Verify) -> CudaEngine {
    engine_with(verify, 64 << 20)
}

/// The same with another BATCH_MB, in bytes.
pub(crate) fn engine_with(verify: Verify, batch_bytes: usize) -> CudaEngine {
    CudaEngine::new(settings(verify, batch_bytes)).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The same, reading local files past the host, or why it cannot.
pub(crate) fn direct(verify: Verify) -> Result<CudaEngine, Refusal> {
    let given = || std::env::var_os("GPUGTIFF_CUFILE").map(PathBuf::from);
    let cufile = emulator().map(load).or_else(given);
    CudaEngine::new(Settings { gds: Gds::Yes, cufile, ..settings(verify, 64 << 20) })
}

fn settings(verify: Verify, batch_bytes: usize) -> Settings {
    let given = || std::env::var_os("GPUGTIFF_NVCOMP").map(PathBuf::from);
    let device = std::env::var("GPUGTIFF_DEVICE").ok().and_then(|number| number.parse().ok());
    let nvcomp = emulator().map(load).or_else(given);
    Settings {
        whereabouts: Whereabouts { device, nvcomp },
        device_bytes: None,
        batch_bytes,
        verify,
        levels_given: (true, true),
        patient: true,
        ..Settings::default()
    }
}

/// What the engine counted under this name.
pub(crate) fn count(engine: &dyn Engine, name: &str) -> u64 {
    let counters = engine.report().counters;
    counters.iter().find(|(key, _)| *key == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Tiles that the CPU did for this engine.
pub(crate) fn done_by_cpu(engine: &dyn Engine) -> u64 {
    let names = ["CUDA_TILES_REDONE", "CUDA_TILES_LEFT_TO_CPU"];
    let counters = engine.report().counters;
    counters.iter().filter(|(name, _)| names.contains(name)).map(|(_, n)| n).sum()
}

/// Fails if the device did not do all of it itself: `done` tiles under this name, none again.
pub(crate) fn assert_all_on_device(engine: &dyn Engine, name: &str, done: usize) {
    for none in ["CUDA_TILES_REDONE", "CUDA_TILES_LEFT_TO_CPU", "CUDA_TILES_BUSY", "CUDA_FAULTS"] {
        assert_eq!(count(engine, none), 0, "{none}: {:?}", engine.notices());
    }
    assert_eq!(count(engine, name), done as u64, "{name}");
}
