//! One TIFF directory as the batching layer sees it: a grid of tiles of one kind,
//! and for each tile the bytes that hold it.
//!
//! Made only for what the engines decode; everything else is refused here, with
//! the reason that users see in the counters.

use std::sync::Arc;

use super::plan::{Grid, Rect, Tile};
use crate::engine::gtiff::{self, Cut};
use crate::engine::jpeg2000::Kind;
use crate::engine::{Codec, Part, Predictor, Sample, TileJob, TileSpec};
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;
use crate::tiff::header::{ByteOrder, Header};
use crate::tiff::ifd::{Ifd, Place};
use crate::tiff::layout::Layout;
use crate::tiff::leaders::{Found, Leaders};
use crate::tiff::striles::{ByteRange, Striles};
use crate::tiff::{Excerpt, Planar, tag};

/// An uncompressed image in one strip is read in slices of about this size.
const SLICE_BYTES: u64 = 256 << 10;

/// Parts of a tile with fewer bytes are thin.
const THIN_BYTES: usize = 16 << 10;

/// The codecs address less than this.
pub(super) const LARGEST_TILE: u64 = (1 << 30) - 1;

/// A larger tile of one of GDAL's codecs is decoded by the dataset: GTiff needs its size twice over.
pub(super) const LARGEST_CUT: u64 = 64 << 20;

/// GTiff makes an object for each band of an excerpt; of more bands in a tile the dataset has them already.
const MOST_CUT_BANDS: u32 = 256;

/// Bytes of the first JPEG tile that tell how its chroma is sampled.
const JPEG_START: usize = 4096;

/// What GDAL says of the directory; the file must agree.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    /// Raster width.
    pub width: u32,
    /// Raster height.
    pub height: u32,
    /// Bands.
    pub bands: u32,
    /// Bytes of GDAL's sample.
    pub sample_bytes: u8,
    /// For a 1-bit mask: what a set bit becomes.
    pub bit: Option<u8>,
    /// Block width.
    pub block_width: u32,
    /// Block height.
    pub block_height: u32,
    /// Where GTiff says the first tile is, if it was asked.
    pub first_tile: Option<u64>,
    /// GTiff shows other colours than the file has samples.
    pub converted: bool,
}

/// A directory whose tiles the engines decode.
pub struct Image {
    /// Where the directory is in the file.
    pub ifd_offset: u64,
    /// What the tiles are like.
    pub spec: Arc<TileSpec>,
    /// Where they are in the image.
    pub grid: Grid,
    /// Where their bytes are.
    pub source: Arc<dyn ByteSource>,
    /// Tiles rather than strips.
    pub tiled: bool,
    /// GDAL's blocks are our tiles, so that GDAL's block cache can keep them.
    pub blocks_are_tiles: bool,
    /// GTiff shows smaller versions of it that are not in the file: it is JPEG.
    pub has_implicit_overviews: bool,
    /// How tiles are cut out of the file, where only GDAL decodes them.
    pub cut: Option<Cut>,
    striles: Arc<Striles>,
    /// Tells more of what a remote file holds than its arrays, and with fewer requests.
    leaders: Option<Leaders>,
    /// Bytes of one row, where one uncompressed strip is read in slices.
    sliced: Option<u64>,
}

