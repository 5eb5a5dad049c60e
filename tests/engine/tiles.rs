//! Tiles made for tests: random samples, and how a writer would store them.

use std::io::Write;

use gpugtiff::engine::{Codec, Predictor, Sample, TileSpec};

/// Small, repeatable random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

pub(crate) const CODECS: [Codec; 5] =
    [Codec::None, Codec::Lzw, Codec::Deflate, Codec::PackBits, Codec::Zstd];

/// Every combination that a TIFF can have, apart from sizes.
pub(crate) fn kinds() -> Vec<TileSpec> {
    let mut kinds = Vec::new();
    let whole = [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (8, 4), (16, 8)];
    for codec in CODECS {
        for samples in [1, 2, 3, 4, 5] {
            for swap in [false, true] {
                for (bytes, unit) in whole {
                    for predictor in
                        [Predictor::None, Predictor::Horizontal, Predictor::FloatingPoint]
                    {
                        let fits = match predictor {
                            Predictor::None => true,
                            Predictor::Horizontal => bytes <= 8,
                            Predictor::FloatingPoint => bytes == unit && (2..=8).contains(&bytes),
                        };
                        let unpredicted = matches!(codec, Codec::None | Codec::PackBits);
                        if fits && !(unpredicted && predictor != Predictor::None) {
                            let sample = Sample::Whole { bytes, unit };
                            kinds.push(spec(codec, predictor, sample, samples, swap));
                        }
                    }
                }
                let bit = Sample::Bit { on: 255 };
                kinds.push(spec(codec, Predictor::None, bit, samples, swap));
            }
        }
    }
    kinds
}

fn spec(
    codec: Codec,
    predictor: Predictor,
    sample: Sample,
    samples: usize,
    swap: bool,
) -> TileSpec {
    TileSpec { codec, predictor, sample, samples, width: 0, height: 0, swap }
}

/// Native pixels: smooth, noisy or constant.
pub(crate) fn pixels(spec: &TileSpec, rows: usize, random: &mut Random) -> Vec<u8> {
    let len = spec.row_bytes() * rows;
    let flavour = random.below(4);
    let mut value = random.next();
    let bytes = (0..len).map(|i| match flavour {
        0 => random.next() as u8,
        1 => value as u8,
        2 => (i / 7) as u8,
        _ => {
            value = value.wrapping_add(random.next() % 3);
            value as u8
        }
    });
    match spec.sample {
        Sample::Whole { .. } => bytes.collect(),
        Sample::Bit { on } => bytes.map(|b| if b & 1 == 0 { 0 } else { on }).collect(),
    }
}

/// The bytes a writer would store for these pixels.
pub(crate) fn store(spec: &TileSpec, pixels: &[u8]) -> Vec<u8> {
    let mut rows = Vec::new();
    for row in pixels.chunks_exact(spec.row_bytes().max(1)) {
        rows.extend(predict(spec, row));
    }
    pack(spec.codec, &rows)
}

fn predict(spec: &TileSpec, row: &[u8]) -> Vec<u8> {
    let (bytes, unit) = match spec.sample {
        Sample::Whole { bytes, unit } => (usize::from(bytes), usize::from(unit)),
        Sample::Bit { .. } => {
            let bit = |(i, &b): (usize, &u8)| if b == 0 { 0 } else { 0x80 >> i };
            return row.chunks(8).map(|c| c.iter().enumerate().map(bit).sum()).collect();
        }
    };
    let mut row = row.to_vec();
    match spec.predictor {
        Predictor::None => {
            if spec.swap {
                row.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
            }
        }
        Predictor::Horizontal => {
            for i in (spec.samples..row.len() / bytes).rev() {
                let left = word(&row[(i - spec.samples) * bytes..][..bytes]);
                let difference = word(&row[i * bytes..][..bytes]).wrapping_sub(left);
                row[i * bytes..][..bytes].copy_from_slice(&difference.to_le_bytes()[..bytes]);
            }
            if spec.swap {
                row.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
            }
        }
        Predictor::FloatingPoint => {
            let count = row.len() / bytes;
            let native = row.clone();
            for i in 0..count {
                for b in 0..bytes {
                    row[(bytes - 1 - b) * count + i] = native[i * bytes + b];
                }
            }
            for i in (spec.samples..row.len()).rev() {
                row[i] = row[i].wrapping_sub(row[i - spec.samples]);
            }
        }
    }
    row
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

fn pack(codec: Codec, data: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => data.to_vec(),
        Codec::Deflate => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Zstd => zstd::stream::encode_all(data, 3).unwrap(),
        Codec::Lzw => weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8)
            .encode(data)
            .unwrap(),
        Codec::PackBits => packbits(data),
        Codec::Jpeg2000(_) | Codec::Gtiff => {
            panic!("tiles of JPEG 2000 are not made, but in tests/jpeg2000")
        }
    }
}

fn packbits(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take(128).take_while(|&&b| b == first).count();
        if run > 2 {
            out.extend([(1 - run as i32) as u8, first]);
            rest = &rest[run..];
        } else {
            let len = rest.len().min(1 + out.len() % 100);
            out.push(len as u8 - 1);
            out.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
    }
    out
}
