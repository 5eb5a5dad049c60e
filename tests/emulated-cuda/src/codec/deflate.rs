//! Raw Deflate: zlib-rs decodes; the encoder here mixes stored, fixed and dynamic blocks of
//! odd sizes, adds empty ones, leaves ones in the last bits, and now and then swells a chunk
//! to nearly the most the library promises.

use flate2::{Decompress, FlushDecompress, Status};

use super::bits::Bits;
use super::huffman::Code;
use super::matches::{Token, effort, tokens};
use crate::random::{Random, digest};

/// Decodes a raw stream of at most `most` bytes; none where it is corrupt or longer.
pub(crate) fn decode(input: &[u8], most: usize) -> Option<Vec<u8>> {
    // One byte more, so that a stream that is too long shows.
    let mut output = vec![0; most + 1];
    let mut decoder = Decompress::new(false);
    let status = decoder.decompress(input, &mut output, FlushDecompress::Finish).ok()?;
    let length = decoder.total_out() as usize;
    if status != Status::StreamEnd || length > most {
        return None;
    }
    output.truncate(length);
    Some(output)
}

/// What decides the shape of a stream besides the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) algorithm: i32,
    pub(crate) seed: u64,
    /// The stream may have so many bytes.
    pub(crate) bound: usize,
    /// How many of a thousand chunks swell to nearly the bound.
    pub(crate) expand: u64,
}

/// Encodes to a raw stream of at most `shape.bound` bytes.
pub(crate) fn encode(data: &[u8], shape: Shape) -> Vec<u8> {
    let mut random = Random::new(shape.seed ^ digest(data));
    let swell = random.below(1000) < shape.expand;
    let tokens = tokens(data, effort(shape.algorithm));
    let mut bits = Bits::default();
    let mut rest = tokens.as_slice();
    let mut at = 0;
    while !rest.is_empty() {
        let count = (200 + random.below(24_000) as usize).min(rest.len());
        let (block, after) = rest.split_at(count);
        let bytes: usize = block.iter().map(|token| token.bytes()).sum();
        let raw = &data[at..at + bytes];
        match random.below(16) {
            0 => stored(&mut bits, raw, random.below(2) == 0),
            1 | 2 => fixed(&mut bits, block),
            3 => {
                stored(&mut bits, &[], false);
                dynamic(&mut bits, block);
            }
            _ => dynamic(&mut bits, block),
        }
        at += bytes;
        rest = after;
    }
    // The last bits below take 11 at most.
    let room = shape.bound.saturating_sub(8);
    if bits.len() > room {
        bits = Bits::default();
        stored(&mut bits, data, false);
    }
    while swell && bits.len() + 5 < room {
        stored(&mut bits, &[], random.below(2) == 0);
    }
    // The last block is an empty fixed one, so that the stream ends anywhere in a byte.
    bits.put(0b011, 3);
    bits.put(0, 7);
    bits.into_bytes(random.below(2) == 0)
}

/// Stored blocks, an empty one where there are no bytes; `ones` are the bits that don't count.
fn stored(bits: &mut Bits, bytes: &[u8], ones: bool) {
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at(rest.len().min(65535));
        bits.put(0, 3);
        bits.align(ones);
        let length = block.len() as u16;
        bits.extend(&length.to_le_bytes());
        bits.extend(&(!length).to_le_bytes());
        bits.extend(block);
        rest = after;
        if rest.is_empty() {
            return;
        }
    }
}

const LENGTH_BASES: [u16; 29] = [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
    163, 195, 227, 258,
];

const DISTANCE_BASES: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
    2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577,
];

/// The symbol of a length, its extra bits and their number.
fn length_symbol(length: u16) -> (usize, u32, u32) {
    let index = LENGTH_BASES.partition_point(|base| *base <= length) - 1;
    let extra = if index < 8 || index == 28 { 0 } else { index as u32 / 4 - 1 };
    (257 + index, u32::from(length - LENGTH_BASES[index]), extra)
}

/// The symbol of a distance, its extra bits and their number.
fn distance_symbol(distance: u16) -> (usize, u32, u32) {
    let index = DISTANCE_BASES.partition_point(|base| *base <= distance) - 1;
    let extra = (index as u32 / 2).saturating_sub(1);
    (index, u32::from(distance - DISTANCE_BASES[index]), extra)
}

/// The tokens and the end of the block, in these codes.
fn body(bits: &mut Bits, block: &[Token], literals: &Code, distances: &Code) {
    let mut symbol = |code: &Code, symbol: usize, extra: u32, count: u32| {
        let (value, length) = code.of(symbol);
        bits.put(value | extra << length, length + count);
    };
    for token in block {
        match *token {
            Token::Literal(byte) => symbol(literals, usize::from(byte), 0, 0),
            Token::Copy { length, distance } => {
                let (index, extra, count) = length_symbol(length);
                symbol(literals, index, extra, count);
                let (index, extra, count) = distance_symbol(distance);
                symbol(distances, index, extra, count);
            }
        }
    }
    symbol(literals, 256, 0, 0);
}

