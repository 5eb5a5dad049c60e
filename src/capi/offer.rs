//! Pixels in a caller's buffer, offered to the writer: any type, any spacing.

use std::ffi::c_int;

use super::bridge::Request;
use crate::batch::collect::Offer;
use crate::batch::plan::Rect;
use crate::engine::interleave::interleave;
use crate::gdal::words::{self, Words};
use crate::process::memory;

/// A buffer that GDAL was given.
pub(super) struct Buffer<'a> {
    request: &'a Request,
    window: Rect,
    bands: Vec<usize>,
    /// GDAL type and bytes of the image's samples.
    kind: u32,
    unit: usize,
}

// SAFETY: the memory is only read, and GDAL vouches for it during the call.
unsafe impl Sync for Buffer<'_> {}

impl<'a> Buffer<'a> {
    /// # Safety
    /// `request` must describe memory that may be read for its window and `bands`.
    pub(super) unsafe fn new(
        request: &'a Request,
        bands: &[c_int],
        kind: u32,
        unit: usize,
    ) -> Buffer<'a> {
        let window = Rect {
            x: request.x as u32,
            y: request.y as u32,
            width: request.width as u32,
            height: request.height as u32,
        };
        let bands = bands.iter().map(|&band| band as usize - 1).collect();
        Buffer { request, window, bands, kind, unit }
    }

    /// The first sample of a row.
    fn at(&self, index: usize, x: u32, y: u32) -> *const u8 {
        let request = self.request;
        let offset = i64::from(x - self.window.x) * request.pixel_space
            + i64::from(y - self.window.y) * request.line_space
            + index as i64 * request.band_space;
        request.data.cast::<u8>().cast_const().wrapping_offset(offset as isize)
    }

    fn same_kind(&self) -> bool {
        self.request.kind as u32 == self.kind
    }

    /// A row of samples without gaps.
    fn row(&self, index: usize, part: &Rect, y: u32) -> &[u8] {
        // SAFETY: only called where samples follow each other; the row is in the window.
        unsafe {
            let bytes = part.width as usize * self.unit;
            std::slice::from_raw_parts(self.at(index, part.x, part.y + y), bytes)
        }
    }

    fn is_planar(&self) -> bool {
        self.same_kind() && self.request.pixel_space == self.unit as i64
    }

    fn is_chunky(&self) -> bool {
        self.same_kind()
            && self.request.band_space == self.unit as i64
            && self.request.pixel_space == (self.unit * self.bands.len()) as i64
    }
}

impl Offer for Buffer<'_> {
    fn window(&self) -> Rect {
        self.window
    }

    fn bands(&self) -> &[usize] {
        &self.bands
    }

    fn copy(&self, index: usize, part: &Rect, to: &mut [u8], row: usize) {
        let bytes = part.width as usize * self.unit;
        for y in 0..part.height {
            let to = &mut to[y as usize * row..][..bytes];
            if self.is_planar() {
                to.copy_from_slice(self.row(index, part, y));
                continue;
            }
            let from = Words {
                data: self.at(index, part.x, part.y + y),
                kind: self.request.kind as u32,
                step: self.request.pixel_space as isize,
            };
            let to = Words { data: to.as_mut_ptr(), kind: self.kind, step: self.unit as isize };
            // SAFETY: the row is in the window; the target holds as many samples.
            unsafe { words::copy(from, to, part.width as usize) };
        }
    }

    fn copy_pixels(&self, part: &Rect, to: &mut [u8], row: usize) {
        let pixel = self.unit * self.bands.len();
        let bytes = part.width as usize * pixel;
        let (bands, mut planes) = (self.bands.len(), Vec::new());
        for y in 0..part.height {
            let to = &mut to[y as usize * row..][..bytes];
            if self.is_chunky() {
                // SAFETY: whole pixels without gaps, in the window.
                to.copy_from_slice(unsafe {
                    std::slice::from_raw_parts(self.at(0, part.x, part.y + y), bytes)
                });
                continue;
            }
            let line = Rect { y: part.y + y, height: 1, ..*part };
            if self.is_planar() {
                let row = |index| self.row(index, &line, 0);
                memory::few(bands, row, |rows| interleave(rows, bands, self.unit, to));
                continue;
            }
            // Converted without gaps first: GDAL rounds otherwise with them.
            memory::or_unwind(memory::resize(&mut planes, bytes, "a row of a tile"));
            let width = part.width as usize * self.unit;
            for (index, plane) in planes.chunks_exact_mut(width).enumerate() {
                self.copy(index, &line, plane, width);
            }
            let row = |index| &planes[index * width..][..width];
            memory::few(bands, row, |rows| interleave(rows, bands, self.unit, to));
        }
    }
}
