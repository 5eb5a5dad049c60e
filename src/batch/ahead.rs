//! Works in front of a caller that walks through the raster.
//!
//! A caller that asks for one window after the other, downwards or block by
//! block, is about to ask for the next one. Its tiles are decoded in the
//! background onto a [`Shelf`] and handed over when they are asked for. At most
//! two loads are there at once: the one being taken and the one being made.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::budget::Lease;
use super::plan::{Cover, Grid, Rect, Tile};
use crate::engine::{Batch, Engine, PixelSink, Pixels};
use crate::error::Result;
use crate::process::{memory, pool};

/// What it allocates for, in messages.
const AHEAD: &str = "tiles ahead of the caller";
/// Steps in one direction before a walk is believed.
const BELIEF: u32 = 2;

/// Which way a caller goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Window under window, same columns.
    Down,
    /// Block after block, row after row.
    Along,
}

impl Way {
    /// Whether a caller that is at `now` will not come to `load` any more.
    pub fn has_passed(self, load: &Cover, now: &Cover) -> bool {
        match self {
            Way::Down => load.bottom <= now.top,
            Way::Along => (load.bottom, load.right) <= (now.top + 1, now.left),
        }
    }
}

/// Follows the windows of one plane (or of all, in a contiguous image).
#[derive(Debug, Default)]
pub struct Walk {
    last: Option<Rect>,
    way: Option<Way>,
    steps: u32,
}

impl Walk {
    /// Takes note of a window; says which way the caller goes if that is clear.
    pub fn step(&mut self, window: Rect, image: Rect) -> Option<Way> {
        let last = self.last.replace(window)?;
        // The same window for the next band neither breaks a walk nor advances it.
        if last != window {
            let way = way(&last, &window, &image);
            self.steps = if way.is_some() && way == self.way { self.steps + 1 } else { 1 };
            self.way = way;
        }
        self.way.filter(|_| self.steps >= BELIEF)
    }

    /// How far the walk has come: what is decoded ahead is not more than that, so
    /// that a walk that ends was at most half in vain.
    pub fn steps(&self) -> usize {
        self.steps as usize
    }
}

fn way(last: &Rect, now: &Rect, image: &Rect) -> Option<Way> {
    if (last.x, last.width) == (now.x, now.width) && last.bottom() == u64::from(now.y) {
        // Blocks as wide as the image are both; downwards is the same thing then.
        return Some(Way::Down);
    }
    let beside = last.y == now.y && last.right() == u64::from(now.x);
    let wraps = now.x == 0 && last.right() == image.right() && last.bottom() == u64::from(now.y);
    (beside || wraps).then_some(Way::Along)
}

/// The tiles that come after `from`, as many as `room` allows.
pub fn next_tiles(
    grid: &Grid,
    way: Way,
    from: Cover,
    planes: &[u32],
    room: usize,
) -> Result<Vec<Tile>> {
    match way {
        Way::Down => {
            let row = (from.right - from.left) as usize * planes.len();
            let rows = (room / row.max(1)) as u64;
            let bottom = (u64::from(from.bottom) + rows).min(u64::from(grid.down())) as u32;
            let cover = Cover { top: from.bottom, bottom: bottom.max(from.bottom), ..from };
            memory::collect(grid.tiles(cover, planes), AHEAD)
        }
        Way::Along => {
            let &[plane] = planes else { return Ok(Vec::new()) };
            let last = Tile { column: from.right - 1, row: from.bottom - 1, plane };
            let first = grid.index(last) + 1;
            let end = grid.index(Tile { column: grid.across() - 1, row: grid.down() - 1, plane });
            memory::collect((first..=end).take(room).map(|index| grid.tile(index)), AHEAD)
        }
    }
}

/// Decoded tiles that wait for their caller.
#[derive(Default)]
pub struct Shelf {
    slots: Mutex<HashMap<u64, Slot>>,
    changed: Condvar,
    cancelled: AtomicBool,
    spare: Arc<Spare>,
}

/// Buffers of tiles that were taken, for the tiles that come.
#[derive(Default)]
pub struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees them.
    pub fn clear(&self) {
        *self.buffers() = Vec::new();
    }
}

