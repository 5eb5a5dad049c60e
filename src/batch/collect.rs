//! Pixels that come in pieces, collected until a tile is complete.
//!
//! Each tile is collected plane by plane, so that a band that comes alone only touches its own.
//! What does not fit into the budget goes to the scratch file, the longest untouched first, and
//! is written to there; it comes back when it is complete.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::canvas::{Canvas, OpenTile, Place, Plane, PlaneData, is_fill, put_fill};
use super::coverage::Coverage;
use super::flight::Pixels;
use super::plan::{Rect, Tile};
use super::writer::{Run, Writer};
use crate::engine::interleave::deinterleave;
use crate::engine::{Batch, PixelSink, PixelSource, TileJob, TileSpec};
use crate::error::{Error, Result};
use crate::io::{ByteSource, Memory};
use crate::process::memory;

/// Whole tiles of this many bytes are encoded straight from the caller's memory; fewer are
/// collected for a batch that keeps all workers busy.
const DIRECT_BYTES: usize = 4 << 20;
/// What is allocated, in messages.
const TILE: &str = "a tile to be written";
const TILES: &str = "tiles to be written";
/// About what one more tile takes in a map, for messages.
const OPEN_BYTES: u64 = 64;

/// Pixels that somebody wants written; asked from any thread.
pub trait Offer: Sync {
    /// Which pixels, inside the image.
    fn window(&self) -> Rect;
    /// Which bands, from 0, each at most once.
    fn bands(&self) -> &[usize];
    /// Copies a part of the window, of the `index`-th band, to `to`: samples in rows without
    /// gaps that are `row` bytes apart.
    fn copy(&self, index: usize, part: &Rect, to: &mut [u8], row: usize);
    /// Copies a part of all bands, interleaved in their order, to rows that are `row` apart.
    fn copy_pixels(&self, part: &Rect, to: &mut [u8], row: usize);
}

impl Writer {
    /// Takes the pixels of `offer` for an image.
    pub fn write(&mut self, image: usize, offer: &dyn Offer) -> Result<()> {
        self.attempt(|writer| writer.write_offer(image, offer))
    }

    fn write_offer(&mut self, image: usize, offer: &dyn Offer) -> Result<()> {
        self.decoded = None;
        let canvas = &self.canvases[image];
        let (window, tiles) = (offer.window(), canvas.tiles(&offer.window(), offer.bands())?);
        let in_order = offer.bands().iter().enumerate().all(|(i, &band)| i == band);
        let all = canvas.grid.planes > 1 || in_order && offer.bands().len() == canvas.spec.samples;
        let is_whole = |tile: &Tile| all && window.contains(&canvas.grid.rect(*tile));
        let whole = memory::collect(tiles.iter().copied().filter(is_whole), TILES)?;
        let parts = memory::collect(tiles.into_iter().filter(|tile| !is_whole(tile)), TILES)?;
        // GDAL's codecs may be lossy: what fits into a batch is collected, so that it is encoded once
        // though it is written to again.
        let enough = match self.has_own_engine(image) {
            true => self.batch_bytes(image),
            false => DIRECT_BYTES.min(self.batch_bytes(image)) / 2,
        };
        if whole.len() * self.canvases[image].spec.tile_bytes() < enough {
            whole.iter().try_for_each(|&tile| self.paste(image, tile, offer))?;
        } else {
            self.encode_whole(image, &whole, offer)?;
        }
        parts.iter().try_for_each(|&tile| self.paste(image, tile, offer))
    }

    /// Encodes tiles straight from the caller's memory.
    fn encode_whole(&mut self, image: usize, tiles: &[Tile], offer: &dyn Offer) -> Result<()> {
        let ids = tiles.iter().map(|&tile| self.canvases[image].grid.index(tile));
        let ids = memory::collect(ids, TILES)?;
        for &id in &ids {
            self.vacate(image, id)?;
        }
        self.launch_ready()?;
        let tile_bytes = self.canvases[image].spec.tile_bytes().max(1);
        let mut packed = self.packed.pop().unwrap_or_default();
        for some in ids.chunks((self.batch_bytes(image) / tile_bytes).max(1)) {
            let batch = self.batch(image, some)?;
            let source = Direct { canvas: &self.canvases[image], offer };
            self.engine(image).encode(&batch, &source, &mut packed)?;
            self.land()?;
            self.commit(image, some, &packed)?;
        }
        self.packed.push(packed);
        Ok(())
    }

