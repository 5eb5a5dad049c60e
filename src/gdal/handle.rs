//! A file that is open: VSI's handle, and for a plain file a descriptor of our own, which any thread
//! may read and write.

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gdal_sys::{VSIFCloseL, VSIFGetNativeFileDescriptorL, VSILFILE};

use crate::error::{Cause, Error, Result};

/// Announced reads are cut to what Linux reads ahead for one announcement.
const ADVICE_BYTES: u64 = 128 << 10;
/// Parts of one system call; Linux takes 1024.
const MOST_PARTS: usize = 512;

/// A VSI handle, closed when dropped.
pub(super) struct Handle(pub(super) *mut VSILFILE);

// SAFETY: a VSI handle may be used from any thread, by one at a time; ours are behind a mutex.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by VSIFOpenL, closed once. Whoever wants to know whether that worked
        // does it.
        unsafe { VSIFCloseL(self.0) };
    }
}

/// A descriptor of our own, for `pread` and `pwritev`.
pub(super) struct Plain(c_int);

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: ours since it was made, closed once.
        unsafe { libc::close(self.0) };
    }
}

/// A duplicate of the handle's descriptor, if it is a plain file's.
///
/// # Safety
/// The handle must be open.
pub(super) unsafe fn plain(handle: *mut VSILFILE) -> Option<Plain> {
    // SAFETY: the caller's promise.
    let native = unsafe { VSIFGetNativeFileDescriptorL(handle) };
    // The pointer is the number; GDAL has no other way to return it.
    let descriptor = c_int::try_from(native as usize).ok().filter(|_| !native.is_null())?;
    // SAFETY: duplicating a number that is not a descriptor fails, no more.
    let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    (own >= 0).then_some(Plain(own))
}

/// A plain file that GDAL has open. A descriptor of our own is there only while somebody reads: a
/// mosaic of a thousand files has no more of them than with GTiff.
pub(super) struct Lent {
    /// GDAL's own descriptor.
    number: c_int,
    identity: Identity,
    /// Of those who read now.
    own: Mutex<Weak<Plain>>,
    /// Until it is certain that GDAL keeps the file open.
    kept: Mutex<Option<Arc<Plain>>>,
}

/// The device of a file and its number there.
type Identity = (u64, u64);

impl Lent {
    /// The file of a handle, if it is a plain one.
    ///
    /// # Safety
    /// The handle must be open.
    pub(super) unsafe fn new(handle: *mut VSILFILE) -> Option<Lent> {
        // SAFETY: the caller's promise.
        let own = unsafe { plain(handle) }?;
        // SAFETY: as above.
        let number = unsafe { VSIFGetNativeFileDescriptorL(handle) } as usize as c_int;
        let (identity, own) = (own.identity()?, Arc::new(own));
        let shared = Mutex::new(Arc::downgrade(&own));
        Some(Lent { number, identity, own: shared, kept: Mutex::new(Some(own)) })
    }

    /// Notes that GDAL has the file open for as long as it is read.
    pub(super) fn rely_on_gdal(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A descriptor for the time of a read. GDAL may have closed the file since, and its number may
    /// be another file's by now: that is an error.
    pub(super) fn lease(&self) -> io::Result<Arc<Plain>> {
        let mut shared = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = shared.upgrade() {
            return Ok(own);
        }
        // SAFETY: duplicating a number that is not a descriptor fails, no more.
        let own = unsafe { libc::fcntl(self.number, libc::F_DUPFD_CLOEXEC, 0) };
        if own < 0 {
            return Err(io::Error::last_os_error());
        }
        let own = Arc::new(Plain(own));
        if own.identity() != Some(self.identity) {
            return Err(io::Error::other("the file was closed"));
        }
        *shared = Arc::downgrade(&own);
        Ok(own)
    }
}

/// Reading failed.
pub(super) fn failed(offset: u64, len: usize, why: impl Into<String>) -> Error {
    Error::Io { offset, len: len as u64, source: Cause(why.into()) }
}

impl Plain {
    /// The descriptor of a file that is open.
    pub(super) fn of(file: std::fs::File) -> Plain {
        Plain(file.into_raw_fd())
    }

