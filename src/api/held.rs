//! The dataset behind a raster: for one thread at a time, and there for as long as a call needs it.
//!
//! Whoever is in a call has a [`Held`]. A dataset that is the caller's own is given back when its
//! raster is freed, after those calls and before any other.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::raster::{RASTERS, Raster};
use super::result::{GPUGTIFF_BAD_HANDLE, GPUGTIFF_STATE, Outcome, fail};
use crate::gdal::dataset::Dataset;
use crate::gdal::messages::capture;

/// A dataset with our reference to it.
pub(super) struct Holding {
    dataset: Dataset,
    reference: Mutex<Option<Reference>>,
    uses: Mutex<Uses>,
    unused: Condvar,
    lock: Mutex<()>,
}

/// Calls that are using it.
#[derive(Default)]
struct Uses {
    now: usize,
    /// There may be no more.
    over: bool,
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
            uses: Mutex::default(),
            unused: Condvar::new(),
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

    /// Gives the dataset back as soon as nobody is using it, and does not return before.
    pub(super) fn give_back(&self) {
        let mut uses = lock(&self.uses);
        uses.over = true;
        while uses.now > 0 {
            uses = self.unused.wait(uses).unwrap_or_else(PoisonError::into_inner);
        }
        drop(uses);
        drop(lock(&self.reference).take());
    }
}

/// A raster during a call.
pub(super) struct Held(Arc<Raster>);

impl Held {
    /// The raster of a handle.
    pub(super) fn of(handle: *const Raster) -> Outcome<Held> {
        Held::new(RASTERS.get(handle)?)
    }

    /// The same for who has it already.
    pub(super) fn new(raster: Arc<Raster>) -> Outcome<Held> {
        let mut uses = lock(&raster.holding.uses);
        if uses.over {
            let text = format!("the raster of {} was freed, and its dataset is gone", raster.name);
            return fail(GPUGTIFF_BAD_HANDLE, text);
        }
        uses.now += 1;
        drop(uses);
        Ok(Held(raster))
    }

    /// To be kept beyond the call.
    pub(super) fn raster(&self) -> Arc<Raster> {
        Arc::clone(&self.0)
    }
}

impl Deref for Held {
    type Target = Raster;

    fn deref(&self) -> &Raster {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.0.holding.uses).now -= 1;
        self.0.holding.unused.notify_all();
    }
}

/// A reference to a dataset that no other raster has: their locks would not know of each other.
struct Reference(Dataset);

/// The addresses of datasets that rasters have.
static TAKEN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

impl Reference {
    fn new(dataset: Dataset, name: &str) -> Outcome<Reference> {
        if lock(&TAKEN).get_or_insert_default().insert(dataset.handle().addr()) {
            return Ok(Reference(dataset));
        }
        release(dataset);
        let text = format!("the dataset '{name}' is a raster already: expected one that is not");
        fail(GPUGTIFF_STATE, text)
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
