//! The memory that nvJPEG2000 asks for: pieces of a part of the arena, and of one page-locked buffer.
//!
//! The library is told of these functions once for all, the arena is lent to one run after the other:
//! so there is a region while a run of JPEG 2000 has it. What the library wants outside of a run, when
//! it is started and tried, is the driver's.
//!
//! A piece may be freed in the order of a stream. All batches of a run have one stream, so that device
//! memory is free at once; page-locked memory is when the host has waited for what may still read it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::driver::{Device, DeviceMemory, Pinned};

/// Pieces begin at multiples of this.
const ALIGN: usize = 256;

/// A range of addresses, given out in pieces: the first gap that is large enough.
#[derive(Debug, Default)]
struct Region {
    start: u64,
    len: usize,
    /// Where pieces begin, and their lengths.
    pieces: BTreeMap<usize, usize>,
}

impl Region {
    fn new(start: u64, len: usize) -> Region {
        let lead = start.next_multiple_of(ALIGN as u64) - start;
        let len = len.saturating_sub(lead as usize);
        Region { start: start + lead, len, pieces: BTreeMap::new() }
    }

    fn take(&mut self, bytes: usize) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let mut at = 0;
        for (&start, &len) in &self.pieces {
            if start - at >= bytes {
                break;
            }
            at = start + len;
        }
        let end = at.checked_add(bytes)?;
        if end > self.len {
            return None;
        }
        self.pieces.insert(at, bytes);
        Some(self.start + at as u64)
    }

    fn place(&self, address: u64) -> Option<usize> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        self.pieces.contains_key(&at).then_some(at)
    }

    fn give_back(&mut self, address: u64) -> bool {
        self.place(address).is_some_and(|at| self.pieces.remove(&at).is_some())
    }
}

/// Addresses that were freed while batches were under way.
#[derive(Debug, Default)]
struct Quarantine {
    /// Counts batches.
    batches: u64,
    under_way: BTreeSet<u64>,
    /// Each with the last batch that may use it.
    freed: Vec<(u64, u64)>,
}

impl Quarantine {
    fn begin(&mut self) -> u64 {
        self.batches += 1;
        self.under_way.insert(self.batches);
        self.batches
    }

    /// The host has waited for a batch: what nobody uses any more.
    fn end(&mut self, batch: u64) -> Vec<u64> {
        self.under_way.remove(&batch);
        let first = self.under_way.first().copied().unwrap_or(u64::MAX);
        let free = self.freed.extract_if(.., |(last, _)| *last < first);
        free.map(|(_, address)| address).collect()
    }

    /// Keeps an address, if somebody may use it.
    fn keeps(&mut self, address: u64) -> bool {
        let last = self.under_way.last();
        self.freed.extend(last.map(|last| (*last, address)));
        last.is_some()
    }
}

#[derive(Default)]
struct State {
    /// Of the arena, while a run of JPEG 2000 has it.
    device: Option<Region>,
    host: Region,
    quarantine: Quarantine,
    pinned: Option<(Pinned, usize)>,
    /// What the library took outside of runs.
    own: Vec<DeviceMemory>,
    own_host: Vec<Pinned>,
    /// The driver had none.
    short: bool,
}

/// What both of the library's allocators know.
pub(super) struct Memory {
    device: Arc<Device>,
    state: Mutex<State>,
}

impl Memory {
    pub(super) fn new(device: &Arc<Device>) -> Memory {
        Memory { device: Arc::clone(device), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on pieces are of these `len` bytes of the arena, and of so much page-locked memory;
    /// false where the latter cannot be had.
    pub(super) fn open(&self, start: u64, len: usize, host: usize) -> bool {
        let mut state = self.state();
        if state.pinned.as_ref().is_none_or(|(_, bytes)| *bytes < host) {
            state.pinned = None;
            let Ok(pinned) = self.device.enter().and_then(|current| current.pin(host)) else {
                return false;
            };
            state.pinned = Some((pinned, host));
        }
        let data = state.pinned.as_ref().map_or(0, |(pinned, _)| pinned.data() as u64);
        state.host = Region::new(data, host);
        state.device = Some(Region::new(start, len));
        true
    }

    /// The arena goes to others; false if the library still has a piece of it, or of the other memory.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        let device = state.device.take();
        let host = std::mem::take(&mut state.host);
        device.is_none_or(|region| region.pieces.is_empty()) && host.pieces.is_empty()
    }

    /// Whether the driver had no memory outside of a run; asked once.
    pub(super) fn ran_short(&self) -> bool {
        std::mem::take(&mut self.state().short)
    }

    /// A batch begins; its number.
    pub(super) fn begin_batch(&self) -> u64 {
        self.state().quarantine.begin()
    }

    /// The host has waited for a batch.
    pub(super) fn end_batch(&self, batch: u64) {
        let mut state = self.state();
        for address in state.quarantine.end(batch) {
            state.host.give_back(address);
        }
    }

    fn allocate(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state();
        if let Some(region) = &mut state.device {
            return region.take(bytes);
        }
        let made = self.device.enter().and_then(|current| current.allocate(bytes.max(1))).ok();
        state.short |= made.is_none();
        let memory = made?;
        let address = memory.address();
        state.own.push(memory);
        Some(address)
    }

    fn free(&self, address: u64) {
        let mut state = self.state();
        if !state.device.as_mut().is_some_and(|region| region.give_back(address)) {
            state.own.retain(|memory| memory.address() != address);
        }
    }

    fn pin(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state();
        if state.device.is_some() {
            return state.host.take(bytes);
        }
        let made = self.device.enter().and_then(|current| current.pin(bytes.max(1))).ok();
        state.short |= made.is_none();
        let pinned = made?;
        let address = pinned.data() as u64;
        state.own_host.push(pinned);
        Some(address)
    }

    fn unpin(&self, address: u64) {
        let mut state = self.state();
        if state.host.place(address).is_some() {
            if !state.quarantine.keeps(address) {
                state.host.give_back(address);
            }
        } else {
            state.own_host.retain(|pinned| pinned.data() as u64 != address);
        }
    }
}

type Malloc = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, usize, *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, *mut c_void) -> c_int;

