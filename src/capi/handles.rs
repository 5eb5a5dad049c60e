//! The functions of the table, and the handles they give out.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::bridge::{Api, Emit, ImageFacts, Redo, Request};
use super::delivery::Delivery;
use super::guard::{Located, guard};
use super::redo::Outcome;
use super::{output, overlay, written};
use crate::batch::budget;
use crate::batch::counters::Counters;
use crate::batch::image::{Expected, Image as Tiles};
use crate::batch::plan::Rect;
use crate::batch::reader::{Caller, Limits, Reader};
use crate::engine::cuda::{CudaEngine, Refusal, Settings, Whereabouts, device_is_plausible};
use crate::engine::gtiff::{self, GtiffEngine};
use crate::engine::select::{Choice, Wish, select};
use crate::engine::{Codec, Engine, TileError, cpu};
use crate::error::{Error, Result};
use crate::gdal::vsi::{VsiFile, VsiSource};
use crate::gdal::{debug, excerpt, foreign, jpeg2000, log};
use crate::io::ByteSource;
use crate::options::{self, OpenOptions, Scope};

/// A file and what all its images share.
pub struct File {
    pub(super) path: String,
    pub(super) source: Result<Arc<dyn ByteSource>>,
    /// In a file system that is not GDAL's own: it has one handle, GTiff's, and one thread.
    pub(super) foreign: bool,
    /// What GTiff is shown instead, where it has no codec.
    pub(super) shown: Option<overlay::Shown>,
    pub(super) shared: Arc<Shared>,
}

/// What a dataset's files share.
pub(crate) struct Shared {
    /// The file that was opened or created.
    path: String,
    pub(crate) options: OpenOptions,
    pub(crate) choice: Choice,
    pub(super) counters: Arc<Counters>,
    /// Why requests go to GTiff, the first reason there was.
    pub(super) gtiff_reason: Mutex<Option<String>>,
    /// For engines of devices that pixels are kept on.
    settings: Settings,
    devices: Mutex<BTreeMap<u32, Arc<CudaEngine>>>,
}

impl Shared {
    /// Passes on what the engine has to say to the user.
    pub(crate) fn tell(&self) {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let notices = devices.values().flat_map(|engine| engine.notices());
        let own = self.choice.engine.notices();
        own.into_iter().chain(notices).for_each(|notice| log::warning(&notice));
    }

    /// The engine of a device that pixels are to be kept on, whatever decodes for the host.
    pub(crate) fn device(&self, device: u32) -> std::result::Result<Arc<CudaEngine>, Refusal> {
        let devices = || self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = devices().get(&device) {
            return Ok(Arc::clone(engine));
        }
        // CUDA may have to be started for it: nobody who asks for counters waits for that. Of two who make
        // one at once the first has made it for both.
        let Settings { whereabouts, .. } = self.settings.clone();
        let engine = Arc::new(CudaEngine::new(Settings {
            whereabouts: Whereabouts { device: Some(device), ..whereabouts },
            patient: true,
            ..self.settings.clone()
        })?);
        Ok(Arc::clone(devices().entry(device).or_insert(engine)))
    }

