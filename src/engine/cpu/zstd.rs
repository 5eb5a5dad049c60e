//! ZSTD (TIFF compression 50000): one Zstandard frame per tile.
//!
//! Holds one decompression context to be used again and again. Only the first frame counts and
//! bytes after it are ignored, as in libtiff; unlike there, the frame must end inside the tile
//! and its checksum, if it has one, must hold.

use super::codec::CodecError;
use ::zstd::zstd_safe::{self, DCtx};

/// A decoder of Zstandard frames, one per worker.
pub struct Zstd {
    inner: DCtx<'static>,
}

impl Zstd {
    /// Makes a decoder.
    pub fn new() -> Self {
        Self { inner: DCtx::create() }
    }

    /// Decodes `src` into the front of `dst` and returns how many bytes were made.
    ///
    /// Fewer bytes than `dst` holds is not an error here; more is. What `dst` holds after the
    /// bytes made, or after an error, is unspecified.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let end = zstd_safe::find_frame_compressed_size(src).map_err(reason)?;
        self.inner.decompress(dst, &src[..end]).map_err(reason)
    }
}

impl Default for Zstd {
    fn default() -> Self {
        Self::new()
    }
}

fn reason(code: usize) -> CodecError {
    /// `ZSTD_error_dstSize_tooSmall`, part of the library's stable interface.
    const TOO_SMALL: usize = 70;
    if code.wrapping_neg() == TOO_SMALL {
        CodecError::TooLong
    } else {
        CodecError::BadZstd(zstd_safe::get_error_name(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn round_trips_and_damaged_streams_stay_inside() {
        let first = 0x5eed_0003_u64;
        println!("seed {first:#x}");
        let mut s = first;
        let mut codec = Zstd::new();
        for case in 0..2000 {
            let spread = 1 + random(&mut s) % 200;
            let len = (random(&mut s) % 3000) as usize;
            let data: Vec<u8> = (0..len).map(|_| (random(&mut s) % spread) as u8).collect();
            let mut code = ::zstd::bulk::compress(&data, case % 12).unwrap();
            let mut out = vec![0xA5; len + 64];
            assert_eq!(codec.decode(&code, &mut out[32..32 + len]), Ok(len), "case {case}");
            assert_eq!(&out[32..32 + len], &data[..], "case {case}");
            let at = random(&mut s) as usize % code.len();
            code[at] ^= 1 << (random(&mut s) % 8);
            if let Ok(n) = codec.decode(&code, &mut out[32..32 + len]) {
                assert!(n <= len, "case {case}");
            }
            code.truncate(random(&mut s) as usize % code.len());
            let cut = codec.decode(&code, &mut out[32..32 + len]);
            assert!(cut.is_err() || cut.unwrap() <= len, "case {case}");
            assert!(out[..32].iter().chain(&out[32 + len..]).all(|&b| b == 0xA5), "case {case}");
        }
    }

    #[test]
    fn short_long_and_trailing() {
        let mut codec = Zstd::default();
        let one = ::zstd::bulk::compress(b"abcdefgh", 3).unwrap();
        assert_eq!(codec.decode(&one, &mut [0; 20]), Ok(8));
        assert_eq!(codec.decode(&one, &mut [0; 7]), Err(CodecError::TooLong));
        assert!(codec.decode(&one[..one.len() - 1], &mut [0; 8]).is_err());
        let frames = [&one[..], &one[..], b"trailing"].concat();
        assert_eq!(codec.decode(&frames, &mut [0; 16]), Ok(8), "the first frame only");
        assert!(codec.decode(b"", &mut [0; 8]).is_err());
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        std::io::Write::write_all(&mut encoder, b"abcdefgh").unwrap();
        let mut code = encoder.finish().unwrap();
        assert_eq!(Zstd::new().decode(&code, &mut [0; 8]), Ok(8));
        *code.last_mut().unwrap() ^= 1;
        assert!(matches!(Zstd::new().decode(&code, &mut [0; 8]), Err(CodecError::BadZstd(_))));
    }
}
