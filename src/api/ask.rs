//! Questions: versions, devices, which engine and why, counters, and who is told what we say.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::offset_of;
use std::sync::Arc;

use super::handle::Table;
use super::held::Held;
use super::raster::{RASTERS, Raster, out};
use super::result::{
    GPUGTIFF_NO_DEVICE, GPUGTIFF_NULL_ARGUMENT, Outcome, fail, gpugtiff_result, guard,
};
use super::sized::{Out, Tagged};
use super::writer::{WRITERS, Writer};
use crate::capi::Shared;
use crate::engine::cuda::{self, Whereabouts};
use crate::gdal::dataset;
use crate::gdal::log::{self, Level};

/// The version of this library, such as "0.1.0". The text is static. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}

/// The same as a number: major * 10000 + minor * 100 + patch. Compare it with
/// GPUGTIFF_VERSION_NUMBER, which is the header's. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_version_number() -> u32 {
    let parts = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    parts.iter().fold(0, |number, part| number * 100 + part.parse::<u32>().unwrap_or(0))
}

/// The version of GDAL that runs, such as "3.6.2". The text is GDAL's. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_gdal_version() -> *const c_char {
    dataset::version()
}

/// The version of CUDA that the NVIDIA driver knows, as cuDriverGetVersion() says it: 12040 for
/// 12.4. 0 if there is no driver that this library can use. Nothing is started. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_cuda_version() -> u32 {
    let mut version = 0;
    guard(|| {
        version = cuda::cuda_version().map_or(0, |version| version.unsigned_abs());
        Ok(())
    });
    version
}

/// The version of nvCOMP that is found, as nvCOMP says it: 5000 for 5.0.0. 0 if there is none, or
/// no NVIDIA driver to use it with. The library is loaded. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_nvcomp_version() -> u32 {
    let mut version = 0;
    guard(|| {
        version = cuda::nvcomp_version(&whereabouts()).unwrap_or(0);
        Ok(())
    });
    version
}

/// Where the user says that nvCOMP is.
fn whereabouts() -> Whereabouts {
    let nvcomp = log::config("GPUGTIFF_NVCOMP").filter(|path| !path.is_empty());
    Whereabouts { device: None, nvcomp: nvcomp.map(Into::into) }
}

/// A GPU. Make one with gpugtiff_device_facts_init().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceFacts {
    /// sizeof(gpugtiff_device_facts)
    pub size: usize,
    /// Its name, cut off if need be, with a NUL at the end.
    pub name: [c_char; 256],
    /// Compute capability, before the point.
    pub compute_major: i32,
    /// Compute capability, after the point.
    pub compute_minor: i32,
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// 1 if it is new enough for this library.
    pub is_usable: i32,
}

impl Default for DeviceFacts {
    fn default() -> DeviceFacts {
        DeviceFacts {
            size: size_of::<DeviceFacts>(),
            name: [0; 256],
            compute_major: 0,
            compute_minor: 0,
            multiprocessors: 0,
            is_usable: 0,
        }
    }
}

// SAFETY: repr(C), the size first, numbers only.
unsafe impl Tagged for DeviceFacts {
    const NAME: &'static str = "gpugtiff_device_facts";
    const SMALLEST: usize = offset_of!(DeviceFacts, is_usable) + size_of::<i32>();
}

/// How many GPUs the NVIDIA driver shows, CUDA_VISIBLE_DEVICES heeded; 0 where there is no driver, and
/// after a GPU failed in this process, as the driver is left alone then. CUDA is initialised.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_device_count() -> i32 {
    let mut count = 0;
    guard(|| {
        count = cuda::device_count().unwrap_or(0);
        Ok(())
    });
    count
}

/// Facts of a GPU, counted from 0. GPUGTIFF_NO_DEVICE, with the reason, if there is no such.
/// Thread-safe.
///
/// # Safety
/// `out_facts` must be a struct with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_device_info(
    device: i32,
    out_facts: *mut DeviceFacts,
) -> gpugtiff_result {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(out_facts) }?;
        let facts = match cuda::device_facts(device) {
            Ok(facts) => facts,
            Err(refusal) => return fail(GPUGTIFF_NO_DEVICE, refusal.to_string()),
        };
        let mut info = DeviceFacts {
            compute_major: facts.capability.0,
            compute_minor: facts.capability.1,
            multiprocessors: facts.multiprocessors,
            is_usable: i32::from(facts.usable),
            ..DeviceFacts::default()
        };
        let room = info.name.len() - 1;
        for (to, from) in info.name[..room].iter_mut().zip(facts.name.bytes()) {
            *to = from as c_char;
        }
        out.fill(&info);
        Ok(())
    })
}

thread_local! {
    /// The last answers of gpugtiff_…_engine().
    static ENGINE: RefCell<[CString; 2]> = RefCell::default();
}

/// Says the engine's name and the reason for it.
///
/// # Safety
/// Both must be places.
unsafe fn engine(
    shared: &Shared,
    out_name: *mut *const c_char,
    out_reason: *mut *const c_char,
) -> Outcome<()> {
    out(out_name, "out_name")?;
    out(out_reason, "out_reason")?;
    let mut said = [CString::default(), CString::default()];
    shared.describe(|name, value| match name {
        "ENGINE" => said[0] = log::c_string(value),
        "ENGINE_REASON" => said[1] = log::c_string(value),
        _ => {}
    });
    ENGINE.with(|kept| {
        let kept = &mut *kept.borrow_mut();
        *kept = said;
        // SAFETY: the caller's places.
        unsafe {
            *out_name = kept[0].as_ptr();
            *out_reason = kept[1].as_ptr();
        }
    });
    Ok(())
}

