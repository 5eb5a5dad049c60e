//! What is asked for and where it goes, checked whole before anything is touched: the window
//! against the image, bands and type against the raster, strides against the caller's bytes.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use super::kind::{GPUGTIFF_TYPE_OWN, Kind, gpugtiff_type};
use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_BAD_STRIDE, GPUGTIFF_NULL_ARGUMENT, GPUGTIFF_OUT_OF_IMAGE,
    GPUGTIFF_WRONG_MEMORY, Outcome, fail,
};
use super::sized::{Tagged, take, take_or_default};
use crate::engine::cuda;
use crate::gdal::dataset::Transfer;
use crate::process::memory;

/// What is allocated for a request, in messages.
const BANDS: &str = "the bands of a window";

/// A rectangle of pixels, counted from the top left corner of its level.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Left column, from 0.
    pub x: i64,
    /// Top row, from 0.
    pub y: i64,
    /// Columns.
    pub width: i64,
    /// Rows.
    pub height: i64,
}

/// Which samples. Where NULL is passed instead: all bands of level 0 in their own type. Make
/// one with gpugtiff_selection_init().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Selection {
    /// sizeof(gpugtiff_selection)
    pub size: usize,
    /// Numbers of bands, from 1, in the order they are wanted in; NULL for all.
    pub bands: *const i32,
    /// How many there are at `bands`; 0 with NULL.
    pub band_count: usize,
    /// 0: the image itself; n: its n-th overview. Writers have level 0 only.
    pub level: i32,
    /// Type of the samples in memory; GPUGTIFF_TYPE_OWN for the raster's. Values are converted
    /// as GDAL converts them: rounded, and clamped to the range of the type.
    pub r#type: gpugtiff_type,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            size: size_of::<Selection>(),
            bands: std::ptr::null(),
            band_count: 0,
            level: 0,
            r#type: GPUGTIFF_TYPE_OWN,
        }
    }
}

// SAFETY: repr(C), the size first, pointers and numbers only.
unsafe impl Tagged for Selection {
    const NAME: &'static str = "gpugtiff_selection";
    const SMALLEST: usize = offset_of!(Selection, r#type) + size_of::<gpugtiff_type>();
}

/// Whose memory: one of GPUGTIFF_MEMORY_….
#[allow(non_camel_case_types)]
pub type gpugtiff_memory = i32;

/// The program's own memory.
pub const GPUGTIFF_MEMORY_HOST: gpugtiff_memory = 0;
/// Memory of a GPU.
pub const GPUGTIFF_MEMORY_DEVICE: gpugtiff_memory = 1;

/// Where pixels go, or come from. Make one with gpugtiff_buffer_init().
///
/// Sample (band i, row y, column x) of a window is at data + offset + i * band_stride + y *
/// line_stride + x * pixel_stride. Strides may be negative, and in any order. All samples must lie
/// inside `bytes` and, where pixels are read into the buffer, apart from each other: the larger of
/// two strides passes over all that the smaller one reaches.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// sizeof(gpugtiff_buffer)
    pub size: usize,
    /// The memory.
    pub data: *mut c_void,
    /// How many bytes there are at `data`. No byte outside is touched.
    pub bytes: usize,
    /// Bytes from `data` to the first sample of the first band.
    pub offset: usize,
    /// Bytes from a pixel to the next; 0: samples without a gap.
    pub pixel_stride: i64,
    /// Bytes from a line to the next; 0: lines without a gap.
    pub line_stride: i64,
    /// Bytes from a band to the next; 0: one band after the other.
    pub band_stride: i64,
    /// GPUGTIFF_MEMORY_HOST or GPUGTIFF_MEMORY_DEVICE.
    pub memory: gpugtiff_memory,
    /// For device memory: the device's number. Else ignored.
    pub device: i32,
    /// For device memory: the CUstream that the pixels are ordered on; NULL, CU_STREAM_LEGACY and
    /// CU_STREAM_PER_THREAD are the default streams. What was submitted to it before comes first,
    /// and what is submitted after the call finds the pixels there; the host and other streams wait
    /// for this one. Memory and stream must be of the device's primary context, which the CUDA runtime
    /// uses too. Else ignored.
    pub stream: *mut c_void,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            size: size_of::<Buffer>(),
            data: std::ptr::null_mut(),
            bytes: 0,
            offset: 0,
            pixel_stride: 0,
            line_stride: 0,
            band_stride: 0,
            memory: GPUGTIFF_MEMORY_HOST,
            device: 0,
            stream: std::ptr::null_mut(),
        }
    }
}

