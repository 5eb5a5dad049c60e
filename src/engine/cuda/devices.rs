//! The devices that the driver shows, for those who ask before they use one. No context is made.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::driver::{self, Fault};
use super::library::{self, Library};
use super::probe::{self, Refusal, Whereabouts};

/// What the driver says of a device.
#[derive(Debug, Clone)]
pub struct DeviceFacts {
    /// For people.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// New enough for this engine.
    pub usable: bool,
}

/// CUDA's version, as the driver says it.
pub fn cuda_version() -> Result<i32, Refusal> {
    probe::driver_version()
}

/// nvCOMP's version, as it says it.
pub fn nvcomp_version(wanted: &Whereabouts) -> Result<u32, Refusal> {
    let cuda = probe::driver_version()?;
    let nvcomp = probe::find_nvcomp(wanted.nvcomp.as_deref(), (cuda / 1000) as u32)?;
    Ok(nvcomp.version)
}

/// How many devices there are.
pub fn device_count() -> Result<i32, Refusal> {
    probe::start().map(|(_, count)| count)
}

/// One of them, from 0.
pub fn device_facts(ordinal: i32) -> Result<DeviceFacts, Refusal> {
    let count = device_count()?;
    if ordinal < 0 || ordinal >= count {
        return Err(Refusal::NoSuchDevice(i64::from(ordinal), count));
    }
    let (name, multiprocessors, capability) = driver::describe(ordinal).map_err(probe::taken)?;
    let usable = capability >= probe::OLDEST;
    Ok(DeviceFacts { name, capability, multiprocessors, usable })
}

/// cuPointerGetAttribute, as cuda.h declares it.
type Attribute = unsafe extern "C" fn(*mut u32, i32, u64) -> i32;

/// That function, if somebody has loaded the driver. Looking for a library that is not there takes
/// as long as a small read, so that is done only after others were loaded.
fn pointer_attribute() -> Option<Attribute> {
    static FOUND: OnceLock<Attribute> = OnceLock::new();
    static ABSENT_AFTER: AtomicU64 = AtomicU64::new(u64::MAX);
    if let Some(found) = FOUND.get() {
        return Some(*found);
    }
    let loads = library::loads();
    if loads == ABSENT_AFTER.load(Ordering::Relaxed) {
        return None;
    }
    let driver = Library::loaded(c"libcuda.so.1");
    // SAFETY: its type.
    let ask = driver.and_then(|driver| unsafe { driver.function("cuPointerGetAttribute") });
    match ask {
        Some(ask) => Some(*FOUND.get_or_init(|| ask)),
        None => {
            ABSENT_AFTER.store(loads, Ordering::Relaxed);
            None
        }
    }
}

/// Whether the host cannot read or write at this address, since it is a device's. Asks a driver
/// that is loaded already, and does not load one.
pub fn is_device_memory(address: u64) -> bool {
    const MEMORY_TYPE: i32 = 2;
    const IS_MANAGED: i32 = 8;
    const DEVICE: u32 = 2;
    if probe::permission().is_err() {
        return false;
    }
    let Some(ask) = pointer_attribute() else { return false };
    let attribute = |which: i32| {
        let mut value = [0_u32; 2];
        // SAFETY: room for more than either attribute.
        match unsafe { ask(value.as_mut_ptr(), which, address) } {
            0 => Some(value[0]),
            code => {
                Fault::early("cuPointerGetAttribute", code);
                None
            }
        }
    };
    attribute(MEMORY_TYPE) == Some(DEVICE) && attribute(IS_MANAGED).unwrap_or(0) & 0xFF == 0
}
