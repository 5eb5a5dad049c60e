//! GDAL as this crate uses it from Rust: files, datasets, messages, conversion of samples.
//!
//! The only room besides `capi` that calls GDAL's C functions. Everything here is
//! a safe function around one or two of them.

pub mod beside;
pub mod dataset;
pub mod debug;
pub mod excerpt;
pub mod fetched;
pub mod foreign;
mod handle;
pub mod jpeg2000;
mod libtiff;
pub mod log;
pub mod memory;
pub mod messages;
pub mod sink;
pub mod tile_file;
mod unnamed;
pub mod vsi;
pub mod words;
