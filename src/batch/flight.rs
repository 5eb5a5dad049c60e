//! A batch that is being encoded while the caller goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::canvas::{is_fill, put_fill};
use super::originals::Originals;
use super::plan::{Grid, Rect};
use super::swath::Piece;
use crate::engine::interleave::interleave;
use crate::engine::{Engine, Packed, PixelBatch, PixelSource, TileSpec};
use crate::error::{Error, Result};
use crate::process::{memory, pool};

/// Workers that are not through with a batch after so long have something else to do, or are none.
const PATIENCE: Duration = Duration::from_millis(50);

/// A caller that has to tell of progress encodes no tile that takes longer than this.
const QUICK: Duration = Duration::from_millis(100);

/// Bytes of pixels that no codec takes long for.
const SMALL_BATCH: usize = 256 << 10;

/// How the encoding of a batch goes; shared with the workers.
#[derive(Default)]
pub struct Watch {
    fetched: AtomicUsize,
    stopped: AtomicBool,
}

impl Watch {
    /// Counts a tile that a worker is about to encode; false if nobody wants it any more.
    fn fetch(&self) -> bool {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        !self.stopped.load(Ordering::Relaxed)
    }
}

/// Pixels that wait to be encoded, in memory of our own.
pub enum Pixels {
    /// Tiles that were collected plane by plane.
    Collected(HashMap<u64, Vec<Vec<u8>>>),
    /// A rectangle of the image.
    Swath(Swath),
    /// Tiles of another image, and what to ask for if these are not to be had.
    Originals(Originals, Piece),
}

impl Pixels {
    /// Whether they come without the caller, who then has nothing to do meanwhile.
    fn needs_nobody(&self) -> bool {
        matches!(self, Pixels::Originals(..))
    }

    /// How many batches of such should be in the air. Of those that need nobody there are two, so that
    /// no worker waits for the last tile of a batch.
    pub fn abreast(&self, engine: &dyn Engine) -> usize {
        if self.needs_nobody() { engine.encodes().max(2) } else { engine.encodes() }
    }
}

/// Whole tiles side by side in one buffer.
pub struct Swath {
    /// The pixels.
    pub data: Vec<u8>,
    /// Which ones.
    pub rect: Rect,
    /// The first plane in it.
    pub first_plane: u32,
    /// Pixels are interleaved; else one band follows the other.
    pub interleaved: bool,
}

/// Where the engine gets a batch's tiles from.
pub struct Cargo {
    /// The pixels.
    pub pixels: Pixels,
    /// What tiles are like.
    pub spec: Arc<TileSpec>,
    /// Where they are.
    pub grid: Grid,
    /// One sample of fill.
    pub fill: Vec<u8>,
    /// Leave out what is all fill.
    pub sparse: bool,
    /// Who counts the tiles.
    pub watch: Arc<Watch>,
}

impl PixelSource for Cargo {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        if !self.watch.fetch() {
            return false;
        }
        match &self.pixels {
            Pixels::Collected(tiles) => {
                let Some(planes) = tiles.get(&id) else { return false };
                self.interleave(planes, tile);
            }
            Pixels::Swath(swath) => self.cut(swath, id, tile),
            Pixels::Originals(originals, _) => {
                if !originals.get(id, tile) {
                    return false;
                }
                self.pad(id, tile);
            }
        }
        !(self.sparse && is_fill(tile, &self.fill))
    }
}

impl Cargo {
    fn interleave(&self, planes: &[Vec<u8>], tile: &mut [u8]) {
        let bytes = tile.len() / planes.len().max(1);
        memory::few(
            planes.len(),
            |i| &planes[i][..bytes],
            |planes| {
                interleave(planes, planes.len(), self.spec.sample.bytes(), tile);
            },
        );
    }

