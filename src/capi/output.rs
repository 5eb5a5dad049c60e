//! Files that are being written: the functions of the table, and their handle.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::bridge::{Creation, Emit, Request, Swath, Target};
use super::encoder::encoder;
use super::guard::guard;
use super::handles::{File, Image, Shared, pairs, text};
use super::offer::Buffer;
use crate::batch::plan::{Rect, Tile};
use crate::batch::reader::Limits;
use crate::batch::swath::{CopyPlan, Step};
use crate::batch::template::{Template, Wanted};
use crate::batch::writer::{Size, Writer};
use crate::engine::Codec;
use crate::engine::gtiff::Cut;
use crate::engine::gtiff::encode::outdates;
use crate::error::{Cause, Error, Result};
use crate::gdal::beside::Beside;
use crate::gdal::sink::{VsiSink, free_space};
use crate::gdal::vsi::{VsiFile, VsiSource};
use crate::gdal::{foreign, log};
use crate::io::ByteSink;
use crate::io::scratch::Scratch;
use crate::options::create::{
    Asked, CreateOptions, DISCARD_LSB, find, hollow_rows, is_true, prepare,
};

/// Tiles up to this size are ours to write whatever BATCH_MB says.
const LARGE_TILE: usize = 64 << 20;

/// GTiff warns from here on if a file will be uncompressed and the disk is too small.
const CHECKED_BYTES: u64 = 1_000_000_000;

/// IF_SAFER makes a BigTIFF of more than this.
const SAFE_BYTES: u64 = 2_000_000_000;

/// A file that is being written.
pub struct Output {
    path: String,
    kind: u32,
    options: CreateOptions,
    shared: Arc<Shared>,
    sink: Arc<VsiSink>,
    writer: Mutex<Writer>,
    /// Files that get their names with this one, and the name that GDAL knows this one by there.
    beside: OnceLock<(Beside, CString)>,
    special: Option<Special>,
    pid: u32,
}

impl Output {
    fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        if self.pid != std::process::id() {
            // Two processes never write one file.
            let why = "this process was forked while the file was being written";
            return Err(Error::Device(format!("{}: {why}", self.path)));
        }
        // A panic left it in the middle of something: what it would finish is not what was written.
        let broken = |_| Error::Device(format!("{}: writing it failed before", self.path));
        self.writer.lock().map_err(broken)
    }

    /// Passes on what the engines have to say to the user.
    fn tell(&self, writer: &Writer) {
        self.shared.tell();
        writer.engine(0).notices().iter().for_each(|notice| log::warning(notice));
    }

    /// Has tiles encoded for the tags that the hollow file has now: some may be set until the first
    /// pixel is written, and codecs look at them.
    fn settle(&self, writer: &mut Writer, template: &Template<'_>) -> Result<()> {
        let Some(special) = &self.special else { return Ok(()) };
        let Special { wanted, for_gtiff, settled } = special;
        let mut before =
            settled.lock().map_err(|_| Error::Device("internal error: tags".into()))?;
        let tiles = template.gtiff(wanted, String::new())?;
        let nodata = template.nodata()?;
        let is_same = find(for_gtiff, DISCARD_LSB).is_none() || nodata == before.nodata;
        if is_same && tiles.cut.excerpt.difference(&before.cut.excerpt, &[]).is_none() {
            return Ok(());
        }
        let (_, engine) =
            encoder(template, wanted, self.kind, for_gtiff, "tags that changed".into())?;
        let outdated = outdates(tiles.compression, &before.cut.excerpt, &tiles.cut.excerpt);
        if outdated && is_lossy(for_gtiff, &before.cut) && writer.has_encoded() {
            return Err(Error::File(Cause(format!(
                "{}: the colour interpretation was changed after tiles were encoded that depend on it, with \
                 loss; set it before the first pixel",
                self.path
            ))));
        }
        match outdated {
            true => writer.replace_engine(engine)?,
            false => writer.set_engine(engine),
        }
        let cut = tiles.cut;
        *before = Settled { cut, nodata };
        Ok(())
    }
}

