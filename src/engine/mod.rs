//! The contract between the batching layer and whatever decodes and encodes tiles.
//!
//! A [`Batch`] names tiles of one kind and where their bytes are. An engine
//! first *stages* it (asks for the bytes, all of them before it waits for the
//! first one) and then *decodes* it into a [`PixelSink`]. Staging the next batch
//! overlaps decoding of this one. Staging memory belongs to the engine, since
//! only it knows what memory it can decode from (a worker's cache, pinned memory).
//!
//! The other way, a [`PixelBatch`] names tiles to be *encoded*: the engine fetches
//! each tile's pixels from a [`PixelSource`] into memory of its own and comes back
//! with all of them [`Packed`] in one buffer.
//!
//! Invariants: a sink gets whole tiles or nothing of them, each at most once; a
//! tile that was not delivered has an error in the result; a source is asked for
//! each tile once, and a batch is packed whole or not at all; packed bytes depend
//! on the tile's pixels, the spec and the level, and on nothing else; no engine
//! knows what a pixel is for. Absent from here: GDAL, files, and the names of engines.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

pub mod auto;
pub mod cpu;
pub mod cuda;
pub mod gtiff;
pub mod interleave;
pub mod jpeg2000;
pub mod select;

/// How the bytes of a tile are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Samples as they are.
    None,
    /// TIFF 5, MSB first.
    Lzw,
    /// TIFF 8 and 32946: a zlib stream.
    Deflate,
    /// TIFF 32773.
    PackBits,
    /// TIFF 50000.
    Zstd,
    /// TIFF 34712, 33003 and 33005: a codestream, or a JP2 file.
    Jpeg2000(jpeg2000::Kind),
    /// One that only GDAL has: these tiles have an engine of their own, [`gtiff`].
    Gtiff,
}

/// What was done to the samples before they were packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Predictor {
    /// Nothing.
    None,
    /// Differences to the pixel on the left (TIFF predictor 2).
    Horizontal,
    /// Byte planes of floating-point numbers, differenced (TIFF predictor 3).
    FloatingPoint,
}

/// How one stored sample becomes one sample in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sample {
    /// `bytes` bytes in one sample (1, 2, 4, 8 or 16); byte order is undone in
    /// units of `unit` bytes, which is half of `bytes` for complex numbers.
    Whole {
        /// Bytes of the sample.
        bytes: u8,
        /// Bytes of what is swapped as one number.
        unit: u8,
    },
    /// One bit, expanded to a byte that is 0 or `on`. Rows begin at bytes.
    Bit {
        /// The byte for a set bit.
        on: u8,
    },
}

impl Sample {
    /// Bytes of one sample in memory.
    pub fn bytes(self) -> usize {
        match self {
            Sample::Whole { bytes, .. } => usize::from(bytes),
            Sample::Bit { .. } => 1,
        }
    }
}

/// What all tiles of a batch have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TileSpec {
    /// How tiles are packed.
    pub codec: Codec,
    /// What was done before packing.
    pub predictor: Predictor,
    /// The samples.
    pub sample: Sample,
    /// Samples of a pixel inside one tile: all of them in a contiguous image,
    /// one where each plane has its own tiles.
    pub samples: usize,
    /// Stored width in pixels, padding included.
    pub width: usize,
    /// Stored height in pixels; a bottom strip may have fewer.
    pub height: usize,
    /// The file's byte order is not this machine's.
    pub swap: bool,
}

impl TileSpec {
    /// Bytes of one stored row, unpacked.
    pub fn stored_row_bytes(&self) -> usize {
        match self.sample {
            Sample::Whole { bytes, .. } => self.width * self.samples * usize::from(bytes),
            Sample::Bit { .. } => (self.width * self.samples).div_ceil(8),
        }
    }

    /// Bytes of one row in memory.
    pub fn row_bytes(&self) -> usize {
        self.width * self.samples * self.sample.bytes()
    }

