//! Memory for pixels: zeroed, and an error where there is none.

use std::alloc::{Layout, alloc_zeroed};

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
}
