//! A file that GDAL's virtual file systems make for us.
//!
//! A plain file is written with `pwritev` on its descriptor, from any thread. Anything else goes
//! through its one VSI handle under a lock. A plain file may get its name when it is finished
//! (`unnamed`); VSI knows nothing of it before.

use std::ffi::CString;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gdal_sys::{
    VSIFCloseL, VSIFFlushL, VSIFOpenL, VSIFReadL, VSIFSeekL, VSIFTellL, VSIFTruncateL, VSIFWriteL,
    VSIGetDiskFreeSpace, VSILFILE, VSIUnlink,
};

use super::handle::{Handle, Plain, plain};
use super::log::c_string;
use super::unnamed::Unnamed;
use crate::error::{Cause, Error, Result};
use crate::io::{ByteSink, ByteSource};

/// The file, until it is closed.
pub struct VsiSink {
    path: CString,
    plain: Option<Plain>,
    handle: Mutex<Option<Handle>>,
    unnamed: Option<Unnamed>,
}

impl VsiSink {
    /// Makes the file without a name, until [`publish`](VsiSink::publish); under its name where the
    /// file system, or what is there under that name, does not allow it.
    pub fn create_unnamed(path: &str) -> Result<VsiSink> {
        match Unnamed::create(path) {
            Some((unnamed, plain)) => Ok(VsiSink {
                path: c_string(path),
                plain: Some(plain),
                handle: Mutex::new(None),
                unnamed: Some(unnamed),
            }),
            None => VsiSink::create(path),
        }
    }

    /// Whether the file has no name yet.
    pub fn is_unnamed(&self) -> bool {
        self.unnamed.as_ref().is_some_and(|unnamed| !unnamed.is_published())
    }

    /// Gives the file its name, in the place of one that has it. It is closed and complete.
    pub fn publish(&self) -> Result<()> {
        match (&self.unnamed, &self.plain) {
            (Some(unnamed), Some(plain)) => unnamed.publish(plain).map_err(|error| {
                Error::File(Cause(format!(
                    "cannot give {} its name: {error}",
                    self.path.to_string_lossy()
                )))
            }),
            _ => Ok(()),
        }
    }

    /// Makes the file anew: one that is there is unlinked, not truncated, so that whoever
    /// has it open keeps it.
    pub fn create(path: &str) -> Result<VsiSink> {
        // A device is nobody's to remove.
        let device = std::fs::symlink_metadata(path)
            .is_ok_and(|found| !found.file_type().is_file() && !found.file_type().is_symlink());
        let path = c_string(path);
        // SAFETY: C strings.
        let handle = unsafe {
            if !device {
                VSIUnlink(path.as_ptr());
            }
            VSIFOpenL(path.as_ptr(), c"w+b".as_ptr())
        };
        if handle.is_null() {
            let error = io::Error::last_os_error();
            let text = format!("cannot create {}: {error}", path.to_string_lossy());
            return Err(Error::File(Cause(text)));
        }
        let handle = Handle(handle);
        // SAFETY: just opened.
        let plain = unsafe { plain(handle.0) };
        Ok(VsiSink { path, plain, handle: Mutex::new(Some(handle)), unnamed: None })
    }

    /// Removes the file; what has the name of one that has none yet stays.
    pub fn unlink(&self) {
        if self.is_unnamed() {
            return;
        }
        // SAFETY: a C string.
        unsafe { VSIUnlink(self.path.as_ptr()) };
    }

    fn guard(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the handle, at `offset`; false from it is a failure.
    fn at(&self, offset: u64, work: impl FnOnce(*mut VSILFILE) -> bool) -> bool {
        let guard = self.guard();
        let Some(handle) = guard.as_ref() else { return false };
        // SAFETY: open, and ours alone while the lock is held.
        unsafe { VSIFSeekL(handle.0, offset, libc::SEEK_SET) == 0 && work(handle.0) }
    }

    fn unwritten(&self, offset: u64, len: u64, why: io::Error) -> Error {
        let source = Cause(format!("{}: {why}", self.path.to_string_lossy()));
        Error::Write { offset, len, source }
    }

    fn failed(&self, what: &str) -> Error {
        self.failed_by(what, &io::Error::last_os_error())
    }

    fn failed_by(&self, what: &str, why: &io::Error) -> Error {
        Error::File(Cause(format!("cannot {what} {}: {why}", self.path.to_string_lossy())))
    }
}

/// Bytes left on the disk that a directory is on, if that is known.
pub fn free_space(directory: &str) -> Option<u64> {
    let directory = c_string(directory);
    // SAFETY: a C string.
    u64::try_from(unsafe { VSIGetDiskFreeSpace(directory.as_ptr()) }).ok()
}

impl ByteSource for VsiSink {
    fn len(&self) -> u64 {
        if let Some(plain) = &self.plain {
            return plain.len();
        }
        let guard = self.guard();
        let Some(handle) = guard.as_ref() else { return 0 };
        // SAFETY: open, and ours alone while the lock is held.
        unsafe { if VSIFSeekL(handle.0, 0, libc::SEEK_END) == 0 { VSIFTellL(handle.0) } else { 0 } }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if let Some(plain) = &self.plain {
            return plain.read_at(offset, buf);
        }
        let len = buf.len();
        // SAFETY: the buffer is valid for its length.
        let read = |handle| unsafe { VSIFReadL(buf.as_mut_ptr().cast(), 1, len, handle) == len };
        if self.at(offset, read) {
            return Ok(());
        }
        let source = Cause(format!("{}: reading back failed", self.path.to_string_lossy()));
        Err(Error::Io { offset, len: len as u64, source })
    }

    fn concurrent(&self) -> bool {
        self.plain.is_some()
    }
}

impl ByteSink for VsiSink {
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(plain) = &self.plain {
            return plain.write_at(offset, parts).map_err(|e| self.unwritten(offset, len, e));
        }
        let write = |handle| {
            parts.iter().all(|part| {
                // SAFETY: the part is valid for its length.
                let wrote = unsafe { VSIFWriteL(part.as_ptr().cast(), 1, part.len(), handle) };
                wrote == part.len()
            })
        };
        match self.at(offset, write) {
            true => Ok(()),
            false => Err(self.unwritten(offset, len, io::Error::last_os_error())),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        if let (Some(_), Some(plain)) = (&self.unnamed, &self.plain) {
            return plain.truncate(len).map_err(|error| self.failed_by("cut off", &error));
        }
        // SAFETY: the handle is open.
        match self.at(len, |handle| unsafe { VSIFTruncateL(handle, len) == 0 }) {
            true => Ok(()),
            false => Err(self.failed("cut off")),
        }
    }

    fn flush(&self) -> Result<()> {
        if self.unnamed.is_some() {
            return Ok(());
        }
        // SAFETY: the handle is open.
        match self.at(0, |handle| unsafe { VSIFFlushL(handle) == 0 }) {
            true => Ok(()),
            false => Err(self.failed("flush")),
        }
    }

    fn close(&self) -> Result<()> {
        if let Some(unnamed) = &self.unnamed {
            return unnamed.close().map_err(|error| self.failed_by("close", &error));
        }
        let mut failed = false;
        if let Some(handle) = self.guard().take() {
            // SAFETY: open; not dropped once more.
            failed = unsafe { VSIFCloseL(handle.0) != 0 };
            std::mem::forget(handle);
        }
        match failed {
            false => Ok(()),
            true => Err(self.failed("close")),
        }
    }
}
