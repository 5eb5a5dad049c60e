//! What operations do when they run: copies, fills, kernels, callbacks, async allocation.
//!
//! Refuses to know why one runs now. Invariants: host memory is read and written here only,
//! when the operation runs (but for snapshots and poison at submission); device memory is
//! touched only through checked ranges.

use std::ffi::c_void;
use std::sync::Arc;

use crate::clock;
use crate::ledger::{Kind, LaunchRecord, Ledger};
use crate::memory::{Life, Memory};
use crate::nvcomp;
use crate::nvjpeg2k;
use crate::settings::Settings;
use crate::status::Code;

/// The host side of a copy to the device.
pub(crate) enum Source {
    /// Page-locked: read when the copy runs.
    Pinned(usize),
    /// Pageable: what it held at submission.
    Snapshot(Vec<u8>),
}

/// A host function and its argument.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) argument: usize,
}

/// A launch with its arguments as they were at submission.
pub(crate) struct KernelTask {
    pub(crate) module: Arc<ptx::Module>,
    pub(crate) entry: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) params: Vec<u8>,
}

/// What an operation does.
pub(crate) enum Task {
    HostToDevice { source: Source, target: u64, bytes: u64 },
    DeviceToHost { source: u64, target: usize, bytes: u64 },
    DeviceToDevice { source: u64, target: u64, bytes: u64 },
    Memset { target: u64, pattern: Vec<u8>, count: u64 },
    Kernel(Box<KernelTask>),
    Nvcomp(Box<nvcomp::Batch>),
    Nvjpeg2k(Box<nvjpeg2k::Decode>),
    EventRecord,
    EventWait,
    HostFunction(Callback),
    Allocate(u64),
    Free(u64),
}

/// A fault of the device: the code is sticky.
#[derive(Debug)]
pub(crate) struct DeviceFault {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl DeviceFault {
    pub(crate) fn illegal_address(message: String) -> Self {
        DeviceFault { code: Code::ILLEGAL_ADDRESS, message }
    }
}

/// What a running operation has at hand.
pub(crate) struct Bench<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) settings: &'a Settings,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) device: usize,
    pub(crate) operation: u64,
}