/// Whether tiles of LERC or JXL that are decoded and encoded once more may differ from what was written.
/// LERC keeps no colours of what is transparent.
fn is_lossy(for_gtiff: &[(String, String)], cut: &Cut) -> bool {
    let is_zero = |value: &str| value.trim().parse::<f64>().is_ok_and(|error| error == 0.0);
    let is_lerc = find(for_gtiff, "COMPRESS")
        .is_some_and(|codec| codec.to_ascii_uppercase().starts_with("LERC"));
    is_lerc && cut.excerpt.ends_with_alpha()
        || find(for_gtiff, "MAX_Z_ERROR").is_some_and(|error| !is_zero(error))
        || find(for_gtiff, "JXL_LOSSLESS").is_some_and(|word| !is_true(Some(word)))
}

/// Of an image whose tiles GTiff encodes.
struct Special {
    wanted: Wanted,
    for_gtiff: Vec<(String, String)>,
    /// What tiles are encoded for.
    settled: Mutex<Settled>,
}

/// Tags that matter to an encoder.
struct Settled {
    cut: Cut,
    /// As far as bits are discarded, of all values but this one.
    nodata: Option<String>,
}

pub(super) unsafe extern "C" fn output_settle(output: *mut Output, hollow: *const c_char) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create` and a C string.
        let (output, hollow) = unsafe { (&*output, text(hollow)) };
        if output.special.is_none() {
            return Ok(0);
        }
        let hollow = open_hollow(&hollow)?;
        output.settle(&mut *output.writer()?, &Template::read(&hollow)?)?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn creation_prepare(
    creation: *const Creation,
    context: *mut c_void,
    emit: Emit,
) -> c_int {
    guard(0, || {
        // SAFETY: a filled struct with a list and a C string.
        let (creation, path, list, gtiff_xml) = unsafe {
            let creation = &*creation;
            (creation, text(creation.path), pairs(creation.options), text(creation.gtiff_xml))
        };
        let prepared = prepare(&Asked {
            list: &list,
            floats: creation.floats != 0,
            as_gtiff: creation.as_gtiff != 0,
            stream: creation.stream != 0,
            gtiff_xml: &gtiff_xml,
            width: creation.width.max(0) as u64,
        })?;
        for (name, value) in &prepared.for_gtiff {
            let (name, value) = (log::c_string(name), log::c_string(value));
            // SAFETY: the shim's callback copies both.
            unsafe { emit(context, name.as_ptr(), value.as_ptr()) };
        }
        let size = (creation.width.max(1) as u64, creation.height.max(1) as u64);
        let rows = hollow_rows(&prepared.for_gtiff, size, creation.sample_bytes.max(1) as u64);
        // SAFETY: the shim's variable.
        unsafe { *creation.hollow_rows = rows as c_int };
        match prepared.left_to_gtiff {
            Some(reason) => {
                log::debug(&format!("{path}: written by GTiff: {reason}"));
                Ok(2)
            }
            None => Ok(1),
        }
    })
}

pub(super) unsafe extern "C" fn output_create(
    file: *const File,
    target: *const Target,
    left_to_gtiff: *mut c_int,
) -> *mut Output {
    guard(std::ptr::null_mut(), || {
        // SAFETY: a handle from `file_open`, a filled struct, a flag.
        let (file, target) = unsafe {
            *left_to_gtiff = 0;
            (&*file, &*target)
        };
        // SAFETY: C strings and lists.
        let made = unsafe { create(file, target) };
        match made {
            Ok(output) => Ok(Box::into_raw(Box::new(output))),
            Err(error @ Error::Unsupported(_)) => {
                // SAFETY: as above.
                unsafe { *left_to_gtiff = 1 };
                // SAFETY: a C string.
                let path = unsafe { text(target.path) };
                file.shared.leave_to_gtiff(&path, "written", &error);
                Ok(std::ptr::null_mut())
            }
            Err(error) => Err(error),
        }
    })
}

fn open_hollow(path: &str) -> Result<VsiSource> {
    // SAFETY: no handle.
    Ok(VsiSource::new(unsafe { VsiFile::open(path, std::ptr::null_mut()) }?))
}

/// # Safety
/// The struct's strings must be C strings, its lists such lists.
unsafe fn create(file: &File, target: &Target) -> Result<Output> {
    if file.foreign {
        return Err(Error::Unsupported(foreign::REASON.into()));
    }
    // SAFETY: the caller's promise.
    let (path, hollow, list, mut for_gtiff) = unsafe {
        let lists = (pairs(target.options), pairs(target.gtiff_options));
        (text(target.path), text(target.hollow), lists.0, lists.1)
    };
    let shared = Arc::clone(&file.shared);
    let options = CreateOptions::parse(&for_gtiff, &list);
    let hollow = open_hollow(&hollow)?;
    let wanted = Wanted {
        height: target.height as u32,
        sample_bytes: target.sample_bytes as u8,
        bit: None,
        levels: options.levels,
        sparse: options.sparse,
        most_tile_bytes: shared.options.batch_bytes.max(LARGE_TILE),
    };
    let kind = target.kind as u32;
    let template = Template::read(&hollow)?;
    // Which a file of numbers of colours ignores.
    if template.is_paletted()? {
        for_gtiff.retain(|(name, _)| !name.eq_ignore_ascii_case(DISCARD_LSB));
    }
    let ours = match find(&for_gtiff, DISCARD_LSB) {
        // GTiff discards no bits of the nodata value, which Create()'s callers may set after the pixels.
        Some(_) if target.unnamed == 0 => {
            return Err(Error::Unsupported(format!("{DISCARD_LSB} with Create()")));
        }
        Some(bits) => Err(Error::Unsupported(format!("{DISCARD_LSB}={bits}"))),
        None => template.canvas(0, &wanted),
    };
    let (mut canvas, special) = match ours {
        Err(Error::Unsupported(why)) => {
            let cut = template.gtiff(&wanted, why.clone())?.cut;
            let nodata = template.nodata()?;
            let (canvas, engine) = encoder(&template, &wanted, kind, &for_gtiff, why)?;
            (canvas, Some((engine, Settled { cut, nodata })))
        }
        canvas => (canvas?, None),
    };
    canvas.leaves_out_nodata = leaves_out_nodata(kind);
    let tile_bytes = canvas.spec.tile_bytes();
    let whole = canvas.places.len() as u64 * tile_bytes as u64;
    let size = options.size.unwrap_or(match whole > SAFE_BYTES {
        true => Size::Big,
        false => Size::AsNeeded,
    });
    if canvas.spec.codec == Codec::None && !options.sparse {
        if size == Size::Classic && whole > u64::from(u32::MAX) {
            return Err(Error::TooLarge);
        }
        check_space(&path, whole)?;
    }
    let sink = Arc::new(match target.unnamed != 0 {
        true => VsiSink::create_unnamed(&path)?,
        false => VsiSink::create(&path)?,
    });
    // Encoded tiles wait there too, and may be larger than their pixels.
    let scratch = Scratch::new(scratch_directory(&path), 2 * tile_bytes + 4096);
    let limits =
        Limits { batch_bytes: shared.options.batch_bytes, threads: shared.options.threads };
    let engine = Arc::clone(&shared.choice.engine);
    engine.expect(whole);
    let counters = Arc::clone(&shared.counters);
    let bytes: Arc<dyn ByteSink> = sink.clone();
    let mut writer = Writer::new(bytes, scratch, engine, limits, counters, size, canvas);
    let special = special.map(|(engine, settled)| {
        writer.set_engine(engine);
        Special { wanted, for_gtiff, settled: Mutex::new(settled) }
    });
    let (writer, beside, pid) = (Mutex::new(writer), OnceLock::new(), std::process::id());
    Ok(Output { path, kind, options, shared, sink, writer, beside, special, pid })
}

/// As GTiff: a large uncompressed file needs the space it will take.
pub(super) fn check_space(path: &str, bytes: u64) -> Result<()> {
    let asked = log::config("CHECK_DISK_FREE_SPACE").unwrap_or("TRUE".into());
    if bytes < CHECKED_BYTES || !is_true(Some(&asked)) {
        return Ok(());
    }
    match free_space(&directory_of(path).to_string_lossy()) {
        Some(free) if free < bytes => Err(Error::File(Cause(format!(
            "Free disk space available is {free} bytes, whereas {bytes} are at least necessary. \
             You can disable this check by defining the CHECK_DISK_FREE_SPACE configuration \
             option to FALSE."
        )))),
        _ => Ok(()),
    }
}

fn directory_of(path: &str) -> PathBuf {
    let parent = PathBuf::from(path).parent().map(PathBuf::from).unwrap_or_default();
    if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent }
}

/// Beside the target, unless the user says where, or the target is nowhere on a disk.
fn scratch_directory(path: &str) -> PathBuf {
    match log::config("CPL_TMPDIR") {
        Some(directory) => PathBuf::from(directory),
        None if path.starts_with("/vsi") => std::env::temp_dir(),
        None => directory_of(path),
    }
}

pub(super) unsafe extern "C" fn output_add_mask(
    output: *mut Output,
    hollow: *const c_char,
    bit: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: a handle from `output_create` and a C string.
        let (output, hollow) = unsafe { (&*output, text(hollow)) };
        let hollow = open_hollow(&hollow)?;
        let mut writer = output.writer()?;
        let canvas = Template::read(&hollow)?.canvas(
            1,
            &Wanted {
                height: writer.canvas(0).grid.height,
                sample_bytes: 1,
                bit: u8::try_from(bit).ok(),
                levels: output.options.levels,
                sparse: output.options.sparse,
                most_tile_bytes: writer.canvas(0).spec.tile_bytes(),
            },
        )?;
        Ok(writer.add(canvas) as c_int)
    })
}

/// Whether tiles of a nodata value may be left out. GTiff never leaves out tiles of complex numbers, nor
/// of 64-bit integers that have a nodata value.
fn leaves_out_nodata(kind: u32) -> bool {
    use gdal_sys::GDALDataType::{GDT_CFloat64, GDT_CInt16, GDT_Int64, GDT_UInt64};
    let complex = (GDT_CInt16..=GDT_CFloat64).contains(&kind);
    !complex && ![GDT_Int64, GDT_UInt64].contains(&kind)
}

pub(super) unsafe extern "C" fn output_set_fill(output: *mut Output, sample: *const c_void) {
    guard((), || {
        // SAFETY: a handle from `output_create`.
        let mut writer = unsafe { &*output }.writer()?;
        if sample.is_null() {
            writer.write_all(0);
            return Ok(());
        }
        let bytes = writer.canvas(0).spec.sample.bytes();
        // SAFETY: the shim passes one sample.
        let sample = unsafe { std::slice::from_raw_parts(sample.cast(), bytes) };
        writer.set_fill(0, sample)
    });
}

pub(super) unsafe extern "C" fn output_write(
    output: *mut Output,
    image: c_int,
    request: *const Request,
) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create` and a filled struct with its bands.
        let (output, request) = unsafe { (&*output, &*request) };
        // SAFETY: as above.
        let bands =
            unsafe { std::slice::from_raw_parts(request.bands, request.band_count as usize) };
        let mut writer = output.writer()?;
        let image = image as usize;
        let unit = writer.canvas(image).spec.sample.bytes();
        // A mask is bytes, whatever the image is.
        let kind = if image == 0 { output.kind } else { 1 };
        // SAFETY: GDAL checked the window and vouches for the buffer.
        let buffer = unsafe { Buffer::new(request, bands, kind, unit) };
        let written = writer.write(image, &buffer);
        output.tell(&writer);
        written.map(|()| 0)
    })
}

