//! cuFile's codes, and how a CUDA error goes inside one.

use crate::door::Refused;
use crate::status::Code;

/// What most functions return, by value.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CUfileError {
    /// A code of cuFile's; 0 is success.
    pub err: u32,
    /// The driver's code where `err` is 5011.
    pub cu_err: u32,
}

impl From<CUfileError> for u32 {
    fn from(error: CUfileError) -> u32 {
        error.err
    }
}

/// A value, or a code and the reason for the report.
pub(super) type Outcome<T = ()> = Result<T, (CUfileError, String)>;

pub(super) const DRIVER_NOT_INITIALIZED: u32 = 5001;
pub(super) const DRIVER_CLOSING: u32 = 5006;
pub(super) const IO_NOT_SUPPORTED: u32 = 5008;
pub(super) const CUDA_DRIVER_ERROR: u32 = 5011;
pub(super) const CUDA_POINTER_INVALID: u32 = 5012;
pub(super) const CUDA_MEMORY_TYPE_INVALID: u32 = 5013;
pub(super) const CUDA_POINTER_RANGE: u32 = 5014;
pub(super) const CUDA_CONTEXT_MISMATCH: u32 = 5015;
pub(super) const INVALID_MAPPING_RANGE: u32 = 5017;
pub(super) const INVALID_FILE_TYPE: u32 = 5018;
pub(super) const INVALID_FILE_OPEN_FLAG: u32 = 5019;
pub(super) const INVALID_VALUE: u32 = 5022;
pub(super) const MEMORY_ALREADY_REGISTERED: u32 = 5023;
pub(super) const DRIVER_ALREADY_OPEN: u32 = 5026;
pub(super) const HANDLE_NOT_REGISTERED: u32 = 5027;
pub(super) const HANDLE_ALREADY_REGISTERED: u32 = 5028;
pub(super) const INTERNAL_ERROR: u32 = 5030;
pub(super) const NVFS_SETUP_ERROR: u32 = 5033;
pub(super) const GPU_MEMORY_PINNING_FAILED: u32 = 5036;
pub(super) const BATCH_FULL: u32 = 5037;

/// Above these a code is cuFile's, below it is the system's or the driver's.
const OWN: std::ops::RangeInclusive<u32> = 5001..=5039;

pub(super) const SUCCESS: CUfileError = CUfileError { err: 0, cu_err: 0 };

pub(super) fn refuse(err: u32, message: impl Into<String>) -> (CUfileError, String) {
    (CUfileError { err, cu_err: 0 }, message.into())
}

/// A refusal that is CUDA's.
pub(super) fn cuda(code: Code, message: impl Into<String>) -> (CUfileError, String) {
    (CUfileError { err: CUDA_DRIVER_ERROR, cu_err: code.known().0 }, message.into())
}

/// What a caller is told of a call that was not done.
pub(super) fn told(refused: Refused<CUfileError>) -> CUfileError {
    let err = match refused {
        Refused::Answered(error) => return error,
        Refused::Away(Code::NOT_INITIALIZED) => DRIVER_NOT_INITIALIZED,
        Refused::Away(Code::DEINITIALIZED) => DRIVER_CLOSING,
        Refused::Injected(code) if OWN.contains(&code.0) => code.0,
        Refused::Away(code) | Refused::Injected(code) => return cuda(code, "").0,
        Refused::Panicked => INTERNAL_ERROR,
    };
    CUfileError { err, cu_err: 0 }
}
