//! nvJPEG2000's statuses.

use crate::door::Refused;

/// A value, or a status and the reason for the report.
pub(super) type Outcome<T = ()> = Result<T, (u32, String)>;

pub(super) const INVALID_PARAMETER: u32 = 2;
pub(super) const BAD_JPEG: u32 = 3;
pub(super) const JPEG_NOT_SUPPORTED: u32 = 4;
pub(super) const ALLOCATOR_FAILURE: u32 = 5;
pub(super) const EXECUTION_FAILED: u32 = 6;
pub(super) const ARCH_MISMATCH: u32 = 7;
pub(super) const INTERNAL_ERROR: u32 = 8;
pub(super) const NOT_SUPPORTED: u32 = 9;

/// What a caller is told of a call that was not done.
pub(super) fn told(refused: Refused<u32>) -> u32 {
    match refused {
        Refused::Answered(status) => status,
        Refused::Injected(code) if (1..=9).contains(&code.0) => code.0,
        Refused::Away(_) | Refused::Injected(_) => EXECUTION_FAILED,
        Refused::Panicked => INTERNAL_ERROR,
    }
}
