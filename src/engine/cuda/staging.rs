//! Compressed tiles on their way into staging memory: where each goes, how they are read, and which
//! of them the device may be given (see [`super::frames`]). Absent: the device.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::TILES;
use super::decode_plan::Plan;
use super::frames::{self, Frame};
use crate::engine::jpeg2000::Codestream;
use crate::engine::{Batch, Codec, Part, TileJob, TileSpec, cpu};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::{memory, pool};

/// Tiles that are read as one task hold about this much.
const TASK_BYTES: usize = 128 << 10;

/// One tile of a batch.
pub(super) struct Item {
    /// As it was asked for.
    pub(super) job: TileJob,
    /// What of it is wanted.
    pub(super) part: Part,
    /// Where its bytes are in the lane's input.
    pub(super) bytes: Range<usize>,
    /// Where its stream begins there; its length.
    pub(super) stream: Range<usize>,
    /// What its bytes should sum up to.
    pub(super) adler: u32,
    /// The header that a patch took the place of.
    pub(super) header: Option<[u8; frames::ZSTD_PLAIN]>,
    /// It goes to the device; else it is left to the CPU.
    pub(super) on_device: bool,
    /// The device looked at it and refused it.
    pub(super) refused: bool,
    /// What it says of itself, if it is JPEG 2000.
    pub(super) codestream: Option<Codestream>,
    /// Where its pixels are in the lane's output.
    pub(super) crop: usize,
}

impl Item {
    /// Nothing is known of it yet.
    pub(super) fn new(job: &TileJob, part: Part) -> Item {
        Item {
            job: *job,
            part,
            bytes: 0..0,
            stream: 0..0,
            adler: 0,
            header: None,
            on_device: false,
            refused: false,
            codestream: None,
            crop: 0,
        }
    }
}

/// Gives each tile its slot.
pub(super) fn place(plan: &Plan, jobs: &[TileJob]) -> Result<Vec<Item>> {
    let mut at = 0;
    let item = |job: &TileJob| {
        let (first, end) = plan.slot(at, job);
        at = end;
        let item = Item::new(job, job.part.unwrap_or(Part::rows(&plan.spec, job.rows)));
        Item { bytes: first..end, stream: first..end, ..item }
    };
    memory::collect(jobs.iter().map(item), TILES)
}

/// Reads all tiles to their slots: asked for all at once, then read by several threads where the
/// source allows it.
pub(super) fn read(batch: &Batch, items: &mut [Item], mut input: &mut [u8]) -> Result<()> {
    let mut ranges = memory::room(items.len(), TILES)?;
    let mut at = 0;
    for item in items.iter() {
        let (gap, rest) = input.split_at_mut(item.bytes.start - at);
        gap.fill(0);
        let (slot, rest) = rest.split_at_mut(item.bytes.len());
        ranges.push((item.job.offset, slot));
        input = rest;
        at = item.bytes.end;
    }
    fetch(&*batch.source, batch.threads, &mut ranges)
}

/// Reads ranges of a file, several at once where the source allows it.
pub(super) fn fetch(
    source: &dyn ByteSource,
    threads: usize,
    ranges: &mut [(u64, &mut [u8])],
) -> Result<()> {
    if !source.concurrent() {
        return source.read_ranges(ranges);
    }
    let announced = ranges.iter().map(|(at, slot)| (*at, slot.len() as u64));
    let announced = memory::collect(announced, TILES)?;
    source.advise(&announced);
    let mean = announced.iter().map(|(_, len)| *len as usize).sum::<usize>() / ranges.len().max(1);
    // Small tiles go in groups, but no thread is left without.
    let share = ranges.len().div_ceil(threads.max(1)).clamp(1, 256);
    let group = (TASK_BYTES / mean.max(1)).clamp(1, share);
    let groups = memory::collect(ranges.chunks_mut(group).map(Mutex::new), TILES)?;
    let failure = Mutex::new(None);
    pool::run(threads, groups.len(), &|task| {
        let mut group = groups[task].lock().unwrap_or_else(PoisonError::into_inner);
        for (offset, slot) in group.iter_mut() {
            if let Err(error) = source.read_at(*offset, slot) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Whether the device may have a tile, by all that is known without looking at it.
pub(super) fn is_fit(plan: &Plan, item: &Item) -> bool {
    let spec = &plan.spec;
    let needed = spec.stored_row_bytes() * item.job.rows;
    let part_fits = item.part.x + item.part.width <= spec.width
        && item.part.y + item.part.height <= item.job.rows
        && item.part.width * item.part.height > 0;
    let long_enough = spec.codec != Codec::None || item.job.len >= needed;
    part_fits && long_enough && cpu::plausible(spec, &item.job).is_ok()
}

/// What a ZSTD frame without content size holds: padding is stored, or it is not.
pub(super) fn content(spec: &TileSpec, job: &TileJob) -> usize {
    spec.stored_row_bytes() * if job.padded { spec.height } else { job.rows }
}

/// Decides whether the device may have a tile, and what of it.
pub(super) fn inspect(plan: &Plan, item: &mut Item, input: &mut [u8]) {
    if !is_fit(plan, item) {
        return;
    }
    let bytes = item.bytes.clone();
    let fits = match plan.spec.codec {
        Codec::Deflate => frames::zlib_adler(&input[bytes.clone()]).is_some_and(|adler| {
            item.adler = adler;
            item.stream = bytes.start + frames::ZLIB_HEADER..bytes.end - frames::ZLIB_TRAILER;
            true
        }),
        Codec::Zstd => {
            let size = content(&plan.spec, &item.job);
            match frames::zstd_frame(&input[bytes.clone()], size) {
                Some(Frame::Whole) => {
                    settle(item, input);
                    true
                }
                Some(Frame::Patched(header)) => {
                    item.stream = bytes.start - frames::ZSTD_GROWTH..bytes.end;
                    item.header = input[bytes.clone()].first_chunk().copied();
                    let start = item.stream.start;
                    input[start..start + header.len()].copy_from_slice(&header);
                    true
                }
                None => false,
            }
        }
        // The kernels take any stream and say what became of it.
        Codec::None | Codec::Lzw | Codec::PackBits => true,
        // Tiles of GDAL's codecs have an engine of their own.
        Codec::Gtiff => false,
        Codec::Jpeg2000(_) => {
            item.codestream = Codestream::of_tile(&plan.spec, &item.job, &input[bytes]).ok();
            item.codestream.is_some()
        }
    };
    item.on_device = fits;
}

/// A frame that needs no patch moves to where nvCOMP wants it.
fn settle(item: &mut Item, input: &mut [u8]) {
    let start = item.bytes.start - frames::ZSTD_GROWTH;
    input.copy_within(item.bytes.clone(), start);
    item.bytes = start..item.bytes.end - frames::ZSTD_GROWTH;
    item.stream = item.bytes.clone();
}
