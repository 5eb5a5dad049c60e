//! Page-locked host memory.

use std::ffi::{c_uint, c_void};

use crate::door::{self, Place, put};
use crate::driver::Driver;
use crate::memory::fake;
use crate::status::{Answer, Code};

fn refused(driver: &Driver) -> Answer {
    match driver.settings.pinned_refused {
        true => Err(Code::OUT_OF_MEMORY.because("EMUCUDA_PINNED=refuse")),
        false => Ok(()),
    }
}

/// What cuMemHostAlloc does.
pub(crate) fn allocate(
    driver: &mut Driver,
    context: u64,
    bytes: usize,
    flags: c_uint,
) -> Answer<u64> {
    refused(driver)?;
    let device = driver.device_of(context);
    let line = driver.ledger.allocation("pinned", device, bytes as u64, 0);
    let made = driver.pinned.allocate(bytes, context, flags, line);
    match &made {
        Ok(start) => {
            let record = driver.ledger.allocations.get_mut(&line).expect("just opened");
            record.address = *start as u64;
        }
        Err(_) => {
            driver.ledger.allocations.remove(&line);
        }
    }
    made.map(|start| start as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostAlloc(pointer: Place<'_, u64>, bytes: usize, flags: c_uint) -> u32 {
    door::context("cuMemHostAlloc", |driver, context| {
        if flags & !7 != 0 {
            return Err(Code::INVALID_VALUE.because(format!("flags {flags:#x}")));
        }
        put(pointer, allocate(driver, context, bytes, flags)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocHost_v2(pointer: Place<'_, u64>, bytes: usize) -> u32 {
    door::context("cuMemAllocHost_v2", |driver, context| {
        put(pointer, allocate(driver, context, bytes, 0)?)
    })
}

/// Pending copies may use the memory, those of another device too: all work is waited for.
fn drain(driver: &mut Driver) -> Answer {
    let targets = driver.work.pending.keys().copied().collect();
    driver.wait(targets, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> u32 {
    door::context("cuMemFreeHost", |driver, _| free(driver, pointer as usize))
}

/// What cuMemFreeHost does: waits for all work, then frees.
pub(crate) fn free(driver: &mut Driver, start: usize) -> Answer {
    drain(driver)?;
    let line = driver.pinned.free(start)?;
    driver.ledger.freed(line, false);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    door::context("cuMemHostRegister_v2", |driver, context| {
        refused(driver)?;
        if fake(pointer as u64) {
            return Err(Code::INVALID_VALUE.because("a device address is registered"));
        }
        let device = driver.device_of(context);
        let start = pointer as usize;
        let line = driver.ledger.allocation("registered", device, bytes as u64, start as u64);
        let made = driver.pinned.register(start, bytes, context, flags, line);
        if made.is_err() {
            driver.ledger.allocations.remove(&line);
        }
        made
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> u32 {
    door::context("cuMemHostUnregister", |driver, _| {
        drain(driver)?;
        let line = driver.pinned.unregister(pointer as usize)?;
        driver.ledger.freed(line, false);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetFlags(flags: Place<'_, c_uint>, pointer: *mut c_void) -> u32 {
    door::context("cuMemHostGetFlags", |driver, _| match driver.pinned.holding(pointer as usize) {
        Some((_, block)) => put(flags, block.flags),
        None => Err(Code::INVALID_VALUE.because("not pinned memory")),
    })
}