// SAFETY: repr(C), the size first, pointers and numbers only.
unsafe impl Tagged for Buffer {
    const NAME: &'static str = "gpugtiff_buffer";
    const SMALLEST: usize = offset_of!(Buffer, stream) + size_of::<*mut c_void>();
}

/// Samples that the raster has.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) bands: Vec<c_int>,
    pub(super) level: c_int,
    pub(super) kind: Kind,
}

impl Chosen {
    /// The same of other bands.
    pub(super) fn of_bands(&self, bands: &[c_int]) -> Outcome<Chosen> {
        Ok(Chosen { bands: memory::copied(bands, BANDS)?, level: self.level, kind: self.kind })
    }

    /// # Safety
    /// `selection` must be NULL or a struct with its bands.
    pub(super) unsafe fn new(
        selection: *const Selection,
        bands: c_int,
        own: Kind,
    ) -> Outcome<Chosen> {
        // SAFETY: the caller's promise.
        let selection = unsafe { take_or_default(selection) }?;
        let kind = Kind::of(selection.r#type, own)?;
        if selection.level < 0 {
            let text = format!("the level is {}: expected 0 or more", selection.level);
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
        let count = selection.band_count;
        let chosen = match (selection.bands.is_null(), count) {
            (true, 0) => memory::collect(1..=bands, BANDS)?,
            (true, _) => {
                let text = format!("gpugtiff_selection.bands is NULL, and band_count is {count}");
                return fail(GPUGTIFF_NULL_ARGUMENT, text);
            }
            (false, 0) => {
                let text = "gpugtiff_selection.bands is set, and band_count is 0";
                return fail(GPUGTIFF_BAD_ARGUMENT, text);
            }
            (false, _) if count > 1 << 20 => {
                return fail(GPUGTIFF_BAD_ARGUMENT, format!("band_count is {count}"));
            }
            (false, _) => {
                // SAFETY: the caller's promise.
                let bands = unsafe { std::slice::from_raw_parts(selection.bands, count) };
                memory::copied(bands, BANDS)?
            }
        };
        if let Some(band) = chosen.iter().find(|&&band| band < 1 || band > bands) {
            let text = format!("there is no band {band}: the raster has {bands}, counted from 1");
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
        Ok(Chosen { bands: chosen, level: selection.level, kind })
    }

    /// A file that is being written has one level, and takes each band once.
    pub(super) fn check_for_writing(&self) -> Outcome<()> {
        if self.level != 0 {
            let text = format!("the level is {}: a writer has level 0 only", self.level);
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
        let mut sorted = self.bands.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let text = format!("band {} is given more than once to be written", pair[0]);
                fail(GPUGTIFF_BAD_ARGUMENT, text)
            }
            None => Ok(()),
        }
    }
}

impl Window {
    /// The caller's window, inside an image of this size; NULL for all of it.
    ///
    /// # Safety
    /// `given` must be NULL or point to a window.
    pub(super) unsafe fn inside(given: *const Window, size: [c_int; 2]) -> Outcome<Window> {
        let [width, height] = size.map(i64::from);
        // SAFETY: the caller's promise.
        let Some(window) = (unsafe { given.as_ref() }) else {
            return Ok(Window { x: 0, y: 0, width, height });
        };
        let fits = |start: i64, len: i64, end: i64| {
            start >= 0 && len >= 1 && start.checked_add(len).is_some_and(|last| last <= end)
        };
        if fits(window.x, window.width, width) && fits(window.y, window.height, height) {
            return Ok(*window);
        }
        let Window { x, y, width: w, height: h } = window;
        let text = format!(
            "the window of {w} x {h} pixels at column {x}, row {y} is not inside the image of \
             {width} x {height} pixels, or is empty"
        );
        fail(GPUGTIFF_OUT_OF_IMAGE, text)
    }

    /// As GDAL wants it.
    pub(super) fn numbers(self) -> [c_int; 4] {
        [self.x, self.y, self.width, self.height].map(|n| n as c_int)
    }
}

/// A buffer that holds what is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The first sample.
    pub(super) data: *mut c_void,
    pub(super) pixel: i64,
    pub(super) line: i64,
    pub(super) band: i64,
    /// Where it is device memory.
    pub(super) device: Option<Device>,
}

/// Whose device memory, and when it may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device {
    pub(super) number: u32,
    /// The caller's; none for memory that nobody uses yet.
    pub(super) stream: Option<*mut c_void>,
}

