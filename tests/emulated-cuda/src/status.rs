//! The result codes of the driver, and the reason that goes with one.
//!
//! Refuses to know who answers them. Invariant: whatever leaves the library as a CUresult
//! is in the table here, because Rust callers turn it into an enum.

use std::ffi::CStr;

/// A CUresult other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Code(pub u32);

/// Why a call was refused; the message goes to the report.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// What the body of a call gives back.
pub(crate) type Answer<T = ()> = Result<T, Refusal>;

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal { code, message: String::new() }
    }
}

impl Code {
    pub(crate) const INVALID_VALUE: Code = Code(1);
    pub(crate) const OUT_OF_MEMORY: Code = Code(2);
    pub(crate) const NOT_INITIALIZED: Code = Code(3);
    pub(crate) const DEINITIALIZED: Code = Code(4);
    pub(crate) const DEVICE_UNAVAILABLE: Code = Code(46);
    pub(crate) const NO_DEVICE: Code = Code(100);
    pub(crate) const INVALID_DEVICE: Code = Code(101);
    pub(crate) const INVALID_IMAGE: Code = Code(200);
    pub(crate) const INVALID_CONTEXT: Code = Code(201);
    pub(crate) const NO_BINARY_FOR_GPU: Code = Code(209);
    pub(crate) const INVALID_PTX: Code = Code(218);
    pub(crate) const UNSUPPORTED_PTX_VERSION: Code = Code(222);
    pub(crate) const INVALID_HANDLE: Code = Code(400);
    pub(crate) const NOT_FOUND: Code = Code(500);
    pub(crate) const NOT_READY: Code = Code(600);
    pub(crate) const ILLEGAL_ADDRESS: Code = Code(700);
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: Code = Code(701);
    pub(crate) const LAUNCH_TIMEOUT: Code = Code(702);
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = Code(712);
    pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = Code(713);
    pub(crate) const ILLEGAL_INSTRUCTION: Code = Code(715);
    pub(crate) const MISALIGNED_ADDRESS: Code = Code(716);
    pub(crate) const LAUNCH_FAILED: Code = Code(719);
    pub(crate) const NOT_PERMITTED: Code = Code(800);
    pub(crate) const NOT_SUPPORTED: Code = Code(801);
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Code = Code(900);
    pub(crate) const UNKNOWN: Code = Code(999);

    /// Whether the device is lost for the process: the code comes back from every later call.
    pub fn sticky(self) -> bool {
        matches!(self.0, 700 | 702 | 710 | 714..=719)
    }

    /// The code itself where callers know it, UNKNOWN otherwise.
    pub(crate) fn known(self) -> Code {
        if name(self.0).is_some() { self } else { Code::UNKNOWN }
    }

    /// The refusal with this code and a reason.
    pub(crate) fn because(self, message: impl Into<String>) -> Refusal {
        Refusal { code: self, message: message.into() }
    }
}

/// The name of a code, success included.
pub(crate) fn name(code: u32) -> Option<&'static CStr> {
    NAMES.iter().find(|(number, ..)| *number == code).map(|(_, name, _)| *name)
}

/// A sentence for a code, success included.
pub(crate) fn sentence(code: u32) -> Option<&'static CStr> {
    NAMES.iter().find(|(number, ..)| *number == code).map(|(.., text)| *text)
}

const NAMES: &[(u32, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"stub library"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"device busy or unavailable"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"invalid kernel image"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image for this device"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"PTX compilation failed"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX compiler not found"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"PTX too new for this driver"),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"invalid kernel source"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", c"symbol not found"),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"shared object failed to start"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"operating system call failed"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"illegal state"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"illegal memory access"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out"),
    (708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"primary context is active"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"device-side assert"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"host memory already pinned"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"host memory not pinned"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"illegal instruction"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"invalid address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"invalid program counter"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not ready"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"driver versions do not match"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"compatibility mode not supported"),
    (909, c"CUDA_ERROR_TIMEOUT", c"timed out"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];
