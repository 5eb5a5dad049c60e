//! The CUDA engine: whole batches decoded and encoded on an NVIDIA GPU through nvCOMP and kernels
//! of our own.
//!
//! A batch is one buffer up, one nvCOMP call, at most three (encoding: four) kernels and one
//! buffer down (encoding: two, as sizes come first), in memory that was allocated once. Whatever
//! the device refuses, gets wrong or is too busy for is done by the CPU engine, and counted.
//! LZW and PackBits have no decoder on the device yet: see `on_device`.
//!
//! Absent from here: GDAL, files, and what becomes of pixels. Nothing outside names cudarc or
//! nvCOMP.

mod arena;
mod decode;
mod driver;
mod encode;
mod encode_plan;
mod facts;
mod frames;
mod kernels;
mod known;
mod library;
mod nvcomp;
mod nvtx;
mod probe;
mod run;
mod staging;
mod tables;
mod tally;
mod verify;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use self::decode::{Flight, Plan};
use self::driver::{Answer, Current, Fault};
use self::probe::Gpu;
use self::run::{Lane, Run};
use self::tally::Tally;
use self::verify::{Check, Kind};
use super::cpu::CpuEngine;
use super::{
    Batch, Codec, Engine, EngineReport, Packed, PixelBatch, PixelSink, PixelSource, Staged,
    TileError, TileJob, TileSpec,
};
use crate::error::Result;

pub use self::probe::{Refusal, Whereabouts};
pub use self::verify::Verify;

/// nvCOMP's status of a chunk that is all right.
const SUCCESS: i32 = 0;
/// Device memory unless DEVICE_MB says otherwise, or a quarter of what is free.
const DEVICE_BYTES: usize = 2 << 30;
/// Host memory holds six times a batch: three lanes, up and down.
const BATCH_SHARE: usize = 4;

/// Tiles of a few bytes each: the tables would be larger than the pixels.
const MOST_TILES: usize = 1 << 17;
/// nvCOMP's better Deflate algorithms refuse batches of 2 GiB.
const LARGEST_BATCH: usize = i32::MAX as usize;
/// How long to wait for a device that is busy with another dataset.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the user wants the engine to work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Which device and which nvCOMP.
    pub whereabouts: Whereabouts,
    /// DEVICE_MB in bytes.
    pub device_bytes: Option<usize>,
    /// BATCH_MB in bytes.
    pub batch_bytes: usize,
    /// VERIFY.
    pub verify: Verify,
    /// The user asked for a level of compression.
    pub level_given: bool,
    /// Wait for a device that is busy with another dataset, rather than use the CPU.
    pub patient: bool,
}

/// Whether there is a driver at all; nothing is started.
pub(super) fn driver_is_there() -> bool {
    probe::driver_is_there()
}

/// Whether the device has a decoder for such tiles. Kernels and nvCOMP count the bytes of one in
/// 31 bits.
pub(super) fn on_device(spec: &TileSpec) -> bool {
    let bytes = spec.tile_bytes().max(spec.stored_row_bytes().saturating_mul(spec.height));
    matches!(spec.codec, Codec::None | Codec::Deflate | Codec::Zstd) && bytes <= LARGEST_BATCH
}

/// The engine, one for each dataset; device and memory are the process's.
pub struct CudaEngine(Arc<Works>);

/// Plans that were made, or could not be.
type Known<K, P> = Mutex<HashMap<K, Option<Arc<P>>>>;

/// What all batches of one dataset share.
struct Works {
    gpu: Arc<Gpu>,
    settings: Settings,
    tally: Tally,
    notices: Mutex<Vec<String>>,
    plans: Known<TileSpec, Plan>,
    encoding: Known<(TileSpec, i32), encode_plan::Plan>,
    /// The run of decoded batches that is under way.
    run: Mutex<Weak<Run>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Works {
    /// Tells the user, once in a process for each reason.
    fn notice(&self, text: String) {
        if self.gpu.trust().told.insert(text.clone()) {
            lock(&self.notices).push(text);
        }
    }

    /// The device failed on a batch, which the CPU does again.
    fn note_fault(&self, fault: Fault) {
        self.tally.faults.add(1);
        let name = &self.gpu.device.name;
        self.notice(match self.gpu.device.lost_with() {
            Some(code) => format!(
                "the GPU {name} failed (CUDA error {code}): this process goes on without it"
            ),
            None => format!("{name}: {fault}: done on the CPU instead"),
        });
    }

    /// What is to be compared of a batch of this kind.
    fn check(&self, kind: Kind, unproved: bool) -> Check {
        let trust = self.gpu.trust();
        let (proved, refuted) = (trust.proved.contains(&kind), trust.refuted.contains(&kind));
        let most = match unproved && !proved {
            true => usize::MAX,
            false => Check::most(self.settings.verify, proved),
        };
        Check { kind, refuted, most }
    }

    /// The comparison was made. Where the file itself is damaged nothing can be learnt of the
    /// device: what nvCOMP does to its neighbours is undefined.
    fn judged(&self, check: Check, right: bool, intact: bool) {
        if !right && !intact {
            return;
        }
        if right {
            self.gpu.trust().proved.insert(check.kind);
            return;
        }
        self.tally.mismatches.add(1);
        self.gpu.trust().refuted.insert(check.kind.clone());
        self.notice(format!(
            "the GPU {} gives other results than the CPU ({}): such tiles are left to the CPU",
            self.gpu.device.name, check.kind
        ));
    }
}

impl CudaEngine {
    /// Starts CUDA, if it is not running, and the engine on it.
    pub fn new(settings: Settings) -> std::result::Result<CudaEngine, Refusal> {
        let gpu = probe::find(&settings.whereabouts)?;
        if let Some(code) = gpu.device.lost_with() {
            return Err(Refusal::Lost(gpu.device.name.clone(), code));
        }
        Ok(CudaEngine::on(gpu, settings))
    }

