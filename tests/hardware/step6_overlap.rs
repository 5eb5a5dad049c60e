//! Do copies and computing run at once? Events time each batch's parts; where the parts together
//! take longer than the clock on the wall, some of them must have run side by side.

use std::fmt::Write;
use std::time::Duration;

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Codec, Engine, Packed};

use crate::machine::{count, engine, sized};
use crate::raster::{Raster, floats};
use crate::report;

const PARTS: [&str; 4] = ["CUDA_US_UPLOAD", "CUDA_US_CODEC", "CUDA_US_KERNELS", "CUDA_US_DOWNLOAD"];

/// Times of one run.
struct Course {
    wall: Duration,
    /// Microseconds of each part.
    parts: [u64; 4],
    batches: u64,
}

impl Course {
    /// On an engine of its own, so that it counts from nothing.
    fn of(run: impl Fn(&dyn Engine) -> Duration) -> Course {
        let engine = engine(Verify::No);
        let wall = run(&engine);
        let parts = PARTS.map(|part| count(&engine, part));
        Course { wall, parts, batches: count(&engine, "CUDA_BATCHES") }
    }

    fn sum(&self) -> u64 {
        self.parts.iter().sum()
    }

    fn row(&self, name: &str, text: &mut String) {
        let ms = |us: u64| format!("{:.2}", us as f64 / 1000.0);
        let [up, codec, kernels, down] = self.parts.map(ms);
        let wall = self.wall.as_micros() as u64;
        let share = format!("{:.2}", self.sum() as f64 / wall.max(1) as f64);
        let (sum, wall) = (ms(self.sum()), ms(wall));
        report::row(
            text,
            &[&name, &self.batches, &up, &codec, &kernels, &down, &sum, &wall, &share],
        );
    }
}

fn measure(codec: Codec, text: &mut String) {
    let edge = sized(256, 64);
    let raster = Raster::new(floats(codec, edge, edge), sized(2048, 24));
    let stored = raster.pack(&CpuEngine);
    let tile = raster.spec.tile_bytes();
    let run = |ahead: fn(&dyn Engine) -> usize| {
        Course::of(|engine| {
            let step = engine.appetite(&raster.spec, sized(usize::MAX, 6 * tile)) / tile;
            raster.decode(engine, &stored, step, ahead(engine))
        })
    };
    // The first one allocates.
    run(|_| 0);
    let one_by_one = run(|_| 0);
    let ahead = run(|engine| engine.ahead());
    let encoding = || Course::of(|engine| raster.encode(engine, &mut Packed::default()));
    encoding();
    one_by_one.row(&format!("{codec:?} decode, one by one"), text);
    ahead.row(&format!("{codec:?} decode, ahead"), text);
    encoding().row(&format!("{codec:?} encode, ahead"), text);
    assert!(ahead.batches >= 4, "too few batches to overlap: {}", ahead.batches);
    let idle = |part: usize| part == 1 && codec == Codec::None;
    for (part, us) in ahead.parts.iter().enumerate() {
        assert!(*us > 0 || idle(part), "{} is 0", PARTS[part]);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_and_computing() {
    report::chapter("Overlap", |text| {
        let head = ["ms", "batches", "up", "nvCOMP", "kernels", "down", "sum", "wall", "sum/wall"];
        report::head(text, &head);
        for codec in [Codec::None, Codec::Deflate, Codec::Zstd] {
            measure(codec, text);
        }
        writeln!(
            text,
            "\nA sum above the wall time proves overlap; *ahead* below *one by one* shows what \
             it is worth."
        )
        .unwrap();
    });
}
