//! A modelled clock: when each operation would have begun and ended on a device with two
//! copy engines and one compute engine.
//!
//! Refuses to influence what runs when. Invariant: the times follow from the order of
//! submission, from dependencies, from what the submitting thread had waited for and from
//! bytes and instructions; neither the host's speed nor the shuffled order of execution is
//! in them.

use std::collections::BTreeMap;

use crate::ledger::{Kind, Ledger, OperationRecord};

/// Nanoseconds between two calls of a host thread.
const CALL: u64 = 1_000;

/// Begin and end of an operation, in nanoseconds since the ledger was opened.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What an operation takes: a start-up and so many bytes a microsecond.
pub(crate) fn duration(kind: Kind, bytes: u64) -> u64 {
    let (startup, rate) = match kind {
        Kind::HostToDevice | Kind::DeviceToHost => (8_000, 25_000),
        Kind::DeviceToDevice | Kind::Memset => (3_000, 400_000),
        Kind::Nvcomp => (20_000, 50_000),
        Kind::Nvjpeg2k => (100_000, 2_000),
        Kind::Kernel => (4_000, 1),
        Kind::HostFunction => (5_000, 1),
        Kind::EventRecord | Kind::EventWait | Kind::Allocate | Kind::Free | Kind::Cufile => {
            return 0;
        }
    };
    let bytes = if rate == 1 { 0 } else { bytes };
    startup + bytes * 1000 / rate
}

/// What a kernel takes: its thread instructions, two of a warp a nanosecond and multiprocessor.
pub(crate) fn kernel(instructions: u64, multiprocessors: u32) -> u64 {
    duration(Kind::Kernel, 0) + instructions / (64 * u64::from(multiprocessors.max(1)))
}

/// The times of a ledger's operations, as far as they are computed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Clock {
    intervals: Vec<Interval>,
    /// When the engine of a kind on a device is free again.
    engines: BTreeMap<(usize, Kind), u64>,
}

fn engine(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::HostToDevice | Kind::DeviceToHost => Some(kind),
        Kind::DeviceToDevice | Kind::Memset | Kind::Kernel | Kind::Nvcomp | Kind::Nvjpeg2k => {
            Some(Kind::Kernel)
        }
        _ => None,
    }
}

impl Clock {
    /// Moves on over operations that have all been executed or given up; a later call goes on
    /// from there, so that asking often stays cheap.
    pub(crate) fn settle(&mut self, ledger: &Ledger) {
        let known = self.intervals.len();
        for operation in &ledger.operations[known.min(ledger.operations.len())..] {
            if operation.executed.is_none() && !operation.abandoned {
                break;
            }
            self.advance(ledger, operation);
        }
    }

    /// The times of all operations up to now; what is pending takes no time.
    pub(crate) fn times(&self, ledger: &Ledger) -> Vec<Interval> {
        let mut clock = self.clone();
        let known = clock.intervals.len();
        for operation in &ledger.operations[known.min(ledger.operations.len())..] {
            clock.advance(ledger, operation);
        }
        clock.intervals
    }

    /// The end of the operation at that position of the ledger.
    pub(crate) fn end_at(&self, ledger: &Ledger, index: usize) -> u64 {
        match self.intervals.get(index) {
            Some(interval) => interval.end,
            None => self.times(ledger).get(index).map_or(0, |interval| interval.end),
        }
    }

    fn end_of(&self, first: u64, id: u64) -> u64 {
        let index = id.checked_sub(first).map(|index| index as usize);
        index.and_then(|index| self.intervals.get(index)).map_or(0, |interval| interval.end)
    }

    /// When a thread was through with a synchronisation.
    fn waited(&self, ledger: &Ledger, sync: Option<u64>) -> u64 {
        let first = ledger.operations.first().map_or(0, |operation| operation.id);
        let mut next = sync;
        let mut latest = 0;
        // The newest synchronisation that waited for something bounds the older ones
        // nearly always; a few steps back are enough for a model.
        for _ in 0..4 {
            let Some(record) = next.and_then(|index| ledger.syncs.get(index as usize)) else {
                break;
            };
            let ends = record.targets.iter().map(|id| self.end_of(first, *id));
            latest = ends.fold(latest, u64::max);
            next = record.after;
        }
        latest
    }

    fn advance(&mut self, ledger: &Ledger, operation: &OperationRecord) {
        if let Some(interval) = operation.fixed {
            self.intervals.push(interval);
            return;
        }
        let first = ledger.operations.first().map_or(0, |operation| operation.id);
        let mut start = operation.call * CALL;
        start = start.max(self.waited(ledger, operation.after));
        for id in &operation.dependencies {
            start = start.max(self.end_of(first, *id));
        }
        if let Some(engine) = engine(operation.kind) {
            let free = self.engines.entry((operation.device, engine)).or_default();
            start = start.max(*free);
            *free = start + operation.duration;
        }
        self.intervals.push(Interval { start, end: start + operation.duration });
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, duration};
    use crate::ledger::{Kind, Ledger, OperationRecord};

    fn operation(id: u64, kind: Kind, bytes: u64, dependencies: &[u64]) -> OperationRecord {
        OperationRecord {
            id,
            device: 0,
            stream: Some(0),
            kind,
            name: String::new(),
            bytes,
            thread: 1,
            call: id,
            after: None,
            dependencies: dependencies.to_vec(),
            executed: Some(id),
            abandoned: false,
            duration: duration(kind, bytes),
            fixed: None,
        }
    }

    #[test]
    fn engines_overlap_where_dependencies_allow() {
        let mut ledger = Ledger::default();
        // Copy in, decode, copy in again, decode again; the last pair could have begun before.
        ledger.operations = vec![
            operation(0, Kind::HostToDevice, 10_000_000, &[]),
            operation(1, Kind::Nvcomp, 40_000_000, &[0]),
            operation(2, Kind::HostToDevice, 10_000_000, &[]),
            operation(3, Kind::Nvcomp, 40_000_000, &[2]),
        ];
        let mut clock = Clock::default();
        let times = clock.times(&ledger);
        assert!(times[1].start >= times[0].end);
        assert_eq!(times[2].start, times[0].end);
        assert!(times[2].end < times[1].end);
        assert_eq!(times[3].start, times[1].end);
        // What was settled before does not change, and what waits for the host starts later.
        clock.settle(&ledger);
        ledger.sync("cuStreamSynchronize", true, 1, vec![3]);
        let late = OperationRecord { after: Some(0), ..operation(4, Kind::HostToDevice, 1, &[]) };
        ledger.operations.push(late);
        assert_eq!(clock.end_at(&ledger, 3), times[3].end);
        assert_eq!(clock.times(&ledger)[4].start, times[3].end);
    }
}
