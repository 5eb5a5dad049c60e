//! nvJPEG2000's decoder as operations of streams.
//!
//! Refuses to know C signatures (those are in [`api`]) and wavelets (those are OpenJPEG's).
//! Invariants: the samples are written when the operation runs; a decode whose state, parsed
//! stream or library handle was used for something else before it ran writes noise; the
//! caller's allocators are called while the emulator's lock is not held.

mod allocators;
pub mod api;
mod codestream;
mod decode;
mod openjpeg;
pub(crate) mod report;
mod settings;
mod status;
pub mod submit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use allocators::{DeviceAllocator, DeviceAllocatorV2, PinnedAllocator, PinnedAllocatorV2};
pub use api::{ComponentInfo, ImageInfo, NltInfo};
pub(crate) use decode::Decode;
pub(crate) use report::Nvjpeg2kRecord;
pub(crate) use settings::Nvjpeg2kSettings;
pub use submit::Image;

use crate::driver::Driver;
use allocators::{Allocators, Block};
use codestream::Header;
use status::{INVALID_PARAMETER, Outcome};

/// A library handle.
#[derive(Clone, Copy)]
struct Library {
    allocators: Allocators,
    device_padding: usize,
    pinned_padding: usize,
}

/// A decode that was submitted and may be spoiled until it has run.
#[derive(Clone)]
struct Submitted {
    operation: u64,
    is_spoiled: Arc<AtomicBool>,
}

/// A decode state: the memory of the decode that uses it.
struct State {
    library: u64,
    allocators: Allocators,
    device: Option<Block>,
    pinned: Option<Block>,
    last: Option<Submitted>,
    /// The stream of its last decode.
    stream: u64,
}

/// A parsed codestream.
struct Content {
    header: Header,
    /// Where the caller's bytes are; none where a later parse failed and left this in place.
    source: Option<usize>,
    codestream: Vec<u8>,
    /// None where it is corrupt.
    image: Option<Arc<openjpeg::Image>>,
}

/// A bitstream handle.
#[derive(Default)]
struct Bitstream {
    content: Option<Content>,
    decodes: Vec<Submitted>,
}

/// Decode parameters.
#[derive(Clone, Copy, Default)]
struct Parameters {
    is_interleaved: bool,
    is_rgb: bool,
}

/// All handles.
#[derive(Default)]
pub(crate) struct Nvjpeg2k {
    libraries: BTreeMap<u64, Library>,
    states: BTreeMap<u64, State>,
    streams: BTreeMap<u64, Bitstream>,
    parameters: BTreeMap<u64, Parameters>,
}

impl Nvjpeg2k {
    /// How many handles nobody gave back.
    pub(crate) fn live(&self) -> u64 {
        let handles = self.libraries.len() + self.states.len();
        (handles + self.streams.len() + self.parameters.len()) as u64
    }
}

impl Driver {
    /// Spoils those that have not run; what the caller did goes to the report.
    fn spoil(&mut self, decodes: impl IntoIterator<Item = Submitted>, what: &str) -> bool {
        let mut any = false;
        for decode in decodes {
            if self.work.pending.contains_key(&decode.operation) {
                decode.is_spoiled.store(true, Ordering::Relaxed);
                any = true;
            }
        }
        if any {
            self.misused(&format!("{what} before its decode has run"));
        }
        any
    }

    /// Notes something that the library does not check but that gives wrong samples.
    fn misused(&mut self, what: &str) {
        self.ledger.nvjpeg2k.misuse += 1;
        self.ledger.error(self.symbol, 0, what.into());
    }
}

/// What a handle stands for.
fn known<T>(map: &mut BTreeMap<u64, T>, handle: u64) -> Outcome<&mut T> {
    map.get_mut(&handle).ok_or_else(|| (INVALID_PARAMETER, "no such handle".into()))
}