    fn on(gpu: Arc<Gpu>, settings: Settings) -> CudaEngine {
        CudaEngine(Arc::new(Works {
            gpu,
            settings,
            tally: Tally::default(),
            notices: Mutex::default(),
            plans: Mutex::default(),
            encoding: Mutex::default(),
            run: Mutex::default(),
        }))
    }

    /// For people: the device and the libraries.
    pub fn device(&self) -> String {
        let (cuda, nvcomp) = (self.0.gpu.cuda, self.0.gpu.nvcomp.version);
        format!(
            "{}, CUDA {}.{}, nvCOMP {}.{}.{}",
            self.0.gpu.device.name,
            cuda / 1000,
            cuda % 1000 / 10,
            nvcomp / 1000,
            nvcomp % 1000 / 100,
            nvcomp % 100,
        )
    }

    /// Whether the device failed for good.
    pub fn is_lost(&self) -> bool {
        !self.0.gpu.device.usable()
    }

    /// Multiprocessors of the device.
    pub fn multiprocessors(&self) -> usize {
        self.0.gpu.device.multiprocessors
    }
}

impl Works {
    fn budget(&self, current: &Current) -> Answer<usize> {
        match self.settings.device_bytes {
            Some(bytes) => Ok(bytes),
            None => Ok(DEVICE_BYTES.min(current.memory()?.0 / 4)),
        }
    }

    /// Tiles that a batch should have, as far as host memory goes.
    fn wanted(&self, spec: &TileSpec, share: usize, waves: usize) -> usize {
        let tile = spec.tile_bytes().max(1);
        let share = (self.settings.batch_bytes / share).min(LARGEST_BATCH) / tile;
        // So many chunks for each multiprocessor, if that is not far too much for the host.
        let most = (self.settings.batch_bytes / 2).min(LARGEST_BATCH) / tile;
        share.max(waves * self.gpu.device.multiprocessors).min(most).clamp(1, MOST_TILES)
    }

    /// How such tiles go through the device, if they do.
    fn plan(&self, spec: &Arc<TileSpec>) -> Option<Arc<Plan>> {
        if !self.takes(spec) || self.gpu.trust().refuted.contains(&Kind::decode(spec)) {
            return None;
        }
        let mut plans = lock(&self.plans);
        if let Some(known) = plans.get(&**spec) {
            return known.clone();
        }
        let planned = self.gpu.device.enter().and_then(|current| {
            let budget = self.budget(&current)?;
            Plan::new(&self.gpu, spec, self.wanted(spec, BATCH_SHARE, 2), budget)
        });
        let plan = self.or_too_big(planned).map(Arc::new);
        plans.insert((**spec).clone(), plan.clone());
        plan
    }

    /// Whether such tiles go to the device: it does them and is there.
    fn takes(&self, spec: &TileSpec) -> bool {
        let device = &self.gpu.device;
        on_device(spec) && device.usable() && !self.gpu.trust().unfit.contains(&spec.codec)
    }

    fn or_too_big<T>(&self, planned: Answer<Option<T>>) -> Option<T> {
        match planned {
            Ok(Some(plan)) => return Some(plan),
            Ok(None) => {
                self.notice("not one tile fits into DEVICE_MB: done on the CPU instead".into())
            }
            Err(fault) => self.note_fault(fault),
        }
        None
    }

    /// A lane for the next batch: of the run under way, or of a new one. `None` while the device
    /// is busy with others, or refuses.
    fn lane(&self, plan: &mut Arc<Plan>) -> Option<Lane> {
        let mut under_way = lock(&self.run);
        if let Some(run) = under_way.upgrade() {
            let ours = run.sizes == plan.sizes && !run.has_had_its_turn();
            return ours.then(|| run.lane()).flatten();
        }
        let current = self.gpu.device.enter().ok()?;
        loop {
            match Run::begin(&self.gpu, &current, plan.sizes) {
                Ok(Some(run)) => {
                    self.note_memory(&run);
                    let run = Arc::new(run);
                    *under_way = Arc::downgrade(&run);
                    return run.lane();
                }
                Ok(None) => return None,
                Err(fault) if fault.is_out_of_memory() && plan.tiles > 1 => {
                    let half = Plan::new(&self.gpu, &plan.spec, plan.tiles / 2, usize::MAX);
                    let half = self.or_too_big(half).map(Arc::new);
                    lock(&self.plans).insert((*plan.spec).clone(), half.clone());
                    *plan = half?;
                }
                Err(fault) => {
                    self.note_fault(fault);
                    lock(&self.plans).insert((*plan.spec).clone(), None);
                    return None;
                }
            }
        }
    }

