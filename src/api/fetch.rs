//! Windows out of device memory, to be written.

use super::device::{engine, failed, look};
use super::request::{Chosen, Device, Place, Window};
use super::result::Outcome;
use super::writer::Writer;
use crate::engine::allocate;
use crate::gdal::dataset::Dataset;

/// Bytes that come down at once, if a row is not larger.
const DEVICE_BYTES: i64 = 64 << 20;

impl Writer {
    /// Brings rows down, as the caller has them, and writes those. Bands that lie apart come one
    /// by one, so that what is between them does not.
    ///
    /// # Safety
    /// As for `write`, and the stream must be one.
    pub(super) unsafe fn write_from_device(
        &self,
        dataset: Dataset,
        window: &Window,
        chosen: &Chosen,
        place: &Place,
        device: Device,
    ) -> Outcome<()> {
        let engine = engine(&self.shared, device.number)?;
        let (bands, sample) = (chosen.bands.len(), chosen.kind.bytes);
        let extents = [window.width, window.height, bands as i64];
        // SAFETY: the caller's promise.
        let landing = unsafe { look(&engine, place, extents, sample, device)? };
        let furthest = place.line.abs().max(place.pixel.abs());
        let at_once = if place.band.abs() > furthest { 1 } else { bands };
        let mut bytes = Vec::new();
        for first in (0..bands).step_by(at_once) {
            let some = chosen.of_bands(&chosen.bands[first..first + at_once])?;
            for part in slices(window, place) {
                let there = place.moved(part.x - window.x, part.y - window.y, first as i64);
                let extents = [part.width, part.height, at_once as i64];
                let [low, high] = there.reach(extents, sample);
                let span = (high - low + 1) as usize;
                if bytes.len() < span {
                    bytes = allocate(span, "pixels from the device")?;
                }
                let bytes = &mut bytes[..span];
                // SAFETY: a part of what was looked at.
                unsafe { engine.fetch(&landing, low, bytes) }.or_else(failed)?;
                let offset = there.data.addr() as u64 - low;
                let data = bytes.as_mut_ptr().wrapping_add(offset as usize).cast();
                // SAFETY: the same samples, in memory of our own.
                unsafe {
                    let here = Place { data, device: None, ..there };
                    self.write(dataset, &part, &some, &here)?;
                }
            }
        }
        Ok(())
    }
}

/// Cuts a window along what lies furthest apart in memory, rows or columns, so that what is brought
/// down at once has few bytes besides.
fn slices(window: &Window, place: &Place) -> impl Iterator<Item = Window> {
    let (line, pixel) = (place.line.abs().max(1), place.pixel.abs().max(1));
    let across = pixel > line;
    let (step, whole) = match across {
        true => (pixel.max(line.saturating_mul(window.height)), window.width),
        false => (line.max(pixel.saturating_mul(window.width)), window.height),
    };
    let most = (DEVICE_BYTES / step).clamp(1, whole);
    let window = *window;
    let slice = move |at: i64| {
        let count = most.min(whole - at);
        match across {
            true => Window { x: window.x + at, width: count, ..window },
            false => Window { y: window.y + at, height: count, ..window },
        }
    };
    (0..whole).step_by(most as usize).map(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever way round the pixels lie, they come down about once.
    #[test]
    fn what_is_brought_down_is_hardly_more_than_the_window() {
        let window = Window { x: 3, y: 5, width: 40_000, height: 3_000 };
        let (width, height) = (window.width, window.height);
        for (pixel, line) in [(2, 2 * width), (2 * height, 2), (-2 * height, 2), (6, -6 * width)] {
            let data = std::ptr::without_provenance_mut(1 << 40);
            let place = Place { data, pixel, line, band: 1, device: None };
            let (mut pixels, mut bytes) = (0, 0);
            for part in slices(&window, &place) {
                let [low, high] = place.reach([part.width, part.height, 1], 2);
                assert!((high - low) as i64 <= DEVICE_BYTES + 2 * width);
                pixels += part.width * part.height;
                bytes += (high - low + 1) as i64;
            }
            assert_eq!(pixels, width * height);
            assert!(
                bytes <= pixel.abs().min(line.abs()) * width * height,
                "{pixel} {line}: {bytes}"
            );
        }
    }
}