/// A tile of its own.
#[derive(Debug, Default)]
pub struct Kept {
    data: Vec<u8>,
    rows: usize,
    row_bytes: usize,
    asked_for: AtomicBool,
}

impl Kept {
    /// Whether this is the first time that it is asked for.
    pub fn is_new(&self) -> bool {
        !self.asked_for.swap(true, Ordering::Relaxed)
    }

    /// The pixels.
    pub fn pixels(&self) -> Pixels<'_> {
        Pixels::whole(&self.data, self.rows, self.row_bytes)
    }
}

enum Slot {
    Coming,
    Here(Arc<Kept>),
}

impl PixelSink for Shelf {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let mut data = self.spare.buffers().pop().unwrap_or_default();
        data.clear();
        // Without memory the tile is not kept: its caller decodes it again.
        if memory::grow(&mut data, pixels.data.len(), AHEAD).is_err() {
            return;
        }
        data.extend_from_slice(pixels.data);
        let (rows, row_bytes) = (pixels.rows, pixels.row_bytes);
        let kept = Kept { data, rows, row_bytes, asked_for: AtomicBool::new(false) };
        let kept = Slot::Here(Arc::new(kept));
        let mut slots = self.slots();
        if slots.contains_key(&id) || slots.try_reserve(1).is_ok() {
            slots.insert(id, kept);
        }
        drop(slots);
        self.changed.notify_all();
    }
}

impl Shelf {
    fn slots(&self) -> MutexGuard<'_, HashMap<u64, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces tiles, so that `get` waits for them; false where there is no memory for that.
    fn expect(&self, ids: impl Iterator<Item = u64>) -> bool {
        let mut slots = self.slots();
        ids.into_iter().all(|id| {
            let room = slots.try_reserve(1).is_ok();
            if room {
                slots.insert(id, Slot::Coming);
            }
            room
        })
    }

    /// Tiles that will not come after all are forgotten; others stay.
    fn give_up_waiting(&self) {
        self.slots().retain(|_, slot| matches!(slot, Slot::Here(_)));
        self.changed.notify_all();
    }

    /// The tile, waiting for it if it is being made; `None` if it is not.
    /// A waiting caller does some of the work.
    pub fn get(&self, id: u64) -> Option<Arc<Kept>> {
        loop {
            match self.slots().get(&id)? {
                Slot::Here(kept) => return Some(Arc::clone(kept)),
                Slot::Coming => {}
            }
            if pool::help() {
                continue;
            }
            let slots = self.slots();
            if matches!(slots.get(&id), Some(Slot::Coming)) {
                // The timeout lets the caller look for work that appeared since.
                let wait = self.changed.wait_timeout(slots, Duration::from_millis(1));
                drop(wait);
            }
        }
    }

    /// Takes one tile off; its memory is used again.
    pub fn remove(&self, id: u64) {
        let slot = self.slots().remove(&id);
        if let Some(kept) = slot.and_then(|slot| match slot {
            Slot::Here(kept) => Arc::into_inner(kept),
            Slot::Coming => None,
        }) {
            let mut spare = self.spare.buffers();
            if spare.try_reserve(1).is_ok() {
                spare.push(kept.data);
            }
        }
    }

    /// Whether nothing is left on it.
    pub fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }
}

/// Tiles on their way to a shelf, or on it.
pub struct Load {
    /// Where they come to lie.
    pub shelf: Arc<Shelf>,
    /// The tiles that it covers, taken ones included: where a walk goes on.
    pub cover: Cover,
    busy: Arc<Busy>,
    _lease: Lease,
}

/// Lets the owner wait until the background work has let go of everything.
#[derive(Default)]
struct Busy {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Load {
    /// Begins to decode `batches` in the background; `None` where there is no memory to do so.
    pub fn start(
        engine: Arc<dyn Engine>,
        batches: Vec<Batch>,
        cover: Cover,
        lease: Lease,
        spare: Arc<Spare>,
    ) -> Option<Load> {
        let shelf = Arc::new(Shelf { spare, ..Shelf::default() });
        if !shelf.expect(batches.iter().flat_map(|b| b.tiles.iter().map(|t| t.id))) {
            return None;
        }
        let busy = Arc::new(Busy::default());
        let load =
            Load { shelf: Arc::clone(&shelf), cover, busy: Arc::clone(&busy), _lease: lease };
        pool::spawn(1, move || {
            let finish = Finish { shelf, busy };
            for batch in batches {
                if finish.shelf.cancelled.load(Ordering::Acquire) {
                    break;
                }
                // Tiles that fail here are asked for again by the caller, who
                // then gets the error.
                if let Ok(staged) = engine.stage(batch) {
                    staged.decode(&*finish.shelf);
                }
            }
        });
        Some(load)
    }

