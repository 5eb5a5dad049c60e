//! From a window to batches of tiles and back to pixels.
//!
//! `plan` is pure arithmetic; `reader` serves requests; `ahead` works in front of
//! callers that walk; `budget` bounds what that may hold in the whole process;
//! `counters` tell what was done.
//!
//! Absent from here: GDAL, unsafe code, and any knowledge of which engine runs.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod budget;
pub mod counters;
pub mod image;
pub mod plan;
pub mod reader;
