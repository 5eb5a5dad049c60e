//! How the pixels of a directory are stored: sizes, samples, tiles, compression.
//!
//! Refuses to know where the tiles are ([`super::Striles`]) and which codecs anybody decodes.
//! A strip is a tile as wide as the image. Invariant: every size that a [`Layout`] answers was
//! computed without overflow when it was made, and its tiles can be counted in 31 bits, as GTiff
//! counts them.

use super::header::{ByteOrder, Header};
use super::ifd::Ifd;
use super::tag;
use crate::error::{Error, Result};

/// GDAL counts pixels and blocks in C ints.
const MAX_INT: u32 = i32::MAX as u32;

/// How the samples of a pixel are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planar {
    /// Side by side in one tile.
    Contiguous,
    /// Each in tiles of its own.
    Separate,
}

/// Everything that describes how pixels are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Order of the bytes of a sample.
    pub byte_order: ByteOrder,
    /// Pixels in a row of the image.
    pub width: u32,
    /// Rows of the image.
    pub height: u32,
    /// Samples of a pixel, over all planes.
    pub samples_per_pixel: u16,
    /// Bits of every sample.
    pub bits_per_sample: u16,
    /// SampleFormat of every sample: 1 unsigned, 2 signed, 3 IEEE, 5 and 6 complex.
    pub sample_format: u16,
    /// BitsPerSample comes before SampleFormat in the directory, as it should.
    pub bits_first: bool,
    /// The Compression tag.
    pub compression: u16,
    /// The Predictor tag where the codec has one, otherwise 1: as libtiff, which ignores the tag
    /// for all other codecs.
    pub predictor: u16,
    /// The PhotometricInterpretation tag; 1 where it is absent.
    pub photometric: u16,
    /// How the samples of a pixel are arranged.
    pub planar: Planar,
    /// The FillOrder tag: 1, or 2 for the least significant bit first.
    pub fill_order: u16,
    /// Tiles rather than strips.
    pub tiled: bool,
    /// Pixels in a row of a tile.
    pub tile_width: u32,
    /// Rows of a tile, or of every strip but the last.
    pub tile_height: u32,
    /// Tiles next to each other.
    pub tiles_across: u32,
    /// Tiles above each other.
    pub tiles_down: u32,
    /// 1 for contiguous samples, else as many as there are samples.
    pub planes: u16,
    row_bytes: u64,
    tile_bytes: u64,
}

impl Layout {
    /// What the directory says. A directory of volumes is `Error::Unsupported`.
    pub fn new(header: &Header, ifd: &Ifd) -> Result<Layout> {
        refuse_volumes(ifd)?;
        let width = required(ifd, tag::IMAGE_WIDTH, "ImageWidth")?;
        let height = required(ifd, tag::IMAGE_LENGTH, "ImageLength")?;
        let samples = nonzero(ifd, ifd.u16(tag::SAMPLES_PER_PIXEL)?, 1, "SamplesPerPixel")?;
        let bits = ifd.shared_u16(tag::BITS_PER_SAMPLE, samples)?;
        let compression = ifd.shared_u16(tag::COMPRESSION, samples)?.unwrap_or(1);
        let has_predictor = matches!(compression, 5 | 8 | 32946 | 50000 | 34925 | 32909);
        let (tiled, tile_width, tile_height) = tile_size(ifd, width, height)?;
        let planar = match ifd.u16(tag::PLANAR_CONFIGURATION)?.unwrap_or(1) {
            1 => Planar::Contiguous,
            2 => Planar::Separate,
            other => return Err(wrong(ifd, "PlanarConfiguration", other)),
        };
        let mut layout = Layout {
            byte_order: header.byte_order,
            width,
            height,
            samples_per_pixel: samples,
            bits_per_sample: nonzero(ifd, bits, 1, "BitsPerSample")?,
            sample_format: ifd.shared_u16(tag::SAMPLE_FORMAT, samples)?.unwrap_or(1),
            bits_first: bits_first(ifd),
            compression,
            predictor: if has_predictor { ifd.u16(tag::PREDICTOR)?.unwrap_or(1) } else { 1 },
            photometric: ifd.u16(tag::PHOTOMETRIC)?.unwrap_or(1),
            planar,
            fill_order: ifd.u16(tag::FILL_ORDER)?.unwrap_or(1),
            tiled,
            tile_width,
            tile_height,
            tiles_across: width.div_ceil(tile_width),
            tiles_down: height.div_ceil(tile_height),
            planes: if planar == Planar::Separate { samples } else { 1 },
            row_bytes: 0,
            tile_bytes: 0,
        };
        layout.measure()?;
        Ok(layout)
    }

