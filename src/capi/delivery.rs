//! A GDAL request as the batching layer's caller: serves from and feeds GDAL's
//! block cache, and puts pixels into the buffer that GDAL was given.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bridge::{Block, Request};
use super::handles::Image;
use super::place::{self, From, Size, To};
use super::redo::Outcome;
use crate::batch::plan::{Rect, Tile};
use crate::batch::reader::{Caller, Reader};
use crate::engine::{PixelSink, Pixels, TileError};
use crate::process::memory;

/// More bands than this are not all kept because one was asked for, as in GTiff.
const MOST_KEPT_BANDS: usize = 128;

/// One request, for as long as it is served.
pub(super) struct Delivery<'a> {
    reader: &'a Reader,
    request: &'a Request,
    kind: u32,
    window: Rect,
    /// Bands from 1.
    bands: &'a [c_int],
    planes: Vec<u32>,
    policy: Policy,
    kept: Mutex<HashMap<u64, Vec<KeptBlock>>>,
    /// Whose dataset is asked for tiles that fail.
    image: Option<&'a Image>,
    outcome: Cell<Outcome>,
}

/// What goes into GDAL's cache besides tiles that the window covers in part.
#[derive(Clone, Copy)]
struct Policy {
    /// Tiles that the window covers whole.
    whole_tiles: bool,
    /// Bands that were not asked for.
    all_bands: bool,
    /// Everything, even if the caller streams.
    always: bool,
}

#[derive(Clone, Copy)]
struct KeptBlock {
    sample: usize,
    block: Block,
}

// SAFETY: workers only call `put`, which writes through the request's and the
// blocks' pointers to the places of one tile, and each tile is put once. GDAL's
// callbacks are called, and `outcome` is used, by the other methods, on the calling thread.
unsafe impl Sync for Delivery<'_> {}

