//! Copies. What pageable memory costs is here: a snapshot on the way in, a wait on the way
//! out, each noted as an implicit synchronisation.

use std::ffi::c_void;

use crate::backing;
use crate::door;
use crate::driver::{Driver, thread};
use crate::memory::fake;
use crate::pinned::HostKind;
use crate::status::{Answer, Code};
use crate::task::{Source, Task};

/// A copy between host and device.
struct Copy {
    host: usize,
    device: u64,
    bytes: usize,
    stream: u64,
    blocking: bool,
}

impl Copy {
    /// The stream, and what the host's memory is; all ranges are checked.
    fn checked(&self, driver: &mut Driver, context: u64) -> Answer<(u64, HostKind)> {
        let stream = driver.stream(context, self.stream)?;
        driver.memory.range(driver.device_of(context), self.device, self.bytes as u64)?;
        if self.host == 0 || fake(self.host as u64) {
            let text = format!("{:#x} is no host memory", self.host);
            return Err(Code::INVALID_VALUE.because(text));
        }
        Ok((stream, driver.pinned.kind(self.host, self.bytes)?))
    }

    /// # Safety
    /// The host's memory must be readable, and stay so while the copy is pending if it is pinned.
    unsafe fn to_device(&self, driver: &mut Driver, context: u64) -> Answer {
        if self.bytes == 0 {
            return Ok(());
        }
        let (stream, kind) = self.checked(driver, context)?;
        let source = match kind {
            HostKind::Pinned => Source::Pinned(self.host),
            HostKind::Pageable => {
                // SAFETY: the caller's promise.
                let bytes =
                    unsafe { std::slice::from_raw_parts(self.host as *const u8, self.bytes) };
                Source::Snapshot(bytes.to_vec())
            }
        };
        let task = Task::HostToDevice { source, target: self.device, bytes: self.bytes as u64 };
        let id = driver.submit(stream, task, None);
        if self.blocking {
            return driver.wait(vec![id], true);
        }
        if kind == HostKind::Pageable {
            driver.ledger.sync(driver.symbol, false, thread(), Vec::new());
        }
        Ok(())
    }

    /// # Safety
    /// The host's memory must be writable, and stay so while the copy is pending.
    unsafe fn to_host(&self, driver: &mut Driver, context: u64) -> Answer {
        if self.bytes == 0 {
            return Ok(());
        }
        let (stream, kind) = self.checked(driver, context)?;
        let task =
            Task::DeviceToHost { source: self.device, target: self.host, bytes: self.bytes as u64 };
        let id = driver.submit(stream, task, None);
        if !read_before(driver, id, self.host, self.bytes) {
            // SAFETY: the caller's promise; from its submission on the copy may write there.
            backing::poison(unsafe {
                std::slice::from_raw_parts_mut(self.host as *mut u8, self.bytes)
            });
        }
        match (self.blocking, kind) {
            (true, _) => driver.wait(vec![id], true),
            (false, HostKind::Pageable) => driver.wait(vec![id], false),
            (false, HostKind::Pinned) => Ok(()),
        }
    }
}

/// Whether a copy to the device that must come before operation `id` reads that host memory:
/// then it may not be poisoned yet.
fn read_before(driver: &Driver, id: u64, host: usize, bytes: usize) -> bool {
    driver.work.closure(&[id]).into_iter().any(|before| match &driver.work.pending[&before].task {
        Task::HostToDevice { source: Source::Pinned(start), bytes: length, .. } => {
            *start < host + bytes && host < *start + *length as usize
        }
        _ => false,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    target: u64,
    source: *const c_void,
    bytes: usize,
    stream: u64,
) -> u32 {
    door::context("cuMemcpyHtoDAsync_v2", |driver, context| {
        let copy = Copy { host: source as usize, device: target, bytes, stream, blocking: false };
        // SAFETY: the contract of the call.
        unsafe { copy.to_device(driver, context) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(target: u64, source: *const c_void, bytes: usize) -> u32 {
    door::context("cuMemcpyHtoD_v2", |driver, context| {
        let copy = Copy { host: source as usize, device: target, bytes, stream: 0, blocking: true };
        // SAFETY: the contract of the call.
        unsafe { copy.to_device(driver, context) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    target: *mut c_void,
    source: u64,
    bytes: usize,
    stream: u64,
) -> u32 {
    door::context("cuMemcpyDtoHAsync_v2", |driver, context| {
        let copy = Copy { host: target as usize, device: source, bytes, stream, blocking: false };
        // SAFETY: the contract of the call.
        unsafe { copy.to_host(driver, context) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(target: *mut c_void, source: u64, bytes: usize) -> u32 {
    door::context("cuMemcpyDtoH_v2", |driver, context| {
        let copy = Copy { host: target as usize, device: source, bytes, stream: 0, blocking: true };
        // SAFETY: the contract of the call.
        unsafe { copy.to_host(driver, context) }
    })
}

fn within_device(
    driver: &mut Driver,
    context: u64,
    (target, source): (u64, u64),
    bytes: usize,
    stream: u64,
) -> Answer {
    let stream = driver.stream(context, stream)?;
    if bytes == 0 {
        return Ok(());
    }
    let (device, bytes) = (driver.device_of(context), bytes as u64);
    driver.memory.range(device, target, bytes)?;
    driver.memory.range(device, source, bytes)?;
    driver.submit(stream, Task::DeviceToDevice { source, target, bytes }, None);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: u64) -> u32 {
    door::context("cuMemcpyDtoDAsync_v2", |driver, context| {
        within_device(driver, context, (target, source), bytes, stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: usize) -> u32 {
    door::context("cuMemcpyDtoD_v2", |driver, context| {
        within_device(driver, context, (target, source), bytes, 0)
    })
}
