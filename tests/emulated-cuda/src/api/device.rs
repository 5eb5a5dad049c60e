//! Start-up, versions, error names and what a device is.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::door::{self, Place, put};
use crate::driver::{Device, Driver};
use crate::memory::Memory;
use crate::settings::{BUSY, Settings};
use crate::status::{self, Answer, Code};

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> u32 {
    door::start_slowly();
    door::free("cuInit", |driver| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE.because("flags of cuInit"));
        }
        if driver.settings.init != 0 {
            return Err(Code(driver.settings.init).because("EMUCUDA_CUINIT"));
        }
        if driver.initialized {
            return Ok(());
        }
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let numbers = visible_devices(driver.settings.devices, visible.as_deref());
        if numbers.is_empty() {
            return Err(Code::NO_DEVICE.because("no device is visible"));
        }
        door::own();
        driver.initialized = true;
        driver.memory = Memory::new(numbers.len());
        let device = |number| Device { number, primary: None, retained: 0, flags: 0, fault: None };
        driver.devices = numbers.into_iter().map(device).collect();
        Ok(())
    })
}

/// The devices that CUDA_VISIBLE_DEVICES leaves, in its order: up to the first one that does
/// not exist, none where one is named twice.
fn visible_devices(count: u32, variable: Option<&str>) -> Vec<u32> {
    let Some(list) = variable else { return (0..count).collect() };
    let mut found = Vec::new();
    for item in list.split(',') {
        let item = item.trim();
        let by_name = (0..count).find(|number| {
            item.len() > 4 && format!("GPU-{}", hyphenated(uuid(*number))).starts_with(item)
        });
        let by_number = item.parse().ok().filter(|number| *number < count);
        let Some(number) = by_name.or(by_number) else { break };
        if found.contains(&number) {
            return Vec::new();
        }
        found.push(number);
    }
    found
}

/// An emulated device's identity.
fn uuid(number: u32) -> [u8; 16] {
    let mut bytes = *b"emulated-device0";
    bytes[15] += number as u8;
    bytes
}

