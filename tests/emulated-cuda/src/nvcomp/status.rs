//! The statuses of nvCOMP.

use std::ffi::CStr;

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 10;
pub(crate) const NOT_SUPPORTED: u32 = 11;
pub(crate) const CANNOT_DECOMPRESS: u32 = 12;
pub(crate) const ALIGNMENT: u32 = 17;
pub(crate) const CHUNK_SIZE_TOO_LARGE: u32 = 18;
pub(crate) const CUDA_ERROR: u32 = 1000;

const STATUSES: &[(u32, &CStr)] = &[
    (0, c"success"),
    (10, c"invalid value"),
    (11, c"not supported"),
    (12, c"cannot decompress"),
    (13, c"bad checksum"),
    (14, c"cannot verify checksums"),
    (15, c"output buffer too small"),
    (16, c"wrong header length"),
    (17, c"wrong alignment"),
    (18, c"chunk too large"),
    (19, c"cannot compress"),
    (20, c"wrong input length"),
    (21, c"batch too large"),
    (22, c"too many sub-chunks"),
    (23, c"too few sub-chunks"),
    (24, c"output alignment too small"),
    (1000, c"CUDA error"),
    (10000, c"internal error"),
];

/// Whether the real library has that status.
pub(crate) fn known(status: u32) -> bool {
    STATUSES.iter().any(|(number, _)| *number == status)
}

/// A few words for a status.
pub(crate) fn words(status: u32) -> &'static CStr {
    let found = STATUSES.iter().find(|(number, _)| *number == status);
    found.map_or(c"unknown status", |(_, words)| *words)
}
