//! The CUDA engine: whole batches decoded and encoded on an NVIDIA GPU through nvCOMP and kernels
//! of our own.
//!
//! A batch is one buffer up, one nvCOMP call, at most three (encoding: four) kernels and one
//! buffer down (encoding: two, as sizes come first), in memory that was allocated once. LZW and
//! PackBits tiles have a kernel in nvCOMP's place; to be encoded they are left to the CPU. Whatever
//! the device refuses, gets wrong or is too busy for is done by the CPU engine, and counted.
//!
//! Absent from here: GDAL, files, and what becomes of pixels. Nothing outside names cudarc or
//! nvCOMP.

mod arena;
mod codestreams;
mod compare;
mod cufile;
mod decode;
mod decode_plan;
mod devices;
mod driver;
mod encode;
mod encode_plan;
mod facts;
mod finish;
mod frames;
mod gds;
mod kernels;
mod known;
mod library;
mod nvcomp;
mod nvjpeg2k;
mod nvtx;
mod order;
mod pages;
mod plan;
mod plausible;
mod probe;
mod run;
mod staging;
mod tables;
mod tally;
mod target;
mod trial;
mod unpack;
mod verify;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use self::cufile::File;
use self::decode::Flight;
use self::decode_plan::Plan;
use self::driver::Fault;
use self::gds::Files;
use self::plan::{Begun, Known};
use self::probe::Gpu;
use self::run::{Lane, Run};
use self::tally::Tally;
use self::target::Target;
use self::verify::{Check, Kind};
use super::cpu::CpuEngine;
use super::{
    Batch, Codec, Engine, EngineReport, Packed, PixelBatch, PixelSink, PixelSource, Staged,
    TileError, TileSpec,
};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::memory;

pub use self::devices::{
    DeviceFacts, cuda_version, device_count, device_facts, is_device_memory, nvcomp_version,
};
pub use self::gds::Gds;
pub use self::plausible::device_is_plausible;
pub(super) use self::probe::driver_is_there;
pub use self::probe::{Refusal, Whereabouts};
pub use self::target::{Allocation, Ground, Landing, Misplaced, Spot, Wanted};
pub use self::trial::{Unpacked, patched};
pub use self::verify::Verify;

/// The status of a tile that is all right, of nvCOMP's and of our kernels.
const SUCCESS: i32 = 0;
/// Host memory holds six times a batch: three lanes, up and down.
const BATCH_SHARE: usize = 4;
/// What is allocated for a batch, in messages.
const TILES: &str = "the tiles of a batch";
/// What is done where the device cannot be used.
const ON_CPU: &str = "done on the CPU";
/// nvCOMP's better Deflate algorithms refuse batches of 2 GiB.
const LARGEST_BATCH: usize = i32::MAX as usize;

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
    /// The user asked for a level of Deflate, of ZSTD: a file's mask may be packed otherwise than its image.
    pub levels_given: (bool, bool),
    /// Wait for a device that is busy with another dataset, rather than use the CPU.
    pub patient: bool,
    /// How long, if not for as long as users do.
    pub patience: Option<Duration>,
    /// GDS.
    pub gds: Gds,
    /// GPUGTIFF_CUFILE: that library's path.
    pub cufile: Option<PathBuf>,
    /// GPUGTIFF_NVJPEG2K: that library's path.
    pub nvjpeg2k: Option<PathBuf>,
}

/// Whether the device decodes such tiles: all codecs but GDAL's own, and kernels and nvCOMP count
/// the bytes of a tile in 31 bits.
pub(super) fn decodes(spec: &TileSpec) -> bool {
    let bytes = spec.tile_bytes().max(spec.stored_row_bytes().saturating_mul(spec.height));
    spec.codec != Codec::Gtiff && bytes <= LARGEST_BATCH
}

/// Whether it encodes such tiles. docs/cuda.md says why LZW and PackBits are left to the CPU.
pub(super) fn encodes(spec: &TileSpec) -> bool {
    matches!(spec.codec, Codec::None | Codec::Deflate | Codec::Zstd) && decodes(spec)
}

/// The engine, one for each dataset; device and memory are the process's.
pub struct CudaEngine(Arc<Works>);