    /// Forgets what a tile holds, since all of it is about to be replaced.
    fn vacate(&mut self, image: usize, id: u64) -> Result<()> {
        if let Some(planes) = self.ready.remove(&(image, id)) {
            self.ready_bytes -= self.canvases[image].spec.tile_bytes();
            planes.into_iter().for_each(|plane| self.keep_spare(plane));
        } else if self.canvases[image].places[id as usize] == Place::Busy {
            self.settle()?;
        }
        match self.canvases[image].places[id as usize] {
            Place::Open => {
                self.take_open(image, id)?.into_iter().for_each(|plane| match plane.data {
                    PlaneData::Spilled(slot) => self.scratch.give_back(slot),
                    PlaneData::Memory(data) => self.keep_spare(data),
                    PlaneData::None => {}
                });
            }
            Place::Waiting(slot, _) => self.scratch.give_back(slot),
            Place::There(strile) => {
                self.homes.insert((image, id), strile);
            }
            _ => {}
        }
        self.canvases[image].places[id as usize] = Place::Busy;
        Ok(())
    }

    /// Puts the part of `offer` that lies in a tile into it.
    fn paste(&mut self, image: usize, tile: Tile, offer: &dyn Offer) -> Result<()> {
        let canvas = &self.canvases[image];
        let (id, rect) = (canvas.grid.index(tile), canvas.grid.rect(tile));
        let Some(part) = rect.intersect(&offer.window()) else { return Ok(()) };
        self.open(image, id)?;
        for (index, &band) in offer.bands().iter().enumerate() {
            let canvas = &self.canvases[image];
            if canvas.grid.planes > 1 && band as u32 != tile.plane {
                continue;
            }
            let sample = canvas.sample(band);
            self.paste_band(image, id, sample, &part, &|to, row| {
                offer.copy(index, &part, to, row)
            })?;
        }
        if self.canvases[image].is_complete(id) {
            self.complete(image, id)?;
        }
        Ok(())
    }

    /// Writes a part of one plane; `copy` fills rows that are as far apart as it is told.
    fn paste_band(
        &mut self,
        image: usize,
        id: u64,
        sample: usize,
        part: &Rect,
        copy: &dyn Fn(&mut [u8], usize),
    ) -> Result<()> {
        self.make_room(image, id, sample)?;
        let canvas = &mut self.canvases[image];
        let rect = canvas.grid.rect(canvas.grid.tile(id));
        let (offset, row) = canvas.offset(&rect, part);
        let width = part.width as usize * canvas.spec.sample.bytes();
        let Some(tile) = canvas.open.get_mut(&id) else { return Ok(()) };
        let plane = &mut tile.planes[sample];
        plane.coverage.add(*part);
        match &mut plane.data {
            PlaneData::Memory(data) => copy(&mut data[offset..], row),
            PlaneData::Spilled(slot) => {
                let slot = *slot;
                let mut rows = memory::bytes(width * part.height as usize, TILE)?;
                copy(&mut rows, width);
                // Rows as wide as the plane are one piece.
                let piece = if width == row { rows.len() } else { width };
                for (y, piece) in rows.chunks(piece.max(1)).enumerate() {
                    self.scratch.write(slot, offset + y * row, piece)?;
                }
                self.counters.bytes_spilled.add(rows.len() as u64);
            }
            PlaneData::None => return Err(Error::Device("internal error: no plane".into())),
        }
        Ok(())
    }

