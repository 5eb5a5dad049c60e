//! A small TIFF in memory that holds some tiles of another file, one above the other.
//!
//! Its directory has the tags of the other file's that say how a tile is decoded, and none of the
//! rest. The tiles may lie anywhere in the other file: a tile is decoded on its own. Refuses to
//! decode anything, and to know who will.
//!
//! Invariant: the tiles' bytes follow the [`Excerpt::front`] without a gap, and the whole is a
//! classic TIFF in the byte order of the file that the tiles are from.

use super::directory::{Directory, RESERVED, Strile, lay_out};
use super::header::Header;
use super::ifd::Ifd;
use super::layout::{Layout, Planar};
use super::tag::{self, kind};
use crate::error::{Error, Result};
use crate::io::ByteSource;

/// The tags that matter to a decoder, besides sizes and places.
const KEPT: [u16; 20] = [
    tag::BITS_PER_SAMPLE,
    tag::COMPRESSION,
    tag::PHOTOMETRIC,
    tag::FILL_ORDER,
    tag::ORIENTATION,
    tag::SAMPLES_PER_PIXEL,
    tag::PLANAR_CONFIGURATION,
    tag::T4_OPTIONS,
    tag::T6_OPTIONS,
    tag::PREDICTOR,
    tag::TILE_WIDTH,
    tag::TILE_LENGTH,
    tag::INK_SET,
    tag::EXTRA_SAMPLES,
    tag::SAMPLE_FORMAT,
    tag::JPEG_TABLES,
    tag::YCBCR_COEFFICIENTS,
    tag::YCBCR_SUBSAMPLING,
    tag::REFERENCE_BLACK_WHITE,
    tag::LERC_PARAMETERS,
];

/// No value of these tags is larger in a file that somebody wrote.
const MOST_VALUE: u64 = 1 << 20;

/// Colours by number: the samples are shown as they are, and the table is not needed.
const PALETTE: u16 = 3;
const MIN_IS_BLACK: u16 = 1;
/// A value of ExtraSamples.
const UNASSOCIATED_ALPHA: u16 = 2;

/// What all excerpts of one directory have in common.
#[derive(Debug, Clone)]
pub struct Excerpt {
    directory: Directory,
    tiled: bool,
}

impl Excerpt {
    /// For the tiles of a directory. Of separate planes every tile becomes an image of one sample.
    pub fn new(
        source: &dyn ByteSource,
        header: &Header,
        ifd: &Ifd,
        layout: &Layout,
    ) -> Result<Excerpt> {
        let mut directory = Directory::take_some(source, header, ifd, &KEPT, MOST_VALUE)?;
        if layout.photometric == PALETTE {
            directory.set(tag::PHOTOMETRIC, kind::SHORT, MIN_IS_BLACK.into());
        }
        if layout.planar == Planar::Separate && layout.samples_per_pixel > 1 {
            directory.set(tag::SAMPLES_PER_PIXEL, kind::SHORT, 1);
            directory.set(tag::PLANAR_CONFIGURATION, kind::SHORT, 1);
            directory.set(tag::BITS_PER_SAMPLE, kind::SHORT, layout.bits_per_sample.into());
            directory.set(tag::SAMPLE_FORMAT, kind::SHORT, layout.sample_format.into());
            directory.set(tag::PHOTOMETRIC, kind::SHORT, layout.photometric.min(1).into());
            directory.remove(tag::EXTRA_SAMPLES);
        }
        Ok(Excerpt { directory, tiled: layout.tiled })
    }

    /// The first tag, but for those of `ignored`, that says something else in the other.
    pub fn difference(&self, other: &Excerpt, ignored: &[u16]) -> Option<u16> {
        if self.tiled != other.tiled {
            return Some(tag::TILE_WIDTH);
        }
        self.directory.difference(&other.directory, ignored)
    }

    /// Whether it has tiles rather than strips.
    pub fn is_tiled(&self) -> bool {
        self.tiled
    }

    /// Whether the last sample is alpha that the others were not multiplied by: LERC makes a mask of it.
    pub fn ends_with_alpha(&self) -> bool {
        let number = |tag| self.directory.last_short(tag).unwrap_or(1);
        // libtiff's count for kinds of images; samples beyond those and ExtraSamples are no alpha.
        let colours = match number(tag::PHOTOMETRIC) {
            0 | 1 | 3 | 4 => 1,
            2 | 6 | 8..=10 => 3,
            _ => 4,
        };
        let extra = self.directory.count(tag::EXTRA_SAMPLES);
        usize::from(number(tag::SAMPLES_PER_PIXEL)) <= colours + extra
            && self.directory.last_short(tag::EXTRA_SAMPLES) == Some(UNASSOCIATED_ALPHA)
    }

    /// Whether tiles are stored as they are.
    pub fn is_uncompressed(&self) -> bool {
        self.directory.last_short(tag::COMPRESSION).is_none_or(|compression| compression == 1)
    }