    /// The counters of all engines.
    fn engine_counters(&self, own: Vec<(&'static str, u64)>) -> BTreeMap<&'static str, u64> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let others = devices.values().flat_map(|engine| engine.report().counters);
        let mut sums = BTreeMap::new();
        for (name, value) in own.into_iter().chain(others) {
            *sums.entry(name).or_insert(0) += value;
        }
        sums
    }

    /// Facts and counters, by the names that users see.
    pub(crate) fn describe(&self, mut say: impl FnMut(&str, &str)) {
        say("ENGINE", self.choice.engine.name());
        let report = self.choice.engine.report();
        let reasons = [Some(self.choice.reason.clone()), report.reason];
        let reasons: Vec<_> = reasons.into_iter().flatten().filter(|r| !r.is_empty()).collect();
        say("ENGINE_REASON", &reasons.join(": "));
        say("NUM_THREADS", &self.options.threads.to_string());
        say("BATCH_MB", &(self.options.batch_bytes >> 20).to_string());
        let engines = self.engine_counters(report.counters);
        for (name, value) in self.counters.list().into_iter().chain(engines) {
            say(name, &value.to_string());
        }
        say("PEAK_BYTES", &budget::peak().to_string());
        let reason = self.gtiff_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = reason {
            say("GTIFF_REASON", &reason);
        }
    }

    /// Remembers why an image is not read by us.
    pub(super) fn leave_to_gtiff(&self, path: &str, what: &str, error: &Error) {
        log::debug(&format!("{path}: {what} by GTiff: {error}"));
        let mut reason = self.gtiff_reason.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert_with(|| error.to_string());
    }
}

/// When a dataset is closed: what became of its tiles.
impl Drop for Shared {
    fn drop(&mut self) {
        let counters = &self.counters;
        log::debug(&format!(
            "{}: engine {}, tiles decoded {}, encoded {}, copied {}, from GTiff {}; \
             requests passed to GTiff {}",
            self.path,
            self.choice.engine.name(),
            counters.tiles_decoded.get(),
            counters.tiles_encoded.get(),
            counters.tiles_copied.get(),
            counters.tiles_gtiff.get(),
            counters.requests_gtiff.get() + counters.blocks_gtiff.get(),
        ));
    }
}

/// One directory that our engines decode.
pub struct Image {
    path: String,
    ifd_offset: u64,
    pub(super) kind: u32,
    pub(super) shared: Arc<Shared>,
    pub(super) reader: Arc<Reader>,
    /// Tiles that only GTiff decoded.
    pub(super) redone: AtomicU64,
}

/// The table that the shim gets.
pub(crate) static API: Api = Api {
    options_xml,
    gpu_looks_usable,
    file_open,
    file_beside,
    file_free,
    file_overlay: overlay::file_overlay,
    file_is_overlaid: overlay::file_is_overlaid,
    file_refuse: overlay::file_refuse,
    file_threads,
    file_is_foreign,
    file_rely_on_gdal,
    file_describe,
    file_count_gtiff,
    image_open,
    image_free,
    image_read,
    image_leaves_resampling,
    creation_prepare: output::creation_prepare,
    output_create: output::output_create,
    output_add_mask: output::output_add_mask,
    output_set_fill: output::output_set_fill,
    output_write: output::output_write,
    output_read: output::output_read,
    output_written: output::output_written,
    output_copy: output::output_copy,
    output_swath: output::output_swath,
    output_take: output::output_take,
    output_copy_tiles: output::output_copy_tiles,
    output_settle: output::output_settle,
    output_flush: output::output_flush,
    output_beside: output::output_beside,
    output_finish: output::output_finish,
    output_finish_copy: output::output_finish_copy,
    output_free: output::output_free,
    written_count: written::written_count,
    written_check: written::written_check,
    unfinished_begin: written::unfinished_begin,
    unfinished_name: written::unfinished_name,
    unfinished_publish: written::unfinished_publish,
    unfinished_free: written::unfinished_free,
};

unsafe extern "C" {
    /// Registers the driver; in `src/shim/driver.cpp`.
    fn gpugtiff_shim_register(api: *const Api);
}

/// What GDAL calls when it loads the plugin.
#[unsafe(no_mangle)]
pub(super) extern "C" fn GDALRegister_GPUGTiff() {
    // SAFETY: the table is static.
    unsafe { gpugtiff_shim_register(&API) };
    // Before GTiff has something to say of a file that we do not open.
    debug::keep_gtiff_out();
}

extern "C" fn options_xml(creating: c_int) -> *const c_char {
    static XML: [OnceLock<CString>; 2] = [OnceLock::new(), OnceLock::new()];
    let scope = if creating == 0 { Scope::Open } else { Scope::Create };
    let make = || CString::new(options::xml(scope)).unwrap_or_default();
    XML[usize::from(creating != 0)].get_or_init(make).as_ptr()
}

/// A look at the driver's device files; nothing is initialised.
extern "C" fn gpu_looks_usable() -> c_int {
    c_int::from(device_is_plausible(Path::new("/")))
}

/// # Safety
/// `text` must be NULL or a C string.
pub(super) unsafe fn text(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

/// The NAME=VALUE pairs of a NULL-terminated list.
///
/// # Safety
/// `list` must be NULL or such a list.
pub(crate) unsafe fn pairs(list: *const *const c_char) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    if list.is_null() {
        return pairs;
    }
    for i in 0.. {
        // SAFETY: entries up to the NULL are C strings.
        let entry = unsafe { *list.add(i) };
        if entry.is_null() {
            break;
        }
        // SAFETY: as above.
        let entry = unsafe { text(entry) };
        if let Some((name, value)) = entry.split_once(['=', ':']) {
            pairs.push((name.trim().to_string(), value.to_string()));
        }
    }
    pairs
}

/// # Safety
/// `open` must be NULL or a VSI handle of the path.
unsafe fn source(path: &str, open: *mut c_void, foreign: bool) -> Result<Arc<dyn ByteSource>> {
    if foreign {
        return Err(Error::Unsupported(foreign::REASON.into()));
    }
    // SAFETY: the caller's promise.
    Ok(Arc::new(VsiSource::new(unsafe { VsiFile::open(path, open.cast()) }?)))
}

unsafe extern "C" fn file_open(
    path: *const c_char,
    list: *const *const c_char,
    open: *mut c_void,
    claimed: c_int,
) -> *mut File {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the shim passes a C string and a list.
        let (path, pairs) = unsafe { (text(path), pairs(list)) };
        // SAFETY: GDAL's own handle of the file, or NULL.
        match unsafe { open_file(&path, &pairs, open) } {
            Err(error) if claimed != 0 => {
                decline(&path, &error);
                Ok(std::ptr::null_mut())
            }
            opened => Ok(Box::into_raw(Box::new(opened?))),
        }
    })
}

