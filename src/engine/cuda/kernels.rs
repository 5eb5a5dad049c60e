//! Our kernels: what they are given, laid out as `kernels.cu` declares it.

use std::ffi::{CStr, c_void};

use super::driver::{Answer, Current, Function, Size, Stream};
use super::nvcomp::Tables;
use crate::engine::{Predictor, Sample, TileSpec};

/// Made from `kernels.cu` by `make kernels`.
const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("kernels.ptx"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a NUL inside kernels.ptx"),
    };

/// Shared memory that a block may have without asking for more.
const BLOCK_SHARED: usize = 40 << 10;
/// A warp has at least this much.
const WARP_SHARED: usize = 1 << 10;
/// Rows that a block works on at once.
const MOST_WARPS: usize = 8;
/// Blocks along the second dimension of a grid.
const MOST_BLOCKS_Y: usize = 65_535;

/// What all tiles of a batch have in common.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    width: u32,
    height: u32,
    samples: u32,
    bytes: u32,
    unit: u32,
    predictor: u32,
    swap: u32,
    bit: u32,
    row: u64,
    pixel: i64,
    line: i64,
    sample: i64,
    shared: u32,
    check: u32,
    reserved: [u32; 2],
}

/// One tile to be laid out.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DecodeTile {
    /// The unpacked rows.
    pub(super) raw: u64,
    /// Where the wanted part goes.
    pub(super) out: u64,
    /// Rows that must be there.
    pub(super) rows: u32,
    /// The wanted part.
    pub(super) x: u32,
    /// As above.
    pub(super) y: u32,
    /// As above.
    pub(super) width: u32,
    /// As above.
    pub(super) height: u32,
    /// The checksum that the file states.
    pub(super) adler: u32,
    /// For `finish`; else zero.
    pub(super) finish: [u64; 3],
}

/// One tile to be predicted.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EncodeTile {
    /// The pixels.
    pub(super) from: u64,
    /// Where its rows go.
    pub(super) to: u64,
    /// Rows to store.
    pub(super) rows: u32,
    /// Pixels that are there; what lies beyond is fill.
    pub(super) width: u32,
    /// As above.
    pub(super) height: u32,
    /// Zero.
    pub(super) reserved0: u32,
    /// A sample of fill.
    pub(super) fill: [u64; 2],
    /// Zero.
    pub(super) reserved: [u64; 2],
}

/// One tile to be put somewhere.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlaceTile {
    /// Its wanted part: rows of interleaved samples.
    pub(super) from: u64,
    /// Where its first wanted sample goes.
    pub(super) to: u64,
    /// Pixels.
    pub(super) width: u32,
    /// As above.
    pub(super) height: u32,
    /// Zero.
    pub(super) reserved: u64,
}

/// What all tiles that are put somewhere have in common.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaceShape {
    /// Samples of a pixel.
    pub(super) samples: u32,
    /// Bytes of one.
    pub(super) bytes: u32,
    /// Samples that are wanted.
    pub(super) bands: u32,
    /// 1: compare, and change nothing.
    pub(super) compare: u32,
    /// Bytes from a pixel, a line, a band to the next.
    pub(super) strides: [i64; 3],
}

/// What became of a tile.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Report {
    /// nvCOMP's.
    pub(super) status: i32,
    /// Of the unpacked bytes.
    pub(super) adler: u32,
    /// Bytes that came out.
    pub(super) size: u64,
}

/// One tile to be brought to its slot.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StowTile {
    /// As the file has it.
    pub(super) from: u64,
    /// The slot; a multiple of 16.
    pub(super) to: u64,
    /// Of the tile.
    pub(super) bytes: u32,
    /// Of the slot; a multiple of 16.
    pub(super) room: u32,
    /// What a ZSTD frame must hold.
    pub(super) content: u32,
    /// Zero.
    pub(super) reserved: u32,
}

/// What `stow` found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verdict {
    /// The checksum that the file states.
    pub(super) adler: u32,
    /// Not zero: the tile was not shown to who unpacks.
    pub(super) refused: u32,
}

/// Where the tables of tiles to be stowed are on the device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Stow {
    /// `StowTile`s.
    pub(super) tiles: u64,
    /// Where addresses of streams go.
    pub(super) inputs: u64,
    /// Where their sizes go.
    pub(super) input_bytes: u64,
    /// `DecodeTile`s, which get their checksums.
    pub(super) decode: u64,
    /// Where `Verdict`s go.
    pub(super) verdicts: u64,
    /// A stream of nothing, for tiles that are refused.
    pub(super) nothing: u64,
    /// Its size.
    pub(super) nothing_bytes: u64,
    /// 1: zlib, 2: ZSTD, 0: nothing is looked at.
    pub(super) framing: u32,
    /// Zero.
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<StowTile>() == 32);
const _: () = assert!(size_of::<Verdict>() == 8);
const _: () = assert!(size_of::<Stow>() == 64);
const _: () = assert!(size_of::<Shape>() == 80);
const _: () = assert!(size_of::<DecodeTile>() == 64);
const _: () = assert!(size_of::<EncodeTile>() == 64);
const _: () = assert!(size_of::<Report>() == 16);
const _: () = assert!(size_of::<PlaceTile>() == 32);
const _: () = assert!(size_of::<PlaceShape>() == 40);

