//! Encoding by codecs that only GDAL has: a worker has GDAL's plain GTiff driver write a small TIFF
//! in memory and takes the tiles' bytes out of it.
//!
//! Refuses to know GDAL: whoever does hands in the [`TileFiles`]. Invariants: a tile's bytes depend on
//! its pixels, its place in the image and the creation options alone; whatever fails in GTiff is the
//! batch's error; a tile file whose tags would have a tile decoded in another way than those of the
//! file to be written is an error too.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{GROUP_BYTES, GROUP_TILES, GtiffEngine, Scratch};
use crate::engine::{
    Batch, Engine, Packed, Part, PixelBatch, PixelJob, PixelSource, Staged, TileSpec, allocate,
};
use crate::error::{Cause, Error, Result};
use crate::io::ByteSource;
use crate::process::pool;
use crate::tiff::{Excerpt, Header, Ifd, Layout, Striles, tag};

/// Tiles with fewer bytes of pixels are written together: a third of the time of one JPEG tile of 256 by
/// 256 pixels goes into making and closing its file.
const RUN_BYTES: usize = 2 << 20;
/// As many files as that for each thread, so that all are busy to the end of a batch.
const RUNS_A_THREAD: usize = 4;

/// Values of Compression.
const JPEG: u16 = 7;
const LERC: u16 = 34887;
const JXL: u16 = 50002;

/// A TIFF to be written, of whose pixels some are given.
pub struct FileOrder<'a> {
    /// Columns and rows of the image.
    pub size: [usize; 2],
    /// The pixels that are given: whole tiles, as far as they lie inside the image.
    pub window: Part,
    /// Bands that are given.
    pub bands: usize,
    /// Of how many planes the file has, which one is given; `None`: the file has no other bands.
    pub plane: Option<(usize, usize)>,
    /// Bytes of a sample.
    pub sample_bytes: usize,
    /// The pixels of the window: samples side by side.
    pub pixels: &'a [u8],
    /// Bytes from a row to the next.
    pub row_bytes: usize,
}

/// Writes small TIFFs, on any thread.
pub trait TileFiles: Send + Sync {
    /// Writes one, shows its bytes to `take` and forgets it; or tells what GTiff said.
    fn write(&self, order: &FileOrder<'_>, take: &mut dyn FnMut(&[u8]) -> Result<()>)
    -> Result<()>;

    /// What GTiff warned of since this was last asked, each thing once.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Where the tiles of the image are, as far as GTiff treats them differently for it.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Columns and rows of the image.
    pub size: [usize; 2],
    /// Columns and rows of a tile.
    pub tile: [usize; 2],
    /// Tiles rather than strips.
    pub tiled: bool,
    /// Bands that have tiles of their own, or 1.
    pub planes: usize,
    /// A tile's bytes depend on which plane it is of.
    pub apart: bool,
}

/// The engine for one image that is being written.
#[derive(Clone)]
pub struct GtiffEncoder {
    reader: GtiffEngine,
    files: Arc<dyn TileFiles>,
    shape: Shape,
    compression: u16,
}

impl GtiffEncoder {
    /// An engine for an image of this shape and Compression; `reader` reads what was written, and
    /// knows the tags that the file will have. `Error::Unsupported` if a tile that GTiff writes on its
    /// own has other tags.
    pub fn new(
        reader: GtiffEngine,
        files: Arc<dyn TileFiles>,
        shape: Shape,
        compression: u16,
        spec: &TileSpec,
    ) -> Result<GtiffEncoder> {
        let encoder = GtiffEncoder { reader, files, shape, compression };
        encoder.try_out(spec)?;
        Ok(encoder)
    }