/// What all batches of one dataset share.
struct Works {
    gpu: Arc<Gpu>,
    settings: Settings,
    tally: Tally,
    notices: Mutex<Vec<String>>,
    /// What is read past the host.
    files: Option<Files>,
    /// By kind of tile, and whether they are.
    plans: Known<(TileSpec, bool), Plan>,
    /// The batch that has something to be read, and nothing to be computed yet.
    waiting: Mutex<Weak<Mutex<Option<Flight>>>>,
    encoding: Known<(TileSpec, i32), encode_plan::Plan>,
    /// The run of decoded batches that is under way.
    run: Mutex<Weak<Run>>,
    /// The run of encoded ones.
    encode_run: Mutex<Weak<Run>>,
    /// The device was busy for longer than anybody waits, and was not had since.
    gave_up: AtomicBool,
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
        let files = Files::new(&gpu, &settings)?;
        Ok(CudaEngine::on(gpu, settings, files))
    }

    fn on(gpu: Arc<Gpu>, settings: Settings, files: Option<Files>) -> CudaEngine {
        CudaEngine(Arc::new(Works {
            gpu,
            settings,
            tally: Tally::default(),
            notices: Mutex::default(),
            files,
            plans: Mutex::default(),
            waiting: Mutex::default(),
            encoding: Mutex::default(),
            run: Mutex::default(),
            encode_run: Mutex::default(),
            gave_up: AtomicBool::new(false),
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
    /// Whether tiles of this codec may go to the device: it is there and did known ones right.
    fn is_fit_for(&self, codec: Codec) -> bool {
        let fit = self.gpu.device.usable() && !self.gpu.trust().unfit.contains(&codec);
        fit && (!matches!(codec, Codec::Jpeg2000(_)) || self.has_nvjpeg2k())
    }

    /// How such tiles go through the device to be decoded, if they do; `direct`: read past the host.
    fn plan(&self, spec: &TileSpec, direct: bool) -> Option<Arc<Plan>> {
        let fit = decodes(spec) && self.is_fit_for(spec.codec);
        if !fit || self.gpu.trust().refuted.contains(&Kind::decode(spec)) {
            return None;
        }
        let key = (spec.clone(), direct);
        let known = lock(&self.plans).get(&key).cloned();
        known.unwrap_or_else(|| {
            let shared = Arc::new(spec.clone());
            let mut tiles = self.wanted(spec, BATCH_SHARE, 2);
            if let Codec::Jpeg2000(_) = spec.codec {
                tiles = tiles.min(codestreams::MOST_TILES);
            }
            let instead = if direct { "read through host memory" } else { ON_CPU };
            let plan = self.planned(instead, |gpu| Plan::new(gpu, &shared, tiles, direct));
            lock(&self.plans).insert(key, plan.clone());
            plan
        })
    }

    /// A lane for the next batch: of the run under way, or of a new one. `None` while the device
    /// is busy with others, or refuses.
    fn lane(&self, plan: &mut Arc<Plan>) -> Option<Lane> {
        let mut under_way = lock(&self.run);
        if let Some(run) = under_way.upgrade() {
            let ours = run.sizes == plan.sizes && !run.has_had_its_turn();
            return ours.then(|| run.lane()).flatten();
        }
        let instead = |plan: &Plan, instead| {
            lock(&self.plans).insert(((*plan.spec).clone(), plan.direct), instead);
        };
        let Begun::Run(run) = self.begin(plan, instead) else { return None };
        let run = Arc::new(run);
        *under_way = Arc::downgrade(&run);
        run.lane()
    }
}

impl Works {
    /// A batch was started: what is to be read of it is on its way. Now the one before it may go on.
    fn follow(&self, flight: Flight) -> Arc<Mutex<Option<Flight>>> {
        let direct = flight.plan.direct;
        let flight = Arc::new(Mutex::new(Some(flight)));
        if direct {
            let next = Arc::downgrade(&flight);
            let before = std::mem::replace(&mut *lock(&self.waiting), next).upgrade();
            // Who has it sees to it.
            if let Some(mut before) = before.as_ref().and_then(|before| before.try_lock().ok())
                && let Some(before) = &mut *before
            {
                before.depart();
            }
        }
        flight
    }
}

impl Engine for CudaEngine {
    fn name(&self) -> &'static str {
        "CUDA"
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        match self.0.plan(spec, false) {
            Some(plan) => (plan.tiles * spec.tile_bytes()).min(limit),
            None => CpuEngine.appetite(spec, limit),
        }
    }

    fn encode_appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        let tiles = 2 * self.multiprocessors() * spec.tile_bytes();
        (limit / 6).max(tiles).min(limit / 2).max(1)
    }

    fn encodes(&self) -> usize {
        2
    }

    fn ahead(&self) -> usize {
        2
    }

    fn stage(&self, batch: Batch) -> Result<Box<dyn Staged>> {
        match Course::start(&self.0, batch, None) {
            Ok(course) => Ok(Box::new(course)),
            Err(batch) => {
                self.0.tally.left_to_cpu(batch.spec.codec, batch.tiles.len());
                CpuEngine.stage(batch)
            }
        }
    }

    fn admit(&self, source: &Arc<dyn ByteSource>) -> Result<()> {
        self.0.admit(source)
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
    /// Where pixels stay on the device; else they come down.
    target: Option<Arc<Target>>,
    /// Where tiles are read past the host, if they are.
    file: Option<Arc<File>>,
    legs: VecDeque<Leg>,
    /// Tiles that have a leg.
    begun: usize,
}

enum Leg {
    /// On its way through the device. The batch that is started next may have it go on.
    Flight(Arc<Mutex<Option<Flight>>>),
    /// For the CPU: so many tiles from this one on.
    Walk(Range<usize>),
}

impl Course {
    /// The batch comes back if the device is not for it.
    fn start(
        works: &Arc<Works>,
        batch: Batch,
        target: Option<Arc<Target>>,
    ) -> std::result::Result<Course, Batch> {
        let file = works.file(&batch.source, &batch.spec);
        let direct = file.is_some();
        // Where there is no room for that, there may be for the other way.
        let plan = works.plan(&batch.spec, direct).map(|plan| (plan, file));
        let plan = plan.or_else(|| {
            let plan = direct.then(|| works.plan(&batch.spec, false)).flatten()?;
            Some((plan, None))
        });
        let Some((plan, file)) = plan else { return Err(batch) };
        let (works, legs) = (Arc::clone(works), VecDeque::new());
        let mut course = Course { works, plan, batch, target, file, legs, begun: 0 };
        course.go_on();
        Ok(course)
    }

    /// Sends off what there are lanes for.
    fn go_on(&mut self) {
        while self.begun < self.batch.tiles.len() {
            let rest = &self.batch.tiles[self.begun..];
            let count = self.plan.fitting(rest);
            if count == 0 {
                // Larger than any slot.
                self.legs.push_back(Leg::Walk(self.begun..self.begun + 1));
                self.begun += 1;
                continue;
            }
            let Some(lane) = self.works.lane(&mut self.plan) else { return };
            let jobs = &rest[..self.plan.fitting(rest)];
            let leg = match Flight::start(self, lane, jobs) {
                Ok(flight) => Leg::Flight(self.works.follow(flight)),
                // The CPU engine finds out which tiles cannot be read.
                Err(_) => Leg::Walk(self.begun..self.begun + jobs.len()),
            };
            self.begun += jobs.len();
            self.legs.push_back(leg);
        }
    }

    /// Nothing of this batch is on its way: waits for others to be done.
    fn wait_for_a_lane(&mut self) {
        let deadline = Instant::now() + self.works.patience();
        while self.legs.is_empty() && self.is_welcome() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.works.give_up();
            }
            self.works.gpu.arena.wait(left.min(Duration::from_millis(100)));
            self.go_on();
        }
    }

    /// Whether the device takes such tiles still: a refusal, for want of memory, is no reason to wait.
    fn is_welcome(&self) -> bool {
        self.works.plan(&self.batch.spec, self.plan.direct).is_some()
    }

    fn walk(&self, tiles: Range<usize>, sink: &dyn PixelSink) -> Vec<TileError> {
        let Batch { spec, source, threads, .. } = &self.batch;
        self.works.tally.left_to_cpu(spec.codec, tiles.len());
        let tiles = memory::or_unwind(memory::copied(&self.batch.tiles[tiles], TILES));
        let (spec, source) = (Arc::clone(spec), Arc::clone(source));
        decode_on_cpu(Batch { spec, tiles, source, threads: *threads }, sink)
    }
}

