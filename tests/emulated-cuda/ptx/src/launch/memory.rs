//! Addresses of all spaces to the bytes behind them, with exact bounds.

use std::sync::{MutexGuard, PoisonError};

use super::Launch;
use crate::code::window;
use crate::module::{Arena, Variables};
use crate::syntax::Space;

/// A live allocation of the device: the addresses from `base` on for `len` bytes, which are
/// kept at `data`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub data: *mut u8,
}

/// The device's memory.
pub trait GlobalMemory {
    /// The live allocation that holds the address.
    fn span(&self, address: u64) -> Option<Span>;
}

/// Spans that were used last, the latest first.
const RECENT: usize = 8;

/// A byte that nobody wrote, in shared and local memory.
pub(super) const POISON: u8 = 0xcb;

pub(super) struct Memory<'a> {
    global: &'a dyn GlobalMemory,
    recent: [Span; RECENT],
    params: Vec<u8>,
    constants: &'a Arena,
    variables: MutexGuard<'a, Arena>,
    shared: Vec<u8>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(launch: &Launch<'a>, variables: &'a Variables) -> Self {
        let shared = launch.entry.code.dynamic_base as usize + launch.dynamic_shared as usize;
        let nothing = Span { base: 0, len: 0, data: std::ptr::null_mut() };
        Memory {
            global: launch.memory,
            recent: [nothing; RECENT],
            params: launch.params[..launch.entry.param_bytes() as usize].to_vec(),
            constants: &variables.constants,
            variables: variables.globals.lock().unwrap_or_else(PoisonError::into_inner),
            shared: vec![POISON; shared.max(launch.entry.static_shared as usize)],
        }
    }

    pub(super) fn shared_bytes(&self) -> usize {
        self.shared.len()
    }

    /// What a new block finds.
    pub(super) fn poison(&mut self) {
        self.shared.fill(POISON);
    }

    /// Where `bytes` at an address are, or None if not all of them are there. `local` is the
    /// thread's own memory.
    #[inline]
    pub(super) fn locate(
        &mut self,
        space: Space,
        address: u64,
        bytes: u64,
        local: &mut [u8],
    ) -> Option<*mut u8> {
        match space {
            Space::Global => self.locate_global(address, bytes),
            Space::Shared => within(&mut self.shared, address, bytes),
            Space::Local => within(local, address, bytes),
            Space::Param => within(&mut self.params, address, bytes),
            Space::Const => {
                let (begin, size) = self.constants.holding(address)?;
                if address - begin + bytes > size {
                    return None;
                }
                let from = self.constants.bytes.get(address as usize..)?;
                Some(from.as_ptr().cast_mut())
            }
            Space::Generic => {
                let space = window::space(address);
                self.locate(space, address.wrapping_sub(window::base(space)), bytes, local)
            }
        }
    }

    /// The stretch of memory around an address that all lanes have in common: an allocation,
    /// shared memory or the parameters.
    #[inline]
    pub(super) fn stretch(&mut self, space: Space, address: u64) -> Option<Span> {
        let bytes = match space {
            Space::Global => {
                let latest = self.recent[0];
                let holds = address.wrapping_sub(latest.base) < latest.len;
                return if holds { Some(latest) } else { self.span(address) };
            }
            Space::Shared => &mut self.shared,
            Space::Param => &mut self.params,
            _ => return None,
        };
        Some(Span { base: 0, len: bytes.len() as u64, data: bytes.as_mut_ptr() })
    }

    #[inline]
    fn locate_global(&mut self, address: u64, bytes: u64) -> Option<*mut u8> {
        let span = self.recent[0];
        let offset = address.wrapping_sub(span.base);
        if offset < span.len && bytes <= span.len - offset {
            return Some(span.data.wrapping_add(offset as usize));
        }
        let span = self.span(address)?;
        let offset = address - span.base;
        (bytes <= span.len - offset).then(|| span.data.wrapping_add(offset as usize))
    }

    /// The allocation or variable that holds an address, which becomes the latest.
    pub(super) fn span(&mut self, address: u64) -> Option<Span> {
        let holds = |span: &Span| address.wrapping_sub(span.base) < span.len;
        let place = self.recent.iter().position(holds);
        let (span, place) = match place {
            Some(place) => (self.recent[place], place),
            None => (self.lookup(address)?, RECENT - 1),
        };
        self.recent.copy_within(..place, 1);
        self.recent[0] = span;
        Some(span)
    }

    fn lookup(&mut self, address: u64) -> Option<Span> {
        if address >= window::VARIABLES {
            let (begin, len) = self.variables.holding(address - window::VARIABLES)?;
            let data = self.variables.bytes[begin as usize..].as_mut_ptr();
            return Some(Span { base: window::VARIABLES + begin, len, data });
        }
        self.global.span(address).filter(|span| address.wrapping_sub(span.base) < span.len)
    }

    /// The allocation that ends or begins next to an address that is in none.
    fn nearest(&mut self, address: u64) -> String {
        for distance in [1, 16, 256, 4096, 65536] {
            if let Some(span) = self.span(address.wrapping_sub(distance)) {
                let by = address - (span.base + span.len);
                return format!(
                    "that is {by} bytes after {} bytes from {:#x} on",
                    span.len, span.base
                );
            }
            if let Some(span) = self.span(address.wrapping_add(distance)) {
                let by = span.base - address;
                return format!(
                    "that is {by} bytes before {} bytes from {:#x} on",
                    span.len, span.base
                );
            }
        }
        "no allocation is there".into()
    }

    /// For messages: what is near an address.
    pub(super) fn describe(&mut self, space: Space, address: u64) -> String {
        let space = if space == Space::Generic { window::space(address) } else { space };
        match space {
            Space::Global => match self.span(address) {
                Some(span) => {
                    format!("the allocation has {} bytes from {:#x} on", span.len, span.base)
                }
                None => self.nearest(address),
            },
            Space::Shared => format!("the block has {} bytes of shared memory", self.shared.len()),
            Space::Param => format!("there are {} bytes of parameters", self.params.len()),
            _ => format!("nothing is there in {space:?} memory"),
        }
    }
}

fn within(bytes: &mut [u8], address: u64, count: u64) -> Option<*mut u8> {
    let len = bytes.len() as u64;
    (address < len && count <= len - address)
        .then(|| bytes.as_mut_ptr().wrapping_add(address as usize))
}
