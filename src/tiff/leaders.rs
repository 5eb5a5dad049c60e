//! Tiles that are found by what stands before them, as GDAL lays out a COG: a tile's length in
//! four bytes, the tile, its last four bytes once more; and, where the masks are interleaved with
//! the images, the mask's tile of the same number in the same way right behind it.
//!
//! Over a network this saves requests: the offsets of the images alone tell what to fetch, and
//! what was fetched tells lengths, and where the masks are. Refuses to fetch anything just to look
//! at it. Invariant: a tile is only found here if all bytes that tell of it agree; for what is not
//! found the arrays of the directory are asked.

use std::sync::Arc;

use super::array::OFFSETS;
use super::header::Header;
use super::ifd::Ifd;
use super::layout::Layout;
use super::striles::{ByteRange, Striles};
use super::tag;
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::memory;

/// What the text behind the header begins with; six digits follow, with the length of the rest.
const TITLE: &[u8] = b"GDAL_STRUCTURAL_METADATA_SIZE=";
/// Longest text that is looked at.
const LONGEST: usize = 4096;
/// Directories that are looked at for the image that a mask belongs to.
const MOST_IFDS: usize = 64;
/// Room for the mask's tile behind the last tile, which no other offset bounds.
const LAST: u64 = 16 << 10;
/// Bytes before and behind a tile.
const EDGE: u64 = 4;

/// How the tiles of a file are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Structure {
    /// A mask's tile follows each tile.
    masks: bool,
}

impl Structure {
    /// What the file says of itself, if it says that lengths stand before tiles, in order.
    fn read(source: &dyn ByteSource, header: &Header) -> Option<Structure> {
        let start = if header.big { 16 } else { 8 };
        let mut text = vec![0; source.len().saturating_sub(start).min(LONGEST as u64) as usize];
        source.read_at(start, &mut text).ok()?;
        let rest = text.strip_prefix(TITLE)?;
        let digits = str::from_utf8(rest.get(..6)?).ok()?.parse::<usize>().ok()?;
        // " bytes\n" is behind the digits.
        let text = str::from_utf8(rest.get(13..13 + digits)?).ok()?;
        let says = |line: &str| text.lines().any(|other| other.trim() == line);
        let known = says("BLOCK_ORDER=ROW_MAJOR")
            && says("BLOCK_LEADER=SIZE_AS_UINT4")
            && says("BLOCK_TRAILER=LAST_4_BYTES_REPEATED")
            && !says("KNOWN_INCOMPATIBLE_EDITION=YES");
        known.then(|| Structure { masks: says("MASK_INTERLEAVED_WITH_IMAGERY=YES") })
    }
}

/// Where tiles are, by their leaders.
#[derive(Debug)]
pub struct Leaders {
    structure: Structure,
    /// The image's tiles: those asked for, or those that the mask's tiles follow.
    images: Arc<Striles>,
    is_mask: bool,
}

/// What leaders tell of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    At(ByteRange),
    /// It was never written.
    LeftOut,
    /// Nothing: the arrays must be asked.
    Unknown,
}

impl Leaders {
    /// For the directory of an image or a mask, with its tiles. `None` where the file is not laid
    /// out so.
    pub fn find(
        source: &dyn ByteSource,
        header: &Header,
        ifd: &Ifd,
        layout: &Layout,
        striles: &Arc<Striles>,
    ) -> Option<Leaders> {
        let structure = Structure::read(source, header)?;
        let mate = match is_mask(ifd) {
            true if structure.masks => Some(mate(source, header, ifd)?),
            true => return None,
            false => None,
        };
        let image = mate.as_ref().unwrap_or(ifd);
        let planes = image.u16(tag::PLANAR_CONFIGURATION).ok()?.is_some_and(|config| config != 1)
            && image.u16(tag::SAMPLES_PER_PIXEL).ok()?.is_some_and(|samples| samples != 1);
        if planes || !layout.tiled {
            return None;
        }
        let images = match &mate {
            // However the mask's image is stored, it has as many tiles.
            Some(image) => Arc::new(Striles::new(header, image, layout).ok()?),
            None => Arc::clone(striles),
        };
        Some(Leaders { structure, images, is_mask: mate.is_some() })
    }

    /// What to fetch for some tiles (offset, length), with the masks' where they are interleaved;
    /// nothing for tiles that are here already.
    pub fn extents(&self, source: &dyn ByteSource, tiles: &[u64]) -> Result<Vec<(u64, u64)>> {
        let mut extents = memory::room(tiles.len(), OFFSETS)?;
        for (&tile, (offset, next)) in tiles.iter().zip(self.neighbours(source, tiles)?) {
            if offset <= EDGE || self.told(source, offset, next).is_some() {
                continue;
            }
            let end = match next {
                Some(next) => next - EDGE,
                None => match self.unbounded(source, tile)? {
                    Some(end) => end,
                    None => continue,
                },
            };
            extents.push((offset - EDGE, end - (offset - EDGE)));
        }
        Ok(extents)
    }

