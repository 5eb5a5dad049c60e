//! What can be registered: open files and ranges of device memory.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use super::settings::Files;
use super::status::{
    CUDA_CONTEXT_MISMATCH, CUDA_MEMORY_TYPE_INVALID, CUDA_POINTER_RANGE, GPU_MEMORY_PINNING_FAILED,
    HANDLE_ALREADY_REGISTERED, INVALID_FILE_OPEN_FLAG, INVALID_FILE_TYPE, INVALID_VALUE,
    IO_NOT_SUPPORTED, MEMORY_ALREADY_REGISTERED, Outcome, refuse,
};
use super::{context, opened};
use crate::driver::Driver;

/// How a caller describes a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileDescr {
    /// 1 for a file descriptor; nothing else is taken.
    pub kind: u32,
    /// A union with a pointer, whose first bytes it is.
    pub fd: i64,
    /// Functions of a file system; must be null here.
    pub operations: usize,
}

/// A registered file.
pub(super) struct File {
    pub(super) fd: c_int,
    /// The device and inode it had.
    identity: (u64, u64),
}

/// A registered range of device memory.
pub(super) struct Buffer {
    pub(super) bytes: u64,
}

fn status(fd: c_int) -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place is as large as the struct; a descriptor that is none is refused.
    match unsafe { libc::fstat(fd, found.as_mut_ptr()) } {
        // SAFETY: a call that succeeds has filled it.
        0 => Some(unsafe { found.assume_init() }),
        _ => None,
    }
}

impl File {
    /// Whether the descriptor still is the file that was registered.
    pub(super) fn is_same(&self) -> bool {
        status(self.fd).is_some_and(|found| (found.st_dev, found.st_ino) == self.identity)
    }
}

/// Registers an open file; its handle.
pub(super) fn register(driver: &mut Driver, descr: Option<&CUfileDescr>) -> Outcome<u64> {
    opened(driver)?;
    let Some(CUfileDescr { kind: 1, fd, operations: 0 }) = descr.copied() else {
        return Err(refuse(INVALID_VALUE, "the description of a file is null or of another kind"));
    };
    let fd = fd as c_int;
    let Some(found) = status(fd) else {
        return Err(refuse(INVALID_VALUE, format!("{fd} is no open file")));
    };
    if found.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(refuse(INVALID_FILE_TYPE, format!("{fd} is no regular file")));
    }
    if driver.cufile.files.values().any(|file| file.fd == fd && file.is_same()) {
        return Err(refuse(HANDLE_ALREADY_REGISTERED, format!("{fd} is registered already")));
    }
    // SAFETY: takes no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let is_direct = flags & libc::O_DIRECT != 0;
    let files = driver.settings.cufile.files;
    if files == Files::None {
        return Err(refuse(IO_NOT_SUPPORTED, "the file system is not supported"));
    }
    if flags & libc::O_ACCMODE == libc::O_WRONLY || (files == Files::Direct && !is_direct) {
        return Err(refuse(INVALID_FILE_OPEN_FLAG, format!("{fd} is open with flags {flags:#o}")));
    }
    let handle = driver.handle();
    driver.cufile.files.insert(handle, File { fd, identity: (found.st_dev, found.st_ino) });
    let call = driver.ledger.calls;
    driver.ledger.cufile.files.begin(handle, fd as u64, u64::from(is_direct), call);
    Ok(handle)
}

/// Forgets a file; reads of it that have not landed will fail.
pub(super) fn deregister(driver: &mut Driver, handle: u64) -> Outcome {
    opened(driver)?;
    if driver.cufile.files.remove(&handle).is_none() {
        return Err(refuse(INVALID_VALUE, "no such file handle"));
    }
    driver.ledger.cufile.files.end(handle, driver.ledger.calls);
    match driver.cufile.flights.values().any(|flight| flight.file == handle) {
        true => Err(refuse(INVALID_VALUE, "a file is deregistered while reads are in flight")),
        false => Ok(()),
    }
}

/// Registers a range of device memory.
pub(super) fn register_buffer(driver: &mut Driver, start: u64, bytes: u64) -> Outcome {
    opened(driver)?;
    let context = context(driver)?;
    if bytes == 0 {
        return Err(refuse(INVALID_VALUE, "a buffer of no bytes"));
    }
    let Some(found) = driver.memory.holding(start) else {
        return Err(refuse(CUDA_MEMORY_TYPE_INVALID, driver.memory.describe(start, bytes)));
    };
    if found.context != context {
        return Err(refuse(CUDA_CONTEXT_MISMATCH, "memory of another context"));
    }
    if bytes > found.bytes - (start - found.base) {
        return Err(refuse(CUDA_POINTER_RANGE, driver.memory.describe(start, bytes)));
    }
    let buffers = &driver.cufile.buffers;
    let before = buffers.range(..start + bytes).next_back();
    if before.is_some_and(|(base, buffer)| start < base + buffer.bytes) {
        return Err(refuse(MEMORY_ALREADY_REGISTERED, driver.memory.describe(start, bytes)));
    }
    let sum: u64 = buffers.values().map(|buffer| buffer.bytes).sum();
    if driver.settings.cufile.pinned.is_some_and(|most| sum + bytes > most) {
        let text = format!("{bytes} bytes to register, {sum} are");
        return Err(refuse(GPU_MEMORY_PINNING_FAILED, text));
    }
    driver.cufile.buffers.insert(start, Buffer { bytes });
    driver.ledger.cufile.buffers.begin(start, start, bytes, driver.ledger.calls);
    Ok(())
}

/// Forgets a range of device memory.
pub(super) fn deregister_buffer(driver: &mut Driver, start: u64) -> Outcome {
    opened(driver)?;
    let Some(buffer) = driver.cufile.buffers.get(&start) else {
        return Err(refuse(INVALID_VALUE, "no buffer is registered there"));
    };
    let range = start..start + buffer.bytes;
    if driver.cufile.flights.values().any(|flight| range.contains(&flight.address)) {
        return Err(refuse(INVALID_VALUE, "a buffer is deregistered while reads are in flight"));
    }
    driver.cufile.buffers.remove(&start);
    driver.ledger.cufile.buffers.end(start, driver.ledger.calls);
    Ok(())
}