    /// How long a batch that has nothing on its way may wait for others.
    fn patience(&self) -> Duration {
        if self.settings.patient { PATIENCE } else { Duration::ZERO }
    }

    fn note_memory(&self, run: &Run) {
        self.tally.peak.raise(run.sizes.device() as u64);
        if !run.pinned {
            let text = "page-locked memory was refused: copies to the GPU are slower";
            self.notice(text.into());
        }
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &'static str {
        "CUDA"
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        match self.0.plan(&Arc::new(spec.clone())) {
            Some(plan) => (plan.tiles * spec.tile_bytes()).min(limit),
            None => CpuEngine.appetite(spec, limit),
        }
    }

    fn encode_appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        let tiles = 2 * self.multiprocessors() * spec.tile_bytes();
        (limit / 4).max(tiles).min(limit / 2).max(1)
    }

    fn ahead(&self) -> usize {
        2
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        let Some(plan) = self.0.plan(&batch.spec) else {
            self.0.tally.left.add(batch.tiles.len() as u64);
            return CpuEngine.stage(batch);
        };
        let mut course =
            Course { works: Arc::clone(&self.0), plan, batch, legs: VecDeque::new(), begun: 0 };
        course.go_on();
        Ok(Box::new(course))
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        encode::encode(&self.0, batch, source, packed)
    }

    fn report(&self) -> EngineReport {
        EngineReport { reason: Some(self.device()), counters: self.0.tally.list() }
    }

    fn notices(&self) -> Vec<String> {
        // In a forked child the lock may be held by a thread that is not there.
        let notices = self.0.notices.try_lock();
        notices.map_or(Vec::new(), |mut notices| std::mem::take(&mut *notices))
    }
}

/// A batch of the caller's, which may be several of the device's.
struct Course {
    works: Arc<Works>,
    plan: Arc<Plan>,
    batch: Batch,
    legs: VecDeque<Leg>,
    /// Tiles that have a leg.
    begun: usize,
}

enum Leg {
    /// On its way through the device.
    Flight(Flight),
    /// For the CPU.
    Walk(Vec<TileJob>),
}

impl Course {
    /// Sends off what there are lanes for.
    fn go_on(&mut self) {
        while self.begun < self.batch.tiles.len() {
            let rest = &self.batch.tiles[self.begun..];
            let count = self.plan.fitting(rest);
            if count == 0 {
                // Larger than any slot.
                self.legs.push_back(Leg::Walk(rest[..1].to_vec()));
                self.begun += 1;
                continue;
            }
            let Some(lane) = self.works.lane(&mut self.plan) else { return };
            let jobs = &rest[..self.plan.fitting(rest)];
            self.legs.push_back(
                match Flight::start(&self.works, &self.plan, lane, &self.batch, jobs) {
                    Ok(flight) => Leg::Flight(flight),
                    // The CPU engine finds out which tiles cannot be read.
                    Err(_) => Leg::Walk(jobs.to_vec()),
                },
            );
            self.begun += jobs.len();
        }
    }

    /// Nothing of this batch is on its way: waits for others to be done.
    fn wait_for_a_lane(&mut self) {
        let deadline = Instant::now() + self.works.patience();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.works.gpu.arena.wait(left.min(Duration::from_millis(100)));
            self.go_on();
            if !self.legs.is_empty() || left.is_zero() {
                return;
            }
        }
    }

    fn walk(&self, tiles: Vec<TileJob>, sink: &dyn PixelSink) -> Vec<TileError> {
        self.works.tally.left.add(tiles.len() as u64);
        let batch = Batch { tiles, ..self.batch.clone() };
        let ids: Vec<u64> = batch.tiles.iter().map(|job| job.id).collect();
        match CpuEngine.stage(batch) {
            Ok(staged) => staged.decode(sink),
            Err(error) => {
                ids.into_iter().map(|id| TileError { id, error: error.clone() }).collect()
            }
        }
    }
}

impl Staged for Course {
    fn decode(mut self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let mut failed = Vec::new();
        loop {
            while let Some(leg) = self.legs.pop_front() {
                failed.extend(match leg {
                    Leg::Flight(flight) => flight.land(sink),
                    Leg::Walk(tiles) => self.walk(tiles, sink),
                });
                self.go_on();
            }
            if self.begun == self.batch.tiles.len() {
                return failed;
            }
            if !self.works.patience().is_zero() && self.works.gpu.device.usable() {
                self.wait_for_a_lane();
                if !self.legs.is_empty() {
                    continue;
                }
            }
            // The device is busy with another dataset: one batch's worth is done here.
            let rest = &self.batch.tiles[self.begun..];
            let now = rest[..self.plan.fitting(rest).max(1)].to_vec();
            self.begun += now.len();
            self.works.tally.busy.add(now.len() as u64);
            failed.extend(self.walk(now, sink));
        }
    }
}