    /// Encodes the first rows of a tile of zeros.
    fn try_out(&self, spec: &TileSpec) -> Result<()> {
        let (row_bytes, width, height) = (spec.row_bytes(), spec.width, spec.height.min(16));
        let pixels = allocate(row_bytes.saturating_mul(height), "a tile")?;
        let order = FileOrder {
            size: [width, height],
            window: Part { x: 0, y: 0, width, height },
            bands: spec.samples,
            plane: self.shape.plane(0),
            sample_bytes: spec.sample.bytes(),
            pixels: &pixels,
            row_bytes,
        };
        let unsupported = |error: Error| Error::Unsupported(format!("a tile ({error})"));
        self.files
            .write(&order, &mut |file| self.open(file)?.tile(0).map(drop))
            .map_err(unsupported)
    }

    fn open<'a>(&self, file: &'a [u8]) -> Result<TileFile<'a>> {
        let source = Bytes(file);
        let header = Header::read(&source)?;
        let ifd = Ifd::read(&source, &header, header.first_ifd)?;
        let layout = Layout::new(&header, &ifd)?;
        let excerpt = Excerpt::new(&source, &header, &ifd, &layout)?;
        let wanted = &self.reader.cut.excerpt;
        if let Some(tag) = differing_tag(self.compression, wanted, &excerpt) {
            let what = format!("GTiff writes tag {tag} of a tile in another way than the file's");
            return Err(Error::File(Cause(what)));
        }
        let striles = Striles::new(&header, &ifd, &layout)?;
        Ok(TileFile { file, striles })
    }

    /// Tiles that are written on top of each other in one file: whole ones, of strips also a last one
    /// that is lower.
    fn runs(&self, batch: &PixelBatch) -> Vec<Range<usize>> {
        let fit = (RUN_BYTES / batch.spec.tile_bytes().max(1)).clamp(1, GROUP_TILES);
        let share = batch.tiles.len() / (RUNS_A_THREAD * batch.threads.max(1));
        // Small ones always pay.
        let least = (GROUP_BYTES / batch.spec.tile_bytes().max(1)).clamp(1, GROUP_TILES);
        let most = fit.min(share).max(least);
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, job) in batch.tiles.iter().enumerate() {
            let follows = |run: &&mut Range<usize>| {
                let above = &batch.tiles[run.end - 1];
                let is_whole = above.inside.is_none() && above.rows == batch.spec.height;
                let alike = self.shape.plane(above.id) == self.shape.plane(job.id);
                run.len() < most && is_whole && job.inside.is_none() && alike
            };
            match runs.last_mut().filter(follows) {
                Some(run) => run.end = i + 1,
                None => runs.push(i..i + 1),
            }
        }
        runs
    }

    fn encode_run(
        &self,
        batch: &PixelBatch,
        jobs: &[PixelJob],
        source: &dyn PixelSource,
        scratch: &mut Scratch,
        output: &Mutex<Output<'_>>,
        first: usize,
    ) -> Result<()> {
        let spec = &*batch.spec;
        let bytes: usize = jobs.iter().map(|job| job.rows * spec.row_bytes()).sum();
        if scratch.pixels.len() < bytes {
            scratch.pixels = Vec::new();
            scratch.pixels = allocate(bytes, "a tile")?;
        }
        // Those that are not left out, one above the other.
        let (mut kept, mut end, mut height) = (Vec::with_capacity(jobs.len()), 0, 0);
        for (i, job) in jobs.iter().enumerate() {
            let next = end + job.rows * spec.row_bytes();
            if source.get(job.id, &mut scratch.pixels[end..next]) {
                kept.push(first + i);
                height += job.inside.map_or(job.rows, |part| part.height);
                end = next;
            }
        }
        let Some(last) = kept.last() else { return Ok(()) };
        let width = batch.tiles[*last].inside.map_or(spec.width, |part| part.width);
        let window = Part { x: 0, y: 0, width, height };
        let (size, window, index) = match batch.tiles[*last].inside {
            Some(_) => self.shape.stand_in(self.compression, batch.tiles[*last].id, window),
            None => ([width, height], window, 0),
        };
        let plane = self.shape.plane(batch.tiles[*last].id);
        let tiles = |i: usize| size[i].div_ceil(self.shape.tile[i].max(1));
        let index = index + plane.map_or(0, |(plane, _)| plane * tiles(0) * tiles(1)) as u64;
        let order = FileOrder {
            size,
            window,
            bands: spec.samples,
            plane,
            sample_bytes: spec.sample.bytes(),
            pixels: &scratch.pixels[..end],
            row_bytes: spec.row_bytes(),
        };
        self.files.write(&order, &mut |file| {
            let file = self.open(file)?;
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            for (i, &tile) in kept.iter().enumerate() {
                output.put(tile, file.tile(index + i as u64)?)?;
            }
            Ok(())
        })
    }
}