fn fixed(bits: &mut Bits, block: &[Token]) {
    let lengths = (0..288).map(|symbol| match symbol {
        0..144 => 8,
        144..256 => 9,
        256..280 => 7,
        _ => 8,
    });
    bits.put(0b010, 3);
    body(bits, block, &Code::from_lengths(lengths.collect()), &Code::from_lengths(vec![5; 30]));
}

fn dynamic(bits: &mut Bits, block: &[Token]) {
    let mut literals = vec![0; 286];
    let mut distances = vec![0; 30];
    literals[256] = 1;
    for token in block {
        match *token {
            Token::Literal(byte) => literals[usize::from(byte)] += 1,
            Token::Copy { length, distance } => {
                literals[length_symbol(length).0] += 1;
                distances[distance_symbol(distance).0] += 1;
            }
        }
    }
    let literals = Code::new(&literals, 15);
    let distances = Code::new(&distances, 15);
    bits.put(0b100, 3);
    code_lengths(bits, &literals.lengths, &distances.lengths);
    body(bits, block, &literals, &distances);
}

/// The lengths of both codes, with runs cut short and in a code of their own.
fn code_lengths(bits: &mut Bits, literals: &[u8], distances: &[u8]) {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let all: Vec<u8> = literals.iter().chain(distances).copied().collect();
    let runs = runs(&all);
    let mut frequencies = vec![0; 19];
    for (symbol, ..) in &runs {
        frequencies[*symbol] += 1;
    }
    let code = Code::new(&frequencies, 7);
    bits.put(literals.len() as u32 - 257, 5);
    bits.put(distances.len() as u32 - 1, 5);
    bits.put(19 - 4, 4);
    for symbol in ORDER {
        bits.put(u32::from(code.lengths[symbol]), 3);
    }
    for (symbol, extra, count) in runs {
        let (value, length) = code.of(symbol);
        bits.put(value, length);
        bits.put(extra, count);
    }
}

/// Code lengths as symbols with extra bits: repeats of zeros and of the length before.
fn runs(lengths: &[u8]) -> Vec<(usize, u32, u32)> {
    let mut runs = Vec::new();
    let mut rest = lengths;
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|length| *length == first).count();
        let taken = match (*first, same) {
            (0, 11..) => {
                let taken = same.min(138);
                runs.push((18, taken as u32 - 11, 7));
                taken
            }
            (0, 3..) => {
                runs.push((17, same as u32 - 3, 3));
                same
            }
            (length, 4..) => {
                runs.push((usize::from(length), 0, 0));
                let repeats = (same - 1).min(6);
                runs.push((16, repeats as u32 - 3, 2));
                repeats + 1
            }
            (length, _) => {
                runs.push((usize::from(length), 0, 0));
                1
            }
        };
        rest = &rest[taken..];
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{Shape, decode, distance_symbol, encode, length_symbol};
    use crate::nvcomp::sizes::{Codec, max_output};
    use crate::random::Random;

    #[test]
    fn symbols_at_the_edges() {
        assert_eq!(length_symbol(3), (257, 0, 0));
        assert_eq!(length_symbol(11), (265, 0, 1));
        assert_eq!(length_symbol(257), (284, 30, 5));
        assert_eq!(length_symbol(258), (285, 0, 0));
        assert_eq!(distance_symbol(1), (0, 0, 0));
        assert_eq!(distance_symbol(5), (4, 0, 1));
        assert_eq!(distance_symbol(32767), (29, 8190, 13));
    }

    fn samples() -> Vec<Vec<u8>> {
        let mut random = Random::new(5);
        let mut noise = vec![0; 300_000];
        random.fill(&mut noise);
        let gradient = (0..200_000u32).map(|n| (n / 300 + n % 7) as u8).collect();
        let sparse = (0..100_000).map(|_| u8::from(random.below(50) == 0)).collect();
        vec![vec![], vec![7], vec![0; 1 << 20], noise, gradient, sparse]
    }

    #[test]
    fn streams_decode_to_what_went_in() {
        for data in samples() {
            for algorithm in 0..6 {
                for (seed, expand) in [(0, 0), (1, 0), (2, 1000)] {
                    let bound = max_output(Codec::Deflate, data.len() as u64) as usize;
                    let shape = Shape { algorithm, seed, bound, expand };
                    let stream = encode(&data, shape);
                    assert!(stream.len() <= bound, "{} > {bound}", stream.len());
                    assert!(expand == 0 || stream.len() + 16 > bound);
                    assert_eq!(decode(&stream, data.len()).as_deref(), Some(data.as_slice()));
                    assert_eq!(decode(&stream[..stream.len() / 2], data.len()), None);
                    if !data.is_empty() {
                        assert_eq!(decode(&stream, data.len() - 1), None);
                    }
                }
            }
        }
    }

    #[test]
    fn harder_algorithms_compress_better() {
        let data = &samples()[4];
        let size = |algorithm| {
            let bound = max_output(Codec::Deflate, data.len() as u64) as usize;
            encode(data, Shape { algorithm, seed: 3, bound, expand: 0 }).len()
        };
        assert!(size(0) > size(1) && size(1) >= size(2) && size(2) >= size(5));
    }
}
