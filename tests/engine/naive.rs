//! The reference: an engine that could not be simpler. One thread, other codec
//! libraries than the CPU engine's, predictors as the TIFF specification words them.

use std::io::Read;

use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelSink, PixelSource, Pixels, Predictor, Sample,
    Staged, TileError, TileJob, TileSpec,
};
use gpugtiff::error::{Error, Result};

use crate::tiles;

pub(crate) struct Naive;

struct Ready(Batch);

impl Engine for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn appetite(&self, _spec: &TileSpec, limit: usize) -> usize {
        limit
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        Ok(Box::new(Ready(batch)))
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        *packed = Packed::default();
        for job in &batch.tiles {
            let mut pixels = vec![0; batch.spec.row_bytes() * job.rows];
            let start = packed.bytes.len();
            if source.get(job.id, &mut pixels) {
                packed.bytes.extend(tiles::store(&batch.spec, &pixels));
            }
            packed.tiles.push(start..packed.bytes.len());
        }
        Ok(())
    }
}

impl Staged for Ready {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let batch = &self.0;
        let mut failed = Vec::new();
        for tile in &batch.tiles {
            match decode(batch, tile) {
                Ok(data) => {
                    let row_bytes = batch.spec.row_bytes();
                    sink.put(tile.id, Pixels::whole(&data, tile.rows, row_bytes));
                }
                Err(error) => failed.push(TileError { id: tile.id, error }),
            }
        }
        failed
    }
}

fn decode(batch: &Batch, tile: &TileJob) -> Result<Vec<u8>> {
    let spec = &*batch.spec;
    let mut packed = vec![0; tile.len];
    batch.source.read_at(tile.offset, &mut packed)?;
    let capacity = spec.stored_row_bytes() * spec.height;
    let mut data = unpack(spec.codec, &packed, capacity)
        .ok_or_else(|| Error::corrupt("does not unpack", tile.offset))?;
    let needed = spec.stored_row_bytes() * tile.rows;
    if data.len() < needed {
        return Err(Error::corrupt("too short", tile.offset));
    }
    data.truncate(needed);
    for row in data.chunks_exact_mut(spec.stored_row_bytes()) {
        undo(spec, row);
    }
    Ok(match spec.sample {
        Sample::Whole { .. } => data,
        Sample::Bit { on } => data
            .chunks_exact(spec.stored_row_bytes())
            .flat_map(|row| {
                (0..spec.width * spec.samples)
                    .map(move |x| if row[x / 8] & (0x80 >> (x % 8)) == 0 { 0 } else { on })
            })
            .collect(),
    })
}

/// At most `capacity` bytes; `None` where the stream is wrong.
pub(crate) fn unpack(codec: Codec, packed: &[u8], capacity: usize) -> Option<Vec<u8>> {
    match codec {
        Codec::None => Some(packed.to_vec()),
        Codec::Deflate => {
            let mut out = Vec::new();
            // One byte more than fits, to see that there is no more; the end is
            // read to have the checksum verified.
            flate2::read::ZlibDecoder::new(packed)
                .take(capacity as u64 + 1)
                .read_to_end(&mut out)
                .ok()?;
            (out.len() <= capacity).then_some(out)
        }
        Codec::Zstd => {
            let mut out = Vec::new();
            zstd::stream::read::Decoder::new(packed)
                .ok()?
                .single_frame()
                .take(capacity as u64 + 1)
                .read_to_end(&mut out)
                .ok()?;
            (out.len() <= capacity).then_some(out)
        }
        Codec::Lzw => lzw(packed, capacity),
        Codec::PackBits => Some(packbits(packed, capacity)),
        // There is no naive decoder: `jpeg2000.rs` knows the pixels of its tiles.
        Codec::Jpeg2000(_) | Codec::Gtiff => None,
    }
}

/// TIFF 6.0, section 13: strings in a table, codes of 9 to 12 bits, each width one
/// code early.
fn lzw(packed: &[u8], capacity: usize) -> Option<Vec<u8>> {
    let (clear, end) = (256, 257);
    let mut table: Vec<Vec<u8>> = Vec::new();
    let mut out: Vec<u8> = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    let mut at = 0;
    let mut width = 9;
    while at + width <= packed.len() * 8 && out.len() < capacity {
        let bit = |i: usize| usize::from(packed[i / 8] >> (7 - i % 8) & 1);
        let code = (at..at + width).fold(0, |n, i| n << 1 | bit(i));
        at += width;
        if code == end {
            break;
        }
        if code == clear {
            table = (0..258).map(|i| vec![i as u8]).collect();
            (last, width) = (None, 9);
            continue;
        }
        let string = match (table.get(code), &last) {
            (Some(string), _) => string.clone(),
            (None, Some(last)) if code == table.len() => [&last[..], &last[..1]].concat(),
            _ => return None,
        };
        if let Some(last) = last {
            table.push([&last[..], &string[..1]].concat());
        }
        out.extend_from_slice(&string);
        last = Some(string);
        width = match table.len() {
            ..511 => 9,
            511..1023 => 10,
            1023..2047 => 11,
            _ => 12,
        };
    }
    out.truncate(capacity);
    Some(out)
}

fn packbits(mut packed: &[u8], capacity: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&head, rest)) = packed.split_first() {
        packed = rest;
        let head = head as i8;
        if head >= 0 {
            let len = head as usize + 1;
            if packed.len() < len {
                break;
            }
            out.extend_from_slice(&packed[..len]);
            packed = &packed[len..];
        } else if head != -128 {
            let Some((&byte, rest)) = packed.split_first() else { break };
            packed = rest;
            out.extend(std::iter::repeat_n(byte, (1 - isize::from(head)) as usize));
        }
        if out.len() >= capacity {
            break;
        }
    }
    out.truncate(capacity);
    out
}

/// One row back to native samples.
pub(crate) fn undo(spec: &TileSpec, row: &mut [u8]) {
    let Sample::Whole { bytes, unit } = spec.sample else { return };
    let bytes = usize::from(bytes);
    match spec.predictor {
        Predictor::None if spec.swap => row.chunks_exact_mut(unit.into()).for_each(<[u8]>::reverse),
        Predictor::None => {}
        Predictor::Horizontal => {
            if spec.swap {
                row.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
            }
            for i in spec.samples..row.len() / bytes {
                let left = number(&row[(i - spec.samples) * bytes..][..bytes]);
                let sum = number(&row[i * bytes..][..bytes]).wrapping_add(left);
                row[i * bytes..][..bytes].copy_from_slice(&sum.to_le_bytes()[..bytes]);
            }
        }
        Predictor::FloatingPoint => {
            for i in spec.samples..row.len() {
                row[i] = row[i].wrapping_add(row[i - spec.samples]);
            }
            let planes = row.to_vec();
            let count = row.len() / bytes;
            for i in 0..count {
                for b in 0..bytes {
                    // The first plane holds the most significant bytes.
                    row[i * bytes + b] = planes[(bytes - 1 - b) * count + i];
                }
            }
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}