    /// Where to stop fetching a tile that no next one bounds; `None` if it is left out or here.
    fn unbounded(&self, source: &dyn ByteSource, tile: u64) -> Result<Option<u64>> {
        let Some(range) = self.images.range(source, tile)? else { return Ok(None) };
        let end = range.offset + range.len;
        let wanted = if self.is_mask { end } else { range.offset };
        let here = source.fetched(wanted, &mut [0; EDGE as usize]);
        Ok((!here).then_some(end + if self.structure.masks { LAST } else { EDGE }))
    }

    /// Where a tile is, told by what was fetched.
    pub fn locate(&self, source: &dyn ByteSource, tile: u64) -> Result<Found> {
        let Some((offset, next)) = self.neighbours(source, &[tile])?.pop() else {
            return Ok(Found::Unknown);
        };
        if offset == 0 && !self.is_mask {
            return Ok(Found::LeftOut);
        }
        Ok(self.told(source, offset, next).map_or(Found::Unknown, Found::At))
    }

    /// Of the tile whose image is at `offset`, with the next one behind it.
    fn told(&self, source: &dyn ByteSource, offset: u64, next: Option<u64>) -> Option<ByteRange> {
        let bound = next?;
        let len = leader(source, offset)?;
        let end = offset.checked_add(len)?.checked_add(EDGE)?;
        if end.checked_add(EDGE)? > bound {
            return None;
        }
        let (offset, len, end) = if self.is_mask {
            let offset = end + EDGE;
            let len = leader(source, offset)?;
            (offset, len, offset.checked_add(len)?.checked_add(EDGE)?)
        } else {
            (offset, len, end)
        };
        // The last of two fills the room between the images, or it is something else.
        let last = self.is_mask || !self.structure.masks;
        if last && end + EDGE != bound {
            return None;
        }
        trailer_agrees(source, end).then_some(ByteRange { offset, len })
    }

    /// The offsets of tiles, each with that of the next one if it lies behind.
    fn neighbours(
        &self,
        source: &dyn ByteSource,
        tiles: &[u64],
    ) -> Result<Vec<(u64, Option<u64>)>> {
        let last = self.images.count() - 1;
        let both = tiles.iter().flat_map(|&tile| [tile, (tile + 1).min(last)]);
        let both = memory::collect(both, OFFSETS)?;
        let offsets = self.images.offsets(source, &both)?;
        let next = |pair: &[u64]| Some(pair[1]).filter(|&next| next > pair[0]);
        memory::collect(offsets.chunks_exact(2).map(|pair| (pair[0], next(pair))), OFFSETS)
    }
}

/// The length that stands before the tile at `offset`, if it was fetched.
fn leader(source: &dyn ByteSource, offset: u64) -> Option<u64> {
    let mut bytes = [0; EDGE as usize];
    let there = source.fetched(offset.checked_sub(EDGE)?, &mut bytes);
    // Little endian whatever the file is; a tile shorter than its trailer has no four bytes.
    Some(u64::from(u32::from_le_bytes(bytes))).filter(|&len| there && len >= EDGE)
}

/// Whether the four bytes before `end` repeat the four before those.
fn trailer_agrees(source: &dyn ByteSource, end: u64) -> bool {
    let mut bytes = [0; 2 * EDGE as usize];
    source.fetched(end - 2 * EDGE, &mut bytes) && bytes[..4] == bytes[4..]
}

fn is_mask(ifd: &Ifd) -> bool {
    ifd.u32(tag::NEW_SUBFILE_TYPE).ok().flatten().is_some_and(|kind| kind & 4 != 0)
}

/// The directory of the image that a mask belongs to: the one of its size and tiles.
fn mate(source: &dyn ByteSource, header: &Header, mask: &Ifd) -> Option<Ifd> {
    let size = |ifd: &Ifd| {
        use tag::{IMAGE_LENGTH, IMAGE_WIDTH, TILE_LENGTH, TILE_WIDTH};
        [IMAGE_WIDTH, IMAGE_LENGTH, TILE_WIDTH, TILE_LENGTH].map(|tag| ifd.u32(tag).ok().flatten())
    };
    let mut offset = header.first_ifd;
    for _ in 0..MOST_IFDS {
        let ifd = Ifd::read(source, header, offset).ok()?;
        if !is_mask(&ifd) && size(&ifd) == size(mask) {
            return Some(ifd);
        }
        offset = ifd.next;
    }
    None
}

#[cfg(test)]
mod tests;
