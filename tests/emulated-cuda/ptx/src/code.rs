//! A kernel ready to run: instructions whose operands are register indices, whose branches are
//! positions and whose variables are addresses. Nothing of the text is left but line numbers.

use crate::registers::{Class, LaneFn, Operands};
use crate::syntax::Space;

/// An instruction with the predicate that guards it.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) line: u32,
    /// Index of a predicate, maybe NEGATED, or NONE.
    pub(crate) guard: u32,
    pub(crate) action: Action,
}

/// What an instruction does.
#[derive(Clone)]
pub(crate) enum Action {
    /// Each lane for itself, on registers only.
    Lanes(LaneFn, Operands),
    Load(Access),
    Store(Access),
    Atomic(Atomic),
    Branch(u32),
    /// A branch by a table: the register with the index, and the targets.
    Table(u32, Box<[u32]>),
    Exit,
    Trap,
    /// Waits for the threads of the block.
    Barrier(Barrier),
    /// Waits for the lanes that a register names.
    WarpBarrier(u32),
    Shuffle(Shuffle),
    Vote(Vote),
    Match(Match),
    /// The lanes that run together, to a register.
    ActiveMask(u32),
    /// A counter that goes up with every instruction.
    Clock(Class, u32),
    /// Whether a generic address is in a space.
    InSpace(Space, u32, u32),
    /// Fences and prefetches: accesses take effect in the order they run in.
    Nothing,
}

/// A load or store.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) space: Space,
    /// Bytes of an element.
    pub(crate) size: u8,
    /// Loads that fill up wider registers with the sign.
    pub(crate) signed: bool,
    pub(crate) address: Address,
    /// A register for each element; NONE drops it.
    pub(crate) values: Box<[(Class, u32)]>,
}

/// A register plus an offset; the register is NONE for an absolute address.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) class: Class,
    pub(crate) base: u32,
    pub(crate) offset: i64,
}

/// What an atomic makes of the old value and the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    AddFloat,
    Min,
    Max,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
    Exchange,
    Compare,
    Increment,
    Decrement,
}

/// An atomic access; without a destination a reduction.
#[derive(Clone)]
pub(crate) struct Atomic {
    pub(crate) space: Space,
    pub(crate) size: u8,
    pub(crate) change: Change,
    pub(crate) address: Address,
    pub(crate) class: Class,
    pub(crate) old: u32,
    pub(crate) operands: [u32; 2],
}

/// What a barrier gathers on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gathered {
    Nothing,
    Count,
    All,
    Any,
}

#[derive(Clone)]
pub(crate) struct Barrier {
    /// Registers with the barrier's number and the number of threads (NONE: all).
    pub(crate) id: u32,
    pub(crate) threads: u32,
    /// All lanes of a warp must execute it together.
    pub(crate) aligned: bool,
    pub(crate) gathered: Gathered,
    pub(crate) result: u32,
    pub(crate) predicate: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone)]
pub(crate) struct Shuffle {
    pub(crate) direction: Direction,
    pub(crate) d: u32,
    pub(crate) in_range: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) members: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    All,
    Any,
    Uniform,
    Mask,
}

#[derive(Clone)]
pub(crate) struct Vote {
    pub(crate) ballot: Ballot,
    pub(crate) d: u32,
    pub(crate) predicate: u32,
    pub(crate) members: u32,
}

#[derive(Clone)]
pub(crate) struct Match {
    /// All lanes must be equal; else each finds its equals.
    pub(crate) all: bool,
    pub(crate) d: u32,
    pub(crate) equal: u32,
    pub(crate) class: Class,
    pub(crate) a: u32,
    pub(crate) members: u32,
}

/// Registers that hold what a thread is, filled in before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(u8),
    Block(u8),
    BlockSize(u8),
    GridSize(u8),
    Lane,
    Warp,
    Warps,
    LanesEqual,
    LanesBelow,
    LanesUpTo,
    LanesAbove,
    LanesFrom,
    DynamicShared,
    TotalShared,
    Zero,
    One,
}

/// A kernel.
#[derive(Clone, Default)]
pub(crate) struct Code {
    pub(crate) steps: Vec<Step>,
    pub(crate) predicates: usize,
    pub(crate) halves: usize,
    pub(crate) singles: usize,
    pub(crate) doubles: usize,
    pub(crate) constants: Vec<(Class, u32, u64)>,
    pub(crate) specials: Vec<(Special, Class, u32)>,
    /// Where dynamic shared memory begins: after the static variables.
    pub(crate) dynamic_base: u32,
    /// Bytes of local memory of a thread.
    pub(crate) local: u32,
}

/// Where spaces begin among generic addresses. Far above anything a device allocates, so that
/// an address that belongs to no allocation is not taken for one of these by accident.
pub(crate) mod window {
    use crate::syntax::Space;

    pub(crate) const SHARED: u64 = 0xf100_0000_0000_0000;
    pub(crate) const LOCAL: u64 = 0xf200_0000_0000_0000;
    pub(crate) const PARAM: u64 = 0xf300_0000_0000_0000;
    pub(crate) const CONST: u64 = 0xf400_0000_0000_0000;
    /// Variables of the module in global memory: their addresses are generic ones already.
    pub(crate) const VARIABLES: u64 = 0xf500_0000_0000_0000;
    const TAG: u64 = 0xff00_0000_0000_0000;

    /// What is added to an address in a space to make it generic.
    pub(crate) fn base(space: Space) -> u64 {
        match space {
            Space::Shared => SHARED,
            Space::Local => LOCAL,
            Space::Param => PARAM,
            Space::Const => CONST,
            Space::Global | Space::Generic => 0,
        }
    }

    /// The space of a generic address.
    pub(crate) fn space(address: u64) -> Space {
        match address & TAG {
            SHARED => Space::Shared,
            LOCAL => Space::Local,
            PARAM => Space::Param,
            CONST => Space::Const,
            _ => Space::Global,
        }
    }
}
