//! The race check: a shadow of shared and of global memory that remembers who used each byte.
//!
//! Two uses of a byte by different threads, one of them a write, must be in order. Within a block
//! its barriers make order, within a warp the meetings of its lanes at `bar.warp.sync`; nothing
//! does between blocks. Atomics are no races among themselves, but put nothing else in order,
//! and neither do fences, shuffles and votes. A barrier for a part of a block is taken for one of
//! all. What is forgotten is only what was in order with what replaced it.

mod clocks;
mod shadow;

pub(super) use clocks::Clocks;
pub(super) use shadow::Races;

/// What an access does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
    /// Reads and writes at once; such accesses are in order among themselves.
    Atomic,
    /// An atomic whose old value nobody wants.
    Reduction,
}

impl Use {
    pub(super) fn reads(self) -> bool {
        matches!(self, Use::Read | Use::Atomic)
    }

    pub(super) fn writes(self) -> bool {
        self != Use::Read
    }

    pub(super) fn verb(self) -> &'static str {
        match self {
            Use::Read => "reads",
            Use::Write => "writes",
            Use::Atomic | Use::Reduction => "changes",
        }
    }
}

/// A lane that uses memory.
#[derive(Clone, Copy)]
pub(super) struct User<'a> {
    pub(super) warp: u32,
    pub(super) lane: usize,
    pub(super) line: u32,
    pub(super) clocks: &'a Clocks,
}
