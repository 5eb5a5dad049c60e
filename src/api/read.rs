//! Windows of pixels into the caller's memory.
//!
//! Whoever gets the raster's lock reads through GDAL's dataset: its block cache, walks that are
//! followed, and all that only GTiff reads are there. Who finds it taken reads the file apart,
//! if our engines decode it and the window holds a whole tile; else waits.

use std::ffi::c_int;
use std::sync::{Arc, PoisonError};

use super::held::Held;
use super::raster::Raster;
use super::request::{Buffer, Chosen, Place, Selection, Use, Window};
use super::result::{GPUGTIFF_CORRUPT, Outcome, ask_gdal, gpugtiff_result, guard};
use super::shim::gpugtiff_shim_image;
use crate::batch::plan::Rect;
use crate::capi::bridge::Request;
use crate::capi::{Image, NOBODY};
use crate::gdal::dataset::Dataset;

impl Raster {
    /// Reads what was checked.
    ///
    /// # Safety
    /// The place must hold the window's samples, and nobody else may touch them meanwhile.
    pub(super) unsafe fn read(
        &self,
        window: &Window,
        chosen: &Chosen,
        place: &Place,
    ) -> Outcome<()> {
        if let Some(device) = place.device {
            // SAFETY: the caller's promise.
            return unsafe { self.read_to_device(window, chosen, place, device) };
        }
        let (_guard, dataset) = match self.holding.try_lock() {
            Some(locked) => locked,
            // SAFETY: the caller's promise.
            None if unsafe { self.read_apart(window, chosen, place) } => return Ok(()),
            None => self.holding.lock(),
        };
        self.look_at(dataset, chosen.level);
        let pixels = place.transfer(window, chosen, false);
        ask_gdal(&format!("{}: reading", self.name), GPUGTIFF_CORRUPT, || {
            // SAFETY: the caller's promise; the dataset is locked.
            unsafe { dataset.transfer(chosen.level, &pixels) }.then_some(())
        })
    }

    /// Notes whether our engines decode a level, which the dataset itself finds out before it
    /// reads from it.
    pub(super) fn look_at(&self, dataset: Dataset, level: c_int) {
        if self.known(level).is_some() {
            return;
        }
        let found = dataset.level(level).and_then(|level| {
            // SAFETY: the dataset is locked: nothing is read from it meanwhile.
            unsafe { Image::share(gpugtiff_shim_image(level.handle()).cast()) }
        });
        self.decoded.lock().unwrap_or_else(PoisonError::into_inner).insert(level, found);
    }

    pub(super) fn known(&self, level: c_int) -> Option<Option<Arc<Image>>> {
        self.decoded.lock().unwrap_or_else(PoisonError::into_inner).get(&level).cloned()
    }

    /// Reads without the dataset, if that can be; false: ask the dataset.
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn read_apart(&self, window: &Window, chosen: &Chosen, place: &Place) -> bool {
        let Some(Some(image)) = self.known(chosen.level) else { return false };
        let [x, y, width, height] = window.numbers();
        let [left, top, columns, rows] = window.numbers().map(|n| n as u32);
        let rect = Rect { x: left, y: top, width: columns, height: rows };
        if !image.is_worth_reading_apart(&rect) {
            return false;
        }
        let request = Request {
            x,
            y,
            width,
            height,
            bands: chosen.bands.as_ptr(),
            band_count: chosen.bands.len() as c_int,
            kind: chosen.kind.gdal as c_int,
            data: place.data,
            pixel_space: place.pixel,
            line_space: place.line,
            band_space: place.band,
            whole_block: 0,
            pipelined: 0,
            cache_max: 0,
            callbacks: NOBODY,
        };
        // SAFETY: the caller's promise; window and bands were checked against this level.
        unsafe { image.read_apart(&request) }.unwrap_or(false)
    }
}

/// Reads a window: of all bands and level 0, or as `selection` says; of the whole level if
/// `window` is NULL. Everything is checked before the first pixel is put. After a failure in the
/// middle (GPUGTIFF_CORRUPT, GPUGTIFF_IO) parts of the buffer may have been written. Thread-safe:
/// any number of threads may read from one raster at once, each into memory of its own.
///
/// # Safety
/// Structs must be what they say, and the buffer's bytes the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_read(
    raster: *const Raster,
    window: *const Window,
    selection: *const Selection,
    buffer: *const Buffer,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        // SAFETY: the caller's promise.
        let (chosen, window) = unsafe { raster.choose(window, selection) }?;
        // SAFETY: the caller's promise; the place was checked.
        unsafe {
            let place = Place::new(buffer, &window, &chosen, Use::Into)?;
            raster.read(&window, &chosen, &place)
        }
    })
}

impl Raster {
    /// What is asked for, if the raster has it.
    ///
    /// # Safety
    /// Both must be NULL or what they say.
    pub(super) unsafe fn choose(
        &self,
        window: *const Window,
        selection: *const Selection,
    ) -> Outcome<(Chosen, Window)> {
        // SAFETY: the caller's promise.
        let chosen = unsafe { Chosen::new(selection, self.bands, self.kind) }?;
        let level = self.level(chosen.level)?;
        // SAFETY: the caller's promise.
        let window = unsafe { Window::inside(window, level.size) }?;
        Ok((chosen, window))
    }
}
