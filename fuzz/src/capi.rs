//! The C API as a state machine: any sequence of calls, with handles that are live, freed, of another
//! kind or NULL, and with arguments that make sense or do not.
//!
//! The result of a call with a bad handle is known. No call panics inside the library. Pixels that a
//! read returns are those that were written, and bytes between them stay as they were.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Once;

use gpugtiff::api::ask::{
    gpugtiff_log_set, gpugtiff_raster_counters, gpugtiff_raster_engine, gpugtiff_writer_counters,
    gpugtiff_writer_engine,
};
use gpugtiff::api::batches::{
    Batches, gpugtiff_batches_free, gpugtiff_batches_largest, gpugtiff_batches_new,
    gpugtiff_batches_next, gpugtiff_batches_read,
};
use gpugtiff::api::raster::{
    Nodata, Raster, RasterFacts, gpugtiff_raster_dataset, gpugtiff_raster_free,
    gpugtiff_raster_info, gpugtiff_raster_nodata, gpugtiff_raster_open, gpugtiff_raster_wkt,
    gpugtiff_raster_wrap,
};
use gpugtiff::api::read::gpugtiff_raster_read;
use gpugtiff::api::request::{Buffer, Selection, Window};
use gpugtiff::api::result::{
    GPUGTIFF_BAD_HANDLE, GPUGTIFF_NULL_ARGUMENT, GPUGTIFF_OK, GPUGTIFF_PANIC,
    gpugtiff_error_message, gpugtiff_result, gpugtiff_result_name,
};
use gpugtiff::api::tensor::{DLManagedTensorVersioned, gpugtiff_raster_read_tensor};
use gpugtiff::api::writer::{
    Spec, Writer, gpugtiff_writer_abort, gpugtiff_writer_create, gpugtiff_writer_finish,
    gpugtiff_writer_free, gpugtiff_writer_write,
};

use crate::input::Input;
use crate::options::quiet;

const WIDTH: usize = 90;
const HEIGHT: usize = 70;
const BANDS: usize = 2;
/// Files that are there from the start: unsigned 16-bit samples, [`pixel`].
const FILES: [(&str, &[&str]); 3] = [
    ("/vsimem/fuzz-a.tif", &["BLOCKXSIZE=32", "BLOCKYSIZE=32", "COMPRESS=LZW", "PREDICTOR=2"]),
    ("/vsimem/fuzz-b.tif", &["TILED=NO", "BLOCKYSIZE=9", "COMPRESS=ZSTD", "INTERLEAVE=BAND"]),
    ("/vsimem/fuzz-c.tif", &["TILED=YES", "COMPRESS=NONE"]),
];
const OPTIONS: [&str; 8] = [
    "NUM_THREADS=1",
    "NUM_THREADS=2",
    "NUM_THREADS=-1",
    "ENGINE=CPU",
    "BATCH_MB=1",
    "NO_SUCH=1",
    "=",
    "COMPRESS=DEFLATE",
];

/// Sample of a file.
fn pixel(band: usize, y: usize, x: usize) -> u16 {
    (x * 31 + y * 517 + band * 7919) as u16
}

/// A kind of handle with those that were given out, and whether they are live.
struct Handles<T>(Vec<(*mut T, bool)>);

impl<T> Handles<T> {
    /// A handle, and what a call with it answers if that is known.
    fn pick(&self, input: &mut Input<'_>) -> (*mut T, Option<gpugtiff_result>) {
        let choice = input.u8();
        match choice {
            0 => (null_mut(), Some(GPUGTIFF_NULL_ARGUMENT)),
            1 => (std::ptr::without_provenance_mut(0x5550), Some(GPUGTIFF_BAD_HANDLE)),
            _ => match self.0.get(usize::from(choice) % self.0.len().max(1)) {
                Some(&(handle, live)) => (handle, (!live).then_some(GPUGTIFF_BAD_HANDLE)),
                None => (null_mut(), Some(GPUGTIFF_NULL_ARGUMENT)),
            },
        }
    }

    fn is_live(&self, handle: *mut T) -> bool {
        self.0.iter().any(|&(known, live)| live && known == handle)
    }

    fn free(&mut self, handle: *mut T, free: extern "C" fn(*mut T) -> gpugtiff_result) {
        let result = checked(free(handle));
        let live = self.is_live(handle);
        let wanted = if live || handle.is_null() { GPUGTIFF_OK } else { GPUGTIFF_BAD_HANDLE };
        assert_eq!(result, wanted, "freed {handle:?}");
        self.0.iter_mut().filter(|(known, _)| *known == handle).for_each(|(_, live)| *live = false);
    }
}

