//! Where the tiles are: TileOffsets and TileByteCounts, or StripOffsets and StripByteCounts.
//!
//! Refuses to read a tile, and to guess: what libtiff estimates for compressed data is
//! `Error::Unsupported`. The arrays are read in pages when a tile is asked for, so that a file
//! with a million tiles costs only the entries in use. Invariant: every [`ByteRange`] lies within
//! the file and, like libtiff's, is not much longer than ten times the tile.

use super::array::{Array, OFFSETS};
use super::header::Header;
use super::ifd::{Entry, Ifd, outside, within};
use super::layout::{Layout, Planar};
use super::tag;
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// Bytes of the file that hold one tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// How many, never zero.
    pub len: u64,
}

/// Where the tiles of a directory are.
#[derive(Debug)]
pub struct Striles {
    offsets: Array,
    counts: Counts,
    /// Bytes of a whole decoded tile.
    tile_bytes: u64,
    /// The only strip of an image, whose byte count libtiff doubts.
    lone_strip: bool,
    uncompressed: bool,
}

/// Lengths of tiles as stored, or the same for all where the tag is missing.
#[derive(Debug)]
enum Counts {
    Stored(Array),
    Computed(u64),
}

impl Striles {
    /// Checks that the arrays are there and long enough; reads nothing.
    pub fn new(header: &Header, ifd: &Ifd, layout: &Layout) -> Result<Striles> {
        let tiles = layout.tile_count();
        let order = header.byte_order;
        let offsets = find(ifd, tag::TILE_OFFSETS, tag::STRIP_OFFSETS)?
            .ok_or_else(|| Error::corrupt("the directory has no offsets of tiles", ifd.offset))?;
        let counts = match find(ifd, tag::TILE_BYTE_COUNTS, tag::STRIP_BYTE_COUNTS)? {
            Some(entry) => Counts::Stored(Array::new(entry, order, tiles)?),
            None => Counts::Computed(computed(ifd, layout)?),
        };
        Ok(Striles {
            offsets: Array::new(offsets, order, tiles)?,
            counts,
            tile_bytes: layout.tile_bytes(),
            lone_strip: !layout.tiled && tiles == 1,
            uncompressed: layout.compression == 1,
        })
    }

    /// Where tile `index` is; `None` for one that was never written.
    pub fn range(&self, source: &dyn ByteSource, index: u64) -> Result<Option<ByteRange>> {
        Ok(self.ranges(source, [index])?.pop().flatten())
    }

    /// How many tiles there are.
    pub fn count(&self) -> u64 {
        self.offsets.tiles()
    }

    /// Where many tiles are, in the order asked for, with few requests.
    pub fn ranges(
        &self,
        source: &dyn ByteSource,
        indices: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<Option<ByteRange>>> {
        let indices = memory::collect(indices, OFFSETS)?;
        let file_len = source.len();
        let stored = self.stored(source, &indices)?;
        let entries = indices.iter().zip(stored);
        let ranges =
            entries.map(|(index, (offset, len))| self.check(*index, offset, len, file_len));
        memory::try_collect(ranges, OFFSETS)
    }

    /// Offsets and lengths as the file has them, whether they can be right or not.
    pub fn stored(&self, source: &dyn ByteSource, indices: &[u64]) -> Result<Vec<(u64, u64)>> {
        let file_len = source.len();
        let offsets = self.offsets.get(source, indices, file_len)?;
        let counts = match &self.counts {
            Counts::Stored(array) => array.get(source, indices, file_len)?,
            Counts::Computed(len) => memory::repeated(*len, indices.len(), OFFSETS)?,
        };
        memory::collect(offsets.into_iter().zip(counts), OFFSETS)
    }

    /// What the file says of where many tiles begin; lengths are not looked at.
    pub fn offsets(&self, source: &dyn ByteSource, indices: &[u64]) -> Result<Vec<u64>> {
        self.offsets.get(source, indices, source.len())
    }

    /// What libtiff and GTiff make of an entry.
    pub fn check(
        &self,
        index: u64,
        offset: u64,
        len: u64,
        file_len: u64,
    ) -> Result<Option<ByteRange>> {
        let len = if self.lone_strip { self.doubt(offset, len, file_len)? } else { len };
        if len == 0 {
            return Ok(None);
        }
        // libtiff has its own ideas of both; the caller asks it.
        if offset == 0 || self.out_of_proportion(len) {
            return Err(Error::corrupt(format!("tile {index} has {len} bytes"), offset));
        }
        match within(offset, len, file_len) {
            Some(_) => Ok(Some(ByteRange { offset, len })),
            None => Err(outside(&format!("tile {index}"), offset, len, file_len)),
        }
    }

    /// The length of the only strip, which libtiff replaces where it cannot be right
    /// (ByteCountLooksBad in tif_dirread.c).
    fn doubt(&self, offset: u64, len: u64, file_len: u64) -> Result<u64> {
        if offset == 0 {
            return Ok(len);
        }
        if !self.uncompressed {
            let unknown = || Error::Unsupported("a compressed strip of unknown length".into());
            return if len == 0 { Err(unknown()) } else { Ok(len) };
        }
        let too_long = file_len.checked_sub(offset).is_some_and(|left| len > left);
        Ok(if too_long || len < self.tile_bytes { self.tile_bytes } else { len })
    }

    /// More than libtiff would read of a tile (TIFFFillStrip in tif_read.c).
    fn out_of_proportion(&self, len: u64) -> bool {
        len > 1 << 20 && (len - 4096) / 10 > self.tile_bytes
    }
}

/// The entry of either tag: to libtiff they are the same one, so both together are ambiguous.
fn find(ifd: &Ifd, tile: u16, strip: u16) -> Result<Option<&Entry>> {
    match (ifd.find(tile), ifd.find(strip)) {
        (Some(_), Some(_)) => Err(Error::Unsupported(format!("tag {tile} next to tag {strip}"))),
        (entry, None) | (None, entry) => Ok(entry),
    }
}

/// The length of every tile where the tag is missing (EstimateStripByteCounts in tif_dirread.c).
fn computed(ifd: &Ifd, layout: &Layout) -> Result<u64> {
    let enough = match layout.planar {
        Planar::Contiguous => 1,
        Planar::Separate => u64::from(layout.samples_per_pixel),
    };
    if layout.tile_count() != enough {
        return Err(Error::corrupt("the directory has no byte counts of tiles", ifd.offset));
    }
    if layout.compression != 1 {
        return Err(Error::Unsupported("compressed tiles of unknown length".into()));
    }
    Ok(layout.tile_bytes())
}

#[cfg(test)]
mod tests;
