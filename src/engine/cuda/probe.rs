//! Is there a GPU that this engine can use, and if not, why not? One sentence for each reason.
//!
//! The driver is looked for by ourselves before cudarc is asked anything, since cudarc panics
//! where it, or one function of it, is missing. Nothing here runs when a file is opened, unless
//! CUDA was demanded.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::arena::Lender;
use super::cufile::CuFile;
use super::driver::{self, Device, Fault};
use super::kernels::Kernels;
use super::known;
use super::library::{self, Library};
use super::nvcomp::{NvComp, Unfit};
use super::nvjpeg2k::{NoStart, NvJpeg2k};
use super::verify::Kind;
use crate::engine::Codec;
use crate::process::PerProcess;

/// What the user may say about the device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Whereabouts {
    /// DEVICE: its number, or the one with most free memory.
    pub device: Option<u32>,
    /// GPUGTIFF_NVCOMP: the library's path.
    pub nvcomp: Option<PathBuf>,
}

/// Why the CUDA engine cannot work here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No libcuda.
    #[error("no NVIDIA driver is installed (libcuda.so.1 was not found)")]
    NoDriver,
    /// A libcuda without functions that we call.
    #[error("the NVIDIA driver lacks {0}: it must be 525 or later")]
    Incomplete(&'static str),
    /// CUDA below 12.0.
    #[error("the NVIDIA driver is too old: it knows CUDA {0}.{1}, and 12.0 (driver 525) is needed")]
    OldDriver(i32, i32),
    /// cuInit said no.
    #[error("the NVIDIA driver does not start ({0})")]
    NoStart(String),
    /// No device, or none visible.
    #[error("there is no NVIDIA GPU (or CUDA_VISIBLE_DEVICES hides it)")]
    NoDevice,
    /// DEVICE is out of range.
    #[error("there is no device {0}: the driver shows {1}, counted from 0")]
    NoSuchDevice(i64, i32),
    /// Compute capability below 7.0.
    #[error("the GPU {0} is too old: its compute capability is {1}.{2}, and 7.0 is needed")]
    OldDevice(String, i32, i32),
    /// Somebody else has it for himself.
    #[error("the GPU is in exclusive mode, and another process has it ({0})")]
    Exclusive(String),
    /// Nobody may use it.
    #[error("the GPU is in prohibited mode: nvidia-smi -c DEFAULT lets programs use it ({0})")]
    Prohibited(String),
    /// It is there, and cannot be had.
    #[error("the GPU cannot be used by this process now: it is busy or not available ({0})")]
    Taken(String),
    /// A part of a divided GPU, which cannot be had.
    #[error(
        "the GPU is divided, and its MIG instance {0} cannot be used by this process ({1}): \
         CUDA_VISIBLE_DEVICES chooses another (nvidia-smi -L lists them)"
    )]
    Divided(String, String),
    /// Not enough device memory for anything.
    #[error("the GPU has no free memory ({0})")]
    NoMemory(String),
    /// Our kernels were not taken.
    #[error("the driver does not take our kernels ({0})")]
    Kernels(String),
    /// No nvCOMP.
    #[error(
        "nvCOMP was not found: install nvidia-libnvcomp-cu12 with pip or conda, \
         or set GPUGTIFF_NVCOMP to libnvcomp.so.6 or .5"
    )]
    NoNvcomp,
    /// nvCOMP of another version.
    #[error("nvCOMP {0}.{1} was found, and 5.x or 6.x is needed")]
    NvcompVersion(u32, u32),
    /// nvCOMP for a later CUDA.
    #[error("nvCOMP was made for CUDA {0}, which this driver does not know")]
    NvcompCuda(u32),
    /// Not nvCOMP, or parts missing.
    #[error("{0} is not nvCOMP")]
    NotNvcomp(String),
    /// CUDA does not survive a fork.
    #[error("CUDA was started before this process was forked")]
    Forked,
    /// It failed before.
    #[error("the GPU {0} failed in this process (CUDA error {1})")]
    Lost(String, i32),
    /// GDS=YES cannot be had.
    #[error("{0}")]
    Gds(String),
    /// The first tiles did not come out right.
    #[error("the GPU does not decode and encode known tiles here ({0})")]
    SelfCheck(String),
}

/// Compute capability.
pub(super) const OLDEST: (i32, i32) = (7, 0);
/// Less free device memory than this is not worth a try.
const LEAST_FREE: usize = 16 << 20;

