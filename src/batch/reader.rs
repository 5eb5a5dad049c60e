//! Serves windows of one image.
//!
//! For each tile of the window, in this order: the caller's own cache, the shelf
//! of tiles decoded ahead, the fill value where the file leaves the tile out, the
//! engine. What the engine decodes goes in batches: the next is staged while one
//! is decoded. Afterwards the walk is followed and the next load begun.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::ahead::{Load, Way, next_tiles};
use super::budget::{Holder, lease};
use super::counters::Counters;
use super::followed::{Ahead, State};
use super::image::Image;
use super::plan::{Cover, Rect, Tile};
use crate::engine::{Batch, Codec, Engine, PixelSink, Staged, TileError, TileJob};
use crate::error::{Error, Result};
use crate::process::{memory, pool};

/// What lists of tiles are for, in messages.
const TILES: &str = "the tiles of a window";
/// Planes that are followed at once; beyond that a caller is not walking.
const MOST_WALKS: usize = 64;
/// Tiles that are planned at once, so that a window of millions takes no memory for each.
const GROUP: usize = 1 << 17;
/// Loads of one walk: one being taken, one being made.
const LOADS: usize = 2;

/// Who wants pixels. `put` may be called from any thread, the rest is called on
/// the thread that called `read`.
pub trait Caller: PixelSink {
    /// The pixels wanted, inside the image.
    fn window(&self) -> Rect;
    /// The planes wanted; `[0]` in a contiguous image.
    fn planes(&self) -> &[u32];
    /// Serves the tile from the caller's own cache, if it is there.
    fn cached(&self, tile: Tile) -> bool;
    /// The tile is about to be put; returns whether the caller keeps all of it.
    /// One that streams through the raster will not come back for it.
    fn expect(&self, tile: Tile, streaming: bool) -> bool;
    /// The file leaves the tile out.
    fn fill(&self, tile: Tile);
    /// Works on one window while it asks for the next: what would be decoded before it asks is only
    /// in its way.
    fn is_pipelined(&self) -> bool {
        false
    }
    /// Tiles that could not be had, told after each batch: false ends the request. All others before
    /// them were delivered.
    fn failed(&self, tiles: Vec<TileError>) -> bool;
    /// Told the fraction done from time to time; false stops the request.
    fn progress(&self, done: f64) -> bool;
    /// Ends what `expect` began; `put` was called if `delivered`.
    fn settle(&self, tile: Tile, delivered: bool);
}

/// Bounds for one dataset.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of pixels in one batch, and ahead of the callers of the whole process.
    pub batch_bytes: usize,
    /// Threads on one batch.
    pub threads: usize,
}

/// Reads one image.
pub struct Reader {
    image: Image,
    engine: Arc<dyn Engine>,
    limits: Limits,
    counters: Arc<Counters>,
    ahead: Arc<Ahead>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ahead.clear();
    }
}

/// What one call of `read` gathers.
#[derive(Default)]
struct Work {
    /// The caller walks.
    streaming: bool,
    /// The caller's share of the whole that is done, and that this group of tiles adds.
    done: f64,
    share: f64,
    /// The caller gave up.
    ended: bool,
    pending: Vec<TileJob>,
    failed: Vec<TileError>,
    /// Something had to be decoded, now or ahead.
    decoded: bool,
}

