//! Packed tiles: what encoders make, and what no encoder would.

use gpugtiff::engine::cpu::lzw::{Encoder, bound};
use gpugtiff::engine::cpu::packbits;

use crate::cases;
use crate::device::Random;
use crate::reference;

/// A stream and the most that may come of it.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) packed: Vec<u8>,
    pub(crate) room: usize,
}

/// Bytes of a tile: samples of every size, with and without a predictor, land cover, noise.
pub(crate) fn tile(random: &mut Random, most: usize) -> Vec<u8> {
    let size = 1 + random.below(most);
    match random.below(4) {
        0 => predicted(random, size),
        1 => land_cover(random, size),
        2 => vec![random.next() as u8; size],
        _ => {
            let colours = 1 + random.below(256);
            (0..size).map(|_| random.below(colours) as u8).collect()
        }
    }
}

/// Slopes with some noise, as a writer stores them.
fn predicted(random: &mut Random, size: usize) -> Vec<u8> {
    let kinds: Vec<_> = cases::kinds().filter(|kind| kind.bit == 0).collect();
    let (kind, samples) = (*random.pick(&kinds), 1 + random.below(4));
    let width = 1 + random.below(64);
    let (noise, mut value) = (1 + random.below(8) as u64, random.next());
    let mut stored = Vec::new();
    while stored.len() < size {
        let mut row = Vec::new();
        for _ in 0..width * samples {
            value = value.wrapping_add(random.next() % noise);
            row.extend_from_slice(&u128::from(value).to_le_bytes()[..kind.bytes]);
        }
        stored.extend(reference::apply(kind, samples, &row));
    }
    stored.truncate(size);
    stored
}

/// A few classes in runs, some of them long.
pub(crate) fn land_cover(random: &mut Random, size: usize) -> Vec<u8> {
    let (classes, longest) = (2 + random.below(6), 2 << random.below(9));
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let (class, run) = (random.below(classes) as u8, 1 + random.below(longest));
        bytes.extend(std::iter::repeat_n(class, run));
    }
    bytes.truncate(size);
    bytes
}

/// As libtiff packs it: our encoder makes the same bytes.
pub(crate) fn lzw(data: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; bound(data.len())];
    let size = Encoder::new().encode(data, &mut packed).unwrap();
    packed.truncate(size);
    packed
}

/// Rows packed for themselves.
pub(crate) fn packed_bits(data: &[u8], row: usize) -> Vec<u8> {
    let mut packed = vec![0; packbits::bound(row, data.len().div_ceil(row))];
    let size = packbits::encode(data, row, &mut packed).unwrap();
    packed.truncate(size);
    packed
}

/// Codes after a first Clear, each of the width that a decoder expects there.
pub(crate) fn from_codes(codes: &[u32]) -> Vec<u8> {
    let (mut bits, mut count, mut packed) = (0_u64, 0, Vec::new());
    let mut next = 0;
    for &code in [256].iter().chain(codes) {
        let width = match next {
            ..511 => 9,
            511..1023 => 10,
            1023..2047 => 11,
            _ => 12,
        };
        bits = bits << width | u64::from(code & ((1 << width) - 1));
        count += width;
        while count >= 8 {
            count -= 8;
            packed.push((bits >> count) as u8);
        }
        next = match (code, next) {
            (256, _) => 257,
            // The first code after a Clear completes no entry.
            (_, 257) => 258,
            _ => next + 1,
        };
    }
    if count > 0 {
        packed.push((bits << (8 - count)) as u8);
    }
    packed
}

/// Codes that may be there, but for one in so many; Clears everywhere, or nearly nowhere.
pub(crate) fn random_codes(random: &mut Random, count: usize) -> Vec<u32> {
    let clear = *random.pick(&[2, 5, 40, 1000, 100_000]);
    let wrong = *random.pick(&[10, 300, 100_000, 100_000]);
    let newest = random.below(3) == 0;
    let mut made = 0;
    let code = |_| {
        if random.below(clear) == 0 {
            made = 0;
            return 256;
        }
        let most = if made == 0 { 256 } else { 257 + made.min(3838) };
        made += 1;
        if random.below(wrong) == 0 {
            let any = random.below(4096) as u32;
            return *random.pick(&[257, most as u32 + 1, 4095, any]);
        }
        match random.below(4) {
            0 | 1 if newest => most as u32 - u32::from(made == 1),
            0 => random.below(256) as u32,
            _ => {
                let code = random.below(most + usize::from(made > 1));
                if matches!(code, 256 | 257) { 0 } else { code as u32 }
            }
        }
    };
    (0..count).map(code).collect()
}

/// A stream that something happened to.
pub(crate) fn damage(random: &mut Random, mut packed: Vec<u8>) -> Vec<u8> {
    match random.below(4) {
        0 => packed.truncate(random.below(packed.len() + 1)),
        1 if !packed.is_empty() => {
            let at = random.below(packed.len());
            packed[at] ^= 1 << random.below(8);
        }
        2 => packed.extend(random.bytes(9)),
        _ => packed = random.bytes(packed.len()),
    }
    packed
}
