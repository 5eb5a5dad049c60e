//! What can go wrong, one variant per thing a user can do something about.
//!
//! Workers return these as values. Only the calling thread turns one into a
//! CPLError, in `capi::guard`, where the driver's name and the file are added.

use std::fmt;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything this crate reports.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The file contradicts itself or a stream does not decode.
    #[error("{what} (offset {offset})")]
    Corrupt {
        /// What is wrong, as a sentence without a full stop.
        what: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// Valid, but nothing here decodes it: GTiff is asked instead.
    #[error("{0} is not decoded by this driver's engines")]
    Unsupported(String),
    /// Reading failed or came back short.
    #[error("cannot read {len} bytes at offset {offset}: {source}")]
    Io {
        /// First byte asked for.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Why.
        source: Cause,
    },
    /// Writing failed or was not complete.
    #[error("cannot write {len} bytes at offset {offset}: {source}")]
    Write {
        /// First byte to be written.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Why.
        source: Cause,
    },
    /// A file could not be made, cut off, flushed or closed.
    #[error("{0}")]
    File(Cause),
    /// More bytes than a classic TIFF can point to, and BigTIFF was ruled out.
    #[error("BIGTIFF=NO, and the file would grow beyond 4 GiB")]
    TooLarge,
    /// More tiles than the arrays of a TIFF are read with.
    #[error(
        "File too large regarding tile size. This would result in a file with tile arrays larger \
         than 2GB ({0} tiles)"
    )]
    TooManyTiles(u64),
    /// An allocation was refused.
    #[error("cannot allocate {bytes} bytes for {place}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: u64,
        /// What for.
        place: &'static str,
    },
    /// An option has a value that means nothing.
    #[error("{name}={value} is not valid: expected {expected}")]
    BadOption {
        /// The option.
        name: String,
        /// What the user wrote.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// An engine that was asked for cannot be had, or failed.
    #[error("{0}")]
    Device(String),
    /// The caller asked to stop.
    #[error("interrupted by the caller")]
    Interrupted,
}

/// The operating system's reason, kept as text so that errors can be cloned
/// and handed from a worker to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause(pub String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

impl Error {
    /// A `Corrupt` error.
    pub fn corrupt(what: impl Into<String>, offset: u64) -> Self {
        Error::Corrupt { what: what.into(), offset }
    }
}