    /// Bytes of a whole tile in memory. Checked when the spec is made from a file.
    pub fn tile_bytes(&self) -> usize {
        self.row_bytes() * self.height
    }

    /// Samples are stored just as they are in memory.
    pub fn is_as_stored(&self) -> bool {
        self.codec == Codec::None && !self.swap && matches!(self.sample, Sample::Whole { .. })
    }

    /// Where a part begins and ends in a tile in memory, what lies between its rows included.
    pub fn span(&self, part: &Part) -> Range<usize> {
        let pixel = self.samples * self.sample.bytes();
        let first = part.y * self.row_bytes() + part.x * pixel;
        first..first + part.height.saturating_sub(1) * self.row_bytes() + part.width * pixel
    }
}

/// One tile of a batch.
#[derive(Debug, Clone, Copy)]
pub struct TileJob {
    /// What the sink and the caller know the tile by.
    pub id: u64,
    /// First byte in the source.
    pub offset: u64,
    /// Bytes in the source.
    pub len: usize,
    /// Rows that must be there; rows below are padding and may be missing.
    pub rows: usize,
    /// Columns that are no padding.
    pub columns: usize,
    /// Padding is likely to be stored, as in tiles; in bottom strips it is not.
    pub padded: bool,
    /// All that the sink will look at; `None` for the whole tile. An engine may deliver more.
    pub part: Option<Part>,
}

/// A rectangle of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Part {
    /// The first rows of a tile.
    pub fn rows(spec: &TileSpec, rows: usize) -> Part {
        Part { x: 0, y: 0, width: spec.width, height: rows }
    }
}

/// Tiles of one kind, to be decoded together.
#[derive(Clone)]
pub struct Batch {
    /// What they have in common.
    pub spec: Arc<TileSpec>,
    /// The tiles.
    pub tiles: Vec<TileJob>,
    /// Where their bytes are.
    pub source: Arc<dyn ByteSource>,
    /// How many threads may work on it.
    pub threads: usize,
}

/// Decoded pixels of one tile: rows of interleaved samples in native byte order.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// The rows: all of the tile's first ones, or those of the part that was asked for, the last of
    /// which may end where the part does.
    pub data: &'a [u8],
    /// Rows in `data`.
    pub rows: usize,
    /// Bytes from a row to the next.
    pub row_bytes: usize,
    /// The tile's column that `data` begins at.
    pub x: usize,
    /// The tile's row that `data` begins at.
    pub y: usize,
}

