//! Datasets through GDAL's C functions: facts, levels, pixels.
//!
//! GDAL's datasets are for one thread at a time: whoever has one here sees to that.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use gdal_sys::{
    CPLErr, GDALCreate, GDALDatasetH, GDALDatasetRasterIOEx, GDALGetBandDataset, GDALGetBlockSize,
    GDALGetDataTypeSizeBytes, GDALGetDescription, GDALGetGeoTransform, GDALGetMetadataItem,
    GDALGetOverview, GDALGetOverviewCount, GDALGetProjectionRef, GDALGetRasterBand,
    GDALGetRasterBandXSize, GDALGetRasterBandYSize, GDALGetRasterCount, GDALGetRasterDataType,
    GDALGetRasterNoDataValue, GDALGetRasterNoDataValueAsInt64, GDALGetRasterNoDataValueAsUInt64,
    GDALGetRasterXSize, GDALGetRasterYSize, GDALRWFlag, GDALRasterBandH, GDALRasterIOEx,
    GDALReferenceDataset, GDALReleaseDataset, GDALSetGeoTransform, GDALSetProjection,
    GDALSetRasterNoDataValue, GDALSetRasterNoDataValueAsInt64, GDALSetRasterNoDataValueAsUInt64,
    GDALVersionInfo, VSIUnlink,
};

/// GDAL's numbers of the types whose nodata is no double.
pub const INT64: u32 = 13;
/// As above.
pub const UINT64: u32 = 12;

/// A dataset that somebody keeps open.
#[derive(Debug, Clone, Copy)]
pub struct Dataset(GDALDatasetH);

/// A band of it, or of one of its overviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band(GDALRasterBandH);

// SAFETY: a handle may go from thread to thread; who uses it when is the owner's promise.
unsafe impl Send for Dataset {}
// SAFETY: as above.
unsafe impl Sync for Dataset {}

/// What stands for missing data, in the type that holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoData {
    /// Of all types but these:
    Double(f64),
    /// Of Int64.
    Int64(i64),
    /// Of UInt64.
    UInt64(u64),
}

/// Pixels on their way between a dataset and memory.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Into the dataset.
    pub write: bool,
    /// Left column, top row, columns, rows.
    pub window: [c_int; 4],
    /// Bands from 1.
    pub bands: &'a [c_int],
    /// GDAL type of the samples in memory.
    pub kind: u32,
    /// The first pixel of the first band.
    pub data: *mut c_void,
    /// Bytes from a pixel to the next.
    pub pixel: i64,
    /// Bytes from a line to the next.
    pub line: i64,
    /// Bytes from a band to the next.
    pub band: i64,
}

impl Dataset {
    /// # Safety
    /// `handle` must be a dataset that stays open for as long as this is used, by one thread
    /// at a time.
    pub unsafe fn new(handle: *mut c_void) -> Dataset {
        Dataset(handle)
    }

    /// The GDALDatasetH.
    pub fn handle(self) -> *mut c_void {
        self.0
    }

    /// Its name.
    pub fn name(self) -> CString {
        // SAFETY: the promise of `new`; the text is copied at once.
        unsafe { copied(GDALGetDescription(self.0)) }
    }

    /// One reference more.
    pub fn reference(self) {
        // SAFETY: the promise of `new`.
        unsafe { GDALReferenceDataset(self.0) };
    }

    /// One reference less; the last one closes it.
    ///
    /// # Safety
    /// The reference must be the caller's, and the dataset not used by it afterwards.
    pub unsafe fn release(self) {
        // SAFETY: the caller's promise.
        unsafe { GDALReleaseDataset(self.0) };
    }

    /// Columns and rows.
    pub fn size(self) -> [c_int; 2] {
        // SAFETY: the promise of `new`.
        unsafe { [GDALGetRasterXSize(self.0), GDALGetRasterYSize(self.0)] }
    }

    /// How many bands.
    pub fn bands(self) -> c_int {
        // SAFETY: the promise of `new`.
        unsafe { GDALGetRasterCount(self.0) }
    }

    /// A band, from 1.
    pub fn band(self, number: c_int) -> Option<Band> {
        if number < 1 || number > self.bands() {
            return None;
        }
        // SAFETY: the promise of `new`; the number was checked.
        let band = unsafe { GDALGetRasterBand(self.0, number) };
        (!band.is_null()).then_some(Band(band))
    }

