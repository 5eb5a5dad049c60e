//! How fast: the whole way from packed tiles in memory to pixels in memory and back, with every
//! pixel checked outside the clock. The best of several runs, as the first ones allocate.

use std::time::Duration;

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Codec, Engine, Packed, TileSpec};

use crate::machine::{count, done_by_cpu, engine_with, sized};
use crate::raster::{Raster, Stored, floats, integers};
use crate::report;

/// Large enough to fill any device, small enough for the memory of a laptop.
const PIXEL_BYTES: usize = 512 << 20;

fn best(mut run: impl FnMut() -> Duration) -> Duration {
    (0..sized(4, 1)).map(|_| run()).min().unwrap_or_default()
}

/// A figure, with a word on tiles that the CPU did while it was measured.
fn figure(engine: &dyn Engine, measure: impl FnOnce() -> String) -> String {
    let before = done_by_cpu(engine);
    let figure = measure();
    match done_by_cpu(engine) - before {
        0 => figure,
        n => format!("{figure}, {n} tiles by the CPU"),
    }
}

/// Megabytes of pixels a second.
fn decode(raster: &Raster, stored: &Stored, engine: &dyn Engine) -> String {
    let tiles = engine.appetite(&raster.spec, usize::MAX) / raster.spec.tile_bytes();
    figure(engine, || {
        let took = best(|| raster.decode(engine, stored, tiles, engine.ahead()));
        format!("{:.0}", raster.rate(took))
    })
}

/// The same, and how much is left of the pixels; what was packed is read back by the CPU.
fn encode(raster: &Raster, engine: &dyn Engine) -> String {
    let mut packed = Packed::default();
    figure(engine, || {
        let took = best(|| raster.encode(engine, &mut packed));
        let stored = Stored::new(&packed);
        raster.decode(&CpuEngine, &stored, usize::MAX, 0);
        let bytes = raster.pixels.len() * raster.spec.tile_bytes();
        format!("{:.0} ({:.3})", raster.rate(took), stored.len() as f64 / bytes as f64)
    })
}

type Measure<'a> = dyn Fn(&dyn Engine) -> String + 'a;

/// BATCH_MB, in megabytes: as it is by default, and roomy.
const BATCH_MB: [usize; 2] = [64, 512];

fn measure(name: &str, spec: TileSpec, text: &mut String) {
    let tiles = sized(PIXEL_BYTES / spec.tile_bytes(), 2);
    let raster = Raster::new(spec, tiles);
    let stored = raster.pack(&CpuEngine);
    let engines = BATCH_MB.map(|mb| engine_with(Verify::First, mb << 20));
    let [usual, roomy] = &engines;
    for (way, measure) in [
        ("decode", &(|engine: &dyn Engine| decode(&raster, &stored, engine)) as &Measure),
        ("encode", &|engine: &dyn Engine| encode(&raster, engine)),
    ] {
        let cells = [usual as &dyn Engine, roomy, &CpuEngine].map(measure);
        let name = format!("{way} {name}");
        report::row(text, &[&name, &cells[0], &cells[1], &cells[2]]);
    }
    for engine in &engines {
        assert_eq!(count(engine, "CUDA_FAULTS"), 0, "{:?}", engine.notices());
        assert_eq!(count(engine, "CUDA_MISMATCHES"), 0, "{:?}", engine.notices());
        let done = count(engine, "CUDA_TILES_DECODED");
        assert!(done >= tiles as u64, "{name}: the device decoded {done} tiles of {tiles}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn table() {
    report::chapter("Throughput, MB of pixels a second (compressed ÷ raw)", |text| {
        report::head(text, &["", "GPU, BATCH_MB=64", "GPU, BATCH_MB=512", "CPU"]);
        // LZW is encoded on the CPU whatever the engine.
        for codec in [Codec::Deflate, Codec::Zstd, Codec::Lzw] {
            for edge in [256, 512] {
                let name = format!("{codec:?} UInt16 predictor 2, {edge}×{edge}");
                measure(&name, integers(codec, edge, edge), text);
                let name = format!("{codec:?} Float32 predictor 3, {edge}×{edge}");
                measure(&name, floats(codec, edge, edge), text);
            }
        }
    });
}