/// Everything that a sequence of calls has made.
struct Machine {
    rasters: Handles<Raster>,
    batches: Handles<Batches>,
    writers: Handles<Writer>,
    made: usize,
}

/// Fails if the library panicked.
fn checked(result: gpugtiff_result) -> gpugtiff_result {
    let text = || {
        // SAFETY: valid until this thread's next failure.
        unsafe { std::ffi::CStr::from_ptr(gpugtiff_error_message()) }.to_string_lossy()
    };
    assert_ne!(result, GPUGTIFF_PANIC, "{}", text());
    assert!((-18..=1).contains(&result), "a result of {result}");
    assert!(!gpugtiff_result_name(result).is_null());
    if result < 0 {
        assert!(!text().is_empty(), "no message with {result}");
    }
    result
}

fn expect(result: gpugtiff_result, known: Option<gpugtiff_result>) -> bool {
    let result = checked(result);
    if let Some(known) = known {
        // Of several mistakes any may be told.
        assert!(result < 0, "{result} where {known} was due");
    }
    result == GPUGTIFF_OK
}

fn strings(list: &[&str]) -> (Vec<CString>, Vec<*const c_char>) {
    let owned: Vec<CString> = list.iter().map(|s| CString::new(*s).unwrap()).collect();
    let pointers = owned.iter().map(|s| s.as_ptr()).chain([null()]).collect();
    (owned, pointers)
}

/// All samples of a file, one band after the other.
fn samples() -> Vec<u16> {
    let at = |i: usize| pixel(i / (WIDTH * HEIGHT), i / WIDTH % HEIGHT, i % WIDTH);
    (0..BANDS * WIDTH * HEIGHT).map(at).collect()
}

fn spec(options: &[*const c_char]) -> Spec {
    Spec {
        width: WIDTH as i64,
        height: HEIGHT as i64,
        bands: BANDS as i32,
        r#type: 3,
        options: options.as_ptr(),
        size: size_of::<Spec>(),
        geotransform: null(),
        wkt: null(),
        nodata: null(),
        nodata_i64: null(),
        nodata_u64: null(),
    }
}

fn make_files() {
    let mut samples = samples();
    for (path, options) in FILES {
        let path = CString::new(path).unwrap();
        let (_owned, options) = strings(options);
        let mut writer = null_mut();
        let bytes = samples.len() * 2;
        let buffer = Buffer { data: samples.as_mut_ptr().cast(), bytes, ..Buffer::default() };
        // SAFETY: all pointers are to what they should be.
        unsafe {
            assert_eq!(gpugtiff_writer_create(path.as_ptr(), &spec(&options), &mut writer), 0);
            assert_eq!(gpugtiff_writer_write(writer, null(), null(), &buffer), 0);
        }
        assert_eq!(gpugtiff_writer_finish(writer), 0);
        assert_eq!(gpugtiff_writer_free(writer), 0);
    }
}

pub(crate) fn run(data: &[u8]) {
    static ONCE: Once = Once::new();
    quiet();
    ONCE.call_once(make_files);
    let mut input = Input::new(data);
    let mut machine = Machine {
        rasters: Handles(Vec::new()),
        batches: Handles(Vec::new()),
        writers: Handles(Vec::new()),
        made: 0,
    };
    for _ in 0..60 {
        if input.is_empty() {
            break;
        }
        match input.below(16) {
            0..=2 => machine.open(&mut input),
            3 => {
                let (handle, _) = machine.rasters.pick(&mut input);
                machine.rasters.free(handle, gpugtiff_raster_free);
            }
            4..=6 => machine.read(&mut input),
            7 => machine.ask(&mut input),
            8 => machine.tensor(&mut input),
            9 | 10 => machine.walk(&mut input),
            11 => machine.create(&mut input),
            12 | 13 => machine.write(&mut input),
            14 => machine.end(&mut input),
            _ => machine.wrap(&mut input),
        }
    }
    machine.free_all();
}

