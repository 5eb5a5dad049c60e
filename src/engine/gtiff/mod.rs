//! Codecs that only GDAL has: JPEG, WEBP, LERC, LZMA, JXL, CCITT, odd bit depths, YCbCr.
//!
//! A worker cuts tiles out of their file as a small TIFF in memory ([`Excerpt`]) and has GDAL's
//! plain GTiff driver read that. The file itself is never opened a second time. Where GTiff would
//! show a tile's samples as libtiff decodes them, the small TIFF is opened once for many tiles, and
//! its libtiff handle decodes them ([`Decoder`]). Whoever knows GDAL hands both in ([`provide`]).
//!
//! Invariant: a tile is delivered only if GTiff said nothing about it, not even a warning. Every
//! other tile is an error, and the dataset that has the file open says what GTiff makes of it.
#![forbid(unsafe_code)]

mod decoders;
pub mod encode;
mod jpeg;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

pub use self::decoders::Decoder;
use self::decoders::{Likeness, Owner};
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

/// What a decoder is made of: a TIFF in memory that holds one tile.
pub struct Opening {
    /// The TIFF.
    pub file: Vec<u8>,
    /// Columns of the image.
    pub width: usize,
    /// Rows of the image.
    pub height: usize,
    /// Bands.
    pub bands: usize,
    /// GDAL's number for the type of the samples.
    pub kind: u32,
    /// A tile rather than a strip.
    pub tiled: bool,
    /// Bytes of the pixels of a whole tile.
    pub tile_bytes: usize,
}

/// Makes a decoder of any tile of the same directory and height, if it can.
pub type Opener = fn(Opening) -> Option<Box<dyn Decoder>>;

/// What only GDAL can do, on any thread.
pub struct Gdal {
    /// Reads, or tells what GTiff said.
    pub read: fn(Order<'_>) -> std::result::Result<(), String>,
    /// What opens decoders, if GDAL's libtiff can be called.
    pub opener: fn() -> Option<Opener>,
}

static GDAL: OnceLock<Gdal> = OnceLock::new();

/// Hands in the GDAL of this process; the first one stays.
pub fn provide(gdal: Gdal) {
    let _ = GDAL.set(gdal);
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
    /// GTiff shows samples just as libtiff decodes them.
    pub plain: bool,
    /// The codec is JPEG.
    pub jpeg: bool,
    /// Bytes of a row of a tile, if tiles are stored as they are.
    pub stored_row: Option<u64>,
}

/// The engine for one directory.
#[derive(Debug, Clone)]
pub struct GtiffEngine {
    cut: Cut,
    kind: u32,
    decoders: Arc<Owner>,
}

impl GtiffEngine {
    /// An engine for tiles that are cut so, whose samples have GDAL's type `kind`.
    pub fn new(cut: Cut, kind: u32) -> GtiffEngine {
        GtiffEngine { cut, kind, decoders: Arc::new(Owner::new()) }
    }

