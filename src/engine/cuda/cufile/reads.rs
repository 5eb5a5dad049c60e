//! Reads that are under way, submitted in as few calls as cuFile allows and waited for together.

use std::ffi::c_void;
use std::sync::Arc;

use super::{File, READ, Registration, Trouble, ask, sys};
use crate::process::memory;

/// As a read would fail itself.
const NO_MEMORY: i64 = -(libc::ENOMEM as i64);

/// One read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::cuda) struct Read {
    /// Where in the file.
    pub(in crate::engine::cuda) offset: u64,
    /// Where behind the start of the memory.
    pub(in crate::engine::cuda) at: usize,
    /// How much; all of it is in the file.
    pub(in crate::engine::cuda) bytes: usize,
}

/// Reads that are under way; waited for when dropped.
pub(in crate::engine::cuda) struct Reads {
    file: Arc<File>,
    reads: Vec<Read>,
    batches: Vec<Submitted>,
}

/// One call's reads.
struct Submitted {
    handle: *mut c_void,
    /// Those that nothing was heard of.
    left: usize,
    /// Submitting them failed, and who knows for how many: none is waited for, which may be for ever.
    failed: Option<Trouble>,
}

// SAFETY: handles that may be used from any thread.
unsafe impl Send for Reads {}
// SAFETY: as above; nothing of them can be done by reference.
unsafe impl Sync for Reads {}

/// Why bytes are not there.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine::cuda) struct Unread {
    /// The first thing that went wrong.
    pub(in crate::engine::cuda) trouble: Trouble,
    /// Nothing more comes: the memory may be used for something else.
    pub(in crate::engine::cuda) settled: bool,
}

impl Reads {
    /// Submits all reads, to `at` bytes behind `offset` bytes behind the start of registered memory.
    ///
    /// # Safety
    /// They must lie within it, and nobody else may use what they write to until they are finished.
    pub(in crate::engine::cuda) unsafe fn submit(
        file: &Arc<File>,
        memory: &Registration,
        offset: usize,
        reads: Vec<Read>,
    ) -> Result<Reads, Unread> {
        let mut under_way = Reads { file: Arc::clone(file), reads, batches: Vec::new() };
        let request = |(cookie, read): (usize, &Read)| sys::Request {
            mode: sys::BATCH,
            base: memory.address,
            file_offset: read.offset as i64,
            offset: (offset + read.at) as i64,
            bytes: read.bytes,
            file: file.handle,
            operation: sys::READ,
            cookie,
        };
        let count = under_way.reads.len();
        let refused = Unread { trouble: Trouble { call: READ, code: NO_MEMORY }, settled: true };
        let batches = memory::room(count.div_ceil(file.cufile.entries), "reads of a file");
        under_way.batches = batches.map_err(|_| refused)?;
        let requests = under_way.reads.iter().enumerate().map(request);
        let mut requests = memory::collect(requests, "reads of a file").map_err(|_| refused)?;
        for part in requests.chunks_mut(file.cufile.entries) {
            // SAFETY: the caller's promise.
            if let Err(trouble) = unsafe { under_way.send(part) } {
                let settled = under_way.finish().map_or_else(|unread| unread.settled, |()| true);
                return Err(Unread { trouble, settled });
            }
        }
        Ok(under_way)
    }

    /// # Safety
    /// As for `submit`.
    unsafe fn send(&mut self, requests: &mut [sys::Request]) -> Result<(), Trouble> {
        let (cufile, device) = (&self.file.cufile, &self.file.device);
        let (mut handle, count) = (std::ptr::null_mut(), requests.len() as u32);
        // SAFETY: fills the handle.
        ask(device, "cuFileBatchIOSetUp", || unsafe { (cufile.set_up)(&mut handle, count) })?;
        // SAFETY: as many requests as were set up; the caller's promise.
        let submit = || unsafe { (cufile.submit)(handle, count, requests.as_mut_ptr(), 0) };
        let submitted = ask(device, "cuFileBatchIOSubmit", submit);
        self.batches.push(Submitted { handle, left: requests.len(), failed: submitted.err() });
        submitted
    }

    /// Waits for all of them.
    pub(in crate::engine::cuda) fn finish(mut self) -> Result<(), Unread> {
        self.settle()
    }

    fn settle(&mut self) -> Result<(), Unread> {
        let mut outcome: Result<(), Unread> = Ok(());
        for mut batch in std::mem::take(&mut self.batches) {
            let finished = self.finish_batch(&mut batch);
            if finished.is_err() && batch.left > 0 {
                // SAFETY: a handle of ours.
                let cancel = || unsafe { (self.file.cufile.cancel)(batch.handle) };
                let _ = ask(&self.file.device, "cuFileBatchIOCancel", cancel);
            }
            // SAFETY: set up by `send`, destroyed once.
            let _ = self.file.device.ask("cuFileBatchIODestroy", || unsafe {
                (self.file.cufile.destroy)(batch.handle);
                Ok(())
            });
            if let Err(trouble) = finished {
                let settled = batch.left == 0;
                let first = outcome.err().unwrap_or(Unread { trouble, settled });
                outcome = Err(Unread { settled: first.settled && settled, ..first });
            }
        }
        outcome
    }

    fn finish_batch(&self, batch: &mut Submitted) -> Result<(), Trouble> {
        if let Some(trouble) = batch.failed {
            return Err(trouble);
        }
        let mut events = vec![sys::Event::default(); batch.left];
        let mut outcome = Ok(());
        while batch.left > 0 {
            let (wanted, mut count) = (batch.left as u32, batch.left as u32);
            let events = &mut events[..batch.left];
            // SAFETY: room for so many events; no time limit.
            let get = || unsafe {
                let (data, limit) = (events.as_mut_ptr(), std::ptr::null_mut());
                (self.file.cufile.get_status)(batch.handle, wanted, &mut count, data, limit)
            };
            ask(&self.file.device, "cuFileBatchIOGetStatus", get)?;
            let over = events.iter().take(count as usize).filter(|e| e.status & sys::OVER != 0);
            let before = batch.left;
            for event in over {
                batch.left -= 1;
                let all = self.reads.get(event.cookie).map(|read| read.bytes as isize);
                if event.status != sys::COMPLETE || Some(event.outcome) != all {
                    let code = event.outcome as i64;
                    outcome = outcome.and(Err(Trouble { call: READ, code }));
                }
            }
            if batch.left == before {
                return Err(Trouble { call: "cuFileBatchIOGetStatus", code: 0 });
            }
        }
        outcome
    }
}

impl Drop for Reads {
    /// Only a panic comes here with reads under way: the memory must not be anybody else's before.
    fn drop(&mut self) {
        let _ = self.settle();
    }
}
