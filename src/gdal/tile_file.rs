//! Small TIFFs in memory, written by GDAL's plain GTiff driver, on any thread.
//!
//! Whatever the driver reports as a failure is an error; its warnings are kept for whoever asks, each
//! once. A file is made under the configuration options of the thread that made the [`Recipe`].

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gdal_sys::{VSIGetMemFileBuffer, VSIUnlink};

use super::log::c_string;
use super::messages::{self, Failures};
use super::vsi::ConfigOptions;
use crate::engine::gtiff::encode::{FileOrder, TileFiles};
use crate::error::{Cause, Error, Result};
use crate::process::fork;

unsafe extern "C" {
    /// In `src/shim/tile_file.cpp`: writes some pixels of a new file; 0 if that worked.
    fn gpugtiff_shim_write_tile_file(
        path: *const c_char,
        size: *const c_int,
        kind: c_int,
        options: *mut *mut c_char,
        window: *const c_int,
        data: *const c_void,
        spacing: *const i64,
        nodata: *const c_char,
    ) -> c_int;
}

/// How the files are made.
pub struct Recipe {
    /// GDAL's number for the type of the samples.
    kind: u32,
    options: Vec<CString>,
    /// The last band is alpha, which no option tells where it is not the first extra sample.
    ends_with_alpha: bool,
    /// The nodata value, as text.
    nodata: Option<CString>,
    config: ConfigOptions,
    said: Mutex<Said>,
}

/// Warnings: all that there were, and those that nobody was told of.
#[derive(Default)]
struct Said {
    all: Vec<String>,
    news: Vec<String>,
}

impl Recipe {
    /// Files of samples of a type, made with some creation options and maybe a nodata value;
    /// `ends_with_alpha`: the last of several bands is alpha.
    pub fn new(
        kind: u32,
        options: &[(String, String)],
        ends_with_alpha: bool,
        nodata: Option<String>,
    ) -> Recipe {
        let options = options.iter().map(|(name, value)| c_string(&format!("{name}={value}")));
        let (options, config) = (options.collect(), ConfigOptions::capture());
        let nodata = nodata.as_deref().map(c_string);
        Recipe { kind, options, ends_with_alpha, nodata, config, said: Mutex::default() }
    }

    fn keep(&self, warnings: Failures, path: &str) {
        if warnings.is_empty() {
            return;
        }
        let text = without_name(&warnings.text(), path);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.all.contains(&text) {
            said.all.push(text.clone());
            said.news.push(text);
        }
    }
}

/// GTiff's messages begin with the name of its file, which is nobody's business.
fn without_name(text: &str, path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let text = text.replace(path, "").replace(name, "");
    text.trim_start_matches([',', ':', ' ']).to_string()
}

/// A name in /vsimem/; whatever has it is removed at the end.
struct Name(CString);

impl Name {
    fn new() -> Name {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Another copy of this library counts too, from another address.
        Name(c_string(&format!("/vsimem/.gpugtiff_tile_{:p}_{count}.tif", &raw const COUNTER)))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // SAFETY: a C string.
        unsafe { VSIUnlink(self.0.as_ptr()) };
    }
}

impl TileFiles for Recipe {
    fn write(
        &self,
        order: &FileOrder<'_>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let pixel = order.bands * order.sample_bytes;
        let end = (order.window.height.max(1) - 1)
            .checked_mul(order.row_bytes)
            .and_then(|at| at.checked_add(pixel.checked_mul(order.window.width)?));
        if end.is_none_or(|end| end > order.pixels.len()) {
            return Err(Error::Device("internal error: a tile larger than its buffer".into()));
        }
        let window = [order.window.x, order.window.y, order.window.width, order.window.height];
        let window = window.map(|n| n as c_int);
        // Columns, rows, bands; the first band that is given, and how many; the band that is alpha, or 0.
        let (first, all) = order.plane.unwrap_or((0, order.bands));
        let alpha = if self.ends_with_alpha { all } else { 0 };
        let size = [order.size[0], order.size[1], all, first, order.bands, alpha];
        let size = size.map(|n| n as c_int);
        let spacing = [pixel, order.row_bytes, order.sample_bytes].map(|n| n as i64);
        let mut options: Vec<*mut c_char> =
            self.options.iter().map(|option| option.as_ptr().cast_mut()).collect();
        options.push(ptr::null_mut());
        // A child that is forked now would find GDAL's locks taken, and nobody to release them.
        let _whole = fork::hold_off();
        let own = ConfigOptions::capture();
        self.config.apply();
        // Goes while forks are still held off.
        let name = Name::new();
        let (failed, said) = messages::capture_all(|| {
            // SAFETY: a C string, a list that ends with NULL, arrays of six, four and three, NULL or
            // a C string; the pixels are within the buffer, as was just found.
            unsafe {
                gpugtiff_shim_write_tile_file(
                    name.0.as_ptr(),
                    size.as_ptr(),
                    self.kind as c_int,
                    options.as_mut_ptr(),
                    window.as_ptr(),
                    order.pixels.as_ptr().cast(),
                    spacing.as_ptr(),
                    self.nodata.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
                )
            }
        });
        own.apply();
        let (failures, warnings) = said.split_warnings();
        let path = name.0.to_string_lossy();
        self.keep(warnings, &path);
        if failed != 0 || !failures.is_empty() {
            let text = without_name(&failures.text(), &path);
            return Err(Error::File(Cause(format!("GTiff cannot encode a tile: {text}"))));
        }
        let mut len = 0;
        // SAFETY: a C string; the bytes stay where they are until the file is removed or written to,
        // and only we know its name.
        let bytes = unsafe {
            let data = VSIGetMemFileBuffer(name.0.as_ptr(), &mut len, 0);
            if data.is_null() { &[] } else { std::slice::from_raw_parts(data, len as usize) }
        };
        take(bytes)
    }

    fn warnings(&self) -> Vec<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut said.news)
    }
}
