//! ENGINE=AUTO: the GPU where it pays, the CPU everywhere else.
//!
//! Small rasters and small batches stay on the CPU. For the others CUDA is started in the background
//! while the CPU works; then both are timed on real batches, and the slower one is dropped. Reading
//! and writing are judged apart.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::cpu::CpuEngine;
use super::cuda::{self, CudaEngine, Settings};
use super::{
    Batch, Engine, EngineReport, Packed, PixelBatch, PixelSink, PixelSource, Staged, TileError,
    TileJob, TileSpec,
};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::pool;

/// Rasters with fewer bytes of pixels are not worth starting CUDA for.
const WORTH_IT: u64 = 256 << 20;
/// Twice the multiprocessors of a small GPU: with fewer tiles at once none is worth starting.
const MANY_TILES: usize = 32;
/// Batches that are timed before one engine is chosen, after a first one that is not.
const TRIALS: u32 = 2;

/// The engine that chooses.
pub struct AutoEngine {
    cpu: Box<dyn Engine>,
    settings: Settings,
    pixels: AtomicU64,
    start: Arc<Start>,
    reading: Arc<Trial>,
    writing: Arc<Trial>,
}

/// CUDA, once it was asked for and has answered.
#[derive(Default)]
struct Start {
    asked: OnceLock<()>,
    answer: OnceLock<std::result::Result<CudaEngine, String>>,
}

/// What was measured of both engines.
#[derive(Default)]
struct Trial(Mutex<Score>);

#[derive(Default)]
struct Score {
    cpu: Runs,
    cuda: Runs,
    chosen: Option<(Which, String)>,
}

#[derive(Default)]
struct Runs {
    batches: u32,
    bytes: u64,
    time: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    Cpu,
    Cuda,
}

impl Runs {
    /// The first batch pays for what the others find ready.
    fn add(&mut self, bytes: u64, time: Duration) {
        self.batches += 1;
        if self.batches > 1 {
            self.bytes += bytes;
            self.time += time;
        }
    }

    fn rate(&self) -> Option<f64> {
        (self.batches > TRIALS).then(|| self.bytes as f64 / self.time.as_secs_f64().max(1e-9))
    }
}

impl Trial {
    fn lock(&self) -> MutexGuard<'_, Score> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who takes the next batch.
    fn next(&self) -> Which {
        let score = self.lock();
        match &score.chosen {
            Some((which, _)) => *which,
            // The CPU was at work while CUDA started, or is tried first.
            None if score.cpu.rate().is_none() => Which::Cpu,
            None => Which::Cuda,
        }
    }

    fn add(&self, which: Which, bytes: u64, time: Duration) {
        let mut score = self.lock();
        match which {
            Which::Cpu => score.cpu.add(bytes, time),
            Which::Cuda => score.cuda.add(bytes, time),
        }
        if score.chosen.is_none()
            && let (Some(cpu), Some(cuda)) = (score.cpu.rate(), score.cuda.rate())
        {
            let (which, name) = if cuda > cpu { (Which::Cuda, "GPU") } else { (Which::Cpu, "CPU") };
            let (cpu, cuda) = (cpu / 1e6, cuda / 1e6);
            let reason =
                format!("AUTO: the {name} is faster (CPU {cpu:.0} MB/s, GPU {cuda:.0} MB/s)");
            score.chosen = Some((which, reason));
        }
    }

    fn is_lost_to_the_cpu(&self) -> bool {
        matches!(self.lock().chosen, Some((Which::Cpu, _)))
    }

    fn reason(&self) -> Option<String> {
        self.lock().chosen.as_ref().map(|(_, reason)| reason.clone())
    }
}

impl AutoEngine {
    /// Nothing is started yet.
    pub fn new(settings: Settings) -> AutoEngine {
        AutoEngine::beside(Box::new(CpuEngine), settings)
    }

    /// The same with another engine in the CPU engine's place.
    pub fn beside(cpu: Box<dyn Engine>, settings: Settings) -> AutoEngine {
        AutoEngine {
            cpu,
            settings,
            pixels: AtomicU64::new(0),
            start: Arc::default(),
            reading: Arc::default(),
            writing: Arc::default(),
        }
    }

    /// CUDA, if it has started and is still there.
    fn cuda(&self) -> Option<&CudaEngine> {
        self.start.answer.get()?.as_ref().ok().filter(|cuda| !cuda.is_lost())
    }

