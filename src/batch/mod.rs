//! From a window to batches of tiles and back to pixels.
//!
//! `plan` is pure arithmetic; `reader` serves requests; `ahead` works in front of
//! callers that walk; `budget` bounds what that may hold in the whole process;
//! `counters` tell what was done. `writer` makes a file, with `canvas` (an image of
//! it), `collect` (pieces), `swath` (whole images), `originals` (tiles decoded to be encoded), `copy` (tiles
//! as they are), `flight` (encoding meanwhile), `courier` (writing meanwhile) and `finish`; what it shall
//! look like is read from a `template`.
//!
//! Absent from here: GDAL, unsafe code, and any knowledge of which engine runs.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod budget;
pub mod canvas;
pub mod collect;
mod copy;
pub mod counters;
mod courier;
pub mod coverage;
mod finish;
pub mod flight;
mod followed;
pub mod image;
pub mod originals;
pub mod plan;
pub mod reader;
pub mod swath;
pub mod template;
pub mod writer;
