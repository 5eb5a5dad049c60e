//! Compressing a batch.

use super::sizes::{Codec, Direction, alignments, compress_temp, max_output};
use super::status::{ALIGNMENT, CHUNK_SIZE_TOO_LARGE, SUCCESS};
use super::{Batch, Chunks, noise, put, slice, slice_mut, table};
use crate::codec::{deflate, zstd};
use crate::random::{Random, digest};
use crate::task::{Bench, DeviceFault};

/// After a chunk and at the end of its buffer so many bytes are overwritten.
const MARGIN: u64 = 4096;

/// A device that is made to be wrong has this many chunks of a codec right, as when it decompresses: the
/// trial that its users begin with.
const WELL: u64 = 20;

/// Compresses all chunks; how many bytes went in.
pub(crate) fn run(
    batch: &Batch,
    bench: &mut Bench<'_>,
    output: Chunks,
    most: u64,
    algorithm: i32,
) -> Result<u64, DeviceFault> {
    let input = table(bench, batch.input.pointers, batch.chunks)?;
    let input_bytes = table(bench, batch.input.sizes, batch.chunks)?;
    let targets = table(bench, output.pointers, batch.chunks)?;
    batch.use_temp(bench, compress_temp(batch.codec, algorithm, batch.chunks, most))?;
    let needed = alignments(batch.codec, Direction::Compress);
    let bound = max_output(batch.codec, most);
    let mut sum = 0;
    for index in batch.order(bench) {
        let (start, target, bytes) = (input[index], targets[index], input_bytes[index]);
        let is_aligned = start.is_multiple_of(needed.input as u64)
            && target.is_multiple_of(needed.output as u64);
        if !is_aligned || bytes > most {
            let status = if is_aligned { CHUNK_SIZE_TOO_LARGE } else { ALIGNMENT };
            batch.set_status(bench, index, status)?;
            continue;
        }
        let mut done = 0;
        batch.count(bench, |counts| done = counts.compressed);
        let data = slice(bench, start, bytes)?;
        let stream = match done >= WELL && errs(bench, data) {
            true => encode(batch.codec, bench, &altered(data), algorithm),
            false => encode(batch.codec, bench, data, algorithm),
        };
        let length = stream.len() as u64;
        // All of the promised output belongs to the library while it works.
        slice_mut(bench, target, bound)?[..stream.len()].copy_from_slice(&stream);
        noise(bench, target + length, MARGIN.min(bound - length))?;
        noise(bench, target + length.max(bound.saturating_sub(MARGIN)), {
            MARGIN.min(bound - length)
        })?;
        put(bench, output.sizes, index, length)?;
        batch.set_status(bench, index, SUCCESS)?;
        sum += bytes;
        batch.count(bench, |counts| {
            counts.compressed += 1;
            counts.compressed_bytes += length;
        });
    }
    batch.note_bytes(bench, sum);
    Ok(sum)
}

/// Whether the device is to be wrong about these bytes.
fn errs(bench: &Bench<'_>, data: &[u8]) -> bool {
    let settings = &bench.settings;
    Random::new(settings.seed ^ digest(data)).below(1000) < settings.wrong_pack
}

/// The same but for a byte in the middle: what comes of it is intact, and of other data.
fn altered(data: &[u8]) -> Vec<u8> {
    let (mut data, middle) = (data.to_vec(), data.len() / 2);
    if let Some(byte) = data.get_mut(middle) {
        *byte ^= 0x10;
    }
    data
}

fn encode(codec: Codec, bench: &Bench<'_>, data: &[u8], algorithm: i32) -> Vec<u8> {
    let seed = bench.settings.seed;
    // The chunk's own bound, so that the stream does not depend on the batch.
    let bound = max_output(codec, data.len() as u64) as usize;
    match codec {
        Codec::Deflate => {
            let expand = bench.settings.expand;
            deflate::encode(data, deflate::Shape { algorithm, seed, bound, expand })
        }
        Codec::Zstd => zstd::encode(data, seed, bound),
    }
}
