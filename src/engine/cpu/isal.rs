//! Inflate by ISA-L, where the system has that library.
//!
//! It is faster than libdeflate on some data and slower on other (docs/architecture.md),
//! so `deflate` asks both now and then. Loaded by name when first used; without it nothing
//! is lost but speed. Knows raw deflate streams only: checksums are the caller's.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// The beginning of ISA-L's `struct inflate_state`, the same since its version 2.18; the
/// rest is its own.
#[repr(C)]
struct Head {
    next_out: *mut u8,
    avail_out: u32,
    total_out: u32,
    next_in: *const u8,
    read_in: u64,
    avail_in: u32,
    read_in_length: i32,
}

/// Room for the whole struct, of which 2.30 uses 87,368 bytes.
const STATE_WORDS: usize = (192 << 10) / 8;

struct Library {
    init: unsafe extern "C" fn(*mut c_void),
    inflate: unsafe extern "C" fn(*mut c_void) -> c_int,
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref()
}

fn load() -> Option<Library> {
    // SAFETY: a library by its soname, which stands for this interface, is kept for the
    // life of the process; the two functions have these types in its header.
    unsafe {
        let handle = libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if handle.is_null() {
            return None;
        }
        let init = libc::dlsym(handle, c"isal_inflate_init".as_ptr());
        let inflate = libc::dlsym(handle, c"isal_inflate_stateless".as_ptr());
        if init.is_null() || inflate.is_null() {
            return None;
        }
        Some(Library {
            init: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(init),
            inflate: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_int>(
                inflate,
            ),
        })
    }
}

/// A decoder, one per worker.
pub struct Isal {
    library: &'static Library,
    state: Vec<u64>,
}

/// What came out of a stream that ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Inflated {
    /// Bytes made.
    pub made: usize,
    /// Bytes of the source that were not part of the stream.
    pub left: usize,
}

impl Isal {
    /// A decoder, if the library is here, and memory.
    pub fn new() -> Option<Isal> {
        let library = library()?;
        let mut state = Vec::new();
        state.try_reserve_exact(STATE_WORDS).ok()?;
        state.resize(STATE_WORDS, 0);
        Some(Isal { library, state })
    }

    /// Decodes a raw deflate stream; `None` if it is damaged or does not fit.
    pub fn inflate(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Inflated> {
        let (avail_in, avail_out) = (src.len().try_into().ok()?, dst.len().try_into().ok()?);
        let state = self.state.as_mut_ptr();
        // SAFETY: the state has room for the struct and is aligned for it; ISA-L reads and
        // writes within the lengths it is given.
        unsafe {
            (self.library.init)(state.cast());
            let head = &mut *state.cast::<Head>();
            head.next_in = src.as_ptr();
            head.avail_in = avail_in;
            head.next_out = dst.as_mut_ptr();
            head.avail_out = avail_out;
            let result = (self.library.inflate)(state.cast());
            let head = &*state.cast::<Head>();
            (result == 0)
                .then_some(Inflated { made: head.total_out as usize, left: head.avail_in as usize })
        }
    }
}