impl<'a> Delivery<'a> {
    /// # Safety
    /// `request` must describe memory that GDAL may write its window to, and
    /// `bands` must be its bands.
    pub(super) unsafe fn new(
        reader: &'a Reader,
        request: &'a Request,
        bands: &'a [c_int],
        kind: u32,
    ) -> Delivery<'a> {
        let window = Rect {
            x: request.x as u32,
            y: request.y as u32,
            width: request.width as u32,
            height: request.height as u32,
        };
        let image = reader.image();
        let mut planes: Vec<u32> = match image.grid.planes {
            1 => vec![0],
            _ => bands.iter().map(|&band| band as u32 - 1).collect(),
        };
        planes.sort_unstable();
        planes.dedup();
        let bytes = image.grid.cover(&window).len() * image.spec.tile_bytes() as u64;
        let cache = request.cache_max.max(0) as u64;
        let some_bands = (1..=image.spec.samples).any(|band| !bands.contains(&(band as c_int)));
        let all_bands = image.spec.samples < MOST_KEPT_BANDS && bytes < cache;
        let policy = Policy {
            whole_tiles: window != image.grid.image() && bytes <= cache / 4,
            all_bands,
            // The next request is for another band of the same tiles.
            always: image.grid.planes == 1 && some_bands && all_bands,
        };
        let (kept, image, outcome) = (Mutex::default(), None, Cell::new(Outcome::Delivered));
        Delivery { reader, request, kind, window, bands, planes, policy, kept, image, outcome }
    }

    /// The same, with tiles that fail asked from the dataset of `image`.
    pub(super) fn redone_by(mut self, image: &'a Image) -> Delivery<'a> {
        self.image = Some(image);
        self
    }

    /// What became of tiles that failed.
    pub(super) fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// The request and its bands.
    pub(super) fn request(&self) -> (&'a Request, &'a [c_int]) {
        (self.request, self.bands)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Vec<KeptBlock>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whole_block(&self) -> bool {
        self.request.whole_block != 0
    }

    /// Bands of the request that live in the tile's plane, with their places.
    fn wanted(&self, tile: Tile) -> impl Iterator<Item = (usize, usize)> + '_ {
        let separate = self.reader.image().grid.planes > 1;
        self.bands.iter().enumerate().filter_map(move |(i, &band)| {
            let band = band as usize - 1;
            match separate {
                true => (band == tile.plane as usize).then_some((i, 0)),
                false => Some((i, band)),
            }
        })
    }

    /// Where pixel (x, y) of the image goes, for the i-th band of the request.
    fn target(&self, i: usize, x: u32, y: u32) -> To {
        let request = self.request;
        let offset = i64::from(x - self.window.x) * request.pixel_space
            + i64::from(y - self.window.y) * request.line_space
            + i as i64 * request.band_space;
        To {
            data: request.data.cast::<u8>().wrapping_offset(offset as isize),
            pixel: request.pixel_space as isize,
            line: request.line_space as isize,
            kind: request.kind as u32,
        }
    }

    /// A block of GDAL's cache as a target.
    fn block_target(&self, block: &Block) -> To {
        let spec = &self.reader.image().spec;
        let unit = spec.sample.bytes();
        To {
            data: block.data.cast(),
            pixel: unit as isize,
            line: (spec.width * unit) as isize,
            kind: self.kind,
        }
    }

    /// The part of `pixels` that begins at a tile's pixel.
    fn from<'p>(&self, pixels: &Pixels<'p>, x: usize, y: usize) -> From<'p> {
        let spec = &self.reader.image().spec;
        let unit = spec.sample.bytes();
        From {
            data: &pixels.data
                [(y - pixels.y) * pixels.row_bytes + (x - pixels.x) * spec.samples * unit..],
            row: pixels.row_bytes,
            samples: spec.samples,
            unit,
            kind: self.kind,
        }
    }

    /// Puts a tile's pixels into the caller's buffer.
    fn put_window(&self, tile: Tile, rect: Rect, pixels: &Pixels<'_>) {
        let Some(part) = rect.intersect(&self.window) else { return };
        let mut wanted = self.wanted(tile);
        let (wanted, count) = (|_| wanted.next().unwrap_or_default(), self.wanted(tile).count());
        let from = self.from(pixels, (part.x - rect.x) as usize, (part.y - rect.y) as usize);
        let size = Size { width: part.width as usize, height: part.height as usize };
        memory::few(count, wanted, |wanted| {
            let target = |at: usize| self.target(wanted[at].0, part.x, part.y);
            memory::few(count, target, |targets| {
                memory::few(
                    count,
                    |at| wanted[at].1,
                    |chosen| {
                        // SAFETY: the part is inside the window, whose memory GDAL vouches for.
                        // Tiles do not overlap.
                        unsafe { place::bands(from, chosen, targets, size) };
                    },
                );
            });
        });
    }

    /// The block that GDAL gave us to fill, padding on the right included.
    fn own_block(&self, tile: Tile) -> KeptBlock {
        let sample = self.wanted(tile).next().map_or(0, |(_, sample)| sample);
        let block = Block { handle: std::ptr::null_mut(), data: self.request.data };
        KeptBlock { sample, block }
    }

    /// Puts a whole tile into GDAL's cache.
    fn put_blocks(&self, blocks: &[KeptBlock], pixels: &Pixels<'_>) {
        if blocks.is_empty() {
            return;
        }
        let spec = &self.reader.image().spec;
        let size = Size { width: spec.width, height: pixels.rows };
        let target = |at: usize| self.block_target(&blocks[at].block);
        memory::few(blocks.len(), target, |targets| {
            for to in &*targets {
                memory::populate(to.data, to.line as usize * spec.height);
            }
            memory::few(
                blocks.len(),
                |at| blocks[at].sample,
                |chosen| {
                    // SAFETY: blocks are locked, of the tile's size and this delivery's alone.
                    unsafe { place::bands(self.from(pixels, 0, 0), chosen, targets, size) };
                },
            );
            for to in targets {
                // SAFETY: the block has as many rows as the spec.
                unsafe { zero_rows(*to, pixels.rows, spec.height) };
            }
        });
    }

    /// Serves a block that is in GDAL's cache.
    fn put_cached(&self, tile: Tile, i: usize, block: &Block) {
        let spec = &self.reader.image().spec;
        let rect = self.reader.image().grid.rect(tile);
        let Some(part) = rect.intersect(&self.window) else { return };
        let unit = spec.sample.bytes();
        let bytes = spec.width * spec.height * unit;
        // SAFETY: the block is locked and of this size.
        let data = unsafe { std::slice::from_raw_parts(block.data.cast::<u8>(), bytes) };
        let (x, y) = ((part.x - rect.x) as usize, (part.y - rect.y) as usize);
        let row = spec.width * unit;
        let from =
            From { data: &data[y * row + x * unit..], row, samples: 1, unit, kind: self.kind };
        let size = Size { width: part.width as usize, height: part.height as usize };
        // SAFETY: as in `put_window`.
        unsafe { place::bands(from, &[0], &[self.target(i, part.x, part.y)], size) };
    }

    fn find(&self, band: c_int, tile: Tile) -> Option<Block> {
        self.ask(self.request.callbacks.find, band, tile)
    }

    fn make(&self, band: c_int, tile: Tile) -> Option<Block> {
        self.ask(self.request.callbacks.make, band, tile)
    }

    fn ask(
        &self,
        callback: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut Block) -> c_int,
        band: c_int,
        tile: Tile,
    ) -> Option<Block> {
        let mut block = Block { handle: std::ptr::null_mut(), data: std::ptr::null_mut() };
        let (column, row) = (tile.column as c_int, tile.row as c_int);
        // SAFETY: the shim's callback, on the calling thread; `block` is filled.
        let found =
            unsafe { callback(self.request.callbacks.context, band, column, row, &mut block) };
        (found != 0).then_some(block)
    }

    fn release(&self, block: &Block, keep: bool) {
        let callbacks = &self.request.callbacks;
        // SAFETY: a block that `find` or `make` locked, released once.
        unsafe { (callbacks.release)(callbacks.context, block, c_int::from(keep)) };
    }

    /// The bands, from 1, whose blocks shall be kept.
    fn bands_to_keep(&self, tile: Tile) -> Vec<c_int> {
        let grid = &self.reader.image().grid;
        if grid.planes > 1 {
            return vec![tile.plane as c_int + 1];
        }
        match self.policy.all_bands {
            true => (1..=self.reader.image().spec.samples as c_int).collect(),
            false => self.bands.to_vec(),
        }
    }
}

