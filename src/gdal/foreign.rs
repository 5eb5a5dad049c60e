//! File systems that programs add to GDAL's own: rasterio's Python file objects, fsspec, any VSI
//! plugin.
//!
//! Of such a file there may be one handle only, for one thread, without `ReadMultiRange` or `PRead`.
//! GTiff reads and writes it through the handle that it has.

use std::ffi::CStr;

use gdal_sys::{CSLDestroy, VSIGetFileSystemsPrefixes};

/// Why a file of such a file system is not read or written by us.
pub const REASON: &str = "a file system that is not one of GDAL's own";

/// GDAL's own, up to 3.13. One that is not listed here is read by GTiff.
const BUILT_IN: [&str; 34] = [
    "/vsi7z/",
    "/vsiadls/",
    "/vsiaz/",
    "/vsiaz_streaming/",
    "/vsicached?",
    "/vsicrypt/",
    "/vsicurl/",
    "/vsicurl?",
    "/vsicurl_streaming/",
    "/vsigs/",
    "/vsigs_streaming/",
    "/vsigzip/",
    "/vsihdfs/",
    "/vsimem/",
    "/vsioss/",
    "/vsioss_streaming/",
    "/vsirar/",
    "/vsis3/",
    "/vsis3_streaming/",
    "/vsisparse/",
    "/vsistdin/",
    "/vsistdin?",
    "/vsistdout/",
    "/vsistdout_redirect/",
    "/vsisubfile/",
    "/vsiswift/",
    "/vsiswift_streaming/",
    "/vsitar/",
    "/vsiwebhdfs/",
    "/vsizip/",
    "/vsi7z?",
    "/vsirar?",
    "/vsitar?",
    "/vsizip?",
];

/// Whether the path leads into such a file system, through others too (/vsizip//vsipython…).
pub fn is_foreign(path: &str) -> bool {
    // SAFETY: no arguments; the list is ours.
    let list = unsafe { VSIGetFileSystemsPrefixes() };
    if list.is_null() {
        return false;
    }
    let mut foreign = false;
    for i in 0.. {
        // SAFETY: entries up to the NULL are C strings.
        let entry = unsafe { *list.add(i) };
        if entry.is_null() {
            break;
        }
        // SAFETY: not NULL.
        let prefix = unsafe { CStr::from_ptr(entry) }.to_string_lossy();
        let leads =
            path.starts_with(&*prefix) || path.starts_with("/vsi") && path.contains(&*prefix);
        foreign |= !prefix.is_empty() && leads && !BUILT_IN.contains(&&*prefix);
    }
    // SAFETY: GDAL's list, freed once.
    unsafe { CSLDestroy(list) };
    foreign
}