/// CU_COMPUTEMODE_PROHIBITED.
const PROHIBITED: i32 = 2;
/// CU_COMPUTEMODE_EXCLUSIVE_PROCESS.
const EXCLUSIVE: i32 = 3;

/// Functions of libcuda that this engine calls through cudarc.
const SYMBOLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuPointerGetAttribute",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// A device that is ready, with everything that belongs to it.
pub(super) struct Gpu {
    /// The device.
    pub(super) device: Arc<Device>,
    /// The library.
    pub(super) nvcomp: NvComp,
    /// Our kernels.
    pub(super) kernels: Kernels,
    /// Its memory.
    pub(super) arena: Lender,
    /// CUDA's version as the driver says it.
    pub(super) cuda: i32,
    /// cuFile, once somebody wanted it.
    pub(super) cufile: OnceLock<Arc<CuFile>>,
    /// nvJPEG2000, once there was something to decode.
    pub(super) nvjpeg2k: OnceLock<Arc<NvJpeg2k>>,
    /// Where it was sought, and what was there.
    pub(super) sought: Mutex<HashMap<Option<PathBuf>, Started>>,
    /// What was learnt of it.
    pub(super) trust: Mutex<Trust>,
}

/// nvJPEG2000 of one place.
type Started = Result<Arc<NvJpeg2k>, NoStart>;

/// Which kinds of tiles came out right, or did not.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Compared with the CPU's and found equal.
    pub(super) proved: HashSet<Kind>,
    /// Found different: never again.
    pub(super) refuted: HashSet<Kind>,
    /// Codecs that do not work on this device.
    pub(super) unfit: HashSet<Codec>,
    /// Reads of cuFile's got lost, or it does not take our memory: no more of them.
    pub(super) distrusts_cufile: bool,
    /// What users were told.
    pub(super) told: HashSet<String>,
}

impl Gpu {
    /// nvJPEG2000, which is started when it is first asked for.
    pub(super) fn jpeg2000(&self, given: Option<&Path>) -> Result<(), String> {
        if let Some(library) = self.nvjpeg2k.get() {
            return library.check();
        }
        let mut sought = self.sought.lock().unwrap_or_else(PoisonError::into_inner);
        let place = given.map(Path::to_path_buf);
        // Memory may be free later.
        sought.retain(|_, found| found.as_ref().err().is_none_or(|why| why.lasting));
        let start = || NvJpeg2k::start(&self.device, given).map(Arc::new);
        let library =
            sought.entry(place).or_insert_with(start).clone().map_err(|why| why.reason)?;
        library.check()?;
        let _ = self.nvjpeg2k.set(library);
        Ok(())
    }

