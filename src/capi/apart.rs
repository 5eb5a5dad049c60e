//! Reads an image without its dataset, so that many threads may at once: nothing is found in
//! GDAL's block cache and nothing is kept there. What needs the dataset (a tile that the file
//! leaves out, one that GTiff must be asked for) ends it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::bridge::{Block, Callbacks, Redo, Request};
use super::delivery::Delivery;
use super::handles::{File, Image, Shared};
use crate::batch::plan::Rect;
use crate::batch::reader::Reader;
use crate::error::Result;

unsafe extern "C" fn no_block(
    _: *mut c_void,
    _: c_int,
    _: c_int,
    _: c_int,
    _: *mut Block,
) -> c_int {
    0
}

unsafe extern "C" fn no_release(_: *mut c_void, _: *const Block, _: c_int) {}

unsafe extern "C" fn no_fill(_: *mut c_void, _: c_int, _: *mut c_void) {}

unsafe extern "C" fn no_redo(_: *mut c_void, _: *const Redo) -> c_int {
    1
}

unsafe extern "C" fn go_on(_: *mut c_void, _: f64) -> c_int {
    1
}

/// Callbacks of nobody.
pub(crate) const NOBODY: Callbacks = Callbacks {
    context: std::ptr::null_mut(),
    find: no_block,
    make: no_block,
    release: no_release,
    fill: no_fill,
    redo: no_redo,
    progress: go_on,
};

impl Image {
    /// A hold on the image that a dataset has.
    ///
    /// # Safety
    /// `image` must be NULL or an image that its dataset has now.
    pub(crate) unsafe fn share(image: *const Image) -> Option<Arc<Image>> {
        if image.is_null() {
            return None;
        }
        // SAFETY: made by Arc::into_raw in `image_open`, and not freed before its dataset does.
        unsafe {
            Arc::increment_strong_count(image);
            Some(Arc::from_raw(image))
        }
    }

    /// Whether reading the window apart is worth it. Tiles that it covers in part are decoded for
    /// nothing else, while the dataset keeps them: they must be few.
    pub(crate) fn is_worth_reading_apart(&self, window: &Rect) -> bool {
        let grid = &self.reader.image().grid;
        4 * grid.whole_tiles(window) >= 3 * grid.cover(window).len()
    }

    /// What reads it.
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// GDAL's type of its samples.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    /// Reads a window; false if the dataset must be asked after all. Pixels may have been put
    /// then.
    ///
    /// # Safety
    /// The request must be inside the image, with bands that it has and memory that holds it.
    pub(crate) unsafe fn read_apart(&self, request: &Request) -> Result<bool> {
        // SAFETY: the caller's promise.
        let bands =
            unsafe { std::slice::from_raw_parts(request.bands, request.band_count as usize) };
        // SAFETY: the caller's promise.
        let delivery = unsafe { Delivery::new(&self.reader, request, bands, self.kind) };
        let outcome = self.reader.read_apart(&delivery);
        self.shared.tell();
        outcome
    }
}

impl Shared {
    /// What a file shares with all that belongs to its dataset.
    ///
    /// # Safety
    /// `file` must be NULL or a file that its dataset has now.
    pub(crate) unsafe fn of(file: *const File) -> Option<Arc<Shared>> {
        // SAFETY: the caller's promise.
        unsafe { file.as_ref() }.map(|file| Arc::clone(&file.shared))
    }
}