/// What `Place::new` checks a buffer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Pixels are put there.
    Into,
    /// Pixels come from there.
    From,
}

impl Place {
    /// # Safety
    /// `buffer` must be NULL or a struct.
    pub(super) unsafe fn new(
        buffer: *const Buffer,
        window: &Window,
        chosen: &Chosen,
        purpose: Use,
    ) -> Outcome<Place> {
        // SAFETY: the caller's promise.
        let buffer = unsafe { take(buffer) }?;
        match buffer.memory {
            GPUGTIFF_MEMORY_HOST | GPUGTIFF_MEMORY_DEVICE => {}
            other => {
                let text = format!("gpugtiff_buffer.memory is {other}: expected 0 or 1");
                return fail(GPUGTIFF_BAD_ARGUMENT, text);
            }
        }
        if buffer.data.is_null() {
            return fail(GPUGTIFF_NULL_ARGUMENT, "gpugtiff_buffer.data is NULL");
        }
        let device = device(&buffer)?;
        let extents = [window.width, window.height, chosen.bands.len() as i64];
        let sample = chosen.kind.bytes as i64;
        let Some(strides) = strides(&buffer, extents, sample) else {
            return fail(GPUGTIFF_BAD_STRIDE, "the strides of the buffer overflow");
        };
        if !are_inside(&buffer, strides, extents, sample) {
            let text = format!(
                "strides {strides:?} (pixel, line, band) with offset {} put samples outside the \
                 {} bytes of the buffer",
                buffer.offset, buffer.bytes
            );
            return fail(GPUGTIFF_BAD_STRIDE, text);
        }
        if purpose == Use::Into && !are_apart(strides, extents, sample) {
            let text = format!("strides {strides:?} (pixel, line, band) put samples on others");
            return fail(GPUGTIFF_BAD_STRIDE, text);
        }
        let [pixel, line, band] = strides;
        let data = buffer.data.wrapping_byte_add(buffer.offset);
        Ok(Place { data, pixel, line, band, device })
    }

    /// The same for GDAL: pixels of a window of the dataset on their way here or, to `write`, from here.
    pub(super) fn transfer<'a>(
        &self,
        window: &Window,
        chosen: &'a Chosen,
        write: bool,
    ) -> Transfer<'a> {
        Transfer {
            write,
            window: window.numbers(),
            bands: &chosen.bands,
            kind: chosen.kind.gdal,
            data: self.data,
            pixel: self.pixel,
            line: self.line,
            band: self.band,
        }
    }

    /// The same from another sample on.
    pub(super) fn moved(self, x: i64, y: i64, band: i64) -> Place {
        let bytes = x * self.pixel + y * self.line + band * self.band;
        Place { data: self.data.wrapping_byte_offset(bytes as isize), ..self }
    }

    /// The lowest and the highest byte of so many columns, rows and bands of samples.
    pub(super) fn reach(&self, extents: [i64; 3], sample: usize) -> [u64; 2] {
        let (mut first, mut last) = (0, sample as i64 - 1);
        for (stride, extent) in [self.pixel, self.line, self.band].into_iter().zip(extents) {
            let reach = stride * (extent - 1);
            first += reach.min(0);
            last += reach.max(0);
        }
        [first, last].map(|bytes| (self.data.addr() as u64).wrapping_add_signed(bytes))
    }
}

