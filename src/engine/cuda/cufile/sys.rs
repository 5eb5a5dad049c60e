//! What cufile.h declares, as far as it is used here.

use std::ffi::{c_int, c_uint, c_void};

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    pub(super) code: c_int,
    pub(super) cuda: c_int,
}

#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Properties {
    pub(super) major: c_uint,
    pub(super) minor: c_uint,
    pub(super) poll_threshold: usize,
    /// In KiB.
    pub(super) max_direct_io: usize,
    pub(super) status_flags: c_uint,
    pub(super) control_flags: c_uint,
    pub(super) feature_flags: c_uint,
    pub(super) max_cache: c_uint,
    pub(super) buffer_cache: c_uint,
    pub(super) max_pinned: c_uint,
    pub(super) max_batch: c_uint,
    pub(super) batch_timeout: c_uint,
    /// Later versions may have more.
    pub(super) room: [u64; 16],
}

/// CU_FILE_HANDLE_TYPE_OPAQUE_FD.
pub(super) const OPAQUE_FD: c_int = 1;

#[repr(C)]
pub(super) struct Description {
    pub(super) kind: c_int,
    pub(super) handle: Handle,
    pub(super) operations: *const c_void,
}

/// A union with a pointer.
#[repr(C, align(8))]
pub(super) struct Handle {
    pub(super) descriptor: c_int,
}

/// CUFILE_BATCH.
pub(super) const BATCH: c_int = 1;
/// CUFILE_READ.
pub(super) const READ: c_int = 0;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) mode: c_int,
    pub(super) base: u64,
    pub(super) file_offset: i64,
    pub(super) offset: i64,
    pub(super) bytes: usize,
    pub(super) file: *mut c_void,
    pub(super) operation: c_int,
    pub(super) cookie: usize,
}

/// CUFILE_COMPLETE.
pub(super) const COMPLETE: c_int = 0x10;
/// Whatever came of it, nothing more comes: INVALID, CANCELED, COMPLETE, FAILED.
pub(super) const OVER: c_int = 0x4 | 0x8 | COMPLETE | 0x40;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Event {
    pub(super) cookie: usize,
    pub(super) status: c_int,
    pub(super) outcome: isize,
}

pub(super) type Open = unsafe extern "C" fn() -> Status;
pub(super) type GetProperties = unsafe extern "C" fn(*mut Properties) -> Status;
pub(super) type Register = unsafe extern "C" fn(*mut *mut c_void, *mut Description) -> Status;
pub(super) type Deregister = unsafe extern "C" fn(*mut c_void);
pub(super) type BufRegister = unsafe extern "C" fn(u64, usize, c_int) -> Status;
pub(super) type BufDeregister = unsafe extern "C" fn(u64) -> Status;
pub(super) type SetUp = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Status;
pub(super) type Submit = unsafe extern "C" fn(*mut c_void, c_uint, *mut Request, c_uint) -> Status;
pub(super) type GetStatus = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    *mut c_uint,
    *mut Event,
    *mut libc::timespec,
) -> Status;
pub(super) type Cancel = unsafe extern "C" fn(*mut c_void) -> Status;
pub(super) type Destroy = unsafe extern "C" fn(*mut c_void);

const _: () = assert!(size_of::<Status>() == 8 && size_of::<Description>() == 24);
const _: () = assert!(std::mem::offset_of!(Description, handle) == 8);
const _: () = assert!(size_of::<Request>() == 64 && size_of::<Event>() == 24);
