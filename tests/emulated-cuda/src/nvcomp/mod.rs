//! nvCOMP's batched calls as operations of streams.
//!
//! Refuses to know C signatures (those are in [`api`]) and codecs' insides. Invariants: the
//! tables are read when the operation runs; every range is checked, the whole promised
//! output included; what is not a result is overwritten with noise, so that nobody can rely
//! on it.

pub mod api;
mod compress;
mod decompress;
mod options;
pub(crate) mod sizes;
mod status;

use crate::clock;
use crate::ledger::{ChunkCounts, Kind};
use crate::random::Random;
use crate::settings::Settings;
use crate::status::Code;
use crate::task::{Bench, DeviceFault};
use sizes::{Codec, Direction};

/// One batched call with its arguments; all tables are in device memory.
pub(crate) struct Batch {
    pub(crate) codec: Codec,
    pub(crate) chunks: u64,
    pub(crate) temp: u64,
    pub(crate) temp_bytes: u64,
    pub(crate) input: Chunks,
    pub(crate) statuses: u64,
    pub(crate) work: BatchWork,
}

/// A table of pointers and one of sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    pub(crate) pointers: u64,
    pub(crate) sizes: u64,
}

/// What is done with the input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchWork {
    /// `output.sizes` are the buffers' sizes, `actual` is where the real ones go.
    Decompress { output: Chunks, actual: u64 },
    /// `output.sizes` is where the sizes go; `most` bounds the chunks.
    Compress { output: Chunks, most: u64, algorithm: i32 },
    /// Only the decompressed sizes are wanted.
    Measure { sizes: u64 },
}

impl Batch {
    pub(crate) fn name(&self) -> &'static str {
        match (self.codec, &self.work) {
            (Codec::Deflate, BatchWork::Decompress { .. }) => "nvcompBatchedDeflateDecompressAsync",
            (Codec::Deflate, BatchWork::Compress { .. }) => "nvcompBatchedDeflateCompressAsync",
            (Codec::Deflate, BatchWork::Measure { .. }) => {
                "nvcompBatchedDeflateGetDecompressSizeAsync"
            }
            (Codec::Zstd, BatchWork::Decompress { .. }) => "nvcompBatchedZstdDecompressAsync",
            (Codec::Zstd, BatchWork::Compress { .. }) => "nvcompBatchedZstdCompressAsync",
            (Codec::Zstd, BatchWork::Measure { .. }) => "nvcompBatchedZstdGetDecompressSizeAsync",
        }
    }

    pub(crate) fn direction(&self) -> Direction {
        match self.work {
            BatchWork::Compress { .. } => Direction::Compress,
            _ => Direction::Decompress,
        }
    }

    /// Runs the batch; its modelled duration.
    pub(crate) fn run(&self, bench: &mut Bench<'_>) -> Result<u64, DeviceFault> {
        let bytes = match self.work {
            BatchWork::Decompress { output, actual } => {
                decompress::run(self, bench, output, actual)?
            }
            BatchWork::Compress { output, most, algorithm } => {
                compress::run(self, bench, output, most, algorithm)? * 10
            }
            BatchWork::Measure { sizes } => decompress::measure(self, bench, sizes)?,
        };
        Ok(clock::duration(Kind::Nvcomp, bytes))
    }

    /// The order in which the chunks are done: none that anybody could rely on.
    fn order(&self, bench: &Bench<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.chunks as usize).collect();
        let mut random = Random::new(bench.settings.seed ^ bench.operation);
        for index in (1..order.len()).rev() {
            order.swap(index, random.below(index as u64 + 1) as usize);
        }
        order
    }

    /// Checks the temporary buffer and leaves noise in it.
    fn use_temp(&self, bench: &Bench<'_>, needed: u64) -> Result<(), DeviceFault> {
        if needed > self.temp_bytes {
            return Err(DeviceFault::illegal_address(format!(
                "{}: {needed} bytes of temporary memory needed, {} given",
                self.name(),
                self.temp_bytes
            )));
        }
        if needed > 0 {
            noise(bench, self.temp, needed)?;
        }
        Ok(())
    }

    fn count(&self, bench: &mut Bench<'_>, change: impl FnOnce(&mut ChunkCounts)) {
        change(bench.ledger.chunks.entry(self.codec.name()).or_default());
    }

    /// Lets the report say how many bytes the operation was about.
    fn note_bytes(&self, bench: &mut Bench<'_>, bytes: u64) {
        if let Some(record) = bench.ledger.operation(bench.operation) {
            record.bytes = bytes;
        }
    }

    fn set_status(&self, bench: &Bench<'_>, index: usize, status: u32) -> Result<(), DeviceFault> {
        if self.statuses == 0 {
            return Ok(());
        }
        let place = word(bench, self.statuses, index, 4)?;
        // SAFETY: four bytes of a checked range, aligned.
        unsafe { place.cast::<u32>().write(status) };
        Ok(())
    }
}