    /// What of a tile lies outside the image is fill.
    fn pad(&self, id: u64, tile: &mut [u8]) {
        let rect = self.grid.rect(self.grid.tile(id));
        let row = self.spec.row_bytes();
        let inside = rect.width as usize * self.spec.samples * self.spec.sample.bytes();
        let (above, below) = tile.split_at_mut(tile.len().min(rect.height as usize * row));
        put_fill(below, &self.fill);
        if inside < row {
            above.chunks_exact_mut(row).for_each(|row| put_fill(&mut row[inside..], &self.fill));
        }
    }

    /// Cuts a tile out.
    fn cut(&self, swath: &Swath, id: u64, to: &mut [u8]) {
        let tile = self.grid.tile(id);
        let rect = self.grid.rect(tile);
        let (samples, unit) = (self.spec.samples, self.spec.sample.bytes());
        // Bands that lie one behind the other, and bytes of a pixel in each.
        let (bands, pixel) = if swath.interleaved { (1, samples * unit) } else { (samples, unit) };
        let line = swath.rect.width as usize * pixel;
        let plane = line * swath.rect.height as usize;
        let first = plane * (tile.plane - swath.first_plane) as usize
            + (rect.y - swath.rect.y) as usize * line
            + (rect.x - swath.rect.x) as usize * pixel;
        let width = rect.width as usize * pixel;
        let row = |band: usize, y: usize| {
            let at = first + band * plane + y * line;
            &swath.data[at..at + width]
        };
        let height = rect.height as usize;
        for (y, to) in to.chunks_exact_mut(self.spec.row_bytes()).take(height).enumerate() {
            let inside = &mut to[..width * bands];
            if bands == 1 {
                inside.copy_from_slice(row(0, y));
            } else {
                memory::few(
                    bands,
                    |band| row(band, y),
                    |rows| {
                        interleave(rows, bands, unit, inside);
                    },
                );
            }
        }
        self.pad(id, to);
    }
}

/// What comes back.
pub struct Landed {
    /// Its image.
    pub image: usize,
    /// Its tiles.
    pub ids: Vec<u64>,
    /// Whether it worked.
    pub result: Result<()>,
    /// The encoded tiles.
    pub packed: Packed,
    /// The pixels, for their memory.
    pub cargo: Option<Cargo>,
    /// What a tile took a worker.
    pub tile_time: Duration,
}

/// A batch in the air.
pub struct Flight {
    image: usize,
    ids: Vec<u64>,
    landing: Arc<Landing>,
    /// Who waits for it works along.
    helped: bool,
    watch: Arc<Watch>,
    started: Instant,
    threads: usize,
    /// What a tile of the batch before took.
    before: Option<Duration>,
}

/// How a batch is to be encoded.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// The caller has to tell of progress meanwhile, so that it does not encode what takes long.
    pub told: bool,
    /// What a tile of the batch before took, if there was one.
    pub before: Option<Duration>,
}

impl Manner {
    fn is_quick(self) -> bool {
        self.before.is_some_and(|tile| tile < QUICK)
    }
}

struct Outcome {
    took: Duration,
    result: Result<()>,
    packed: Packed,
    cargo: Option<Cargo>,
}

#[derive(Default)]
struct Landing {
    landed: Mutex<Option<Outcome>>,
    changed: Condvar,
}

impl Landing {
    fn lock(&self) -> MutexGuard<'_, Option<Outcome>> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn land(&self, outcome: Outcome) {
        *self.lock() = Some(outcome);
        self.changed.notify_all();
    }
}