/// Which engine decodes what is read into host memory ("CPU" or "CUDA"), and why; windows into
/// device memory are CUDA's, as far as it decodes them (counters CUDA_...). Both texts are valid
/// until this thread's next such question. Thread-safe.
///
/// # Safety
/// `out_name` and `out_reason` must be places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_engine(
    raster: *const Raster,
    out_name: *mut *const c_char,
    out_reason: *mut *const c_char,
) -> gpugtiff_result {
    // SAFETY: the caller's promise.
    guard(|| unsafe { engine(&Held::of(raster)?.shared, out_name, out_reason) })
}

/// Which engine encodes, and why: as gpugtiff_raster_engine(). Thread-safe.
///
/// # Safety
/// `out_name` and `out_reason` must be places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_writer_engine(
    writer: *const Writer,
    out_name: *mut *const c_char,
    out_reason: *mut *const c_char,
) -> gpugtiff_result {
    // SAFETY: the caller's promise.
    guard(|| unsafe { engine(&WRITERS.get(writer)?.shared, out_name, out_reason) })
}

/// Is told a counter; the name is valid during the call. It must return: no exception, no longjmp.
#[allow(non_camel_case_types)]
pub type gpugtiff_counter_callback =
    Option<unsafe extern "C" fn(name: *const c_char, value: u64, user: *mut c_void)>;

/// # Safety
/// The callback must be what it says.
unsafe fn counters<T>(
    table: &Table<T>,
    handle: *const T,
    shared: impl Fn(&T) -> Arc<Shared>,
    callback: gpugtiff_counter_callback,
    user: *mut c_void,
) -> Outcome<()> {
    let shared = table.ask(handle, |object| shared(object))?;
    let Some(callback) = callback else {
        return fail(GPUGTIFF_NULL_ARGUMENT, "the callback is NULL");
    };
    shared.describe(|name, value| {
        if let Ok(value) = value.parse() {
            let name = log::c_string(name);
            // SAFETY: the caller's promise.
            unsafe { callback(name.as_ptr(), value, user) };
        }
    });
    Ok(())
}

/// Tells the raster's counters (TILES_DECODED, BYTES_READ, …), one call of `callback` for each, on
/// this thread. The callback may use this API. Thread-safe, while others read too.
///
/// # Safety
/// The callback must be what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_counters(
    raster: *const Raster,
    callback: gpugtiff_counter_callback,
    user: *mut c_void,
) -> gpugtiff_result {
    let shared = |raster: &Raster| Arc::clone(&raster.shared);
    // SAFETY: the caller's promise.
    guard(|| unsafe { counters(&RASTERS, raster, shared, callback, user) })
}

/// Tells the writer's counters, as gpugtiff_raster_counters(); after it is finished too.
/// Thread-safe.
///
/// # Safety
/// The callback must be what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_writer_counters(
    writer: *const Writer,
    callback: gpugtiff_counter_callback,
    user: *mut c_void,
) -> gpugtiff_result {
    let shared = |writer: &Writer| Arc::clone(&writer.shared);
    // SAFETY: the caller's promise.
    guard(|| unsafe { counters(&WRITERS, writer, shared, callback, user) })
}

/// How much a message matters: one of GPUGTIFF_LOG_….
#[allow(non_camel_case_types)]
pub type gpugtiff_log_level = i32;

/// A call fails. The function's result says so too.
pub const GPUGTIFF_LOG_ERROR: gpugtiff_log_level = 1;
/// The user should know.
pub const GPUGTIFF_LOG_WARNING: gpugtiff_log_level = 2;
/// For those who look for something.
pub const GPUGTIFF_LOG_DEBUG: gpugtiff_log_level = 3;

/// Is told a message; the text is valid during the call. It must not call this API, which is in the
/// middle of something, and must return: no exception, no longjmp.
#[allow(non_camel_case_types)]
pub type gpugtiff_log_callback = Option<
    unsafe extern "C" fn(level: gpugtiff_log_level, message: *const c_char, user: *mut c_void),
>;

/// The callback and what it is to get.
struct Ear {
    callback: unsafe extern "C" fn(gpugtiff_log_level, *const c_char, *mut c_void),
    user: *mut c_void,
}

// SAFETY: the caller's promise in gpugtiff_log_set(): any thread may call it.
unsafe impl Send for Ear {}
// SAFETY: as above.
unsafe impl Sync for Ear {}

impl Ear {
    fn tell(&self, level: Level, text: &CStr) {
        let level = match level {
            Level::Failure => GPUGTIFF_LOG_ERROR,
            Level::Warning => GPUGTIFF_LOG_WARNING,
            Level::Debug => GPUGTIFF_LOG_DEBUG,
        };
        // SAFETY: the caller's promise in gpugtiff_log_set().
        unsafe { (self.callback)(level, text.as_ptr(), self.user) };
    }
}

/// Has this library's own messages told to `callback`, in the whole process; NULL ends that. What
/// GDAL and its other drivers say is not among them. Messages go to GDAL's error handlers as well,
/// but for failures of calls of this API, which are results. The callback may be called on any
/// thread, by several at once, and by a call that is under way when this one returns. Thread-safe.
///
/// # Safety
/// The callback must be what it says, on any thread, until it is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_log_set(
    callback: gpugtiff_log_callback,
    user: *mut c_void,
) -> gpugtiff_result {
    guard(|| {
        log::listen(callback.map(|callback| {
            let ear = Ear { callback, user };
            Arc::new(move |level: Level, text: &CStr| ear.tell(level, text)) as log::Listener
        }));
        Ok(())
    })
}
