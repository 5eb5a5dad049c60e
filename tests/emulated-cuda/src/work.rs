//! Streams, events and the graph of pending operations.
//!
//! Refuses to know what an operation does when it runs. Invariants: an operation depends
//! only on operations submitted before it; nothing runs because it was submitted.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;
use crate::settings::Order;
use crate::task::Task;

/// How a stream stands to the legacy stream of its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamKind {
    Legacy,
    PerThread,
    Blocking,
    NonBlocking,
}

impl StreamKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            StreamKind::Legacy => "legacy",
            StreamKind::PerThread => "per-thread",
            StreamKind::Blocking => "blocking",
            StreamKind::NonBlocking => "non-blocking",
        }
    }

    /// Whether somebody created it and must destroy it.
    pub(crate) fn owned(self) -> bool {
        matches!(self, StreamKind::Blocking | StreamKind::NonBlocking)
    }
}

/// A queue of a context.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) number: u64,
    pub(crate) context: u64,
    pub(crate) kind: StreamKind,
    pub(crate) priority: i32,
    pub(crate) last: Option<u64>,
    pub(crate) queries: u64,
    /// It says that it records a graph; what it gets is done all the same.
    pub(crate) capturing: bool,
}

/// A mark in a stream.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) timing: bool,
    /// The operation of its last record.
    pub(crate) recorded: Option<u64>,
    pub(crate) queries: u64,
}

/// An operation that has not run.
pub(crate) struct Operation {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) dependencies: Vec<u64>,
    pub(crate) task: Task,
}

/// All streams, events and pending operations.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) pending: BTreeMap<u64, Operation>,
    next: u64,
}

impl Work {
    /// What a new operation on the stream must wait for by the order of streams.
    pub(crate) fn predecessors(&self, stream: u64) -> Vec<u64> {
        let Some(own) = self.streams.get(&stream) else { return Vec::new() };
        let mut before: BTreeSet<u64> = own.last.into_iter().collect();
        let mates = self.streams.values().filter(|other| other.context == own.context);
        match own.kind {
            StreamKind::NonBlocking => (),
            StreamKind::Legacy => {
                let blocking = mates.filter(|other| other.kind != StreamKind::NonBlocking);
                before.extend(blocking.filter_map(|other| other.last));
            }
            StreamKind::Blocking | StreamKind::PerThread => {
                let legacy = mates.filter(|other| other.kind == StreamKind::Legacy);
                before.extend(legacy.filter_map(|other| other.last));
            }
        }
        before.into_iter().collect()
    }

    /// A number for something that is no stream's.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Queues an operation at the end of a stream; its number.
    pub(crate) fn push(&mut self, stream: u64, operation: Operation) -> u64 {
        let id = self.number();
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.last = Some(id);
        }
        self.pending.insert(id, operation);
        id
    }

    /// Pending operations that one of the targets is, or depends on.
    pub(crate) fn closure(&self, targets: &[u64]) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut stack = targets.to_vec();
        while let Some(id) = stack.pop() {
            if let Some(operation) = self.pending.get(&id)
                && found.insert(id)
            {
                stack.extend(&operation.dependencies);
            }
        }
        found
    }

    /// Pending operations of a context.
    pub(crate) fn of_context(&self, context: u64) -> Vec<u64> {
        let of = self.pending.iter().filter(|(_, one)| one.context == context);
        of.map(|(id, _)| *id).collect()
    }

    /// Pending operations of a device.
    pub(crate) fn of_device(&self, device: usize) -> Vec<u64> {
        let of = self.pending.iter().filter(|(_, one)| one.device == device);
        of.map(|(id, _)| *id).collect()
    }

    /// The order in which a synchronisation on `targets` runs operations: all they depend
    /// on, and more of what is pending where the setting says so.
    pub(crate) fn plan(&self, targets: &[u64], order: Order, random: &mut Random) -> Vec<u64> {
        let needed = self.closure(targets);
        if needed.is_empty() {
            return Vec::new();
        }
        if order == Order::Lazy {
            return self.sorted(&needed, order, random);
        }
        let mut plan = self.sorted(&self.pending.keys().copied().collect(), order, random);
        // Up to the last one that is needed, and no further.
        let last = plan.iter().rposition(|id| needed.contains(id)).unwrap_or(0);
        plan.truncate(last + 1);
        plan
    }

    /// A random topological order of the chosen ones, or the one that runs the newest first.
    fn sorted(&self, chosen: &BTreeSet<u64>, order: Order, random: &mut Random) -> Vec<u64> {
        let mut waiting: BTreeMap<u64, usize> = BTreeMap::new();
        let mut followers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut ready = Vec::new();
        for id in chosen {
            let before = self.pending[id].dependencies.iter().filter(|id| chosen.contains(id));
            let mut count = 0;
            for other in before {
                followers.entry(*other).or_default().push(*id);
                count += 1;
            }
            if count == 0 {
                ready.push(*id);
            }
            waiting.insert(*id, count);
        }
        let mut sorted = Vec::with_capacity(chosen.len());
        while !ready.is_empty() {
            let index = if order == Order::Contrary {
                (0..ready.len()).max_by_key(|index| ready[*index]).unwrap_or(0)
            } else {
                random.below(ready.len() as u64) as usize
            };
            let id = ready.swap_remove(index);
            sorted.push(id);
            for follower in followers.remove(&id).unwrap_or_default() {
                let count = waiting.get_mut(&follower).expect("counted above");
                *count -= 1;
                if *count == 0 {
                    ready.push(follower);
                }
            }
        }
        sorted
    }
}
