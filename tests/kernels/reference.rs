//! Predictors, byte order, bits and Adler-32 as the TIFF specification (and its Technical Note 3,
//! and RFC 1950) word them: one sample after the other, numbers as numbers.

/// What is stored in a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Bytes of a sample, and of what is swapped as one number.
    pub(crate) bytes: usize,
    pub(crate) unit: usize,
    pub(crate) predictor: u32,
    /// The file is big-endian; this machine, like every GPU, is little-endian.
    pub(crate) big: bool,
    /// Samples of one bit and the byte for a set one, else 0.
    pub(crate) bit: u8,
}

impl Kind {
    /// Bytes of a stored row.
    pub(crate) fn row(self, width: usize, samples: usize) -> usize {
        match self.bit {
            0 => width * samples * self.bytes,
            _ => (width * samples).div_ceil(8),
        }
    }
}

fn number(bytes: &[u8], big: bool) -> u128 {
    let digits = |v: u128, byte: &u8| v << 8 | u128::from(*byte);
    if big { bytes.iter().fold(0, digits) } else { bytes.iter().rev().fold(0, digits) }
}

fn put_number(to: &mut [u8], v: u128, big: bool) {
    let count = to.len();
    for (i, byte) in to.iter_mut().enumerate() {
        let place = if big { count - 1 - i } else { i };
        *byte = (v >> (8 * place)) as u8;
    }
}

/// A stored row becomes samples in native order.
pub(crate) fn undo(kind: Kind, samples: usize, width: usize, row: &[u8]) -> Vec<u8> {
    let count = width * samples;
    if kind.bit != 0 {
        let set = |i: usize| row[i / 8] & (0x80 >> (i % 8)) != 0;
        return (0..count).map(|i| if set(i) { kind.bit } else { 0 }).collect();
    }
    let mut out = vec![0; count * kind.bytes];
    match kind.predictor {
        1 => {
            for (to, from) in out.chunks_mut(kind.unit).zip(row.chunks(kind.unit)) {
                put_number(to, number(from, kind.big), false);
            }
        }
        2 => {
            let mut values = vec![0_u128; count];
            for (i, from) in row.chunks(kind.bytes).enumerate() {
                let before = if i < samples { 0 } else { values[i - samples] };
                values[i] = number(from, kind.big).wrapping_add(before);
            }
            for (to, v) in out.chunks_mut(kind.bytes).zip(values) {
                put_number(to, v, false);
            }
        }
        _ => {
            let mut bytes = row.to_vec();
            for i in samples..bytes.len() {
                bytes[i] = bytes[i].wrapping_add(bytes[i - samples]);
            }
            for (i, to) in out.chunks_mut(kind.bytes).enumerate() {
                let sample: Vec<u8> = (0..kind.bytes).map(|p| bytes[p * count + i]).collect();
                put_number(to, number(&sample, true), false);
            }
        }
    }
    out
}

/// Samples in native order become a stored row.
pub(crate) fn apply(kind: Kind, samples: usize, pixels: &[u8]) -> Vec<u8> {
    if kind.bit != 0 {
        let bit = |set: &u8, place: usize| if *set != 0 { 0x80_u8 >> place } else { 0 };
        let byte = |eight: &[u8]| eight.iter().zip(0..).map(|(set, i)| bit(set, i)).sum();
        return pixels.chunks(8).map(byte).collect();
    }
    let count = pixels.len() / kind.bytes;
    let mut out = vec![0; pixels.len()];
    match kind.predictor {
        1 => {
            for (to, from) in out.chunks_mut(kind.unit).zip(pixels.chunks(kind.unit)) {
                put_number(to, number(from, false), kind.big);
            }
        }
        2 => {
            let value = |i: usize| number(&pixels[i * kind.bytes..][..kind.bytes], false);
            for (i, to) in out.chunks_mut(kind.bytes).enumerate() {
                let before = if i < samples { 0 } else { value(i - samples) };
                put_number(to, value(i).wrapping_sub(before), kind.big);
            }
        }
        _ => {
            for (i, from) in pixels.chunks(kind.bytes).enumerate() {
                let mut sample = vec![0; kind.bytes];
                put_number(&mut sample, number(from, false), true);
                sample.iter().enumerate().for_each(|(p, byte)| out[p * count + i] = *byte);
            }
            for i in (samples..out.len()).rev() {
                out[i] = out[i].wrapping_sub(out[i - samples]);
            }
        }
    }
    out
}

/// The checksum at the end of a zlib stream.
pub(crate) fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1, 0);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

#[test]
fn the_references_are_inverse_and_known() {
    let kind = |bytes, predictor, big| Kind { bytes, unit: bytes, predictor, big, bit: 0 };
    assert_eq!(undo(kind(2, 2, true), 1, 3, &[0, 7, 1, 37, 255, 255]), [7, 0, 44, 1, 43, 1]);
    let floats = [1, 0x10, 0xF1, 0x20, 0xE1, 0x30, 0xD1, 0x40];
    assert_eq!(undo(kind(4, 3, false), 1, 2, &floats), [4, 3, 2, 1, 0x44, 0x33, 0x22, 0x11]);
    assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    let mut random = crate::device::Random::new(0x5eed_0040);
    for kind in crate::cases::kinds() {
        let (samples, width) = (1 + random.below(5), 1 + random.below(9));
        let pixels: Vec<u8> = match kind.bit {
            0 => random.bytes(width * samples * kind.bytes),
            on => (0..width * samples).map(|_| *random.pick(&[0, on])).collect(),
        };
        let stored = apply(kind, samples, &pixels);
        assert_eq!(stored.len(), kind.row(width, samples));
        assert_eq!(undo(kind, samples, width, &stored), pixels, "{kind:?}");
    }
}
