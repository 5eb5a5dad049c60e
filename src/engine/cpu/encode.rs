//! A batch, the other way: each tile is fetched, predicted and packed on one thread.
//!
//! Every tile has a slot of the packed buffer that holds whatever its codec can make of it, so
//! that workers never wait for each other and none of them allocates. Samples that are stored
//! as they are get fetched straight into their slots, which then follow each other without gaps.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::CodecError;
use super::predictor::forward;
use super::tile::{Worker, made_once};
use super::{TASK_BYTES, deflate, lzw, packbits, predictor, zstd};
use crate::engine::{
    Codec, Packed, PixelBatch, PixelJob, PixelSource, Predictor, Sample, TileSpec, allocate,
};
use crate::error::{Error, Result};
use crate::process::{memory, pool};

/// Encoder contexts, made when first used.
#[derive(Default)]
pub(super) struct Encoders {
    lzw: Option<lzw::Encoder>,
    deflate: deflate::Encoder,
    zstd: zstd::Encoder,
}

impl Encoders {
    /// Gives back a context that holds more than `keep` bytes.
    pub(super) fn trim(&mut self, keep: usize) {
        if self.zstd.kept() > keep {
            self.zstd = zstd::Encoder::default();
        }
    }
}

/// Tiles that one task encodes, and where to.
struct Group<'a> {
    jobs: &'a [PixelJob],
    tiles: &'a mut [Range<usize>],
    slots: &'a mut [u8],
    /// Where the slots begin in the packed buffer.
    start: usize,
}

pub(super) fn encode(
    batch: &PixelBatch,
    source: &dyn PixelSource,
    packed: &mut Packed,
) -> Result<()> {
    packed.tiles.clear();
    memory::grow(&mut packed.tiles, batch.tiles.len(), "the tiles of a batch")?;
    packed.tiles.resize(batch.tiles.len(), 0..0);
    let outcome = into_slots(batch, source, packed);
    if outcome.is_err() {
        packed.tiles.clear();
    }
    outcome
}

fn into_slots(batch: &PixelBatch, source: &dyn PixelSource, packed: &mut Packed) -> Result<()> {
    let rows = batch.tiles.iter().map(|job| job.rows).max().unwrap_or(0);
    let bound = bound(batch, rows);
    // Slots without gaps where the size of what is stored is known beforehand.
    let slot = |job: &PixelJob| match batch.spec.codec {
        Codec::None => batch.spec.stored_row_bytes().saturating_mul(job.rows),
        _ => bound,
    };
    let total = batch.tiles.iter().fold(0_usize, |sum, job| sum.saturating_add(slot(job)));
    if packed.bytes.len() < total {
        packed.bytes = Vec::new();
        packed.bytes = allocate(total, "a batch of encoded tiles")?;
    }
    let group = (TASK_BYTES / batch.spec.tile_bytes().max(1)).clamp(1, 256);
    let (mut rest, mut start) = (&mut packed.bytes[..], 0);
    let mut groups = memory::room(batch.tiles.len().div_ceil(group), "the tiles of a batch")?;
    for (jobs, tiles) in batch.tiles.chunks(group).zip(packed.tiles.chunks_mut(group)) {
        let bytes = jobs.iter().map(slot).sum();
        let (slots, after) = rest.split_at_mut(bytes);
        groups.push(Mutex::new(Group { jobs, tiles, slots, start }));
        (rest, start) = (after, start + bytes);
    }
    let (failed, failure) = (AtomicBool::new(false), Mutex::new(None));
    pool::run(batch.threads, groups.len(), &|i| {
        if failed.load(Ordering::Relaxed) {
            return;
        }
        let mut group = groups[i].lock().unwrap_or_else(|e| e.into_inner());
        let encode = |worker: &mut Worker| {
            memory::check("a batch of encoded tiles")?;
            group.encode(worker, batch, slot, source)
        };
        if let Err(error) = Worker::with(encode) {
            failed.store(true, Ordering::Relaxed);
            failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
        }
    });
    failure.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err)
}

/// The most bytes that a tile of so many rows may become.
fn bound(batch: &PixelBatch, rows: usize) -> usize {
    let row = batch.spec.stored_row_bytes();
    let bytes = row.saturating_mul(rows);
    match batch.spec.codec {
        Codec::None => bytes,
        Codec::PackBits => packbits::bound(row, rows),
        Codec::Lzw => lzw::bound(bytes),
        Codec::Deflate => deflate::bound(bytes),
        Codec::Zstd => zstd::bound(bytes),
        Codec::Jpeg2000(_) | Codec::Gtiff => 0,
    }
}

