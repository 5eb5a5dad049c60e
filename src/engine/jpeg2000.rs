//! What a JPEG 2000 codestream says of itself (ISO/IEC 15444-1, annex A), and whether that is the
//! tile it is stored for. Looked at before any decoder is.
//!
//! Refuses to decode. Invariant: four bytes a tile of the codestream's are the most that is allocated,
//! and a codestream that [`Codestream::find`] gives out has all tiles, and all tile-parts that it says it
//! has, with all their bytes.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::{Codec, Sample, TileJob, TileSpec};
use crate::error::{Error, Result};
use crate::process::memory;

/// The box that a JP2 file begins with.
const SIGNATURE: [u8; 12] = [0, 0, 0, 12, b'j', b'P', b' ', b' ', 0x0D, 0x0A, 0x87, 0x0A];

const SOC: u16 = 0xFF4F;
const SIZ: u16 = 0xFF51;
const COD: u16 = 0xFF52;
const COC: u16 = 0xFF53;
const SOT: u16 = 0xFF90;
const SOD: u16 = 0xFF93;
const EOC: u16 = 0xFFD9;

/// Where SIZ has its first component, from SOC on.
const COMPONENTS: usize = 42;
/// Tile-parts name their tile in 16 bits.
const MOST_TILES: u64 = 65_535;
/// Pixels of one of its tiles: a tile of the file has no more bytes than that.
const MOST_PIXELS: u64 = 1 << 30;

/// What TIFF says of tiles of JPEG 2000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kind {
    /// Samples are signed.
    pub signed: bool,
    /// Samples are YCbCr and wanted as RGB.
    pub ycbcr: bool,
}

/// How much smaller than the image components are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Not at all.
    Full,
    /// The second and third have one sample for so many columns and rows.
    Chroma(u8, u8),
}

/// A codestream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codestream {
    /// Where it is in the tile's bytes, what follows its last tile-part not included.
    pub range: Range<usize>,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Samples of a pixel.
    pub components: usize,
    /// Bits of a sample.
    pub bits: u8,
    /// Whether samples are signed.
    pub signed: bool,
    /// Whether components are subsampled.
    pub sampling: Sampling,
    /// The decoder converts three components to RGB.
    pub converts: bool,
    /// The wavelet gives back what it was given: all decoders agree on every bit.
    pub reversible: bool,
}

