//! A warp: 32 threads with common registers, in fragments of lanes that run together.

use super::memory::POISON;
use super::race::Clocks;
use crate::code::{Code, Special};
use crate::registers::{Class, LANES, Registers, lanes};

/// What a fragment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Ready,
    /// For these lanes, at a `.sync` instruction.
    Lanes(u32),
    /// For the block, at the barrier of this number, for so many threads (0: all).
    Block(u32, u32),
}

/// Lanes at the same instruction. The masks of a warp's fragments do not overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) wait: Wait,
    /// Instructions since the lanes came together.
    pub(super) steps: u64,
}

impl Fragment {
    pub(super) fn ready(pc: u32, mask: u32) -> Self {
        Fragment { pc, mask, wait: Wait::Ready, steps: 0 }
    }
}

pub(super) struct Warp {
    pub(super) number: u32,
    pub(super) registers: Registers,
    pub(super) fragments: Vec<Fragment>,
    /// Lanes that have a thread, and those of them that have not left.
    pub(super) launched: u32,
    pub(super) live: u32,
    /// Instructions of each lane, without those of its fragment.
    pub(super) done: [u64; LANES],
    /// Local memory of all lanes, one after the other.
    pub(super) local: Vec<u8>,
    pub(super) clocks: Clocks,
}

/// What a block is, as its threads see it.
pub(super) struct Place {
    pub(super) block: [u32; 3],
    pub(super) block_size: [u32; 3],
    pub(super) grid_size: [u32; 3],
    pub(super) dynamic_shared: u32,
    pub(super) total_shared: u32,
}

impl Warp {
    /// A warp with its constants; `start` makes it ready for a block.
    pub(super) fn new(number: u32, code: &Code, threads: u32) -> Self {
        let mut registers = Registers {
            predicates: vec![0; code.predicates],
            half: vec![[0; LANES]; code.halves],
            single: vec![[0; LANES]; code.singles],
            double: vec![[0; LANES]; code.doubles],
            carry: 0,
        };
        for (class, index, value) in &code.constants {
            for lane in 0..LANES {
                registers.set_lane(*class, *index, lane, *value);
            }
        }
        let here = threads.saturating_sub(number * LANES as u32).min(LANES as u32);
        Warp {
            number,
            registers,
            fragments: Vec::new(),
            launched: ((1u64 << here) - 1) as u32,
            live: 0,
            done: [0; LANES],
            local: vec![POISON; code.local as usize * LANES],
            clocks: Clocks::default(),
        }
    }

    /// All threads at the first instruction of a block.
    pub(super) fn start(&mut self, code: &Code, place: &Place) {
        self.fragments.clear();
        self.fragments.push(Fragment::ready(0, self.launched));
        self.live = self.launched;
        self.done = [0; LANES];
        self.local.fill(POISON);
        self.clocks = Clocks::default();
        for (special, class, index) in &code.specials {
            for lane in 0..LANES {
                let value = self.special(*special, place, lane as u32);
                self.registers.set_lane(*class, *index, lane, value.into());
            }
        }
    }

    fn special(&self, special: Special, place: &Place, lane: u32) -> u32 {
        let bit = 1u32 << lane;
        let threads: u32 = place.block_size.iter().product();
        match special {
            Special::Thread(axis) => thread(self.number, lane, place.block_size)[axis as usize],
            Special::Block(axis) => place.block[axis as usize],
            Special::BlockSize(axis) => place.block_size[axis as usize],
            Special::GridSize(axis) => place.grid_size[axis as usize],
            Special::Lane => lane,
            Special::Warp => self.number,
            Special::Warps => threads.div_ceil(LANES as u32),
            Special::LanesEqual => bit,
            Special::LanesBelow => bit - 1,
            Special::LanesUpTo => (bit - 1) | bit,
            Special::LanesAbove => !((bit - 1) | bit),
            Special::LanesFrom => !(bit - 1),
            Special::DynamicShared => place.dynamic_shared,
            Special::TotalShared => place.total_shared,
            Special::Zero => 0,
            Special::One => 1,
        }
    }

    /// Books a fragment's instructions to its lanes, before its mask changes.
    pub(super) fn book(&mut self, fragment: &mut Fragment) {
        for lane in lanes(fragment.mask) {
            self.done[lane] += fragment.steps;
        }
        fragment.steps = 0;
    }

    /// Puts ready fragments at the same instruction together.
    pub(super) fn converge(&mut self) {
        let mut i = 0;
        while i < self.fragments.len() {
            let mut j = i + 1;
            while j < self.fragments.len() {
                let (a, b) = (self.fragments[i], self.fragments[j]);
                if a.pc == b.pc && a.wait == Wait::Ready && b.wait == Wait::Ready {
                    let (mut a, mut b) = (a, b);
                    self.book(&mut a);
                    self.book(&mut b);
                    a.mask |= b.mask;
                    self.fragments[i] = a;
                    self.fragments.swap_remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.fragments.iter().any(|f| f.wait == Wait::Ready)
    }
}

/// The position of a lane's thread in its block.
pub(super) fn thread(warp: u32, lane: u32, size: [u32; 3]) -> [u32; 3] {
    let flat = warp * LANES as u32 + lane;
    [flat % size[0], flat / size[0] % size[1], flat / size[0] / size[1]]
}

/// Whether a value of the class is the same in all lanes of a mask.
pub(super) fn uniform(registers: &Registers, class: Class, index: u32, mask: u32) -> Option<u64> {
    let mut each = lanes(mask).map(|lane| registers.lane(class, index, lane));
    let first = each.next()?;
    each.all(|value| value == first).then_some(first)
}
