//! What the C++ shim calls, as a table of functions handed over when the driver
//! is registered. Of these only `GDALRegister_GPUGTiff` is exported.
//!
//! Every function runs inside `guard`: a panic or an error becomes a CPLError
//! here and nowhere else, on the calling thread.

mod apart;
pub mod bridge;
mod delivery;
mod encoder;
mod guard;
mod handles;
mod offer;
pub mod output;
mod overlay;
mod place;
mod redo;
mod written;

pub(crate) use apart::NOBODY;
pub(crate) use guard::panic_text;
pub(crate) use handles::{API, Image, Shared, pairs};
