//! The CPU engine: tiles decoded and encoded on all cores.
//!
//! Each worker has one input slot and one tile of scratch, both small enough for
//! its cache: it reads a tile, unpacks it, undoes the predictor and hands the
//! pixels on before it takes the next, so that nothing but the pixels themselves
//! travels through main memory. Sources that cannot be read from several threads
//! are staged instead: one request into one buffer, an aligned slot for each tile.
//!
//! Absent from here: GDAL, batches' origin, and what becomes of the pixels.

pub mod codec;
pub mod deflate;
pub mod isal;
pub mod jpeg2000;
pub mod lzw;
pub mod packbits;
pub mod predictor;
pub mod zstd;

mod encode;
mod libdeflate;
mod openjpeg;
mod tile;

use std::ops::Range;
use std::sync::{Arc, Mutex};

pub(super) use self::tile::plausible;

use self::tile::{Worker, wanted};
use super::{
    Batch, Engine, Packed, PixelBatch, PixelSink, PixelSource, Staged, TileError, TileJob,
    TileSpec, allocate,
};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::{memory, pool};

/// Slots of the staging buffer begin at multiples of this.
const SLOT_ALIGN: usize = 64;

/// Tiles that are read and decoded as one task hold about this many bytes of
/// pixels, so that files of one-row strips do not pay for a system call each.
const TASK_BYTES: usize = 128 << 10;

/// A batch that keeps every worker busy and still ends soon.
const BATCH_BYTES: usize = 16 << 20;

/// The engine. All its state belongs to the process's workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuEngine;

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "CPU"
    }

    fn appetite(&self, _spec: &TileSpec, limit: usize) -> usize {
        limit.min(BATCH_BYTES)
    }

    fn reads_parts(&self) -> bool {
        true
    }

    fn decodes_singly(&self) -> bool {
        true
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        // Kept until they are decoded, so that nothing of a batch's size is allocated then.
        let failed = memory::room(batch.tiles.len(), BATCH)?;
        Ok(match stage(&batch)? {
            Bytes::InFile => Box::new(Direct { batch, failed }),
            Bytes::InMemory { staging, slots } => {
                Box::new(InMemory { batch, staging, slots, failed })
            }
        })
    }

    fn decode_tile(
        &self,
        spec: &Arc<TileSpec>,
        source: &Arc<dyn ByteSource>,
        job: TileJob,
        sink: &dyn PixelSink,
    ) -> Result<()> {
        let mut failed = Vec::new();
        Worker::with(|worker| {
            worker.read_and_decode(spec, &**source, &[job], sink, &mut failed);
        });
        failed.pop().map_or(Ok(()), |failed| Err(failed.error))
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        encode::encode(batch, source, packed)
    }
}

/// Where the bytes of a staged batch are.
pub(super) enum Bytes {
    /// In the file still: each worker reads as it goes.
    InFile,
    /// Here, each tile from its slot on.
    InMemory {
        /// The bytes.
        staging: Vec<u8>,
        /// Where each tile begins.
        slots: Vec<usize>,
    },
}

impl Bytes {
    /// Fills `slot` with the bytes of the batch's `index`-th tile.
    pub(super) fn copy(&self, batch: &Batch, index: usize, slot: &mut [u8]) -> Result<()> {
        match self {
            Bytes::InFile => batch.source.read_at(batch.tiles[index].offset, slot),
            Bytes::InMemory { staging, slots } => {
                slot.copy_from_slice(&staging[slots[index]..][..slot.len()]);
                Ok(())
            }
        }
    }
}