/// Where a buffer is device memory. Host memory must not be: whoever writes to it would crash.
fn device(buffer: &Buffer) -> Outcome<Option<Device>> {
    if buffer.memory == GPUGTIFF_MEMORY_HOST {
        let is_device = cuda::is_device_memory(buffer.data.addr() as u64);
        let text = "gpugtiff_buffer.data is device memory: expected GPUGTIFF_MEMORY_DEVICE";
        return if is_device { fail(GPUGTIFF_WRONG_MEMORY, text) } else { Ok(None) };
    }
    match u32::try_from(buffer.device) {
        Ok(number) => Ok(Some(Device { number, stream: Some(buffer.stream) })),
        Err(_) => {
            let text = format!("gpugtiff_buffer.device is {}: expected 0 or more", buffer.device);
            fail(GPUGTIFF_BAD_ARGUMENT, text)
        }
    }
}

/// The strides with those that are 0 worked out; `None` if that overflows.
fn strides(buffer: &Buffer, extents: [i64; 3], sample: i64) -> Option<[i64; 3]> {
    let or = |given: i64, packed: Option<i64>| if given == 0 { packed } else { Some(given) };
    let pixel = or(buffer.pixel_stride, Some(sample))?;
    let line = or(buffer.line_stride, pixel.checked_mul(extents[0]))?;
    let band = or(buffer.band_stride, line.checked_mul(extents[1]))?;
    Some([pixel, line, band])
}

/// Whether every sample is inside the buffer's bytes, which are all in the address space.
fn are_inside(buffer: &Buffer, strides: [i64; 3], extents: [i64; 3], sample: i64) -> bool {
    let (mut first, mut last) = (buffer.offset as i128, buffer.offset as i128);
    for (stride, extent) in strides.into_iter().zip(extents) {
        let reach = i128::from(stride) * i128::from(extent - 1);
        first += reach.min(0);
        last += reach.max(0);
    }
    let bytes = buffer.bytes as i128;
    let end = buffer.data.addr() as i128 + bytes;
    first >= 0 && last + i128::from(sample) <= bytes && end <= i128::from(i64::MAX)
}

/// Whether no two samples share a byte: each stride reaches over all that the smaller ones do.
fn are_apart(strides: [i64; 3], extents: [i64; 3], sample: i64) -> bool {
    let pairs = strides.map(i128::from).into_iter().zip(extents.map(i128::from));
    let mut steps: Vec<_> =
        pairs.filter(|&(_, n)| n > 1).map(|(stride, n)| (stride.abs(), n)).collect();
    steps.sort_unstable();
    let mut reach = i128::from(sample);
    for (stride, extent) in steps {
        if stride < reach {
            return false;
        }
        reach += stride * (extent - 1);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: usize, offset: usize) -> Buffer {
        Buffer { data: std::ptr::without_provenance_mut(4096), bytes, offset, ..Buffer::default() }
    }

    #[test]
    fn samples_outside_the_bytes_are_noticed() {
        let extents = [10, 5, 3];
        assert!(are_inside(&buffer(300, 0), [2, 20, 100], extents, 2));
        assert!(!are_inside(&buffer(299, 0), [2, 20, 100], extents, 2));
        assert!(!are_inside(&buffer(300, 1), [2, 20, 100], extents, 2));
        assert!(are_inside(&buffer(300, 80), [2, -20, 100], extents, 2));
        assert!(!are_inside(&buffer(300, 79), [2, -20, 100], extents, 2));
        assert!(!are_inside(&buffer(300, 0), [i64::MAX, 20, 100], extents, 2));
        assert!(!are_inside(&buffer(usize::MAX, 0), [2, 20, 100], extents, 2));
    }

    #[test]
    fn samples_on_top_of_others_are_noticed() {
        let extents = [10, 5, 3];
        assert!(are_apart([2, 20, 100], extents, 2));
        assert!(are_apart([6, 60, 2], extents, 2));
        assert!(are_apart([2, 60, 20], extents, 2));
        assert!(are_apart([-2, -20, -100], extents, 2));
        assert!(!are_apart([1, 20, 100], extents, 2));
        assert!(!are_apart([2, 19, 100], extents, 2));
        assert!(!are_apart([2, 20, 99], extents, 2));
        assert!(are_apart([2, 19, 99], [10, 1, 1], 2));
    }

    #[test]
    fn packed_strides_follow_each_other() {
        assert_eq!(strides(&buffer(0, 0), [10, 5, 3], 2), Some([2, 20, 100]));
        let wide = Buffer { line_stride: i64::MAX, ..buffer(0, 0) };
        assert_eq!(strides(&wide, [10, 5, 3], 2), None);
    }
}
