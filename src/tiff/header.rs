//! The first 8 or 16 bytes: byte order, classic or BigTIFF, the first directory.
//!
//! Refuses to follow the offset that it holds. Invariant: a [`Header`] exists only for a
//! signature that libtiff reads too.

use crate::error::{Error, Result};
use crate::io::ByteSource;

/// How numbers are stored in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    /// `II`: least significant byte first.
    Little,
    /// `MM`: most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: ByteOrder =
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    /// The unsigned number that up to 8 bytes spell.
    pub fn uint(self, bytes: &[u8]) -> u64 {
        let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            ByteOrder::Little => bytes.iter().rev().fold(0, push),
            ByteOrder::Big => bytes.iter().fold(0, push),
        }
    }
}

/// What the start of a TIFF says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How numbers are stored in the file.
    pub byte_order: ByteOrder,
    /// BigTIFF (version 43, 64-bit offsets) rather than classic (42).
    pub big: bool,
    /// Where the first directory is said to be; not checked.
    pub first_ifd: u64,
}

impl Header {
    /// Reads the header; a file that is no TIFF is `Error::Corrupt`.
    pub fn read(source: &dyn ByteSource) -> Result<Header> {
        let mut bytes = [0; 16];
        let got = source.len().min(16) as usize;
        source.read_at(0, &mut bytes[..got])?;
        let byte_order = match &bytes[..2] {
            b"II" => ByteOrder::Little,
            b"MM" => ByteOrder::Big,
            _ => {
                return Err(Error::corrupt("not a TIFF: it starts with neither II nor MM", 0));
            }
        };
        let version = byte_order.uint(&bytes[2..4]);
        let big = match version {
            42 => false,
            43 => true,
            _ => return Err(Error::corrupt(format!("not a TIFF: version {version}"), 2)),
        };
        if got < if big { 16 } else { 8 } {
            return Err(Error::corrupt(format!("the header is cut off after {got} bytes"), 0));
        }
        if big && (byte_order.uint(&bytes[4..6]), byte_order.uint(&bytes[6..8])) != (8, 0) {
            return Err(Error::corrupt("a BigTIFF whose offsets are not 8 bytes", 4));
        }
        let first_ifd = byte_order.uint(if big { &bytes[8..16] } else { &bytes[4..8] });
        Ok(Header { byte_order, big, first_ifd })
    }

    /// Bytes of an offset, which is also how much of a value fits into its entry.
    pub fn offset_size(&self) -> u64 {
        if self.big { 8 } else { 4 }
    }

    /// Bytes of the number of entries at the start of a directory.
    pub fn count_size(&self) -> u64 {
        if self.big { 8 } else { 2 }
    }

    /// Bytes of a directory entry.
    pub fn entry_size(&self) -> u64 {
        if self.big { 20 } else { 12 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Memory;

    fn read(bytes: &[u8]) -> Result<Header> {
        Header::read(&Memory(bytes.to_vec()))
    }

    #[test]
    fn four_kinds_of_header() {
        let (little, big) = (ByteOrder::Little, ByteOrder::Big);
        let cases: [(&[u8], _, _); 4] = [
            (b"II\x2a\0\x10\x20\0\0", little, false),
            (b"MM\0\x2a\0\0\x20\x10", big, false),
            (b"II\x2b\0\x08\0\0\0\x10\x20\0\0\0\0\0\0", little, true),
            (b"MM\0\x2b\0\x08\0\0\0\0\0\0\0\0\x20\x10", big, true),
        ];
        for (bytes, byte_order, big) in cases {
            assert_eq!(read(bytes).unwrap(), Header { byte_order, big, first_ifd: 0x2010 });
            assert!(read(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn other_starts_are_refused() {
        let cases: [&[u8]; 6] = [
            b"",
            b"I",
            b"IM\x2a\0\x08\0\0\0",
            b"II\x2c\0\x08\0\0\0",
            b"II\0\x2a\x08\0\0\0",
            b"II\x2b\0\x04\0\0\0\x10\0\0\0\0\0\0\0",
        ];
        for bytes in cases {
            assert!(matches!(read(bytes), Err(Error::Corrupt { .. })), "{bytes:?}");
        }
    }
}
