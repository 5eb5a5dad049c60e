//! GDAL as this crate uses it from Rust: files, datasets, messages, conversion of samples.
//!
//! The only room besides `capi` that calls GDAL's C functions. Everything here is
//! a safe function around one or two of them.

pub mod dataset;
pub mod excerpt;
pub mod fetched;
mod handle;
pub mod jpeg2000;
pub mod log;
pub mod memory;
pub mod messages;
pub mod sink;
pub mod tile_file;
pub mod vsi;
pub mod words;
