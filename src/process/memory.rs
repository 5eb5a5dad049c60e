//! Memory whose size depends on data: an error where there is none.
//!
//! Everything that grows with a file, a raster, a tile or a number of tiles is allocated by these
//! functions. They leave the reserve alone, which is for what cannot fail (see [`super::reserve`]).

use std::alloc::{Layout, alloc_zeroed};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub use super::reserve::check;

use super::reserve::owns;
use crate::error::{Error, Result};

fn refused<T>(count: usize, place: &'static str) -> Error {
    Error::OutOfMemory { bytes: (count as u64).saturating_mul(size_of::<T>() as u64), place }
}

/// Makes room for `more` items.
pub fn grow<T>(items: &mut Vec<T>, more: usize, place: &'static str) -> Result<()> {
    if items.capacity() - items.len() >= more {
        return Ok(());
    }
    let before = items.capacity();
    match items.try_reserve(more) {
        Ok(()) if before == 0 && owns(items.as_ptr().cast()) => {
            *items = Vec::new();
            Err(refused::<T>(more, place))
        }
        Ok(()) => Ok(()),
        Err(_) => Err(refused::<T>(items.len().saturating_add(more), place)),
    }
}

/// An empty vector with room for `count` items.
pub fn room<T>(count: usize, place: &'static str) -> Result<Vec<T>> {
    let mut items: Vec<T> = Vec::new();
    match items.try_reserve_exact(count) {
        Ok(()) if count > 0 && owns(items.as_ptr().cast()) => Err(refused::<T>(count, place)),
        Ok(()) => Ok(items),
        Err(_) => Err(refused::<T>(count, place)),
    }
}

/// Adds an item.
pub fn push<T>(items: &mut Vec<T>, item: T, place: &'static str) -> Result<()> {
    grow(items, 1, place)?;
    items.push(item);
    Ok(())
}

/// Adds all items of an iterator.
pub fn extend<T>(
    items: &mut Vec<T>,
    more: impl IntoIterator<Item = T>,
    place: &'static str,
) -> Result<()> {
    let more = more.into_iter();
    grow(items, more.size_hint().0, place)?;
    more.into_iter().try_for_each(|item| push(items, item, place))
}

/// All items of an iterator.
pub fn collect<T>(items: impl IntoIterator<Item = T>, place: &'static str) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut all = room(items.size_hint().0, place)?;
    extend(&mut all, items, place)?;
    Ok(all)
}

/// The same of an iterator whose items may be errors.
pub fn try_collect<T>(
    items: impl IntoIterator<Item = Result<T>>,
    place: &'static str,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    items.into_iter().try_for_each(|item| push(&mut all, item?, place))?;
    Ok(all)
}

/// `count` times the same item.
pub fn repeated<T: Clone>(item: T, count: usize, place: &'static str) -> Result<Vec<T>> {
    let mut items = room(count, place)?;
    items.resize(count, item);
    Ok(items)
}

/// Calls `work` with `count` items made by `make`, which are allocated only where there are many.
pub fn few<T: Copy, R>(
    count: usize,
    mut make: impl FnMut(usize) -> T,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    const FEW: usize = 16;
    if count == 0 {
        return work(&mut []);
    }
    if count > FEW {
        return work(&mut or_unwind(collect((0..count).map(make), "the bands of a tile")));
    }
    let mut items = [make(0); FEW];
    (1..count).for_each(|i| items[i] = make(i));
    work(&mut items[..count])
}

/// The value, or the error by unwinding, for functions of traits that cannot return one. No panic
/// hook runs; [`caught`] returns the error.
pub fn or_unwind<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| resume_unwind(Box::new(error)))
}

/// Runs `work`; an error that comes by unwinding is returned as any other. Panics go on.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => match panic.downcast::<Error>() {
            Ok(error) => Err(*error),
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// So many zeroed bytes.
pub fn bytes(count: usize, place: &'static str) -> Result<Vec<u8>> {
    zeroed(count).ok_or_else(|| refused::<u8>(count, place))
}

/// Makes a buffer `count` bytes long; what is new in it is zero.
pub fn resize(buffer: &mut Vec<u8>, count: usize, place: &'static str) -> Result<()> {
    grow(buffer, count.saturating_sub(buffer.len()), place)?;
    buffer.resize(count, 0);
    Ok(())
}

/// A copy of some items.
pub fn copied<T: Clone>(items: &[T], place: &'static str) -> Result<Vec<T>> {
    let mut copy = room(items.len(), place)?;
    copy.extend_from_slice(items);
    Ok(copy)
}

/// Zeroed bytes; none if there is no memory for them. Pages that are never written to stay the
/// system's: room that is left over costs nothing. (Huge pages were tried: fewer faults, no clear gain.)
pub fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the layout is not empty.
    let data = unsafe { alloc_zeroed(layout) };
    // SAFETY: allocated for a Vec of so many bytes, all of them set.
    let memory = (!data.is_null()).then(|| unsafe { Vec::from_raw_parts(data, bytes, bytes) })?;
    (!owns(memory.as_ptr())).then_some(memory)
}

/// Fewer pages are faulted in one by one as cheaply.
const MANY_PAGES: usize = 8;

/// Has the system back memory that is about to be written whole, in one call: where nothing of it
/// was touched yet, that takes two thirds of the time that a fault for each page takes. Its
/// contents stay as they are; where the system can't, nothing happens.
pub fn populate(memory: *mut u8, bytes: usize) {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: asks for a number.
    let page = *PAGE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize);
    let first = (memory as usize).next_multiple_of(page);
    let end = (memory as usize).saturating_add(bytes) / page * page;
    let pages = end.saturating_sub(first) / page;
    if pages < MANY_PAGES || REFUSED.load(Ordering::Relaxed) {
        return;
    }
    // The last page tells of all: memory is touched from the front, or was in use before.
    let mut resident = 0u8;
    // SAFETY: one page is asked about, and told of in one byte.
    let asked = unsafe { libc::mincore((end - page) as *mut _, page, &mut resident) };
    if asked != 0 || resident & 1 == 1 {
        return;
    }
    // SAFETY: pages are made writable as the first write to them would; none is changed.
    let done = unsafe { libc::madvise(first as *mut _, end - first, libc::MADV_POPULATE_WRITE) };
    if done != 0 {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Rows of a tile inside a raster that the processor is told of before they are written. Each is in
/// a page of its own, where it does not look ahead by itself; and of writes that wait for memory it has
/// only so many at a time, and then stands still.
pub const ROWS_AHEAD: usize = 4;

/// A cache line.
const LINE: usize = 64;

/// Has the processor fetch memory that is about to be written; any address will do.
pub fn will_write(memory: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which neither reads nor writes nor faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, bytes, LINE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_more_than_there_can_be_is_refused() {
        for bytes in [0, 1, 4095, 1 << 20, (4 << 20) + 17] {
            for _ in 0..2 {
                let mut memory = zeroed(bytes).unwrap();
                assert!(memory.len() == bytes && memory.iter().all(|&byte| byte == 0));
                memory.fill(7);
            }
        }
        assert!(zeroed(usize::MAX).is_none());
        assert!(zeroed(isize::MAX as usize).is_none());
    }

    #[test]
    fn populated_memory_keeps_what_it_holds() {
        let mut memory = zeroed(1 << 20).unwrap();
        memory[5000] = 1;
        let (data, bytes) = (memory.as_mut_ptr(), memory.len());
        for _ in 0..2 {
            populate(data.wrapping_add(3), bytes - 3);
        }
        populate(data, 0);
        populate(std::ptr::null_mut(), 1 << 20);
        assert_eq!(memory.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 1);
    }
}