impl Shape {
    /// For compact, interleaved tiles.
    pub(super) fn new(spec: &TileSpec, check: bool) -> Shape {
        let (bytes, unit, bit) = match spec.sample {
            Sample::Whole { bytes, unit } => (bytes, unit, 0),
            Sample::Bit { on } => (1, 1, on),
        };
        let row = spec.stored_row_bytes();
        Shape {
            width: spec.width as u32,
            height: spec.height as u32,
            samples: spec.samples as u32,
            bytes: bytes.into(),
            unit: unit.into(),
            predictor: match spec.predictor {
                Predictor::None => 1,
                Predictor::Horizontal => 2,
                Predictor::FloatingPoint => 3,
            },
            swap: spec.swap.into(),
            bit: bit.into(),
            row: row as u64,
            pixel: 0,
            line: 0,
            sample: 0,
            shared: 0,
            check: check.into(),
            reserved: [0; 2],
        }
    }

    /// How many warps work on a block, and how many blocks on a tile.
    fn size(&mut self, tiles: usize, rows: usize) -> Size {
        // Room for the row, and for its start and end where it is not aligned; in both forms of
        // a row of bits.
        let row = self.row.max(u64::from(self.width) * u64::from(self.samples)) as usize;
        let wanted = (row + 64).next_multiple_of(16);
        let per_warp = wanted.clamp(WARP_SHARED, BLOCK_SHARED);
        let warps = (BLOCK_SHARED / per_warp).clamp(1, MOST_WARPS).min(rows.max(1));
        self.shared = per_warp as u32;
        let blocks = rows.div_ceil(warps).clamp(1, MOST_BLOCKS_Y);
        Size {
            grid: (tiles as u32, blocks as u32),
            block: (32, warps as u32),
            shared: (per_warp * warps) as u32,
        }
    }
}

/// The loaded kernels.
pub(super) struct Kernels {
    adler32: Function,
    undo: Function,
    apply: Function,
    measure: Function,
    gather: Function,
    place: Function,
    lzw: Function,
    packbits: Function,
    stow: Function,
    pub(super) finish: Function,
}

/// Where the tables of a decoded batch are on the device; 0 where there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undo {
    /// `DecodeTile`s.
    pub(super) tiles: u64,
    /// nvCOMP's statuses.
    pub(super) statuses: u64,
    /// Bytes that came out.
    pub(super) actual: u64,
    /// Checksums of them.
    pub(super) adler: u64,
    /// Where `Report`s go.
    pub(super) reports: u64,
}

/// The same for an encoded batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// Compressed sizes.
    pub(super) sizes: u64,
    /// nvCOMP's statuses.
    pub(super) statuses: u64,
    /// Checksums, or 0.
    pub(super) adler: u64,
    /// Where offsets go, one more than tiles.
    pub(super) offsets: u64,
    /// Where `Report`s go.
    pub(super) reports: u64,
    /// Tiles.
    pub(super) count: u32,
    /// No size is larger.
    pub(super) limit: u64,
    /// Bytes around each.
    pub(super) extra: u32,
}

pub(super) fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

impl Kernels {
    /// Loads them.
    pub(super) fn load(current: &Current) -> Answer<Kernels> {
        let module = current.module(PTX)?;
        let function = |name| module.function(current.device(), name);
        Ok(Kernels {
            adler32: function("adler32")?,
            undo: function("undo")?,
            apply: function("apply")?,
            measure: function("measure")?,
            gather: function("gather")?,
            place: function("place")?,
            lzw: function("lzw")?,
            packbits: function("packbits")?,
            stow: function("stow")?,
            finish: function("finish")?,
        })
    }

    /// Checksums of `count` chunks: addresses, sizes and the most of each are device arrays.
    ///
    /// # Safety
    /// All must be device memory of ours, used by nobody else until the stream is past this.
    pub(super) unsafe fn adler32(
        &self,
        stream: &Stream,
        count: usize,
        mut arrays: [u64; 4],
    ) -> Answer<()> {
        let [data, sizes, limits, out] = &mut arrays;
        let mut params = [pointer(data), pointer(sizes), pointer(limits), pointer(out)];
        let size = Size { grid: (count as u32, 1), block: (256, 1), shared: 0 };
        // SAFETY: as declared in kernels.cu; the caller's promise.
        unsafe { stream.launch(self.adler32, size, &mut params) }
    }

