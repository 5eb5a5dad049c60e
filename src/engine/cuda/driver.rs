//! The CUDA driver, in the few words that this engine needs.
//!
//! Every call goes through [`Device::ask`]: after a fault that the driver cannot recover from, in
//! a forked child and while the process exits, nothing is called any more. Handles are types that
//! free themselves. Absent: tiles, and what kernels mean.

mod foreign;

pub(super) use self::foreign::Owner;

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

/// What the driver or nvCOMP answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// What was called.
    pub(super) call: &'static str,
    /// The code; nvCOMP's begin at 10.
    pub(super) code: i32,
    /// The code is nvCOMP's.
    pub(super) nvcomp: bool,
}

/// The process cannot use the device any more.
const STICKY: [Range<i32>; 4] = [700..701, 702..703, 710..711, 714..720];
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: i32 = 2;
/// CUDA_ERROR_DEINITIALIZED: the process is exiting.
const DEINITIALIZED: i32 = 4;
/// What we answer instead of calling a driver that must be left alone.
const LEFT_ALONE: i32 = -1;

impl Fault {
    fn new(call: &'static str, error: DriverError) -> Fault {
        Fault { call, code: error.0 as i32, nvcomp: false }
    }

    /// The answer to a call that is no device's.
    pub(super) fn early(call: &'static str, code: i32) -> Fault {
        let fault = Fault { call, code, nvcomp: false };
        if fault.is_sticky() {
            LOST.set(("the driver".into(), code)).ok();
        }
        fault
    }

    /// Device memory is short: try with less.
    pub(super) fn is_out_of_memory(self) -> bool {
        !self.nvcomp && self.code == OUT_OF_MEMORY
    }

    /// The driver is left alone from now on.
    pub(super) fn is_sticky(self) -> bool {
        !self.nvcomp && STICKY.iter().any(|codes| codes.contains(&self.code))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.code == LEFT_ALONE {
            return write!(f, "{}: the device is no longer used", self.call);
        }
        let (name, code) = (if self.nvcomp { "nvCOMP" } else { "CUDA" }, self.code);
        let meaning = match (self.nvcomp, code) {
            (false, 2) => ": out of memory",
            (false, 46 | 101) => ": the device is busy or not available",
            (false, 100) => ": no device",
            (false, 209 | 218 | 222) => ": the driver does not take our kernels",
            (false, 700) => ": illegal address",
            (false, 716) => ": misaligned address",
            (false, 719) => ": launch failure",
            _ => "",
        };
        write!(f, "{}: {name} error {code}{meaning}", self.call)
    }
}

pub(super) type Answer<T> = Result<T, Fault>;

/// A device with our hold on its primary context.
pub(super) struct Device {
    /// Its number among the visible ones.
    pub(super) ordinal: i32,
    /// For people.
    pub(super) name: String,
    /// Multiprocessors.
    pub(super) multiprocessors: usize,
    /// Compute capability.
    pub(super) capability: (i32, i32),
    handle: sys::CUdevice,
    context: sys::CUcontext,
    pid: u32,
    lost: AtomicBool,
    /// The code that it was lost with, for the message.
    lost_code: AtomicI32,
}

// SAFETY: the driver's handles may be used from any thread; each use makes the context current.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Who failed first in this process, and with what code.
static LOST: OnceLock<(String, i32)> = OnceLock::new();

/// The name of a device that failed in this process, and the code. Whoever asks waits for nobody: not
/// for a driver that is being started either.
pub(super) fn lost() -> Option<&'static (String, i32)> {
    LOST.get()
}

/// Of a call that is no device's.
fn early(call: &'static str) -> impl Fn(DriverError) -> Fault {
    move |error| Fault::early(call, error.0 as i32)
}

/// Compute capability of the device with this number; nothing is taken hold of.
pub(super) fn capability(ordinal: i32) -> Answer<(i32, i32)> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal).map_err(early("cuDeviceGet"))?;
    let attribute = |which| {
        // SAFETY: a device of this driver.
        unsafe { result::device::get_attribute(device, which) }
            .map_err(early("cuDeviceGetAttribute"))
    };
    Ok((
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Name, multiprocessors and compute capability of a device; nothing is taken hold of.
pub(super) fn describe(ordinal: i32) -> Answer<(String, i32, (i32, i32))> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal).map_err(early("cuDeviceGet"))?;
    // SAFETY: a device of this driver.
    let multiprocessors = unsafe {
        let which = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        result::device::get_attribute(device, which).map_err(early("cuDeviceGetAttribute"))
    }?;
    let name = result::device::get_name(device).map_err(early("cuDeviceGetName"))?;
    Ok((name, multiprocessors, capability(ordinal)?))
}