/// Whether tiles that were encoded for one directory cannot stand in the other. What samples are
/// matters to JXL, and whether the last is alpha to LERC, which makes a mask of it.
pub fn outdates(compression: u16, before: &Excerpt, now: &Excerpt) -> bool {
    match compression {
        LERC => before.ends_with_alpha() != now.ends_with_alpha(),
        JXL => before.difference(now, &[]).is_some(),
        _ => false,
    }
}

/// A tag that a file of tiles has otherwise than the file that they are for.
fn differing_tag(compression: u16, one: &Excerpt, other: &Excerpt) -> Option<u16> {
    let ignored: &[u16] = if compression == JXL { &[] } else { &[tag::EXTRA_SAMPLES] };
    let mask = compression == LERC && one.ends_with_alpha() != other.ends_with_alpha();
    one.difference(other, ignored).or(mask.then_some(tag::EXTRA_SAMPLES))
}

/// What a batch becomes: the pieces in any order.
struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    tiles: &'a mut [Range<usize>],
}

impl Output<'_> {
    fn put(&mut self, tile: usize, bytes: &[u8]) -> Result<()> {
        let place = "a batch of encoded tiles";
        self.bytes
            .try_reserve(bytes.len())
            .map_err(|_| Error::OutOfMemory { bytes: bytes.len() as u64, place })?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.tiles[tile] = start..self.bytes.len();
        Ok(())
    }
}

/// A TIFF in memory that GTiff wrote.
struct TileFile<'a> {
    file: &'a [u8],
    striles: Striles,
}

impl<'a> TileFile<'a> {
    fn tile(&self, index: u64) -> Result<&'a [u8]> {
        let missing = || Error::File(Cause("GTiff wrote no bytes of a tile".into()));
        let range = self.striles.range(&Bytes(self.file), index)?.ok_or_else(missing)?;
        let (start, len) = (range.offset as usize, range.len as usize);
        self.file
            .get(start..start.saturating_add(len))
            .filter(|b| !b.is_empty())
            .ok_or_else(missing)
    }
}

/// Borrowed bytes as a source.
struct Bytes<'a>(&'a [u8]);

impl ByteSource for Bytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.0.get(start..start.saturating_add(buf.len())).ok_or_else(|| {
            let source = Cause(format!("the file ends at {}", self.0.len()));
            Error::Io { offset, len: buf.len() as u64, source }
        })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

impl Shape {
    fn tiles(&self) -> [usize; 2] {
        [0, 1].map(|i| self.size[i].div_ceil(self.tile[i].max(1)).max(1))
    }

    /// The plane of a tile and how many there are, if it matters which one it is.
    fn plane(&self, id: u64) -> Option<(usize, usize)> {
        let [across, down] = self.tiles();
        let numbered = self.apart && self.planes > 1;
        numbered.then(|| (id as usize / (across * down), self.planes))
    }

