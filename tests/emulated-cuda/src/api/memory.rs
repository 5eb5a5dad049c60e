//! Device memory: allocation, freeing, and questions about pointers.

use std::ffi::{c_int, c_uint, c_void};

use crate::door::{self, Place, put};
use crate::driver::Driver;
use crate::memory::Life;
use crate::status::{Answer, Code};
use crate::task::Task;

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: Place<'_, usize>, total: Place<'_, usize>) -> u32 {
    door::context("cuMemGetInfo_v2", |driver, context| {
        let device = driver.device_of(context);
        let used = driver.memory.usage(device).used;
        put(free, driver.room(device).saturating_sub(used) as usize)?;
        put(total, driver.settings.memory as usize)
    })
}

fn allocate(
    driver: &mut Driver,
    context: u64,
    bytes: usize,
    (kind, life): (&'static str, Life),
) -> Answer<u64> {
    let device = driver.device_of(context);
    let room = driver.room(device);
    let line = driver.ledger.allocation(kind, device, bytes as u64, 0);
    let made = driver.memory.allocate((device, context), bytes as u64, room, life, line);
    match &made {
        Ok(base) => driver.ledger.allocations.get_mut(&line).expect("just opened").address = *base,
        Err(_) => {
            driver.ledger.allocations.remove(&line);
        }
    }
    made
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(pointer: Place<'_, u64>, bytes: usize) -> u32 {
    door::context("cuMemAlloc_v2", |driver, context| put(pointer, live(driver, context, bytes)?))
}

/// What cuMemAlloc does.
pub(crate) fn live(driver: &mut Driver, context: u64, bytes: usize) -> Answer<u64> {
    allocate(driver, context, bytes, ("device", Life::Live))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(pointer: u64) -> u32 {
    door::context("cuMemFree_v2", |driver, context| {
        if pointer == 0 {
            return Ok(());
        }
        free(driver, context, pointer)
    })
}

/// What cuMemFree does: waits for the device, then frees.
pub(crate) fn free(driver: &mut Driver, context: u64, pointer: u64) -> Answer {
    let device = driver.device_of(context);
    let targets = driver.work.of_device(device);
    driver.wait(targets, false)?;
    owned(driver, context, pointer)?;
    if let Some(line) = driver.memory.release(pointer) {
        driver.ledger.freed(line, false);
    }
    Ok(())
}

/// That a pointer begins an allocation of the context which nobody has freed.
fn owned(driver: &mut Driver, context: u64, pointer: u64) -> Answer {
    let found = driver.memory.beginning_at(pointer)?;
    if found.context != context {
        return Err(Code::INVALID_VALUE.because("memory of another context is freed"));
    }
    if found.life == Life::Doomed {
        return Err(Code::INVALID_VALUE.because(format!("{pointer:#x} is freed twice")));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAllocAsync(pointer: Place<'_, u64>, bytes: usize, stream: u64) -> u32 {
    door::context("cuMemAllocAsync", |driver, context| {
        let stream = driver.stream(context, stream)?;
        let base = allocate(driver, context, bytes, ("device-async", Life::Promised))?;
        driver.submit(stream, Task::Allocate(base), None);
        put(pointer, base)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(pointer: u64, stream: u64) -> u32 {
    door::context("cuMemFreeAsync", |driver, context| {
        let stream = driver.stream(context, stream)?;
        owned(driver, context, pointer)?;
        let found = driver.memory.beginning_at(pointer)?;
        if found.life == Life::Live {
            found.life = Life::Doomed;
        }
        driver.submit(stream, Task::Free(pointer), None);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetAddressRange_v2(
    base: Place<'_, u64>,
    bytes: Place<'_, usize>,
    pointer: u64,
) -> u32 {
    door::context("cuMemGetAddressRange_v2", |driver, context| {
        let found = driver.memory.range(driver.device_of(context), pointer, 1)?;
        if let Some(place) = base {
            place.write(found.base);
        }
        if let Some(place) = bytes {
            place.write(found.bytes as usize);
        }
        Ok(())
    })
}

/// One attribute of a pointer.
enum Attribute {
    Word(u64),
    Half(u32),
}

fn attribute(driver: &Driver, which: c_uint, pointer: u64) -> Answer<Attribute> {
    let device = driver.memory.holding(pointer);
    let host = driver.pinned.holding(pointer as usize);
    let (context, ordinal, base, bytes) = match (device, &host) {
        (Some(found), _) => (found.context, found.device, found.base, found.bytes),
        (None, Some((base, block))) => {
            let ordinal = driver.contexts.get(&block.context).map_or(0, |context| context.device);
            (block.context, ordinal, *base as u64, block.bytes as u64)
        }
        (None, None) => {
            let text = format!("{pointer:#x} is no pointer the driver knows");
            return Err(Code::INVALID_VALUE.because(text));
        }
    };
    let on_device = device.is_some();
    Ok(match which {
        1 => Attribute::Word(context),
        2 => Attribute::Half(if on_device { 2 } else { 1 }),
        3 if on_device => Attribute::Word(pointer),
        4 if !on_device => Attribute::Word(pointer),
        7 => Attribute::Word(base),
        8 => Attribute::Half(0),
        9 => Attribute::Half(ordinal as u32),
        11 => Attribute::Word(base),
        12 => Attribute::Word(bytes),
        _ => return Err(Code::INVALID_VALUE.because(format!("pointer attribute {which}"))),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    data: *mut c_void,
    which: c_uint,
    pointer: u64,
) -> u32 {
    door::device("cuPointerGetAttribute", |driver| {
        let value = attribute(driver, which, pointer)?;
        if data.is_null() {
            return Err(Code::INVALID_VALUE.because("a null pointer for a result"));
        }
        // SAFETY: the caller's place is as large as the attribute it asked for.
        unsafe { store(value, data) };
        Ok(())
    })
}

/// # Safety
/// The place must be as large as the value.
unsafe fn store(value: Attribute, place: *mut c_void) {
    match value {
        // SAFETY: the caller's promise.
        Attribute::Word(word) => unsafe { place.cast::<u64>().write_unaligned(word) },
        // SAFETY: the caller's promise.
        Attribute::Half(half) => unsafe { place.cast::<u32>().write_unaligned(half) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    which: *const c_uint,
    data: *const *mut c_void,
    pointer: u64,
) -> u32 {
    door::device("cuPointerGetAttributes", |driver| {
        if count == 0 || which.is_null() || data.is_null() {
            return Err(Code::INVALID_VALUE.because("no attributes"));
        }
        for index in 0..count as usize {
            // SAFETY: both arrays have `count` elements.
            let (which, place) = unsafe { (*which.add(index), *data.add(index)) };
            // A pointer the driver does not know is no error here: its attributes are 0.
            let value = match attribute(driver, which, pointer) {
                Ok(value) => value,
                Err(_) if matches!(which, 2 | 8 | 9) => Attribute::Half(0),
                Err(_) => Attribute::Word(0),
            };
            // SAFETY: each place is as large as the attribute asked for.
            unsafe { store(value, place) };
        }
        Ok(())
    })
}

fn memset(
    driver: &mut Driver,
    context: u64,
    target: u64,
    pattern: &[u8],
    count: usize,
    stream: u64,
) -> Answer {
    let stream = driver.stream(context, stream)?;
    if count == 0 {
        return Ok(());
    }
    let width = pattern.len() as u64;
    if !target.is_multiple_of(width) {
        return Err(
            Code::INVALID_VALUE.because(format!("a fill of {width}-byte words at {target:#x}"))
        );
    }
    let bytes = (count as u64).saturating_mul(width);
    driver.memory.range(driver.device_of(context), target, bytes)?;
    let task = Task::Memset { target, pattern: pattern.to_vec(), count: count as u64 };
    driver.submit(stream, task, None);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(target: u64, value: u8, count: usize, stream: u64) -> u32 {
    door::context("cuMemsetD8Async", |driver, context| {
        memset(driver, context, target, &[value], count, stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(target: u64, value: c_uint, count: usize, stream: u64) -> u32 {
    door::context("cuMemsetD32Async", |driver, context| {
        memset(driver, context, target, &value.to_le_bytes(), count, stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(target: u64, value: u8, count: usize) -> u32 {
    door::context("cuMemsetD8_v2", |driver, context| {
        memset(driver, context, target, &[value], count, 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(target: u64, value: c_uint, count: usize) -> u32 {
    door::context("cuMemsetD32_v2", |driver, context| {
        memset(driver, context, target, &value.to_le_bytes(), count, 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetLimit(value: Place<'_, usize>, limit: c_int) -> u32 {
    door::context("cuCtxGetLimit", |_, _| {
        put(
            value,
            match limit {
                0 => 1024,
                1 => 1 << 20,
                _ => 8 << 20,
            },
        )
    })
}
