//! LZW (TIFF compression 5): most significant bit first, 9 to 12 bits, widths change early.
//!
//! Every LZW string is a stretch of what was already put out: the string of some earlier code and
//! the byte after it. So the table only holds where the string of each code was put, and a code
//! costs two neighbouring loads and one wide copy. What is accepted and refused follows libtiff
//! 4.5.0, but a stream that ends early yields what it made. Old-style streams are recognised, not
//! decoded.
//!
//! Invariant: `table[258..=next]` was all written since the last Clear of the stream being
//! decoded, holds positions in rising order up to `op`, and no code above `next` is looked up.

mod encode;

pub use self::encode::{Encoder, bound};

use super::codec::CodecError;
use std::hint::select_unpredictable;

const CLEAR: usize = 256;
const EOI: usize = 257;
const FIRST: usize = 258;
/// libtiff's table has this many entries; a code that finds it full is an error. Codes have 12
/// bits, so that entries from 4096 on are counted but never used.
const TABLE: usize = 4095 + 1024;
/// Bytes that one wide copy moves.
const WIDE: usize = 16;
/// Codes that the fast loop takes from one load of eight bytes: 4 x 12 + 7 bits at most.
const GROUP: usize = 4;
/// Room in the output with which a group of short strings may be copied without looking.
const ROOM: usize = (GROUP + 1) * WIDE;
/// In place of the position of EOI: makes the strings of Clear and EOI longer than any output.
const FAR: u32 = 1 << 31;

/// A decoder of TIFF LZW streams, one per worker.
pub struct Lzw {
    /// Where the code that came before entry i was put out. That string and one byte more is
    /// the string of entry i, so it ends where the next entry begins: see `length`. Codes below
    /// 256 have zeros, which makes their length 1.
    table: Box<[u32; TABLE + 1]>,
}

/// Where decoding stands.
struct Cursor {
    /// Bits of the source that were read.
    bit: usize,
    /// Bytes that were put out.
    op: usize,
    /// The entry that the next code completes.
    next: usize,
}

/// Whether there is more to decode.
#[derive(PartialEq)]
enum Step {
    Go,
    Done,
}

impl Lzw {
    /// Makes a decoder.
    pub fn new() -> Self {
        let mut table = Box::new([0; TABLE + 1]);
        table[EOI] = FAR;
        Self { table }
    }

    /// Decodes `src` into the front of `dst` and returns how many bytes were made.
    ///
    /// Stops when `dst` is full and ignores the rest of `src`. Fewer bytes than `dst` holds is not
    /// an error here. What `dst` holds after the bytes made, or after an error, is unspecified.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        if let [0, second, ..] = src
            && second & 1 == 1
        {
            return Err(CodecError::OldStyleLzw);
        }
        if dst.len() >= FAR as usize / 2 {
            return Err(CodecError::TileTooLarge);
        }
        let mut at = Cursor { bit: 0, op: 0, next: 0 };
        while self.step(&mut at, src, dst)? == Step::Go {
            match at.next {
                FIRST..511 => self.run::<9>(&mut at, src, dst),
                511..1023 => self.run::<10>(&mut at, src, dst),
                1023..2047 => self.run::<11>(&mut at, src, dst),
                2047..TABLE => self.run::<12>(&mut at, src, dst),
                _ => {}
            }
        }
        Ok(at.op)
    }

    /// Decodes codes of `BITS` bits while nothing unusual comes up: an entry that changes the
    /// width, Clear, EOI, a wrong code, the last bytes of the source or of the output. Whatever
    /// stopped it is left for `step`.
    #[inline(never)]
    fn run<const BITS: usize>(&mut self, at: &mut Cursor, src: &[u8], dst: &mut [u8]) {
        let full = if BITS == 12 { TABLE } else { (1 << BITS) - 1 };
        let Some(last_load) = src.len().checked_sub(8) else {
            return;
        };
        let Some(last_copy) = dst.len().checked_sub(ROOM) else {
            return;
        };
        let table = &mut *self.table;
        let Cursor { mut bit, mut op, mut next } = *at;
        'run: while next <= full - GROUP && bit >> 3 <= last_load && op <= last_copy {
            let mut word = load(src, bit >> 3) << (bit & 7);
            for _ in 0..GROUP {
                let code = (word >> (64 - BITS)) as usize;
                table[next + 1] = op as u32;
                if code > next {
                    break 'run;
                }
                let (from, len) = (table[code] as usize, length(table, code));
                if len <= WIDE {
                    // SAFETY: at most WIDE bytes were put out for each code of this group before,
                    // or as many as left ROOM; from <= op by the invariant.
                    unsafe { copy_wide(dst, code, from, op) };
                    if code == next {
                        dst[op + len - 1] = dst[op];
                    }
                } else {
                    if op > last_copy || len > last_copy - op {
                        break 'run;
                    }
                    // SAFETY: this leaves ROOM; from <= op by the invariant, and a string that
                    // reaches to op or beyond begins at least WIDE bytes before it.
                    unsafe { copy_long(dst, from, op, len) };
                }
                op += len;
                next += 1;
                bit += BITS;
                word <<= BITS;
            }
        }
        *at = Cursor { bit, op, next };
    }

    /// Decodes one code with every check.
    fn step(&mut self, at: &mut Cursor, src: &[u8], dst: &mut [u8]) -> Result<Step, CodecError> {
        if at.op == dst.len() {
            return Ok(Step::Done);
        }
        let Some(code) = read(at, src) else {
            return Ok(Step::Done);
        };
        match code {
            EOI => return Ok(Step::Done),
            CLEAR => return self.clear(at, src, dst),
            _ if at.next < FIRST => return Err(CodecError::LzwWithoutClear),
            _ if at.next >= TABLE => return Err(CodecError::LzwTableFull),
            _ if code > at.next => return Err(CodecError::LzwCode(code as u16)),
            _ => {}
        }
        at.next += 1;
        self.table[at.next] = at.op as u32;
        if code < 256 {
            dst[at.op] = code as u8;
            at.op += 1;
        } else {
            let from = self.table[code] as usize;
            let len = length(&self.table, code).min(dst.len() - at.op);
            for i in 0..len {
                dst[at.op + i] = dst[from + i];
            }
            at.op += len;
        }
        Ok(Step::Go)
    }

    /// Empties the table and puts out the byte that must follow, if any does.
    fn clear(&mut self, at: &mut Cursor, src: &[u8], dst: &mut [u8]) -> Result<Step, CodecError> {
        at.next = FIRST;
        loop {
            match read(at, src) {
                None | Some(EOI) => return Ok(Step::Done),
                Some(CLEAR) => {}
                Some(code @ FIRST..) => return Err(CodecError::LzwCode(code as u16)),
                Some(byte) => {
                    self.table[FIRST] = at.op as u32;
                    dst[at.op] = byte as u8;
                    at.op += 1;
                    return Ok(Step::Go);
                }
            }
        }
    }
}