    /// A file in which GTiff pads one tile, which the image's edge cuts, as it would in the image: the
    /// file's size, where the tile's pixels are in it, and which tile of it that is.
    ///
    /// GDAL up to 3.9 repeats the last column and row of a JPEG tile only if its row has the number of
    /// the last *column* of tiles, or its column that of the last row. All others it pads with zeros,
    /// and the lossy codec lets that show in pixels of the image. So the tile gets a place in a small
    /// image that is, in all of this, like its place in the large one.
    fn stand_in(&self, compression: u16, id: u64, window: Part) -> ([usize; 2], Part, u64) {
        let alone = ([window.width, window.height], window, 0);
        if compression != JPEG || !self.tiled {
            return alone;
        }
        let count = self.tiles();
        let within = id as usize % (count[0] * count[1]);
        let place = [within % count[0], within / count[0]];
        let wanted = likeness(count, place);
        let Some((count, place)) = small_places().find(|&(c, p)| likeness(c, p) == wanted) else {
            return alone;
        };
        // The last tiles of the small image are cut as those of the large one are.
        let size = [0, 1].map(|i| {
            let last = self.size[i] - (self.tiles()[i] - 1) * self.tile[i];
            (count[i] - 1) * self.tile[i] + last
        });
        let (x, y) = (place[0] * self.tile[0], place[1] * self.tile[1]);
        (size, Part { x, y, ..window }, (place[1] * count[0] + place[0]) as u64)
    }
}

/// Whether a tile is in the last column and the last row, and whether GTiff takes it for such.
fn likeness(count: [usize; 2], place: [usize; 2]) -> [bool; 4] {
    let is_last = |i: usize, j: usize| place[i] == count[j] - 1;
    [is_last(0, 0), is_last(1, 1), is_last(1, 0), is_last(0, 1)]
}

/// All places in images of up to three by three tiles, the smallest images first.
fn small_places() -> impl Iterator<Item = ([usize; 2], [usize; 2])> {
    let sizes = [[1, 1], [1, 2], [2, 1], [2, 2], [1, 3], [3, 1], [2, 3], [3, 2], [3, 3]];
    sizes.into_iter().flat_map(|count: [usize; 2]| {
        (0..count[0] * count[1]).map(move |i| (count, [i % count[0], i / count[0]]))
    })
}

impl Engine for GtiffEncoder {
    fn name(&self) -> &'static str {
        self.reader.name()
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        self.reader.appetite(spec, limit)
    }

    fn decodes_singly(&self) -> bool {
        self.reader.decodes_singly()
    }

    fn notices(&self) -> Vec<String> {
        self.files.warnings()
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        self.reader.stage(batch)
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        packed.bytes.clear();
        packed.tiles.clear();
        packed.tiles.resize(batch.tiles.len(), 0..0);
        let runs = self.runs(batch);
        let output = Mutex::new(Output { bytes: &mut packed.bytes, tiles: &mut packed.tiles });
        let (failed, failure) = (AtomicBool::new(false), Mutex::new(None));
        pool::run(batch.threads, runs.len(), &|i| {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            let (jobs, first) = (&batch.tiles[runs[i].clone()], runs[i].start);
            let done = Scratch::with(|scratch| {
                self.encode_run(batch, jobs, source, scratch, &output, first)
            });
            if let Err(error) = done {
                failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(error) => {
                packed.tiles.clear();
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_small_likeness() {
        for across in 1..7 {
            for down in 1..7 {
                for id in 0..across * down {
                    let (count, place) = ([across, down], [id % across, id / across]);
                    let found =
                        small_places().any(|(c, p)| likeness(c, p) == likeness(count, place));
                    assert!(found, "{place:?} of {count:?}");
                }
            }
        }
    }

    #[test]
    fn a_tile_at_the_edge_keeps_its_size() {
        let shape =
            Shape { size: [500, 300], tile: [64, 128], tiled: true, planes: 1, apart: false };
        let window = Part { x: 0, y: 0, width: 500 - 7 * 64, height: 128 };
        // The last column of the second row of eight.
        let (size, placed, index) = shape.stand_in(JPEG, 15, window);
        assert_eq!(size[0] % 64, 500 % 64);
        assert_eq!(size[1] % 128, 300 % 128);
        assert_eq!(placed.x + placed.width, size[0]);
        assert!(placed.y + placed.height < size[1]);
        assert_eq!(index as usize, placed.y / 128 * size[0].div_ceil(64) + placed.x / 64);
        assert_eq!(shape.stand_in(LERC, 15, window), ([window.width, 128], window, 0));
    }
}