    /// What was learnt.
    pub(super) fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Found = Result<Arc<Gpu>, Refusal>;

static FOUND: PerProcess<Mutex<HashMap<Whereabouts, Found>>> = PerProcess::new();
/// The process that started CUDA; a forked child must not.
static STARTED_BY: AtomicU32 = AtomicU32::new(0);

/// Looks for a GPU, once in a process for the same question.
pub(super) fn find(wanted: &Whereabouts) -> Found {
    let found = FOUND.get_or_init(Mutex::default);
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = found.get(wanted) {
        return known.clone();
    }
    let answer = look(wanted, &mut found);
    if let Some((_, code)) = driver::lost() {
        found.values().flatten().for_each(|gpu| gpu.device.abandon(*code));
    }
    // Memory, and a device that others have, may be free later.
    if !matches!(
        answer,
        Err(Refusal::NoMemory(_)
            | Refusal::Exclusive(_)
            | Refusal::Divided(..)
            | Refusal::Taken(_))
    ) {
        found.insert(wanted.clone(), answer.clone());
    }
    answer
}

/// Whether the driver may be called: not in a forked child, and not after a fault, by whatever name a
/// device is asked for. Every read into host memory asks, so nobody waits here.
pub(super) fn permission() -> Result<(), Refusal> {
    let starter = STARTED_BY.load(Ordering::SeqCst);
    if starter != 0 && starter != std::process::id() {
        return Err(Refusal::Forked);
    }
    match driver::lost() {
        Some((name, code)) => Err(Refusal::Lost(name.clone(), *code)),
        None => Ok(()),
    }
}

/// Starts CUDA, if it is not running: its version and the number of devices.
pub(super) fn start() -> Result<(i32, i32), Refusal> {
    permission()?;
    let cuda = driver_version()?;
    STARTED_BY.store(std::process::id(), Ordering::SeqCst);
    match driver::start() {
        Ok(count @ 1..) => Ok((cuda, count)),
        Ok(_) => Err(Refusal::NoDevice),
        Err(fault) if fault.code == 100 => Err(Refusal::NoDevice),
        Err(fault) => Err(Refusal::NoStart(fault.to_string())),
    }
}

fn look(wanted: &Whereabouts, known: &mut HashMap<Whereabouts, Found>) -> Found {
    let (cuda, count) = start()?;
    // Before a context is made, which takes most of the time.
    let nvcomp = find_nvcomp(wanted.nvcomp.as_deref(), (cuda / 1000) as u32)?;
    let device = match wanted.device {
        Some(number) if number as i64 >= i64::from(count) => {
            return Err(Refusal::NoSuchDevice(number.into(), count));
        }
        Some(number) => Arc::new(open(number as i32)?),
        None => Arc::new(roomiest(count)?),
    };
    if device.capability < OLDEST {
        let (major, minor) = device.capability;
        return Err(Refusal::OldDevice(device.name.clone(), major, minor));
    }
    // The same device by another name has one arena.
    let same =
        |found: &&Found| found.as_ref().is_ok_and(|gpu| gpu.device.ordinal == device.ordinal);
    if let Some(Ok(gpu)) = known.values().find(same) {
        return Ok(Arc::clone(gpu));
    }
    let current = device.enter().map_err(taken)?;
    let kernels = Kernels::load(&current).map_err(|fault| match fault.is_out_of_memory() {
        true => Refusal::NoMemory(fault.to_string()),
        false => Refusal::Kernels(fault.to_string()),
    })?;
    let (free, _) = current.memory().map_err(taken)?;
    if free < LEAST_FREE {
        return Err(Refusal::NoMemory(format!("{} MiB", free >> 20)));
    }
    drop(current);
    let gpu = Arc::new(Gpu {
        device,
        nvcomp,
        kernels,
        arena: Lender::default(),
        cuda,
        cufile: OnceLock::new(),
        nvjpeg2k: OnceLock::new(),
        sought: Mutex::default(),
        trust: Mutex::default(),
    });
    if let Err(refusal) = try_known_tiles(&gpu) {
        // Its arena is freed in its context.
        let _current = gpu.device.enter();
        drop(gpu);
        return Err(refusal);
    }
    Ok(gpu)
}

/// A codec that fails on known tiles is left to the CPU; if nvCOMP's all do, so is everything.
fn try_known_tiles(gpu: &Arc<Gpu>) -> Result<(), Refusal> {
    let codecs = [Codec::Deflate, Codec::Zstd, Codec::None, Codec::Lzw, Codec::PackBits];
    let mut reasons = Vec::new();
    for codec in codecs {
        if let Some(reason) = known::unfit(gpu, codec) {
            gpu.trust().unfit.insert(codec);
            reasons.push(reason);
        }
    }
    // What the trial proved or told was not the user's.
    let mut trust = gpu.trust();
    *trust = Trust { unfit: std::mem::take(&mut trust.unfit), ..Trust::default() };
    match [Codec::Deflate, Codec::Zstd].iter().all(|codec| trust.unfit.contains(codec)) {
        true => Err(Refusal::SelfCheck(reasons.swap_remove(0))),
        false => Ok(()),
    }
}

/// A device that does not let itself be taken. Only what may change is asked for again later.
pub(super) fn taken(fault: Fault) -> Refusal {
    match fault {
        _ if fault.is_out_of_memory() => Refusal::NoMemory(fault.to_string()),
        _ if fault.is_sticky() => Refusal::NoStart(fault.to_string()),
        _ => Refusal::Taken(fault.to_string()),
    }
}

fn open(ordinal: i32) -> Result<Device, Refusal> {
    Device::open(ordinal).map_err(|fault| {
        // After a sticky fault the driver is asked nothing more, not even whose device it is.
        if fault.is_out_of_memory() || fault.is_sticky() {
            return taken(fault);
        }
        match driver::compute_mode(ordinal) {
            Ok(PROHIBITED) => Refusal::Prohibited(fault.to_string()),
            Ok(EXCLUSIVE) => Refusal::Exclusive(fault.to_string()),
            // Instances are told from whole devices by their names alone.
            _ => match driver::describe(ordinal) {
                Ok((name, ..)) if name.split(' ').any(|word| word == "MIG") => {
                    Refusal::Divided(name, fault.to_string())
                }
                _ => taken(fault),
            },
        }
    })
}

/// The device with most free memory; of one there is no choice.
fn roomiest(count: i32) -> Result<Device, Refusal> {
    if count == 1 {
        return open(0);
    }
    let mut best: Option<(usize, Device)> = None;
    let mut refusal = Refusal::NoDevice;
    for ordinal in 0..count {
        // A roomy one that is too old must not hide the others.
        if driver::capability(ordinal).is_ok_and(|capability| capability < OLDEST) {
            continue;
        }
        match open(ordinal).and_then(with_room) {
            Ok((free, device)) if best.as_ref().is_none_or(|(most, _)| free > *most) => {
                best = Some((free, device));
            }
            Ok(_) => {}
            Err(why @ Refusal::NoStart(_)) => return Err(why),
            Err(why) => refusal = why,
        }
    }
    match best {
        Some((_, device)) => Ok(device),
        // All are too old: the first one says so.
        None if refusal == Refusal::NoDevice => open(0),
        None => Err(refusal),
    }
}

fn with_room(device: Device) -> Result<(usize, Device), Refusal> {
    let device = Arc::new(device);
    let (free, _) = device.enter().and_then(|current| current.memory()).map_err(taken)?;
    let device = Arc::try_unwrap(device).map_err(|_| Refusal::NoDevice)?;
    Ok((free, device))
}

/// Whether there is a driver at all: a cheap look, nothing is started.
pub(in crate::engine) fn driver_is_there() -> bool {
    Library::open(Path::new("libcuda.so.1")).is_some()
}

/// Whether the driver is there, whole and new enough. Once that is known the driver is not asked again:
/// it may have to be left alone.
pub(super) fn driver_version() -> Result<i32, Refusal> {
    static KNOWN: OnceLock<i32> = OnceLock::new();
    if let Some(version) = KNOWN.get() {
        return Ok(*version);
    }
    let library = Library::open(Path::new("libcuda.so.1")).ok_or(Refusal::NoDriver)?;
    // cudarc takes the first of these that opens, which may be a toolkit's stub.
    let first = Library::open(Path::new("libcuda.so")).unwrap_or(library);
    for &symbol in SYMBOLS {
        let name = CString::new(symbol).unwrap_or_default();
        if !library.has(&name) || !first.has(&name) {
            return Err(Refusal::Incomplete(symbol));
        }
    }
    type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
    let mut version = 0;
    // SAFETY: the type as in cuda.h; it fills the number and may be called before cuInit.
    let code = unsafe {
        library.function::<Get>("cuDriverGetVersion").map_or(-1, |get| get(&mut version))
    };
    if code != 0 {
        return Err(Refusal::NoStart(Fault::early("cuDriverGetVersion", code).to_string()));
    }
    if version < 12_000 {
        return Err(Refusal::OldDriver(version / 1000, version % 1000 / 10));
    }
    Ok(*KNOWN.get_or_init(|| version))
}

/// Looks for nvCOMP where users have it; never in the working directory.
pub(super) fn find_nvcomp(given: Option<&Path>, cuda_major: u32) -> Result<NvComp, Refusal> {
    let mut refusal = Refusal::NoNvcomp;
    let mut attempt = |path: &Path| {
        let found = NvComp::new(Library::open(path)?, cuda_major);
        let unfit = match found {
            Ok(nvcomp) => return Some(nvcomp),
            Err(Unfit::Incomplete) => Refusal::NotNvcomp(path.display().to_string()),
            Err(Unfit::Version(v)) => Refusal::NvcompVersion(v / 1000, v % 1000 / 100),
            Err(Unfit::Cuda(v)) => Refusal::NvcompCuda(v / 1000),
        };
        if refusal == Refusal::NoNvcomp {
            refusal = unfit;
        }
        None
    };
    if let Some(given) = given {
        let absent = Refusal::NotNvcomp(given.display().to_string());
        return attempt(given).ok_or(match refusal {
            Refusal::NoNvcomp => absent,
            why => why,
        });
    }
    let found = nvcomp_places().iter().find_map(|place| attempt(place));
    found.ok_or(refusal)
}

fn nvcomp_places() -> Vec<PathBuf> {
    let names = ["libnvcomp.so.6", "libnvcomp.so.5"];
    library::places(&names, &["nvidia/libnvcomp/lib64", "nvidia/nvcomp"])
}
