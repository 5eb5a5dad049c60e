//! The dataset behind a raster: for one thread at a time, and there for as long as a call needs it.
//!
//! Whoever is in a call has a [`Held`], and a raster is freed when those that came by its handle are
//! gone. Walks of batches may outlive it, unless the dataset is the caller's own, which is given back then.

use std::collections::{HashSet, TryReserveError};
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::raster::{RASTERS, Raster};
use super::result::{GPUGTIFF_BAD_HANDLE, GPUGTIFF_OUT_OF_MEMORY, GPUGTIFF_STATE, Outcome, fail};
use crate::gdal::dataset::Dataset;
use crate::gdal::messages::capture;

/// A dataset with our reference to it.
pub(super) struct Holding {
    dataset: Dataset,
    reference: Mutex<Option<Reference>>,
    uses: Arc<Uses>,
    lock: Mutex<()>,
}

/// Calls that are using it.
#[derive(Default)]
struct Uses {
    count: Mutex<Count>,
    ended: Condvar,
}

#[derive(Default)]
struct Count {
    /// By the raster's handle.
    calls: usize,
    /// By walks of batches that came from it.
    walks: usize,
    /// There may be no more.
    over: bool,
}

impl Uses {
    /// Waits until those that `which` counts have ended.
    fn wait(&self, which: impl Fn(&Count) -> usize) {
        let under_way = |count: &mut Count| which(count) > 0;
        drop(self.ended.wait_while(lock(&self.count), under_way));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Holding {
    /// Takes over a reference that is ours; `name` is for the message.
    pub(super) fn new(dataset: Dataset, name: &str) -> Outcome<Holding> {
        Ok(Holding {
            dataset,
            reference: Mutex::new(Some(Reference::new(dataset, name)?)),
            uses: Arc::default(),
            lock: Mutex::default(),
        })
    }

    /// The dataset, which others may be using.
    pub(super) fn dataset(&self) -> Dataset {
        self.dataset
    }

    /// The dataset, for as long as the guard is held.
    pub(super) fn lock(&self) -> (MutexGuard<'_, ()>, Dataset) {
        (lock(&self.lock), self.dataset)
    }

    /// The same if nobody else has it.
    pub(super) fn try_lock(&self) -> Option<(MutexGuard<'_, ()>, Dataset)> {
        match self.lock.try_lock() {
            Ok(guard) => Some((guard, self.dataset)),
            Err(TryLockError::Poisoned(guard)) => Some((guard.into_inner(), self.dataset)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for calls by the raster's handle, which nobody has any more.
    pub(super) fn settle(&self) {
        self.uses.wait(|count| count.calls);
    }

    /// Gives the dataset back as soon as nobody is using it, and does not return before.
    pub(super) fn give_back(&self) {
        lock(&self.uses.count).over = true;
        self.uses.wait(|count| count.calls + count.walks);
        drop(lock(&self.reference).take());
    }
}

/// A raster during a call.
pub(super) struct Held {
    /// Goes before the call is said to have ended: whoever waits for that is then the last to have it.
    raster: Arc<Raster>,
    _call: Call,
}

/// One of the calls that are counted.
struct Call {
    uses: Arc<Uses>,
    whose: fn(&mut Count) -> &mut usize,
}

impl Held {
    /// The raster of a handle.
    pub(super) fn of(handle: *const Raster) -> Outcome<Held> {
        // Counted before it can be taken back.
        RASTERS.ask(handle, |raster| Held::new(raster, |count| &mut count.calls))?
    }

    /// The same for a walk of batches.
    pub(super) fn walk(raster: &Arc<Raster>) -> Outcome<Held> {
        Held::new(raster, |count| &mut count.walks)
    }

    fn new(raster: &Arc<Raster>, whose: fn(&mut Count) -> &mut usize) -> Outcome<Held> {
        let uses = Arc::clone(&raster.holding.uses);
        let mut count = lock(&uses.count);
        if count.over {
            let text = format!("the raster of {} was freed, and its dataset is gone", raster.name);
            return fail(GPUGTIFF_BAD_HANDLE, text);
        }
        *whose(&mut count) += 1;
        drop(count);
        Ok(Held { raster: Arc::clone(raster), _call: Call { uses, whose } })
    }

    /// To be kept beyond the call.
    pub(super) fn raster(&self) -> Arc<Raster> {
        Arc::clone(&self.raster)
    }
}

impl Deref for Held {
    type Target = Raster;

    fn deref(&self) -> &Raster {
        &self.raster
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        *(self.whose)(&mut lock(&self.uses.count)) -= 1;
        self.uses.ended.notify_all();
    }
}

/// A reference to a dataset that no other raster has: their locks would not know of each other.
struct Reference(Dataset);

/// The addresses of datasets that rasters have.
static TAKEN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

impl Reference {
    fn new(dataset: Dataset, name: &str) -> Outcome<Reference> {
        let insert = |taken: &mut HashSet<usize>| -> std::result::Result<bool, TryReserveError> {
            taken.try_reserve(1)?;
            Ok(taken.insert(dataset.handle().addr()))
        };
        let outcome = match insert(lock(&TAKEN).get_or_insert_default()) {
            Ok(true) => return Ok(Reference(dataset)),
            Ok(false) => {
                let text = "is a raster already: expected one that is not";
                fail(GPUGTIFF_STATE, format!("the dataset '{name}' {text}"))
            }
            Err(_) => fail(GPUGTIFF_OUT_OF_MEMORY, "no memory for one more dataset"),
        };
        release(dataset);
        outcome
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        lock(&TAKEN).get_or_insert_default().remove(&self.0.handle().addr());
        release(self.0);
    }
}

/// Nobody is there to be told what goes wrong.
fn release(dataset: Dataset) {
    capture(|| {
        // SAFETY: a reference that was ours.
        unsafe { dataset.release() };
    });
}
