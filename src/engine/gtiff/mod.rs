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
use super::{
    Batch, Engine, Packed, PixelBatch, PixelSink, PixelSource, Pixels, Staged, TileError, TileJob,
    TileSpec, allocate,
};
use crate::error::{Error, Result};
use crate::process::pool;
use crate::tiff::Excerpt;

/// Tiles with fewer bytes of pixels are read together, so that strips of a few rows do not each pay
/// for opening a dataset.
const GROUP_BYTES: usize = 256 << 10;
/// Tiles of one excerpt.
const GROUP_TILES: usize = 256;
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
    /// Where pixels go: samples side by side.
    pub pixels: &'a mut [u8],
    /// Bytes from a row to the next.
    pub row_bytes: usize,
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
            for buffer in [&mut scratch.file, &mut scratch.pixels] {
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
        let most = (GROUP_BYTES / spec.tile_bytes().max(1)).clamp(1, GROUP_TILES);
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
        let bytes = height * spec.row_bytes();
        if scratch.pixels.len() < bytes {
            scratch.pixels = Vec::new();
            scratch.pixels = allocate(bytes, "a tile")?;
        }
        let pixels = &mut scratch.pixels[..bytes];
        if width < spec.width {
            pixels.fill(0);
        }
        let failed = |what: String| Error::corrupt(format!("GTiff says '{what}'"), first.offset);
        let read = READER.get().ok_or_else(|| failed("no reader".into()))?;
        read(Order {
            file: &scratch.file,
            width,
            height,
            bands: spec.samples,
            kind: self.engine.kind,
            sample_bytes: spec.sample.bytes(),
            pixels,
            row_bytes: spec.row_bytes(),
        })
        .map_err(failed)?;
        let mut rest = &*pixels;
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