/// Who may use the device.
pub(super) fn compute_mode(ordinal: i32) -> Answer<i32> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal).map_err(early("cuDeviceGet"))?;
    let which = Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
    // SAFETY: a device of this driver.
    unsafe { result::device::get_attribute(device, which) }.map_err(early("cuDeviceGetAttribute"))
}

impl Device {
    /// Takes hold of the primary context of the device with this number.
    pub(super) fn open(ordinal: i32) -> Answer<Device> {
        let device = result::device::get(ordinal).map_err(early("cuDeviceGet"))?;
        let (name, multiprocessors, capability) = describe(ordinal)?;
        // SAFETY: a device of this driver. The device that is used stays with the process: nothing is called
        // while it exits.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(early("cuDevicePrimaryCtxRetain"))?;
        Ok(Device {
            ordinal,
            name,
            multiprocessors: multiprocessors.max(1) as usize,
            capability,
            handle: device,
            context,
            pid: std::process::id(),
            lost: AtomicBool::new(false),
            lost_code: AtomicI32::new(0),
        })
    }

    /// Whether the driver may be called.
    pub(super) fn usable(&self) -> bool {
        !self.lost.load(Ordering::Acquire) && self.pid == std::process::id()
    }

    /// The code of the fault that ended it.
    pub(super) fn lost_with(&self) -> Option<i32> {
        self.lost.load(Ordering::Acquire).then(|| self.lost_code.load(Ordering::Relaxed))
    }

    /// Calls the driver, unless it must be left alone.
    pub(super) fn ask<T>(
        &self,
        call: &'static str,
        question: impl FnOnce() -> Result<T, DriverError>,
    ) -> Answer<T> {
        if !self.usable() {
            return Err(Fault { call, code: LEFT_ALONE, nvcomp: false });
        }
        question().map_err(|error| self.note(Fault::new(call, error)))
    }

    /// Remembers a fault that ends the device.
    pub(super) fn note(&self, fault: Fault) -> Fault {
        if fault.is_sticky() || fault.code == DEINITIALIZED && !fault.nvcomp {
            self.abandon(fault.code);
        }
        fault
    }

    /// From now on the device is left alone.
    pub(super) fn abandon(&self, code: i32) {
        let _ = LOST.set((self.name.clone(), code));
        let _ = self.lost_code.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        self.lost.store(true, Ordering::Release);
    }

    /// Makes our context the thread's current one until the guard goes.
    pub(super) fn enter(self: &Arc<Self>) -> Answer<Current> {
        let before = self.ask("cuCtxGetCurrent", result::ctx::get_current)?;
        if before != Some(self.context) {
            // SAFETY: a context that we hold.
            self.ask("cuCtxSetCurrent", || unsafe { result::ctx::set_current(self.context) })?;
        }
        Ok(Current { device: Arc::clone(self), before })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: held once by `open`. Not the last word on the context: others may hold it.
        let released = self.ask("cuDevicePrimaryCtxRelease", || unsafe {
            result::primary_ctx::release(self.handle)
        });
        // Nobody asks this one any more.
        let _ = released.map_err(|fault| Fault::early(fault.call, fault.code));
    }
}

/// While it lives, our context is this thread's.
pub(super) struct Current {
    device: Arc<Device>,
    before: Option<sys::CUcontext>,
}

impl Current {
    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Free and total device memory.
    pub(super) fn memory(&self) -> Answer<(usize, usize)> {
        self.device.ask("cuMemGetInfo", result::mem_get_info)
    }

    /// Loads PTX.
    pub(super) fn module(&self, ptx: &CStr) -> Answer<Module> {
        // SAFETY: a NUL-terminated text.
        let load = || unsafe { result::module::load_data(ptx.as_ptr().cast()) };
        Ok(Module { module: self.device.ask("cuModuleLoadData", load)? })
    }

    /// Device memory.
    pub(super) fn allocate(&self, bytes: usize) -> Answer<DeviceMemory> {
        // SAFETY: uninitialised memory that is written before it is read.
        let address = self.device.ask("cuMemAlloc", || unsafe { result::malloc_sync(bytes) })?;
        Ok(DeviceMemory { device: Arc::clone(&self.device), address, bytes })
    }

