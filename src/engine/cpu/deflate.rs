//! Deflate (TIFF compressions 8 and 32946): zlib streams, by libdeflate or ISA-L.
//!
//! Encoding is libdeflate's. Which one decodes faster depends on the data, so both are timed as they work and the faster one
//! is used. libdeflate has the last word: what ISA-L does not decode, it judges. The Adler-32
//! checksum is always verified; bytes after the stream are ignored, as libtiff ignores them.

use std::time::Instant;

use super::codec::CodecError;
use super::isal::{Inflated, Isal};
use super::libdeflate::{self, Compressor, Decompressor, Refused};

/// Every so many tiles the slower decoder gets one, as the data may have changed.
const RETRY: u32 = 32;
/// So many tiles go to both in turns: the very first of each finds cold caches.
const FIRST: u32 = 4;

/// A decoder of zlib streams, one per worker.
pub struct Deflate {
    inner: Decompressor,
    isal: Option<Isal>,
    pace: Pace,
}

/// How long each decoder takes for a byte, in picoseconds; 0: not known.
#[derive(Debug, Default)]
struct Pace {
    libdeflate: u64,
    isal: u64,
    tiles: u32,
}

impl Pace {
    /// Whether the next tile is ISA-L's.
    fn prefers_isal(&mut self) -> bool {
        self.tiles = self.tiles.wrapping_add(1);
        let faster = self.isal < self.libdeflate;
        if self.tiles <= FIRST {
            return !self.tiles.is_multiple_of(2);
        }
        if self.isal == 0 || self.libdeflate == 0 {
            return self.isal == 0;
        }
        faster != self.tiles.is_multiple_of(RETRY)
    }
}

/// Notes what one tile took.
fn note(pace: &mut u64, start: Instant, bytes: usize) {
    let now = (start.elapsed().as_nanos() as u64).saturating_mul(1000) / bytes.max(1) as u64;
    *pace = moved(*pace, now.max(1));
}

/// The pace after a tile that went at `now`: down at once, slowly up, as what takes longer than the
/// tiles before was interrupted more often than not.
fn moved(pace: u64, now: u64) -> u64 {
    match pace {
        0 => now,
        _ => now.min(pace + pace / 16 + 1),
    }
}

impl Deflate {
    /// Makes a decoder, if there is memory for it.
    pub fn new() -> Result<Self, CodecError> {
        let inner = Decompressor::new().ok_or(CodecError::NoMemory)?;
        Ok(Self { inner, isal: Isal::new(), pace: Pace::default() })
    }

    /// Decodes `src` into the front of `dst` and returns how many bytes were made.
    ///
    /// Fewer bytes than `dst` holds is not an error here; more is. What `dst` holds after the
    /// bytes made, or after an error, is unspecified.
    pub fn decode(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let start = Instant::now();
        if let Some(isal) = &mut self.isal
            && self.pace.prefers_isal()
            && let Some(made) = by_isal(isal, src, dst)
        {
            note(&mut self.pace.isal, start, made);
            return Ok(made);
        }
        let made = self.inner.decompress(src, dst).map_err(|e| match e {
            Refused::BadData => CodecError::BadDeflate,
            Refused::TooLong => CodecError::TooLong,
        })?;
        note(&mut self.pace.libdeflate, start, made);
        Ok(made)
    }
}

/// A whole zlib stream, checksum verified; `None` if anything is not as it should be.
fn by_isal(isal: &mut Isal, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, stream) = src.split_first_chunk::<2>()?;
    // Method 8, no dictionary, and the header's own check.
    let plain = header[0] & 0x0F == 8 && header[1] & 0x20 == 0;
    if !plain || !u16::from_be_bytes(*header).is_multiple_of(31) {
        return None;
    }
    let Inflated { made, left } = isal.inflate(stream, dst)?;
    let trailer = stream.get(stream.len().checked_sub(left)?..)?.first_chunk::<4>()?;
    let sum = libdeflate::adler32(dst.get(..made)?);
    (u32::from_be_bytes(*trailer) == sum).then_some(made)
}

/// The most bytes that `Encoder::encode` makes of `len` bytes at any level.
pub fn bound(len: usize) -> usize {
    libdeflate::bound(len)
}

/// An encoder of zlib streams, one per worker.
#[derive(Default)]
pub struct Encoder {
    /// The compressor of the last level that was asked for.
    inner: Option<(i32, Compressor)>,
}

impl Encoder {
    /// The compressor of `level`, 1 to 12; other levels are taken for the nearest of these.
    fn at(&mut self, level: i32) -> Result<&mut Compressor, CodecError> {
        let level = level.clamp(1, 12);
        if self.inner.as_ref().is_none_or(|(made, _)| *made != level) {
            self.inner = None;
            self.inner = Some((level, Compressor::new(level).ok_or(CodecError::NoMemory)?));
        }
        self.inner.as_mut().map(|(_, inner)| inner).ok_or(CodecError::NoMemory)
    }

