//! The C API: what `include/gpugtiff.h`, which is made from these files, declares.
//!
//! Every function runs inside `result::guard`: an error or a panic becomes a result and the
//! thread's message there and nowhere else. Handles are looked up (`handle`), structs that may
//! grow are taken by their size (`sized`), requests are checked whole before anything is touched
//! (`request`). Absent: TIFF, tiles, and how they are decoded.

pub mod ask;
pub mod batches;
mod device;
mod fetch;
mod handle;
mod held;
pub mod kind;
pub mod raster;
pub mod read;
pub mod request;
pub mod result;
mod shim;
mod sized;
pub mod tensor;
pub mod writer;