    /// Page-locked host memory, cached (it is read by the CPU too).
    pub(super) fn pin(&self, bytes: usize) -> Answer<Pinned> {
        // SAFETY: as above; zeroed below, so that it is initialised for Rust.
        let data =
            self.device.ask("cuMemHostAlloc", || unsafe { result::malloc_host(bytes, 0) })?;
        // SAFETY: just allocated, of this size.
        unsafe { std::ptr::write_bytes(data.cast::<u8>(), 0, bytes) };
        Ok(Pinned { device: Arc::clone(&self.device), data: data.cast() })
    }

    /// A stream that no other stream waits for unasked.
    pub(super) fn stream(&self) -> Answer<Stream> {
        let kind = result::stream::StreamKind::NonBlocking;
        let stream = self.device.ask("cuStreamCreate", || result::stream::create(kind))?;
        Ok(Stream { device: Arc::clone(&self.device), stream })
    }

    /// An event. Waiting for it lets the thread sleep; two can be subtracted.
    pub(super) fn event(&self) -> Answer<Event> {
        let flags = sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC;
        let event = self.device.ask("cuEventCreate", || result::event::create(flags))?;
        Ok(Event { device: Arc::clone(&self.device), event })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.before == Some(self.device.context) {
            return;
        }
        let lost = self.device.lost_with();
        if lost == Some(DEINITIALIZED) || self.device.pid != std::process::id() {
            return;
        }
        let before = self.before.unwrap_or(std::ptr::null_mut());
        // SAFETY: what was current when we came. The one call that is made after a fault too: the
        // caller's context may be on a device that is well.
        if let Err(error) = unsafe { result::ctx::set_current(before) } {
            self.device.note(Fault::new("cuCtxSetCurrent", error));
        }
    }
}

/// Kernels; never unloaded, as the context is never given up.
pub(super) struct Module {
    module: sys::CUmodule,
}

impl Module {
    /// The kernel of this name.
    pub(super) fn function(&self, device: &Device, name: &str) -> Answer<Function> {
        let name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: a module of this driver.
        let get = || unsafe { result::module::get_function(self.module, name) };
        device.ask("cuModuleGetFunction", get).map(Function)
    }
}

/// A kernel.
#[derive(Clone, Copy)]
pub(super) struct Function(sys::CUfunction);

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The size of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Blocks.
    pub(super) grid: (u32, u32),
    /// Threads of a block.
    pub(super) block: (u32, u32),
    /// Bytes of dynamic shared memory of a block.
    pub(super) shared: u32,
}

/// Memory of the device.
pub(super) struct DeviceMemory {
    device: Arc<Device>,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Where it begins.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl DeviceMemory {
    /// Leaves it to the context, which cannot be entered any more.
    pub(super) fn forsake(&mut self) {
        self.address = 0;
    }

    /// Gives it back before its time, once.
    pub(super) fn free(&mut self) {
        if self.address != 0 {
            // SAFETY: allocated by us, freed once; whoever used it has waited for its streams.
            let _ = self.device.ask("cuMemFree", || unsafe { result::free_sync(self.address) });
            self.address = 0;
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.free();
    }
}

/// Page-locked host memory.
pub(super) struct Pinned {
    device: Arc<Device>,
    data: *mut u8,
}

// SAFETY: plain memory.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Where it begins.
    pub(super) fn data(&self) -> *mut u8 {
        self.data
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by us, freed once.
        let _ = self.device.ask("cuMemFreeHost", || unsafe { result::free_host(self.data.cast()) });
    }
}

/// A queue of work for the device.
pub(super) struct Stream {
    device: Arc<Device>,
    stream: sys::CUstream,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// The handle, for nvCOMP.
    pub(super) fn raw(&self) -> *mut c_void {
        self.stream.cast()
    }

    /// Copies to the device.
    ///
    /// # Safety
    /// Both ranges must be memory of ours, left alone until the copy is done.
    pub(super) unsafe fn upload(&self, from: *const u8, to: u64, bytes: usize) -> Answer<()> {
        // SAFETY: the caller's promise.
        let copy = || unsafe {
            let from = std::slice::from_raw_parts(from, bytes);
            result::memcpy_htod_async(to, from, self.stream)
        };
        self.device.ask("cuMemcpyHtoDAsync", copy)
    }

