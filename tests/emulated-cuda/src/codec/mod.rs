//! The codecs behind the emulated nvCOMP: none is the CPU engine's, and the encoders make
//! streams that library would not make.
//!
//! Refuses to know devices. Invariant: what an encoder makes follows from the bytes, the
//! algorithm and the seed alone, so that a chunk is the same in every batch.

mod bits;
pub(crate) mod deflate;
mod huffman;
mod matches;
pub(crate) mod zstd;
