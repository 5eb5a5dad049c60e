//! Bits, the first one lowest, as Deflate writes them.

/// A growing stream of bits.
#[derive(Default)]
pub(crate) struct Bits {
    bytes: Vec<u8>,
    pending: u64,
    count: u32,
}

impl Bits {
    /// Appends the lowest `count` bits of `value`, at most 32; the others are zero.
    pub(crate) fn put(&mut self, value: u32, count: u32) {
        self.pending |= u64::from(value) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes.extend_from_slice(&(self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.count -= 32;
        }
    }

    /// Fills up the last byte with ones or zeros.
    pub(crate) fn align(&mut self, ones: bool) {
        let free = self.count.next_multiple_of(8) - self.count;
        self.put(if ones { (1 << free) - 1 } else { 0 }, free);
        while self.count > 0 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Appends whole bytes; the stream must be aligned.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.count, 0);
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes so far, one that is not full included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.count.div_ceil(8) as usize
    }

    pub(crate) fn into_bytes(mut self, ones: bool) -> Vec<u8> {
        self.align(ones);
        self.bytes
    }
}