/// `nvjpeg2kDeviceAllocatorV2_t`, and the same for page-locked memory.
#[repr(C)]
pub(super) struct Allocator {
    malloc: Malloc,
    free: Free,
    memory: *const Memory,
}

impl Allocator {
    /// Both, for a library that is started once; the memory stays.
    pub(super) fn both(memory: &'static Memory) -> [Allocator; 2] {
        [
            Allocator { malloc: device_malloc, free: device_free, memory },
            Allocator { malloc: host_malloc, free: host_free, memory },
        ]
    }
}

/// # Safety
/// `memory` must be the allocator's, and `place` a pointer to fill.
unsafe fn answer(
    memory: *mut c_void,
    place: *mut *mut c_void,
    take: impl FnOnce(&Memory) -> Option<u64>,
) -> c_int {
    // SAFETY: the caller's promise; the memory is never freed.
    let found = take(unsafe { &*memory.cast::<Memory>() });
    // SAFETY: as above.
    unsafe { *place = found.unwrap_or(0) as *mut c_void };
    c_int::from(found.is_none())
}

unsafe extern "C" fn device_malloc(
    memory: *mut c_void,
    place: *mut *mut c_void,
    bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as nvJPEG2000 calls it.
    unsafe { answer(memory, place, |memory| memory.allocate(bytes)) }
}

unsafe extern "C" fn device_free(
    memory: *mut c_void,
    piece: *mut c_void,
    _bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as nvJPEG2000 calls it.
    unsafe { &*memory.cast::<Memory>() }.free(piece as u64);
    0
}

unsafe extern "C" fn host_malloc(
    memory: *mut c_void,
    place: *mut *mut c_void,
    bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as nvJPEG2000 calls it.
    unsafe { answer(memory, place, |memory| memory.pin(bytes)) }
}

unsafe extern "C" fn host_free(
    memory: *mut c_void,
    piece: *mut c_void,
    _bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: as nvJPEG2000 calls it.
    unsafe { &*memory.cast::<Memory>() }.unpin(piece as u64);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_gaps_are_found_again() {
        let mut region = Region::new(1000, 4096 + 24);
        assert_eq!((region.start, region.len), (1024, 4096));
        let pieces: Vec<u64> = (0..4).map(|_| region.take(1000).unwrap()).collect();
        assert_eq!(pieces, [1024, 2048, 3072, 4096]);
        assert_eq!(region.take(1), None);
        assert!(region.give_back(pieces[1]) && !region.give_back(pieces[1]));
        assert_eq!(
            (region.take(257), region.take(513), region.take(512)),
            (Some(2048), None, Some(2560))
        );
        assert!(!region.give_back(5) && region.take(usize::MAX).is_none());
    }

    #[test]
    fn freed_pieces_wait_for_the_batches_that_may_read_them() {
        let mut quarantine = Quarantine::default();
        assert!(!quarantine.keeps(1), "nobody is under way");
        let [first, second] = [quarantine.begin(), quarantine.begin()];
        assert!(quarantine.keeps(2));
        let third = quarantine.begin();
        assert!(quarantine.keeps(3));
        assert!(quarantine.end(second).is_empty(), "the first may read it");
        assert_eq!(quarantine.end(first), [2]);
        assert_eq!(quarantine.end(third), [3]);
        assert!(!quarantine.keeps(4));
    }
}
