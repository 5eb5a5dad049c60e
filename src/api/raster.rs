//! Rasters to read from: a dataset of ours, and what is known of it.
//!
//! GDAL's datasets are for one thread at a time; `held` makes a raster one for many. How pixels
//! get past its lock is in `read`.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, OnceLock};

use super::handle::Table;
use super::held::{Held, Holding};
use super::kind::{Kind, gpugtiff_type};
use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_CORRUPT, GPUGTIFF_FOREIGN_DATASET, GPUGTIFF_NULL_ARGUMENT,
    GPUGTIFF_OPEN_FAILED, GPUGTIFF_UNSUPPORTED, Outcome, ask_gdal, fail, gpugtiff_result, guard,
};
use super::shim::{
    check_options, driver, gpugtiff_shim_file, gpugtiff_shim_kind, gpugtiff_shim_open, text,
};
use super::sized::{Out, Tagged};
use crate::capi::{Image, Shared};
use crate::gdal::dataset::{Band, Dataset, NoData};
use crate::gdal::messages::capture;

/// A raster that is open for reading.
pub struct Raster {
    pub(super) holding: Holding,
    /// The dataset is the caller's, who may close it once the raster is freed.
    wrapped: bool,
    pub(super) name: String,
    pub(super) bands: c_int,
    pub(super) kind: Kind,
    image: Level,
    pub(super) shared: Arc<Shared>,
    levels: OnceLock<Vec<Level>>,
    wkt: OnceLock<CString>,
    /// What our engines decode, by level, once it was looked at.
    pub(super) decoded: Mutex<HashMap<c_int, Option<Arc<Image>>>>,
}

/// The image or an overview.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) size: [c_int; 2],
    pub(super) tile: [c_int; 2],
}

pub(super) static RASTERS: Table<Raster> = Table::new("raster");

/// What stands for missing data in a band.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Nodata {
    /// 1 if there is such a value, else 0 and the others mean nothing.
    pub is_set: i32,
    /// The band's type. The value is exact in `i64` for GPUGTIFF_TYPE_I64, in `u64` for
    /// GPUGTIFF_TYPE_U64, and in `value` for all others.
    pub r#type: gpugtiff_type,
    /// As a double.
    pub value: f64,
    /// As a signed number, cut off at its range.
    pub i64: i64,
    /// As an unsigned number, cut off at its range.
    pub u64: u64,
}

/// Facts of a raster, for one level of it. Make one with gpugtiff_raster_facts_init().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RasterFacts {
    /// sizeof(gpugtiff_raster_facts)
    pub size: usize,
    /// Columns of the level.
    pub width: i64,
    /// Rows of the level.
    pub height: i64,
    /// Bands.
    pub bands: i32,
    /// Type of the samples.
    pub r#type: gpugtiff_type,
    /// Columns of a tile; of a strip those of the image. Windows of whole tiles are read
    /// fastest.
    pub tile_width: i32,
    /// Rows of a tile or strip.
    pub tile_height: i32,
    /// Levels: 1 for the image and 1 for each overview.
    pub levels: i32,
    /// 1 if `geotransform` is set.
    pub has_geotransform: i32,
    /// GDAL's six numbers, for the pixels of this level.
    pub geotransform: [f64; 6],
    /// Of the first band.
    pub nodata: Nodata,
}

impl Default for RasterFacts {
    fn default() -> RasterFacts {
        RasterFacts {
            size: size_of::<RasterFacts>(),
            width: 0,
            height: 0,
            bands: 0,
            r#type: 0,
            tile_width: 0,
            tile_height: 0,
            levels: 0,
            has_geotransform: 0,
            geotransform: [0.0; 6],
            nodata: Nodata::default(),
        }
    }
}

// SAFETY: repr(C), the size first, numbers only.
unsafe impl Tagged for RasterFacts {
    const NAME: &'static str = "gpugtiff_raster_facts";
    const SMALLEST: usize = offset_of!(RasterFacts, nodata) + size_of::<Nodata>();
}

impl Raster {
    /// # Safety
    /// `handle` must be a dataset of ours, and one reference to it ours to release.
    unsafe fn new(handle: *mut c_void, name: String, wrapped: bool) -> Outcome<Raster> {
        // SAFETY: the caller's promise; the lock sees to one thread at a time.
        let dataset = unsafe { Dataset::new(handle) };
        let holding = Holding::new(dataset, &name)?;
        // SAFETY: a dataset of ours, which has its file as long as it is open.
        let shared = unsafe { Shared::of(gpugtiff_shim_file(handle).cast()) };
        let (Some(shared), Some(first)) = (shared, dataset.band(1)) else {
            return fail(GPUGTIFF_UNSUPPORTED, format!("{name} has no bands"));
        };
        let kind = Kind::of_gdal(first.kind())?;
        let image = Level { size: dataset.size(), tile: first.block() };
        Ok(Raster {
            holding,
            wrapped,
            name,
            bands: dataset.bands(),
            kind,
            image,
            shared,
            levels: OnceLock::new(),
            wkt: OnceLock::new(),
            decoded: Mutex::default(),
        })
    }

