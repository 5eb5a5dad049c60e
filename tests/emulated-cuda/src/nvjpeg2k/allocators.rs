//! Where the library's memory comes from: the caller's functions, or the driver.
//!
//! Invariant: a caller's function is called by [`renew`] and [`give_back`] only, which hold no
//! lock, so that it may call the driver.

use std::ffi::{c_int, c_uint, c_void};

use super::status::{ALLOCATOR_FAILURE, EXECUTION_FAILED, Outcome};
use crate::api::{memory, pinned};
use crate::door::{self, Refused};
use crate::driver::Driver;
use crate::memory::fake;

/// `nvjpeg2kDeviceMalloc`.
pub(super) type DeviceMalloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
/// `nvjpeg2kPinnedMalloc`.
pub(super) type PinnedMalloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int;
/// `nvjpeg2kDeviceFree` and the other.
pub(super) type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
/// Both mallocs of the second version.
pub(super) type MallocV2 = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, u64) -> c_int;
/// Both frees of the second version.
pub(super) type FreeV2 = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64) -> c_int;

/// `nvjpeg2kDeviceAllocator_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceAllocator {
    /// Gives memory.
    pub malloc: Option<DeviceMalloc>,
    /// Takes it back.
    pub free: Option<Free>,
}

/// `nvjpeg2kPinnedAllocator_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PinnedAllocator {
    /// Gives memory.
    pub malloc: Option<PinnedMalloc>,
    /// Takes it back.
    pub free: Option<Free>,
}

/// `nvjpeg2kDeviceAllocatorV2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceAllocatorV2 {
    /// Gives memory.
    pub malloc: Option<MallocV2>,
    /// Takes it back.
    pub free: Option<FreeV2>,
    /// The caller's.
    pub context: *mut c_void,
}

/// `nvjpeg2kPinnedAllocatorV2_t`.
pub type PinnedAllocatorV2 = DeviceAllocatorV2;

/// A way to get memory. The caller's context is its address.
#[derive(Clone, Copy)]
pub(super) enum Allocator {
    /// cudaMalloc or cudaHostAlloc.
    Runtime,
    Device(DeviceMalloc, Free),
    Pinned(PinnedMalloc, Free),
    Extended(MallocV2, FreeV2, usize),
}

/// Both of a library handle.
#[derive(Clone, Copy)]
pub(super) struct Allocators {
    pub(super) device: Allocator,
    pub(super) pinned: Allocator,
}

/// A piece of memory that a state holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// Which memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Device,
    Pinned,
}

/// A new block instead of an old one that is too small.
pub(super) fn renew(
    allocator: Allocator,
    place: Place,
    old: Option<Block>,
    bytes: usize,
    stream: u64,
    symbol: &'static str,
) -> Result<Block, Refused<u32>> {
    let failed = |text: String| {
        door::resumed(symbol, |_| -> Outcome<Block> { Err((ALLOCATOR_FAILURE, text)) })
    };
    if let Some(old) = old
        && !give_back(allocator, place, old, stream, symbol)
    {
        return failed(format!("{place:?} memory could not be freed"));
    }
    let mut pointer = std::ptr::null_mut();
    let place_for = &raw mut pointer;
    let code = match allocator {
        Allocator::Runtime => {
            return door::resumed(symbol, |driver| from_runtime(driver, place, bytes));
        }
        // SAFETY: the caller's function, with arguments as it wants them.
        Allocator::Device(malloc, _) => unsafe { malloc(place_for, bytes) },
        // SAFETY: the caller's function, with arguments as it wants them.
        Allocator::Pinned(malloc, _) => unsafe { malloc(place_for, bytes, 0) },
        Allocator::Extended(malloc, _, context) => {
            // SAFETY: the caller's function and context.
            unsafe { malloc(context as *mut c_void, place_for, bytes, stream) }
        }
    };
    let address = pointer as u64;
    let is_fit = address != 0 && fake(address) == (place == Place::Device);
    if code != 0 || !is_fit {
        return failed(format!("{place:?} memory: {code}, {address:#x}"));
    }
    Ok(Block { address, bytes })
}

/// Gives a block back; whether that worked.
pub(super) fn give_back(
    allocator: Allocator,
    place: Place,
    block: Block,
    stream: u64,
    symbol: &'static str,
) -> bool {
    let pointer = block.address as *mut c_void;
    match allocator {
        Allocator::Runtime => {
            let freed = door::resumed(symbol, |driver| to_runtime(driver, place, block));
            freed.is_ok()
        }
        Allocator::Device(_, free) | Allocator::Pinned(_, free) => {
            // SAFETY: the caller's function, with what its other one gave.
            unsafe { free(pointer) == 0 }
        }
        Allocator::Extended(_, free, context) => {
            // SAFETY: the caller's function and context, with what its other one gave.
            unsafe { free(context as *mut c_void, pointer, block.bytes, stream) == 0 }
        }
    }
}

fn from_runtime(driver: &mut Driver, place: Place, bytes: usize) -> Outcome<Block> {
    let refused = |refusal: crate::status::Refusal| (ALLOCATOR_FAILURE, refusal.message);
    let context = driver.current().map_err(refused)?;
    let made = match place {
        Place::Device => memory::live(driver, context, bytes),
        Place::Pinned => pinned::allocate(driver, context, bytes, 0),
    };
    made.map(|address| Block { address, bytes }).map_err(refused)
}

fn to_runtime(driver: &mut Driver, place: Place, block: Block) -> Outcome {
    let refused = |refusal: crate::status::Refusal| (EXECUTION_FAILED, refusal.message);
    let context = driver.current().map_err(refused)?;
    match place {
        Place::Device => memory::free(driver, context, block.address).map_err(refused),
        Place::Pinned => pinned::free(driver, block.address as usize).map_err(refused),
    }
}
