//! What nvCOMP's functions are given by value, and which values the real library takes.

#![allow(missing_docs, reason = "fields are nvCOMP's")]

use super::api::Outcome;
use super::status::{INVALID_VALUE, NOT_SUPPORTED};

/// What the library says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub version: u32,
    pub cudart_version: u32,
}

/// Options of Deflate compression; 64 bytes by value, as all options are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeflateCompressOptions {
    pub algorithm: i32,
    pub reserved: [u8; 60],
}

/// Options of Deflate decompression.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeflateDecompressOptions {
    pub backend: i32,
    pub sort: i32,
    pub reserved: [u8; 56],
}

/// Options of Zstandard compression.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ZstdCompressOptions {
    pub reserved: [u8; 64],
}

/// Options of Zstandard decompression.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ZstdDecompressOptions {
    pub backend: i32,
    pub reserved: [u8; 60],
}

/// Options that can be checked; the Deflate algorithm is 0 for all others.
pub(super) trait Options {
    fn checked(&self) -> Outcome<i32>;
}

fn zeroed(reserved: &[u8]) -> Outcome {
    match reserved.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err((INVALID_VALUE, "reserved bytes are not zero".into())),
    }
}

fn one_of(value: i32, most: i32, what: &str) -> Outcome {
    match (0..=most).contains(&value) {
        true => Ok(()),
        false => Err((NOT_SUPPORTED, format!("{what} {value}"))),
    }
}

impl Options for DeflateCompressOptions {
    fn checked(&self) -> Outcome<i32> {
        zeroed(&self.reserved)?;
        one_of(self.algorithm, 5, "algorithm")?;
        Ok(self.algorithm)
    }
}

/// Backends are 0 (the library's choice), 1 (hardware, which no emulated device has) and 2.
fn backend(value: i32) -> Outcome<i32> {
    one_of(value, 2, "backend")?;
    match value {
        1 => Err((NOT_SUPPORTED, "no hardware decompression engine".into())),
        _ => Ok(0),
    }
}

impl Options for DeflateDecompressOptions {
    fn checked(&self) -> Outcome<i32> {
        zeroed(&self.reserved)?;
        backend(self.backend)
    }
}

impl Options for ZstdCompressOptions {
    fn checked(&self) -> Outcome<i32> {
        zeroed(&self.reserved).map(|()| 0)
    }
}

impl Options for ZstdDecompressOptions {
    fn checked(&self) -> Outcome<i32> {
        zeroed(&self.reserved)?;
        backend(self.backend)
    }
}