    /// Encodes `src` into the front of `dst` and returns how many bytes were made.
    pub fn encode(&mut self, level: i32, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        self.at(level)?.compress(src, dst).ok_or(CodecError::NoRoom)
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

    /// With trailing bytes, at all levels, short and long: the same from both, and damage seen.
    #[test]
    fn isal_agrees_with_libdeflate() {
        let Some(mut isal) = Isal::new() else {
            println!("no libisal.so.2 here: nothing to compare");
            return;
        };
        let mut seed = 0x5eed_0077_u64;
        for round in 0..2000_usize {
            let len = (random(&mut seed) % 9000) as usize;
            let noise = random(&mut seed) % 250 + 1;
            let data: Vec<u8> = (0..len).map(|_| (random(&mut seed) % noise) as u8).collect();
            let mut src = encode(&data, (round % 10) as u32);
            let whole = src.len();
            src.extend(std::iter::repeat_n(round as u8, round % 7));
            let mut dst = vec![0; len + round % 3];
            assert_eq!(by_isal(&mut isal, &src, &mut dst), Some(len), "round {round}");
            assert!(dst[..len] == data, "round {round}");
            if len > 0 {
                assert_eq!(by_isal(&mut isal, &src, &mut dst[..len - 1]), None, "too long");
            }
            assert_eq!(by_isal(&mut isal, &src[..whole - 1], &mut dst), None, "cut");
            src[whole - 1] ^= 1;
            assert_eq!(by_isal(&mut isal, &src, &mut dst), None, "wrong checksum");
        }
    }

    #[test]
    fn the_faster_decoder_gets_the_tiles() {
        let mut pace = Pace { libdeflate: 100, isal: 50, tiles: 32 };
        let isal = (0..320).filter(|_| pace.prefers_isal()).count();
        assert_eq!(isal, 310);
        pace = Pace { libdeflate: 50, isal: 100, tiles: 32 };
        assert_eq!((0..320).filter(|_| pace.prefers_isal()).count(), 10);
    }

    /// On a busy machine every fifth tile takes three times as long; then the data changes sides.
    #[test]
    fn interruptions_do_not_change_the_choice_and_other_data_does() {
        // The first tile of each took ten times as long.
        let mut pace = Pace { libdeflate: 27_000, isal: 22_000, tiles: 2 };
        let mut seed = 0x5eed_0033_u64;
        let mut share = |isal: u64, libdeflate: u64, tiles: usize| {
            let by_isal = (0..tiles).filter(|_| {
                let prefers = pace.prefers_isal();
                let (known, took) = match prefers {
                    true => (&mut pace.isal, isal),
                    false => (&mut pace.libdeflate, libdeflate),
                };
                let interrupted = random(&mut seed).is_multiple_of(5);
                *known = moved(*known, if interrupted { 3 * took } else { took });
                prefers
            });
            by_isal.count() as f64 / tiles as f64
        };
        assert!(share(2200, 2700, 2000) > 0.9);
        assert!(share(2700, 2200, 2000) < 0.2);
        assert!(share(9000, 5000, 2000) < 0.2);
    }

    #[test]
    fn round_trips_and_damaged_streams_stay_inside() {
        let first = 0x5eed_0002_u64;
        println!("seed {first:#x}");
        let mut s = first;
        let mut codec = Deflate::new().unwrap();
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
        let mut codec = Deflate::new().unwrap();
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
        assert_eq!(Deflate::new().unwrap().decode(&code, &mut [0; 8]), Err(CodecError::BadDeflate));
    }

    #[test]
    fn every_level_encodes_within_the_bound() {
        let first = 0x5eed_0022_u64;
        println!("seed {first:#x}");
        let mut s = first;
        let (mut encoder, mut decoder) = (Encoder::default(), Deflate::new().unwrap());
        for case in 0..600 {
            let level = if case % 3 == 0 { case % 15 } else { 6 };
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
            let mut out = Vec::new();
            let mut other = flate2::read::ZlibDecoder::new(&code[..made]);
            std::io::Read::read_to_end(&mut other, &mut out).unwrap();
            assert!(out == data, "case {case}");
            let mut again = vec![0; room];
            assert_eq!(Encoder::default().encode(level, &data, &mut again), Ok(made));
            assert!(again[..made] == code[..made], "case {case}: not repeatable");
            assert_eq!(encoder.encode(level, &data, &mut [0; 3]), Err(CodecError::NoRoom));
        }
    }
}