    /// Makes sure that a plane is somewhere, evicting others if need be.
    fn make_room(&mut self, image: usize, id: u64, sample: usize) -> Result<()> {
        let bytes = self.canvases[image].plane_bytes();
        let Some(tile) = self.canvases[image].open.get(&id) else { return Ok(()) };
        if !matches!(tile.planes[sample].data, PlaneData::None) {
            return Ok(());
        }
        self.evict_down_to((self.limits.batch_bytes / 2).saturating_sub(bytes), (image, id))?;
        let spare = self.spare.pop().unwrap_or_default();
        let data = self.canvases[image].blank_plane(spare)?;
        self.open_bytes += bytes;
        if let Some(tile) = self.canvases[image].open.get_mut(&id) {
            tile.planes[sample].data = PlaneData::Memory(data);
        }
        Ok(())
    }

    /// Moves open tiles to the scratch file, the longest untouched first, but not `kept`, until at most
    /// `most` bytes of them are in memory.
    fn evict_down_to(&mut self, most: usize, kept: (usize, u64)) -> Result<()> {
        while self.open_bytes > most {
            let oldest = self.ages.iter().find(|(_, place)| **place != kept);
            let Some((&age, &(image, victim))) = oldest else { break };
            self.ages.remove(&age);
            self.evict(image, victim)?;
        }
        Ok(())
    }

    /// Moves a tile's planes to the scratch file.
    fn evict(&mut self, image: usize, id: u64) -> Result<()> {
        let Some(tile) = self.canvases[image].open.get_mut(&id) else { return Ok(()) };
        for plane in &mut tile.planes {
            let PlaneData::Memory(data) = &mut plane.data else { continue };
            let data = std::mem::take(data);
            let slot = self.scratch.take()?;
            self.scratch.write(slot, 0, &data)?;
            self.counters.bytes_spilled.add(data.len() as u64);
            self.open_bytes -= data.len();
            plane.data = PlaneData::Spilled(slot);
            if self.spare.try_reserve(1).is_ok() {
                self.spare.push(data);
            }
        }
        Ok(())
    }

    /// Keeps memory for the next plane, if there is room to note it.
    fn keep_spare(&mut self, data: Vec<u8>) {
        if self.spare.try_reserve(1).is_ok() {
            self.spare.push(data);
        }
    }

    /// Opens a tile for writing, with what is in it already, and notes that it is in use.
    fn open(&mut self, image: usize, id: u64) -> Result<()> {
        if self.canvases[image].places[id as usize] == Place::Busy {
            match self.ready.remove(&(image, id)) {
                Some(planes) => self.reopen(image, id, planes)?,
                None => self.settle()?,
            }
        }
        let samples = self.canvases[image].spec.samples;
        self.clock += 1;
        let touched = self.clock;
        match self.canvases[image].places[id as usize] {
            Place::Open => {
                let Some(tile) = self.canvases[image].open.get_mut(&id) else { return Ok(()) };
                let before = std::mem::replace(&mut tile.touched, touched);
                self.ages.remove(&before);
                self.ages.insert(touched, (image, id));
                return Ok(());
            }
            Place::Absent | Place::LeftOut => {
                let planes = memory::collect((0..samples).map(|_| Plane::default()), TILE)?;
                self.insert(image, id, OpenTile { planes, touched })?;
            }
            place => {
                let pixels = self.load(image, id)?;
                let canvas = &self.canvases[image];
                let bytes = canvas.plane_bytes();
                let mut planes = canvas.planes_of(&canvas.fill)?;
                take_apart(&pixels, &canvas.spec, &mut planes);
                match place {
                    Place::Waiting(slot, _) => self.scratch.give_back(slot),
                    Place::There(strile) => {
                        self.homes.insert((image, id), strile);
                    }
                    _ => {}
                }
                self.open_bytes += bytes * samples;
                let plane =
                    |data| Plane { data: PlaneData::Memory(data), coverage: Coverage::lost() };
                let planes = memory::collect(planes.into_iter().map(plane), TILE)?;
                self.insert(image, id, OpenTile { planes, touched })?;
            }
        }
        Ok(())
    }