impl Codestream {
    /// Finds the codestream in the bytes of a tile, which are one, or a JP2 file around one.
    pub fn find(bytes: &[u8]) -> std::result::Result<Codestream, &'static str> {
        let range = match bytes.starts_with(&SIGNATURE) {
            true => boxed(bytes)?,
            false => 0..bytes.len(),
        };
        let stream = &bytes[range.clone()];
        let (mut found, tiles, body) = size(stream)?;
        let end = found.follow(stream, tiles, body)?;
        found.range = range.start..range.start + end;
        Ok(found)
    }

    /// The codestream of a tile, if it holds what the directory says of tiles.
    pub fn of_tile(spec: &TileSpec, job: &TileJob, bytes: &[u8]) -> Result<Codestream> {
        let wrong = |what: String| Error::corrupt(format!("JPEG 2000: {what}"), job.offset);
        let found = Codestream::find(bytes).map_err(|what| wrong(what.to_string()))?;
        let Codestream { width, height, components, bits, signed, .. } = found;
        // Tiles that reach beyond the image may be stored without what is beyond.
        let fits = (job.columns..=spec.width).contains(&width)
            && (job.rows..=spec.height).contains(&height);
        if !fits {
            return Err(wrong(format!(
                "{width} x {height} pixels where a tile has {} x {}",
                spec.width, spec.height
            )));
        }
        let wanted = match spec.sample {
            Sample::Whole { bytes, .. } => 8 * usize::from(bytes),
            Sample::Bit { .. } => 1,
        };
        if components != spec.samples || usize::from(bits) != wanted {
            return Err(wrong(format!(
                "{components} components of {bits} bits where a tile has {} of {wanted}",
                spec.samples
            )));
        }
        let Codec::Jpeg2000(kind) = spec.codec else {
            return Err(wrong("a tile of another codec".into()));
        };
        if signed != kind.signed {
            let name = |signed| if signed { "signed" } else { "unsigned" };
            return Err(wrong(format!(
                "{} components where samples are {}",
                name(signed),
                name(kind.signed)
            )));
        }
        if found.sampling != Sampling::Full && !(kind.ycbcr && !found.converts && components == 3) {
            return Err(wrong("subsampled components in an image that is not YCbCr".into()));
        }
        Ok(found)
    }

    /// Declares all samples unsigned. They come out of a decoder half their range higher then.
    pub fn make_unsigned(&mut self, stream: &mut [u8]) {
        let components = stream.iter_mut().skip(COMPONENTS).step_by(3).take(self.components);
        components.for_each(|depth| *depth &= 0x7F);
        self.signed = false;
    }

    /// Follows markers and tile-parts to the end of the last, which it returns.
    fn follow(
        &mut self,
        stream: &[u8],
        tiles: u64,
        mut at: usize,
    ) -> std::result::Result<usize, &'static str> {
        let cut = "the codestream is cut off";
        let mut coded = false;
        let parts = memory::repeated(Parts::default(), tiles as usize, "a codestream's tiles");
        let mut parts = memory::or_unwind(parts);
        // Where the tile-part ends whose header this is; the main header is in none.
        let mut part: Option<usize> = None;
        loop {
            // Without its last marker nothing but these numbers tells that a stream is whole.
            if part.is_none() && at == stream.len() && parts.iter().all(Parts::are_known) {
                return Ok(at);
            }
            let marker = u16_at(stream, at).ok_or(cut)?;
            match (marker, part) {
                (SOT, None) if coded => {
                    let length = u32_at(stream, at + 6).ok_or(cut)? as usize;
                    let end = match length {
                        // All that is left, the end's marker excepted, which has to be there.
                        0 if stream.ends_with(&EOC.to_be_bytes()) => stream.len() - 2,
                        0 => return Err(cut),
                        _ => at.checked_add(length).ok_or(cut)?,
                    };
                    if end > stream.len() {
                        return Err(cut);
                    }
                    let tile = usize::from(u16_at(stream, at + 4).ok_or(cut)?);
                    let numbers = u16_at(stream, at + 10).ok_or(cut)?.to_be_bytes();
                    let known = parts.get_mut(tile).ok_or("a tile-part of no tile")?;
                    known.add(numbers).ok_or("a tile-part is missing")?;
                    part = Some(end);
                }
                (SOD, Some(end)) if at + 2 <= end => {
                    (at, part) = (end, None);
                    continue;
                }
                (EOC, None) if parts.iter().all(Parts::are_all) => return Ok(at + 2),
                (EOC, None) => return Err("a tile, or a part of one, is missing"),
                (COD | COC, _) => {
                    self.coding(stream, at, marker).ok_or(cut)?;
                    coded |= marker == COD;
                }
                (SOC | SIZ | SOT | SOD | EOC, _) => return Err("a marker in a wrong place"),
                (0xFF01..=0xFFFE, _) => {}
                _ => return Err("a marker is missing"),
            }
            let length = usize::from(u16_at(stream, at + 2).ok_or(cut)?);
            at = at.checked_add(2 + length.max(2)).ok_or(cut)?;
            if part.is_some_and(|end| at > end) {
                return Err("a header is longer than its tile-part");
            }
        }
    }

    /// What COD or COC says of transforms.
    fn coding(&mut self, stream: &[u8], at: usize, marker: u16) -> Option<()> {
        let wide = if self.components < 257 { 1 } else { 2 };
        let transform = match marker {
            COD => {
                self.converts |= *stream.get(at + 8)? != 0;
                *stream.get(at + 13)?
            }
            _ => *stream.get(at + 4 + wide + 5)?,
        };
        self.reversible &= transform == 1;
        Some(())
    }
}

/// Tile-parts of one tile.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    seen: u16,
    /// How many the tile says it has; 0 while it does not.
    said: u8,
}

impl Parts {
    /// One more, by its number and what it says of how many there are; they come in their order.
    fn add(&mut self, [number, said]: [u8; 2]) -> Option<()> {
        if u16::from(number) != self.seen {
            return None;
        }
        self.seen += 1;
        // There are writers that say one less than there are.
        self.said = self.said.max(said);
        Some(())
    }

