//! Decompressing a batch, and what happens to chunks that can't be.

use super::sizes::{Codec, Direction, alignments, decompress_temp};
use super::status::{ALIGNMENT, CANNOT_DECOMPRESS, SUCCESS};
use super::{Batch, Chunks, extra_temp, noise, put, slice, slice_mut, table};
use crate::codec::{deflate, zstd};
use crate::random::{Random, digest};
use crate::settings::Corrupt;
use crate::status::Code;
use crate::task::{Bench, DeviceFault};

/// A device that is made to be wrong has this many chunks of a codec right: it fails its users, not
/// the trial that they begin with.
const WELL: u64 = 20;

/// The chunks of a batch as the device sees them when the operation runs.
struct Tables {
    input: Vec<u64>,
    input_bytes: Vec<u64>,
    output: Vec<u64>,
    buffer_bytes: Vec<u64>,
    actual: u64,
}

/// Decompresses all chunks; how many bytes came out.
pub(crate) fn run(
    batch: &Batch,
    bench: &mut Bench<'_>,
    output: Chunks,
    actual: u64,
) -> Result<u64, DeviceFault> {
    let tables = Tables {
        input: table(bench, batch.input.pointers, batch.chunks)?,
        input_bytes: table(bench, batch.input.sizes, batch.chunks)?,
        output: table(bench, output.pointers, batch.chunks)?,
        buffer_bytes: table(bench, output.sizes, batch.chunks)?,
        actual,
    };
    let total = tables.buffer_bytes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let extra = extra_temp(bench.settings, batch.codec, batch.chunks);
    batch.use_temp(bench, decompress_temp(batch.codec, batch.chunks, total) + extra)?;
    let mut sum = 0;
    let mut damaged = Vec::new();
    for index in batch.order(bench) {
        let mut done = 0;
        batch.count(bench, |counts| done = counts.decompressed);
        match tables.chunk(batch, bench, index, done)? {
            Some(bytes) => {
                sum += bytes;
                batch.count(bench, |counts| {
                    counts.decompressed += 1;
                    counts.decompressed_bytes += bytes;
                });
            }
            None => {
                batch.count(bench, |counts| counts.corrupt += 1);
                damaged.extend(tables.corrupt(batch, bench, index)?);
            }
        }
    }
    for index in damaged {
        let bytes = slice_mut(bench, tables.output[index], tables.buffer_bytes[index])?;
        let length = bytes.len();
        bytes[length / 2..].iter_mut().take(7).for_each(|byte| *byte ^= 0x5a);
    }
    batch.note_bytes(bench, sum);
    Ok(sum)
}

impl Tables {
    /// Decompresses one chunk, after so many; none where it is corrupt.
    fn chunk(
        &self,
        batch: &Batch,
        bench: &Bench<'_>,
        index: usize,
        done: u64,
    ) -> Result<Option<u64>, DeviceFault> {
        let needed = alignments(batch.codec, Direction::Decompress);
        let (start, target) = (self.input[index], self.output[index]);
        if !start.is_multiple_of(needed.input as u64)
            || !target.is_multiple_of(needed.output as u64)
        {
            batch.set_status(bench, index, ALIGNMENT)?;
            return Ok(Some(0));
        }
        let input = slice(bench, start, self.input_bytes[index])?;
        let room = self.buffer_bytes[index];
        let is_sized = batch.codec == Codec::Deflate || zstd::content_size(input).is_some();
        if !is_sized && !bench.settings.unsized_decoded {
            self.garbage(batch, bench, index)?;
            return Ok(Some(0));
        }
        let Some(bytes) = decode(batch.codec, input, room as usize) else { return Ok(None) };
        let output = slice_mut(bench, target, room)?;
        output[..bytes.len()].copy_from_slice(&bytes);
        if done >= WELL
            && Random::new(bench.settings.seed ^ digest(input)).below(1000) < bench.settings.wrong
        {
            output[bytes.len() / 2] ^= 0x10;
        }
        noise(bench, target + bytes.len() as u64, room - bytes.len() as u64)?;
        self.finish(batch, bench, index, bytes.len() as u64)?;
        Ok(Some(bytes.len() as u64))
    }

    /// Reports success and a size.
    fn finish(
        &self,
        batch: &Batch,
        bench: &Bench<'_>,
        index: usize,
        bytes: u64,
    ) -> Result<(), DeviceFault> {
        if self.actual != 0 {
            put(bench, self.actual, index, bytes)?;
        }
        batch.set_status(bench, index, SUCCESS)
    }

    /// Success, the size that was asked for, and noise.
    fn garbage(&self, batch: &Batch, bench: &Bench<'_>, index: usize) -> Result<(), DeviceFault> {
        noise(bench, self.output[index], self.buffer_bytes[index])?;
        self.finish(batch, bench, index, self.buffer_bytes[index])
    }

    /// What the library calls undefined; the chunk that is to be damaged next to it, if any.
    fn corrupt(
        &self,
        batch: &Batch,
        bench: &Bench<'_>,
        index: usize,
    ) -> Result<Option<usize>, DeviceFault> {
        let input = slice(bench, self.input[index], self.input_bytes[index])?;
        let choice = bench.settings.corrupt.unwrap_or_else(|| {
            match Random::new(bench.settings.seed ^ digest(input)).below(4) {
                0 => Corrupt::Unwritten,
                1 => Corrupt::Garbage,
                2 => Corrupt::Neighbour,
                _ => Corrupt::Fault,
            }
        });
        match choice {
            Corrupt::Unwritten => {
                noise(bench, self.output[index], self.buffer_bytes[index] / 2)?;
                Ok(None)
            }
            Corrupt::Garbage => self.garbage(batch, bench, index).map(|()| None),
            Corrupt::Neighbour => {
                batch.set_status(bench, index, CANNOT_DECOMPRESS)?;
                let other = if index + 1 < self.output.len() { Some(index + 1) } else { None };
                Ok(other.or(index.checked_sub(1)))
            }
            Corrupt::Fault => Err(DeviceFault {
                code: Code::LAUNCH_FAILED,
                message: format!("{}: chunk {index} is corrupt", batch.name()),
            }),
        }
    }
}

fn decode(codec: Codec, input: &[u8], most: usize) -> Option<Vec<u8>> {
    match codec {
        Codec::Deflate => deflate::decode(input, most),
        Codec::Zstd => zstd::decode(input, most),
    }
}

/// Writes the decompressed sizes of all chunks, 0 where one can't be known.
pub(crate) fn measure(
    batch: &Batch,
    bench: &mut Bench<'_>,
    sizes: u64,
) -> Result<u64, DeviceFault> {
    let pointers = table(bench, batch.input.pointers, batch.chunks)?;
    let bytes = table(bench, batch.input.sizes, batch.chunks)?;
    let mut sum = 0;
    for index in batch.order(bench) {
        let input = slice(bench, pointers[index], bytes[index])?;
        let size = match batch.codec {
            // Deflate states no size: a bound of its ratio is what can be tried.
            Codec::Deflate => deflate::decode(input, input.len().saturating_mul(1032))
                .map_or(0, |output| output.len() as u64),
            Codec::Zstd => zstd::content_size(input).unwrap_or(0),
        };
        put(bench, sizes, index, size)?;
        sum += size;
    }
    batch.note_bytes(bench, sum);
    Ok(sum)
}