    /// The band of a level: 0 the image itself, n its n-th overview.
    pub fn band_of(self, number: c_int, level: c_int) -> Option<Band> {
        let band = self.band(number)?;
        if level == 0 { Some(band) } else { band.overview(level - 1) }
    }

    /// Where pixels are on the ground.
    pub fn geotransform(self) -> Option<[f64; 6]> {
        let mut six = [0.0; 6];
        // SAFETY: the promise of `new`; six numbers.
        let found = unsafe { GDALGetGeoTransform(self.0, six.as_mut_ptr()) };
        (found == CPLErr::CE_None).then_some(six)
    }

    /// The coordinate system; empty if there is none.
    pub fn wkt(self) -> CString {
        // SAFETY: the promise of `new`; the text is copied at once.
        unsafe { copied(GDALGetProjectionRef(self.0)) }
    }

    /// Says where pixels are on the ground.
    pub fn set_geotransform(self, six: &[f64; 6]) -> bool {
        // SAFETY: the promise of `new`; GDAL reads six numbers.
        unsafe { GDALSetGeoTransform(self.0, six.as_ptr().cast_mut()) == CPLErr::CE_None }
    }

    /// Says which coordinate system.
    pub fn set_wkt(self, wkt: &CStr) -> bool {
        // SAFETY: the promise of `new`; a C string.
        unsafe { GDALSetProjection(self.0, wkt.as_ptr()) == CPLErr::CE_None }
    }

    /// The dataset to read a level's bands from at once; `None` if GDAL shows them as bands of
    /// different datasets or of none.
    fn of_level(self, level: c_int, bands: &[c_int]) -> Option<Dataset> {
        if level == 0 {
            return Some(self);
        }
        let dataset = self.band_of(*bands.first()?, level)?.dataset()?;
        let whole = |&band: &c_int| dataset.band(band) == self.band_of(band, level);
        bands.iter().all(whole).then_some(dataset)
    }

    /// The dataset that holds all bands of a level.
    pub fn level(self, level: c_int) -> Option<Dataset> {
        let bands: Vec<c_int> = (1..=self.bands()).collect();
        self.of_level(level, &bands)
    }

    /// Moves pixels of a level; false after GDAL raised an error.
    ///
    /// # Safety
    /// The memory must be valid for the window's pixels at the given spacings.
    pub unsafe fn transfer(self, level: c_int, pixels: &Transfer<'_>) -> bool {
        let flag = if pixels.write { GDALRWFlag::GF_Write } else { GDALRWFlag::GF_Read };
        let [x, y, width, height] = pixels.window;
        if let Some(dataset) = self.of_level(level, pixels.bands) {
            // SAFETY: the promises of `new` and of the caller.
            let result = unsafe {
                GDALDatasetRasterIOEx(
                    dataset.0,
                    flag,
                    x,
                    y,
                    width,
                    height,
                    pixels.data,
                    width,
                    height,
                    pixels.kind,
                    pixels.bands.len() as c_int,
                    pixels.bands.as_ptr().cast_mut(),
                    pixels.pixel,
                    pixels.line,
                    pixels.band,
                    std::ptr::null_mut(),
                )
            };
            return result == CPLErr::CE_None;
        }
        pixels.bands.iter().zip(0..).all(|(&number, i)| {
            let Some(band) = self.band_of(number, level) else { return false };
            let data = pixels.data.wrapping_byte_offset((i * pixels.band) as isize);
            // SAFETY: as above.
            let result = unsafe {
                GDALRasterIOEx(
                    band.0,
                    flag,
                    x,
                    y,
                    width,
                    height,
                    data,
                    width,
                    height,
                    pixels.kind,
                    pixels.pixel,
                    pixels.line,
                    std::ptr::null_mut(),
                )
            };
            result == CPLErr::CE_None
        })
    }
}

impl Band {
    /// Columns and rows.
    pub fn size(self) -> [c_int; 2] {
        // SAFETY: a band of a dataset that is open.
        unsafe { [GDALGetRasterBandXSize(self.0), GDALGetRasterBandYSize(self.0)] }
    }

    /// GDAL type.
    pub fn kind(self) -> u32 {
        // SAFETY: as in `size`.
        unsafe { GDALGetRasterDataType(self.0) }
    }