/// Reads and decodes tiles without the device.
fn decode_on_cpu(batch: Batch, sink: &dyn PixelSink) -> Vec<TileError> {
    let ids = memory::collect(batch.tiles.iter().map(|job| job.id), TILES);
    let ids = memory::or_unwind(ids);
    match CpuEngine.stage(batch) {
        Ok(staged) => staged.decode(sink),
        Err(error) => {
            let failed = ids.into_iter().map(|id| TileError { id, error: error.clone() });
            memory::or_unwind(memory::collect(failed, TILES))
        }
    }
}

impl Staged for Course {
    fn decode(mut self: Box<Self>, sink: &dyn PixelSink) -> Vec<TileError> {
        let mut failed = Vec::new();
        loop {
            while let Some(leg) = self.legs.pop_front() {
                let lost = match leg {
                    Leg::Flight(flight) => {
                        let flight = lock(&flight).take();
                        flight.map_or(Vec::new(), |flight| flight.land(sink))
                    }
                    Leg::Walk(tiles) => self.walk(tiles, sink),
                };
                memory::or_unwind(memory::extend(&mut failed, lost, TILES));
                self.go_on();
            }
            if self.begun == self.batch.tiles.len() {
                return failed;
            }
            self.wait_for_a_lane();
            if !self.legs.is_empty() {
                continue;
            }
            let mut now = self.begun..self.batch.tiles.len();
            if self.is_welcome() {
                // The device is busy with another dataset: one batch's worth is done here.
                let fitting = self.plan.fitting(&self.batch.tiles[now.clone()]);
                now.end = now.start + fitting.max(1);
                self.works.tally.busy.add(now.len() as u64);
            }
            self.begun = now.end;
            let lost = self.walk(now, sink);
            memory::or_unwind(memory::extend(&mut failed, lost, TILES));
        }
    }
}