    /// Undoes predictor and byte order and lays tiles out.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn undo(
        &self,
        stream: &Stream,
        count: usize,
        rows: usize,
        mut at: Undo,
        mut shape: Shape,
    ) -> Answer<()> {
        let size = shape.size(count, rows);
        let mut params = [
            pointer(&mut at.tiles),
            pointer(&mut at.statuses),
            pointer(&mut at.actual),
            pointer(&mut at.adler),
            pointer(&mut at.reports),
            pointer(&mut shape),
        ];
        // SAFETY: as above.
        unsafe { stream.launch(self.undo, size, &mut params) }
    }

    /// Applies predictor and byte order.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn apply(
        &self,
        stream: &Stream,
        count: usize,
        rows: usize,
        mut tiles: u64,
        mut shape: Shape,
    ) -> Answer<()> {
        let size = shape.size(count, rows);
        let mut params = [pointer(&mut tiles), pointer(&mut shape)];
        // SAFETY: as above.
        unsafe { stream.launch(self.apply, size, &mut params) }
    }

    /// Finds where each compressed tile goes.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn measure(&self, stream: &Stream, mut at: Measure) -> Answer<()> {
        let mut params = [
            pointer(&mut at.sizes),
            pointer(&mut at.statuses),
            pointer(&mut at.adler),
            pointer(&mut at.offsets),
            pointer(&mut at.reports),
            pointer(&mut at.count),
            pointer(&mut at.limit),
            pointer(&mut at.extra),
        ];
        let size = Size { grid: (1, 1), block: (1024, 1), shared: 0 };
        // SAFETY: as above.
        unsafe { stream.launch(self.measure, size, &mut params) }
    }

    /// Brings compressed tiles together: addresses, offsets, checksums or 0, target.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn gather(
        &self,
        stream: &Stream,
        count: usize,
        largest: usize,
        mut arrays: [u64; 4],
        header: [u8; 2],
    ) -> Answer<()> {
        let mut header = u32::from(u16::from_le_bytes(header));
        let [data, offsets, adler, out] = &mut arrays;
        let mut params =
            [pointer(data), pointer(offsets), pointer(adler), pointer(out), pointer(&mut header)];
        let size = copy_size(count, largest);
        // SAFETY: as above.
        unsafe { stream.launch(self.gather, size, &mut params) }
    }

    /// Brings tiles to their slots; the largest has `largest` bytes.
    ///
    /// # Safety
    /// As for `adler32`; the 8 bytes that a tile begins and ends in are there.
    pub(super) unsafe fn stow(
        &self,
        stream: &Stream,
        count: usize,
        largest: usize,
        mut at: Stow,
    ) -> Answer<()> {
        // SAFETY: as above.
        unsafe { stream.launch(self.stow, copy_size(count, largest), &mut [pointer(&mut at)]) }
    }

    /// Puts tiles where a caller wants them, or compares: `PlaceTile`s, which samples, and where
    /// it is noted for each block what differs (see [`place_blocks`]), or 0.
    ///
    /// # Safety
    /// As for `adler32`; where tiles are put, memory that the caller of the library vouches for.
    pub(super) unsafe fn place(
        &self,
        stream: &Stream,
        count: usize,
        rows: usize,
        mut arrays: [u64; 3],
        mut shape: PlaceShape,
    ) -> Answer<()> {
        let [tiles, which, differs] = &mut arrays;
        let mut params = [pointer(tiles), pointer(which), pointer(differs), pointer(&mut shape)];
        let grid = (count as u32, place_blocks(rows) as u32);
        let size = Size { grid, block: (256, 1), shared: 0 };
        // SAFETY: as above.
        unsafe { stream.launch(self.place, size, &mut params) }
    }

    /// Unpacks LZW streams, as nvCOMP does others.
    ///
    /// # Safety
    /// As for `adler32`; streams are 4-aligned, and the rest of their last four bytes is there.
    pub(super) unsafe fn lzw(&self, stream: &Stream, tables: &Tables) -> Answer<()> {
        // SAFETY: the caller's promise.
        unsafe { unpack(self.lzw, stream, tables) }
    }

    /// The same for PackBits.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn packbits(&self, stream: &Stream, tables: &Tables) -> Answer<()> {
        // SAFETY: the caller's promise.
        unsafe { unpack(self.packbits, stream, tables) }
    }
}

/// # Safety
/// As for `Kernels::lzw`, of a kernel that takes this.
unsafe fn unpack(kernel: Function, stream: &Stream, tables: &Tables) -> Answer<()> {
    let mut packed = [
        tables.inputs,
        tables.input_bytes,
        tables.outputs,
        tables.room,
        tables.output_bytes,
        tables.statuses,
    ];
    let size = Size { grid: (tables.count as u32, 1), block: (256, 1), shared: 0 };
    // SAFETY: `Packed`, as declared in unpack.cuh; the caller's promise.
    unsafe { stream.launch(kernel, size, &mut [pointer(&mut packed)]) }
}

/// 64 KiB a block, so that a few large tiles keep the device busy too.
pub(super) fn copy_size(count: usize, largest: usize) -> Size {
    let blocks = largest.div_ceil(64 << 10).clamp(1, 1024) as u32;
    Size { grid: (count as u32, blocks), block: (256, 1), shared: 0 }
}

/// Blocks of `place` for a tile of so many rows.
pub(super) fn place_blocks(rows: usize) -> usize {
    rows.div_ceil(8).clamp(1, MOST_BLOCKS_Y)
}
