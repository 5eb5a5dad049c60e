//! Deflate (TIFF compressions 8 and 32946): zlib streams, by libdeflate.
//!
//! Holds one decompressor to be used again and again. The Adler-32 checksum is always verified;
//! bytes after the stream are ignored, as libtiff ignores them.

use super::codec::CodecError;
use libdeflater::{DecompressionError, Decompressor};

/// A decoder of zlib streams, one per worker.
pub struct Deflate {
    inner: Decompressor,
}

impl Deflate {
    /// Makes a decoder.
    pub fn new() -> Self {
        Self { inner: Decompressor::new() }
    }

    /// Decodes `src` into the front of `dst` and returns how many bytes were made.
    ///
    /// Fewer bytes than `dst` holds is not an error here; more is. What `dst` holds after the
    /// bytes made, or after an error, is unspecified.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        self.inner.zlib_decompress(src, dst).map_err(|e| match e {
            DecompressionError::BadData => CodecError::BadDeflate,
            DecompressionError::InsufficientSpace => CodecError::TooLong,
        })
    }
}

impl Default for Deflate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;

    fn encode(data: &[u8], level: u32) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn round_trips_and_damaged_streams_stay_inside() {
        let first = 0x5eed_0002_u64;
        println!("seed {first:#x}");
        let mut s = first;
        let mut codec = Deflate::new();
        for case in 0..2000 {
            let spread = 1 + random(&mut s) % 200;
            let len = (random(&mut s) % 3000) as usize;
            let data: Vec<u8> = (0..len).map(|_| (random(&mut s) % spread) as u8).collect();
            let mut code = encode(&data, (case % 10) as u32);
            let mut out = vec![0xA5; len + 64];
            assert_eq!(codec.decode(&code, &mut out[32..32 + len]), Ok(len), "case {case}");
            assert_eq!(&out[32..32 + len], &data[..], "case {case}");
            let at = random(&mut s) as usize % code.len();
            code[at] ^= 1 << (random(&mut s) % 8);
            let damaged = codec.decode(&code, &mut out[32..32 + len]);
            assert!(damaged.is_err() || out[32..32 + len] == data[..], "case {case}");
            code.truncate(random(&mut s) as usize % code.len());
            assert!(codec.decode(&code, &mut out[32..32 + len]).is_err(), "case {case}");
            assert!(out[..32].iter().chain(&out[32 + len..]).all(|&b| b == 0xA5), "case {case}");
        }
    }

    #[test]
    fn short_long_and_trailing() {
        let mut codec = Deflate::default();
        let mut code = encode(b"abcdefgh", 6);
        assert_eq!(codec.decode(&code, &mut [0; 20]), Ok(8));
        assert_eq!(codec.decode(&code, &mut [0; 7]), Err(CodecError::TooLong));
        code.extend(b"trailing");
        assert_eq!(codec.decode(&code, &mut [0; 8]), Ok(8));
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let mut code = encode(b"abcdefgh", 6);
        *code.last_mut().unwrap() ^= 1;
        assert_eq!(Deflate::new().decode(&code, &mut [0; 8]), Err(CodecError::BadDeflate));
    }
}