    /// How many samples of luma stand for one of chroma, across and down.
    pub fn set_subsampling(&mut self, [across, down]: [u8; 2]) {
        self.directory.set_list(tag::YCBCR_SUBSAMPLING, kind::SHORT, &[across.into(), down.into()]);
    }

    /// What stands before the tiles' bytes, for an image of some width and height, and strips
    /// (where the file has strips) of some rows.
    pub fn front(&self, [width, rows, height]: [u32; 3], lens: &[usize]) -> Result<Vec<u8>> {
        let mut directory = self.directory.clone();
        directory.set(tag::IMAGE_WIDTH, kind::LONG, width.into());
        directory.set_height(height);
        if !self.tiled {
            directory.set(tag::ROWS_PER_STRIP, kind::LONG, rows.into());
        }
        // Once to know how long it is, and once with the places.
        let mut striles = vec![Strile::default(); lens.len()];
        directory.set_striles(striles.clone());
        let laid = lay_out(std::slice::from_ref(&directory), RESERVED, false)?;
        let mut at = RESERVED + laid.bytes.len() as u64;
        for (strile, &len) in striles.iter_mut().zip(lens) {
            let short = u32::try_from(len).ok().filter(|_| at + (len as u64) < u32::MAX.into());
            let len = short.ok_or_else(|| Error::Unsupported(format!("a tile of {len} bytes")))?;
            *strile = Strile { offset: at, len };
            at += u64::from(len);
        }
        directory.set_striles(striles);
        let laid = lay_out(std::slice::from_ref(&directory), RESERVED, false)?;
        let mut front = laid.header.to_vec();
        front.extend_from_slice(&laid.bytes);
        Ok(front)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Striles;
    use super::super::fixture::{Fixture, VARIANTS};
    use super::*;
    use crate::io::Memory;

    fn excerpt(fixture: &Fixture) -> Excerpt {
        let (file, at) = fixture.build();
        let header = Header::read(&file).unwrap();
        let ifd = Ifd::read(&file, &header, at).unwrap();
        let layout = Layout::new(&header, &ifd).unwrap();
        Excerpt::new(&file, &header, &ifd, &layout).unwrap()
    }

    fn reread(front: &[u8], tiles: &[&[u8]]) -> (Layout, Ifd, Vec<Vec<u8>>) {
        let file = Memory([front, &tiles.concat()].concat());
        let header = Header::read(&file).unwrap();
        let ifd = Ifd::read(&file, &header, header.first_ifd).unwrap();
        let layout = Layout::new(&header, &ifd).unwrap();
        let striles = Striles::new(&header, &ifd, &layout).unwrap();
        let bytes = |i| {
            let range = striles.range(&file, i).unwrap().unwrap();
            file.0[range.offset as usize..][..range.len as usize].to_vec()
        };
        let found = (0..tiles.len() as u64).map(bytes).collect();
        (layout, ifd, found)
    }

    #[test]
    fn tiles_are_found_one_above_the_other() {
        let tiles: [&[u8]; 3] = [b"first", b"second tile", b"3"];
        for variant in VARIANTS {
            let fixture = Fixture::tiled(variant).tag(tag::JPEG_TABLES, kind::UNDEFINED, &[7; 50]);
            let excerpt = excerpt(&fixture);
            let front = excerpt.front([32, 0, 40], &tiles.map(<[u8]>::len)).unwrap();
            let (layout, ifd, found) = reread(&front, &tiles);
            assert_eq!(found, tiles);
            assert_eq!((layout.tile_width, layout.width, layout.height), (32, 32, 40));
            assert_eq!(ifd.find(tag::JPEG_TABLES).unwrap().count, 50);
        }
    }

    #[test]
    fn strips_have_their_rows_and_planes_one_sample() {
        for variant in VARIANTS {
            let fixture = Fixture::new(variant)
                .tag(tag::IMAGE_WIDTH, kind::SHORT, &[100])
                .tag(tag::IMAGE_LENGTH, kind::SHORT, &[16])
                .tag(tag::BITS_PER_SAMPLE, kind::SHORT, &[12, 12, 12])
                .tag(tag::PHOTOMETRIC, kind::SHORT, &[2])
                .tag(tag::SAMPLES_PER_PIXEL, kind::SHORT, &[3])
                .tag(tag::ROWS_PER_STRIP, kind::SHORT, &[8])
                .tag(tag::PLANAR_CONFIGURATION, kind::SHORT, &[2])
                .tag(tag::EXTRA_SAMPLES, kind::SHORT, &[0]);
            let tiles: [&[u8]; 2] = [b"abcdefgh", b"ij"];
            let front = excerpt(&fixture).front([100, 8, 11], &[8, 2]).unwrap();
            let (layout, ifd, found) = reread(&front, &tiles);
            assert_eq!(found, tiles);
            assert_eq!((layout.tile_height, layout.height, layout.planes), (8, 11, 1));
            assert_eq!((layout.samples_per_pixel, layout.bits_per_sample), (1, 12));
            assert_eq!((layout.photometric, ifd.find(tag::EXTRA_SAMPLES)), (1, None));
        }
    }
}