/// What a real device may want besides for Deflate, which is not known: a setting.
fn extra_temp(settings: &Settings, codec: Codec, chunks: u64) -> u64 {
    match codec {
        Codec::Deflate => settings.deflate_temp * chunks,
        Codec::Zstd => 0,
    }
}

/// The place of the element of a table in device memory.
fn word(bench: &Bench<'_>, table: u64, index: usize, size: u64) -> Result<*mut u8, DeviceFault> {
    if !table.is_multiple_of(size) {
        let message = format!("a table of {size}-byte words at {table:#x}");
        return Err(DeviceFault { code: Code::MISALIGNED_ADDRESS, message });
    }
    bench.range(table + index as u64 * size, size)
}

/// A table of 64-bit words in device memory.
fn table(bench: &Bench<'_>, table: u64, count: u64) -> Result<Vec<u64>, DeviceFault> {
    if count == 0 {
        return Ok(Vec::new());
    }
    word(bench, table, 0, 8)?;
    let words = slice(bench, table, count.saturating_mul(8))?.chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect())
}

/// Writes one word of a table in device memory.
fn put(bench: &Bench<'_>, table: u64, index: usize, value: u64) -> Result<(), DeviceFault> {
    let place = word(bench, table, index, 8)?;
    // SAFETY: eight bytes of a checked range, aligned.
    unsafe { place.cast::<u64>().write(value) };
    Ok(())
}

/// Device memory to read. Nothing may be written through [`slice_mut`] while it is held.
fn slice<'a>(bench: &Bench<'a>, address: u64, bytes: u64) -> Result<&'a [u8], DeviceFault> {
    if bytes == 0 {
        return Ok(&[]);
    }
    let start = bench.range(address, bytes)?;
    // SAFETY: a checked range of an allocation that outlives the operation; callers hold no
    // mutable slice at the same time.
    Ok(unsafe { std::slice::from_raw_parts(start, bytes as usize) })
}

/// Device memory to write. Nothing else may be held at the same time.
#[allow(clippy::mut_from_ref, reason = "the memory is the device's, not the bench's")]
pub(crate) fn slice_mut<'a>(
    bench: &Bench<'a>,
    address: u64,
    bytes: u64,
) -> Result<&'a mut [u8], DeviceFault> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    let start = bench.range(address, bytes)?;
    // SAFETY: a checked range of an allocation that outlives the operation; callers hold no
    // other slice at the same time.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) })
}

/// Overwrites a range with noise: the first 16 MiB, the last 64 KiB and a bit of each
/// mebibyte between, so that large ranges stay cheap.
pub(crate) fn noise(bench: &Bench<'_>, address: u64, bytes: u64) -> Result<(), DeviceFault> {
    const HEAD: usize = 16 << 20;
    const TAIL: usize = 64 << 10;
    let mut random = Random::new(bench.settings.seed ^ address ^ bytes);
    let all = slice_mut(bench, address, bytes)?;
    let (head, rest) = all.split_at_mut(all.len().min(HEAD));
    random.fill(head);
    let (middle, tail) = rest.split_at_mut(rest.len().saturating_sub(TAIL));
    random.fill(tail);
    for piece in middle.chunks_mut(1 << 20) {
        let length = piece.len().min(64);
        random.fill(&mut piece[..length]);
    }
    Ok(())
}