/// Rows of a block below the image are zero, as GTiff leaves them.
unsafe fn zero_rows(to: To, from: usize, until: usize) {
    if from < until {
        let start = to.data.wrapping_offset(from as isize * to.line);
        let bytes = (until - from) * to.line as usize;
        // SAFETY: the caller's block has `until` rows.
        unsafe { std::ptr::write_bytes(start, 0, bytes) };
    }
}

impl PixelSink for Delivery<'_> {
    fn take_as_stored(&self, id: u64, bytes: usize, read: &mut dyn FnMut(&mut [u8])) -> bool {
        let image = self.reader.image();
        // GDAL's own block of a single band: nothing to put apart, nothing else to keep.
        let whole = image.grid.rect(image.grid.tile(id)).height == image.grid.tile_height;
        if !self.whole_block() || !image.blocks_are_tiles || image.spec.samples > 1 || !whole {
            return false;
        }
        memory::populate(self.request.data.cast(), bytes);
        // SAFETY: the block holds a whole tile, which `bytes` does not exceed.
        read(unsafe { std::slice::from_raw_parts_mut(self.request.data.cast(), bytes) });
        true
    }

    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let image = self.reader.image();
        let tile = image.grid.tile(id);
        let mut blocks = self.kept().get(&id).cloned().unwrap_or_default();
        if self.whole_block() && image.blocks_are_tiles {
            // GDAL's own block is one of them: all bands come apart in one pass.
            blocks.push(self.own_block(tile));
            blocks.sort_by_key(|kept| kept.sample);
            return self.put_blocks(&blocks, &pixels);
        }
        self.put_blocks(&blocks, &pixels);
        // One band of several is without gaps in its block now.
        let alone = self.bands.len() == 1 && image.spec.samples > 1;
        let sample = self.wanted(tile).next().map(|(_, sample)| sample);
        match blocks.iter().find(|kept| alone && Some(kept.sample) == sample) {
            Some(kept) => self.put_cached(tile, 0, &kept.block),
            None => self.put_window(tile, image.grid.rect(tile), &pixels),
        }
    }
}