    /// Computes the sizes, refusing those that GTiff refuses.
    fn measure(&mut self) -> Result<()> {
        let [width, height] = [self.width, self.height];
        let [tile_width, tile_height] = [self.tile_width, self.tile_height];
        if [width, height, tile_width, tile_height].into_iter().any(|size| size > MAX_INT) {
            return Err(Error::Unsupported(format!(
                "an image of {width} x {height} pixels in tiles of {tile_width} x {tile_height}"
            )));
        }
        let tiles =
            u128::from(self.tiles_across) * u128::from(self.tiles_down) * u128::from(self.planes);
        if tiles > u128::from(MAX_INT) {
            return Err(Error::Unsupported(format!("an image of {tiles} tiles")));
        }
        let samples = u64::from(self.samples_in_tile());
        let row_bits = u64::from(tile_width)
            .checked_mul(samples)
            .and_then(|samples| samples.checked_mul(u64::from(self.bits_per_sample)));
        let sizes = row_bits.map(|bits| bits.div_ceil(8)).and_then(|row_bytes| {
            Some((row_bytes, row_bytes.checked_mul(u64::from(tile_height))?))
        });
        (self.row_bytes, self.tile_bytes) = sizes.ok_or_else(|| {
            Error::Unsupported(format!("a tile of {tile_width} x {tile_height} pixels"))
        })?;
        Ok(())
    }

    /// Refuses a directory that stores something else than the samples that GTiff shows: YCbCr is
    /// stored subsampled, and some 8-bit colours are shown as RGBA.
    pub fn refuse_conversions(&self) -> Result<()> {
        let shown_as_rgba = matches!(self.photometric, 5 | 8 | 32844 | 32845);
        let subsampled = self.photometric == 6 && !tag::is_jpeg2000(self.compression);
        if subsampled || shown_as_rgba && self.bits_per_sample <= 8 {
            return Err(Error::Unsupported(format!(
                "PhotometricInterpretation {} with {} bits",
                self.photometric, self.bits_per_sample
            )));
        }
        if !matches!(self.fill_order, 1 | 2) {
            return Err(Error::Unsupported(format!("FillOrder {}", self.fill_order)));
        }
        Ok(())
    }

    /// Tiles of all planes.
    pub fn tile_count(&self) -> u64 {
        u64::from(self.tiles_across) * u64::from(self.tiles_down) * u64::from(self.planes)
    }

    /// Bytes of one decoded row of a tile.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Bytes of a whole decoded tile.
    pub fn tile_bytes(&self) -> u64 {
        self.tile_bytes
    }

    /// Samples that follow each other for one pixel of a tile.
    pub fn samples_in_tile(&self) -> u16 {
        match self.planar {
            Planar::Contiguous => self.samples_per_pixel,
            Planar::Separate => 1,
        }
    }
}

/// Tiled or not, width and height of a tile.
fn tile_size(ifd: &Ifd, width: u32, height: u32) -> Result<(bool, u32, u32)> {
    if ifd.find(tag::TILE_WIDTH).is_some() || ifd.find(tag::TILE_LENGTH).is_some() {
        let tile_width = required(ifd, tag::TILE_WIDTH, "TileWidth")?;
        let tile_height = required(ifd, tag::TILE_LENGTH, "TileLength")?;
        return Ok((true, tile_width, tile_height));
    }
    let rows = ifd.u32(tag::ROWS_PER_STRIP)?;
    let rows = nonzero(ifd, rows, height, "RowsPerStrip")?;
    Ok((false, width, rows.min(height)))
}

fn bits_first(ifd: &Ifd) -> bool {
    let of =
        |entry: &super::ifd::Entry| [tag::BITS_PER_SAMPLE, tag::SAMPLE_FORMAT].contains(&entry.tag);
    ifd.entries().iter().find(|entry| of(entry)).is_none_or(|e| e.tag == tag::BITS_PER_SAMPLE)
}

fn refuse_volumes(ifd: &Ifd) -> Result<()> {
    for depth in [tag::IMAGE_DEPTH, tag::TILE_DEPTH] {
        if ifd.u32(depth)?.unwrap_or(1) != 1 {
            return Err(Error::Unsupported("an image with more than one layer".into()));
        }
    }
    match ifd.find(tag::DATA_TYPE) {
        Some(_) => Err(Error::Unsupported("the obsolete tag DataType".into())),
        None => Ok(()),
    }
}

fn required(ifd: &Ifd, tag: u16, name: &str) -> Result<u32> {
    let number = ifd.u32(tag)?;
    let missing = || Error::corrupt(format!("the directory has no {name}"), ifd.offset);
    nonzero(ifd, Some(number.ok_or_else(missing)?), 0, name)
}

fn nonzero<T: Default + PartialEq>(
    ifd: &Ifd,
    number: Option<T>,
    absent: T,
    name: &str,
) -> Result<T> {
    match number.unwrap_or(absent) {
        zero if zero == T::default() => Err(wrong(ifd, name, 0)),
        number => Ok(number),
    }
}

fn wrong(ifd: &Ifd, name: &str, value: u16) -> Error {
    Error::corrupt(format!("{name} is {value}"), ifd.offset)
}

#[cfg(test)]
mod tests;
