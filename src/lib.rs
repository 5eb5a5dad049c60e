//! GPUGTiff: a GDAL driver that reads GeoTIFF in batches of whole tile rows.
//!
//! The rooms, and who calls whom (downwards only):
//!
//! ```text
//! api/       what C programs call: include/gpugtiff.h
//! shim/      the GDAL classes, in C++; no TIFF logic
//! capi/      what the shim calls; panics and errors end here
//! options    one table: name, type, default, help
//! batch/     windows -> batches of tiles -> pixels; no unsafe, no GDAL
//! engine/    the contract, and what decodes: cpu/, cuda/
//! tiff/      directories and tile offsets; no GDAL, no unsafe
//! io/        bytes at offsets
//! gdal/      files, log and conversion by GDAL
//! process/   workers and state that a fork starts anew
//! count      numbers that only grow
//! error
//! ```
//!
//! `docs/architecture.md` says what each room refuses to know.

pub mod api;
pub mod batch;
pub mod capi;
pub mod count;
pub mod engine;
pub mod error;
pub mod gdal;
pub mod io;
pub mod options;
pub mod process;
pub mod tiff;
