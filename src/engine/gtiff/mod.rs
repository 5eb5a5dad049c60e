//! Codecs that only GDAL has: JPEG, WEBP, LERC, LZMA, JXL, CCITT, odd bit depths, YCbCr.
//!
//! A worker cuts tiles out of their file as a small TIFF in memory ([`Excerpt`]) and has GDAL's
//! plain GTiff driver read that. The file itself is never opened a second time. Whoever knows GDAL
//! hands the reader in ([`provide`]).
//!
//! Invariant: a tile is delivered only if GTiff said nothing about it, not even a warning. Every
//! other tile is an error, and the dataset that has the file open says what GTiff makes of it.
#![forbid(unsafe_code)]

pub mod encode;
mod jpeg;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

pub use self::jpeg::{Sampling, sampling};

use super::cpu::{self, Bytes};
use super::interleave::interleave;
use super::{
    Batch, Engine, Packed, PixelBatch, PixelSink, PixelSource, Pixels, Staged, TileError, TileJob,
    TileSpec, allocate,
};
use crate::error::{Error, Result};
use crate::process::pool;
use crate::tiff::Excerpt;

/// Tiles of so many bytes of pixels are read together, so that they do not each pay for opening a
/// dataset: 45 µs, where a tile of 256 x 256 pixels of JPEG takes 300.
const GROUP_BYTES: usize = 1 << 20;
/// Tiles of one excerpt.
const GROUP_TILES: usize = 256;
/// Excerpts for each thread, at least, so that no thread waits long for another.
const GROUPS: usize = 2;
/// Scratch larger than this is given back when the task is done.
const KEEP_BYTES: usize = 8 << 20;

/// What GTiff is asked to read: all of a TIFF in memory.
pub struct Order<'a> {
    /// The TIFF.
    pub file: &'a [u8],
    /// Columns of the image.
    pub width: usize,
    /// Rows of the image.
    pub height: usize,
    /// Bands.
    pub bands: usize,
    /// GDAL's number for the type of the samples.
    pub kind: u32,
    /// Bytes of a sample.
    pub sample_bytes: usize,
    /// Where samples go: all of a band, row by row, then those of the next.
    pub samples: &'a mut [u8],
}

/// Reads, on any thread, or tells what GTiff said.
pub type Reader = fn(Order<'_>) -> std::result::Result<(), String>;

static READER: OnceLock<Reader> = OnceLock::new();

/// Hands in the reader of this process; the first one stays.
pub fn provide(reader: Reader) {
    let _ = READER.set(reader);
}

/// How the tiles of one directory are cut out of their file.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The tags.
    pub excerpt: Excerpt,
    /// The chroma sampling that every JPEG tile must have; libtiff takes that of the first tile.
    pub sampling: Option<Sampling>,
    /// GTiff converts colours, and does not look at the columns of a tile beyond the image.
    pub converted: bool,
}

/// The engine for one directory.
#[derive(Debug, Clone)]
pub struct GtiffEngine {
    cut: Cut,
    kind: u32,
}

impl GtiffEngine {
    /// An engine for tiles that are cut so, whose samples have GDAL's type `kind`.
    pub fn new(cut: Cut, kind: u32) -> GtiffEngine {
        GtiffEngine { cut, kind }
    }
}

impl Engine for GtiffEngine {
    fn name(&self) -> &'static str {
        "GTIFF"
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        cpu::CpuEngine.appetite(spec, limit)
    }

    fn decodes_singly(&self) -> bool {
        true
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        let bytes = cpu::stage(&batch)?;
        Ok(Box::new(Work { engine: self.clone(), batch, bytes }))
    }

    fn encode(&self, _: &PixelBatch, _: &dyn PixelSource, _: &mut Packed) -> Result<()> {
        Err(Error::Unsupported("encoding by a reader".into()))
    }
}

/// A batch on its way.
struct Work {
    engine: GtiffEngine,
    batch: Batch,
    bytes: Bytes,
}

/// A thread's memory, kept from task to task.
#[derive(Default)]
struct Scratch {
    file: Vec<u8>,
    bands: Vec<u8>,
    pixels: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Vec<Scratch>> = RefCell::default();
}

impl Scratch {
    /// Lends this thread's scratch; a sink that comes back on the same thread gets another.
    fn with<T>(use_it: impl FnOnce(&mut Scratch) -> T) -> T {
        SCRATCH.with(|idle| {
            let mut scratch = idle.borrow_mut().pop().unwrap_or_default();
            let result = use_it(&mut scratch);
            for buffer in [&mut scratch.file, &mut scratch.bands, &mut scratch.pixels] {
                if buffer.capacity() > KEEP_BYTES {
                    *buffer = Vec::new();
                }
            }
            idle.borrow_mut().push(scratch);
            result
        })
    }
}

impl Staged for Work {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let runs = self.runs();
        let failures = Mutex::new(Vec::new());
        pool::run(self.batch.threads, runs.len(), &|i| {
            let mut failed = Vec::new();
            Scratch::with(|scratch| self.decode_run(scratch, runs[i].clone(), sink, &mut failed));
            if !failed.is_empty() {
                failures.lock().unwrap_or_else(|e| e.into_inner()).append(&mut failed);
            }
        });
        failures.into_inner().unwrap_or_else(|e| e.into_inner())
    }
}

