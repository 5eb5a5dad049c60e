//! Windows into device memory.
//!
//! Tiles that our engines decode go from the file to the device as they are, are decoded there and
//! stay there. Everything else (tiles that the file leaves out or that fail, other codecs, another
//! type of samples) is read as it is for the host, and goes up.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;

use super::raster::Raster;
use super::request::{Chosen, Device, Place, Window};
use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_DEVICE_FAILED, GPUGTIFF_NO_DEVICE, GPUGTIFF_WRONG_DEVICE,
    GPUGTIFF_WRONG_MEMORY, Outcome, fail,
};
use crate::batch::plan::{Rect, Tile};
use crate::capi::{Image, Shared};
use crate::engine::cuda::{CudaEngine, Ground, Landing, Misplaced, Refusal, Spot, Wanted};
use crate::engine::select::Wish;
use crate::engine::{Codec, Part, TileJob, allocate};
use crate::error::{Error, Result};
use crate::process::memory;

/// Bytes of pixels that are asked of the engine at once.
const BATCH_BYTES: usize = 256 << 20;
/// What is allocated for a window, in messages.
const TILES: &str = "tiles for the device";
const BANDS: &str = "the bands of a window";
/// Bytes of pixels that pass through the host at once.
const HOST_BYTES: i64 = 64 << 20;

/// Device memory that a window goes to.
struct Ashore<'a> {
    raster: &'a Raster,
    engine: Arc<CudaEngine>,
    landing: Landing,
    chosen: &'a Chosen,
}

/// Bands that follow each other in the buffer, from the place on.
#[derive(Clone, Copy)]
struct Piece<'a> {
    window: Window,
    bands: &'a [c_int],
    place: Place,
}

/// The engine of a device.
pub(super) fn engine(shared: &Shared, number: u32) -> Outcome<Arc<CudaEngine>> {
    shared.device(number).or_else(|refusal| match refusal {
        Refusal::Lost(..) => fail(GPUGTIFF_DEVICE_FAILED, refusal.to_string()),
        _ => fail(GPUGTIFF_NO_DEVICE, refusal.to_string()),
    })
}

impl Raster {
    /// # Safety
    /// As for `read`, and the stream must be one.
    pub(super) unsafe fn read_to_device(
        &self,
        window: &Window,
        chosen: &Chosen,
        place: &Place,
        device: Device,
    ) -> Outcome<()> {
        let engine = engine(&self.shared, device.number)?;
        let extents = [window.width, window.height, chosen.bands.len() as i64];
        // SAFETY: the caller's promise.
        let landing = unsafe { look(&engine, place, extents, chosen.kind.bytes, device)? };
        let ashore = Ashore { raster: self, engine, landing, chosen };
        let all = Piece { window: *window, bands: &chosen.bands, place: *place };
        // SAFETY: all pieces are parts of what was looked at.
        let outcome = unsafe { ashore.bring(all) };
        self.shared.tell();
        outcome
    }
}

/// Looks at device memory that is about to be used.
///
/// # Safety
/// The stream must be one.
pub(super) unsafe fn look(
    engine: &CudaEngine,
    place: &Place,
    extents: [i64; 3],
    sample: usize,
    device: Device,
) -> Outcome<Landing> {
    let [first, last] = place.reach(extents, sample);
    let strides = [place.pixel, place.line, place.band];
    let ground = Ground { first, last, stream: device.stream, strides };
    // SAFETY: the caller's promise.
    unsafe { engine.landing(&ground) }.or_else(refused)
}

fn refused<T>(why: Misplaced) -> Outcome<T> {
    match why {
        Misplaced::Host => {
            let text = "gpugtiff_buffer.data is host memory: expected memory of the device, or \
                        GPUGTIFF_MEMORY_HOST";
            fail(GPUGTIFF_WRONG_MEMORY, text)
        }
        Misplaced::Memory(name) => {
            let text = format!("gpugtiff_buffer.data is not memory of {name}'s primary context");
            fail(GPUGTIFF_WRONG_DEVICE, text)
        }
        Misplaced::Stream(name) => {
            let text = format!("gpugtiff_buffer.stream is not of {name}'s primary context");
            fail(GPUGTIFF_WRONG_DEVICE, text)
        }
        Misplaced::Capturing => {
            let text = "gpugtiff_buffer.stream is capturing a graph: what is read from a file cannot \
                        be part of one";
            fail(GPUGTIFF_BAD_ARGUMENT, text)
        }
        Misplaced::Failed(why) => fail(GPUGTIFF_DEVICE_FAILED, why),
    }
}

