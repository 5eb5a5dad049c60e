//! What ends a launch early.

use std::fmt;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside of what is there.
    IllegalAddress,
    /// An address that is no multiple of the access' size.
    Misaligned,
    /// Two accesses that nothing puts in order.
    Race,
    /// Threads wait for others that never come.
    Divergence,
    /// An instruction or launch that cannot be executed.
    IllegalInstruction,
    /// More instructions than allowed.
    Budget,
    /// The kernel gave up by itself.
    Trap,
}

/// A fault and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// Kernel, line of the PTX, block, thread, and what it was about.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Fault {}