impl Image {
    /// Reads the directory at `offset`, the first if that is 0. `held` is what may be kept
    /// of tiles that GDAL's block cache cannot keep.
    pub fn open(
        source: Arc<dyn ByteSource>,
        offset: u64,
        expected: &Expected,
        held: usize,
    ) -> Result<Image> {
        let header = Header::read(&*source)?;
        let ifd_offset = if offset == 0 { header.first_ifd } else { offset };
        let ifd = Ifd::read(&*source, &header, ifd_offset)?;
        let layout = Layout::new(&header, &ifd)?;
        let (mut spec, cut) = match own_spec(&*source, &ifd, &layout, expected) {
            Err(Error::Unsupported(why)) => {
                let spec = gtiff_spec(&layout, expected, why)?;
                (spec, Some(Excerpt::new(&*source, &header, &ifd, &layout)?))
            }
            spec => (spec?, None),
        };
        let striles = Arc::new(Striles::new(&header, &ifd, &layout)?);
        let find = || Leaders::find(&*source, &header, &ifd, &layout, &striles);
        let leaders = source.remote().then(find).flatten();
        arrays_inside(&ifd, source.len())?;
        let mut grid = Grid {
            width: layout.width,
            height: layout.height,
            tile_width: layout.tile_width,
            tile_height: layout.tile_height,
            planes: u32::from(layout.planes),
        };
        let sliced = slice_height(&spec, &layout, expected).map(|rows| {
            grid.tile_height = rows;
            layout.row_bytes()
        });
        let tile_bytes = u64::from(grid.tile_width)
            .checked_mul(u64::from(grid.tile_height))
            .and_then(|n| n.checked_mul(spec.samples as u64))
            .and_then(|n| n.checked_mul(spec.sample.bytes() as u64));
        let blocks_are_tiles =
            (expected.block_width, expected.block_height) == (grid.tile_width, grid.tile_height);
        // A strip that GDAL asks for row by row is kept here, within the budget;
        // GTiff decodes it row by row. Others are decoded one by one.
        let most = match (blocks_are_tiles, cut.is_some()) {
            (true, false) => LARGEST_TILE,
            (true, true) => LARGEST_CUT,
            (false, false) => held as u64,
            // GTiff decodes a lone strip row by row, as it is asked for.
            (false, true) => return unsupported("a strip that GTiff shows row by row"),
        };
        if tile_bytes.is_none_or(|bytes| bytes > most) {
            return unsupported(format!("a tile or strip of more than {most} bytes"));
        }
        spec.width = grid.tile_width as usize;
        spec.height = grid.tile_height as usize;
        if let Some(offset) = expected.first_tile
            && striles.offsets(&*source, &[0])? != [offset]
        {
            return unsupported("an overview or mask whose file is not clear");
        }
        let spec = Arc::new(spec);
        let tiled = layout.tiled;
        let mut image = Image {
            ifd_offset,
            spec,
            grid,
            source,
            tiled,
            blocks_are_tiles,
            has_implicit_overviews: layout.compression == JPEG,
            cut: None,
            striles,
            leaders,
            sliced,
        };
        if layout.compression == LZW && old_style_lzw(&image)? {
            return unsupported("old-style LZW");
        }
        image.cut = cut.map(|excerpt| image.cut(excerpt, &layout, &ifd, expected)).transpose()?;
        Ok(image)
    }

    /// How tiles are cut out of the file, for an excerpt with their tags.
    fn cut(
        &self,
        mut excerpt: Excerpt,
        layout: &Layout,
        ifd: &Ifd,
        expected: &Expected,
    ) -> Result<Cut> {
        let mut sampling = None;
        if (layout.compression, layout.photometric) == (JPEG, YCBCR) {
            // As libtiff: what the tag says, and without one what the first tile says.
            let untold = ifd.find(tag::YCBCR_SUBSAMPLING).is_none();
            let first = if untold { self.first_sampling() } else { None };
            let told = first.map_or_else(|| tagged_sampling(ifd), Ok)?;
            excerpt.set_subsampling(told);
            sampling = Some(told);
        }
        let converted = is_converted(layout, expected);
        let (plain, jpeg) = (is_plain(layout, expected), layout.compression == JPEG);
        // With subsampled chroma rows are shorter.
        let is_stored = excerpt.is_uncompressed() && layout.photometric != YCBCR;
        let stored_row = is_stored.then(|| layout.row_bytes());
        Ok(Cut { excerpt, sampling, converted, plain, jpeg, stored_row })
    }

    /// How the first tile, a JPEG stream, samples its chroma.
    fn first_sampling(&self) -> Option<gtiff::Sampling> {
        let job = self.job(Tile { column: 0, row: 0, plane: 0 }).ok()??;
        let mut start = vec![0; job.len.min(JPEG_START)];
        self.source.read_at(job.offset, &mut start).ok()?;
        gtiff::sampling(&start)
    }

