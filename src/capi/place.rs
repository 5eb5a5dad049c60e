//! Puts decoded samples where GDAL wants them: any type, any spacing.
//!
//! The caller's memory is only known as pointers and spacings, so this is where
//! they are followed. Each function writes one rectangle, row by row, and the
//! rectangles of different tiles do not overlap.

use crate::engine::interleave::deinterleave;
use crate::gdal::words::{self, Words};
use crate::process::memory;

/// A rectangle of interleaved samples in native order.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    /// Begins at the rectangle's first pixel.
    pub(super) data: &'a [u8],
    /// Bytes from a row to the next.
    pub(super) row: usize,
    /// Samples of a pixel.
    pub(super) samples: usize,
    /// Bytes of a sample.
    pub(super) unit: usize,
    /// GDAL type.
    pub(super) kind: u32,
}

/// Where a rectangle goes, for one band.
#[derive(Clone, Copy)]
pub(super) struct To {
    /// The rectangle's first pixel.
    pub(super) data: *mut u8,
    /// Bytes from a pixel to the next.
    pub(super) pixel: isize,
    /// Bytes from a line to the next.
    pub(super) line: isize,
    /// GDAL type.
    pub(super) kind: u32,
}

/// Size of a rectangle in pixels.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

impl From<'_> {
    /// One row of all samples, cut to the width.
    fn row(&self, y: usize, width: usize) -> &[u8] {
        &self.data[y * self.row..][..width * self.samples * self.unit]
    }
}

/// Copies the samples `first + i` to `targets[i]`.
///
/// # Safety
/// Every target must be valid for writes of `size` pixels at its spacings, and
/// nothing else may access them meanwhile.
pub(super) unsafe fn bands(from: From<'_>, chosen: &[usize], targets: &[To], size: Size) {
    let (from, size) = as_one_row(from, targets, size);
    // SAFETY: the caller's promise, passed on.
    unsafe {
        if chunky(&from, chosen, targets) {
            return pixels(from, targets[0], size);
        }
        if planar(&from, chosen, targets, size.width) {
            match *targets {
                [a, b] => return planes(from, [a, b], size),
                [a, b, c] => return planes(from, [a, b, c], size),
                [a, b, c, d] => return planes(from, [a, b, c, d], size),
                _ => {}
            }
        }
        for (&sample, &target) in chosen.iter().zip(targets) {
            band(from, sample, target, size);
        }
    }
}

/// Rows without gaps on both sides are one long row.
fn as_one_row<'a>(from: From<'a>, targets: &[To], size: Size) -> (From<'a>, Size) {
    let packed = from.row == size.width * from.samples * from.unit
        && targets
            .iter()
            .all(|to| to.kind == from.kind && to.line == to.pixel * size.width as isize);
    match packed {
        true => (from, Size { width: size.width * size.height, height: 1 }),
        false => (from, size),
    }
}

/// The caller wants whole pixels just as they are.
fn chunky(from: &From<'_>, chosen: &[usize], targets: &[To]) -> bool {
    chosen.len() == from.samples
        && chosen.iter().enumerate().all(|(i, &sample)| i == sample)
        && targets.iter().enumerate().all(|(i, to)| {
            to.kind == from.kind
                && to.pixel == (from.samples * from.unit) as isize
                && to.line == targets[0].line
                && to.data == targets[0].data.wrapping_add(i * from.unit)
        })
}

/// The caller wants all samples in order, each in rows without gaps that are apart
/// from the other samples' rows.
fn planar(from: &From<'_>, chosen: &[usize], targets: &[To], width: usize) -> bool {
    matches!(from.unit, 1 | 2 | 4 | 8)
        && chosen.len() == from.samples
        && chosen.iter().enumerate().all(|(i, &sample)| i == sample)
        && targets.iter().enumerate().all(|(i, to)| {
            to.kind == from.kind
                && to.pixel == from.unit as isize
                && to.line == targets[0].line
                && targets[..i]
                    .iter()
                    .all(|other| other.data.addr().abs_diff(to.data.addr()) >= width * from.unit)
        })
}

/// Row `y` is about to be written: announces one that soon will be.
fn announce(to: &To, y: usize, height: usize, bytes: usize) {
    let next = y + memory::ROWS_AHEAD;
    if next < height {
        memory::will_write(to.data.wrapping_offset(next as isize * to.line), bytes);
    }
}