    /// Starts CUDA in the background, once, for a batch that shows that it may pay.
    fn start(&self, tiles: usize) {
        if self.pixels.load(Ordering::Relaxed) < WORTH_IT || tiles < MANY_TILES {
            return;
        }
        self.start.asked.get_or_init(|| {
            let (start, settings) = (Arc::clone(&self.start), self.settings.clone());
            // The process does not end while the driver is being started.
            let hold = pool::hold();
            let work = move || {
                let _hold = hold;
                let found = catch_unwind(AssertUnwindSafe(|| CudaEngine::new(settings)));
                let answer = found.map_err(|_| "internal error while CUDA was started".into());
                let answer = answer.and_then(|found| found.map_err(|why| why.to_string()));
                let _ = start.answer.set(answer);
            };
            // Where there is no driver the answer takes no time and no thread.
            if !cuda::driver_is_there() {
                work();
            } else if let Err(error) =
                std::thread::Builder::new().name("gpugtiff-cuda".into()).spawn(work)
            {
                let _ = self.start.answer.set(Err(format!("no thread to start CUDA in: {error}")));
            }
        });
    }

    /// CUDA, if the next batch of so many tiles shall go there; and whether its time counts.
    /// `able`: it does such tiles.
    fn choose(&self, trial: &Trial, able: bool, tiles: usize) -> (Option<&CudaEngine>, bool) {
        self.start(tiles);
        let Some(cuda) = self.cuda() else { return (None, tiles >= MANY_TILES) };
        // As many as keep it busy.
        let fits = able && tiles >= 2 * cuda.multiprocessors();
        (Some(cuda).filter(|_| fits && trial.next() == Which::Cuda), fits)
    }

    fn reason(&self) -> String {
        if let Some(Ok(cuda)) = self.start.answer.get()
            && cuda.is_lost()
        {
            return "AUTO: the GPU failed".into();
        }
        let judged = self.reading.reason().or_else(|| self.writing.reason());
        if let Some(reason) = judged {
            return reason;
        }
        let pixels = self.pixels.load(Ordering::Relaxed);
        if (1..WORTH_IT).contains(&pixels) {
            return format!("AUTO: less than {} MB of pixels", WORTH_IT >> 20);
        }
        match self.start.answer.get() {
            Some(Err(refusal)) => format!("AUTO: {refusal}"),
            Some(Ok(_)) => "AUTO: not decided yet".into(),
            None if self.start.asked.get().is_some() => "AUTO: CUDA is starting".into(),
            None => "AUTO: nothing was decoded yet".into(),
        }
    }
}