    /// What opens decoders of its tiles.
    fn opener(&self) -> Option<Opener> {
        GDAL.get().filter(|_| self.cut.plain).and_then(|gdal| (gdal.opener)())
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
        let most = match self.engine.opener() {
            Some(_) => 1,
            None => (GROUP_BYTES / spec.tile_bytes().max(1)).min(share).clamp(1, GROUP_TILES),
        };
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, tile) in tiles.iter().enumerate() {
            let follows = |run: &&mut Range<usize>| {
                let above = &tiles[run.end - 1];
                // Where uncompressed tiles differ in size, libtiff estimates: a short one would get bytes of
                // the next.
                let alike = (above.columns == tile.columns || !self.engine.cut.converted)
                    && (above.len == tile.len || !self.engine.cut.excerpt.is_uncompressed());
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
        let done = match self.engine.opener().filter(|_| run.len() == 1) {
            Some(opener) => self.try_tile(scratch, run.start, opener, sink),
            None => self.try_run(scratch, run.clone(), sink),
        };
        match done {
            Ok(()) => {}
            Err(error) if run.len() == 1 => {
                failed.push(TileError { id: self.batch.tiles[run.start].id, error });
            }
            Err(_) => run.for_each(|i| self.decode_run(scratch, i..i + 1, sink, failed)),
        }
    }

    /// Decodes a tile by a decoder that is kept.
    fn try_tile(
        &self,
        scratch: &mut Scratch,
        index: usize,
        opener: Opener,
        sink: &dyn PixelSink,
    ) -> Result<()> {
        let (tile, spec, engine) = (&self.batch.tiles[index], &*self.batch.spec, &self.engine);
        let height = if engine.cut.excerpt.is_tiled() { spec.height } else { tile.rows };
        let bytes = room(&mut scratch.file, tile.len)?;
        self.bytes.copy(&self.batch, index, bytes)?;
        self.check_bytes(tile, bytes)?;
        let tables = if engine.cut.jpeg { jpeg::tables(bytes) } else { Some(0) };
        let alike = tables
            .filter(|_| height * spec.row_bytes() <= KEEP_BYTES)
            .map(|tables| Likeness { height, tables });
        let kept = alike.and_then(|alike| engine.decoders.take(alike));
        let Some(mut decoder) = kept.or_else(|| self.open(opener, bytes, height)) else {
            return self.try_run(scratch, index..index + 1, sink);
        };
        // As GTiff: all of a tile, also where the image ends before it does.
        let pixels = room(&mut scratch.pixels, height * spec.row_bytes())?;
        // A WEBP stream narrower than its tile leaves the rest as it was, and says nothing.
        pixels.fill(0);
        decoder.decode(bytes, pixels).map_err(|what| says(&what, tile))?;
        if let Some(alike) = alike {
            engine.decoders.give(alike, decoder);
        }
        let rows = tile.rows.min(height);
        let inside = &pixels[..rows * spec.row_bytes()];
        sink.put(tile.id, Pixels::whole(inside, rows, spec.row_bytes()));
        Ok(())
    }

    /// A decoder of tiles of some height, made of the bytes of one.
    fn open(&self, opener: Opener, bytes: &[u8], height: usize) -> Option<Box<dyn Decoder>> {
        let (spec, excerpt) = (&*self.batch.spec, &self.engine.cut.excerpt);
        let size = [spec.width, height, height].map(|n| n as u32);
        let mut file = excerpt.front(size, &[bytes.len()]).ok()?;
        file.try_reserve_exact(bytes.len()).ok()?;
        file.extend_from_slice(bytes);
        opener(Opening {
            file,
            width: spec.width,
            height,
            bands: spec.samples,
            kind: self.engine.kind,
            tiled: excerpt.is_tiled(),
            tile_bytes: height * spec.row_bytes(),
        })
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
        let read = GDAL.get().ok_or_else(|| says("no reader", first))?.read;
        let (kind, file) = (self.engine.kind, &*scratch.file);
        let samples = &mut *bands;
        read(Order { file, width, height, bands: spec.samples, kind, sample_bytes, samples })
            .map_err(|what| says(&what, first))?;
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
            self.check_bytes(tile, slot)?;
            rest = after;
        }
        Ok(())
    }

    /// Refuses bytes of which libtiff would make something else alone than among others.
    fn check_bytes(&self, tile: &TileJob, bytes: &[u8]) -> Result<()> {
        // Of uncompressed tiles that are too short it estimates the sizes, and reads what follows.
        let cut = &self.engine.cut;
        let rows = if cut.excerpt.is_tiled() { self.batch.spec.height } else { tile.rows };
        if cut.stored_row.is_some_and(|row| (bytes.len() as u64) < row * rows as u64) {
            return Err(Error::corrupt("a tile that is too short", tile.offset));
        }
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

fn says(what: &str, tile: &TileJob) -> Error {
    Error::corrupt(format!("GTiff says '{what}'"), tile.offset)
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