pub(super) unsafe extern "C" fn output_read(
    output: *mut Output,
    image: c_int,
    band: c_int,
    column: c_int,
    row: c_int,
    data: *mut c_void,
) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create`.
        let mut writer = unsafe { &*output }.writer()?;
        let image = image as usize;
        let band = band as usize - 1;
        let canvas = writer.canvas(image);
        let plane = if canvas.grid.planes > 1 { band as u32 } else { 0 };
        let tile = Tile { column: column as u32, row: row as u32, plane };
        // SAFETY: GDAL's block is one tile of one band.
        let to = unsafe { std::slice::from_raw_parts_mut(data.cast(), canvas.plane_bytes()) };
        writer.read_plane(image, tile, band, to)?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn output_written(
    output: *mut Output,
    image: c_int,
    band: c_int,
    window: *const c_int,
) -> i64 {
    guard(-1, || {
        // SAFETY: a handle from `output_create` and four numbers.
        let (output, window) = unsafe { (&*output, std::slice::from_raw_parts(window, 4)) };
        let size = |i: usize| window[i].max(0) as u32;
        let window = Rect { x: size(0), y: size(1), width: size(2), height: size(3) };
        let writer = output.writer()?;
        Ok(writer.written(image as usize, &window, band as usize - 1) as i64)
    })
}

pub(super) unsafe extern "C" fn output_copy(
    output: *mut Output,
    image: c_int,
    source_rows: c_int,
    bands_together: c_int,
    source: *const Image,
) {
    guard((), || {
        // SAFETY: a handle from `output_create`, and NULL or one from `image_open`.
        let (mut writer, source) = unsafe { ((&*output).writer()?, source.as_ref()) };
        let plan = CopyPlan {
            source_rows: source_rows.max(1) as u32,
            bands_together: bands_together != 0,
            source: source.map(|image| Arc::clone(&image.reader)),
        };
        writer.copy_image(image as usize, plan)?;
        Ok(())
    });
}

pub(super) unsafe extern "C" fn output_swath(output: *mut Output, swath: *mut Swath) -> c_int {
    guard(-1, || {
        // SAFETY: a handle from `output_create`.
        let mut writer = unsafe { &*output }.writer()?;
        let view = match writer.next_swath()? {
            Some(Step::Fill(view)) => view,
            Some(Step::Went(done)) => {
                // SAFETY: the shim's struct.
                unsafe { (*swath).done = done };
                return Ok(2);
            }
            None => return Ok(0),
        };
        let filled = Swath {
            x: view.rect.x as c_int,
            y: view.rect.y as c_int,
            width: view.rect.width as c_int,
            height: view.rect.height as c_int,
            first_band: view.first_band as c_int + 1,
            band_count: view.bands as c_int,
            data: view.data.as_mut_ptr().cast(),
            pixel_space: view.pixel as i64,
            line_space: view.line as i64,
            band_space: view.band as i64,
            done: view.done,
        };
        // SAFETY: the shim's struct.
        unsafe { *swath = filled };
        Ok(1)
    })
}

pub(super) unsafe extern "C" fn output_take(output: *mut Output) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create`.
        unsafe { &*output }.writer()?.take_swath()?;
        Ok(0)
    })
}