/// # Safety
/// `open` must be NULL or a VSI handle of the path.
unsafe fn open_file(path: &str, pairs: &[(String, String)], open: *mut c_void) -> Result<File> {
    let given = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        pair.map(|(_, value)| value.clone())
    };
    debug::keep_gtiff_out();
    let options = OpenOptions::parse(given, log::config)?;
    cpu::jpeg2000::provide(jpeg2000::decode);
    gtiff::provide(excerpt::GDAL);
    let broken = log::config("GPUGTIFF_TEST_FAIL_DECODE").is_some_and(|v| v == "YES");
    let settings = settings(&options, given);
    let choice = select(options.engine, settings.clone(), broken)?;
    let shared = Shared {
        path: path.to_string(),
        options,
        choice,
        counters: Arc::default(),
        gtiff_reason: Mutex::default(),
        settings,
        devices: Mutex::default(),
    };
    let foreign = foreign::is_foreign(path);
    // SAFETY: the caller's promise.
    let source = unsafe { source(path, open, foreign) };
    if let Ok(source) = &source {
        shared.choice.engine.admit(source)?;
    }
    Ok(File { source, foreign, path: path.to_string(), shown: None, shared: Arc::new(shared) })
}

/// Says why a claimed file is GTiff's after all. GTiff judges open options itself; a configuration
/// option of ours nobody else looks at.
fn decline(path: &str, error: &Error) {
    let text = format!("{path}: not claimed, GTiff opens it: {error}");
    match error {
        Error::BadOption { name, .. } if !name.starts_with("GPUGTIFF_") => log::debug(&text),
        _ => log::warning(&text),
    }
}

/// What the CUDA engine is to know.
fn settings(options: &OpenOptions, given: impl Fn(&str) -> Option<String>) -> Settings {
    let library = |name| log::config(name).filter(|path| !path.is_empty()).map(Into::into);
    // LEVEL is the image's codec's, if that has any; a mask is packed by Deflate, whatever the image is.
    let codec = given("COMPRESS").unwrap_or("DEFLATE".into()).to_ascii_uppercase();
    let asked = |name, of: &str| given(name).is_some() || codec == of && given("LEVEL").is_some();
    Settings {
        whereabouts: Whereabouts { device: options.device, nvcomp: library("GPUGTIFF_NVCOMP") },
        device_bytes: options.device_bytes,
        batch_bytes: options.batch_bytes,
        verify: options.verify,
        gds: options.gds,
        cufile: library("GPUGTIFF_CUFILE"),
        nvjpeg2k: library("GPUGTIFF_NVJPEG2K"),
        levels_given: (asked("ZLEVEL", "DEFLATE"), asked("ZSTD_LEVEL", "ZSTD")),
        patient: options.engine == Wish::Cuda,
        patience: None,
    }
}

unsafe extern "C" fn file_beside(file: *const File, path: *const c_char) -> *mut File {
    guard(std::ptr::null_mut(), || {
        // SAFETY: a handle from `file_open` and a C string.
        let (file, path) = unsafe { (&*file, text(path)) };
        let foreign = foreign::is_foreign(&path);
        // SAFETY: no handle.
        let source = unsafe { source(&path, std::ptr::null_mut(), foreign) };
        let shared = Arc::clone(&file.shared);
        let beside = File { source, foreign, path, shown: None, shared };
        Ok(Box::into_raw(Box::new(beside)))
    })
}