    /// Whether its tiles are slices of one strip of the file.
    pub fn is_sliced(&self) -> bool {
        self.sliced.is_some()
    }

    /// Whether the window's part of a tile is read again as cheaply as it would be kept: it lies in a
    /// plain file just as it is wanted, and the system's cache has that. Not a thin one: a caller who
    /// goes by rows comes back for the next very often. Nor one of a window that is narrower than
    /// a tile, and more so than flat: for a caller who goes by columns most of the tile would be read
    /// each time.
    pub fn is_as_good_as_kept(&self, tile: Tile, window: &Rect) -> bool {
        let spec = &self.spec;
        let Some(part) = self.part(tile, window, spec.height) else { return false };
        let width = window.width as usize;
        let narrow = width < spec.width && width * spec.height < part.height * spec.width;
        spec.is_as_stored()
            && self.source.concurrent()
            && spec.span(&part).len() >= THIN_BYTES
            && !narrow
    }

    /// The window's part of a tile of which so many rows are stored.
    pub fn part(&self, tile: Tile, window: &Rect, rows: usize) -> Option<Part> {
        let rect = self.grid.rect(tile);
        let part = rect.intersect(window)?;
        let (x, y) = ((part.x - rect.x) as usize, (part.y - rect.y) as usize);
        let (width, height) = (part.width as usize, part.height as usize);
        (y + height <= rows).then_some(Part { x, y, width, height })
    }

    /// Rows that must be in a tile for GTiff to take it: those of the image, and in
    /// a tile higher than the image some more.
    fn stored_rows(&self, tile: Tile) -> usize {
        let (height, tile_height) = (u64::from(self.grid.height), u64::from(self.grid.tile_height));
        let bottom = (u64::from(tile.row) + 1) * tile_height;
        let padding = if bottom > height { bottom % height } else { 0 };
        (tile_height - padding) as usize
    }

    /// Tiles are about to be asked for: what a remote file holds of them is fetched in one go, with
    /// what lies between them.
    pub fn fetch(&self, tiles: &[Tile]) {
        let Some(leaders) = self.leaders.as_ref().filter(|_| !tiles.is_empty()) else { return };
        let ids = tiles.iter().map(|&tile| self.grid.index(tile));
        // What is wrong is told when the tiles are asked for.
        let Ok(ids) = memory::collect(ids, "tiles to be fetched") else { return };
        if let Ok(extents) = leaders.extents(&*self.source, &ids) {
            self.source.fetch(&extents);
        }
    }

    fn range(&self, index: u64) -> Result<Option<ByteRange>> {
        let found = self.leaders.as_ref().map(|leaders| leaders.locate(&*self.source, index));
        match found.transpose()? {
            Some(Found::At(ByteRange { offset, len })) => {
                self.striles.check(index, offset, len, self.source.len())
            }
            Some(Found::LeftOut) => Ok(None),
            Some(Found::Unknown) | None => self.striles.range(&*self.source, index),
        }
    }

    /// Where the tile's bytes are; `None` if the file leaves it out.
    pub fn job(&self, tile: Tile) -> Result<Option<TileJob>> {
        let id = self.grid.index(tile);
        let seen = self.grid.rect(tile);
        let rows = match self.spec.codec {
            // Stored without padding, some are.
            Codec::Jpeg2000(_) | Codec::Gtiff => seen.height as usize,
            _ => self.stored_rows(tile),
        };
        let (index, skip) = match self.sliced {
            // Slices are of the plane's only strip.
            Some(row) => (
                u64::from(tile.plane),
                row * u64::from(tile.row) * u64::from(self.grid.tile_height),
            ),
            None => (id, 0),
        };
        let Some(range) = self.range(index)? else {
            // GTiff, converting colours, has nothing to show for a tile that is left out.
            let fails = self.cut.as_ref().is_some_and(|cut| cut.converted && !cut.plain);
            let error = || Error::corrupt(format!("tile {id} is missing"), 0);
            return if fails { Err(error()) } else { Ok(None) };
        };
        let len = match self.sliced {
            Some(row) => {
                let len = row * rows as u64;
                if skip + len > range.len {
                    return Err(Error::corrupt(
                        format!("strip {index} has {} bytes and needs {}", range.len, skip + len),
                        range.offset,
                    ));
                }
                len
            }
            None => range.len,
        };
        let len = usize::try_from(len)
            .map_err(|_| Error::corrupt(format!("tile {id} of {len} bytes"), range.offset))?;
        let offset = range.offset + skip;
        let columns = seen.width as usize;
        Ok(Some(TileJob { id, offset, len, rows, columns, padded: self.tiled, part: None }))
    }
}

