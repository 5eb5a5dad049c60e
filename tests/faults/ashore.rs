//! Pixels that stay on the device, by the C API: a program with a context, memory and a stream of its own
//! reads windows and tensors, and writes, while a call fails; and once more when none does.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::result::{
    ctx, device, free_sync, malloc_sync, memcpy_dtoh_sync, memcpy_htod_sync, memset_d8_async,
    primary_ctx, stream,
};
use cudarc::driver::sys::CUstream;
use gpugtiff::api::kind::{GPUGTIFF_TYPE_F32, GPUGTIFF_TYPE_OWN, GPUGTIFF_TYPE_U16};
use gpugtiff::api::raster::{Raster, gpugtiff_raster_free, gpugtiff_raster_open};
use gpugtiff::api::read::gpugtiff_raster_read;
use gpugtiff::api::request::{Buffer, GPUGTIFF_MEMORY_DEVICE, Selection, Window};
use gpugtiff::api::result::{
    GPUGTIFF_DEVICE_FAILED, GPUGTIFF_NO_DEVICE, GPUGTIFF_OK, GPUGTIFF_OUT_OF_MEMORY,
    gpugtiff_error_message,
};
use gpugtiff::api::tensor::{
    DLManagedTensorVersioned, gpugtiff_raster_read_tensor, gpugtiff_raster_read_tensor_unversioned,
};
use gpugtiff::api::writer::{
    Spec, gpugtiff_writer_create, gpugtiff_writer_finish, gpugtiff_writer_free,
    gpugtiff_writer_write,
};
use gpugtiff::engine::cuda::Verify;

use crate::emulator;

const SOURCE: &CStr = c"/vsimem/ashore.tif";
const TARGET: &CStr = c"/vsimem/written.tif";
/// What memory holds before.
const GUARD: u8 = 0xA5;

fn sample(band: i32, x: usize, y: usize) -> u16 {
    (x * 3 + y * 5 + (x ^ y) % 7) as u16 + band as u16 * 1000
}

/// A window, of these bands, as floats or in its own type.
struct Part {
    window: [usize; 4],
    bands: &'static [i32],
    floats: bool,
    /// Bytes between lines.
    gap: usize,
}

/// All of the file.
const WHOLE: Part = Part { window: [0, 0, 200, 280], bands: &[1, 2], floats: false, gap: 0 };
/// Several batches of whole tiles and parts of them; what passes through the host.
const WINDOWS: [Part; 2] = [
    Part { window: [5, 3, 190, 270], bands: &[2, 1], floats: false, gap: 6 },
    Part { window: [60, 50, 20, 30], bands: &[1], floats: true, gap: 0 },
];
/// What is wanted as a tensor, and written.
const TENSOR: Part = Part { window: [30, 70, 90, 40], bands: &[1, 2], floats: false, gap: 0 };

impl Part {
    fn line(&self) -> usize {
        self.window[2] * if self.floats { 4 } else { 2 } + self.gap
    }

    /// The memory as it must be, guards between lines included.
    fn pixels(&self) -> Vec<u8> {
        let [left, top, width, height] = self.window;
        let mut memory = Vec::new();
        for &band in self.bands {
            for y in top..top + height {
                for x in left..left + width {
                    match (sample(band, x, y), self.floats) {
                        (sample, true) => memory.extend(f32::from(sample).to_ne_bytes()),
                        (sample, false) => memory.extend(sample.to_ne_bytes()),
                    }
                }
                memory.extend(std::iter::repeat_n(GUARD, self.gap));
            }
        }
        memory
    }

    fn window(&self) -> Window {
        let [x, y, width, height] = self.window.map(|n| n as i64);
        Window { x, y, width, height }
    }