impl<'a> Pixels<'a> {
    /// The first rows of a tile, in their whole width.
    pub fn whole(data: &'a [u8], rows: usize, row_bytes: usize) -> Pixels<'a> {
        Pixels { data, rows, row_bytes, x: 0, y: 0 }
    }
}

/// Takes decoded tiles, from any thread.
pub trait PixelSink: Sync {
    /// The tile with this id. Called at most once for each.
    fn put(&self, id: u64, pixels: Pixels<'_>);

    /// For tiles that are stored as they are wanted: calls `read` with the memory that
    /// `bytes` of them belong in, instead of `put`, and says so; or does nothing. After a
    /// `read` that failed the tile counts as not delivered.
    fn take_as_stored(&self, _id: u64, _bytes: usize, _read: &mut dyn FnMut(&mut [u8])) -> bool {
        false
    }
}

/// A tile that could not be decoded.
#[derive(Debug, Clone)]
pub struct TileError {
    /// Which one.
    pub id: u64,
    /// Why.
    pub error: Error,
}

/// A batch whose bytes are on their way or here.
pub trait Staged: Send {
    /// Decodes the batch and delivers it. The tiles that failed come back with
    /// their reasons, and the sink never saw them.
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError>;
}

/// A zeroed buffer, or an error where the system has no memory for it.
pub(crate) fn allocate(bytes: usize, place: &'static str) -> Result<Vec<u8>> {
    memory::bytes(bytes, place)
}

/// A tile to be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelJob {
    /// What the source and the caller know the tile by.
    pub id: u64,
    /// Rows to be stored: all of the spec's, or fewer in a bottom strip.
    pub rows: usize,
    /// What of the tile lies inside the image; `None` for all of it. The rest is padding.
    pub inside: Option<Part>,
}

/// Tiles of one kind, to be encoded together.
#[derive(Debug, Clone)]
pub struct PixelBatch {
    /// What they have in common.
    pub spec: Arc<TileSpec>,
    /// How hard to try: libdeflate's 1 to 12 for Deflate, 1 to 22 for ZSTD.
    pub level: i32,
    /// The tiles.
    pub tiles: Vec<PixelJob>,
    /// How many threads may work on it.
    pub threads: usize,
}

/// Gives the pixels of tiles, to any thread.
pub trait PixelSource: Sync {
    /// Writes all of `tile`: the job's rows of interleaved samples in native byte order,
    /// padding included. Returns false if the tile shall be left out of the file.
    fn get(&self, id: u64, tile: &mut [u8]) -> bool;
}

/// Encoded tiles: pieces of one buffer, in the order of the batch. Kept from batch to
/// batch, so that its memory is allocated once.
#[derive(Debug, Clone, Default)]
pub struct Packed {
    /// The buffer.
    pub bytes: Vec<u8>,
    /// Where each tile of the batch is in it; empty for a tile that was left out.
    pub tiles: Vec<Range<usize>>,
}

/// What an engine has to say of its work.
#[derive(Debug, Clone, Default)]
pub struct EngineReport {
    /// What is at work and why, where that was not known from the start.
    pub reason: Option<String>,
    /// Names and values.
    pub counters: Vec<(&'static str, u64)>,
}

/// Something that decodes and encodes batches.
pub trait Engine: Send + Sync {
    /// The name users see.
    fn name(&self) -> &'static str;

    /// Bytes of pixels that make a good batch, at most `limit`.
    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize;

    /// Bytes of pixels that make a good batch to encode; several of them are in memory at once, and
    /// all of them together should not be much more than `limit`.
    fn encode_appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        self.appetite(spec, (limit / 4).max(1))
    }

    /// How many batches should be on their way to be encoded.
    fn encodes(&self) -> usize {
        1
    }

    /// How many batches should be staged beyond the one that is being decoded.
    fn ahead(&self) -> usize {
        1
    }

    /// Whether tiles of this source can be read as the user demands; an error says why not.
    fn admit(&self, _source: &Arc<dyn ByteSource>) -> Result<()> {
        Ok(())
    }

    /// Whether of a tile that lies in a plain file as it is wanted no more than the wanted part is
    /// read, so that it is as cheap to come back for the rest as to have kept it.
    fn reads_parts(&self) -> bool {
        false
    }

    /// Whether a batch of one tile is decoded on the thread that asks, at no extra cost: then it may be
    /// decoded right before it is encoded again.
    fn decodes_singly(&self) -> bool {
        false
    }

    /// Told how many bytes of pixels the raster has, before the first batch.
    fn expect(&self, _pixel_bytes: u64) {}

    /// What it did so far.
    fn report(&self) -> EngineReport {
        EngineReport::default()
    }

    /// What users should be told since this was last asked; each thing is told once.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Asks for the batch's bytes. Where the source is cheap to read from several
    /// threads this only announces them; else it reads them in one request.
    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>>;

    /// Decodes one tile on this thread and delivers it.
    fn decode_tile(
        &self,
        spec: &Arc<TileSpec>,
        source: &Arc<dyn ByteSource>,
        job: TileJob,
        sink: &dyn PixelSink,
    ) -> Result<()> {
        let (spec, source) = (Arc::clone(spec), Arc::clone(source));
        let failed = self.stage(Batch { spec, tiles: vec![job], source, threads: 1 })?.decode(sink);
        failed.into_iter().next().map_or(Ok(()), |failed| Err(failed.error))
    }

    /// Encodes the batch into `packed`, whatever that held before.
    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()>;
}