/// Rows of whole pixels.
unsafe fn pixels(from: From<'_>, to: To, size: Size) {
    for y in 0..size.height {
        let row = from.row(y, size.width);
        announce(&to, y, size.height, row.len());
        // SAFETY: the target row holds `width` pixels of this size.
        unsafe {
            let target = to.data.offset(y as isize * to.line);
            std::ptr::copy_nonoverlapping(row.as_ptr(), target, row.len());
        }
    }
}

/// All planes of a row in one pass.
unsafe fn planes<const N: usize>(from: From<'_>, to: [To; N], size: Size) {
    for y in 0..size.height {
        to.iter().for_each(|to| announce(to, y, size.height, size.width * from.unit));
        let mut rows = to.map(|to| {
            // SAFETY: each plane's row holds `width` samples; planes do not overlap.
            unsafe {
                let row = to.data.offset(y as isize * to.line);
                std::slice::from_raw_parts_mut(row, size.width * from.unit)
            }
        });
        let mut rows: [&mut [u8]; N] = rows.each_mut().map(|row| &mut **row);
        deinterleave(from.row(y, size.width), N, from.unit, &mut rows);
    }
}

/// One sample of each pixel, converted if need be.
unsafe fn band(from: From<'_>, sample: usize, to: To, size: Size) {
    if from.samples == 1 && from.kind == to.kind && to.pixel == from.unit as isize {
        // SAFETY: the caller's promise.
        return unsafe { pixels(from, to, size) };
    }
    // GDAL converts packed samples with other instructions than spaced ones, and NaN
    // to integers differently with each. GTiff's are packed.
    if from.samples > 1 && from.kind != to.kind {
        // SAFETY: the caller's promise.
        return unsafe { packed_band(from, sample, to, size) };
    }
    let step = from.samples * from.unit;
    for y in 0..size.height {
        let row = &from.row(y, size.width)[sample * from.unit..];
        // SAFETY: the source row holds `width` samples at `step`; the target is
        // the caller's promise.
        unsafe {
            words::copy(
                Words { data: row.as_ptr(), kind: from.kind, step: step as isize },
                Words { data: to.data.offset(y as isize * to.line), kind: to.kind, step: to.pixel },
                size.width,
            );
        }
    }
}

/// Pixels that are packed at a time: whole vectors, however wide.
const PIECE: usize = 1024;
/// Room for so many samples of any type.
const PIECE_BYTES: usize = PIECE * 16;

/// One sample of each pixel, without gaps before it is converted.
unsafe fn packed_band(from: From<'_>, sample: usize, to: To, size: Size) {
    let (unit, step) = (from.unit, from.samples * from.unit);
    let mut packed = [0; PIECE_BYTES];
    for y in 0..size.height {
        let row = from.row(y, size.width);
        for (piece, pixels) in row.chunks(PIECE * step).enumerate() {
            let samples = pixels.chunks_exact(step).map(|pixel| &pixel[sample * unit..][..unit]);
            packed.chunks_exact_mut(unit).zip(samples).for_each(|(to, s)| to.copy_from_slice(s));
            let first = y as isize * to.line + (piece * PIECE) as isize * to.pixel;
            // SAFETY: the piece is inside the rectangle, which is the caller's promise.
            unsafe {
                words::copy(
                    Words { data: packed.as_ptr(), kind: from.kind, step: unit as isize },
                    Words { data: to.data.offset(first), kind: to.kind, step: to.pixel },
                    pixels.len() / step,
                );
            }
        }
    }
}

/// The same sample everywhere, converted as any other row of samples is.
///
/// # Safety
/// As for [`bands`].
pub(super) unsafe fn fill(value: &[u8], kind: u32, to: To, size: Size) {
    let mut data = [0; PIECE_BYTES];
    data.chunks_exact_mut(value.len()).for_each(|sample| sample.copy_from_slice(value));
    let from = From { data: &data, row: 0, samples: 1, unit: value.len(), kind };
    for x in (0..size.width).step_by(PIECE) {
        let to = To { data: to.data.wrapping_offset(x as isize * to.pixel), ..to };
        let size = Size { width: PIECE.min(size.width - x), ..size };
        // SAFETY: the caller's promise for all columns.
        unsafe { band(from, 0, to, size) };
    }
}