impl Default for Lzw {
    fn default() -> Self {
        Self::new()
    }
}

/// Takes one code off the source, of the width that the fill of the table asks for.
fn read(at: &mut Cursor, src: &[u8]) -> Option<usize> {
    let bits = match at.next {
        0..511 => 9,
        511..1023 => 10,
        1023..2047 => 11,
        _ => 12,
    };
    if src.len() * 8 - at.bit < bits {
        return None;
    }
    let byte = |i| u32::from(src.get(at.bit / 8 + i).copied().unwrap_or(0));
    let word = byte(0) << 24 | byte(1) << 16 | byte(2) << 8;
    let code = word << (at.bit % 8) >> (32 - bits);
    at.bit += bits;
    Some(code as usize)
}

/// How long the string of `code` is; far longer than any output for Clear and EOI.
#[inline(always)]
fn length(table: &[u32; TABLE + 1], code: usize) -> usize {
    table[code + 1].wrapping_sub(table[code]).wrapping_add(1) as usize
}

/// Eight bytes of `src`, most significant first.
#[inline(always)]
fn load(src: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(src[at..at + 8].try_into().unwrap())
}

/// Puts the string of `code`, of at most `WIDE` bytes, to `dst[op..]`, and bytes of no meaning
/// after it: `WIDE` bytes from `dst[from..]`, or the byte that a code below 256 stands for.
///
/// # Safety
/// `op + WIDE <= dst.len()` and `from <= op`.
#[inline(always)]
unsafe fn copy_wide(dst: &mut [u8], code: usize, from: usize, op: usize) {
    let out = dst.as_mut_ptr();
    // SAFETY: both ranges are inside dst (above); the bytes are loaded before any is stored, so
    // that they may overlap.
    unsafe {
        let [low, high] = out.add(from).cast::<[[u8; 8]; 2]>().read();
        let low = select_unpredictable(code < 256, code as u64, u64::from_le_bytes(low));
        let string = [low.to_le_bytes(), high];
        out.add(op).cast::<[[u8; 8]; 2]>().write(string);
    }
}

/// Copies `len` bytes from `dst[from..]` to `dst[op..]`, in pairs of `WIDE` bytes, the last one
/// beyond the end.
///
/// # Safety
/// `op + len + 2 * WIDE <= dst.len()` and `from + WIDE <= op`.
#[inline(always)]
unsafe fn copy_long(dst: &mut [u8], from: usize, op: usize, len: usize) {
    let out = dst.as_mut_ptr();
    let mut done = 0;
    while done < len {
        for _ in 0..2 {
            // SAFETY: op + done < op + len + WIDE, and from is before op. What is loaded was
            // stored in an earlier step if it is not before op, as from is WIDE bytes before it.
            unsafe {
                let bytes = out.add(from + done).cast::<[u8; WIDE]>().read();
                out.add(op + done).cast::<[u8; WIDE]>().write(bytes);
            }
            done += WIDE;
        }
    }
}

#[cfg(test)]
mod tests;