impl Engine for AutoEngine {
    fn name(&self) -> &'static str {
        let cuda = self.cuda().is_some()
            && [&self.reading, &self.writing]
                .iter()
                .any(|trial| matches!(trial.lock().chosen, Some((Which::Cuda, _))));
        if cuda { "CUDA" } else { "CPU" }
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        match self.cuda().filter(|_| !self.reading.is_lost_to_the_cpu()) {
            Some(cuda) => cuda.appetite(spec, limit).max(self.cpu.appetite(spec, limit)),
            None => self.cpu.appetite(spec, limit),
        }
    }

    fn encode_appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        match self.cuda().filter(|_| !self.writing.is_lost_to_the_cpu()) {
            Some(cuda) => cuda.encode_appetite(spec, limit),
            None => self.cpu.encode_appetite(spec, limit),
        }
    }

    /// Windows of a few tiles are the CPU's.
    fn reads_parts(&self) -> bool {
        self.cpu.reads_parts()
    }

    /// Single tiles are the CPU's.
    fn decode_tile(
        &self,
        spec: &Arc<TileSpec>,
        source: &Arc<dyn ByteSource>,
        job: TileJob,
        sink: &dyn PixelSink,
    ) -> Result<()> {
        self.cpu.decode_tile(spec, source, job, sink)
    }

    /// Where there is no GPU to be tried, or it was and is slower both ways.
    fn decodes_singly(&self) -> bool {
        let small = self.pixels.load(Ordering::Relaxed) < WORTH_IT;
        let cpu_alone = match self.start.answer.get() {
            Some(Ok(_)) => self.reading.is_lost_to_the_cpu() && self.writing.is_lost_to_the_cpu(),
            Some(Err(_)) => true,
            None => small || !cuda::driver_is_there(),
        };
        cpu_alone && self.cpu.decodes_singly()
    }

    /// One at a time until the choice is made: their times are taken.
    fn encodes(&self) -> usize {
        let chosen = matches!(self.writing.lock().chosen, Some((Which::Cuda, _)));
        self.cuda().filter(|_| chosen).map_or(1, Engine::encodes)
    }

    fn ahead(&self) -> usize {
        self.cuda().filter(|_| !self.reading.is_lost_to_the_cpu()).map_or(1, Engine::ahead)
    }

    fn expect(&self, pixel_bytes: u64) {
        self.pixels.fetch_max(pixel_bytes, Ordering::Relaxed);
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        let bytes = (batch.tiles.len() * batch.spec.tile_bytes()) as u64;
        let started = Instant::now();
        let (chosen, counts) =
            self.choose(&self.reading, cuda::decodes(&batch.spec), batch.tiles.len());
        let (which, staged) = match chosen {
            Some(cuda) => (Which::Cuda, cuda.stage(batch)?),
            None => (Which::Cpu, self.cpu.stage(batch)?),
        };
        if !counts {
            return Ok(staged);
        }
        let trial = Arc::clone(&self.reading);
        Ok(Box::new(Timed { staged, trial, which, bytes, staging: started.elapsed() }))
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        let bytes = (batch.tiles.len() * batch.spec.tile_bytes()) as u64;
        let started = Instant::now();
        let (chosen, counts) =
            self.choose(&self.writing, cuda::encodes(&batch.spec), batch.tiles.len());
        let which = match chosen {
            Some(cuda) => cuda.encode(batch, source, packed).map(|()| Which::Cuda)?,
            None => self.cpu.encode(batch, source, packed).map(|()| Which::Cpu)?,
        };
        if counts {
            self.writing.add(which, bytes, started.elapsed());
        }
        Ok(())
    }

    fn report(&self) -> EngineReport {
        let cuda = self.start.answer.get().and_then(|answer| answer.as_ref().ok());
        let report = cuda.map(Engine::report).unwrap_or_default();
        EngineReport { reason: Some(self.reason()), ..report }
    }

    fn notices(&self) -> Vec<String> {
        let cuda = self.start.answer.get().and_then(|answer| answer.as_ref().ok());
        cuda.map(Engine::notices).unwrap_or_default()
    }
}

/// A batch whose time is taken.
struct Timed {
    staged: Box<dyn Staged>,
    trial: Arc<Trial>,
    which: Which,
    bytes: u64,
    staging: Duration,
}

impl Staged for Timed {
    fn decode(self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let started = Instant::now();
        let failed = self.staged.decode(sink);
        self.trial.add(self.which, self.bytes, self.staging + started.elapsed());
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_one_is_dropped() {
        for (cuda_ms, chosen) in [(5, Which::Cuda), (50, Which::Cpu)] {
            let trial = Trial::default();
            for _ in 0..=TRIALS {
                assert_eq!(trial.next(), Which::Cpu);
                trial.add(Which::Cpu, 1 << 20, Duration::from_millis(10));
            }
            for _ in 0..=TRIALS {
                assert_eq!(trial.next(), Which::Cuda);
                trial.add(Which::Cuda, 1 << 20, Duration::from_millis(cuda_ms));
            }
            assert_eq!(trial.next(), chosen);
            assert!(trial.reason().is_some_and(|r| r.contains("MB/s")));
        }
    }

    #[test]
    fn a_first_batch_does_not_count() {
        let mut runs = Runs::default();
        runs.add(1, Duration::from_secs(100));
        assert_eq!(runs.rate(), None);
        runs.add(1_000_000, Duration::from_secs(1));
        runs.add(3_000_000, Duration::from_secs(1));
        assert_eq!(runs.rate(), Some(2e6));
    }

    #[test]
    fn small_rasters_never_ask_for_cuda() {
        let engine = AutoEngine::new(Settings::default());
        engine.expect(WORTH_IT - 1);
        assert_eq!(engine.report().reason.as_deref(), Some("AUTO: less than 256 MB of pixels"));
        engine.start(1000);
        assert!(engine.cuda().is_none() && engine.start.asked.get().is_none());
        engine.expect(WORTH_IT);
        engine.start(MANY_TILES - 1);
        assert!(engine.start.asked.get().is_none(), "a small window");
    }
}
