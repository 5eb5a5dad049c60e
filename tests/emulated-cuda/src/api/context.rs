//! Contexts: the primary ones, others, and which one a thread has.

use std::ffi::{c_int, c_uint, c_void};

use crate::door::{self, Place, put};
use crate::driver::{Driver, with_stack};
use crate::status::{Answer, Code};

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(context: Place<'_, u64>, device: c_int) -> u32 {
    door::device("cuDevicePrimaryCtxRetain", |driver| {
        if let Some(code) = driver.device(device)?.fault {
            return Err(code.because("the device is lost"));
        }
        put(context, driver.retain_primary(device as usize)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> u32 {
    door::switch("cuDevicePrimaryCtxRelease_v2", |driver| {
        let found = driver.device(device)?;
        if found.retained == 0 {
            return Err(Code::INVALID_CONTEXT.because("the primary context is not retained"));
        }
        found.retained -= 1;
        if found.retained == 0
            && let Some(context) = found.primary.take()
        {
            driver.destroy_context(context);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> u32 {
    door::device("cuDevicePrimaryCtxReset_v2", |driver| {
        let found = driver.device(device)?;
        found.retained = 0;
        if let Some(context) = found.primary.take() {
            driver.destroy_context(context);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: Place<'_, c_uint>,
    active: Place<'_, c_int>,
) -> u32 {
    door::device("cuDevicePrimaryCtxGetState", |driver| {
        let found = driver.device(device)?;
        put(flags, found.flags)?;
        put(active, c_int::from(found.primary.is_some()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) -> u32 {
    door::device("cuDevicePrimaryCtxSetFlags_v2", |driver| {
        driver.device(device)?.flags = flags;
        Ok(())
    })
}

fn create(driver: &mut Driver, place: Place<'_, u64>, device: c_int) -> Answer {
    driver.device(device)?;
    if driver.settings.compute_mode != 0 {
        return Err(Code::DEVICE_UNAVAILABLE.because("the device's compute mode forbids it"));
    }
    let context = driver.create_context(device as usize);
    with_stack(|stack| stack.push(context));
    put(place, context)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v2(place: Place<'_, u64>, _flags: c_uint, device: c_int) -> u32 {
    door::device("cuCtxCreate_v2", |driver| create(driver, place, device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxCreate_v3(
    place: Place<'_, u64>,
    _affinities: *mut c_void,
    _count: c_int,
    _flags: c_uint,
    device: c_int,
) -> u32 {
    door::device("cuCtxCreate_v3", |driver| create(driver, place, device))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDestroy_v2(context: u64) -> u32 {
    door::device("cuCtxDestroy_v2", |driver| {
        known(driver, context)?;
        if driver.devices.iter().any(|device| device.primary == Some(context)) {
            return Err(Code::INVALID_CONTEXT.because("a primary context is released, not this"));
        }
        with_stack(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        driver.destroy_context(context);
        Ok(())
    })
}

fn known(driver: &Driver, context: u64) -> Answer {
    match driver.contexts.contains_key(&context) {
        true => Ok(()),
        false => Err(Code::INVALID_CONTEXT.because("no such context")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(context: Place<'_, u64>) -> u32 {
    door::switch("cuCtxGetCurrent", |_| {
        put(context, with_stack(|stack| stack.last().copied()).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: u64) -> u32 {
    door::switch("cuCtxSetCurrent", |driver| {
        if context != 0 {
            known(driver, context)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: u64) -> u32 {
    door::switch("cuCtxPushCurrent_v2", |driver| {
        known(driver, context)?;
        with_stack(|stack| stack.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPopCurrent_v2(context: Place<'_, u64>) -> u32 {
    door::switch("cuCtxPopCurrent_v2", |_| {
        let Some(popped) = with_stack(Vec::pop) else {
            return Err(Code::INVALID_CONTEXT.because("no context is current"));
        };
        if let Some(place) = context {
            place.write(popped);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(device: Place<'_, c_int>) -> u32 {
    door::context("cuCtxGetDevice", |driver, context| {
        put(device, driver.device_of(context) as c_int)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetApiVersion(_context: u64, version: Place<'_, c_uint>) -> u32 {
    door::device("cuCtxGetApiVersion", |_| put(version, 3020))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetFlags(flags: Place<'_, c_uint>) -> u32 {
    door::context("cuCtxGetFlags", |driver, context| {
        put(flags, driver.devices[driver.device_of(context)].flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(flags: c_uint) -> u32 {
    door::context("cuCtxSetFlags", |driver, context| {
        let device = driver.device_of(context);
        driver.devices[device].flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetStreamPriorityRange(
    least: Place<'_, c_int>,
    greatest: Place<'_, c_int>,
) -> u32 {
    door::context("cuCtxGetStreamPriorityRange", |_, _| {
        put(least, 0)?;
        put(greatest, -5)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    door::context("cuCtxSynchronize", |driver, context| {
        let targets = driver.work.of_context(context);
        driver.wait(targets, true)
    })
}