thread_local! {
    /// Whether this thread is in a host function, where no driver call is allowed.
    pub(crate) static IN_CALLBACK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Task {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Task::HostToDevice { .. } => Kind::HostToDevice,
            Task::DeviceToHost { .. } => Kind::DeviceToHost,
            Task::DeviceToDevice { .. } => Kind::DeviceToDevice,
            Task::Memset { .. } => Kind::Memset,
            Task::Kernel(_) => Kind::Kernel,
            Task::Nvcomp(_) => Kind::Nvcomp,
            Task::Nvjpeg2k(_) => Kind::Nvjpeg2k,
            Task::EventRecord => Kind::EventRecord,
            Task::EventWait => Kind::EventWait,
            Task::HostFunction(_) => Kind::HostFunction,
            Task::Allocate(_) => Kind::Allocate,
            Task::Free(_) => Kind::Free,
        }
    }

    /// How many bytes it moves, as far as that is known before it runs.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Task::HostToDevice { bytes, .. }
            | Task::DeviceToHost { bytes, .. }
            | Task::DeviceToDevice { bytes, .. } => *bytes,
            Task::Memset { pattern, count, .. } => pattern.len() as u64 * count,
            Task::Nvjpeg2k(decode) => decode.bytes(),
            _ => 0,
        }
    }

    /// What the report calls it.
    pub(crate) fn name(&self) -> String {
        match self {
            Task::Kernel(kernel) => kernel.entry.clone(),
            Task::Nvcomp(batch) => batch.name().into(),
            Task::Nvjpeg2k(decode) => decode.name().into(),
            other => other.kind().name().into(),
        }
    }

    /// Runs it; its modelled duration.
    pub(crate) fn run(self, bench: &mut Bench<'_>) -> Result<u64, DeviceFault> {
        let (kind, bytes) = (self.kind(), self.bytes());
        match self {
            Task::HostToDevice { source, target, bytes } => {
                let to = bench.range(target, bytes)?;
                let from = match &source {
                    Source::Pinned(address) => *address as *const u8,
                    Source::Snapshot(bytes) => bytes.as_ptr(),
                };
                // SAFETY: both ranges were checked to be that long; host and device
                // backing never overlap.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) };
            }
            Task::DeviceToHost { source, target, bytes } => {
                let from = bench.range(source, bytes)?;
                // SAFETY: the caller of the copy vouched for the host range; the other was
                // checked; they never overlap.
                unsafe { std::ptr::copy_nonoverlapping(from, target as *mut u8, bytes as usize) };
            }
            Task::DeviceToDevice { source, target, bytes } => {
                let from = bench.range(source, bytes)?;
                let to = bench.range(target, bytes)?;
                // SAFETY: both ranges were checked; they may overlap.
                unsafe { std::ptr::copy(from, to, bytes as usize) };
            }
            Task::Memset { target, pattern, count } => {
                let bytes = pattern.len() * count as usize;
                let to = bench.range(target, bytes as u64)?;
                // SAFETY: the range was checked and nobody else holds a reference into it.
                let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
                to.chunks_exact_mut(pattern.len()).for_each(|one| one.copy_from_slice(&pattern));
            }
            Task::Kernel(kernel) => return kernel.run(bench),
            Task::Nvcomp(batch) => return batch.run(bench),
            Task::Nvjpeg2k(decode) => return decode.run(bench),
            Task::HostFunction(callback) => {
                IN_CALLBACK.set(true);
                (callback.function)(callback.argument as *mut c_void);
                IN_CALLBACK.set(false);
            }
            Task::Allocate(base) => {
                if let Ok(allocation) = bench.memory.beginning_at(base)
                    && allocation.life == Life::Promised
                {
                    allocation.life = Life::Live;
                }
            }
            Task::Free(base) => {
                if let Some(line) = bench.memory.release(base) {
                    bench.ledger.freed(line, false);
                }
            }
            Task::EventRecord | Task::EventWait => (),
        }
        Ok(clock::duration(kind, bytes))
    }
}

impl Bench<'_> {
    /// The host's memory behind a device range.
    pub(crate) fn range(&self, address: u64, bytes: u64) -> Result<*mut u8, DeviceFault> {
        self.memory.bytes(self.device, address, bytes).map_err(DeviceFault::illegal_address)
    }
}

impl KernelTask {
    fn run(&self, bench: &mut Bench<'_>) -> Result<u64, DeviceFault> {
        let settings = bench.settings;
        let entry = self.module.entry(&self.entry).expect("looked up when it was launched");
        let seed = settings.seed ^ bench.operation.wrapping_mul(0x9e37_79b9);
        let schedule = if settings.adversarial {
            ptx::Schedule::Adversarial { seed }
        } else {
            ptx::Schedule::Converged
        };
        let options = ptx::Options { schedule, races: settings.races, budget: settings.budget };
        let view = bench.memory.view(bench.device);
        let launch = ptx::Launch {
            entry,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.dynamic_shared,
            params: &self.params,
            memory: &view,
            options,
        };
        // SAFETY: the view borrows the memory, so no allocation goes away during the launch.
        let stats = unsafe { ptx::run(&launch) }
            .map_err(|fault| DeviceFault { code: code_of(&fault.kind), message: fault.message })?;
        let duration = clock::kernel(stats.instructions, settings.multiprocessors);
        bench.ledger.launches.push(LaunchRecord {
            operation: bench.operation,
            kernel: self.entry.clone(),
            grid: self.grid,
            block: self.block,
            static_shared: entry.static_shared,
            dynamic_shared: self.dynamic_shared,
            stats,
        });
        Ok(duration)
    }
}

fn code_of(kind: &ptx::FaultKind) -> Code {
    match kind {
        ptx::FaultKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
        ptx::FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        ptx::FaultKind::IllegalInstruction => Code::ILLEGAL_INSTRUCTION,
        ptx::FaultKind::Budget => Code::LAUNCH_TIMEOUT,
        ptx::FaultKind::Race | ptx::FaultKind::Divergence | ptx::FaultKind::Trap => {
            Code::LAUNCH_FAILED
        }
    }
}