impl Flight {
    /// Begins to encode. With one thread it is done before this returns, unless that may take too
    /// long for a caller that has to tell of progress.
    pub fn start(
        engine: &Arc<dyn Engine>,
        image: usize,
        batch: PixelBatch,
        cargo: Cargo,
        packed: Packed,
        manner: Manner,
    ) -> Result<Flight> {
        let ids = memory::collect(batch.tiles.iter().map(|job| job.id), "the tiles of a batch")?;
        let landing = Arc::new(Landing::default());
        let (engine, threads) = (Arc::clone(engine), batch.threads.max(1));
        let at_once = match manner.before {
            Some(tile) => tile.saturating_mul(batch.tiles.len() as u32) < QUICK,
            None => batch.tiles.len() * batch.spec.tile_bytes() <= SMALL_BATCH,
        };
        let alone = threads == 1 && (!manner.told || at_once);
        let abreast = cargo.pixels.abreast(&*engine);
        // Workers in the caller's place.
        let workers = match manner.told && !manner.is_quick() {
            true => threads.max(abreast),
            false => abreast,
        };
        let workers = if threads == 1 { 1 } else { workers };
        // Where there are workers enough, whoever waits would only take their turn.
        let helped = !cargo.pixels.needs_nobody() || batch.threads > abreast;
        let flight = Flight {
            image,
            ids,
            landing: Arc::clone(&landing),
            helped: helped && threads > 1,
            watch: Arc::clone(&cargo.watch),
            started: Instant::now(),
            threads,
            before: manner.before,
        };
        let work = move || {
            // Lands even if encoding panics.
            let mut crash = Crash(Some(landing));
            let mut packed = packed;
            let started = Instant::now();
            let result = memory::caught(|| engine.encode(&batch, &cargo, &mut packed));
            if let Some(landing) = crash.0.take() {
                let took = started.elapsed();
                landing.land(Outcome { took, result, packed, cargo: Some(cargo) });
            }
        };
        if alone {
            work()
        } else {
            pool::spawn(workers, work)
        }
        Ok(flight)
    }

    /// Waits for it, working along.
    pub fn land(self) -> Landed {
        let waiting = Instant::now();
        loop {
            let outcome = self.landing.lock().take();
            if let Some(Outcome { took, result, packed, cargo }) = outcome {
                let tile_time = took * self.threads as u32 / self.ids.len().max(1) as u32;
                let (image, ids) = (self.image, self.ids);
                return Landed { image, ids, result, packed, cargo, tile_time };
            }
            if !((self.helped || waiting.elapsed() > PATIENCE) && pool::help()) {
                self.rest();
            }
        }
    }

    /// Waits for it as long as `patience`, and encodes along what does not take long; whether it has
    /// landed.
    pub fn lands_within(&self, patience: Duration) -> bool {
        let waiting = Instant::now();
        loop {
            if self.landing.lock().is_some() {
                return true;
            }
            if waiting.elapsed() >= patience {
                return false;
            }
            let quick = self.tile_time().is_some_and(|tile| tile < QUICK);
            // Whoever takes the batch itself is in it to its end.
            let helped = self.helped && quick && pool::help_with_a_task()
                || pool::has_no_workers() && pool::help();
            if !helped {
                self.rest();
            }
        }
    }

    /// Waits a little, or until it has landed: there may be work then that was not there before.
    fn rest(&self) {
        let landed = self.landing.lock();
        if landed.is_none() {
            drop(self.landing.changed.wait_timeout(landed, Duration::from_millis(1)));
        }
    }

    /// Tiles whose encoding has begun.
    pub fn fetched(&self) -> usize {
        self.watch.fetched.load(Ordering::Relaxed).min(self.ids.len())
    }

    /// Those of them that may not be done.
    pub fn running(&self) -> usize {
        if self.landing.lock().is_some() { 0 } else { self.fetched().min(self.threads) }
    }

    /// Tells the workers that nobody wants it any more: they leave out what they have not begun.
    pub fn stop(&self) {
        self.watch.stopped.store(true, Ordering::Relaxed);
    }

    /// What a tile takes a worker; of this batch, or of the one before as long as that is not known.
    fn tile_time(&self) -> Option<Duration> {
        // Of those that were begun the last ones may not be done.
        match self.fetched().saturating_sub(self.threads) as u32 {
            0 => self.before,
            done => Some(self.started.elapsed().saturating_mul(self.threads as u32) / done),
        }
    }
}

struct Crash(Option<Arc<Landing>>);

impl Drop for Crash {
    fn drop(&mut self) {
        if let Some(landing) = self.0.take() {
            let result = Err(Error::Device("internal error while encoding".into()));
            let (took, packed) = (Duration::ZERO, Packed::default());
            landing.land(Outcome { took, result, packed, cargo: None });
        }
    }
}