pub(super) unsafe extern "C" fn output_copy_tiles(
    output: *mut Output,
    image: *const Image,
    one_fill: c_int,
    context: *mut c_void,
    progress: unsafe extern "C" fn(*mut c_void, f64) -> c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: handles from `output_create` and `image_open`.
        let (output, image) = unsafe { (&*output, &*image) };
        if !output.options.copy_tiles || output.options.level_given {
            return Ok(0);
        }
        // SAFETY: the shim's callback, on the calling thread.
        let progress = |done| unsafe { progress(context, done) != 0 };
        let source = image.reader.image();
        let copied = output.writer()?.copy_tiles(source, one_fill != 0, &progress)?;
        Ok(c_int::from(copied))
    })
}

/// # Safety
/// `hollow` must be a C string.
unsafe fn end(output: &Output, hollow: *const c_char, last: bool) -> Result<()> {
    // SAFETY: the caller's promise.
    let hollow = open_hollow(&unsafe { text(hollow) })?;
    let mut writer = output.writer()?;
    let template = Template::read(&hollow)?;
    output.settle(&mut writer, &template)?;
    let directories = template.directories(writer.images())?;
    let ended = if last { writer.finish(directories) } else { writer.flush(directories) };
    output.tell(&writer);
    ended?;
    drop(writer);
    if !last {
        return Ok(());
    }
    output.sink.close()
}

