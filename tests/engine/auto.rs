//! ENGINE=AUTO beside a CPU that is slow enough for the emulated device to win: both are tried on real
//! batches, the CPU is dropped, and what comes after that goes to the device. (That the device is dropped
//! where it is slower is seen with the real CPU engine, in tests/python/test_cuda_auto.py.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpugtiff::engine::auto::AutoEngine;
use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelSink, PixelSource, Predictor, Sample, Staged,
    TileError, TileSpec,
};
use gpugtiff::error::Result;

use crate::emulator::{self, count};
use crate::tiles::Random;
use crate::{encode, suite};

/// Twice the multiprocessors of the emulated device, and some.
const TILES: usize = 180;
/// Rasters for which CUDA is started.
const LARGE: u64 = 1 << 30;

/// The CPU engine, so much later.
struct Slow {
    by: Duration,
    batches: Arc<AtomicUsize>,
}

struct Late(Box<dyn Staged>, Duration);

impl Staged for Late {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        std::thread::sleep(self.1);
        self.0.decode(sink)
    }
}

impl Engine for Slow {
    fn name(&self) -> &'static str {
        CpuEngine.name()
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        CpuEngine.appetite(spec, limit)
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Late(CpuEngine.stage(batch)?, self.by)))
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.by);
        CpuEngine.encode(batch, source, packed)
    }
}

pub(crate) fn spec() -> TileSpec {
    TileSpec {
        codec: Codec::Deflate,
        predictor: Predictor::Horizontal,
        sample: Sample::Whole { bytes: 2, unit: 2 },
        samples: 1,
        width: 16,
        height: 16,
        swap: false,
    }
}

/// Has `batch` done by the device alone, to see how long that takes; then by AUTO beside a CPU that
/// takes ten times as long, until it has chosen, and once more.
fn gpu_wins(batch: impl Fn(&dyn Engine), done: &str) {
    let device = emulator::engine(Verify::No);
    batch(&device);
    let started = Instant::now();
    batch(&device);
    let by = started.elapsed() * 10 + Duration::from_millis(100);
    let batches = Arc::new(AtomicUsize::new(0));
    let slow = Slow { by, batches: Arc::clone(&batches) };
    let auto = AutoEngine::beside(Box::new(slow), emulator::settings(Verify::No, 64 << 20));
    auto.expect(LARGE);
    let reason = || auto.report().reason.unwrap_or_default();
    for _ in 0..40 {
        batch(&auto);
        if reason().contains("faster") {
            break;
        }
    }
    assert!(reason().starts_with("AUTO: the GPU is faster (CPU "), "{}", reason());
    assert_eq!(auto.name(), "CUDA");
    let (on_cpu, on_device) = (batches.load(Ordering::Relaxed), count(&auto, done));
    assert!(on_cpu >= 3 && on_device >= 3 * TILES as u64, "{on_cpu}, {on_device}");
    batch(&auto);
    assert_eq!(count(&auto, done), on_device + TILES as u64, "the device goes on");
    assert_eq!(batches.load(Ordering::Relaxed), on_cpu, "the CPU was dropped");
}

#[test]
fn a_faster_device_is_chosen_to_decode() {
    let (mut case, mut random) = (suite::Case::new(spec()), Random::new(5));
    for _ in 0..TILES {
        case.add(16, &mut random);
    }
    let decode = |engine: &dyn Engine| case.run(engine, true, 2).check_exact(&case, "AUTO");
    gpu_wins(decode, "CUDA_TILES_DECODED");
}

#[test]
fn a_faster_device_is_chosen_to_encode() {
    let (mut case, mut random) = (encode::Case::new(spec()), Random::new(6));
    (0..TILES).for_each(|_| case.add(16, &mut random));
    let packed = std::cell::RefCell::new(Packed::default());
    // The bytes are looked at by the reference alone: reading them back is another trial.
    let encode = |engine: &dyn Engine| {
        case.encode(engine, 2, &mut packed.borrow_mut());
        case.read_back(&crate::naive::Naive, &packed.borrow(), "AUTO");
    };
    gpu_wins(encode, "CUDA_TILES_ENCODED");
}

#[test]
fn few_tiles_stay_on_the_cpu() {
    let (mut case, mut random) = (suite::Case::new(spec()), Random::new(7));
    for _ in 0..40 {
        case.add(16, &mut random);
    }
    let batches = Arc::new(AtomicUsize::new(0));
    let slow = Slow { by: Duration::from_millis(20), batches: Arc::clone(&batches) };
    let auto = AutoEngine::beside(Box::new(slow), emulator::settings(Verify::No, 64 << 20));
    auto.expect(LARGE);
    let started = || !auto.report().reason.unwrap_or_default().contains("starting");
    let mut runs = 0;
    while runs < 6 || !started() {
        case.run(&auto, true, 2).check_exact(&case, "AUTO");
        runs += 1;
    }
    assert_eq!((batches.load(Ordering::Relaxed), auto.name()), (runs, "CPU"));
    assert_eq!(count(&auto, "CUDA_TILES_DECODED"), 0, "CUDA has started, and has too few tiles");
}
