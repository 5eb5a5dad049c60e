//! Memory for pixels: zeroed, and an error where there is none.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

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
    (!data.is_null()).then(|| unsafe { Vec::from_raw_parts(data, bytes, bytes) })
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
