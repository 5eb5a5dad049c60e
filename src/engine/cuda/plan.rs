//! What both ways through the device have in common: how many tiles go at a time, and the arena for
//! them. Too little memory means fewer tiles, down to one, then the CPU.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::arena::Sizes;
use super::driver::{Answer, Current};
use super::probe::Gpu;
use super::run::Run;
use super::{LARGEST_BATCH, Works};
use crate::engine::TileSpec;

/// Device memory unless DEVICE_MB says otherwise, or a quarter of what is free.
const DEVICE_BYTES: usize = 2 << 30;
/// Tiles of a few bytes each: the tables would be larger than the pixels.
const MOST_TILES: usize = 1 << 17;
/// How long to wait for a device that is busy with another dataset.
const PATIENCE: Duration = Duration::from_secs(30);

/// How tiles of one kind go through the device, in batches of some size.
pub(super) trait Planned: Sized {
    /// Tiles in a batch, at most.
    fn tiles(&self) -> usize;
    /// The regions that such a batch needs.
    fn sizes(&self) -> Sizes;
    /// The same for another number of tiles.
    fn resized(&self, gpu: &Gpu, tiles: usize) -> Answer<Self>;

    /// As many tiles as `budget` bytes of device memory allow; `None` if not even one fits.
    fn within(mut self, gpu: &Gpu, budget: usize) -> Answer<Option<Self>> {
        loop {
            let (tiles, need) = (self.tiles(), self.sizes().device());
            if need <= budget {
                return Ok(Some(self));
            }
            // Nearly proportional: one or two rounds.
            let fewer = (tiles as u128 * budget as u128 / need as u128) as usize;
            match fewer.min(tiles - 1) {
                0 => return Ok(None),
                fewer => self = self.resized(gpu, fewer)?,
            }
        }
    }
}

/// Plans that were made, or could not be.
pub(super) type Known<K, P> = Mutex<HashMap<K, Option<Arc<P>>>>;

/// What came of asking for the arena.
pub(super) enum Begun {
    /// It is ours.
    Run(Run),
    /// Somebody else has it.
    Busy,
    /// The device refuses.
    Refused,
}

impl Works {
    /// How many tiles a batch should have, as far as host memory goes: a share of BATCH_MB, or so
    /// many for each multiprocessor if that is not far too much for the host.
    pub(super) fn wanted(&self, spec: &TileSpec, share: usize, waves: usize) -> usize {
        let tile = spec.tile_bytes().max(1);
        let share = (self.settings.batch_bytes / share).min(LARGEST_BATCH) / tile;
        let most = (self.settings.batch_bytes / 2).min(LARGEST_BATCH) / tile;
        share.max(waves * self.gpu.device.multiprocessors).min(most).clamp(1, MOST_TILES)
    }

    /// A plan within DEVICE_MB. If there is none, the user is told why, and what is done `instead`.
    pub(super) fn planned<P: Planned>(
        &self,
        instead: &str,
        make: impl FnOnce(&Gpu) -> Answer<P>,
    ) -> Option<Arc<P>> {
        let planned = self.gpu.device.enter().and_then(|current| {
            let budget = self.budget(&current)?;
            make(&self.gpu)?.within(&self.gpu, budget)
        });
        match planned {
            Ok(Some(plan)) => return Some(Arc::new(plan)),
            Ok(None) => {
                self.notice(format!("not one tile fits into DEVICE_MB: {instead} instead"));
            }
            Err(fault) => self.note_fault(fault),
        }
        None
    }

    fn budget(&self, current: &Current) -> Answer<usize> {
        match self.settings.device_bytes {
            Some(bytes) => Ok(bytes),
            None => Ok(DEVICE_BYTES.min(current.memory()?.0 / 4)),
        }
    }

    /// The arena, for batches of this plan or, where memory is short, of a smaller one. `remember`
    /// is told what is to be done instead of the plan that was asked for.
    pub(super) fn begin<P: Planned>(
        &self,
        plan: &mut Arc<P>,
        remember: impl Fn(&P, Option<Arc<P>>),
    ) -> Begun {
        let Ok(current) = self.gpu.device.enter() else { return Begun::Refused };
        loop {
            let fault = match Run::begin(&self.gpu, &current, plan.sizes()) {
                Ok(Some(run)) => {
                    self.gave_up.store(false, Ordering::Relaxed);
                    self.note_memory(&run);
                    return Begun::Run(run);
                }
                Ok(None) => return Begun::Busy,
                Err(fault) => fault,
            };
            let smaller = match fault.is_out_of_memory() && plan.tiles() > 1 {
                true => plan.resized(&self.gpu, plan.tiles() / 2),
                false => Err(fault),
            };
            match smaller {
                Ok(smaller) => {
                    let smaller = Arc::new(smaller);
                    remember(plan, Some(Arc::clone(&smaller)));
                    *plan = smaller;
                }
                Err(fault) => {
                    self.note_fault(fault);
                    remember(plan, None);
                    return Begun::Refused;
                }
            }
        }
    }

    /// How long a batch that has nothing on its way may wait for others. Once that was in vain nobody
    /// waits before the device was had again: the batches of a raster would take hours to find it busy.
    pub(super) fn patience(&self) -> Duration {
        match self.settings.patient && !self.gave_up.load(Ordering::Relaxed) {
            true => self.settings.patience.unwrap_or(PATIENCE),
            false => Duration::ZERO,
        }
    }

    /// That was in vain.
    pub(super) fn give_up(&self) {
        self.gave_up.store(true, Ordering::Relaxed);
    }

    fn note_memory(&self, run: &Run) {
        self.tally.peak.raise(run.sizes.device() as u64);
        if !run.pinned {
            let text = "page-locked memory was refused: copies to the GPU are slower";
            self.notice(text.into());
        }
    }
}
