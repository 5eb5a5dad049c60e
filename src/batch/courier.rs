//! Takes encoded tiles to the file in the background, one batch at a time, so that a slow disk
//! holds up neither the reading of the next pixels nor the workers.
//!
//! What it was given is in the file after [`Courier::wait`], which also tells of errors. Whoever
//! reads the file, writes to a place twice or writes the header waits first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::engine::Packed;
use crate::error::{Error, Result};
use crate::io::ByteSink;
use crate::process::memory;

/// Tiles that go one after the other to an offset.
pub(super) struct Parcel {
    /// Where the first goes.
    pub(super) offset: u64,
    /// The tiles.
    pub(super) parts: Vec<Range<usize>>,
    /// What they are parts of.
    pub(super) packed: Packed,
}

impl Parcel {
    fn deliver(&self, sink: &dyn ByteSink) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let parts = self.parts.iter().map(|part| &self.packed.bytes[part.clone()]);
        let parts = memory::collect(parts, "tiles to be written")?;
        sink.write_at(self.offset, &parts)
    }
}

/// The courier, and its thread once there was something to deliver.
pub(super) struct Courier {
    sink: Arc<dyn ByteSink>,
    thread: Option<Thread>,
    /// A parcel is on its way.
    busy: bool,
}

struct Thread {
    parcels: SyncSender<Parcel>,
    delivered: Receiver<(Packed, Result<()>)>,
    handle: JoinHandle<()>,
}

impl Courier {
    /// One for this file. Nothing is started yet.
    pub(super) fn new(sink: Arc<dyn ByteSink>) -> Courier {
        Courier { sink, thread: None, busy: false }
    }

    /// Sends a parcel off when the one before has arrived; returns memory to pack the next in.
    pub(super) fn send(&mut self, parcel: Parcel) -> Result<Packed> {
        let empty = self.wait()?;
        // Files that are not plain are written by the thread that asked for it.
        if self.sink.concurrent()
            && let Some(thread) = self.thread()
        {
            return match thread.parcels.send(parcel) {
                Ok(()) => {
                    self.busy = true;
                    Ok(empty)
                }
                Err(unsent) => unsent.0.deliver(&*self.sink).map(|()| unsent.0.packed),
            };
        }
        parcel.deliver(&*self.sink)?;
        Ok(parcel.packed)
    }

    /// Waits until everything has arrived; returns memory that is free again.
    pub(super) fn wait(&mut self) -> Result<Packed> {
        if !std::mem::take(&mut self.busy) {
            return Ok(Packed::default());
        }
        let arrived = self.thread.as_ref().and_then(|thread| thread.delivered.recv().ok());
        let lost = || Error::Device("internal error while writing".into());
        let (packed, result) = arrived.ok_or_else(lost)?;
        result.map(|()| packed)
    }

    fn thread(&mut self) -> Option<&Thread> {
        if self.thread.is_none() {
            self.thread = start(Arc::clone(&self.sink));
        }
        self.thread.as_ref()
    }
}

/// The thread, or nothing where there can't be another.
fn start(sink: Arc<dyn ByteSink>) -> Option<Thread> {
    let (parcels, inbox) = sync_channel::<Parcel>(1);
    let (outbox, delivered) = sync_channel(1);
    let work = move || {
        for parcel in inbox {
            let result = parcel.deliver(&*sink);
            if outbox.send((parcel.packed, result)).is_err() {
                break;
            }
        }
    };
    let handle = std::thread::Builder::new().name("gpugtiff-write".into()).spawn(work).ok()?;
    Some(Thread { parcels, delivered, handle })
}

impl Drop for Courier {
    fn drop(&mut self) {
        let _ = self.wait();
        if let Some(Thread { parcels, delivered, handle }) = self.thread.take() {
            drop((parcels, delivered));
            let _ = handle.join();
        }
    }
}