    pub(super) fn truncate(&self, len: u64) -> io::Result<()> {
        let len = libc::off64_t::try_from(len)
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        // SAFETY: no memory is passed.
        match unsafe { libc::ftruncate64(self.0, len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn descriptor(&self) -> c_int {
        self.0
    }

    /// One that lives on its own.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        // SAFETY: our own descriptor, which is open as long as we are borrowed.
        unsafe { BorrowedFd::borrow_raw(self.0) }.try_clone_to_owned()
    }

    pub(super) fn len(&self) -> u64 {
        self.stat().map_or(0, |stat| stat.st_size as u64)
    }

    fn identity(&self) -> Option<Identity> {
        self.stat().map(|stat| (stat.st_dev, stat.st_ino))
    }

    fn stat(&self) -> Option<libc::stat64> {
        // SAFETY: `stat` is plain data that fstat fills.
        unsafe {
            let mut stat: libc::stat64 = std::mem::zeroed();
            (libc::fstat64(self.0, &mut stat) == 0).then_some(stat)
        }
    }

    pub(super) fn read_at(&self, offset: u64, mut buf: &mut [u8]) -> Result<()> {
        let (start, len) = (offset, buf.len());
        let mut offset = offset;
        while !buf.is_empty() {
            let Ok(at) = libc::off64_t::try_from(offset) else {
                return Err(failed(start, len, "offset too large"));
            };
            // SAFETY: the buffer is valid for its length.
            let got = unsafe { libc::pread64(self.0, buf.as_mut_ptr().cast(), buf.len(), at) };
            match got {
                0 => return Err(failed(start, len, "the file ends before")),
                1.. => {
                    offset += got as u64;
                    buf = &mut buf[got as usize..];
                }
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(failed(start, len, error.to_string()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks the kernel to begin reading, neighbours together.
    pub(super) fn advise(&self, ranges: &[(u64, u64)]) {
        let announce = |start: u64, end: u64| {
            let mut at = start;
            while at < end {
                let len = (end - at).min(ADVICE_BYTES);
                // SAFETY: no memory is passed; wrong numbers are refused.
                unsafe {
                    libc::posix_fadvise64(self.0, at as _, len as _, libc::POSIX_FADV_WILLNEED)
                };
                at += len;
            }
        };
        let mut run: Option<(u64, u64)> = None;
        for &(offset, len) in ranges {
            let end = offset.saturating_add(len);
            run = match run {
                Some((start, last)) if offset >= last && offset - last < ADVICE_BYTES => {
                    Some((start, end))
                }
                other => {
                    if let Some((start, last)) = other {
                        announce(start, last);
                    }
                    Some((offset, end))
                }
            };
        }
        if let Some((start, end)) = run {
            announce(start, end);
        }
    }

    /// Writes all parts; the number of bytes that did not fit is never zero on an error.
    pub(super) fn write_at(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut first = 0;
        let mut skip = 0;
        while first < parts.len() {
            let mut vectors =
                [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; MOST_PARTS];
            let count = (parts.len() - first).min(MOST_PARTS);
            for (vector, part) in vectors.iter_mut().zip(&parts[first..]) {
                vector.iov_base = part.as_ptr().cast_mut().cast();
                vector.iov_len = part.len();
            }
            vectors[0].iov_base = vectors[0].iov_base.wrapping_byte_add(skip);
            vectors[0].iov_len -= skip;
            let at = libc::off64_t::try_from(offset)
                .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
            // SAFETY: `count` vectors, each a part of a slice that lives through the call.
            let wrote =
                unsafe { libc::pwritev64(self.descriptor(), vectors.as_ptr(), count as c_int, at) };
            if wrote < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            let mut left = wrote as usize;
            if left == 0 && parts[first..].iter().any(|part| !part.is_empty()) {
                return Err(io::Error::from(io::ErrorKind::WriteZero));
            }
            offset += left as u64;
            while first < parts.len() && left >= parts[first].len() - skip {
                left -= parts[first].len() - skip;
                (first, skip) = (first + 1, 0);
            }
            skip += left;
        }
        Ok(())
    }
}
