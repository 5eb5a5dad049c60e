//! What a file that GTiff made without pixels says about the file to be written: what its tiles
//! are like, and every tag that is not about where they are.

use std::sync::Arc;

use super::canvas::Canvas;
use super::image::{
    Expected, JPEG, LARGEST_CUT, LARGEST_TILE, YCBCR, gtiff_spec, is_plain, spec, tagged_sampling,
};
use super::plan::Grid;
use crate::engine::gtiff::Cut;
use crate::engine::{Codec, TileSpec};
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::options::tile_file::Facts;
use crate::tiff::{ByteOrder, Directory, Excerpt, Header, Ifd, Layout, Planar, tag};

/// Tiles are counted in arrays that libtiff takes up to this size.
const MOST_TILES: u64 = (1 << 31) / 8;

/// The value of PhotometricInterpretation.
const PALETTE: u16 = 3;

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

/// An image whose tiles GTiff encodes.
pub struct GtiffTiles {
    /// To be written.
    pub canvas: Canvas,
    /// How a tile that was written is read.
    pub cut: Cut,
    /// The Compression tag.
    pub compression: u16,
    /// What GTiff is to be told of a tile.
    pub facts: Facts,
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
        let bytes = match bit {
            // A bit is a byte in memory.
            Some(_) => u64::from(layout.tile_width) * u64::from(layout.tile_height),
            None => layout.tile_bytes(),
        };
        paint(spec(&layout, &expected)?, &layout, wanted, bytes, LARGEST_TILE)
    }

    /// The first image, to be written by GTiff's codecs, tile by tile; `why` no engine of ours can.
    pub fn gtiff(&self, wanted: &Wanted, why: String) -> Result<GtiffTiles> {
        let ifd = self.ifd(0)?;
        let layout = Layout::new(&self.header, ifd)?;
        let expected = Expected {
            width: layout.width,
            height: layout.height,
            bands: layout.samples_per_pixel.into(),
            sample_bytes: wanted.sample_bytes,
            converted: layout.photometric == YCBCR,
            ..Expected::default()
        };
        let spec = gtiff_spec(&layout, &expected, why)?;
        let pixel = (spec.samples * spec.sample.bytes()) as u64;
        let bytes = u64::from(layout.tile_width) * u64::from(layout.tile_height);
        let bytes = bytes.saturating_mul(pixel);
        let canvas = paint(spec, &layout, wanted, bytes, LARGEST_CUT)?;
        let mut excerpt = Excerpt::new(self.source, &self.header, ifd, &layout)?;
        let is_ycbcr = layout.photometric == YCBCR;
        let mut sampling = None;
        let (plain, jpeg) = (is_plain(&layout, &expected), layout.compression == JPEG);
        if jpeg && is_ycbcr {
            let told = tagged_sampling(ifd)?;
            excerpt.set_subsampling(told);
            sampling = Some(told);
        }
        Ok(GtiffTiles {
            canvas,
            cut: Cut { excerpt, sampling, converted: is_ycbcr, plain, jpeg, stored_row: None },
            compression: layout.compression,
            facts: self.facts(ifd, &layout, wanted)?,
        })
    }

    /// The GDAL_NODATA tag of the first image.
    pub fn nodata(&self) -> Result<Option<String>> {
        let ifd = self.ifd(0)?;
        let Some(entry) = ifd.find(tag::GDAL_NODATA) else { return Ok(None) };
        let bytes = ifd.value(self.source, entry, 1 << 10)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(text.trim_end_matches('\0').trim().to_string()))
    }

    /// Whether the samples of the first image are numbers of colours.
    pub fn is_paletted(&self) -> Result<bool> {
        Ok(Layout::new(&self.header, self.ifd(0)?)?.photometric == PALETTE)
    }

    fn facts(&self, ifd: &Ifd, layout: &Layout, wanted: &Wanted) -> Result<Facts> {
        let mut extra = None;
        if let Some(entry) = ifd.find(tag::EXTRA_SAMPLES) {
            let bytes = ifd.value(self.source, entry, 1 << 17)?;
            extra = bytes.first_chunk::<2>().map(|b| self.header.byte_order.uint(b) as u16);
        }
        let separate = layout.planar == Planar::Separate && layout.samples_per_pixel > 1;
        Ok(Facts {
            photometric: layout.photometric,
            extra,
            bits: layout.bits_per_sample,
            sample_bytes: wanted.sample_bytes,
            signed_bytes: (layout.bits_per_sample, layout.sample_format) == (8, 2),
            separate,
            tiled: layout.tiled,
            block: [layout.tile_width, layout.tile_height],
            big_endian: self.header.byte_order == ByteOrder::Big,
            nodata: false,
        })
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

/// A canvas for tiles of `bytes` each, of which GDAL or libtiff take at most `largest`.
fn paint(
    mut spec: TileSpec,
    layout: &Layout,
    wanted: &Wanted,
    bytes: u64,
    largest: u64,
) -> Result<Canvas> {
    let grid = Grid {
        width: layout.width,
        height: wanted.height,
        tile_width: layout.tile_width,
        tile_height: layout.tile_height,
        planes: u32::from(layout.planes),
    };
    spec.width = grid.tile_width as usize;
    spec.height = grid.tile_height as usize;
    let most = largest.min(wanted.most_tile_bytes as u64);
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
