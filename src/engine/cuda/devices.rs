//! The devices that the driver shows, for those who ask before they use one. No context is made.

use super::driver;
use super::library::Library;
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

/// Whether the host cannot read or write at this address, since it is a device's. Asks a driver
/// that is loaded already, and does not load one.
pub fn is_device_memory(address: u64) -> bool {
    type Attribute = unsafe extern "C" fn(*mut u32, i32, u64) -> i32;
    const MEMORY_TYPE: i32 = 2;
    const IS_MANAGED: i32 = 8;
    const DEVICE: u32 = 2;
    if probe::leave_alone() {
        return false;
    }
    let Some(driver) = Library::loaded(c"libcuda.so.1") else { return false };
    // SAFETY: as cuda.h declares it.
    let Some(ask) = (unsafe { driver.function::<Attribute>("cuPointerGetAttribute") }) else {
        return false;
    };
    let attribute = |which: i32| {
        let mut value = [0_u32; 2];
        // SAFETY: room for more than either attribute.
        let answer = unsafe { ask(value.as_mut_ptr(), which, address) };
        (answer == 0).then_some(value[0])
    };
    attribute(MEMORY_TYPE) == Some(DEVICE) && attribute(IS_MANAGED).unwrap_or(0) & 0xFF == 0
}