impl Reader {
    /// A reader of `image`.
    pub fn new(
        image: Image,
        engine: Arc<dyn Engine>,
        limits: Limits,
        counters: Arc<Counters>,
    ) -> Reader {
        let ahead = Arc::default();
        Reader { image, engine, limits, counters, ahead }
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether the window's part of a tile is read again as cheaply as it would be kept.
    pub fn is_as_good_as_kept(&self, tile: Tile, window: &Rect) -> bool {
        self.engine.reads_parts() && self.image.is_as_good_as_kept(tile, window)
    }

    /// Delivers the caller's window, but for tiles that could not be had, which it is told of.
    pub fn read(&self, caller: &dyn Caller) -> Result<()> {
        self.ahead.with(|state| self.read_with(state, caller))
    }

    fn read_with(&self, state: &mut State, caller: &dyn Caller) -> Result<()> {
        state.used = Instant::now();
        let cover = self.image.grid.cover(&caller.window());
        let way = self.step(state, caller);
        let mut work = Work { streaming: way.is_some(), ..Work::default() };
        let all = cover.len() as f64 * caller.planes().len() as f64;
        let mut tiles = self.image.grid.tiles(cover, caller.planes());
        while !work.ended {
            let group = memory::collect(tiles.by_ref().take(GROUP), TILES)?;
            if group.is_empty() {
                break;
            }
            work.share = group.len() as f64 / all;
            self.read_group(state, caller, group, &mut work)?;
            work.done += work.share;
        }
        // A GPU is kept busy by what lies ahead; cores have the caller's own work.
        let idle = !caller.is_pipelined() || self.engine.ahead() > 1;
        if let Some(way) = way.filter(|_| work.decoded && idle) {
            self.advance(state, caller.planes(), way, cover);
        }
        state.used = Instant::now();
        Ok(())
    }

    /// Delivers some of the window's tiles.
    fn read_group(
        &self,
        state: &mut State,
        caller: &dyn Caller,
        mut group: Vec<Tile>,
        work: &mut Work,
    ) -> Result<()> {
        group.retain(|&tile| !self.serve(state, caller, tile, work));
        self.image.fetch(&group);
        memory::grow(&mut work.pending, group.len(), TILES)?;
        for tile in group {
            self.plan(caller, tile, work)?;
        }
        let pending = std::mem::take(&mut work.pending);
        if self.must_hold(caller, &pending) {
            self.hold(state, caller, pending, work)?;
        } else {
            self.decode(caller, pending, work)?;
        }
        self.tell_failed(caller, u64::MAX, work);
        Ok(())
    }

    /// Tells the caller of tiles up to `last` that could not be had.
    fn tell_failed(&self, caller: &dyn Caller, last: u64, work: &mut Work) {
        if work.ended {
            return;
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut work.failed).into_iter().partition(|tile| tile.id <= last);
        work.failed = later;
        work.ended = !due.is_empty() && !caller.failed(due);
    }

    /// Delivers the caller's window from the file alone: neither the caller's cache nor the
    /// shelf is looked at and no walk is followed, so that any number of threads may be here.
    /// False if a tile is left out of the file or could not be had: what stands there only the
    /// dataset knows.
    pub fn read_apart(&self, caller: &dyn Caller) -> Result<bool> {
        let cover = self.image.grid.cover(&caller.window());
        let wanted = memory::collect(self.image.grid.tiles(cover, caller.planes()), TILES)?;
        self.image.fetch(&wanted);
        let mut tiles = memory::room(wanted.len(), TILES)?;
        for tile in wanted {
            match self.image.job(tile) {
                Ok(Some(job)) => tiles.push(job),
                Ok(None) | Err(_) => return Ok(false),
            }
        }
        let mut work = Work { streaming: true, share: 1., ..Work::default() };
        self.decode(caller, tiles, &mut work)?;
        Ok(!work.ended)
    }

    /// Serves a tile from where it is already; false if it is nowhere.
    fn serve(&self, state: &State, caller: &dyn Caller, tile: Tile, work: &mut Work) -> bool {
        if caller.cached(tile) {
            return true;
        }
        let id = self.image.grid.index(tile);
        let Some((load, kept)) = state.find(id) else { return false };
        let keeps = caller.expect(tile, work.streaming);
        caller.put(id, kept.pixels());
        caller.settle(tile, true);
        if kept.is_new() {
            self.counters.tiles_touched.bump();
            self.count_decoded(1);
            self.counters.tiles_from_ahead.bump();
        }
        drop(kept);
        let all = caller.window().contains(&self.image.grid.rect(tile));
        if keeps || all {
            load.shelf.remove(id);
        }
        work.decoded = true;
        true
    }

    /// Notes what must be decoded for a tile, fills in what the file leaves out.
    fn plan(&self, caller: &dyn Caller, tile: Tile, work: &mut Work) -> Result<()> {
        let id = self.image.grid.index(tile);
        match self.image.job(tile) {
            Ok(Some(job)) => memory::push(&mut work.pending, job, TILES)?,
            Ok(None) => {
                self.counters.tiles_sparse.bump();
                caller.fill(tile);
            }
            Err(error) => {
                self.counters.tiles_touched.bump();
                memory::push(&mut work.failed, TileError { id, error }, TILES)?;
            }
        }
        Ok(())
    }

    /// A batch of tiles, which are counted as touched elsewhere.
    pub fn batch(&self, tiles: Vec<TileJob>) -> Batch {
        self.counters.batches.bump();
        self.counters.bytes_read.add(tiles.iter().map(|t| t.len as u64).sum());
        Batch {
            spec: Arc::clone(&self.image.spec),
            tiles,
            source: Arc::clone(&self.image.source),
            threads: self.limits.threads,
        }
    }

    /// Whether single tiles are decoded from any thread, at no extra cost.
    pub fn decodes_singly(&self) -> bool {
        self.engine.decodes_singly() && self.image.source.concurrent()
    }

    /// Decodes one tile on this thread; false if it could not be had.
    pub fn decode_singly(&self, job: TileJob, sink: &dyn PixelSink) -> bool {
        self.engine.decode_tile(&self.image.spec, &self.image.source, job, sink).is_ok()
    }

    /// So many tiles were wanted.
    pub fn count_touched(&self, tiles: usize) {
        self.counters.tiles_touched.add(tiles as u64);
    }

    /// So many tiles were decoded.
    pub fn count_decoded(&self, tiles: usize) {
        self.counters.tiles_decoded.add(tiles as u64);
        if self.image.spec.codec == Codec::Gtiff {
            self.counters.tiles_by_gtiff_codec.add(tiles as u64);
        }
        self.counters.bytes_decoded.add((tiles * self.image.spec.tile_bytes()) as u64);
    }

    /// Tiles that make one batch.
    fn batch_tiles(&self) -> usize {
        let appetite = self.engine.appetite(&self.image.spec, self.limits.batch_bytes);
        (appetite / self.image.spec.tile_bytes().max(1)).max(1)
    }

    /// Decodes tiles for the caller, batch by batch.
    fn decode(&self, caller: &dyn Caller, tiles: Vec<TileJob>, work: &mut Work) -> Result<()> {
        if tiles.is_empty() {
            return Ok(());
        }
        work.decoded = true;
        self.counters.tiles_touched.add(tiles.len() as u64);
        let mut done = 0;
        let mut chunks = tiles.chunks(self.batch_tiles());
        let mut staged = VecDeque::new();
        for chunk in chunks.by_ref().take(self.engine.ahead()) {
            let batch = self.expect(caller, chunk, work.streaming)?;
            staged.push_back((chunk, self.engine.stage(batch)));
        }
        while let Some((chunk, now)) = staged.pop_front() {
            let next = chunks.next();
            let batch = next.map(|chunk| self.expect(caller, chunk, work.streaming)).transpose()?;
            let ready = self.decode_one(caller, chunk, now, batch, work)?;
            staged.extend(next.zip(ready));
            done += chunk.len();
            self.tell_failed(caller, chunk.last().map_or(0, |job| job.id), work);
            if work.ended {
                break;
            }
            let share = work.share * done as f64 / tiles.len() as f64;
            if !caller.progress(work.done + share) {
                return Err(Error::Interrupted);
            }
        }
        for job in staged.into_iter().flat_map(|(chunk, _)| chunk) {
            caller.settle(self.image.grid.tile(job.id), false);
        }
        Ok(())
    }

    /// A batch of tiles that the caller was told of, with what of them it will look at.
    fn expect(&self, caller: &dyn Caller, chunk: &[TileJob], streaming: bool) -> Result<Batch> {
        memory::check(TILES)?;
        let mut tiles = memory::copied(chunk, TILES)?;
        for job in &mut tiles {
            let tile = self.image.grid.tile(job.id);
            if !caller.expect(tile, streaming) {
                job.part = self.image.part(tile, &caller.window(), job.rows);
            }
        }
        Ok(self.batch(tiles))
    }

    /// Decodes one batch while the next is staged.
    fn decode_one(
        &self,
        caller: &dyn Caller,
        chunk: &[TileJob],
        staged: Result<Box<dyn Staged>>,
        next: Option<Batch>,
        work: &mut Work,
    ) -> Result<Option<Result<Box<dyn Staged>>>> {
        let (mut failed, next) = match staged {
            Ok(staged) => self.overlap(staged, caller, next),
            Err(error) => {
                let fail = |job: &TileJob| TileError { id: job.id, error: error.clone() };
                let failed = memory::collect(chunk.iter().map(fail), TILES)?;
                (failed, next.map(|batch| self.engine.stage(batch)))
            }
        };
        failed.sort_unstable_by_key(|tile| tile.id);
        let lost = |id| failed.binary_search_by_key(&id, |tile| tile.id).is_ok();
        for job in chunk {
            caller.settle(self.image.grid.tile(job.id), !lost(job.id));
        }
        self.count_decoded(chunk.len() - failed.len());
        memory::extend(&mut work.failed, failed, TILES)?;
        Ok(next)
    }

    fn overlap(
        &self,
        staged: Box<dyn Staged>,
        caller: &dyn Caller,
        next: Option<Batch>,
    ) -> (Vec<TileError>, Option<Result<Box<dyn Staged>>>) {
        let Some(next) = next else { return (staged.decode(caller), None) };
        if next.source.concurrent() || self.limits.threads < 2 {
            // Staging only announces the reads, or there is nobody to do it meanwhile.
            let next = self.engine.stage(next);
            return (staged.decode(caller), Some(next));
        }
        let next = Batch { source: next.source.for_worker().unwrap_or(next.source), ..next };
        let (now, next) = (Mutex::new(Some(staged)), Mutex::new(Some(next)));
        let (failed, ready) = (Mutex::new(Vec::new()), Mutex::new(None));
        pool::run(2, 2, &|task| {
            if task == 0 {
                if let Some(staged) = take(&now) {
                    *guard(&failed) = staged.decode(caller);
                }
            } else if let Some(batch) = take(&next) {
                *guard(&ready) = Some(self.engine.stage(batch));
            }
        });
        (std::mem::take(&mut *guard(&failed)), guard(&ready).take())
    }

    /// Whether the tiles must be kept here for the caller's next rows, since
    /// GDAL's cache holds blocks of another shape.
    fn must_hold(&self, caller: &dyn Caller, pending: &[TileJob]) -> bool {
        let window = caller.window();
        !self.image.blocks_are_tiles
            && pending.len() <= self.batch_tiles()
            && pending
                .iter()
                .any(|job| !window.contains(&self.image.grid.rect(self.image.grid.tile(job.id))))
    }

    /// Decodes onto the shelf and delivers from there.
    fn hold(
        &self,
        state: &mut State,
        caller: &dyn Caller,
        tiles: Vec<TileJob>,
        work: &mut Work,
    ) -> Result<()> {
        let cover = self.image.grid.cover(&caller.window());
        let bytes = self.image.spec.tile_bytes() * tiles.len();
        let plane = caller.planes().first().copied().unwrap_or(0);
        let follow = state.walks.entry(plane).or_default();
        while follow.loads.len() >= LOADS {
            if let Some(load) = follow.loads.pop_front() {
                load.cancel();
            }
        }
        let holder: Arc<dyn Holder> = self.ahead.clone();
        let Some(lease) = lease(bytes, self.limits.batch_bytes * 2, &holder) else {
            return self.decode(caller, tiles, work);
        };
        let batch = self.batch(memory::copied(&tiles, TILES)?);
        let load = Load::make(&*self.engine, batch, cover, lease);
        let mut missing = Vec::new();
        self.counters.tiles_touched.add(tiles.len() as u64);
        for job in tiles {
            let Some(kept) = load.shelf.get(job.id) else {
                memory::push(&mut missing, job, TILES)?;
                continue;
            };
            caller.put(job.id, kept.pixels());
            kept.is_new();
            self.count_decoded(1);
        }
        work.decoded = true;
        follow.loads.push_back(load);
        // Once more, for the reasons.
        self.decode(caller, missing, work)
    }

    /// Takes note of the window; says which way the caller walks, if it does.
    fn step(&self, state: &mut State, caller: &dyn Caller) -> Option<Way> {
        let plane = *caller.planes().first()?;
        if self.limits.threads < 2 || state.walks.len() >= MOST_WALKS {
            return None;
        }
        let follow = state.walks.entry(plane).or_default();
        let way = follow.walk.step(caller.window(), self.image.grid.image());
        // A caller that jumps gets nothing ahead; tiles held because GDAL's cache
        // cannot hold them stay.
        if way.is_none() && self.image.blocks_are_tiles {
            follow.retire();
        }
        way
    }

    /// Begins the next load of a walk.
    fn advance(&self, state: &mut State, planes: &[u32], way: Way, cover: Cover) {
        // Nothing to gain where reading is all there is to do: the kernel reads ahead.
        // Over a network nothing is fetched that nobody asked for.
        let source = &self.image.source;
        if source.remote() || self.image.spec.codec == Codec::None && source.concurrent() {
            return;
        }
        let room = self.limits.batch_bytes / LOADS / state.walks.len().max(1);
        let spare = Arc::clone(&state.spare);
        let Some(follow) = planes.first().and_then(|plane| state.walks.get_mut(plane)) else {
            return;
        };
        // Taken, or left behind because GDAL's cache had the tiles.
        let done = |load: &Load| load.shelf.is_empty() || way.has_passed(&load.cover, &cover);
        while follow.loads.front().is_some_and(done) {
            if let Some(load) = follow.loads.pop_front() {
                load.cancel();
            }
        }
        if follow.loads.len() >= LOADS {
            return;
        }
        let from = match follow.loads.back() {
            Some(load) => load.cover,
            None => cover,
        };
        let bytes = self.image.spec.tile_bytes().max(1);
        let come = follow.walk.steps().saturating_mul(cover.len() as usize * planes.len());
        let room = (room / bytes).min(come);
        let Ok(tiles) = next_tiles(&self.image.grid, way, from, planes, room) else { return };
        let (Some(first), Some(last)) = (tiles.first(), tiles.last()) else { return };
        let next = match way {
            Way::Down => Cover { top: first.row, bottom: last.row + 1, ..cover },
            Way::Along => Cover {
                left: last.column,
                right: last.column + 1,
                top: last.row,
                bottom: last.row + 1,
            },
        };
        let jobs = tiles.iter().filter_map(|&tile| self.image.job(tile).ok().flatten());
        // Without memory nothing is read ahead.
        let Ok(jobs) = memory::collect(jobs, TILES) else { return };
        let holder: Arc<dyn Holder> = self.ahead.clone();
        let Some(lease) = lease(jobs.len() * bytes, self.limits.batch_bytes, &holder) else {
            return;
        };
        let source = self.image.source.for_worker();
        let batches = jobs.chunks(self.batch_tiles()).map(|chunk| {
            let batch = self.batch(memory::copied(chunk, TILES)?);
            Ok(Batch { source: source.clone().unwrap_or(batch.source), ..batch })
        });
        let Ok(batches) = memory::try_collect(batches, TILES) else { return };
        self.counters.tiles_ahead.add(jobs.len() as u64);
        let load = Load::start(Arc::clone(&self.engine), batches, next, lease, spare);
        follow.loads.extend(load);
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T>(mutex: &Mutex<Option<T>>) -> Option<T> {
    guard(mutex).take()
}
