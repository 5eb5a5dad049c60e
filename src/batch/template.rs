//! What a file that GTiff made without pixels says about the file to be written: what its tiles
//! are like, and every tag that is not about where they are.

use std::sync::Arc;

use super::canvas::Canvas;
use super::image::{Expected, LARGEST_TILE, spec};
use super::plan::Grid;
use crate::engine::Codec;
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::tiff::{Directory, Header, Ifd, Layout};

/// Tiles are counted in arrays that libtiff takes up to this size.
const MOST_TILES: u64 = (1 << 31) / 8;

/// What the directory does not tell.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Rows of the image to be.
    pub height: u32,
    /// Bytes of GDAL's sample.
    pub sample_bytes: u8,
    /// For a 1-bit mask: what a set bit is shown as.
    pub bit: Option<u8>,
    /// Levels for Deflate and ZSTD.
    pub levels: (i32, i32),
    /// Leave out what is all fill.
    pub sparse: bool,
    /// A tile may be this large.
    pub most_tile_bytes: usize,
}

/// GTiff's file.
pub struct Template<'a> {
    source: &'a dyn ByteSource,
    header: Header,
    ifds: Vec<Ifd>,
}

impl Template<'_> {
    /// Reads the directories: the image's, and its mask's if there is one.
    pub fn read(source: &dyn ByteSource) -> Result<Template<'_>> {
        let header = Header::read(source)?;
        let mut ifds = vec![Ifd::read(source, &header, header.first_ifd)?];
        while ifds.len() < 2 && ifds[ifds.len() - 1].next != 0 {
            let next = ifds[ifds.len() - 1].next;
            ifds.push(Ifd::read(source, &header, next)?);
        }
        Ok(Template { source, header, ifds })
    }

    /// The `index`-th image, to be written; `Error::Unsupported` if the engines can't.
    pub fn canvas(&self, index: usize, wanted: &Wanted) -> Result<Canvas> {
        let ifd = self.ifd(index)?;
        let layout = Layout::new(&self.header, ifd)?;
        let Wanted { sample_bytes, bit, .. } = *wanted;
        let expected = Expected { sample_bytes, bit, ..Expected::default() };
        let mut spec = spec(&layout, &expected)?;
        let grid = Grid {
            width: layout.width,
            height: wanted.height,
            tile_width: layout.tile_width,
            tile_height: layout.tile_height,
            planes: u32::from(layout.planes),
        };
        spec.width = grid.tile_width as usize;
        spec.height = grid.tile_height as usize;
        let most = LARGEST_TILE.min(wanted.most_tile_bytes as u64);
        // A bit is a byte in memory.
        let bytes = match bit {
            Some(_) => u64::from(layout.tile_width) * u64::from(layout.tile_height),
            None => layout.tile_bytes(),
        };
        if bytes > most {
            return Err(Error::Unsupported(format!("a tile or strip of {bytes} bytes")));
        }
        let tiles = u64::from(grid.across()) * u64::from(grid.down()) * u64::from(grid.planes);
        if tiles > MOST_TILES {
            return Err(Error::TooManyTiles(tiles));
        }
        let level = match spec.codec {
            Codec::Zstd => wanted.levels.1,
            _ => wanted.levels.0,
        };
        Canvas::new(Arc::new(spec), grid, level, wanted.sparse, !layout.tiled)
    }

    /// The first `count` directories, to be written.
    pub fn directories(&self, count: usize) -> Result<Vec<Directory>> {
        let take_over = |i| Directory::take_over(self.source, &self.header, self.ifd(i)?);
        (0..count).map(take_over).collect()
    }

    fn ifd(&self, index: usize) -> Result<&Ifd> {
        let missing = || Error::corrupt("GTiff made no directory for this image", 0);
        self.ifds.get(index).ok_or_else(missing)
    }
}