    fn levels(&self) -> &[Level] {
        if let Some(levels) = self.levels.get() {
            return levels;
        }
        let (_guard, dataset) = self.holding.lock();
        self.levels.get_or_init(|| {
            // What GTiff cannot read of an overview it says when pixels are wanted.
            let (overviews, _) = capture(|| overviews(dataset));
            std::iter::once(self.image).chain(overviews).collect()
        })
    }

    /// A level that the raster has.
    pub(super) fn level(&self, level: c_int) -> Outcome<Level> {
        if level == 0 {
            return Ok(self.image);
        }
        let levels = self.levels();
        match usize::try_from(level).ok().and_then(|level| levels.get(level)) {
            Some(level) => Ok(*level),
            None => {
                let (name, count) = (&self.name, levels.len());
                let text = format!("{name} has no level {level}: expected 0 to {}", count - 1);
                fail(GPUGTIFF_BAD_ARGUMENT, text)
            }
        }
    }

    fn info(&self, number: c_int) -> Outcome<RasterFacts> {
        let level = self.level(number)?;
        let levels = self.levels().len() as i32;
        let (_guard, dataset) = self.holding.lock();
        let what = format!("{}: asking for georeferencing and nodata", self.name);
        let (geotransform, nodata) = ask_gdal(&what, GPUGTIFF_CORRUPT, || {
            Some((dataset.geotransform(), dataset.band(1).map(nodata).unwrap_or_default()))
        })?;
        Ok(RasterFacts {
            width: level.size[0].into(),
            height: level.size[1].into(),
            bands: self.bands,
            r#type: self.kind.number(),
            tile_width: level.tile[0],
            tile_height: level.tile[1],
            levels,
            has_geotransform: i32::from(geotransform.is_some()),
            geotransform: geotransform.map_or([0.0; 6], |six| self.scaled(six, level.size)),
            nodata,
            ..RasterFacts::default()
        })
    }

    /// The geotransform of a level with this size.
    fn scaled(&self, mut six: [f64; 6], size: [c_int; 2]) -> [f64; 6] {
        if size != self.image.size {
            let ratio = |i: usize| f64::from(self.image.size[i]) / f64::from(size[i]);
            for (x, y) in [(1, 2), (4, 5)] {
                six[x] *= ratio(0);
                six[y] *= ratio(1);
            }
        }
        six
    }
}

/// Overviews that all bands have in the same size.
fn overviews(dataset: Dataset) -> Vec<Level> {
    let count = dataset.band(1).map_or(0, Band::overviews);
    let level = |n: c_int| {
        let first = dataset.band_of(1, n)?;
        let same = |band| dataset.band_of(band, n).is_some_and(|b| b.size() == first.size());
        let all = (2..=dataset.bands()).all(same);
        all.then(|| Level { size: first.size(), tile: first.block() })
    };
    (1..=count).map_while(level).collect()
}

fn nodata(band: Band) -> Nodata {
    let kind = Kind::of_gdal(band.kind()).map(Kind::number).unwrap_or_default();
    let Some(value) = band.nodata() else { return Nodata { r#type: kind, ..Nodata::default() } };
    // `as` cuts off at the range of the type.
    let (value, i64, u64) = match value {
        NoData::Double(n) => (n, n as i64, n as u64),
        NoData::Int64(n) => (n as f64, n, n.max(0) as u64),
        NoData::UInt64(n) => (n as f64, n.min(i64::MAX as u64) as i64, n),
    };
    Nodata { is_set: 1, r#type: kind, value, i64, u64 }
}

/// Refuses NULL where an answer is to be put.
pub(super) fn out<T>(place: *mut T, name: &str) -> Outcome<()> {
    match place.is_null() {
        true => fail(GPUGTIFF_NULL_ARGUMENT, format!("{name} is NULL")),
        false => Ok(()),
    }
}

/// Opens a TIFF file for reading: any path that GDAL knows (/vsicurl/…, /vsizip/…, GTIFF_DIR:…).
/// `options` are the driver's open options as NAME=VALUE, the last one NULL; or NULL. GDAL need
/// not have been initialised: the driver registers itself, and nothing else. Free the raster
/// with gpugtiff_raster_free(), and before GDALDestroyDriverManager(). Thread-safe.
///
/// # Safety
/// `path` must be a C string, `options` NULL or such a list, `out_raster` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_open(
    path: *const c_char,
    options: *const *const c_char,
    out_raster: *mut *mut Raster,
) -> gpugtiff_result {
    guard(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        out(out_raster, "out_raster")?;
        let driver = driver()?;
        // SAFETY: our driver; the list is the caller's promise.
        unsafe { check_options(driver, c"DMD_OPENOPTIONLIST", options) }?;
        let name = path.to_string_lossy().into_owned();
        let handle = ask_gdal(&format!("opening {name}"), GPUGTIFF_OPEN_FAILED, || {
            // SAFETY: the caller's promise.
            let handle = unsafe { gpugtiff_shim_open(path.as_ptr(), options) };
            (!handle.is_null()).then_some(handle)
        })?;
        // SAFETY: just opened, with one reference.
        let raster = unsafe { Raster::new(handle, name, false) }?;
        // SAFETY: the caller's place.
        unsafe { *out_raster = RASTERS.give_out(raster)? };
        Ok(())
    })
}

/// A raster of a GDALDatasetH that this driver opened, in this copy of the library. It holds a
/// reference until it is freed: end your own with GDALReleaseDataset(), or free the raster before
/// you call GDALClose(), which closes the dataset whoever refers to it. While the raster is there,
/// other threads must leave the dataset alone and nobody may change it. GPUGTIFF_STATE if the
/// dataset has a raster already. Thread-safe.
///
/// # Safety
/// `dataset` must be a GDALDatasetH that is open, `out_raster` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_wrap(
    dataset: *mut c_void,
    out_raster: *mut *mut Raster,
) -> gpugtiff_result {
    guard(|| {
        if dataset.is_null() {
            return fail(GPUGTIFF_NULL_ARGUMENT, "the dataset is NULL");
        }
        out(out_raster, "out_raster")?;
        // SAFETY: the caller's promise.
        let refusal = match unsafe { gpugtiff_shim_kind(dataset) } {
            1 => None,
            2 => Some("it is an overview or a mask: expected the dataset it belongs to"),
            3 => Some("it is being created: expected one that is open for reading"),
            _ => Some("expected one that the driver GPUGTiff of this library opened"),
        };
        // SAFETY: the caller's promise.
        let wrapped = unsafe { Dataset::new(dataset) };
        let name = wrapped.name().to_string_lossy().into_owned();
        if let Some(refusal) = refusal {
            let text = format!("the dataset '{name}' cannot be wrapped: {refusal}");
            return fail(GPUGTIFF_FOREIGN_DATASET, text);
        }
        wrapped.reference();
        // SAFETY: a dataset of ours; the reference is released with the raster.
        let raster = unsafe { Raster::new(dataset, name, true) }?;
        // SAFETY: the caller's place.
        unsafe { *out_raster = RASTERS.give_out(raster)? };
        Ok(())
    })
}