impl Group<'_> {
    fn encode(
        &mut self,
        worker: &mut Worker,
        batch: &PixelBatch,
        slot: impl Fn(&PixelJob) -> usize,
        source: &dyn PixelSource,
    ) -> Result<()> {
        let mut at = 0;
        for (job, tile) in self.jobs.iter().zip(&mut *self.tiles) {
            let end = at + slot(job);
            let made = worker.encode(batch, job, source, &mut self.slots[at..end])?;
            *tile = self.start + at..self.start + at + made.unwrap_or(0);
            at = end;
        }
        Ok(())
    }
}

impl Worker {
    /// Encodes one tile into its slot; `None` if it is to be left out.
    fn encode(
        &mut self,
        batch: &PixelBatch,
        job: &PixelJob,
        source: &dyn PixelSource,
        slot: &mut [u8],
    ) -> Result<Option<usize>> {
        let spec = &*batch.spec;
        let (stored, bytes) = (spec.stored_row_bytes() * job.rows, spec.row_bytes() * job.rows);
        if spec.codec == Codec::None && matches!(spec.sample, Sample::Whole { .. }) {
            if !source.get(job.id, slot) {
                return Ok(None);
            }
            if !spec.is_as_stored() {
                predict(spec, slot, &mut self.scratch)?;
            }
            return Ok(Some(stored));
        }
        let tile = room(&mut self.tile, bytes)?;
        if !source.get(job.id, tile) {
            return Ok(None);
        }
        match spec.sample {
            Sample::Whole { .. } => predict(spec, tile, &mut self.scratch)?,
            Sample::Bit { .. } => pack_bits(spec, tile),
        }
        pack(&mut self.encoders, batch, &tile[..stored], slot).map(Some)
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

/// Native samples become what is packed.
fn predict(spec: &TileSpec, data: &mut [u8], scratch: &mut Vec<u8>) -> Result<()> {
    let Sample::Whole { bytes, unit } = spec.sample else { return Ok(()) };
    let (bytes, row) = (usize::from(bytes), spec.stored_row_bytes());
    match spec.predictor {
        Predictor::None if spec.swap => predictor::swap_samples(data, usize::from(unit)),
        Predictor::None => {}
        Predictor::Horizontal => {
            forward::apply_horizontal(data, row, spec.samples, bytes, spec.swap);
        }
        Predictor::FloatingPoint => {
            let scratch = room(scratch, row)?;
            forward::apply_floating_point(data, row, spec.samples, bytes, scratch);
        }
    }
    Ok(())
}

/// One bit for each byte, set where that is not 0; rows begin at bytes. The bits come out at the
/// front of `data`, never after the bytes they are made of.
fn pack_bits(spec: &TileSpec, data: &mut [u8]) {
    const LOW: u64 = u64::from_le_bytes([0x7F; 8]);
    /// Brings the lowest bits of eight bytes together in the highest byte, the first one on top.
    const GATHER: u64 = 0x8040_2010_0804_0201;
    let (row_bytes, stored) = (spec.row_bytes(), spec.stored_row_bytes());
    for row in 0..data.len() / row_bytes.max(1) {
        for byte in 0..stored {
            let from = row * row_bytes + byte * 8;
            let count = (row_bytes - byte * 8).min(8);
            let mut samples = [0; 8];
            samples[..count].copy_from_slice(&data[from..from + count]);
            let samples = u64::from_le_bytes(samples);
            let set = (((samples & LOW) + LOW) | samples) >> 7 & !LOW >> 7;
            data[row * stored + byte] = (set.wrapping_mul(GATHER) >> 56) as u8;
        }
    }
}

fn pack(
    encoders: &mut Encoders,
    batch: &PixelBatch,
    data: &[u8],
    slot: &mut [u8],
) -> Result<usize> {
    let made = match batch.spec.codec {
        Codec::None => slot
            .get_mut(..data.len())
            .map(|slot| {
                slot.copy_from_slice(data);
                data.len()
            })
            .ok_or(CodecError::NoRoom),
        Codec::PackBits => packbits::encode(data, batch.spec.stored_row_bytes(), slot),
        Codec::Lzw => made_once(&mut encoders.lzw, lzw::Encoder::try_new)
            .and_then(|lzw| lzw.encode(data, slot)),
        Codec::Deflate => encoders.deflate.encode(batch.level, data, slot),
        Codec::Zstd => encoders.zstd.encode(batch.level, data, slot),
        Codec::Jpeg2000(_) | Codec::Gtiff => Err(CodecError::Unsupported),
    };
    made.map_err(|error| match error {
        CodecError::NoMemory => {
            Error::OutOfMemory { bytes: data.len() as u64, place: "a compressor" }
        }
        error => Error::Device(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Every tile is filled with the lowest byte of its id; tile 7 is left out.
    struct Filled;

    impl PixelSource for Filled {
        fn get(&self, id: u64, tile: &mut [u8]) -> bool {
            tile.fill(id as u8);
            id != 7
        }
    }

    fn batch(codec: Codec, swap: bool, rows: &[usize]) -> PixelBatch {
        let tiles = rows.iter().enumerate();
        PixelBatch {
            spec: Arc::new(TileSpec {
                codec,
                predictor: Predictor::None,
                sample: Sample::Whole { bytes: 2, unit: 2 },
                samples: 1,
                width: 5,
                height: 4,
                swap,
            }),
            level: 1,
            tiles: tiles.map(|(i, &rows)| PixelJob { id: i as u64, rows, inside: None }).collect(),
            threads: 2,
        }
    }

    #[test]
    fn tiles_that_are_not_packed_follow_each_other() {
        for swap in [false, true] {
            let mut packed = Packed::default();
            encode(&batch(Codec::None, swap, &[4, 4, 3, 4]), &Filled, &mut packed).unwrap();
            assert_eq!(packed.tiles, [0..40, 40..80, 80..110, 110..150]);
            assert_eq!(packed.bytes.len(), 150);
            let tiles = (0..150).map(|i| [0, 1, 2, 3][(i + i / 110 * 10) / 40]);
            assert!(packed.bytes.iter().copied().eq(tiles), "swap {swap}");
        }
    }

    #[test]
    fn the_buffer_is_kept() {
        let mut packed = Packed::default();
        encode(&batch(Codec::Lzw, false, &[4; 100]), &Filled, &mut packed).unwrap();
        let (len, at) = (packed.bytes.len(), packed.bytes.as_ptr());
        assert!(packed.tiles[7].is_empty() && !packed.tiles[8].is_empty());
        for codec in [Codec::None, Codec::PackBits, Codec::Deflate, Codec::Zstd, Codec::Lzw] {
            encode(&batch(codec, true, &[4; 20]), &Filled, &mut packed).unwrap();
            assert_eq!((packed.bytes.len(), packed.bytes.as_ptr()), (len, at), "{codec:?}");
            assert_eq!(packed.tiles.len(), 20);
        }
    }

    #[test]
    fn more_than_there_is_memory_for_is_an_error() {
        for codec in [Codec::None, Codec::PackBits, Codec::Lzw, Codec::Deflate, Codec::Zstd] {
            let mut batch = batch(codec, true, &[1 << 44, 1 << 44]);
            let mut packed = Packed::default();
            let refused = encode(&batch, &Filled, &mut packed);
            assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{codec:?}: {refused:?}");
            assert!(packed.tiles.is_empty());
            batch.tiles = vec![PixelJob { id: 1, rows: 1 << 60, inside: None }; 40];
            let refused = encode(&batch, &Filled, &mut packed);
            assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{codec:?}: {refused:?}");
        }
    }

    #[test]
    fn bits_are_packed_in_place() {
        let spec = TileSpec {
            codec: Codec::None,
            predictor: Predictor::None,
            sample: Sample::Bit { on: 1 },
            samples: 1,
            width: 11,
            height: 3,
            swap: false,
        };
        let mut data = [0; 33];
        for i in [0, 2, 10, 11, 18, 21, 32] {
            data[i] = [1, 255, 128, 2, 64, 127, 129][i % 7];
        }
        pack_bits(&spec, &mut data);
        let want = [0b1010_0000, 0b0010_0000, 0b1000_0001, 0b0010_0000, 0, 0b0010_0000];
        assert_eq!(data[..6], want);
    }
}
