//! What is done while calls fail: a few batches of tiles, read or written, and looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use gpugtiff::engine::cpu::{self, CpuEngine};
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::jpeg2000::Kind;
use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels, Predictor,
    Sample, TileJob, TileSpec,
};
use gpugtiff::io::{ByteSource, Memory};

use crate::emulator;
use crate::on_file::Local;

const TILES: u64 = 16;
/// Four tiles a batch of the device's, so that three are on their way while something fails.
const BATCH_BYTES: usize = 16 << 10;

fn spec(codec: Codec) -> TileSpec {
    TileSpec {
        codec,
        predictor: Predictor::Horizontal,
        sample: Sample::Whole { bytes: 2, unit: 2 },
        samples: 1,
        width: 40,
        height: 24,
        swap: false,
    }
}

struct Slopes;

impl PixelSource for Slopes {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        for (i, to) in tile.chunks_exact_mut(2).enumerate() {
            let value = (i % 40) as u16 * 3 + (i / 40) as u16 * 5 + (i as u16 ^ id as u16) % 7;
            to.copy_from_slice(&value.to_ne_bytes());
        }
        true
    }
}

#[derive(Default)]
struct Keep(Mutex<HashMap<u64, Vec<u8>>>);

impl PixelSink for Keep {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        self.0.lock().unwrap().insert(id, pixels.data.to_vec());
    }
}

fn encode(engine: &dyn Engine, codec: Codec) -> Result<Packed, String> {
    let tiles = (0..TILES).map(|id| PixelJob { id, rows: 24, inside: None }).collect();
    let batch = PixelBatch { spec: Arc::new(spec(codec)), level: 6, tiles, threads: 2 };
    let mut packed = Packed::default();
    engine.encode(&batch, &Slopes, &mut packed).map_err(|error| error.to_string())?;
    Ok(packed)
}

/// Ok if all pixels are right, an error if some tile is missing; wrong pixels are a panic.
fn decode(
    engine: &dyn Engine,
    codec: Codec,
    packed: &Packed,
    source: Arc<dyn ByteSource>,
) -> Result<(), String> {
    let jobs: Vec<TileJob> = (0..TILES)
        .map(|id| {
            let range = packed.tiles[id as usize].clone();
            let (offset, len) = (range.start as u64, range.len());
            TileJob { id, offset, len, rows: 24, columns: 0, padded: true, part: None }
        })
        .collect();
    let keep = Keep::default();
    for tiles in jobs.chunks(14) {
        let (spec, tiles) = (Arc::new(spec(codec)), tiles.to_vec());
        let batch = Batch { spec, tiles, source: source.clone(), threads: 2 };
        let staged = engine.stage(batch).map_err(|error| error.to_string())?;
        if let Some(failed) = staged.decode(&keep).first() {
            return Err(failed.error.to_string());
        }
    }
    let kept = keep.0.into_inner().unwrap();
    for id in 0..TILES {
        let mut pixels = vec![0; 40 * 24 * 2];
        Slopes.get(id, &mut pixels);
        assert!(kept[&id] == pixels, "{codec:?}: tile {id} is wrong");
    }
    Ok(())
}

unsafe extern "C" {
    /// GDAL's; the others take their time.
    fn GDALRegister_JP2OpenJPEG();
}

/// Tiles of JPEG 2000, whose pixels are those that the CPU has.
fn jpeg2000(engine: &dyn Engine) -> Result<(), String> {
    let stream = include_bytes!("../jpeg2000/i8.j2k");
    // SAFETY: it may be called at any time.
    unsafe { GDALRegister_JP2OpenJPEG() };
    cpu::jpeg2000::provide(gpugtiff::gdal::jpeg2000::decode);
    let spec = Arc::new(TileSpec {
        codec: Codec::Jpeg2000(Kind { signed: true, ycbcr: false }),
        predictor: Predictor::None,
        sample: Sample::Whole { bytes: 1, unit: 1 },
        width: 32,
        height: 32,
        ..spec(Codec::None)
    });
    let len = stream.len();
    let job = |id: u64| {
        let offset = id * len as u64;
        TileJob { id, offset, len, rows: 32, columns: 32, padded: true, part: None }
    };
    // A batch of the device's, and a small one.
    let count = 10;
    let source = Arc::new(Memory(stream.repeat(count as usize)));
    let tiles = (0..count).map(job).collect();
    let staged = engine.stage(Batch { spec, tiles, source, threads: 2 });
    let keep = Keep::default();
    if let Some(failed) = staged.map_err(|error| error.to_string())?.decode(&keep).first() {
        return Err(failed.error.to_string());
    }
    let pixel = |i: usize| (5 * (i % 32) + 3 * (i / 32) + (i % 32) * (i / 32) / 8) as u8 ^ 0x80;
    let pixels: Vec<u8> = (0..32 * 32).map(pixel).collect();
    let kept = keep.0.into_inner().unwrap();
    assert!((0..count).all(|id| kept[&id] == pixels), "a tile is wrong");
    Ok(())
}

/// One line: exact, refused (with the reason) or error (with the error).
pub(crate) fn outcome(what: &str) -> String {
    let direct = what == "direct";
    let begin = if direct { emulator::try_direct } else { emulator::try_engine };
    let engine = match begin(Verify::First, BATCH_BYTES) {
        Ok(engine) => engine,
        Err(refusal) => return format!("refused: {refusal}"),
    };
    if what == "start" {
        return "exact".into();
    }
    if what == "jpeg2000" {
        return jpeg2000(&engine)
            .map_or_else(|error| format!("error: {error}"), |()| "exact".into());
    }
    // What is done besides is the same for all codecs.
    let codecs = if direct { 1 } else { 4 };
    for codec in [Codec::Deflate, Codec::Zstd, Codec::None, Codec::Lzw].into_iter().take(codecs) {
        let (encoder, decoder): (&dyn Engine, &dyn Engine) = match what {
            "write" => (&engine, &CpuEngine),
            _ => (&CpuEngine, &engine),
        };
        let outcome = encode(encoder, codec).and_then(|packed| {
            let source: Arc<dyn ByteSource> = match direct {
                true => Arc::new(Local::new(&packed.bytes)),
                false => Arc::new(Memory(packed.bytes.clone())),
            };
            decode(decoder, codec, &packed, source)
        });
        if let Err(error) = outcome {
            return format!("error: {error}");
        }
    }
    "exact".into()
}