/// Failures of the device, apart from its absence.
pub(super) fn failed<T>(error: Error) -> Outcome<T> {
    match error {
        Error::Device(why) => fail(GPUGTIFF_DEVICE_FAILED, why),
        other => Err(other.into()),
    }
}

impl Ashore<'_> {
    /// # Safety
    /// The piece must be inside what was looked at.
    unsafe fn bring(&self, piece: Piece<'_>) -> Outcome<()> {
        // A sample goes to one place. Who wants it twice gets it twice.
        let mut sorted = memory::copied(piece.bands, BANDS)?;
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            for (i, band) in piece.bands.iter().enumerate() {
                let place = piece.place.moved(0, 0, i as i64);
                let one = Piece { bands: std::slice::from_ref(band), place, ..piece };
                // SAFETY: a part of it.
                unsafe { self.bring(one)? };
            }
            return Ok(());
        }
        match self.image() {
            // SAFETY: the caller's promise.
            Some(image) => unsafe { self.bring_tiles(&image, piece) },
            // SAFETY: as above.
            None => unsafe { self.carry(piece) },
        }
    }

    /// The level as our engines decode it, if they do and nobody ruled it out.
    fn image(&self) -> Option<Arc<Image>> {
        let (raster, level) = (self.raster, self.chosen.level);
        if raster.shared.options.engine == Wish::Cpu {
            return None;
        }
        if raster.known(level).is_none() {
            let (_guard, dataset) = raster.holding.lock();
            raster.look_at(dataset, level);
        }
        // Tiles of GDAL's codecs are decoded on the host.
        let ours = |image: &Arc<Image>| image.reader().image().spec.codec != Codec::Gtiff;
        let image = raster.known(level).flatten().filter(ours);
        image.filter(|image| image.kind() == self.chosen.kind.gdal)
    }

    /// Has the engine decode what the file holds, in batches, and carries the rest.
    ///
    /// # Safety
    /// As for `bring`.
    unsafe fn bring_tiles(&self, image: &Image, piece: Piece<'_>) -> Outcome<()> {
        let tiles = image.reader().image();
        let (grid, spec) = (tiles.grid, &tiles.spec);
        let [left, top, width, height] = piece.window.numbers().map(|n| n as u32);
        let window = Rect { x: left, y: top, width, height };
        let chosen = memory::collect(piece.bands.iter().map(|&band| band as u32 - 1), BANDS)?;
        let (planes, which) = match grid.planes {
            1 => (vec![0], chosen),
            _ => (chosen, vec![0]),
        };
        let nothing = || -> Result<Wanted> {
            Ok(Wanted {
                spots: HashMap::new(),
                which: memory::copied(&which, BANDS)?,
                samples: spec.samples,
                bytes: spec.sample.bytes(),
            })
        };
        let piece_of = |tile: Tile, part: Rect| self.piece_of(&piece, grid.planes, tile, part);
        let again =
            |tile: Tile| grid.rect(tile).intersect(&window).map(|part| piece_of(tile, part));
        let (mut jobs, mut wanted): (Vec<TileJob>, _) = (Vec::new(), nothing()?);
        let most = (BATCH_BYTES / spec.tile_bytes().max(1)).max(1);
        let mut rest = Vec::new();
        for tile in grid.tiles(grid.cover(&window), &planes) {
            let Some(part) = grid.rect(tile).intersect(&window) else { continue };
            let Ok(Some(job)) = tiles.job(tile) else {
                memory::push(&mut rest, piece_of(tile, part), TILES)?;
                continue;
            };
            let bytes = size_of::<(u64, Spot)>() as u64;
            let refused = |_| Error::OutOfMemory { bytes, place: TILES };
            wanted.spots.try_reserve(1).map_err(refused)?;
            wanted.spots.insert(job.id, spot(grid.rect(tile), part, piece_of(tile, part).place));
            memory::push(&mut jobs, job, TILES)?;
            if jobs.len() == most {
                let batch = (std::mem::take(&mut jobs), std::mem::replace(&mut wanted, nothing()?));
                // SAFETY: the caller's promise.
                let lost = unsafe { self.decode(image, batch)? };
                memory::extend(&mut rest, lost.into_iter().filter_map(again), TILES)?;
            }
        }
        // SAFETY: as above.
        let lost = unsafe { self.decode(image, (jobs, wanted))? };
        memory::extend(&mut rest, lost.into_iter().filter_map(again), TILES)?;
        // SAFETY: parts of the piece.
        rest.into_iter().try_for_each(|piece| unsafe { self.carry(piece) })
    }

    /// What of a piece is in one tile: all its bands, or the one of the tile's plane.
    fn piece_of<'b>(&self, piece: &Piece<'b>, planes: u32, tile: Tile, part: Rect) -> Piece<'b> {
        let (x, y) = (i64::from(part.x) - piece.window.x, i64::from(part.y) - piece.window.y);
        let (width, height) = (i64::from(part.width), i64::from(part.height));
        let window = Window { x: part.x.into(), y: part.y.into(), width, height };
        let here = |&band: &c_int| band == tile.plane as c_int + 1;
        let band = match planes {
            1 => None,
            _ => piece.bands.iter().position(here),
        };
        let bands = band.map_or(piece.bands, |at| &piece.bands[at..=at]);
        Piece { window, bands, place: piece.place.moved(x, y, band.unwrap_or(0) as i64) }
    }

    /// Decodes a batch; the tiles that failed come back.
    ///
    /// # Safety
    /// As for `bring`.
    unsafe fn decode(&self, image: &Image, batch: (Vec<TileJob>, Wanted)) -> Outcome<Vec<Tile>> {
        let (jobs, wanted) = batch;
        let (count, reader) = (jobs.len(), image.reader());
        if count == 0 {
            return Ok(Vec::new());
        }
        let batch = reader.batch(jobs);
        // SAFETY: the caller's promise.
        match unsafe { self.engine.decode_into(&self.landing, batch, wanted) } {
            Ok(errors) => {
                reader.count_decoded(count - errors.len());
                let grid = reader.image().grid;
                Ok(memory::collect(errors.iter().map(|error| grid.tile(error.id)), TILES)?)
            }
            Err(error) => failed(error),
        }
    }

    /// Reads a piece as for the host, and takes it to the device.
    ///
    /// # Safety
    /// As for `bring`.
    unsafe fn carry(&self, piece: Piece<'_>) -> Outcome<()> {
        let (bytes, samples) = (self.chosen.kind.bytes as i64, piece.bands.len() as i64);
        let chosen = self.chosen.of_bands(piece.bands)?;
        let mut memory = Vec::new();
        for part in slices(piece.window, samples * bytes) {
            let (line, place) = (part.width * samples * bytes, piece.place);
            let there = place.moved(part.x - piece.window.x, part.y - piece.window.y, 0);
            let size = (line * part.height) as usize;
            if memory.len() < size {
                memory = allocate(size, "pixels for the device")?;
            }
            let data = &mut memory[..size];
            let place = Place {
                data: data.as_mut_ptr().cast(),
                pixel: samples * bytes,
                line,
                band: bytes,
                device: None,
            };
            // SAFETY: memory of our own that holds the window.
            unsafe { self.raster.read(&part, &chosen, &place)? };
            let (width, height) = (part.width as usize, part.height as usize);
            let (part, to) = (Part { x: 0, y: 0, width, height }, there.data.addr() as u64);
            let wanted = Wanted {
                spots: HashMap::from([(0, Spot { part, to })]),
                which: memory::collect(0..samples as u32, BANDS)?,
                samples: samples as usize,
                bytes: bytes as usize,
            };
            // SAFETY: the caller's promise.
            unsafe { self.engine.put_into(&self.landing, wanted, 0, data) }.or_else(failed)?;
        }
        Ok(())
    }
}

/// Cuts a window into some that pass through the host at once: whole rows, or parts of one.
fn slices(window: Window, pixel: i64) -> impl Iterator<Item = Window> {
    let columns = (HOST_BYTES / pixel.max(1)).clamp(1, window.width);
    let rows = (HOST_BYTES / (columns * pixel).max(1)).clamp(1, window.height);
    (0..window.height).step_by(rows as usize).flat_map(move |y| {
        (0..window.width).step_by(columns as usize).map(move |x| {
            let (width, height) = (columns.min(window.width - x), rows.min(window.height - y));
            Window { x: window.x + x, y: window.y + y, width, height }
        })
    })
}

/// What is wanted of a tile, and where it goes.
fn spot(tile: Rect, part: Rect, place: Place) -> Spot {
    Spot {
        part: Part {
            x: (part.x - tile.x) as usize,
            y: (part.y - tile.y) as usize,
            width: part.width as usize,
            height: part.height as usize,
        },
        to: place.data.addr() as u64,
    }
}