/// How many rows of a lone uncompressed strip are read at a time: as many as
/// GTiff shows in one block (libtiff cuts such strips too), or a few.
fn slice_height(spec: &TileSpec, layout: &Layout, expected: &Expected) -> Option<u32> {
    if spec.codec != Codec::None || layout.tiled || layout.tiles_down != 1 {
        return None;
    }
    if expected.block_width == layout.width && expected.block_height < layout.height {
        return Some(expected.block_height.max(1));
    }
    let rows = (SLICE_BYTES / layout.row_bytes().max(1)).clamp(1, 1 << 20) as u32;
    (layout.tile_bytes() > 2 * SLICE_BYTES).then_some(rows)
}

/// libtiff reads arrays whole, or not at all: where one leaves the file, GTiff decides,
/// although the entries that are wanted may be there.
fn arrays_inside(ifd: &Ifd, file_len: u64) -> Result<()> {
    use crate::tiff::tag::{STRIP_BYTE_COUNTS, STRIP_OFFSETS, TILE_BYTE_COUNTS, TILE_OFFSETS};
    for tag in [STRIP_OFFSETS, STRIP_BYTE_COUNTS, TILE_OFFSETS, TILE_BYTE_COUNTS] {
        let Some(entry) = ifd.find(tag) else { continue };
        if let Place::At(offset) = entry.place
            && entry.byte_len().and_then(|len| len.checked_add(offset)).is_none_or(|e| e > file_len)
        {
            return unsupported(format!("an array of tag {tag} that leaves the file"));
        }
    }
    Ok(())
}

fn old_style_lzw(image: &Image) -> Result<bool> {
    // Looked at on opening where that is cheap; elsewhere the decoder notices.
    if !image.source.concurrent() {
        return Ok(false);
    }
    let first = image.job(Tile { column: 0, row: 0, plane: 0 });
    let Ok(Some(TileJob { offset, len: 2.., .. })) = first else { return Ok(false) };
    let mut start = [0; 2];
    image.source.read_at(offset, &mut start)?;
    Ok(start[0] == 0 && start[1] & 1 == 1)
}

fn unsupported<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(what.into()))
}

/// What the tiles are like, if our own engines decode them.
fn own_spec(
    source: &dyn ByteSource,
    ifd: &Ifd,
    layout: &Layout,
    expected: &Expected,
) -> Result<TileSpec> {
    agree(layout, expected)?;
    let spec = spec(layout, expected)?;
    plain_colours(source, ifd, &spec)?;
    Ok(spec)
}

/// Values of Compression and PhotometricInterpretation.
const LZW: u16 = 5;
pub(super) const JPEG: u16 = 7;
pub(super) const YCBCR: u16 = 6;

/// The values of Compression whose tiles do not depend on each other: none, CCITT's, LZW, JPEG,
/// Deflate, PackBits, LERC, LZMA, ZSTD, WEBP, JXL. Old-style JPEG has its tables elsewhere in the file;
/// decoders of the last century's scanners remember what went wrong in the strip before.
const CUT: [u16; 15] =
    [1, 2, 3, 4, LZW, JPEG, 8, 32771, 32773, 32946, 34887, 34925, 50000, 50001, 50002];