    /// Columns and rows of a block.
    pub fn block(self) -> [c_int; 2] {
        let [mut width, mut height] = [0; 2];
        // SAFETY: as in `size`.
        unsafe { GDALGetBlockSize(self.0, &mut width, &mut height) };
        [width, height]
    }

    /// How many overviews.
    pub fn overviews(self) -> c_int {
        // SAFETY: as in `size`.
        unsafe { GDALGetOverviewCount(self.0) }
    }

    fn overview(self, number: c_int) -> Option<Band> {
        if number < 0 || number >= self.overviews() {
            return None;
        }
        // SAFETY: as in `size`; the number was checked.
        let band = unsafe { GDALGetOverview(self.0, number) };
        (!band.is_null()).then_some(Band(band))
    }

    fn dataset(self) -> Option<Dataset> {
        // SAFETY: as in `size`.
        let dataset = unsafe { GDALGetBandDataset(self.0) };
        (!dataset.is_null()).then_some(Dataset(dataset))
    }

    /// What stands for missing data.
    pub fn nodata(self) -> Option<NoData> {
        let mut set = 0;
        // SAFETY: as in `size`; the flag is filled.
        let value = unsafe {
            match self.kind() {
                INT64 => NoData::Int64(GDALGetRasterNoDataValueAsInt64(self.0, &mut set)),
                UINT64 => NoData::UInt64(GDALGetRasterNoDataValueAsUInt64(self.0, &mut set)),
                _ => NoData::Double(GDALGetRasterNoDataValue(self.0, &mut set)),
            }
        };
        (set != 0).then_some(value)
    }

    /// Says what stands for missing data.
    pub fn set_nodata(self, value: NoData) -> bool {
        // SAFETY: as in `size`.
        let result = unsafe {
            match value {
                NoData::Int64(value) => GDALSetRasterNoDataValueAsInt64(self.0, value),
                NoData::UInt64(value) => GDALSetRasterNoDataValueAsUInt64(self.0, value),
                NoData::Double(value) => GDALSetRasterNoDataValue(self.0, value),
            }
        };
        result == CPLErr::CE_None
    }
}

/// What a dataset is made from.
#[derive(Debug, Clone, Copy)]
pub struct Creation<'a> {
    /// Where.
    pub path: &'a CStr,
    /// Columns and rows.
    pub size: [c_int; 2],
    /// Bands.
    pub bands: c_int,
    /// GDAL type.
    pub kind: u32,
    /// NAME=VALUE, NULL-terminated, or NULL.
    pub options: *const *const c_char,
}

impl Creation<'_> {
    /// Makes it; `None` after GDAL raised an error.
    ///
    /// # Safety
    /// `driver` must be a GDALDriverH and the options such a list.
    pub unsafe fn create(&self, driver: *mut c_void) -> Option<Dataset> {
        let [width, height] = self.size;
        let options = self.options.cast_mut().cast();
        // SAFETY: the caller's promise.
        let dataset = unsafe {
            GDALCreate(driver, self.path.as_ptr(), width, height, self.bands, self.kind, options)
        };
        (!dataset.is_null()).then_some(Dataset(dataset))
    }
}

/// Removes a file, if it is there.
pub fn unlink(path: &CStr) {
    // SAFETY: a C string.
    unsafe { VSIUnlink(path.as_ptr()) };
}

/// Bytes of a sample of a type; 0 if this GDAL does not know it.
pub fn sample_bytes(kind: u32) -> usize {
    // SAFETY: any number may be asked about.
    usize::try_from(unsafe { GDALGetDataTypeSizeBytes(kind) }).unwrap_or(0)
}

/// GDAL's version; the text is its own.
pub fn version() -> *const c_char {
    // SAFETY: a question that it knows.
    unsafe { GDALVersionInfo(c"RELEASE_NAME".as_ptr()) }
}

/// An item of a driver's metadata.
///
/// # Safety
/// `driver` must be a GDALDriverH.
pub unsafe fn driver_item(driver: *mut c_void, name: &CStr) -> CString {
    // SAFETY: the caller's promise; the text is copied at once.
    unsafe { copied(GDALGetMetadataItem(driver, name.as_ptr(), std::ptr::null())) }
}

/// # Safety
/// `text` must be NULL or a C string.
unsafe fn copied(text: *const c_char) -> CString {
    match text.is_null() {
        true => CString::default(),
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(text) }.to_owned(),
    }
}