    /// Decodes `batch` now and keeps it.
    pub fn make(engine: &dyn Engine, batch: Batch, cover: Cover, lease: Lease) -> Load {
        let shelf = Arc::new(Shelf::default());
        if let Ok(staged) = engine.stage(batch) {
            staged.decode(&*shelf);
        }
        let busy = Arc::new(Busy { done: Mutex::new(true), ..Busy::default() });
        Load { shelf, cover, busy, _lease: lease }
    }

    /// Stops the background work; returns when it no longer touches the source.
    pub fn cancel(&self) {
        self.shelf.cancelled.store(true, Ordering::Release);
        let mut done = self.busy.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            drop(done);
            let helped = pool::help();
            done = self.busy.done.lock().unwrap_or_else(PoisonError::into_inner);
            if !helped && !*done {
                let wait = self.busy.changed.wait_timeout(done, Duration::from_millis(1));
                done = wait.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

/// Marks the end of background work, also when it panics.
struct Finish {
    shelf: Arc<Shelf>,
    busy: Arc<Busy>,
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.shelf.give_up_waiting();
        *self.busy.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.busy.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid =
        Grid { width: 1000, height: 700, tile_width: 256, tile_height: 256, planes: 1 };

    fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
        Rect { x, y, width, height }
    }

    #[test]
    fn rows_are_a_walk_down() {
        let mut walk = Walk::default();
        let seen: Vec<_> = (0..4).map(|y| walk.step(rect(10, y, 500, 1), GRID.image())).collect();
        assert_eq!(seen, [None, None, Some(Way::Down), Some(Way::Down)]);
    }

    #[test]
    fn blocks_are_a_walk_along_even_over_the_edge() {
        let mut walk = Walk::default();
        let blocks = [rect(512, 0, 256, 256), rect(768, 0, 232, 256), rect(0, 256, 256, 256)];
        let seen: Vec<_> = blocks.map(|b| walk.step(b, GRID.image())).into();
        assert_eq!(seen, [None, None, Some(Way::Along)]);
    }

    #[test]
    fn jumps_are_no_walk() {
        let mut walk = Walk::default();
        for window in [rect(0, 0, 9, 9), rect(50, 50, 9, 9), rect(0, 0, 9, 9), rect(9, 9, 1, 1)] {
            assert_eq!(walk.step(window, GRID.image()), None);
        }
    }

    #[test]
    fn what_lies_behind_has_been_passed() {
        let at = |left, top| Cover { left, right: left + 1, top, bottom: top + 1 };
        for way in [Way::Down, Way::Along] {
            assert!(way.has_passed(&at(3, 0), &at(0, 1)));
            assert!(!way.has_passed(&at(0, 1), &at(0, 1)));
            assert!(!way.has_passed(&at(0, 2), &at(3, 1)));
        }
        assert!(Way::Along.has_passed(&at(1, 1), &at(2, 1)));
        assert!(!Way::Along.has_passed(&at(2, 1), &at(1, 1)));
    }

    #[test]
    fn next_tiles_stay_inside_the_plane() {
        let cover = Cover { left: 1, right: 3, top: 0, bottom: 1 };
        assert_eq!(next_tiles(&GRID, Way::Down, cover, &[0], 100).unwrap().len(), 4);
        assert_eq!(next_tiles(&GRID, Way::Down, cover, &[0], 3).unwrap().len(), 2);
        assert_eq!(next_tiles(&GRID, Way::Down, cover, &[0], 1).unwrap().len(), 0);
        assert_eq!(next_tiles(&GRID, Way::Along, cover, &[0], 100).unwrap().len(), 12 - 3);
        let end = Cover { left: 3, right: 4, top: 2, bottom: 3 };
        assert_eq!(next_tiles(&GRID, Way::Along, end, &[0], 100).unwrap().len(), 0);
    }
}
