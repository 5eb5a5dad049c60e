//! Pages of the host that stand behind device memory and pinned memory.
//!
//! Refuses to know addresses of the device. Invariant: fresh pages hold poison, never zeros,
//! and cost nothing until they are touched: a private mapping of one poisoned file, as
//! often as it takes, so that a page is copied when it is written.

use std::ptr::NonNull;
use std::sync::LazyLock;

use crate::random::Random;

/// The poisoned file's length: a 6 GiB arena takes 384 mappings of it.
const POISON: usize = 16 << 20;

/// Up to here memory is filled rather than mapped in pieces.
const SMALL: usize = 1 << 20;

struct Poison {
    file: libc::c_int,
    bytes: &'static [u8],
}

static POISONED: LazyLock<Option<Poison>> = LazyLock::new(poisoned);

fn poisoned() -> Option<Poison> {
    // SAFETY: the name is a C string; the call takes no other memory.
    let file = unsafe { libc::memfd_create(c"emulated-cuda poison".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: ftruncate takes no memory; a file that could not be made is refused by it.
    if unsafe { libc::ftruncate(file, POISON as libc::off_t) } != 0 {
        return None;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), POISON, protection, libc::MAP_SHARED, file, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is POISON bytes long, ours alone and never unmapped.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), POISON) };
    Random::new(0x90_15_0b_ed).fill(bytes);
    Some(Poison { file, bytes })
}

/// Fills `bytes` with poison.
pub(crate) fn poison(bytes: &mut [u8]) {
    match &*POISONED {
        Some(poison) => {
            for chunk in bytes.chunks_mut(POISON) {
                chunk.copy_from_slice(&poison.bytes[..chunk.len()]);
            }
        }
        None => Random::new(0x90_15_0b_ed).fill(bytes),
    }
}

/// A mapping of its own; unmapped when dropped.
pub(crate) struct Backing {
    start: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to the value, not to a thread.
unsafe impl Send for Backing {}

impl Backing {
    /// Poisoned memory of at least `bytes` bytes, or nothing where the system refuses.
    pub(crate) fn new(bytes: usize) -> Option<Backing> {
        let mapped = bytes.max(1).checked_next_multiple_of(4096)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let backing = Backing { start: NonNull::new(start.cast())?, mapped };
        match &*POISONED {
            Some(poison) if mapped > SMALL => backing.cover(poison.file)?,
            // SAFETY: the mapping is that long, readable, writable and ours alone.
            _ => poison(unsafe { std::slice::from_raw_parts_mut(backing.start.as_ptr(), mapped) }),
        }
        Some(backing)
    }

    /// Puts private copies of the poisoned file over the whole mapping.
    fn cover(&self, file: libc::c_int) -> Option<()> {
        for offset in (0..self.mapped).step_by(POISON) {
            let length = POISON.min(self.mapped - offset);
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // SAFETY: [offset, offset + length) lies within our own mapping, which nobody
            // has seen yet.
            let piece = unsafe {
                let at = self.start.as_ptr().add(offset);
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(at.cast(), length, protection, flags, file, 0)
            };
            if piece == libc::MAP_FAILED {
                return None;
            }
        }
        Some(())
    }

    /// Where the memory begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and as long as that.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::Backing;

    #[test]
    fn fresh_memory_is_poisoned_and_private() {
        for bytes in [1, 4096, 5 << 20, 40 << 20] {
            let one = Backing::new(bytes).unwrap();
            let two = Backing::new(bytes).unwrap();
            // SAFETY: both are at least that long and nobody else's.
            let (one, two) = unsafe {
                (
                    std::slice::from_raw_parts_mut(one.start(), bytes),
                    std::slice::from_raw_parts_mut(two.start(), bytes),
                )
            };
            assert!(bytes < 64 || one.iter().filter(|byte| **byte == 0).count() < bytes / 64);
            let before = two[bytes / 2];
            one.fill(!before);
            assert_eq!(two[bytes / 2], before);
        }
    }
}