/// Frees a raster; NULL is fine. Calls that other threads are in with it end first, but for
/// gpugtiff_raster_counters(), whose callback may call this. Tensors and batches that came from it
/// stay, but for batches of a raster that was wrapped: its dataset is given back before this
/// returns. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_raster_free(raster: *mut Raster) -> gpugtiff_result {
    guard(|| {
        if let Some(raster) = RASTERS.take_back(raster)? {
            match raster.wrapped {
                true => raster.holding.give_back(),
                false => raster.holding.settle(),
            }
        }
        Ok(())
    })
}

/// Facts of a level of the raster: 0 is the image itself, n its n-th overview. Thread-safe.
///
/// # Safety
/// `out_facts` must be a struct with its size set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_info(
    raster: *const Raster,
    level: i32,
    out_facts: *mut RasterFacts,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(out_facts) }?;
        out.fill(&raster.info(level)?);
        Ok(())
    })
}

/// What stands for missing data in a band, counted from 1. Thread-safe.
///
/// # Safety
/// `out_nodata` must be a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_nodata(
    raster: *const Raster,
    band: i32,
    out_nodata: *mut Nodata,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_nodata, "out_nodata")?;
        let (_guard, dataset) = raster.holding.lock();
        let Some(band) = dataset.band(band) else {
            let (name, bands) = (&raster.name, raster.bands);
            let text = format!("{name} has no band {band}: expected 1 to {bands}");
            return fail(GPUGTIFF_BAD_ARGUMENT, text);
        };
        let what = format!("{}: asking for nodata", raster.name);
        let found = ask_gdal(&what, GPUGTIFF_CORRUPT, || Some(nodata(band)))?;
        // SAFETY: the caller's place.
        unsafe { *out_nodata = found };
        Ok(())
    })
}

/// The coordinate system as WKT; an empty text if there is none. It belongs to the raster and is
/// valid until that is freed. Thread-safe.
///
/// # Safety
/// `out_wkt` must be a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_wkt(
    raster: *const Raster,
    out_wkt: *mut *const c_char,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_wkt, "out_wkt")?;
        if raster.wkt.get().is_none() {
            let (_guard, dataset) = raster.holding.lock();
            let what = format!("{}: asking for the coordinate system", raster.name);
            let wkt = ask_gdal(&what, GPUGTIFF_CORRUPT, || Some(dataset.wkt()))?;
            raster.wkt.get_or_init(|| wkt);
        }
        let wkt = raster.wkt.get().map_or(c"".as_ptr(), |wkt| wkt.as_ptr());
        // SAFETY: the caller's place.
        unsafe { *out_wkt = wkt };
        Ok(())
    })
}

/// The raster's GDALDatasetH, for what this API does not have. It belongs to the raster; use it
/// while no other thread uses the raster. Thread-safe in itself.
///
/// # Safety
/// `out_dataset` must be a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_dataset(
    raster: *const Raster,
    out_dataset: *mut *mut c_void,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_dataset, "out_dataset")?;
        // SAFETY: the caller's place.
        unsafe { *out_dataset = raster.holding.dataset().handle() };
        Ok(())
    })
}
