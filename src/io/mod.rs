//! Where bytes come from and go to: ranges of a file.
//!
//! Knows nothing of TIFF, of GDAL or of what the bytes mean; whoever can seek implements
//! [`ByteSource`], and [`ByteSink`] if it can be written. Invariant: a read fills the whole
//! buffer or is an error, never a part; a write that did not write everything is an error.

#![forbid(unsafe_code)]

pub mod scratch;
pub mod unnamed;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Cause, Error, Result};

/// Bytes at offsets; may be asked from any thread.
pub trait ByteSource: Send + Sync {
    /// Size of the file now, in bytes.
    fn len(&self) -> u64;

    /// Whether the file holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset` on, or is `Error::Io`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// All ranges in one request, in any order; they may overlap.
    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        ranges.iter_mut().try_for_each(|(offset, buf)| self.read_at(*offset, buf))
    }

    /// Whether reading from several threads at once is cheap (pread on a local file).
    fn concurrent(&self) -> bool {
        false
    }

    /// Whether every request is a round trip that somebody may have to pay for.
    fn remote(&self) -> bool {
        false
    }

    /// Fetches ranges (offset, length) of a remote file that are read soon, in one go and with
    /// what lies between neighbours. Nothing happens where that is too much to keep, or fails:
    /// whoever reads them learns why.
    fn fetch(&self, _ranges: &[(u64, u64)]) {}

    /// Copies bytes that [`fetch`](ByteSource::fetch) brought; false if they are not here.
    fn fetched(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }

    /// Notes that whoever opened the file has it open for as long as it is read here.
    fn rely_on_opener(&self) {}

    /// A descriptor of the file, where it is a local one: for those who read it by other means.
    fn descriptor(&self) -> Option<OwnedFd> {
        None
    }

    /// Says that these ranges (offset, length) are read soon.
    fn advise(&self, _ranges: &[(u64, u64)]) {}

    /// The same bytes for another thread to read on this thread's behalf, where
    /// that needs something of this thread's (credentials); `None`: use this one.
    fn for_worker(&self) -> Option<Arc<dyn ByteSource>> {
        None
    }
}

/// A file that is being made, and can be read while it is.
pub trait ByteSink: ByteSource {
    /// Writes the parts one after the other from `offset` on, or is `Error::Write`.
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Cuts the file off at `len`.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Hands everything written to the system; other processes see it then.
    fn flush(&self) -> Result<()>;

    /// Closes. What could not be written until now is an error here.
    fn close(&self) -> Result<()>;
}

/// A file that is in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory(pub Vec<u8>);

impl ByteSource for Memory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .and_then(|range| self.0.get(range));
        match bytes {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::Io {
                offset,
                len: buf.len() as u64,
                source: Cause(format!("the file ends at {}", self.0.len())),
            }),
        }
    }

    fn concurrent(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_whole_ranges_or_fails() {
        let source = Memory((0..10).collect());
        let (mut a, mut b) = ([0; 3], [0; 2]);
        source.read_ranges(&mut [(7, &mut a), (0, &mut b)]).unwrap();
        assert_eq!((a, b), ([7, 8, 9], [0, 1]));
        for offset in [8, 10, u64::MAX - 1, u64::MAX] {
            assert!(matches!(source.read_at(offset, &mut a), Err(Error::Io { .. })), "{offset}");
        }
        source.read_at(10, &mut []).unwrap();
        assert!(!source.is_empty() && Memory::default().is_empty());
    }
}
