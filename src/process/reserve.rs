//! The crate's allocator: the system's, and behind it a reserve for small requests.
//!
//! Where the system refuses memory, Rust's collections abort the process, and on the way there std
//! takes a lock that a panic may hold already: the process hangs. So every request whose size depends
//! on data is made by the fallible functions of [`super::memory`], and what is left is small: a job of
//! the pool, a message, a node of a map. Those the reserve serves. It is part of the library's zeroed
//! data: the address space is taken when the library is loaded, and pages that are never used cost nothing.
//!
//! Drawing on the reserve notes that memory has run out. [`check`], which the batching layer and the
//! engine ask between two steps, turns that note into an error, unless the system has memory again.
//!
//! Invariant: no lock, so that neither a fork nor a signal finds one taken; nothing here unwinds, which
//! an allocator must not do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Bytes of a block, smallest blocks first; each four times as large as the one before.
const BLOCKS: [usize; 5] = [128, 512, 2 << 10, 8 << 10, LARGEST];
/// The largest request that the reserve serves.
pub const LARGEST: usize = 32 << 10;
/// Bytes of all blocks of one size, but for the largest blocks.
const SHARE: usize = 512 << 10;
/// There are 64 of the largest blocks, as many as bits in a word.
const BYTES: usize = 4 * SHARE + 64 * LARGEST;
/// Blocks of any size begin at multiples of this.
const ALIGN: usize = 128;
/// One bit for each block, all sizes.
const WORDS: usize = 86;
/// If the system has so much, it is not out of memory.
const PROBE: usize = 256 << 10;

#[repr(align(128))]
struct Blocks(UnsafeCell<[u8; BYTES]>);

// SAFETY: a block belongs to whoever set its bit, until that one clears it.
unsafe impl Sync for Blocks {}

static MEMORY: Blocks = Blocks(UnsafeCell::new([0; BYTES]));
static USED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static DRAWN: AtomicBool = AtomicBool::new(false);

/// What the crate allocates with.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Where the blocks of a size begin, in bytes and in words of `USED`, and how many words there are.
fn class(index: usize) -> (usize, usize, usize) {
    let words = |index: usize| match BLOCKS[index] {
        LARGEST => 1,
        block => SHARE / block / 64,
    };
    (index * SHARE, (0..index).map(words).sum(), words(index))
}

fn base() -> *mut u8 {
    MEMORY.0.get().cast()
}

/// Whether memory is the reserve's.
pub(super) fn owns(memory: *const u8) -> bool {
    memory.addr().wrapping_sub(base().addr()) < BYTES
}

/// A free block, or null.
fn take(layout: Layout) -> *mut u8 {
    if layout.size() > LARGEST || layout.align() > ALIGN {
        return std::ptr::null_mut();
    }
    DRAWN.store(true, Ordering::Relaxed);
    for (index, &block) in BLOCKS.iter().enumerate().filter(|(_, block)| **block >= layout.size()) {
        let (start, first, words) = class(index);
        for (at, word) in USED[first..first + words].iter().enumerate() {
            let mut used = word.load(Ordering::Relaxed);
            while used != u64::MAX {
                let bit = used.trailing_ones();
                let taken = used | 1 << bit;
                match word.compare_exchange_weak(used, taken, Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => {
                        let number = at * 64 + bit as usize;
                        return base().wrapping_add(start + number * block);
                    }
                    Err(now) => used = now,
                }
            }
        }
    }
    give_up()
}

/// All blocks are in use. Null would make std print, which may wait for ever for a lock.
fn give_up() -> ! {
    const TEXT: &[u8] = b"GPUGTiff: out of memory, and its reserve is used up\n";
    // SAFETY: a write of static bytes, and the end of the process.
    unsafe {
        libc::write(2, TEXT.as_ptr().cast(), TEXT.len());
        libc::abort()
    }
}

/// Takes a block back.
fn give_back(memory: *mut u8) {
    let offset = memory.addr() - base().addr();
    let index = (offset / SHARE).min(BLOCKS.len() - 1);
    let (start, first, _) = class(index);
    let number = (offset - start) / BLOCKS[index];
    USED[first + number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
}

// SAFETY: memory is the system's, or a block of the reserve that is as large and as aligned as was
// asked for and nobody else's until it is given back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about the layout, passed on.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() { take(layout) } else { memory }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about the layout, passed on.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            return memory;
        }
        let memory = take(layout);
        if !memory.is_null() {
            // SAFETY: the block has so many bytes and is ours.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if owns(memory) {
            return give_back(memory);
        }
        // SAFETY: what is not the reserve's came from the system, with this layout.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !owns(memory) {
            // SAFETY: came from the system, with this layout; the caller's promises about the size.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the size is not zero and does not overflow with this alignment: the caller's promise.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

/// An error if the reserve was drawn on and the system still has no memory.
pub fn check(place: &'static str) -> Result<()> {
    if !DRAWN.load(Ordering::Relaxed) || system_has_memory() {
        return Ok(());
    }
    Err(Error::OutOfMemory { bytes: PROBE as u64, place })
}

#[cold]
fn system_has_memory() -> bool {
    let Ok(layout) = Layout::from_size_align(PROBE, 1) else { return false };
    // SAFETY: the layout is not empty; freed as it was allocated. The compiler must not take both away.
    let some = unsafe {
        let memory = black_box(System.alloc(layout));
        if !memory.is_null() {
            System.dealloc(memory, layout);
        }
        !memory.is_null()
    };
    if some {
        DRAWN.store(false, Ordering::Relaxed);
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// Both tests look at all blocks.
    static ALONE: Mutex<()> = Mutex::new(());

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    /// Blocks of all sizes from many threads: none overlaps another, all come back.
    #[test]
    fn blocks_are_apart_and_come_back() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            for thread in 1..=4_u8 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let sizes = [1, 128, 129, 700, 5000, 8192, LARGEST, 40];
                        let blocks = sizes.map(|size| (take(layout(size)), size));
                        for (block, size) in blocks {
                            assert!(owns(block) && block.addr().is_multiple_of(ALIGN));
                            // SAFETY: a block of so many bytes that is this thread's.
                            unsafe { block.write_bytes(thread, size) };
                        }
                        std::thread::yield_now();
                        for (block, size) in blocks {
                            // SAFETY: written above.
                            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
                            assert!(bytes.iter().all(|&byte| byte == thread), "round {round}");
                            give_back(block);
                        }
                    }
                });
            }
        });
        assert!(USED.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(check("a test").is_ok());
        assert!(take(layout(LARGEST + 1)).is_null());
    }

    /// And what was taken from the reserve grows and is freed as any other memory.
    #[test]
    fn the_classes_fill_the_reserve() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, first, words) = class(BLOCKS.len() - 1);
        assert_eq!((start + 64 * LARGEST, first + words), (BYTES, WORDS));
        for (index, block) in BLOCKS.iter().enumerate().take(BLOCKS.len() - 1) {
            assert_eq!(class(index).2 * 64 * block, SHARE);
        }
        let old = take(layout(100));
        // SAFETY: a block of 100 bytes that grows to 50,000, which the system serves.
        unsafe {
            old.write_bytes(7, 100);
            let new = ALLOCATOR.realloc(old, layout(100), 50_000);
            assert!(!owns(new) && std::slice::from_raw_parts(new, 100) == [7; 100]);
            ALLOCATOR.dealloc(new, layout(50_000));
        }
        assert!(!owns(&0_u8) && !owns(std::ptr::null()));
    }
}
