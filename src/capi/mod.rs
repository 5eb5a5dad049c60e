//! What the C++ shim calls, as a table of functions handed over when the driver
//! is registered. Only `GDALRegister_GPUGTiff` is exported.
//!
//! Every function runs inside `guard`: a panic or an error becomes a CPLError
//! here and nowhere else, on the calling thread.

pub mod bridge;
mod delivery;
mod guard;
mod handles;
mod offer;
pub mod output;
mod place;
