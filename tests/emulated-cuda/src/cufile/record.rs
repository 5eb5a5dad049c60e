//! What the report tells of cuFile. Lines of what is still registered or in flight survive a
//! reset, as memory's do.

use std::collections::BTreeMap;

use crate::clock::Interval;

/// How a read stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Pending,
    Complete,
    Failed,
    Canceled,
}

impl Standing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Standing::Pending => "pending",
            Standing::Complete => "complete",
            Standing::Failed => "failed",
            Standing::Canceled => "canceled",
        }
    }
}

/// A read from its submission on.
#[derive(Clone, Debug)]
pub(super) struct ReadRecord {
    pub(super) symbol: &'static str,
    /// The number of the batch among all.
    pub(super) batch: Option<u64>,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) address: u64,
    pub(super) is_registered: bool,
    pub(super) is_aligned: bool,
    pub(super) thread: u64,
    pub(super) submitted: u64,
    /// The call that first asked whether it is done.
    pub(super) asked: Option<u64>,
    pub(super) completed: Option<u64>,
    pub(super) standing: Standing,
    pub(super) bytes: u64,
    pub(super) code: u32,
    pub(super) time: Interval,
}

/// A file, a buffer or a batch: from one call to another.
#[derive(Clone, Debug)]
pub(super) struct SpanRecord {
    /// The descriptor, the address or the number of entries.
    pub(super) what: u64,
    /// The buffer's bytes; whether the file is open for direct access.
    pub(super) more: u64,
    pub(super) call: u64,
    pub(super) ended: Option<u64>,
}

/// All of it.
#[derive(Clone, Default, Debug)]
pub(crate) struct CufileRecord {
    pub(super) opened: u64,
    pub(super) closed: u64,
    /// Where the log was written.
    pub(super) log: String,
    /// By handle, address and handle.
    pub(super) files: Spans,
    pub(super) buffers: Spans,
    pub(super) batches: Spans,
    pub(super) submissions: u64,
    /// By their numbers among all operations.
    pub(super) reads: BTreeMap<u64, ReadRecord>,
    pub(super) in_flight_peak: u64,
}

/// Lines in the order of their beginnings.
#[derive(Clone, Default, Debug)]
pub(super) struct Spans {
    pub(super) lines: Vec<SpanRecord>,
    /// The lines that have no end, by key.
    live: BTreeMap<u64, usize>,
}

impl Spans {
    pub(super) fn begin(&mut self, key: u64, what: u64, more: u64, call: u64) {
        self.live.insert(key, self.lines.len());
        self.lines.push(SpanRecord { what, more, call, ended: None });
    }

    pub(super) fn end(&mut self, key: u64, call: u64) {
        if let Some(line) = self.live.remove(&key) {
            self.lines[line].ended = Some(call);
        }
    }

    /// The position of a line that has no end.
    pub(super) fn position(&self, key: u64) -> Option<u64> {
        self.live.get(&key).map(|line| *line as u64)
    }

    /// How many lines have no end.
    pub(super) fn live(&self) -> u64 {
        self.lines.iter().filter(|line| line.ended.is_none()).count() as u64
    }

    fn reopened(&self) -> Spans {
        let mut kept = Spans::default();
        for (key, line) in &self.live {
            let SpanRecord { what, more, .. } = self.lines[*line];
            kept.begin(*key, what, more, 0);
        }
        kept
    }
}

impl CufileRecord {
    /// What a ledger that is opened afresh begins with.
    pub(crate) fn reopened(&self) -> CufileRecord {
        CufileRecord {
            log: self.log.clone(),
            files: self.files.reopened(),
            buffers: self.buffers.reopened(),
            batches: self.batches.reopened(),
            ..CufileRecord::default()
        }
    }
}
