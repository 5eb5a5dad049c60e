//! Files to be written: a dataset that our driver creates, behind a lock, until it is finished
//! or given up.
//!
//! A writer that is freed before it was finished leaves no file.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::Table;
use super::kind::{GPUGTIFF_TYPE_I64, GPUGTIFF_TYPE_OWN, GPUGTIFF_TYPE_U64, Kind, gpugtiff_type};
use super::raster::out;
use super::request::{Buffer, Chosen, Place, Selection, Use, Window};
use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_IO, GPUGTIFF_OPEN_FAILED, GPUGTIFF_STATE, GPUGTIFF_UNSUPPORTED,
    Outcome, ask_gdal, ask_gdal_strictly, fail, gpugtiff_result, guard,
};
use super::shim::{
    check_options, driver, gpugtiff_shim_close, gpugtiff_shim_discard, gpugtiff_shim_file, text,
};
use super::sized::{Tagged, take};
use crate::capi::{Shared, pairs};
use crate::gdal::dataset::{Creation, Dataset, NoData, driver_item, unlink};
use crate::gdal::messages::capture;
use crate::options::create::{self, Asked};

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A file that is being written.
pub struct Writer {
    state: Mutex<State>,
    path: CString,
    name: String,
    size: [c_int; 2],
    bands: c_int,
    kind: Kind,
    pub(super) shared: Arc<Shared>,
}

/// How far a file is.
enum State {
    /// Pixels may come.
    Open(Dataset),
    /// It is complete.
    Finished,
    /// It could not be completed, and what there is of it is of no use.
    Failed,
    /// It was removed.
    Aborted,
}

pub(super) static WRITERS: Table<Writer> = Table::new("writer");

/// What a file shall be like. Make one with gpugtiff_spec_init().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// sizeof(gpugtiff_spec)
    pub size: usize,
    /// Columns.
    pub width: i64,
    /// Rows.
    pub height: i64,
    /// Bands.
    pub bands: i32,
    /// Type of the samples; GPUGTIFF_TYPE_OWN is none.
    pub r#type: gpugtiff_type,
    /// GDAL's six numbers, or NULL.
    pub geotransform: *const f64,
    /// The coordinate system: WKT, or NULL.
    pub wkt: *const c_char,
    /// What stands for missing data in all bands, or NULL.
    pub nodata: *const f64,
    /// The same for GPUGTIFF_TYPE_I64, exactly. At most one of the three is set.
    pub nodata_i64: *const i64,
    /// The same for GPUGTIFF_TYPE_U64, exactly.
    pub nodata_u64: *const u64,
    /// Creation options of the driver as NAME=VALUE, the last one NULL; or NULL.
    pub options: *const *const c_char,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            size: size_of::<Spec>(),
            width: 0,
            height: 0,
            bands: 0,
            r#type: GPUGTIFF_TYPE_OWN,
            geotransform: std::ptr::null(),
            wkt: std::ptr::null(),
            nodata: std::ptr::null(),
            nodata_i64: std::ptr::null(),
            nodata_u64: std::ptr::null(),
            options: std::ptr::null(),
        }
    }
}

// SAFETY: repr(C), the size first, pointers and numbers only.
unsafe impl Tagged for Spec {
    const NAME: &'static str = "gpugtiff_spec";
    const SMALLEST: usize = offset_of!(Spec, options) + size_of::<*const *const c_char>();
}

/// A spec that was checked.
struct Order<'a> {
    size: [c_int; 2],
    bands: c_int,
    kind: Kind,
    geotransform: Option<[f64; 6]>,
    wkt: Option<&'a CStr>,
    nodata: Option<NoData>,
    options: *const *const c_char,
}

impl<'a> Order<'a> {
    /// # Safety
    /// The spec's pointers must be NULL or what they say, for as long as the order is used.
    unsafe fn new(spec: &Spec) -> Outcome<Order<'a>> {
        let size = |n: i64, what: &str| match c_int::try_from(n) {
            Ok(n @ 1..) => Ok(n),
            _ => {
                let text = format!("gpugtiff_spec.{what} is {n}: expected 1 to {}", c_int::MAX);
                fail(GPUGTIFF_BAD_ARGUMENT, text)
            }
        };
        let sizes = [size(spec.width, "width")?, size(spec.height, "height")?];
        let bands = size(spec.bands.into(), "bands")?;
        if spec.r#type == GPUGTIFF_TYPE_OWN {
            let text = "gpugtiff_spec.type is 0: expected a type of samples";
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        }
        let kind = Kind::of(spec.r#type, Kind { gdal: 0, bytes: 0 })?;
        // SAFETY: the caller's promise.
        let (geotransform, wkt, nodata) = unsafe {
            let six = spec.geotransform.cast::<[f64; 6]>();
            let wkt = (!spec.wkt.is_null()).then(|| CStr::from_ptr(spec.wkt));
            ((!six.is_null()).then(|| six.read_unaligned()), wkt, nodata(spec)?)
        };
        let options = spec.options;
        Ok(Order { size: sizes, bands, kind, geotransform, wkt, nodata, options })
    }

    /// Tells the dataset all but pixels.
    fn describe(&self, dataset: Dataset) -> bool {
        let nodata =
            |value| (1..=self.bands).all(|n| dataset.band(n).is_some_and(|b| b.set_nodata(value)));
        self.geotransform.is_none_or(|six| dataset.set_geotransform(&six))
            && self.wkt.is_none_or(|wkt| dataset.set_wkt(wkt))
            && self.nodata.is_none_or(nodata)
    }
}