impl Work {
    /// Tiles that fit on top of each other in one image: all but the last are whole.
    fn runs(&self) -> Vec<Range<usize>> {
        let (tiles, spec) = (&self.batch.tiles, &self.batch.spec);
        let share = tiles.len() / (GROUPS * self.batch.threads.max(1));
        let most = (GROUP_BYTES / spec.tile_bytes().max(1)).min(share).clamp(1, GROUP_TILES);
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, tile) in tiles.iter().enumerate() {
            let follows = |run: &&mut Range<usize>| {
                let above = &tiles[run.end - 1];
                let alike = above.columns == tile.columns || !self.engine.cut.converted;
                run.len() < most && above.rows == spec.height && alike
            };
            match runs.last_mut().filter(follows) {
                Some(run) => run.end = i + 1,
                None => runs.push(i..i + 1),
            }
        }
        runs
    }

    /// Decodes tiles together, or, if something is wrong with one of them, each by itself.
    fn decode_run(
        &self,
        scratch: &mut Scratch,
        run: Range<usize>,
        sink: &dyn PixelSink,
        failed: &mut Vec<TileError>,
    ) {
        match self.try_run(scratch, run.clone(), sink) {
            Ok(()) => {}
            Err(error) if run.len() == 1 => {
                failed.push(TileError { id: self.batch.tiles[run.start].id, error });
            }
            Err(_) => run.for_each(|i| self.decode_run(scratch, i..i + 1, sink, failed)),
        }
    }

    fn try_run(
        &self,
        scratch: &mut Scratch,
        run: Range<usize>,
        sink: &dyn PixelSink,
    ) -> Result<()> {
        let tiles = &self.batch.tiles[run.clone()];
        let spec = &*self.batch.spec;
        let first = &tiles[0];
        let height: usize = tiles.iter().map(|tile| tile.rows).sum();
        let width = if self.engine.cut.converted { first.columns } else { spec.width };
        self.gather(scratch, run, [width, spec.height.min(height), height].map(|n| n as u32))?;
        let sample_bytes = spec.sample.bytes();
        let bands = room(&mut scratch.bands, spec.samples * sample_bytes * width * height)?;
        let failed = |what: String| Error::corrupt(format!("GTiff says '{what}'"), first.offset);
        let read = READER.get().ok_or_else(|| failed("no reader".into()))?;
        let (kind, file) = (self.engine.kind, &*scratch.file);
        let samples = &mut *bands;
        read(Order { file, width, height, bands: spec.samples, kind, sample_bytes, samples })
            .map_err(failed)?;
        let pixels = side_by_side(spec, [width, height], bands, &mut scratch.pixels)?;
        let mut rest = pixels;
        for tile in tiles {
            let (data, after) = rest.split_at(tile.rows * spec.row_bytes());
            sink.put(tile.id, Pixels::whole(data, tile.rows, spec.row_bytes()));
            rest = after;
        }
        Ok(())
    }

    /// Makes the excerpt: width, rows of a strip, and height of the image.
    fn gather(
        &self,
        scratch: &mut Scratch,
        run: Range<usize>,
        [width, rows, height]: [u32; 3],
    ) -> Result<()> {
        let tiles = &self.batch.tiles[run.clone()];
        let lens: Vec<usize> = tiles.iter().map(|tile| tile.len).collect();
        let front = self.engine.cut.excerpt.front([width, rows, height], &lens)?;
        let bytes = front.len() + lens.iter().sum::<usize>();
        scratch.file.clear();
        scratch
            .file
            .try_reserve(bytes)
            .map_err(|_| Error::OutOfMemory { bytes: bytes as u64, place: "a compressed tile" })?;
        scratch.file.extend_from_slice(&front);
        scratch.file.resize(bytes, 0);
        let mut rest = &mut scratch.file[front.len()..];
        for (i, tile) in run.zip(tiles) {
            let (slot, after) = rest.split_at_mut(tile.len);
            self.bytes.copy(&self.batch, i, slot)?;
            self.check_sampling(tile, slot)?;
            rest = after;
        }
        Ok(())
    }

    fn check_sampling(&self, tile: &TileJob, bytes: &[u8]) -> Result<()> {
        let wanted = self.engine.cut.sampling;
        if wanted.is_some() && sampling(bytes) != wanted {
            return Err(Error::corrupt(
                "JPEG: chroma of another size than in the first tile",
                tile.offset,
            ));
        }
        Ok(())
    }
}

/// The first `bytes` of a buffer that is made larger if need be.
fn room(buffer: &mut Vec<u8>, bytes: usize) -> Result<&mut [u8]> {
    if buffer.len() < bytes {
        *buffer = Vec::new();
        *buffer = allocate(bytes, "a tile")?;
    }
    Ok(&mut buffer[..bytes])
}

/// Rows of whole tiles, padding included, with the samples of a pixel side by side. GDAL would do it
/// at a tenth of the pace.
fn side_by_side<'a>(
    spec: &TileSpec,
    [width, height]: [usize; 2],
    bands: &'a [u8],
    pixels: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    if spec.samples == 1 && width == spec.width {
        return Ok(bands);
    }
    let (unit, row_bytes) = (spec.sample.bytes(), spec.row_bytes());
    let pixels = room(pixels, height * row_bytes)?;
    if width == spec.width {
        let planes: Vec<&[u8]> = bands.chunks_exact(width * height * unit).collect();
        interleave(&planes, spec.samples, unit, pixels);
        return Ok(pixels);
    }
    pixels.fill(0);
    for (y, row) in pixels.chunks_exact_mut(row_bytes).enumerate() {
        let planes = bands.chunks_exact(width * height * unit);
        let planes: Vec<&[u8]> = planes.map(|p| &p[y * width * unit..][..width * unit]).collect();
        interleave(&planes, spec.samples, unit, &mut row[..width * spec.samples * unit]);
    }
    Ok(pixels)
}
