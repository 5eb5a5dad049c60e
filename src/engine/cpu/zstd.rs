//! ZSTD (TIFF compression 50000): one Zstandard frame per tile.
//!
//! Holds contexts to be used again and again. When reading, only the first frame counts and
//! bytes after it are ignored, as in libtiff; unlike there, the frame must end inside the tile
//! and its checksum, if it has one, must hold.

use super::codec::CodecError;
use ::zstd::zstd_safe::{self, CCtx, CParameter, DCtx, Strategy};

/// A decoder of Zstandard frames, one per worker.
pub struct Zstd {
    inner: DCtx<'static>,
}

impl Zstd {
    /// Makes a decoder, if there is memory for it.
    pub fn new() -> Result<Self, CodecError> {
        DCtx::try_create().map(|inner| Self { inner }).ok_or(CodecError::NoMemory)
    }

    /// Decodes `src` into the front of `dst` and returns how many bytes were made.
    ///
    /// Fewer bytes than `dst` holds is not an error here; more is. What `dst` holds after the
    /// bytes made, or after an error, is unspecified.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let end = zstd_safe::find_frame_compressed_size(src).map_err(reason)?;
        if window_of_stream(src).is_some_and(|window| window > MOST_WINDOW) {
            return Err(CodecError::BadZstd("the window is larger than libtiff takes"));
        }
        self.inner.decompress(dst, &src[..end]).map_err(reason)
    }
}

/// `ZSTD_WINDOWLOG_LIMIT_DEFAULT`: a stream whose window is larger is refused by libtiff, which decodes
/// piece by piece unless the frame tells its size.
const MOST_WINDOW: u64 = (1 << 27) + 1;

/// Bytes of the window of a frame that does not tell its size (RFC 8878, section 3.1.1.1).
fn window_of_stream(frame: &[u8]) -> Option<u64> {
    let (descriptor, window) = (*frame.get(4)?, *frame.get(5)?);
    let (has_size, single_segment) = (descriptor >> 6 != 0, descriptor & 0x20 != 0);
    let base = 1_u64 << (10 + (window >> 3));
    (!has_size && !single_segment).then_some(base + base / 8 * u64::from(window & 7))
}

/// `ZSTD_error_memory_allocation`, part of the library's stable interface.
const NO_MEMORY: usize = 64;

fn reason(code: usize) -> CodecError {
    /// `ZSTD_error_dstSize_tooSmall`, part of the library's stable interface.
    const TOO_SMALL: usize = 70;
    if code.wrapping_neg() == TOO_SMALL {
        CodecError::TooLong
    } else if code.wrapping_neg() == NO_MEMORY {
        CodecError::NoMemory
    } else {
        CodecError::BadZstd(zstd_safe::get_error_name(code))
    }
}

/// An encoder of Zstandard frames, one per worker. Frames have their content's size in them and
/// no checksum.
#[derive(Default)]
pub struct Encoder {
    /// The context, set up for a level.
    inner: Option<(i32, CCtx<'static>)>,
}

/// The most bytes that `Encoder::encode` makes of `len` bytes.
pub fn bound(len: usize) -> usize {
    // The library says 0 where it would not try.
    zstd_safe::compress_bound(len).max(len)
}

impl Encoder {
    /// The context of `level`.
    fn at(&mut self, level: i32) -> Result<&mut CCtx<'static>, CodecError> {
        if self.inner.as_ref().is_none_or(|(made, _)| *made != level) {
            let mut inner = match self.inner.take() {
                Some((_, inner)) => inner,
                None => CCtx::try_create().ok_or(CodecError::NoMemory)?,
            };
            set_up(&mut inner, level).map_err(refusal)?;
            self.inner = Some((level, inner));
        }
        self.inner.as_mut().map(|(_, inner)| inner).ok_or(CodecError::NoMemory)
    }

    /// Encodes `src` into the front of `dst` and returns how many bytes were made. `level` is 1
    /// to 22; other levels are taken for the nearest of these.
    pub fn encode(&mut self, level: i32, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let made = self.at(level.clamp(1, 22))?.compress2(dst, src);
        if made.is_err() {
            // It would wait for the rest of this frame.
            self.inner = None;
        }
        made.map_err(refusal)
    }

    /// Bytes that are kept for the next tile.
    pub fn kept(&self) -> usize {
        self.inner.as_ref().map_or(0, |(_, inner)| inner.sizeof())
    }
}