    /// Opens a complete tile again before it is encoded: a lossy codec would change it twice.
    fn reopen(&mut self, image: usize, id: u64, planes: Vec<Vec<u8>>) -> Result<()> {
        let canvas = &self.canvases[image];
        self.ready_bytes -= canvas.spec.tile_bytes();
        let rect = canvas.grid.rect(canvas.grid.tile(id));
        let plane = |data| {
            let mut coverage = Coverage::default();
            coverage.add(rect);
            Plane { data: PlaneData::Memory(data), coverage }
        };
        self.open_bytes += canvas.plane_bytes() * planes.len();
        let planes = memory::collect(planes.into_iter().map(plane), TILE)?;
        self.clock += 1;
        self.insert(image, id, OpenTile { planes, touched: self.clock })
    }

    /// Opens every encoded tile of the first image again. Those that wait for a batch stay.
    pub(super) fn reopen_encoded(&mut self) -> Result<()> {
        self.land()?;
        for id in 0..self.canvases[0].places.len() as u64 {
            if matches!(self.canvases[0].places[id as usize], Place::Waiting(..) | Place::There(_))
            {
                self.open(0, id)?;
                self.evict_down_to(self.limits.batch_bytes / 2, (0, id))?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, image: usize, id: u64, tile: OpenTile) -> Result<()> {
        let room = self.canvases[image].open.try_reserve(1);
        room.map_err(|_| Error::OutOfMemory { bytes: OPEN_BYTES, place: TILE })?;
        self.ages.insert(tile.touched, (image, id));
        self.canvases[image].open.insert(id, tile);
        self.canvases[image].places[id as usize] = Place::Open;
        Ok(())
    }

    /// Takes an open tile out of the books.
    fn take_open(&mut self, image: usize, id: u64) -> Result<Vec<Plane>> {
        let Some(tile) = self.canvases[image].open.remove(&id) else { return Ok(Vec::new()) };
        self.ages.remove(&tile.touched);
        let bytes = self.canvases[image].plane_bytes();
        let in_memory = |plane: &&Plane| matches!(plane.data, PlaneData::Memory(_));
        self.open_bytes -= bytes * tile.planes.iter().filter(in_memory).count();
        Ok(tile.planes)
    }

    /// Ends the collecting of a tile: all its planes, in memory.
    pub(super) fn close_tile(&mut self, image: usize, id: u64) -> Result<Vec<Vec<u8>>> {
        let planes = self.take_open(image, id)?;
        self.canvases[image].places[id as usize] = Place::Busy;
        let bytes = self.canvases[image].plane_bytes();
        let mut closed = memory::room(planes.len(), TILE)?;
        for plane in planes {
            closed.push(match plane.data {
                PlaneData::Memory(data) => data,
                // As GTiff: a band that nobody wrote, of a tile that others wrote to, is zero.
                PlaneData::None => {
                    let mut zeros = self.spare.pop().unwrap_or_default();
                    zeros.clear();
                    memory::resize(&mut zeros, bytes, TILE)?;
                    zeros
                }
                PlaneData::Spilled(slot) => {
                    let mut data = self.spare.pop().unwrap_or_default();
                    memory::resize(&mut data, bytes, TILE)?;
                    self.scratch.read(slot, 0, &mut data)?;
                    self.scratch.give_back(slot);
                    data
                }
            });
        }
        Ok(closed)
    }

    /// A tile is complete: with others it makes a batch, unless it is all fill.
    fn complete(&mut self, image: usize, id: u64) -> Result<()> {
        let planes = self.close_tile(image, id)?;
        let Some(planes) = self.leave_out_fill(image, id, planes)? else { return Ok(()) };
        memory::check(TILES)?;
        self.ready.insert((image, id), planes);
        self.ready_bytes += self.canvases[image].spec.tile_bytes();
        if self.ready_bytes >= self.batch_bytes(image) {
            self.launch_ready()?;
        }
        Ok(())
    }

    /// Leaves out a closed tile that holds nothing but fill; gives back any other. Comparing it here,
    /// not when its batch is encoded, makes the file independent of the batch size: the fill value may
    /// change in between.
    pub(super) fn leave_out_fill(
        &mut self,
        image: usize,
        id: u64,
        planes: Vec<Vec<u8>>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let canvas = &self.canvases[image];
        // As GTiff: padding, which may hold an earlier fill value, does not count.
        let rect = canvas.grid.rect(canvas.grid.tile(id));
        let unit = canvas.spec.sample.bytes();
        let (row, inside) = (canvas.spec.width * unit, rect.width as usize * unit);
        let is_blank = |plane: &Vec<u8>| {
            let rows = plane.chunks_exact(row).take(rect.height as usize);
            rows.map(|row| &row[..inside]).all(|row| is_fill(row, &canvas.fill))
        };
        if !canvas.sparse || !planes.iter().all(is_blank) {
            return Ok(Some(planes));
        }
        planes.into_iter().for_each(|plane| self.keep_spare(plane));
        let mut run = Run::default();
        self.place(image, id, &[], &mut run)?;
        self.write_run(&mut run)?;
        Ok(None)
    }

    /// Sends the complete tiles off, those of each image as a batch.
    pub(super) fn launch_ready(&mut self) -> Result<()> {
        self.ready_bytes = 0;
        let mut ready = std::mem::take(&mut self.ready);
        while let Some((&(image, _), _)) = ready.first_key_value() {
            let later = ready.split_off(&(image + 1, 0));
            let ids = memory::collect(ready.keys().map(|(_, id)| *id), TILES)?;
            let tiles = collected(ready.into_iter().map(|((_, id), planes)| (id, planes)))?;
            self.launch(image, &ids, Pixels::Collected(tiles))?;
            ready = later;
        }
        Ok(())
    }

    /// Waits until nothing is on its way to the file.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.launch_ready()?;
        self.land()
    }

    /// How many of a window's pixels are in tiles that were written to, of one band.
    pub fn written(&self, image: usize, window: &Rect, band: usize) -> u64 {
        let canvas = &self.canvases[image];
        let mut pixels = 0;
        let planes = [if canvas.grid.planes > 1 { band as u32 } else { 0 }];
        for tile in canvas.grid.tiles(canvas.grid.cover(window), &planes) {
            let place = canvas.places[canvas.grid.index(tile) as usize];
            if let Some(part) = canvas.grid.rect(tile).intersect(window)
                && !matches!(place, Place::Absent | Place::Blank(_) | Place::LeftOut)
            {
                pixels += u64::from(part.width) * u64::from(part.height);
            }
        }
        pixels
    }

    /// Reads one band of a tile back: all of its plane, padding included.
    pub fn read_plane(
        &mut self,
        image: usize,
        tile: Tile,
        band: usize,
        to: &mut [u8],
    ) -> Result<()> {
        self.attempt(|writer| writer.read_plane_now(image, tile, band, to))
    }

    fn read_plane_now(
        &mut self,
        image: usize,
        tile: Tile,
        band: usize,
        to: &mut [u8],
    ) -> Result<()> {
        let id = self.canvases[image].grid.index(tile);
        if self.canvases[image].places[id as usize] == Place::Busy {
            if let Some(planes) = self.ready.get(&(image, id)) {
                to.copy_from_slice(&planes[self.canvases[image].sample(band)]);
                return Ok(());
            }
            self.settle()?;
        }
        let canvas = &self.canvases[image];
        let sample = canvas.sample(band);
        match canvas.places[id as usize] {
            Place::Open => {
                match canvas.open.get(&id).map(|tile| &tile.planes[sample].data) {
                    Some(PlaneData::Memory(data)) => to.copy_from_slice(data),
                    Some(PlaneData::Spilled(slot)) => self.scratch.read(*slot, 0, to)?,
                    _ => put_fill(to, &canvas.fill),
                }
                return Ok(());
            }
            place @ (Place::Absent | Place::Blank(_) | Place::LeftOut) => {
                put_fill(to, canvas.fill_at(place));
                return Ok(());
            }
            _ => {}
        }
        let known = self.decoded.take().filter(|(i, t, _)| (*i, *t) == (image, id));
        let pixels = match known {
            Some((_, _, pixels)) => pixels,
            None => self.load(image, id)?,
        };
        let canvas = &self.canvases[image];
        let unit = canvas.spec.sample.bytes();
        let samples = pixels.chunks_exact(unit).skip(sample).step_by(canvas.spec.samples);
        put_fill(to, &canvas.fill);
        to.chunks_exact_mut(unit).zip(samples).for_each(|(to, from)| to.copy_from_slice(from));
        self.decoded = Some((image, id, pixels));
        Ok(())
    }

    /// The pixels of a tile that was encoded, or fill.
    fn load(&mut self, image: usize, id: u64) -> Result<Vec<u8>> {
        self.courier.wait()?;
        let canvas = &self.canvases[image];
        let mut fill = memory::bytes(canvas.spec.tile_bytes(), TILE)?;
        put_fill(&mut fill, canvas.fill_at(canvas.places[id as usize]));
        let (source, offset, len): (Arc<dyn ByteSource>, u64, u32) =
            match canvas.places[id as usize] {
                Place::There(strile) => (self.sink.clone(), strile.offset, strile.len),
                Place::Waiting(slot, len) => {
                    let mut bytes = memory::bytes(len as usize, TILE)?;
                    self.scratch.read(slot, 0, &mut bytes)?;
                    (Arc::new(Memory(bytes)), 0, len)
                }
                _ => return Ok(fill),
            };
        let rows = canvas.job(id).rows;
        let columns = canvas.grid.rect(canvas.grid.tile(id)).width as usize;
        let batch = Batch {
            spec: Arc::clone(&canvas.spec),
            tiles: vec![TileJob {
                id,
                offset,
                len: len as usize,
                rows,
                columns,
                padded: false,
                part: None,
            }],
            source,
            threads: 1,
        };
        let keep = Keep(Mutex::new(fill));
        let failed = self.engine(image).stage(batch)?.decode(&keep);
        if let Some(failed) = failed.into_iter().next() {
            return Err(failed.error);
        }
        Ok(keep.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tiles by their numbers.
pub(super) fn collected(
    tiles: impl Iterator<Item = (u64, Vec<Vec<u8>>)>,
) -> Result<HashMap<u64, Vec<Vec<u8>>>> {
    let mut all = HashMap::new();
    for (id, planes) in tiles {
        let room = all.try_reserve(1);
        room.map_err(|_| Error::OutOfMemory { bytes: OPEN_BYTES, place: TILES })?;
        all.insert(id, planes);
    }
    Ok(all)
}

/// Interleaved pixels to planes.
fn take_apart(pixels: &[u8], spec: &TileSpec, planes: &mut [Vec<u8>]) {
    let unit = spec.sample.bytes();
    if unit <= 8 {
        let planes = memory::collect(planes.iter_mut().map(Vec::as_mut_slice), TILE);
        let mut planes = memory::or_unwind(planes);
        return deinterleave(pixels, spec.samples, unit, &mut planes);
    }
    for (sample, plane) in planes.iter_mut().enumerate() {
        let samples = pixels.chunks_exact(unit).skip(sample).step_by(spec.samples);
        plane.chunks_exact_mut(unit).zip(samples).for_each(|(to, from)| to.copy_from_slice(from));
    }
}

/// Keeps one tile.
struct Keep(Mutex<Vec<u8>>);

impl PixelSink for Keep {
    fn put(&self, _: u64, pixels: crate::engine::Pixels<'_>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = pixels.data.len().min(kept.len());
        kept[..bytes].copy_from_slice(&pixels.data[..bytes]);
    }
}

/// Whole tiles in the caller's memory.
struct Direct<'a> {
    canvas: &'a Canvas,
    offer: &'a dyn Offer,
}

impl PixelSource for Direct<'_> {
    fn get(&self, id: u64, to: &mut [u8]) -> bool {
        let Canvas { grid, spec, fill, sparse, .. } = self.canvas;
        let tile = grid.tile(id);
        let rect = grid.rect(tile);
        let row = spec.row_bytes();
        if (rect.width as usize, rect.height as usize * row) != (spec.width, to.len()) {
            put_fill(to, fill);
        }
        if grid.planes > 1 {
            let index = self.offer.bands().iter().position(|&band| band as u32 == tile.plane);
            self.offer.copy(index.unwrap_or(0), &rect, to, row);
        } else {
            self.offer.copy_pixels(&rect, to, row);
        }
        !(*sparse && is_fill(to, fill))
    }
}
