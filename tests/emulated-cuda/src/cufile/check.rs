//! What a read is refused for before it is submitted.

use super::status::{
    CUDA_CONTEXT_MISMATCH, CUDA_MEMORY_TYPE_INVALID, CUDA_POINTER_INVALID, CUDA_POINTER_RANGE,
    HANDLE_NOT_REGISTERED, INVALID_MAPPING_RANGE, INVALID_VALUE, Outcome, refuse,
};
use super::{context, opened};
use crate::driver::Driver;
use crate::memory::fake;

/// A read as a caller asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) file: u64,
    pub(super) base: u64,
    pub(super) offset: i64,
    pub(super) base_offset: i64,
    pub(super) size: u64,
}

/// A read that may be submitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    pub(super) device: usize,
    pub(super) file: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Not registered: it goes through buffers of the library's own.
    pub(super) is_registered: bool,
    /// File offset, size and address are multiples of a page.
    pub(super) is_aligned: bool,
}

impl Request {
    pub(super) fn checked(&self, driver: &Driver) -> Outcome<Checked> {
        opened(driver)?;
        let context = context(driver)?;
        if !driver.cufile.files.contains_key(&self.file) {
            return Err(refuse(HANDLE_NOT_REGISTERED, "the file is not registered"));
        }
        let offsets = (u64::try_from(self.offset), u64::try_from(self.base_offset));
        let (Ok(offset), Ok(base_offset)) = offsets else {
            return Err(refuse(INVALID_VALUE, "a negative offset"));
        };
        let limit = driver.cufile.staged.limit_kb(&driver.settings.cufile) << 10;
        if self.size == 0 || self.size > limit {
            let text = format!("a read of {} bytes, {limit} at most", self.size);
            return Err(refuse(INVALID_VALUE, text));
        }
        let address = self.base.saturating_add(base_offset);
        let is_registered = self.place(driver, context, address)?;
        let is_aligned = [offset, self.size, address].iter().all(|at| at.is_multiple_of(4096));
        let device = driver.device_of(context);
        let (file, size) = (self.file, self.size);
        Ok(Checked { device, file, address, offset, size, is_registered, is_aligned })
    }

    /// Whether the destination is registered, where it is good at all.
    fn place(&self, driver: &Driver, context: u64, address: u64) -> Outcome<bool> {
        let describe = || driver.memory.describe(address, self.size);
        if !fake(self.base) {
            return Err(refuse(CUDA_MEMORY_TYPE_INVALID, "the destination is no device memory"));
        }
        let Some(found) = driver.memory.holding(self.base) else {
            return Err(refuse(CUDA_POINTER_INVALID, describe()));
        };
        if found.context != context {
            return Err(refuse(CUDA_CONTEXT_MISMATCH, "memory of another context"));
        }
        let end = address.saturating_add(self.size);
        if end > found.base + found.bytes {
            return Err(refuse(CUDA_POINTER_RANGE, describe()));
        }
        // Not before its stream has come to the allocation.
        if driver.memory.bytes(found.device, address, self.size).is_err() {
            return Err(refuse(CUDA_POINTER_INVALID, describe()));
        }
        let buffer = driver.cufile.buffers.range(..=address).next_back();
        match buffer.filter(|(start, buffer)| address < *start + buffer.bytes) {
            Some((start, buffer)) if end > start + buffer.bytes => {
                Err(refuse(INVALID_MAPPING_RANGE, describe()))
            }
            found => Ok(found.is_some()),
        }
    }
}