impl Machine {
    fn open(&mut self, input: &mut Input<'_>) {
        let choice = input.below(8);
        let path = match choice {
            0 => None,
            1 => Some("/vsimem/no-such.tif"),
            2 => Some(""),
            n => Some(FILES[n % FILES.len()].0),
        };
        let path = path.map(|path| CString::new(path).unwrap());
        let chosen: Vec<&str> = (0..input.below(3)).map(|_| input.pick(&OPTIONS)).collect();
        let (_owned, list) = strings(&chosen);
        let mut raster = null_mut();
        let out = if input.u8() == 7 { null_mut() } else { &raw mut raster };
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: valid or NULL.
        let ok = checked(unsafe { gpugtiff_raster_open(path, list.as_ptr(), out) }) == GPUGTIFF_OK;
        assert_eq!(ok, !raster.is_null());
        if chosen.is_empty() && choice > 2 && !out.is_null() {
            assert!(ok, "a good file");
        }
        if ok {
            self.rasters.0.push((raster, true));
        }
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let (raster, bad) = self.rasters.pick(input);
        let (level, band) = (input.u8() as i8, input.u8() as i8);
        let mut facts = RasterFacts::default();
        if input.u8() == 3 {
            facts.size = usize::from(input.u8()) % size_of::<RasterFacts>();
        }
        let mut nodata = Nodata::default();
        let (mut text, mut more, mut dataset) = (null(), null(), null_mut());
        let mut told = 0usize;
        // SAFETY: everything is as large as it says, but for sizes that are too small.
        unsafe {
            if expect(gpugtiff_raster_info(raster, level.into(), &mut facts), bad) {
                assert_eq!((facts.width, facts.height), (WIDTH as i64, HEIGHT as i64));
                assert_eq!((facts.bands, facts.r#type, level), (BANDS as i32, 3, 0));
            }
            expect(gpugtiff_raster_nodata(raster, band.into(), &mut nodata), bad);
            expect(gpugtiff_raster_wkt(raster, &mut text), bad);
            expect(gpugtiff_raster_dataset(raster, &mut dataset), bad);
            expect(gpugtiff_raster_engine(raster, &mut text, &mut more), bad);
            let user = (&raw mut told).cast();
            let ok = expect(gpugtiff_raster_counters(raster, Some(count), user), bad);
            assert_eq!(ok, told > 0);
            checked(gpugtiff_log_set(None, null_mut()));
        }
    }

    /// A window, mostly inside.
    fn window(input: &mut Input<'_>) -> Window {
        let (x, y) = (input.below(WIDTH), input.below(HEIGHT));
        let mut window = Window {
            x: x as i64,
            y: y as i64,
            width: 1 + input.below(WIDTH - x) as i64,
            height: 1 + input.below(HEIGHT - y) as i64,
        };
        let odd = [i64::MIN, -1, 0, 91, i64::MAX];
        match input.below(16) {
            0 => window.x = input.pick(&odd),
            1 => window.width = input.pick(&odd),
            2 => window.height = input.pick(&odd),
            3 => window.y = input.pick(&odd),
            _ => {}
        }
        window
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let (raster, bad) = self.rasters.pick(input);
        let (batches, bad_walk) = self.batches.pick(input);
        let by_walk = input.u8().is_multiple_of(4) && !self.batches.0.is_empty();
        let window = Machine::window(input);
        let bands: Vec<i32> = (0..input.below(4)).map(|_| input.below(4) as i32).collect();
        let mut selection = Selection { bands: bands.as_ptr(), ..Selection::default() };
        selection.band_count = bands.len();
        if bands.is_empty() {
            selection.bands = null();
        }
        if input.u8() == 9 {
            selection.level = i32::from(input.u8() as i8);
        }
        if input.u8() == 9 {
            selection.r#type = i32::from(input.u8() as i8);
        }
        let whole = by_walk || bands.is_empty();
        let bands: Vec<i32> = if whole { (1..=BANDS as i32).collect() } else { bands };
        let mut place = Strided::new(input, &window, bands.len());
        let buffer = place.buffer();
        // SAFETY: the buffer has the bytes that it says, whatever its strides are.
        let ok = unsafe {
            match by_walk {
                true => expect(gpugtiff_batches_read(batches, &window, &buffer), bad_walk),
                false => expect(gpugtiff_raster_read(raster, &window, &selection, &buffer), bad),
            }
        };
        let own_type = by_walk || matches!(selection.r#type, 0 | 3);
        if ok && own_type {
            place.check(&window, &bands);
        }
    }

    fn tensor(&mut self, input: &mut Input<'_>) {
        let (raster, bad) = self.rasters.pick(input);
        let window = Machine::window(input);
        let device = if input.u8() == 1 { 5 } else { -1 };
        let mut tensor: *mut DLManagedTensorVersioned = null_mut();
        let window_at = if input.flag() { &raw const window } else { null() };
        // SAFETY: valid or NULL; the tensor has what its shape says until it is deleted.
        unsafe {
            let read = gpugtiff_raster_read_tensor(raster, window_at, null(), device, &mut tensor);
            if !expect(read, bad) {
                return;
            }
            let shape = std::slice::from_raw_parts((*tensor).dl_tensor.shape, 3).to_vec();
            let (y, x) = if window_at.is_null() { (0, 0) } else { (window.y, window.x) };
            let first = *(*tensor).dl_tensor.data.cast::<u16>();
            assert_eq!(first, pixel(0, y as usize, x as usize));
            assert_eq!(shape[0], BANDS as i64);
            (*tensor).deleter.expect("a deleter")(tensor);
        }
    }

    fn walk(&mut self, input: &mut Input<'_>) {
        let mut window = Window::default();
        match input.below(4) {
            0 => {
                let (raster, bad) = self.rasters.pick(input);
                let mut batches = null_mut();
                let mb = usize::from(input.u8());
                // SAFETY: valid.
                let new = unsafe { gpugtiff_batches_new(raster, null(), mb, &mut batches) };
                if expect(new, bad) {
                    self.batches.0.push((batches, true));
                }
            }
            1 => {
                let (batches, _) = self.batches.pick(input);
                self.batches.free(batches, gpugtiff_batches_free);
            }
            2 => {
                let (batches, bad) = self.batches.pick(input);
                // SAFETY: valid.
                unsafe { expect(gpugtiff_batches_next(batches, &mut window), bad) };
            }
            _ => {
                let (batches, bad) = self.batches.pick(input);
                // SAFETY: valid.
                unsafe { expect(gpugtiff_batches_largest(batches, &mut window), bad) };
            }
        }
    }

    fn create(&mut self, input: &mut Input<'_>) {
        let chosen: Vec<&str> = (0..input.below(3)).map(|_| input.pick(&OPTIONS)).collect();
        let (_owned, options) = strings(&chosen);
        let mut spec = spec(&options);
        match input.below(12) {
            0 => spec.width = input.pick(&[i64::MIN, -1, 0, i64::MAX]),
            1 => spec.bands = input.pick(&[i32::MIN, -1, 0, i32::MAX]),
            2 => spec.r#type = i32::from(input.u8() as i8),
            3 => spec.size = usize::from(input.u8()) % size_of::<Spec>(),
            _ => {}
        }
        self.made += 1;
        let path = CString::new(format!("/vsimem/fuzz-out-{}.tif", self.made)).unwrap();
        let mut writer = null_mut();
        // SAFETY: valid.
        if checked(unsafe { gpugtiff_writer_create(path.as_ptr(), &spec, &mut writer) }) == 0 {
            self.writers.0.push((writer, true));
        }
    }

    fn write(&mut self, input: &mut Input<'_>) {
        let (writer, bad) = self.writers.pick(input);
        let window = Machine::window(input);
        let mut place = Strided::new(input, &window, BANDS);
        let buffer = place.buffer();
        // SAFETY: the buffer has the bytes that it says.
        unsafe { expect(gpugtiff_writer_write(writer, &window, null(), &buffer), bad) };
    }

    fn end(&mut self, input: &mut Input<'_>) {
        let (writer, bad) = self.writers.pick(input);
        let (mut name, mut reason) = (null(), null());
        let mut told = 0usize;
        match input.below(5) {
            0 => _ = expect(gpugtiff_writer_finish(writer), bad),
            1 => _ = expect(gpugtiff_writer_abort(writer), bad),
            2 => self.writers.free(writer, gpugtiff_writer_free),
            // SAFETY: valid.
            3 => unsafe {
                expect(gpugtiff_writer_engine(writer, &mut name, &mut reason), bad);
            },
            // SAFETY: valid, and as `count` takes it.
            _ => unsafe {
                let user = (&raw mut told).cast();
                expect(gpugtiff_writer_counters(writer, Some(count), user), bad);
            },
        }
    }

    /// A dataset that has a raster already, NULL, or one of another driver.
    fn wrap(&mut self, input: &mut Input<'_>) {
        let (raster, _) = self.rasters.pick(input);
        let mut dataset = null_mut();
        let mut wrapped = null_mut();
        // SAFETY: what the raster says is a dataset, or NULL.
        unsafe {
            let live = self.rasters.is_live(raster);
            let ok = expect(gpugtiff_raster_dataset(raster, &mut dataset), None);
            assert_eq!(ok, live);
            let result = checked(gpugtiff_raster_wrap(dataset, &mut wrapped));
            assert!(result < 0, "a dataset that has a raster was wrapped");
        }
    }

    fn free_all(&mut self) {
        let live = |&&(_, live): &&(_, bool)| live;
        self.batches.0.iter().filter(live).for_each(|&(handle, _)| {
            assert_eq!(gpugtiff_batches_free(handle), GPUGTIFF_OK);
        });
        let live = |&&(_, live): &&(_, bool)| live;
        self.rasters.0.iter().filter(live).for_each(|&(handle, _)| {
            assert_eq!(gpugtiff_raster_free(handle), GPUGTIFF_OK);
        });
        let live = |&&(_, live): &&(_, bool)| live;
        self.writers.0.iter().filter(live).for_each(|&(handle, _)| {
            assert_eq!(gpugtiff_writer_free(handle), GPUGTIFF_OK);
        });
        for made in 1..=self.made {
            let path = CString::new(format!("/vsimem/fuzz-out-{made}.tif")).unwrap();
            // SAFETY: a path.
            unsafe { gdal_sys::VSIUnlink(path.as_ptr()) };
        }
    }
}

/// A counter's callback: counts calls.
unsafe extern "C" fn count(name: *const c_char, _value: u64, user: *mut c_void) {
    assert!(!name.is_null());
    // SAFETY: every caller here passes a usize.
    unsafe { *user.cast::<usize>() += 1 };
}

/// A buffer with strides of any kind, often wrong ones.
struct Strided {
    memory: Vec<u8>,
    offset: usize,
    strides: [i64; 3],
}

const FILL: u8 = 0xC3;

impl Strided {
    fn new(input: &mut Input<'_>, window: &Window, bands: usize) -> Strided {
        let [width, height] =
            [window.width, window.height].map(|n| n.clamp(1, 100).unsigned_abs() as usize);
        let gap = usize::from(input.u8() % 4);
        let strides = match input.below(4) {
            0 => [0; 3],
            1 => [2 + gap, (2 + gap) * width + 1, ((2 + gap) * width + 1) * height],
            2 => [2 * bands + gap, (2 * bands + gap) * width, 2],
            _ => [2 * height * bands, 2, 2 * height],
        };
        let packed = [2, 2 * width, 2 * width * height];
        let reach: usize = strides
            .iter()
            .zip(packed)
            .zip([width, height, bands])
            .map(|((&stride, packed), n)| if stride == 0 { packed } else { stride } * (n - 1))
            .sum();
        let mut strides = strides.map(|stride| stride as i64);
        let mut offset = 0;
        match input.below(12) {
            0 => strides[input.below(3)] = input.pick(&[i64::MIN, -1, 1, i64::MAX]),
            1 => offset = usize::MAX - 3,
            2 if strides[1] != 0 => {
                offset = strides[1].unsigned_abs() as usize * (height - 1);
                strides[1] = -strides[1];
            }
            3 => offset = usize::from(input.u8()),
            _ => {}
        }
        Strided { memory: vec![FILL; reach + 2], offset, strides }
    }

    fn buffer(&mut self) -> Buffer {
        let [pixel_stride, line_stride, band_stride] = self.strides;
        Buffer {
            data: self.memory.as_mut_ptr().cast(),
            bytes: self.memory.len(),
            offset: self.offset,
            pixel_stride,
            line_stride,
            band_stride,
            ..Buffer::default()
        }
    }

    /// Every sample is the file's, and all other bytes are as they were.
    fn check(&self, window: &Window, bands: &[i32]) {
        let or = |stride: i64, packed: i64| if stride == 0 { packed } else { stride };
        let pixel_stride = or(self.strides[0], 2);
        let line_stride = or(self.strides[1], pixel_stride * window.width);
        let band_stride = or(self.strides[2], line_stride * window.height);
        let mut seen = vec![false; self.memory.len()];
        for (i, &band) in bands.iter().enumerate() {
            for y in 0..window.height {
                for x in 0..window.width {
                    let at = self.offset as i64
                        + i as i64 * band_stride
                        + y * line_stride
                        + x * pixel_stride;
                    let at = usize::try_from(at).expect("a read that was refused");
                    let found = u16::from_ne_bytes([self.memory[at], self.memory[at + 1]]);
                    let (x, y) = ((window.x + x) as usize, (window.y + y) as usize);
                    assert_eq!(found, pixel(band as usize - 1, y, x), "band {band}, {x}, {y}");
                    seen[at..at + 2].fill(true);
                }
            }
        }
        let others = self.memory.iter().zip(&seen).filter(|(_, seen)| !**seen);
        assert!(others.into_iter().all(|(byte, _)| *byte == FILL), "bytes between the pixels");
    }
}
