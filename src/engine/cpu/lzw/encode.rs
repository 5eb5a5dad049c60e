//! The other way: strings that were seen before become codes.
//!
//! When the table is emptied is up to an encoder. This one does it where libtiff 4.5.0 does, so
//! that the streams are the same byte for byte: when all but the last two codes of 12 bits are
//! used up, and when a string ends 10,000 bytes after the last look at the ratio of bytes to bits
//! and that ratio has not grown since.
//!
//! Whether a string goes on with the next byte is as good as random, so nothing branches on it:
//! every byte looks up a slot, writes a code and a slot, and only what is counted depends on it.
//! Codes are packed into bits when the table is emptied, many of the same width at once.
//!
//! Invariant: `codes[258..next]` are the codes since the last Clear, the one at i put out when i
//! was the next code to be given; `next` is below `FULL` wherever a byte is looked up.

use super::super::codec::CodecError;
use super::{CLEAR, EOI, FIRST};
use crate::process::memory;
use std::hint::select_unpredictable;

/// The table is emptied when this code would be the next to be given.
const FULL: usize = 4094;
/// Bytes from one look at the ratio to the next.
const CHECK_GAP: usize = 10_000;
/// Slots of the hash table. Of 128 KiB little is ever touched, and few strings meet.
const SLOTS: usize = 1 << 15;
/// Room for every code of 12 bits.
const CODES: usize = 1 << 12;
/// Codes that are packed into one word: 4 x 12 + 7 bits at most.
const GROUP: usize = 4;

/// Where the parts of a slot begin; below the byte is the code.
const BYTE: u32 = 12;
const PROBE: u32 = 20;
const AGE: u32 = 24;
/// How often a string that meets another one looks for a better slot.
const PROBES: u32 = 15;

/// The most bytes that `Encoder::encode` makes of `len` bytes: a code of 12 bits for each, Clear
/// and EOI codes, and room for a wide store.
pub fn bound(len: usize) -> usize {
    len.saturating_add(len / 2).saturating_add(len / 1024).saturating_add(32)
}

/// An encoder of TIFF LZW streams, one per worker.
pub struct Encoder {
    /// The strings, hashed by the code of the string without its last byte, and that byte. A slot
    /// holds the byte, how many slots were tried before this one, and the string's code. Slot,
    /// byte and tries tell which code came before, so that need not be kept. Slots of another
    /// age than the encoder's are empty.
    slots: Box<[u32; SLOTS]>,
    codes: Box<[u16; CODES]>,
    age: u32,
}

/// The string that is being followed, and the next code to be given.
#[derive(Clone, Copy)]
struct Cursor {
    string: u32,
    next: u32,
}

/// When to look at the ratio, and what it was.
struct Ratio {
    bytes: usize,
    /// Bits of the Clear code before these bytes.
    clear_bits: usize,
    check: usize,
    best: usize,
}

impl Encoder {
    /// Makes an encoder.
    pub fn new() -> Self {
        Self { slots: Box::new([0; SLOTS]), codes: Box::new([0; CODES]), age: 0 }
    }

    /// Makes an encoder, if there is memory for it.
    pub fn try_new() -> Result<Self, CodecError> {
        fn table<T: Clone + Default, const N: usize>() -> Option<Box<[T; N]>> {
            let table = memory::repeated(T::default(), N, "a table").ok()?;
            table.into_boxed_slice().try_into().ok()
        }
        let tables = table().zip(table()).ok_or(CodecError::NoMemory)?;
        Ok(Self { slots: tables.0, codes: tables.1, age: 0 })
    }