fn hyphenated(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: Place<'_, c_int>) -> u32 {
    door::free("cuDriverGetVersion", |driver| put(version, driver.settings.driver as c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(code: u32, text: Place<'_, *const c_char>) -> u32 {
    door::free("cuGetErrorName", |_| explain(status::name(code), text))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(code: u32, text: Place<'_, *const c_char>) -> u32 {
    door::free("cuGetErrorString", |_| explain(status::sentence(code), text))
}

fn explain(found: Option<&'static CStr>, text: Place<'_, *const c_char>) -> Answer {
    put(text, found.map_or(std::ptr::null(), CStr::as_ptr))?;
    found.map(|_| ()).ok_or(Code::INVALID_VALUE.into())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: Place<'_, c_int>) -> u32 {
    door::device("cuDeviceGetCount", |driver| put(count, driver.devices.len() as c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: Place<'_, c_int>, ordinal: c_int) -> u32 {
    door::device("cuDeviceGet", |driver| {
        driver.device(ordinal)?;
        put(device, ordinal)
    })
}

/// Writes text to a buffer of the caller's, cut to fit, ending in NUL.
unsafe fn write_text(text: &str, target: *mut c_char, length: c_int) -> Answer {
    let length = usize::try_from(length).unwrap_or(0);
    if target.is_null() || length == 0 {
        return Err(Code::INVALID_VALUE.because("no room for text"));
    }
    // SAFETY: the caller has `length` bytes there.
    let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), length) };
    let taken = text.len().min(length - 1);
    target[..taken].copy_from_slice(&text.as_bytes()[..taken]);
    target[taken] = 0;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> u32 {
    door::device("cuDeviceGetName", |driver| {
        driver.device(device)?;
        // SAFETY: the caller's buffer, says the contract.
        unsafe { write_text(&driver.settings.name, name, length) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    text: *mut c_char,
    length: c_int,
    device: c_int,
) -> u32 {
    door::device("cuDeviceGetPCIBusId", |driver| {
        let id = format!("0000:{:02X}:00.0", 1 + driver.device(device)?.number);
        // SAFETY: the caller's buffer, says the contract.
        unsafe { write_text(&id, text, length) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid(uuid: Place<'_, [u8; 16]>, device: c_int) -> u32 {
    door::device("cuDeviceGetUuid", |driver| identity(driver, uuid, device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(uuid: Place<'_, [u8; 16]>, device: c_int) -> u32 {
    door::device("cuDeviceGetUuid_v2", |driver| identity(driver, uuid, device))
}

fn identity(driver: &mut Driver, place: Place<'_, [u8; 16]>, device: c_int) -> Answer {
    put(place, uuid(driver.device(device)?.number))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceTotalMem_v2(bytes: Place<'_, usize>, device: c_int) -> u32 {
    door::device("cuDeviceTotalMem_v2", |driver| {
        driver.device(device)?;
        put(bytes, driver.settings.memory as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceComputeCapability(
    major: Place<'_, c_int>,
    minor: Place<'_, c_int>,
    device: c_int,
) -> u32 {
    door::device("cuDeviceComputeCapability", |driver| {
        driver.device(device)?;
        put(major, driver.settings.capability.0 as c_int)?;
        put(minor, driver.settings.capability.1 as c_int)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceCanAccessPeer(can: Place<'_, c_int>, device: c_int, peer: c_int) -> u32 {
    door::device("cuDeviceCanAccessPeer", |driver| {
        driver.device(device)?;
        driver.device(peer)?;
        put(can, 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(
    value: Place<'_, c_int>,
    attribute: c_uint,
    device: c_int,
) -> u32 {
    door::device("cuDeviceGetAttribute", |driver| {
        let number = driver.device(device)?.number;
        put(value, device_attribute(&driver.settings, number, attribute)?)
    })
}

/// Shared memory a block may ask for after opting in.
pub(crate) fn shared_opt_in(capability: (u32, u32)) -> u32 {
    match capability {
        (7, 0 | 2) => 96 << 10,
        (7, _) => 64 << 10,
        (8, 0 | 7) => 163 << 10,
        (8, _) | (12, _) => 99 << 10,
        (9..=11, _) => 227 << 10,
        _ => 48 << 10,
    }
}

/// The attributes by their CU_DEVICE_ATTRIBUTE numbers; a known one that says "no" is 0.
fn device_attribute(settings: &Settings, number: u32, attribute: c_uint) -> Answer<c_int> {
    let opt_in = shared_opt_in(settings.capability);
    let value = match attribute {
        // Threads a block, and the block's extents.
        1..=3 => 1024,
        4 => 64,
        // The grid's extents.
        5 => i32::MAX as u32,
        6 | 7 => 65535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX as u32,
        // Registers a block, registers a multiprocessor.
        12 | 82 => 65536,
        13 => 1_400_000,
        14 | 51 => 512,
        // Overlap of copies and kernels, mapped host memory, concurrent kernels, unified
        // addressing, stream priorities, L1 caches, host registration, memory pools.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 91 | 99 | 115 => 1,
        16 => settings.multiprocessors,
        20 => settings.compute_mode % BUSY,
        33 => 1 + number,
        36 => 7_000_000,
        37 => 384,
        38 => 6 << 20,
        39 => 1536,
        // Copy engines.
        40 => 2,
        75 => settings.capability.0,
        76 => settings.capability.1,
        81 => opt_in + (1 << 10),
        97 => opt_in,
        106 => 16,
        111 => 1 << 10,
        17..=135 => 0,
        _ => return Err(Code::INVALID_VALUE.because(format!("device attribute {attribute}"))),
    };
    Ok(value as c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDefaultMemPool(pool: Place<'_, u64>, device: c_int) -> u32 {
    door::device("cuDeviceGetDefaultMemPool", |driver| {
        driver.device(device)?;
        put(pool, 0x00e1_0000_0000_0000 + device as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::visible_devices;

    #[test]
    fn visible_devices_stop_at_the_first_unknown() {
        assert_eq!(visible_devices(3, None), [0, 1, 2]);
        assert_eq!(visible_devices(3, Some("2,0")), [2, 0]);
        assert_eq!(visible_devices(3, Some("1,7,0")), [1]);
        assert_eq!(visible_devices(3, Some("-1")), [0u32; 0]);
        assert_eq!(visible_devices(3, Some("")), [0u32; 0]);
        assert_eq!(visible_devices(3, Some("1,1")), [0u32; 0]);
        let name = "GPU-656d756c-6174-6564-2d64-657669636531";
        assert_eq!(visible_devices(3, Some(name)), [1]);
    }
}