pub(super) unsafe extern "C" fn output_flush(output: *mut Output, hollow: *const c_char) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create` and a C string.
        let ended = unsafe { end(&*output, hollow, false) };
        // SAFETY: as above.
        unsafe { &*output }.shared.tell();
        ended.map(|()| 0)
    })
}

pub(super) unsafe extern "C" fn output_finish(output: *mut Output, hollow: *const c_char) -> c_int {
    guard(1, || {
        // SAFETY: a handle from `output_create` and a C string.
        let ended = unsafe { end(&*output, hollow, true) };
        // SAFETY: as above.
        unsafe { &*output }.shared.tell();
        ended.map(|()| 0)
    })
}

pub(super) unsafe extern "C" fn output_beside(output: *const Output) -> *const c_char {
    guard(std::ptr::null(), || {
        // SAFETY: a handle from `output_create`.
        let output = unsafe { &*output };
        if !output.sink.is_unnamed() {
            return Ok(std::ptr::null());
        }
        let (_, name) = output.beside.get_or_init(|| {
            let path = Path::new(&output.path);
            let beside = Beside::new(path);
            let file = path.file_name().map(|name| name.to_string_lossy());
            let name = log::c_string(&beside.name(&file.unwrap_or_default()));
            (beside, name)
        });
        Ok(name.as_ptr())
    })
}

/// The end of a copy. `beside` puts what belongs beside the file there, right before the file can be
/// opened under its name; false after it raised an error.
///
/// # Safety
/// `hollow` must be a C string.
unsafe fn end_copy(
    output: &Output,
    hollow: *const c_char,
    beside: impl Fn() -> bool,
) -> Result<bool> {
    if !output.sink.is_unnamed() {
        // SAFETY: the caller's promise.
        return Ok(beside() && unsafe { end(output, hollow, true) }.map(|()| true)?);
    }
    // SAFETY: the caller's promise.
    unsafe { end(output, hollow, true) }?;
    if let Some((files, _)) = output.beside.get() {
        files.publish(None)?;
    }
    if !beside() {
        return Ok(false);
    }
    output.sink.publish()?;
    Ok(true)
}

pub(super) unsafe extern "C" fn output_finish_copy(
    output: *mut Output,
    hollow: *const c_char,
    context: *mut c_void,
    beside: unsafe extern "C" fn(*mut c_void) -> c_int,
) -> c_int {
    guard(1, || {
        // SAFETY: the shim's callback, on the calling thread.
        let beside = || unsafe { beside(context) != 0 };
        // SAFETY: a handle from `output_create` and a C string.
        let ended = unsafe { end_copy(&*output, hollow, beside) };
        // SAFETY: as above.
        unsafe { &*output }.shared.tell();
        ended.map(|ended| c_int::from(!ended))
    })
}

pub(super) unsafe extern "C" fn output_free(output: *mut Output, remove: c_int) {
    guard((), || {
        if output.is_null() {
            return Ok(());
        }
        // SAFETY: made by Box::into_raw, freed once.
        let output = unsafe { Box::from_raw(output) };
        if output.pid != std::process::id() {
            // The workers that a batch waits for are the parent's.
            std::mem::forget(output);
            return Ok(());
        }
        let shared = Arc::clone(&output.shared);
        let sink = Arc::clone(&output.sink);
        if let Some((files, _)) = output.beside.get().filter(|_| remove != 0) {
            files.remove();
        }
        drop(output);
        if remove != 0 {
            sink.close().ok();
            sink.unlink();
        }
        drop(shared);
        Ok(())
    });
}