/// GTiff shows other bands than the file has samples: what it makes of CMYK, CIELab and YCbCr.
fn is_converted(layout: &Layout, expected: &Expected) -> bool {
    expected.converted || u32::from(layout.samples_per_pixel) != expected.bands
}

/// GTiff shows the samples just as libtiff decodes them. Of JPEG's YCbCr libtiff makes RGB, where
/// GTiff told it to when the file was opened.
pub(super) fn is_plain(layout: &Layout, expected: &Expected) -> bool {
    let jpeg = layout.compression == JPEG;
    u32::from(layout.samples_per_pixel) == expected.bands
        && layout.bits_per_sample == 8 * u16::from(expected.sample_bytes)
        && layout.fill_order == 1
        && expected.converted == (layout.photometric == YCBCR)
        && (jpeg || !expected.converted)
}

/// What the tiles are like in memory, if they can be cut out of their file for GTiff to decode;
/// `why` our own engines don't.
pub(super) fn gtiff_spec(layout: &Layout, expected: &Expected, why: String) -> Result<TileSpec> {
    let bytes = expected.sample_bytes;
    let separate = layout.planar == Planar::Separate && layout.samples_per_pixel > 1;
    let conversion = is_converted(layout, expected) || layout.photometric == YCBCR;
    let cannot = !CUT.contains(&layout.compression)
        || (layout.width, layout.height) != (expected.width, expected.height)
        || expected.bit.is_some()
        || !matches!(bytes, 1 | 2 | 4 | 8 | 16)
        || separate && conversion
        // CONVERT_YCBCR_TO_RGB=NO when the file was opened: GTiff shows chroma as it is stored.
        || (layout.compression, layout.photometric) == (JPEG, YCBCR) && !expected.converted
        // An excerpt has its tags in order, and libtiff's swap depends on theirs.
        || !layout.bits_first && matches!(layout.sample_format, 5 | 6)
        || !separate && expected.bands > MOST_CUT_BANDS;
    if cannot {
        return unsupported(why);
    }
    Ok(TileSpec {
        codec: Codec::Gtiff,
        predictor: Predictor::None,
        sample: Sample::Whole { bytes, unit: bytes },
        samples: if separate { 1 } else { expected.bands as usize },
        width: 0,
        height: 0,
        swap: false,
    })
}

/// YCbCrSubSampling, which is 2 by 2 where nobody says anything.
pub(super) fn tagged_sampling(ifd: &Ifd) -> Result<gtiff::Sampling> {
    let numbers = ifd.numbers_of(tag::YCBCR_SUBSAMPLING, 2)?.unwrap_or(vec![2, 2]);
    Ok([numbers[0] as u8, numbers[1] as u8])
}

/// GTiff and the directory must tell the same story, or GTiff reads it.
fn agree(layout: &Layout, expected: &Expected) -> Result<()> {
    if expected.converted {
        return unsupported("colours that GTiff converts");
    }
    if (layout.width, layout.height) != (expected.width, expected.height)
        || u32::from(layout.samples_per_pixel) != expected.bands
    {
        return unsupported("an image that GTiff shows in another shape");
    }
    Ok(())
}

pub(super) fn spec(layout: &Layout, expected: &Expected) -> Result<TileSpec> {
    layout.refuse_conversions()?;
    if layout.fill_order != 1 {
        return unsupported("FillOrder 2");
    }
    let codec = codec(layout)?;
    Ok(TileSpec {
        codec,
        predictor: predictor(codec, layout)?,
        sample: sample(layout, expected)?,
        samples: layout.samples_in_tile().into(),
        width: 0,
        height: 0,
        swap: layout.byte_order != ByteOrder::NATIVE && !matches!(codec, Codec::Jpeg2000(_)),
    })
}

fn codec(layout: &Layout) -> Result<Codec> {
    Ok(match layout.compression {
        1 => Codec::None,
        5 => Codec::Lzw,
        8 | 32946 => Codec::Deflate,
        32773 => Codec::PackBits,
        50000 => Codec::Zstd,
        7 => return unsupported("JPEG"),
        compression if tag::is_jpeg2000(compression) => Codec::Jpeg2000(jpeg2000(layout)?),
        other => return unsupported(format!("compression {other}")),
    })
}