/// Level by level, what ZSTD chooses for data of unknown size: the logarithms of window, chain
/// table, hash table and number of searches, the shortest match, the target length, and how to
/// search. For data of known size below 256 KiB, as most tiles are, it would search longer.
#[rustfmt::skip]
const LEVELS: [(u32, u32, u32, u32, u32, u32, Strategy); 22] = {
    use Strategy::*;
    [
        (19, 13, 14, 1, 7, 0, ZSTD_fast),
        (20, 15, 16, 1, 6, 0, ZSTD_fast),
        (21, 16, 17, 1, 5, 0, ZSTD_dfast),
        (21, 18, 18, 1, 5, 0, ZSTD_dfast),
        (21, 18, 19, 3, 5, 2, ZSTD_greedy),
        (21, 18, 19, 3, 5, 4, ZSTD_lazy),
        (21, 19, 20, 4, 5, 8, ZSTD_lazy),
        (21, 19, 20, 4, 5, 16, ZSTD_lazy2),
        (22, 20, 21, 4, 5, 16, ZSTD_lazy2),
        (22, 21, 22, 5, 5, 16, ZSTD_lazy2),
        (22, 21, 22, 6, 5, 16, ZSTD_lazy2),
        (22, 22, 23, 6, 5, 32, ZSTD_lazy2),
        (22, 22, 22, 4, 5, 32, ZSTD_btlazy2),
        (22, 22, 23, 5, 5, 32, ZSTD_btlazy2),
        (22, 23, 23, 6, 5, 32, ZSTD_btlazy2),
        (22, 22, 22, 5, 5, 48, ZSTD_btopt),
        (23, 23, 22, 5, 4, 64, ZSTD_btopt),
        (23, 23, 22, 6, 3, 64, ZSTD_btultra),
        (23, 24, 22, 7, 3, 256, ZSTD_btultra2),
        (25, 25, 23, 7, 3, 256, ZSTD_btultra2),
        (26, 26, 24, 7, 3, 512, ZSTD_btultra2),
        (27, 27, 25, 9, 3, 999, ZSTD_btultra2),
    ]
};

/// Chooses the parameters of `level` as for data of unknown size, which is how libtiff encodes.
/// The library then fits tables and window to the size that it does know.
fn set_up(inner: &mut CCtx<'static>, level: i32) -> Result<(), usize> {
    let (window, chain, hash, search, shortest, target, strategy) =
        LEVELS[(level - 1) as usize % LEVELS.len()];
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(window),
        CParameter::ChainLog(chain),
        CParameter::HashLog(hash),
        CParameter::SearchLog(search),
        CParameter::MinMatch(shortest),
        CParameter::TargetLength(target),
        CParameter::Strategy(strategy),
    ] {
        inner.set_parameter(parameter)?;
    }
    Ok(())
}

fn refusal(code: usize) -> CodecError {
    match reason(code) {
        CodecError::TooLong => CodecError::NoRoom,
        CodecError::BadZstd(reason) => CodecError::NotPacked(reason),
        other => other,
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
        let mut codec = Zstd::new().unwrap();
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
        let mut codec = Zstd::new().unwrap();
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
        assert_eq!(Zstd::new().unwrap().decode(&code, &mut [0; 8]), Ok(8));
        *code.last_mut().unwrap() ^= 1;
        assert!(matches!(
            Zstd::new().unwrap().decode(&code, &mut [0; 8]),
            Err(CodecError::BadZstd(_))
        ));
    }

    #[test]
    fn every_level_encodes_within_the_bound() {
        let first = 0x5eed_0023_u64;
        println!("seed {first:#x}");
        let mut s = first;
        let (mut encoder, mut decoder) = (Encoder::default(), Zstd::new().unwrap());
        for case in 0..600 {
            let level = if case % 3 == 0 { case / 3 % 25 } else { 9 };
            let spread = 1 + random(&mut s) % 256;
            let len = [0, 1, 2, (random(&mut s) % 30_000) as usize][case as usize % 4];
            let data: Vec<u8> = (0..len).map(|_| (random(&mut s) % spread) as u8).collect();
            let room = bound(len);
            let mut code = vec![0xA5; room + 32];
            let made = encoder.encode(level, &data, &mut code[..room]).unwrap();
            assert!(code[room..].iter().all(|&b| b == 0xA5), "case {case}");
            let mut out = vec![0; len];
            assert_eq!(decoder.decode(&code[..made], &mut out), Ok(len), "case {case}");
            assert!(out == data, "case {case}");
            assert!(::zstd::stream::decode_all(&code[..made]).unwrap() == data, "case {case}");
            let size = zstd_safe::get_frame_content_size(&code[..made]);
            assert_eq!(size.unwrap(), Some(len as u64), "case {case}");
            let mut again = vec![0; room];
            assert_eq!(Encoder::default().encode(level, &data, &mut again), Ok(made));
            assert!(again[..made] == code[..made], "case {case}: not repeatable");
            assert_eq!(encoder.encode(level, &data, &mut [0; 3]), Err(CodecError::NoRoom));
        }
        encoder.encode(22, &[5; 30_000], &mut vec![0; bound(30_000)]).unwrap();
        assert!((1..4 << 20).contains(&encoder.kept()), "as much as the tile needs, not the level");
    }
}