/// # Safety
/// The spec's pointers must be NULL or point to numbers.
unsafe fn nodata(spec: &Spec) -> Outcome<Option<NoData>> {
    // SAFETY: the caller's promise.
    let values = unsafe {
        [
            spec.nodata.as_ref().map(|&n| NoData::Double(n)),
            spec.nodata_i64.as_ref().map(|&n| NoData::Int64(n)),
            spec.nodata_u64.as_ref().map(|&n| NoData::UInt64(n)),
        ]
    };
    let mut values = values.into_iter().flatten();
    let value = values.next();
    if values.next().is_some() {
        let text = "more than one of nodata, nodata_i64 and nodata_u64 is set in gpugtiff_spec";
        return fail(GPUGTIFF_BAD_ARGUMENT, text);
    }
    // Of 64 bits exactly, or not at all: GDAL would take the next best.
    let value = match value {
        Some(NoData::Double(n)) => Some(exact(n, spec.r#type)?),
        other => other,
    };
    let wanted = match value {
        Some(NoData::Int64(_)) => GPUGTIFF_TYPE_I64,
        Some(NoData::UInt64(_)) => GPUGTIFF_TYPE_U64,
        _ => spec.r#type,
    };
    if wanted != spec.r#type {
        let text = "gpugtiff_spec.nodata_i64 and nodata_u64 are for samples of these types only";
        return fail(GPUGTIFF_BAD_ARGUMENT, text);
    }
    Ok(value)
}

/// A double as nodata of samples of this type.
fn exact(value: f64, kind: gpugtiff_type) -> Outcome<NoData> {
    let found = match kind {
        GPUGTIFF_TYPE_I64 => (value as i64 as f64 == value && value < TWO_TO_63)
            .then_some(NoData::Int64(value as i64)),
        GPUGTIFF_TYPE_U64 => (value as u64 as f64 == value && value < 2.0 * TWO_TO_63)
            .then_some(NoData::UInt64(value as u64)),
        _ => Some(NoData::Double(value)),
    };
    match found {
        Some(found) => Ok(found),
        None => {
            let text = format!("gpugtiff_spec.nodata is {value}, which no sample can be");
            fail(GPUGTIFF_BAD_ARGUMENT, text)
        }
    }
}

impl Writer {
    /// # Safety
    /// The order's options must be a list.
    unsafe fn create(path: &CStr, order: &Order<'_>) -> Outcome<Writer> {
        let driver = driver()?;
        // SAFETY: our driver, and the caller's promise.
        unsafe {
            check_options(driver, c"DMD_CREATIONOPTIONLIST", order.options)?;
            check_values(driver, order)?;
        }
        let name = path.to_string_lossy().into_owned();
        let creation = Creation {
            path,
            size: order.size,
            bands: order.bands,
            kind: order.kind.gdal,
            options: order.options,
        };
        let dataset = ask_gdal(&format!("creating {name}"), GPUGTIFF_OPEN_FAILED, || {
            // SAFETY: our driver, and the caller's list.
            unsafe { creation.create(driver) }
        })?;
        // SAFETY: just made, and ours alone; it has its file as long as it is open.
        let shared = unsafe { Shared::of(gpugtiff_shim_file(dataset.handle()).cast()) };
        let described = ask_gdal(&format!("describing {name}"), GPUGTIFF_BAD_ARGUMENT, || {
            order.describe(dataset).then_some(())
        });
        let Some((shared, ())) = shared.zip(described.as_ref().ok().copied()) else {
            discard(dataset);
            described?;
            return fail(GPUGTIFF_UNSUPPORTED, format!("{name} is not written by this driver"));
        };
        Ok(Writer {
            state: Mutex::new(State::Open(dataset)),
            path: path.to_owned(),
            name,
            size: order.size,
            bands: order.bands,
            kind: order.kind,
            shared,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dataset, unless the file is finished or given up.
    fn open(&self, state: &State) -> Outcome<Dataset> {
        let over = match state {
            State::Open(dataset) => return Ok(*dataset),
            State::Finished => "is finished",
            State::Failed => "could not be finished",
            State::Aborted => "was given up",
        };
        fail(GPUGTIFF_STATE, format!("{} {over}: nothing can be written any more", self.name))
    }

    fn finish(&self) -> Outcome<()> {
        let mut state = self.state();
        let dataset = self.open(&state)?;
        *state = State::Failed;
        // GDAL 3.6 tells of a failed close by messages only.
        ask_gdal_strictly(&format!("finishing {}", self.name), GPUGTIFF_IO, || {
            // SAFETY: ours, and nobody uses it after this.
            unsafe { gpugtiff_shim_close(dataset.handle()) == 0 }
        })?;
        *state = State::Finished;
        Ok(())
    }

    /// Removes the file, unless it is complete.
    fn abort(&self) -> Outcome<()> {
        let mut state = self.state();
        match *state {
            State::Open(dataset) => discard(dataset),
            State::Failed => {
                capture(|| unlink(&self.path));
            }
            State::Aborted => {}
            State::Finished => {
                let text = format!("{} is finished: it is not removed any more", self.name);
                return fail(GPUGTIFF_STATE, text);
            }
        }
        *state = State::Aborted;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A complete file stays, and says so.
        let _ = self.abort();
    }
}

/// Refuses values that mean nothing before GDAL removes a file of that name to make room.
///
/// # Safety
/// `driver` must be ours, and the options a list.
unsafe fn check_values(driver: *mut c_void, order: &Order<'_>) -> Outcome<()> {
    // SAFETY: the caller's promise.
    let (list, xml) =
        unsafe { (pairs(order.options), driver_item(driver, c"DMD_CREATIONOPTIONLIST")) };
    let asked = Asked {
        list: &list,
        floats: order.kind.is_float(),
        as_gtiff: false,
        stream: false,
        gtiff_xml: &xml.to_string_lossy(),
        width: order.size[0].max(0) as u64,
    };
    create::prepare(&asked)?;
    Ok(())
}

/// Closes a dataset that was being created and removes its files. What GDAL has to say about
/// that nobody needs to know.
fn discard(dataset: Dataset) {
    // SAFETY: ours, and nobody uses it after this.
    capture(|| unsafe { gpugtiff_shim_discard(dataset.handle()) });
}

/// Begins a file. What is there under this name is replaced, as GDAL does. Feed it with
/// gpugtiff_writer_write(), end it with gpugtiff_writer_finish(), and free it with
/// gpugtiff_writer_free(). After a failure there is no file. Thread-safe.
///
/// # Safety
/// `path` must be a C string, `spec` what it says, `out_writer` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_writer_create(
    path: *const c_char,
    spec: *const Spec,
    out_writer: *mut *mut Writer,
) -> gpugtiff_result {
    guard(|| {
        // SAFETY: the caller's promise.
        let writer = unsafe {
            let path = text(path, "path")?;
            let spec = take(spec)?;
            out(out_writer, "out_writer")?;
            Writer::create(path, &Order::new(&spec)?)
        }?;
        // SAFETY: the caller's place.
        unsafe { *out_writer = WRITERS.give_out(writer)? };
        Ok(())
    })
}

/// Writes a window of the buffer's pixels: windows in any order, each pixel any number of times.
/// `window` NULL is the whole image, `selection` NULL all bands in the file's type. What is never
/// written becomes nodata, or 0. Thread-safe: windows are taken one after the other.
///
/// # Safety
/// Structs must be what they say, and the buffer's bytes readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_writer_write(
    writer: *mut Writer,
    window: *const Window,
    selection: *const Selection,
    buffer: *const Buffer,
) -> gpugtiff_result {
    guard(|| {
        let writer = WRITERS.get(writer)?;
        // SAFETY: the caller's promise.
        let (chosen, window, place) = unsafe {
            let chosen = Chosen::new(selection, writer.bands, writer.kind)?;
            let window = Window::inside(window, writer.size)?;
            let place = Place::new(buffer, &window, &chosen, Use::From)?;
            (chosen, window, place)
        };
        chosen.check_for_writing()?;
        let state = writer.state();
        let dataset = writer.open(&state)?;
        // SAFETY: the place was checked; the dataset is locked.
        unsafe {
            match place.device {
                None => writer.write(dataset, &window, &chosen, &place),
                Some(device) => writer.write_from_device(dataset, &window, &chosen, &place, device),
            }
        }
    })
}

impl Writer {
    /// # Safety
    /// The place must hold the window's samples, and the dataset be locked.
    pub(super) unsafe fn write(
        &self,
        dataset: Dataset,
        window: &Window,
        chosen: &Chosen,
        place: &Place,
    ) -> Outcome<()> {
        let pixels = place.transfer(window, chosen, true);
        ask_gdal(&format!("{}: writing", self.name), GPUGTIFF_IO, || {
            // SAFETY: the caller's promise.
            unsafe { dataset.transfer(0, &pixels) }.then_some(())
        })
    }
}

/// Completes the file and closes it. After a failure the file is of no use, and freeing the
/// writer removes it; after success it is all there. The handle stays until it is freed.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_writer_finish(writer: *mut Writer) -> gpugtiff_result {
    guard(|| WRITERS.get(writer)?.finish())
}

/// Gives the file up and removes it. GPUGTIFF_STATE if it is finished already. The handle stays
/// until it is freed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_writer_abort(writer: *mut Writer) -> gpugtiff_result {
    guard(|| WRITERS.get(writer)?.abort())
}

/// Frees a writer; NULL is fine. A file that was not finished is removed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_writer_free(writer: *mut Writer) -> gpugtiff_result {
    guard(|| WRITERS.take_back(writer).map(drop))
}