/// Announces the batch's bytes where they are cheap to read from several threads, and reads them in
/// one request where they are not.
pub(super) fn stage(batch: &Batch) -> Result<Bytes> {
    if batch.source.concurrent() {
        // As many tiles as there are threads are read at once anyway.
        if batch.tiles.len() > batch.threads {
            let range = |t: &TileJob| match wanted(&batch.spec, t) {
                Some(span) => (t.offset + span.start as u64, span.len() as u64),
                None => (t.offset, t.len as u64),
            };
            batch.source.advise(&memory::collect(batch.tiles.iter().map(range), BATCH)?);
        }
        return Ok(Bytes::InFile);
    }
    let mut bytes = 0usize;
    let mut slots = memory::room(batch.tiles.len(), BATCH)?;
    for tile in &batch.tiles {
        slots.push(bytes);
        bytes += tile.len.next_multiple_of(SLOT_ALIGN);
    }
    let mut staging = allocate(bytes, "a batch of compressed tiles")?;
    let mut ranges = memory::room(slots.len(), BATCH)?;
    let mut rest: &mut [u8] = &mut staging;
    for tile in &batch.tiles {
        let (slot, after) = rest.split_at_mut(tile.len.next_multiple_of(SLOT_ALIGN));
        ranges.push((tile.offset, &mut slot[..tile.len]));
        rest = after;
    }
    batch.source.read_ranges(&mut ranges)?;
    Ok(Bytes::InMemory { staging, slots })
}

/// A batch that each worker reads as it goes.
struct Direct {
    batch: Batch,
    /// Room for an error for each tile.
    failed: Vec<TileError>,
}

impl Staged for Direct {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let Direct { batch, failed } = *self;
        let group = (TASK_BYTES / batch.spec.tile_bytes().max(1)).clamp(1, 256);
        let id = |i: usize| batch.tiles[i].id;
        let work = Work { threads: batch.threads, tiles: batch.tiles.len(), group, id, failed };
        work.in_groups(|worker, range, failed| {
            let tiles = &batch.tiles[range];
            worker.read_and_decode(&batch.spec, &*batch.source, tiles, sink, failed);
        })
    }
}

/// A batch whose bytes are all here.
struct InMemory {
    batch: Batch,
    staging: Vec<u8>,
    slots: Vec<usize>,
    failed: Vec<TileError>,
}

impl Staged for InMemory {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let InMemory { batch, staging, slots, failed } = *self;
        let id = |i: usize| batch.tiles[i].id;
        let work = Work { threads: batch.threads, tiles: batch.tiles.len(), group: 1, id, failed };
        work.in_groups(|worker, range, failed| {
            for (tile, &slot) in batch.tiles[range.clone()].iter().zip(&slots[range]) {
                worker.decode(&batch.spec, tile, &staging[slot..slot + tile.len], sink, failed);
            }
        })
    }
}

/// Decodes tiles whose bytes are in memory.
pub(super) fn decode_staged(
    spec: &TileSpec,
    threads: usize,
    tiles: &[(TileJob, &[u8])],
    sink: &dyn PixelSink,
) -> Vec<TileError> {
    let id = |i: usize| tiles[i].0.id;
    let failed = memory::or_unwind(memory::room(tiles.len(), BATCH));
    let work = Work { threads, tiles: tiles.len(), group: 1, id, failed };
    work.in_groups(|worker, range, failed| {
        for (tile, bytes) in &tiles[range] {
            worker.decode(spec, tile, bytes, sink, failed);
        }
    })
}

/// What is allocated for it, in messages.
const BATCH: &str = "the tiles of a batch";

/// Tiles that are shared out in groups.
struct Work<I> {
    threads: usize,
    tiles: usize,
    group: usize,
    /// The number that the caller knows a tile by.
    id: I,
    /// Where errors are gathered.
    failed: Vec<TileError>,
}

impl<I: Fn(usize) -> u64 + Sync> Work<I> {
    /// Runs `task(worker, tiles, failures)` over groups of tiles. Where memory has run out the tiles
    /// fail without being tried.
    fn in_groups(
        self,
        task: impl Fn(&mut Worker, Range<usize>, &mut Vec<TileError>) + Sync,
    ) -> Vec<TileError> {
        let Work { threads, tiles, group, id, failed } = self;
        let failures = Mutex::new(failed);
        pool::run(threads, tiles.div_ceil(group), &|i| {
            let range = i * group..tiles.min((i + 1) * group);
            let mut failed = Vec::new();
            match memory::check(BATCH) {
                Ok(()) => Worker::with(|worker| task(worker, range, &mut failed)),
                Err(error) => {
                    failed.extend(range.map(|i| TileError { id: id(i), error: error.clone() }));
                }
            }
            if !failed.is_empty() {
                failures.lock().unwrap_or_else(|e| e.into_inner()).append(&mut failed);
            }
        });
        failures.into_inner().unwrap_or_else(|e| e.into_inner())
    }
}