unsafe extern "C" fn file_free(file: *mut File) {
    guard((), || {
        if !file.is_null() {
            // SAFETY: made by Box::into_raw, freed once.
            drop(unsafe { Box::from_raw(file) });
        }
        Ok(())
    });
}

unsafe extern "C" fn file_threads(file: *const File) -> c_int {
    // SAFETY: a handle from `file_open`.
    let file = unsafe { &*file };
    if file.foreign { 1 } else { file.shared.options.threads as c_int }
}

unsafe extern "C" fn file_is_foreign(file: *const File) -> c_int {
    // SAFETY: a handle from `file_open`.
    c_int::from(unsafe { &*file }.foreign)
}

unsafe extern "C" fn file_rely_on_gdal(file: *const File) {
    // SAFETY: a handle from `file_open`.
    if let Ok(source) = &unsafe { &*file }.source {
        source.rely_on_opener();
    }
}

unsafe extern "C" fn file_describe(file: *const File, context: *mut c_void, emit: Emit) {
    guard((), || {
        // SAFETY: a handle from `file_open`.
        let file = unsafe { &*file };
        file.shared.describe(|name, value| {
            let (name, value) = (log::c_string(name), log::c_string(value));
            // SAFETY: the shim's callback copies both.
            unsafe { emit(context, name.as_ptr(), value.as_ptr()) };
        });
        Ok(())
    });
}

unsafe extern "C" fn file_count_gtiff(file: *const File, what: c_int) {
    // SAFETY: a handle from `file_open`.
    let counters = &unsafe { &*file }.shared.counters;
    match what {
        0 => counters.requests_gtiff.bump(),
        2 => counters.written_by_gtiff.bump(),
        _ => counters.blocks_gtiff.bump(),
    }
}

unsafe extern "C" fn image_open(file: *const File, facts: *const ImageFacts) -> *mut Image {
    guard(std::ptr::null_mut(), || {
        // SAFETY: a handle from `file_open` and a filled struct.
        let (file, facts) = unsafe { (&*file, &*facts) };
        match tiles(file, facts) {
            Ok(image) => {
                let shared = Arc::clone(&file.shared);
                let limits = Limits {
                    batch_bytes: shared.options.batch_bytes,
                    threads: shared.options.threads,
                };
                let engine: Arc<dyn Engine> = match &image.cut {
                    Some(cut) => Arc::new(GtiffEngine::new(cut.clone(), facts.kind as u32)),
                    None => Arc::clone(&shared.choice.engine),
                };
                let tiles = image.grid.across() as u64 * u64::from(image.grid.down());
                let planes = u64::from(image.grid.planes);
                engine.expect(tiles.saturating_mul(planes * image.spec.tile_bytes() as u64));
                let ifd_offset = image.ifd_offset;
                let reader = Reader::new(image, engine, limits, Arc::clone(&shared.counters));
                let reader = Arc::new(reader);
                // Shared: a reader apart may outlive the dataset's hold on it.
                Ok(Arc::into_raw(Arc::new(Image {
                    path: file.path.clone(),
                    ifd_offset,
                    kind: facts.kind as u32,
                    shared,
                    reader,
                    redone: AtomicU64::new(0),
                }))
                .cast_mut())
            }
            Err(error) => {
                // Not an error: GTiff reads it, and says what is wrong if it can't.
                // What is ours alone is refused with the reason when it is read.
                file.shared.leave_to_gtiff(&file.path, "read", &error);
                if let Some(shown) = &file.shown {
                    shown.refused(facts.ifd_offset, &error);
                }
                Ok(std::ptr::null_mut())
            }
        }
    })
}

fn tiles(file: &File, facts: &ImageFacts) -> Result<Tiles> {
    let source = file.source.clone()?;
    let size = |n: c_int| u32::try_from(n).map_err(|_| Error::Unsupported("this size".into()));
    let expected = Expected {
        width: size(facts.width)?,
        height: size(facts.height)?,
        bands: size(facts.bands)?,
        sample_bytes: u8::try_from(facts.sample_bytes).unwrap_or(0),
        bit: u8::try_from(facts.bit).ok().filter(|&on| on > 0),
        block_width: size(facts.block_width)?,
        block_height: size(facts.block_height)?,
        first_tile: (facts.first_tile > 0).then_some(facts.first_tile),
        converted: facts.converted != 0,
    };
    Tiles::open(source, facts.ifd_offset, &expected, file.shared.options.batch_bytes)
}

