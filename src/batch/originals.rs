//! Tiles of another image that are decoded right before they are encoded, where both images are cut
//! alike: nothing but packed bytes travels through main memory.
//!
//! A tile that the file leaves out, or that our engine cannot decode, is not for this way: what stands
//! there only the source's dataset knows, which is then asked for the pixels of that batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::canvas::Canvas;
use super::image::Image;
use super::plan::Tile;
use super::reader::Reader;
use crate::engine::{PixelSink, Pixels, TileJob};
use crate::process::memory;

/// The originals of one batch.
pub struct Originals {
    reader: Arc<Reader>,
    /// In the order of their ids.
    jobs: Vec<TileJob>,
    failed: AtomicBool,
}

/// Whether each tile of `image` has the pixels of one of the canvas's.
pub fn are_cut_alike(image: &Image, canvas: &Canvas) -> bool {
    let (from, to) = (&image.spec, &canvas.spec);
    (image.grid, image.tiled) == (canvas.grid, !canvas.strips)
        && (from.sample, from.samples, from.width, from.height)
            == (to.sample, to.samples, to.width, to.height)
        && !image.is_sliced()
}

impl Originals {
    /// The originals of these tiles, whose bytes are asked for; `None` if one is not there.
    pub fn of(reader: &Arc<Reader>, tiles: impl Iterator<Item = Tile>) -> Option<Originals> {
        if !reader.decodes_singly() {
            return None;
        }
        let job = |tile| reader.image().job(tile).ok().flatten();
        let mut jobs: Vec<TileJob> = Vec::new();
        for tile in tiles {
            memory::push(&mut jobs, job(tile)?, "the tiles of a batch").ok()?;
        }
        jobs.sort_unstable_by_key(|job| job.id);
        let batch = reader.batch(jobs);
        let range = |job: &TileJob| (job.offset, job.len as u64);
        batch
            .source
            .advise(&memory::collect(batch.tiles.iter().map(range), "the tiles of a batch").ok()?);
        let (reader, failed) = (Arc::clone(reader), AtomicBool::new(false));
        Some(Originals { reader, jobs: batch.tiles, failed })
    }

    /// Writes the pixels of a tile, its padding too, whatever that holds; false if they are not to be
    /// had. After one that failed no other is tried: all come again.
    pub fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let job = self.jobs.binary_search_by_key(&id, |job| job.id).ok();
        let sink = Into(Mutex::new(tile));
        let had = job.is_some_and(|at| self.reader.decode_singly(self.jobs[at], &sink));
        if !had {
            self.failed.store(true, Ordering::Relaxed);
        }
        had
    }

    /// Counts the tiles; false if not all of them could be decoded.
    pub fn settle(&self) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        self.reader.count_touched(self.jobs.len());
        self.reader.count_decoded(self.jobs.len());
        true
    }
}

/// Takes one tile.
struct Into<'a>(Mutex<&'a mut [u8]>);

impl PixelSink for Into<'_> {
    fn put(&self, _id: u64, pixels: Pixels<'_>) {
        let mut tile = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = tile.len().min(pixels.data.len());
        tile[..bytes].copy_from_slice(&pixels.data[..bytes]);
    }

    fn take_as_stored(&self, _id: u64, bytes: usize, read: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut tile = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tile.get_mut(..bytes).map(read).is_some()
    }
}
