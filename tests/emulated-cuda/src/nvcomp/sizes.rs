//! What the real library answers about sizes and alignments, as functions.
//!
//! Fitted to the answers of the host-only calls of libnvcomp 5.3 and 6.0, which agree; the
//! tests hold what was measured. One guess is marked.

/// The codecs that are emulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Deflate,
    Zstd,
}

impl Codec {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Codec::Deflate => "deflate",
            Codec::Zstd => "zstd",
        }
    }
}

/// Which way a batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Compress,
    Decompress,
}

/// What buffers must be aligned to.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alignments {
    /// Each input chunk.
    pub input: usize,
    /// Each output chunk.
    pub output: usize,
    /// The temporary buffer.
    pub temp: usize,
}

pub(crate) fn alignments(codec: Codec, direction: Direction) -> Alignments {
    let (input, output, temp) = match (codec, direction) {
        (Codec::Deflate, Direction::Compress) => (1, 8, 8),
        (Codec::Deflate, Direction::Decompress) => (4, 1, 1),
        (Codec::Zstd, Direction::Compress) => (4, 1, 1),
        (Codec::Zstd, Direction::Decompress) => (1, 1, 8),
    };
    Alignments { input, output, temp }
}

/// The most bytes a chunk may compress to.
pub(crate) fn max_output(codec: Codec, chunk: u64) -> u64 {
    match codec {
        Codec::Deflate => {
            let bound = chunk * 9 / 4 + chunk / 256 * 3 + 32;
            // From somewhere above 12 MiB on the real figure is a little less.
            let less = if chunk > 12 << 20 { 8 } else { 0 };
            ((bound - less) & !7).max(64)
        }
        Codec::Zstd => {
            let header = match chunk {
                0..256 => 6,
                256..65792 => 8,
                _ => 10,
            };
            chunk + header + 3 * chunk.div_ceil(65536).max(1)
        }
    }
}

/// The temporary buffer that compressing needs, by Deflate algorithm.
pub(crate) fn compress_temp(codec: Codec, algorithm: i32, chunks: u64, chunk: u64) -> u64 {
    // One array for the whole batch each.
    let even = |factor: u64| (factor * chunks * chunk).next_multiple_of(8);
    // Indices into a chunk are twice as wide above 64 KiB.
    let large = chunk > 65536;
    let wide = if large { 2 } else { 1 };
    match (codec, algorithm) {
        // A guess: the real library answers this only where there is a GPU.
        (Codec::Zstd, _) => even(4) + chunks * 16384,
        (Codec::Deflate, 0) => 0,
        (Codec::Deflate, 1..=3) => {
            let tables = if algorithm == 1 { 32768 } else { 32768 + 294_912 };
            let odd = chunks % 2 * 8;
            2 * even(2 * wide) + even(1) + chunks * (wide * tables + 32) + odd
        }
        (Codec::Deflate, 4) => even(1) + 4 * even(2 * wide) + 2 * even(4 * wide) + chunks * 72,
        (Codec::Deflate, _) => even(2) + 4 * even(2 * wide) + 2 * even(4 * wide) + chunks * 72,
    }
}

/// Whether the library takes a batch of that size: its hardest algorithms sort all bytes at
/// once and count them in 31 bits.
pub(crate) fn supported(algorithm: i32, chunks: u64, chunk: u64) -> bool {
    algorithm < 4 || chunks.saturating_mul(chunk) < 1 << 31
}

/// The temporary buffer that decompressing needs.
pub(crate) fn decompress_temp(codec: Codec, chunks: u64, total: u64) -> u64 {
    match codec {
        Codec::Deflate => 0,
        Codec::Zstd => 3 * total + 3468 * (2 * chunks).max(total >> 16),
    }
}

#[cfg(test)]
mod tests {
    use super::{Codec, compress_temp, decompress_temp, max_output};

    #[test]
    fn output_bounds_are_the_measured_ones() {
        let deflate = [
            (1, 64),
            (100, 256),
            (255, 600),
            (256, 608),
            (257, 608),
            (1000, 2288),
            (4095, 9288),
            (4096, 9296),
            (10000, 22648),
            (16384, 37088),
            (65535, 148_248),
            (65536, 148_256),
            (100_000, 226_200),
            (262_144, 592_928),
            (1 << 20, 2_371_616),
            (16 << 20, 37_945_368),
        ];
        for (chunk, bound) in deflate {
            assert_eq!(max_output(Codec::Deflate, chunk), bound, "{chunk}");
        }
        let zstd = [
            (0, 9),
            (1, 10),
            (1000, 1011),
            (65536, 65547),
            (131_072, 131_088),
            (131_073, 131_092),
            (262_144, 262_166),
            (16 << 20, 16_777_994),
        ];
        for (chunk, bound) in zstd {
            assert_eq!(max_output(Codec::Zstd, chunk), bound, "{chunk}");
        }
    }

    #[test]
    fn temporary_sizes_are_the_measured_ones() {
        let compress = [
            ((1, 1), [0, 32832, 327_744, 327_744, 128, 128]),
            ((1, 100), [0, 33312, 328_224, 328_224, 1776, 1872]),
            ((1, 65536), [0, 360_488, 655_400, 655_400, 1_114_184, 1_179_720]),
            ((1, 65537), [0, 655_424, 1_245_248, 1_245_248, 2_162_816, 2_228_352]),
            ((10, 65536), [0, 3_604_800, 6_553_920, 6_553_920, 11_141_840, 11_797_200]),
            ((1024, 16384), [0, 117_473_280, 419_463_168, 419_463_168, 285_286_400, 302_063_616]),
            ((2, 131_073), [0, 2_490_456, 3_670_104, 3_670_104, 8_650_968, 8_913_112]),
            ((7, 1 << 20), [0, 66_519_272, 70_648_040, 70_648_040, 242_221_560, 249_561_592]),
        ];
        for ((chunks, chunk), expected) in compress {
            for (algorithm, bytes) in expected.into_iter().enumerate() {
                let answer = compress_temp(Codec::Deflate, algorithm as i32, chunks, chunk);
                assert_eq!(answer, bytes, "{chunks} × {chunk}, algorithm {algorithm}");
            }
        }
        let decompress = [
            (0, 0, 0),
            (1, 1, 6939),
            (1, 131_073, 400_155),
            (2, 600_000, 1_831_212),
            (10, 655_360, 2_035_440),
            (10, 1 << 30, 3_278_045_184),
            (1024, 1 << 28, 819_511_296),
            (70000, 7_000_000, 506_520_000),
        ];
        for (chunks, total, bytes) in decompress {
            assert_eq!(decompress_temp(Codec::Zstd, chunks, total), bytes);
        }
    }
}