    /// None is known to be missing.
    fn are_all(&self) -> bool {
        self.seen > 0 && self.seen >= self.said.into()
    }

    /// All are there, and how many that is was said.
    fn are_known(&self) -> bool {
        self.are_all() && self.said > 0
    }
}

/// Where the codestream of a JP2 file is.
fn boxed(bytes: &[u8]) -> std::result::Result<Range<usize>, &'static str> {
    let none = "a JP2 file without a codestream";
    let mut at = SIGNATURE.len();
    loop {
        let kind = bytes.get(at + 4..at + 8).ok_or(none)?;
        let (header, length) = match u32_at(bytes, at).ok_or(none)? {
            0 => (8, bytes.len() - at),
            1 => {
                let high = u32_at(bytes, at + 8).ok_or(none)?;
                let low = u32_at(bytes, at + 12).ok_or(none)?;
                (16, if high == 0 { low as usize } else { usize::MAX })
            }
            length => (8, length as usize),
        };
        let end = at.checked_add(length).filter(|end| *end <= bytes.len() && length >= header);
        let end = end.ok_or("a box of a JP2 file is cut off")?;
        if kind == b"jp2c" {
            return Ok(at + header..end);
        }
        at = end;
    }
}

/// Reads SIZ; with how many tiles there are, and where the rest of the main header begins.
fn size(stream: &[u8]) -> std::result::Result<(Codestream, u64, usize), &'static str> {
    let cut = "the codestream is cut off";
    if u16_at(stream, 0) != Some(SOC) || u16_at(stream, 2) != Some(SIZ) {
        return Err("this is no codestream");
    }
    let length = usize::from(u16_at(stream, 4).ok_or(cut)?);
    let components = usize::from(u16_at(stream, COMPONENTS - 2).ok_or(cut)?);
    if components == 0 || length != 38 + 3 * components {
        return Err("a wrong number of components");
    }
    let mut numbers = [0u32; 8];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = u32_at(stream, 8 + 4 * i).ok_or(cut)?;
    }
    let [right, bottom, left, top, tile_width, tile_height, tile_left, tile_top] = numbers;
    let sizes = right > left && bottom > top && tile_width > 0 && tile_height > 0;
    if !sizes || tile_left > left || tile_top > top {
        return Err("an image of no size");
    }
    let tiles = u64::from((right - tile_left).div_ceil(tile_width))
        * u64::from((bottom - tile_top).div_ceil(tile_height));
    // A decoder makes room for a tile, however little of it is in the image.
    if u64::from(tile_width) * u64::from(tile_height) > MOST_PIXELS {
        return Err("tiles that are larger than any image here");
    }
    if tiles > MOST_TILES {
        return Err("more tiles than can be told apart");
    }
    let described = stream.get(COMPONENTS..COMPONENTS + 3 * components).ok_or(cut)?;
    let depth = described[0];
    if described.chunks_exact(3).any(|component| component[0] != depth) {
        return Err("components of different depths");
    }
    let found = Codestream {
        range: 0..0,
        width: (right - left) as usize,
        height: (bottom - top) as usize,
        components,
        bits: (depth & 0x7F) + 1,
        signed: depth & 0x80 != 0,
        sampling: sampling(described, [left, top])?,
        converts: false,
        reversible: true,
    };
    Ok((found, tiles, 4 + length))
}

fn sampling(described: &[u8], origin: [u32; 2]) -> std::result::Result<Sampling, &'static str> {
    let steps: Vec<&[u8]> = described.chunks_exact(3).take(5).map(|c| &c[1..]).collect();
    if described.chunks_exact(3).all(|component| component[1..] == [1, 1]) {
        return Ok(Sampling::Full);
    }
    match steps[..] {
        [[1, 1], &[x @ 1..=2, y @ 1..=2], other] if *other == [x, y] && origin == [0, 0] => {
            Ok(Sampling::Chroma(x, y))
        }
        _ => Err("components that are subsampled in an unusual way"),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

#[cfg(test)]
mod tests;
