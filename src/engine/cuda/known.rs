//! Known tiles, encoded (on the CPU, where the device has no encoder) and decoded once in a process
//! before anything of the user's is: a library that loads may still not work on this device, and that
//! is no fault, only a reason.

use std::sync::{Arc, Mutex};

use super::probe::Gpu;
use super::{CudaEngine, Settings, Verify};
use crate::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels, Predictor,
    Sample, TileJob, TileSpec,
};
use crate::io::Memory;

const WIDTH: usize = 48;
const HEIGHT: usize = 33;
const TILES: u64 = 5;
const ROW: usize = WIDTH * 2;

/// Slopes with a little noise.
struct Known;

fn pixel(id: u64, x: usize, y: usize) -> u16 {
    let noise = (x * 31 + y * 17 + id as usize * 7) % 13;
    (x * 5 + y * 3 + noise) as u16
}

impl PixelSource for Known {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        for (i, to) in tile.chunks_exact_mut(2).enumerate() {
            to.copy_from_slice(&pixel(id, i % WIDTH, i / WIDTH).to_ne_bytes());
        }
        true
    }
}

#[derive(Default)]
struct Seen(Mutex<u64>);

impl PixelSink for Seen {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let mut known = vec![0; ROW * HEIGHT];
        Known.get(id, &mut known);
        let right = pixels.row_bytes == ROW && pixels.data == known;
        *super::lock(&self.0) += u64::from(right);
    }
}

/// Why this codec cannot be used on this device, if so.
pub(super) fn unfit(gpu: &Arc<Gpu>, codec: Codec) -> Option<String> {
    let settings = Settings {
        // Just these tiles: the arena stays small until there is real work.
        batch_bytes: 2 * TILES as usize * ROW * HEIGHT,
        verify: Verify::All,
        patient: true,
        ..Settings::default()
    };
    let engine = CudaEngine::on(Arc::clone(gpu), settings, None);
    round_trip(&engine, codec).err()
}

fn round_trip(engine: &CudaEngine, codec: Codec) -> Result<(), String> {
    let spec = Arc::new(TileSpec {
        codec,
        predictor: match codec {
            Codec::None | Codec::PackBits => Predictor::None,
            _ => Predictor::Horizontal,
        },
        sample: Sample::Whole { bytes: 2, unit: 2 },
        samples: 1,
        width: WIDTH,
        height: HEIGHT,
        swap: false,
    });
    let told = |what: &str| {
        let told = engine.notices().pop().unwrap_or(what.into());
        told.trim_end_matches(": done on the CPU instead").to_string()
    };
    let tiles = (0..TILES).map(|id| PixelJob { id, rows: HEIGHT, inside: None }).collect();
    let batch = PixelBatch { spec: Arc::clone(&spec), level: 6, tiles, threads: 1 };
    let mut packed = Packed::default();
    engine.encode(&batch, &Known, &mut packed).map_err(|error| error.to_string())?;
    if super::encodes(&spec) && engine.0.tally.encoded.get() != TILES {
        return Err(told("tiles were not encoded"));
    }
    let job = |(id, range): (usize, &std::ops::Range<usize>)| TileJob {
        id: id as u64,
        offset: range.start as u64,
        len: range.len(),
        rows: HEIGHT,
        columns: WIDTH,
        padded: true,
        part: None,
    };
    let tiles = packed.tiles.iter().enumerate().map(job).collect();
    let source = Arc::new(Memory(std::mem::take(&mut packed.bytes)));
    let staged = engine.stage(Batch { spec, tiles, source, threads: 1 });
    let seen = Seen::default();
    let failed = staged.map_err(|error| error.to_string())?.decode(&seen);
    let right = failed.is_empty() && *super::lock(&seen.0) == TILES;
    if !right || engine.0.tally.decoded.get() != TILES {
        return Err(told("tiles were not decoded"));
    }
    Ok(())
}