    fn selection(&self) -> Selection {
        let kind = if self.floats { GPUGTIFF_TYPE_F32 } else { GPUGTIFF_TYPE_OWN };
        let (bands, band_count) = (self.bands.as_ptr(), self.bands.len());
        Selection { bands, band_count, r#type: kind, ..Selection::default() }
    }

    fn buffer(&self, data: *mut c_void) -> Buffer {
        let bytes = self.line() * self.window[3] * self.bands.len();
        Buffer { data, bytes, line_stride: self.line() as i64, ..Buffer::default() }
    }

    fn on_device(&self, memory: u64, stream: CUstream) -> Buffer {
        let data = std::ptr::without_provenance_mut(memory as usize);
        let stream = stream.cast();
        Buffer { memory: GPUGTIFF_MEMORY_DEVICE, stream, ..self.buffer(data) }
    }

    /// Reads it to the host's memory, and looks at it.
    fn check(&self, raster: *mut Raster, window: Window) {
        let expected = self.pixels();
        let mut found = vec![GUARD; expected.len()];
        let (selection, buffer) = (self.selection(), self.buffer(found.as_mut_ptr().cast()));
        // SAFETY: structs and memory as they are declared.
        answer(unsafe { gpugtiff_raster_read(raster, &window, &selection, &buffer) }).unwrap();
        assert!(found == expected, "the host's pixels are wrong");
    }
}

/// A code and a sentence.
#[derive(Debug, PartialEq)]
struct Failure(i32, String);

type Answer<T> = Result<T, Failure>;

/// A failure that may be; any other is a panic.
fn answer(result: i32) -> Answer<()> {
    if result == GPUGTIFF_OK {
        return Ok(());
    }
    // SAFETY: a C string, valid until this thread's next failure.
    let text = unsafe { CStr::from_ptr(gpugtiff_error_message()) }.to_string_lossy().into_owned();
    let fits = match result {
        GPUGTIFF_DEVICE_FAILED | GPUGTIFF_OUT_OF_MEMORY => !text.is_empty(),
        // It says what is missing. Where a call failed, there is a device.
        GPUGTIFF_NO_DEVICE => ["GPU", "driver", "nvCOMP"].iter().any(|word| text.contains(word)),
        _ => false,
    };
    assert!(fits, "{result}: {text:?}");
    Err(Failure(result, text))
}

fn strings(options: &[&'static CStr]) -> Vec<*const c_char> {
    options.iter().map(|text| text.as_ptr()).chain([null()]).collect()
}

fn open(path: &CStr) -> *mut Raster {
    // The first window is three batches of the device's.
    let options = strings(&[c"BATCH_MB=1", c"DEVICE_MB=1"]);
    let mut raster = null_mut();
    // SAFETY: a path and a list.
    answer(unsafe { gpugtiff_raster_open(path.as_ptr(), options.as_ptr(), &mut raster) }).unwrap();
    raster
}

/// Has the CPU write a file of these pixels.
fn write(path: &CStr, part: &Part, buffer: &Buffer) -> Answer<()> {
    let options = strings(&[
        c"ENGINE=CPU",
        c"COMPRESS=ZSTD",
        c"PREDICTOR=2",
        c"BLOCKXSIZE=64",
        c"BLOCKYSIZE=64",
    ]);
    let spec = Spec {
        width: part.window[2] as i64,
        height: part.window[3] as i64,
        bands: part.bands.len() as i32,
        r#type: GPUGTIFF_TYPE_U16,
        options: options.as_ptr(),
        ..Spec::default()
    };
    let mut writer = null_mut();
    // SAFETY: structs and memory as they are declared.
    let written = unsafe {
        answer(gpugtiff_writer_create(path.as_ptr(), &spec, &mut writer)).unwrap();
        answer(gpugtiff_writer_write(writer, null(), null(), buffer))
    };
    if written.is_ok() {
        answer(gpugtiff_writer_finish(writer)).unwrap();
    }
    answer(gpugtiff_writer_free(writer)).unwrap();
    written
}

/// The program: the primary context is current, and all else its own.
struct Program {
    stream: CUstream,
    raster: *mut Raster,
    /// One for each window,
    memory: Vec<u64>,
    /// and what is written.
    source: u64,
}

/// What became of what it asked for.
struct Answers {
    windows: Vec<Answer<()>>,
    tensor: Answer<*mut DLManagedTensorVersioned>,
    /// One that it gave back at once.
    brief: Answer<()>,
    written: Answer<()>,
}

impl Answers {
    fn failures(&self) -> Vec<&Failure> {
        let others = [&self.brief, &self.written];
        let failures = self.windows.iter().chain(others).filter_map(|answer| answer.as_ref().err());
        failures.chain(self.tensor.as_ref().err()).collect()
    }

    fn delete(&self) {
        if let Ok(tensor) = self.tensor {
            // SAFETY: one of the library's, once.
            unsafe { (*tensor).deleter.unwrap()(tensor) };
        }
    }
}

impl Program {
    fn new() -> Program {
        let mut pixels = WHOLE.pixels();
        write(SOURCE, &WHOLE, &WHOLE.buffer(pixels.as_mut_ptr().cast())).unwrap();
        let (raster, pixels) = (open(SOURCE), TENSOR.pixels());
        // SAFETY: a device of the emulator's, and memory of its context.
        unsafe {
            ctx::set_current(primary_ctx::retain(device::get(0).unwrap()).unwrap()).unwrap();
            let stream = stream::create(stream::StreamKind::NonBlocking).unwrap();
            let allocate = |part: &Part| malloc_sync(part.pixels().len()).unwrap();
            let (memory, source) = (WINDOWS.iter().map(allocate).collect(), allocate(&TENSOR));
            memcpy_htod_sync(source, &pixels).unwrap();
            Program { stream, raster, memory, source }
        }
    }

    fn windows(&self) -> impl Iterator<Item = (&'static Part, u64)> {
        WINDOWS.iter().zip(self.memory.iter().copied())
    }

    /// Has the device fill the memory, sometime.
    fn fill(&self) {
        for (part, memory) in self.windows() {
            // SAFETY: memory of ours.
            unsafe { memset_d8_async(memory, GUARD, part.pixels().len(), self.stream).unwrap() };
        }
    }

    /// Asks for the windows, and waits for nothing.
    fn read(&self) -> Vec<Answer<()>> {
        let read = |(part, memory): (&Part, u64)| {
            let (window, selection) = (part.window(), part.selection());
            let buffer = part.on_device(memory, self.stream);
            // SAFETY: structs, memory and a stream as they are declared.
            answer(unsafe { gpugtiff_raster_read(self.raster, &window, &selection, &buffer) })
        };
        self.windows().map(read).collect()
    }

    /// Asks for everything.
    fn ask(&self) -> Answers {
        let windows = self.read();
        let (raster, window, selection) = (self.raster, TENSOR.window(), TENSOR.selection());
        let (mut brief, mut tensor) = (null_mut(), null_mut());
        // SAFETY: as above; the tensor is one of the library's.
        let brief = unsafe {
            let (window, selection, out) = (&window, &selection, &mut brief);
            answer(gpugtiff_raster_read_tensor_unversioned(raster, window, selection, 0, out))
                .map(|()| (*brief).deleter.unwrap()(brief))
        };
        // SAFETY: as above.
        let result =
            unsafe { gpugtiff_raster_read_tensor(raster, &window, &selection, 0, &mut tensor) };
        let tensor = answer(result).map(|()| tensor);
        let written = write(TARGET, &TENSOR, &TENSOR.on_device(self.source, self.stream));
        Answers { windows, tensor, brief, written }
    }

    /// Looks at the windows that came.
    fn check(&self, answers: &[Answer<()>]) {
        let came = self.windows().zip(answers).filter(|(_, answer)| answer.is_ok());
        came.for_each(|((part, memory), _)| self.look(part, memory));
    }

    fn look(&self, part: &Part, memory: u64) {
        let expected = part.pixels();
        let mut found = vec![0; expected.len()];
        // SAFETY: a stream and memory of ours; the copy is done when it returns.
        unsafe {
            stream::synchronize(self.stream).unwrap();
            memcpy_dtoh_sync(&mut found, memory).unwrap();
        }
        let wrong = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!(wrong, 0, "bytes are wrong, {:?}", part.window);
    }
}

/// Calls since the emulator's report began.
fn calls() -> u64 {
    // SAFETY: as it is declared.
    unsafe {
        let calls: unsafe extern "C" fn() -> u64 =
            std::mem::transmute(emulator::symbol(c"emucudaCalls"));
        calls()
    }
}

/// As `work::outcome`, and prints how many calls may fail: those of the library's, when the program has all
/// of its own. `fail` is for the emulator; `lost`: it takes the device away.
pub(crate) fn outcome(fail: &str, lost: bool) -> String {
    // All begin alike: CUDA runs.
    let _engine = emulator::try_engine(Verify::First, 1 << 20).unwrap_or_else(|r| panic!("{r}"));
    let program = Program::new();
    program.fill();
    emulator::set("FAIL", fail);
    emulator::reset();
    let answers = program.ask();
    println!("calls: {}", calls());
    emulator::set("FAIL", "");
    // Whatever became of the device, host memory gets what it should, and so did the file.
    WINDOWS.iter().for_each(|part| part.check(program.raster, part.window()));
    if answers.written.is_ok() {
        let written = open(TARGET);
        TENSOR.check(written, Window { x: 0, y: 0, ..TENSOR.window() });
        answer(gpugtiff_raster_free(written)).unwrap();
    }
    if !lost {
        program.check(&answers.windows);
        // SAFETY: a tensor of the library's.
        let data = |tensor: &*mut DLManagedTensorVersioned| unsafe { (**tensor).dl_tensor.data };
        let tensor = answers.tensor.as_ref().map(data);
        tensor.iter().for_each(|data| program.look(&TENSOR, data.addr() as u64));
    }
    answers.delete();
    if !lost {
        // One call failed: the next ones do not, but a process without CUDA stays so.
        program.fill();
        let (again, before) = (program.read(), answers.failures());
        let stays = |why: &Failure| why.0 == GPUGTIFF_NO_DEVICE && before.contains(&why);
        let failed = again.iter().filter_map(|answer| answer.as_ref().err());
        failed.for_each(|why| assert!(stays(why), "{why:?} after {before:?}"));
        program.check(&again);
    }
    answer(gpugtiff_raster_free(program.raster)).unwrap();
    if !lost {
        // SAFETY: ours, and the stream was waited for.
        unsafe {
            stream::destroy(program.stream).unwrap();
            program.memory.iter().for_each(|&memory| free_sync(memory).unwrap());
            free_sync(program.source).unwrap();
        }
    }
    match answers.failures().first() {
        None => "exact".into(),
        Some(Failure(code, text)) => format!("error: {code}: {text}"),
    }
}