impl Caller for Delivery<'_> {
    fn window(&self) -> Rect {
        self.window
    }

    fn planes(&self) -> &[u32] {
        &self.planes
    }

    fn is_pipelined(&self) -> bool {
        self.request.pipelined != 0
    }

    fn cached(&self, tile: Tile) -> bool {
        if self.whole_block() || !self.reader.image().blocks_are_tiles {
            return false;
        }
        let mut found = Vec::new();
        for (i, _) in self.wanted(tile) {
            let Some(block) = self.find(self.bands[i], tile) else { break };
            found.push((i, block));
        }
        let all = found.len() == self.wanted(tile).count();
        for (i, block) in &found {
            if all {
                self.put_cached(tile, *i, block);
            }
            self.release(block, true);
        }
        all
    }

    fn expect(&self, tile: Tile, streaming: bool) -> bool {
        let image = self.reader.image();
        if !image.blocks_are_tiles {
            return false;
        }
        let covered = self.window.contains(&image.grid.rect(tile));
        let passing = covered && (streaming || !self.policy.whole_tiles);
        if self.whole_block() {
            // GDAL keeps the block it asked for; the other bands' are ours to keep.
            if image.spec.samples == 1 || !self.policy.all_bands {
                return true;
            }
        } else if !self.policy.always
            && (passing || self.reader.is_as_good_as_kept(tile, &self.window))
        {
            return false;
        }
        let mut blocks = Vec::new();
        for band in self.bands_to_keep(tile) {
            if self.whole_block() && self.bands == [band] {
                continue;
            }
            if let Some(block) = self.make(band, tile) {
                let sample = if image.grid.planes > 1 { 0 } else { band as usize - 1 };
                blocks.push(KeptBlock { sample, block });
            }
        }
        let mut kept = self.kept();
        if kept.try_reserve(1).is_err() {
            drop(kept);
            blocks.iter().for_each(|kept| self.release(&kept.block, false));
            return self.whole_block();
        }
        let keeps = self.whole_block() || !blocks.is_empty();
        kept.insert(image.grid.index(tile), blocks);
        keeps
    }

    fn fill(&self, tile: Tile) {
        let image = self.reader.image();
        let Some(part) = image.grid.rect(tile).intersect(&self.window) else { return };
        let size = match self.whole_block() && image.blocks_are_tiles {
            true => Size { width: image.spec.width, height: image.spec.height },
            false => Size { width: part.width as usize, height: part.height as usize },
        };
        for (i, _) in self.wanted(tile) {
            let mut value = [0u8; 16];
            let callbacks = &self.request.callbacks;
            // SAFETY: the shim writes at most 16 bytes; the rest as in `put_window`.
            unsafe {
                (callbacks.fill)(callbacks.context, self.bands[i], value.as_mut_ptr().cast());
                let value = &value[..image.spec.sample.bytes()];
                place::fill(value, self.kind, self.target(i, part.x, part.y), size);
            }
        }
    }

    fn failed(&self, mut tiles: Vec<TileError>) -> bool {
        // Apart from the dataset one is enough to give up.
        let Some(image) = self.image else { return false };
        self.outcome.set(image.redo_all(self, &mut tiles));
        self.outcome.get() == Outcome::Delivered
    }

    fn progress(&self, done: f64) -> bool {
        let callbacks = &self.request.callbacks;
        // SAFETY: the shim's callback, on the calling thread.
        unsafe { (callbacks.progress)(callbacks.context, done) != 0 }
    }

    fn settle(&self, tile: Tile, delivered: bool) {
        let id = self.reader.image().grid.index(tile);
        let blocks = self.kept().remove(&id).unwrap_or_default();
        blocks.iter().for_each(|kept| self.release(&kept.block, delivered));
    }
}

impl Drop for Delivery<'_> {
    /// After a panic some tiles may not be settled: their blocks hold nothing.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.kept());
        left.values().flatten().for_each(|kept| self.release(&kept.block, false));
    }
}