    /// Copies from the device.
    ///
    /// # Safety
    /// As for `upload`.
    pub(super) unsafe fn download(&self, from: u64, to: *mut u8, bytes: usize) -> Answer<()> {
        // SAFETY: the caller's promise.
        let copy = || unsafe {
            let to = std::slice::from_raw_parts_mut(to, bytes);
            result::memcpy_dtoh_async(to, from, self.stream)
        };
        self.device.ask("cuMemcpyDtoHAsync", copy)
    }

    /// Writes zeros to device memory.
    ///
    /// # Safety
    /// The memory must be there until the stream has done its work.
    pub(super) unsafe fn clear(&self, to: u64, bytes: usize) -> Answer<()> {
        // SAFETY: the caller's promise.
        self.device.ask("cuMemsetD8Async", || unsafe {
            result::memset_d8_async(to, 0, bytes, self.stream)
        })
    }

    /// What is submitted from now on waits for the event's last record.
    pub(super) fn wait(&self, event: &Event) -> Answer<()> {
        let flags = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: handles of one context.
        let wait = || unsafe { result::stream::wait_event(self.stream, event.event, flags) };
        self.device.ask("cuStreamWaitEvent", wait)
    }

    /// Records an event behind what was submitted.
    pub(super) fn record(&self, event: &Event) -> Answer<()> {
        // SAFETY: as above.
        let record = || unsafe { result::event::record(event.event, self.stream) };
        self.device.ask("cuEventRecord", record)
    }

    /// Waits for everything submitted.
    pub(super) fn synchronize(&self) -> Answer<()> {
        // SAFETY: a stream of ours.
        let sync = || unsafe { result::stream::synchronize(self.stream) };
        self.device.ask("cuStreamSynchronize", sync)
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// `params` must point to values as the kernel declares them, and what those point to must
    /// be memory of ours that nobody else uses until the kernel is done.
    pub(super) unsafe fn launch(
        &self,
        function: Function,
        size: Size,
        params: &mut [*mut c_void],
    ) -> Answer<()> {
        let (grid, block): ((c_uint, c_uint, c_uint), _) =
            ((size.grid.0, size.grid.1, 1), (size.block.0, size.block.1, 1));
        // SAFETY: the caller's promise.
        let launch = || unsafe {
            result::launch_kernel(function.0, grid, block, size.shared, self.stream, params)
        };
        self.device.ask("cuLaunchKernel", launch)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once; work that is queued is still done.
        let _ =
            self.device.ask("cuStreamDestroy", || unsafe { result::stream::destroy(self.stream) });
    }
}

/// A point in a stream.
pub(super) struct Event {
    device: Arc<Device>,
    event: sys::CUevent,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above, by several at once.
unsafe impl Sync for Event {}

impl Event {
    /// Waits until the stream has come here.
    pub(super) fn synchronize(&self) -> Answer<()> {
        // SAFETY: an event of ours.
        let sync = || unsafe { result::event::synchronize(self.event) };
        self.device.ask("cuEventSynchronize", sync)
    }

    /// Whether the stream is known to have come here: not if it has not (CUDA_ERROR_NOT_READY), and not if
    /// the driver fails to say, which is no fault of the device's if the device is still there.
    pub(super) fn is_past(&self) -> Answer<bool> {
        // SAFETY: an event of ours.
        let query = || unsafe { sys::cuEventQuery(self.event).result() };
        match self.device.ask("cuEventQuery", query) {
            Err(fault) if !self.device.usable() => Err(fault),
            answer => Ok(answer.is_ok()),
        }
    }

    /// Milliseconds between two events that have happened.
    pub(super) fn since(&self, start: &Event) -> Answer<f32> {
        // SAFETY: events of ours.
        let elapsed = || unsafe { result::event::elapsed(start.event, self.event) };
        self.device.ask("cuEventElapsedTime", elapsed)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, destroyed once.
        let _ = self.device.ask("cuEventDestroy", || unsafe { result::event::destroy(self.event) });
    }
}

/// Starts the driver; to be called once `libcuda` is known to be there with all its symbols.
pub(super) fn start() -> Answer<c_int> {
    result::init().map_err(early("cuInit"))?;
    result::device::get_count().map_err(early("cuDeviceGetCount"))
}
