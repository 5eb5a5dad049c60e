//! Why a tile did not decode, or did not encode.
//!
//! Plain values that any worker can make and copy without allocating. They know neither file nor
//! tile: the caller adds the position, and then asks GTiff for its opinion.

use std::fmt;

/// Why a decoder gave up on a stream, or an encoder on a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecError {
    /// LZW as written before TIFF 6.0, least significant bit first.
    OldStyleLzw,
    /// The LZW stream does not begin with a Clear code.
    LzwWithoutClear,
    /// An LZW code stands for a string that was not made yet.
    LzwCode(u16),
    /// More LZW codes without a Clear than libtiff takes.
    LzwTableFull,
    /// The zlib stream, or its Adler-32 checksum, is wrong.
    BadDeflate,
    /// The Zstandard frame is wrong; the text is the library's.
    BadZstd(&'static str),
    /// The stream holds more than the tile does.
    TooLong,
    /// The tile is larger than the decoder can address.
    TileTooLarge,
    /// An encoder was given less room than its bound.
    NoRoom,
    /// A compressor could not be allocated.
    NoMemory,
    /// Nobody here packs or unpacks with this codec.
    Unsupported,
    /// The compressor failed; the text is the library's.
    NotPacked(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldStyleLzw => f.write_str("old-style LZW, least significant bit first"),
            Self::LzwWithoutClear => f.write_str("LZW stream does not begin with a Clear code"),
            Self::LzwCode(code) => write!(f, "LZW code {code} is not in the table yet"),
            Self::LzwTableFull => f.write_str("LZW table overflows without a Clear code"),
            Self::BadDeflate => f.write_str("Deflate data or its Adler-32 checksum is wrong"),
            Self::BadZstd(reason) => write!(f, "ZSTD: {reason}"),
            Self::TooLong => f.write_str("stream is longer than its tile"),
            Self::TileTooLarge => f.write_str("LZW tile of 1 GiB or more"),
            Self::NoRoom => f.write_str("compressed tile does not fit its slot"),
            Self::NoMemory => f.write_str("no memory for a compressor"),
            Self::Unsupported => f.write_str("no codec of ours"),
            Self::NotPacked(reason) => write!(f, "tile was not compressed: {reason}"),
        }
    }
}

impl std::error::Error for CodecError {}
