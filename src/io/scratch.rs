//! A temporary file without a name: what does not fit into memory goes there.
//!
//! Slots of one size, given out and taken back. The file never has a name, or is unlinked as soon
//! as it is open, so that nothing is left of it whatever happens to the process. Parts of a slot that
//! were never written take no space on disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::unnamed::{open_temporary, open_unnamed};
use crate::error::{Cause, Error, Result};

/// Slots begin at multiples of this, so that a hole in one is a hole in the file.
const SLOT_ALIGN: usize = 4096;
/// Nobody else's to read.
const MODE: u32 = 0o600;

/// The file, made when the first slot is asked for.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    slot_bytes: u64,
    file: Option<File>,
    slots: u64,
    free: Vec<u64>,
}

/// A place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u64);

impl Scratch {
    /// Slots of at least `slot_bytes` in a file in `directory`; nothing is made yet.
    pub fn new(directory: PathBuf, slot_bytes: usize) -> Scratch {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(SLOT_ALIGN) as u64;
        Scratch { directory, slot_bytes, file: None, slots: 0, free: Vec::new() }
    }

    /// A slot; its content is whatever was there before.
    pub fn take(&mut self) -> Result<Slot> {
        if self.file.is_none() {
            self.file = Some(self.create()?);
        }
        Ok(Slot(self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })))
    }

    /// Gives a slot back.
    pub fn give_back(&mut self, slot: Slot) {
        // Without memory to note it the slot is not used again.
        if self.free.try_reserve(1).is_ok() {
            self.free.push(slot.0);
        }
    }

    /// Writes into a slot.
    pub fn write(&self, slot: Slot, at: usize, bytes: &[u8]) -> Result<()> {
        let offset = self.offset(slot, at);
        self.file()?.write_all_at(bytes, offset).map_err(|error| Error::Write {
            offset,
            len: bytes.len() as u64,
            source: self.cause(&error),
        })
    }

    /// Reads from a slot.
    pub fn read(&self, slot: Slot, at: usize, bytes: &mut [u8]) -> Result<()> {
        let offset = self.offset(slot, at);
        let len = bytes.len() as u64;
        self.file()?.read_exact_at(bytes, offset).map_err(|error| Error::Io {
            offset,
            len,
            source: self.cause(&error),
        })
    }

    fn offset(&self, slot: Slot, at: usize) -> u64 {
        slot.0 * self.slot_bytes + at as u64
    }

    fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or_else(|| Error::Io {
            offset: 0,
            len: 0,
            source: Cause("no temporary file".into()),
        })
    }

    fn cause(&self, error: &std::io::Error) -> Cause {
        Cause(format!("temporary file in {}: {error}", self.directory.display()))
    }

    fn create(&self) -> Result<File> {
        if let Ok(file) = open_unnamed(&self.directory, MODE) {
            return Ok(file);
        }
        let (file, path) = open_temporary(&self.directory, MODE)
            .map_err(|error| Error::File(self.cause(&error)))?;
        // A name that cannot be removed is untidy, no more.
        let _ = std::fs::remove_file(&path);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_what_they_were_given() {
        let directory = std::env::temp_dir();
        let mut scratch = Scratch::new(directory, 5000);
        let (a, b) = (scratch.take().unwrap(), scratch.take().unwrap());
        scratch.write(b, 0, &[2; 5000]).unwrap();
        scratch.write(a, 4990, &[1; 10]).unwrap();
        let mut got = [9; 20];
        scratch.read(a, 4980, &mut got).unwrap();
        assert_eq!(got[..10], [0; 10]);
        assert_eq!(got[10..], [1; 10]);
        scratch.read(b, 0, &mut got).unwrap();
        assert_eq!(got, [2; 20]);
        scratch.give_back(a);
        assert_eq!(scratch.take().unwrap(), a);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let mut scratch = Scratch::new(PathBuf::from("/nowhere/at/all"), 1);
        let text = scratch.take().unwrap_err().to_string();
        assert!(text.contains("/nowhere/at/all"), "{text}");
    }
}