unsafe extern "C" fn image_free(image: *mut Image) {
    guard((), || {
        if !image.is_null() {
            // SAFETY: made by Arc::into_raw, freed once.
            drop(unsafe { Arc::from_raw(image) });
        }
        Ok(())
    });
}

unsafe extern "C" fn image_leaves_resampling(image: *const Image) -> c_int {
    // SAFETY: a handle from `image_open`.
    let image = unsafe { &*image };
    c_int::from(image.reader.image().has_implicit_overviews)
}

unsafe extern "C" fn image_read(image: *const Image, request: *const Request) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `image_open` and a filled struct with its bands.
        let (image, request) = unsafe { (&*image, &*request) };
        // SAFETY: as above.
        let bands =
            unsafe { std::slice::from_raw_parts(request.bands, request.band_count as usize) };
        // SAFETY: GDAL checked the window and vouches for the buffer.
        let delivery = unsafe { Delivery::new(&image.reader, request, bands, image.kind) };
        let delivery = delivery.redone_by(image);
        let outcome = image.reader.read(&delivery);
        image.shared.tell();
        outcome?;
        Ok(match delivery.outcome() {
            Outcome::Delivered => 0,
            Outcome::Failed => 1,
            Outcome::Left => 2,
        })
    })
}

impl Image {
    /// Notes why the image is left to GTiff.
    pub(super) fn leave(&self, error: &Error) {
        self.shared.leave_to_gtiff(&self.path, "read", error);
    }

    /// Whether GTiff has no codec for its tiles.
    pub(super) fn is_ours_alone(&self) -> bool {
        matches!(self.reader.image().spec.codec, Codec::Jpeg2000(_))
    }

    /// Asks GTiff for a tile that the engine failed on. What GTiff makes of it
    /// counts: its pixels, or its error beside ours.
    pub(super) fn redo(&self, delivery: &Delivery<'_>, failed: &TileError) -> bool {
        let (request, bands) = delivery.request();
        let grid = &self.reader.image().grid;
        let tile = grid.tile(failed.id);
        let Some(part) = grid.rect(tile).intersect(&delivery.window()) else { return true };
        let place = format!(
            "{}: image at offset {}, tile {} (column {}, row {}, plane {})",
            self.path, self.ifd_offset, failed.id, tile.column, tile.row, tile.plane
        );
        if self.is_ours_alone() {
            Located { place, error: &failed.error }.raise();
            return false;
        }
        self.shared.counters.tiles_gtiff.bump();
        let mut asked: Vec<(usize, &[c_int])> = Vec::new();
        if grid.planes == 1 {
            asked.push((0, bands));
        } else {
            let in_plane = |band: &c_int| *band == tile.plane as c_int + 1;
            let (places, one) = (bands.iter().enumerate(), bands);
            asked.extend(places.filter(|(_, band)| in_plane(band)).map(|(i, _)| (i, &one[i..=i])));
        }
        for (first, bands) in asked {
            if let Err(message) = redo_part(request, &delivery.window(), part, first, bands) {
                Located { place: format!("{place}: GTiff says '{message}'"), error: &failed.error }
                    .raise();
                return false;
            }
        }
        log::debug(&format!("{place}: read by GTiff: {}", failed.error));
        true
    }
}

fn redo_part(
    request: &Request,
    window: &Rect,
    part: Rect,
    first: usize,
    bands: &[c_int],
) -> std::result::Result<(), String> {
    let offset = i64::from(part.x - window.x) * request.pixel_space
        + i64::from(part.y - window.y) * request.line_space
        + first as i64 * request.band_space;
    let mut message = [0 as c_char; 512];
    let redo = Redo {
        x: part.x as c_int,
        y: part.y as c_int,
        width: part.width as c_int,
        height: part.height as c_int,
        bands: bands.as_ptr(),
        band_count: bands.len() as c_int,
        data: request.data.wrapping_byte_offset(offset as isize),
        message: message.as_mut_ptr(),
        message_size: message.len(),
    };
    // SAFETY: the shim's callback; everything it points to outlives the call.
    let failed = unsafe { (request.callbacks.redo)(request.callbacks.context, &redo) };
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: the shim ends the message with a NUL.
    Err(unsafe { text(message.as_ptr()) })
}