    /// Encodes `src` into the front of `dst`, which has room for `bound`, and returns how many
    /// bytes were made.
    pub fn encode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        if dst.len() < bound(src.len()) {
            return Err(CodecError::NoRoom);
        }
        let mut out = Bits { dst, len: 0, held: 0, count: 0 };
        let Some((&first, mut rest)) = src.split_first() else {
            out.put(EOI, 9);
            return Ok(out.finish());
        };
        out.put(CLEAR, 9);
        self.forget();
        let mut ratio = Ratio { bytes: 1, clear_bits: 9, check: CHECK_GAP, best: 0 };
        let mut at = Cursor { string: u32::from(first), next: FIRST as u32 };
        while !rest.is_empty() {
            // A look is taken when a string ends, so where one is due it goes byte by byte.
            let count = ratio.check.saturating_sub(ratio.bytes + 1).clamp(1, rest.len());
            let before = at.next;
            let used = self.follow(&rest[..count], &mut at);
            rest = &rest[used..];
            ratio.bytes += used;
            let (next, ended) = (at.next as usize, at.next > before);
            if next == FULL || (ended && ratio.is_due(next) && ratio.has_not_grown(next)) {
                out.put_all(&self.codes[FIRST..next]);
                let wide = width(next - 1);
                out.put(CLEAR, wide);
                ratio = Ratio { bytes: 0, clear_bits: wide as usize, best: 0, ..ratio };
                at.next = FIRST as u32;
                self.forget();
            }
        }
        let mut next = at.next as usize;
        out.put_all(&self.codes[FIRST..next]);
        out.put(at.string as usize, width(next));
        next += 1;
        if next == FULL {
            out.put(CLEAR, 12);
            next = FIRST;
        }
        out.put(EOI, width(next));
        Ok(out.finish())
    }

    /// Empties the table.
    fn forget(&mut self) {
        self.age = self.age.wrapping_add(1 << AGE);
        if self.age == 0 {
            self.slots.fill(0);
            self.age = 1 << AGE;
        }
    }

    /// Follows `src` until its end or until the table is full, and returns how far it came.
    #[inline(never)]
    fn follow(&mut self, src: &[u8], at: &mut Cursor) -> usize {
        let Self { slots, codes, age } = self;
        let (slots, codes, age) = (&mut **slots, &mut **codes, *age);
        let Cursor { mut string, mut next } = *at;
        let mut used = 0;
        for &byte in src {
            if next as usize == FULL {
                break;
            }
            used += 1;
            let mut tag = age | u32::from(byte) << BYTE;
            let mut slot = (string as usize ^ usize::from(MIX[usize::from(byte)])) % SLOTS;
            let mut entry = slots[slot];
            // The code if this is the string; more than a code if it is another or none.
            let mut found = entry ^ tag;
            if is_another(found) {
                (slot, tag) = probe(slots, byte, slot, tag);
                entry = slots[slot];
                found = entry ^ tag;
            }
            let new = found >= 1 << BYTE;
            codes[next as usize % CODES] = string as u16;
            slots[slot] = select_unpredictable(new, tag | next, entry);
            next += u32::from(new);
            string = select_unpredictable(new, u32::from(byte), found);
        }
        *at = Cursor { string, next };
        used
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a slot that differs from a tag by `found` holds another string of the same age.
#[inline(always)]
fn is_another(found: u32) -> bool {
    found.wrapping_sub(1 << BYTE) < (1 << AGE) - (1 << BYTE)
}

/// The next slot, and the tag there, that holds this string or none. Where all tries meet other
/// strings it is one of theirs, which is then forgotten: that costs some bytes and no harm.
#[inline(never)]
fn probe(slots: &[u32; SLOTS], byte: u8, mut slot: usize, mut tag: u32) -> (usize, u32) {
    // Strings with the same last byte lie close together, so the step must not be short.
    let step = usize::from(MIX[usize::from(byte ^ 0x55)] | 1);
    for _ in 0..PROBES {
        slot = (slot + step) % SLOTS;
        tag += 1 << PROBE;
        if !is_another(slots[slot] ^ tag) {
            break;
        }
    }
    (slot, tag)
}

/// Arbitrary numbers that spread the strings over the slots, one for each last byte.
const MIX: [u16; 256] = {
    let mut mix = [0; 256];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut i = 0;
    while i < mix.len() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        mix[i] = (state >> 20) as u16 % SLOTS as u16;
        i += 1;
    }
    mix
};

impl Ratio {
    /// Whether it is time for a look; libtiff takes none where the codes get wider.
    fn is_due(&self, next: usize) -> bool {
        self.bytes >= self.check && width(next) == width(next - 1)
    }

    /// Takes a look, in libtiff's arithmetic.
    fn has_not_grown(&mut self, next: usize) -> bool {
        self.check = self.bytes + CHECK_GAP;
        let now = (self.bytes << 8) / (self.clear_bits + bits_before(next));
        let not_grown = now <= self.best;
        self.best = now;
        not_grown
    }
}

/// How wide a code is when `next` is the next one to be given.
fn width(next: usize) -> u32 {
    match next {
        0..512 => 9,
        512..1024 => 10,
        1024..2048 => 11,
        _ => 12,
    }
}

/// Bits of all codes from the last Clear until `next` is the next to be given.
fn bits_before(next: usize) -> usize {
    let within = |from: usize, to: usize| next.clamp(from, to) - from;
    9 * within(FIRST, 512)
        + 10 * within(512, 1024)
        + 11 * within(1024, 2048)
        + 12 * within(2048, CODES)
}

/// Bits on their way out, most significant first.
struct Bits<'a> {
    dst: &'a mut [u8],
    /// Bytes that were put out.
    len: usize,
    /// Bits that were not are the lowest `count` ones, fewer than eight.
    held: u64,
    count: u32,
}

impl Bits<'_> {
    fn put(&mut self, code: usize, width: u32) {
        self.held = self.held << width | code as u64;
        self.count += width;
        while self.count >= 8 {
            self.count -= 8;
            self.dst[self.len] = (self.held >> self.count) as u8;
            self.len += 1;
        }
    }

    /// The codes after a Clear.
    fn put_all(&mut self, codes: &[u16]) {
        let (codes, wider) = codes.split_at(codes.len().min(512 - FIRST));
        self.put_run::<9>(codes);
        let (codes, wider) = wider.split_at(wider.len().min(512));
        self.put_run::<10>(codes);
        let (codes, wider) = wider.split_at(wider.len().min(1024));
        self.put_run::<11>(codes);
        self.put_run::<12>(wider);
    }

    fn put_run<const WIDTH: u32>(&mut self, codes: &[u16]) {
        let (groups, rest) = codes.as_chunks::<GROUP>();
        for group in groups {
            let codes = group.iter().fold(0, |word, &code| word << WIDTH | u64::from(code));
            self.held = self.held << (WIDTH * GROUP as u32) | codes;
            self.count += WIDTH * GROUP as u32;
            let word = (self.held << (64 - self.count)).to_be_bytes();
            self.dst[self.len..self.len + 8].copy_from_slice(&word);
            self.len += (self.count / 8) as usize;
            self.count %= 8;
        }
        for &code in rest {
            self.put(code.into(), WIDTH);
        }
    }

    fn finish(mut self) -> usize {
        if self.count > 0 {
            self.put(0, 8 - self.count);
        }
        self.len
    }
}

#[cfg(test)]
mod tests;
