//! What happened, for the report: calls, operations, synchronisations, allocations, faults.
//!
//! Refuses to decide anything. Invariant: every number called `call` is the position of a
//! call among all calls since the ledger was opened, so that any two lines can be ordered.

use std::collections::BTreeMap;

use crate::clock::Interval;
use crate::cufile::CufileRecord;
use crate::nvjpeg2k::Nvjpeg2kRecord;
use crate::status::Code;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    Memset,
    Kernel,
    Nvcomp,
    Cufile,
    Nvjpeg2k,
    EventRecord,
    EventWait,
    HostFunction,
    Allocate,
    Free,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::HostToDevice => "H2D",
            Kind::DeviceToHost => "D2H",
            Kind::DeviceToDevice => "D2D",
            Kind::Memset => "memset",
            Kind::Kernel => "kernel",
            Kind::Nvcomp => "nvcomp",
            Kind::Cufile => "cufile",
            Kind::Nvjpeg2k => "nvjpeg2k",
            Kind::EventRecord => "event-record",
            Kind::EventWait => "event-wait",
            Kind::HostFunction => "host-func",
            Kind::Allocate => "alloc",
            Kind::Free => "free",
        }
    }
}

/// One operation of a stream, from its submission on.
#[derive(Clone, Debug)]
pub(crate) struct OperationRecord {
    pub(crate) id: u64,
    pub(crate) device: usize,
    /// None where it is no stream's: a read of cuFile.
    pub(crate) stream: Option<u64>,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) thread: u64,
    pub(crate) call: u64,
    /// The last synchronisation of the submitting thread before it.
    pub(crate) after: Option<u64>,
    pub(crate) dependencies: Vec<u64>,
    pub(crate) executed: Option<u64>,
    /// Will never run: its device is lost or its context is gone.
    pub(crate) abandoned: bool,
    /// Modelled, in nanoseconds.
    pub(crate) duration: u64,
    /// Begin and end where they are not the modelled clock's.
    pub(crate) fixed: Option<Interval>,
}

/// A moment at which a thread waited, or the driver made it wait.
#[derive(Clone, Debug)]
pub(crate) struct SyncRecord {
    pub(crate) symbol: &'static str,
    pub(crate) explicit: bool,
    pub(crate) call: u64,
    pub(crate) thread: u64,
    /// The synchronisation of the same thread before it.
    pub(crate) after: Option<u64>,
    /// The operations it waited for, without what those depend on.
    pub(crate) targets: Vec<u64>,
}

/// A piece of memory that was given out.
#[derive(Clone, Debug)]
pub(crate) struct AllocationRecord {
    /// "device", "device-async", "pinned" or "registered".
    pub(crate) kind: &'static str,
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
    pub(crate) call: u64,
    pub(crate) freed: Option<u64>,
    /// Went with its context instead of being freed.
    pub(crate) abandoned: bool,
}

/// One kernel launch that was executed.
#[derive(Clone)]
pub(crate) struct LaunchRecord {
    pub(crate) operation: u64,
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) stats: ptx::Stats,
}

/// A fault of a device.
#[derive(Clone, Debug)]
pub(crate) struct FaultRecord {
    pub(crate) code: Code,
    pub(crate) device: usize,
    pub(crate) operation: Option<u64>,
    pub(crate) call: u64,
    pub(crate) message: String,
}

/// A call that was refused.
#[derive(Clone, Debug)]
pub(crate) struct ErrorRecord {
    pub(crate) call: u64,
    pub(crate) symbol: &'static str,
    pub(crate) code: u32,
    pub(crate) message: String,
}

/// What nvCOMP did with the chunks of one codec.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ChunkCounts {
    pub(crate) decompressed: u64,
    pub(crate) decompressed_bytes: u64,
    pub(crate) corrupt: u64,
    pub(crate) compressed: u64,
    pub(crate) compressed_bytes: u64,
}

/// Everything the report is made of, but what is live.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) calls: u64,
    pub(crate) symbols: BTreeMap<&'static str, u64>,
    /// The symbol and code of the call that was made to fail.
    pub(crate) injected: Option<(&'static str, u32, u64)>,
    pub(crate) calls_after_fault: BTreeMap<&'static str, u64>,
    pub(crate) operations: Vec<OperationRecord>,
    pub(crate) executed: u64,
    pub(crate) syncs: Vec<SyncRecord>,
    /// By the number of the line.
    pub(crate) allocations: BTreeMap<usize, AllocationRecord>,
    next_line: usize,
    pub(crate) launches: Vec<LaunchRecord>,
    pub(crate) faults: Vec<FaultRecord>,
    pub(crate) errors: Vec<ErrorRecord>,
    pub(crate) chunks: BTreeMap<&'static str, ChunkCounts>,
    pub(crate) nvcomp_without_context: u64,
    pub(crate) cufile: CufileRecord,
    pub(crate) nvjpeg2k: Nvjpeg2kRecord,
    last_sync: BTreeMap<u64, u64>,
}

/// Refused calls beyond this many are counted, not kept.
const MOST_ERRORS: usize = 1000;

impl Ledger {
    pub(crate) fn count(&mut self, symbol: &'static str) {
        self.calls += 1;
        *self.symbols.entry(symbol).or_default() += 1;
        if !self.faults.is_empty() {
            *self.calls_after_fault.entry(symbol).or_default() += 1;
        }
    }

    pub(crate) fn error(&mut self, symbol: &'static str, code: u32, message: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(ErrorRecord { call: self.calls, symbol, code, message });
        }
    }

    /// The operation's line; none where it was submitted before the ledger was opened.
    pub(crate) fn operation(&mut self, id: u64) -> Option<&mut OperationRecord> {
        let first = self.operations.first()?.id;
        self.operations.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }

    pub(crate) fn last_sync(&self, thread: u64) -> Option<u64> {
        self.last_sync.get(&thread).copied()
    }

    pub(crate) fn sync(
        &mut self,
        symbol: &'static str,
        explicit: bool,
        thread: u64,
        targets: Vec<u64>,
    ) {
        let after = self.last_sync(thread);
        let record = SyncRecord { symbol, explicit, call: self.calls, thread, after, targets };
        self.last_sync.insert(thread, self.syncs.len() as u64);
        self.syncs.push(record);
    }

    /// Opens an allocation's line; the number of the line.
    pub(crate) fn allocation(
        &mut self,
        kind: &'static str,
        device: usize,
        bytes: u64,
        address: u64,
    ) -> usize {
        let call = self.calls;
        let record =
            AllocationRecord { kind, device, bytes, address, call, freed: None, abandoned: false };
        let line = self.next_line;
        self.next_line += 1;
        self.allocations.insert(line, record);
        line
    }

    /// Closes an allocation's line; `abandoned` where it went with its context.
    pub(crate) fn freed(&mut self, line: usize, abandoned: bool) {
        if let Some(record) = self.allocations.get_mut(&line) {
            record.freed = Some(self.calls);
            record.abandoned = abandoned;
        }
    }

    /// Starts afresh; lines of memory that is in use stay.
    pub(crate) fn reopen(&mut self) {
        let mut allocations = std::mem::take(&mut self.allocations);
        allocations.retain(|_, record| record.freed.is_none());
        for record in allocations.values_mut() {
            record.call = 0;
        }
        let faults = std::mem::take(&mut self.faults);
        let cufile = self.cufile.reopened();
        let next_line = self.next_line;
        *self = Ledger { allocations, next_line, faults, cufile, ..Ledger::default() };
    }
}