fn jpeg2000(layout: &Layout) -> Result<Kind> {
    let (bits, format) = (layout.bits_per_sample, layout.sample_format);
    let samples = layout.samples_in_tile();
    if !matches!(bits, 8 | 16) || !matches!(format, 1 | 2) || samples > 4 {
        return unsupported(format!(
            "JPEG 2000 with {samples} samples of {bits} bits and format {format}"
        ));
    }
    let ycbcr = layout.photometric == 6
        || layout.compression == tag::APERIO_YCBCR && samples == 3 && layout.photometric == 2;
    if ycbcr && (samples, bits, format) != (3, 8, 1) {
        return unsupported(format!("JPEG 2000 with {samples} samples of YCbCr in {bits} bits"));
    }
    Ok(Kind { signed: format == 2, ycbcr })
}

/// YCbCr is converted as JFIF has it; other coefficients and levels are refused.
fn plain_colours(source: &dyn ByteSource, ifd: &Ifd, spec: &TileSpec) -> Result<()> {
    let Codec::Jpeg2000(Kind { ycbcr: true, .. }) = spec.codec else { return Ok(()) };
    let usual: [(u16, &[f64]); 2] = [
        (tag::YCBCR_COEFFICIENTS, &[0.299, 0.587, 0.114]),
        (tag::REFERENCE_BLACK_WHITE, &[0., 255., 128., 255., 128., 255.]),
    ];
    for (tag, usual) in usual {
        let found = ifd.rationals(source, tag, usual.len() as u64)?;
        let close = |(found, usual): (&f64, &f64)| (found - usual).abs() < 1e-3;
        if found.is_some_and(|f| f.len() != usual.len() || !f.iter().zip(usual).all(close)) {
            return unsupported(format!("YCbCr with unusual values of tag {tag}"));
        }
    }
    Ok(())
}

fn predictor(codec: Codec, layout: &Layout) -> Result<Predictor> {
    // libtiff knows the tag only with these codecs and ignores it elsewhere.
    if !matches!(codec, Codec::Lzw | Codec::Deflate | Codec::Zstd) {
        return Ok(Predictor::None);
    }
    let bits = layout.bits_per_sample;
    match layout.predictor {
        1 => Ok(Predictor::None),
        2 if matches!(bits, 8 | 16 | 32 | 64) => Ok(Predictor::Horizontal),
        3 if matches!(bits, 16 | 32 | 64) && layout.sample_format == 3 => {
            Ok(Predictor::FloatingPoint)
        }
        other => unsupported(format!("predictor {other} with {bits}-bit samples")),
    }
}

fn sample(layout: &Layout, expected: &Expected) -> Result<Sample> {
    let bits = layout.bits_per_sample;
    if bits == 1 {
        return match expected.bit {
            Some(on) => Ok(Sample::Bit { on }),
            None => unsupported("1-bit samples"),
        };
    }
    let bytes = expected.sample_bytes;
    if bits != u16::from(bytes) * 8 || !matches!(bytes, 1 | 2 | 4 | 8 | 16) {
        return unsupported(format!("{bits}-bit samples of format {}", layout.sample_format));
    }
    // Sample formats 5 and 6 are complex: two numbers in one sample. Their bytes are swapped as
    // libtiff does it, which knows these sizes only, and these only if BitsPerSample comes first.
    let complex = matches!(layout.sample_format, 5 | 6);
    if complex && bytes == 1 || !complex && bytes == 16 {
        return unsupported(format!("{bits}-bit samples of format {}", layout.sample_format));
    }
    let unit = match (layout.sample_format, bytes) {
        (_, 16) => 8,
        (5, 4) | (5 | 6, 8) if layout.bits_first => bytes / 2,
        _ => bytes,
    };
    Ok(Sample::Whole { bytes, unit })
}
