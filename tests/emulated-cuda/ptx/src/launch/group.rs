//! What the lanes of a warp do together: meeting at `.sync` instructions, and exchanging values
//! there.

use super::block::Grid;
use super::fault::{Fault, FaultKind};
use super::warp::{Fragment, Wait, Warp};
use crate::code::{Action, Ballot, Direction, Match, Shuffle, Vote};
use crate::registers::{NONE, lanes};

/// Whether all lanes are there.
pub(super) enum Arrival {
    /// The fragment has all of them.
    Complete,
    /// It waits among the warp's fragments.
    Waiting,
}

impl Grid<'_> {
    /// A fragment comes to a `.sync` instruction with the lanes that the register `members`
    /// names. `anywhere`: others may come at another such instruction.
    pub(super) fn arrive(
        &mut self,
        warp: &mut Warp,
        f: &mut Fragment,
        members: u32,
        anywhere: bool,
        line: u32,
    ) -> Result<Arrival, Fault> {
        let named = warp.registers.single[members as usize];
        let first = named[f.mask.trailing_zeros() as usize];
        let same = lanes(f.mask).filter(|l| named[*l] == first).fold(0, |m, l| m | 1u32 << l);
        if same != f.mask {
            warp.book(f);
            warp.fragments.push(Fragment::ready(f.pc, f.mask & !same));
            f.mask = same;
        }
        // Lanes without a thread take no part, and nobody waits for them.
        let members = first & warp.launched;
        let diverged = |mask: u32, what: String| {
            Err(self.fault(FaultKind::Divergence, warp, mask, line, what))
        };
        if f.mask & !members != 0 {
            return diverged(f.mask & !members, format!("not a lane of its own mask {first:#x}"));
        }
        if members & !warp.live != 0 {
            let gone = members & !warp.live;
            return diverged(f.mask, format!("mask {first:#x} names lanes {gone:#x}, which left"));
        }
        if f.mask == members {
            self.met(warp, f.pc, members);
            return Ok(Arrival::Complete);
        }
        let joins = |other: &Fragment| {
            other.wait == Wait::Lanes(members)
                && (other.pc == f.pc || anywhere && self.is_warp_barrier(other.pc))
        };
        let all = warp.fragments.iter().filter(|o| joins(o)).fold(f.mask, |m, o| m | o.mask);
        if all != members {
            f.wait = Wait::Lanes(members);
            warp.fragments.push(*f);
            return Ok(Arrival::Waiting);
        }
        let (met, rest): (Vec<Fragment>, Vec<Fragment>) =
            warp.fragments.iter().partition(|o| joins(o));
        warp.fragments = rest;
        warp.book(f);
        for mut other in met {
            warp.book(&mut other);
            if other.pc == f.pc {
                f.mask |= other.mask;
            } else {
                warp.fragments.push(Fragment::ready(other.pc + 1, other.mask));
            }
        }
        self.met(warp, f.pc, members);
        Ok(Arrival::Complete)
    }

    fn is_warp_barrier(&self, pc: u32) -> bool {
        matches!(self.code.steps[pc as usize].action, Action::WarpBarrier(_))
    }

    /// All lanes have come. Only the barrier puts their memory accesses in order.
    fn met(&mut self, warp: &mut Warp, pc: u32, members: u32) {
        if self.races.is_some() && self.is_warp_barrier(pc) {
            warp.clocks.meet(members);
        }
    }

    pub(super) fn shuffle(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        s: &Shuffle,
        line: u32,
    ) -> Result<(), Fault> {
        let r = &warp.registers;
        let (a, b, c) = (r.single[s.a as usize], r.single[s.b as usize], r.single[s.c as usize]);
        let mut found = 0u32;
        let mut values = a;
        for lane in lanes(mask) {
            let (own, by) = (lane as u32, b[lane] & 31);
            let (clamp, segment) = (c[lane] & 31, c[lane] >> 8 & 31);
            let most = own & segment | clamp & !segment & 31;
            let (from, inside) = match s.direction {
                Direction::Up => (own.wrapping_sub(by), own as i32 - by as i32 >= most as i32),
                Direction::Down => (own + by, own + by <= most),
                Direction::Butterfly => (own ^ by, own ^ by <= most),
                Direction::Index => {
                    let from = own & segment | by & !segment;
                    (from, from <= most)
                }
            };
            let from = if inside { from } else { own };
            if mask >> from & 1 == 0 {
                let message = format!("a value from lane {from}, which takes no part");
                return Err(self.fault(FaultKind::Divergence, warp, 1 << lane, line, message));
            }
            values[lane] = a[from as usize];
            found |= u32::from(inside) << lane;
        }
        let d = &mut warp.registers.single[s.d as usize];
        for lane in lanes(mask) {
            d[lane] = values[lane];
        }
        warp.registers.set_predicate(s.in_range, found, mask);
        Ok(())
    }

    pub(super) fn vote(&mut self, warp: &mut Warp, mask: u32, v: &Vote) {
        let yes = warp.registers.predicate(v.predicate) & mask;
        let answer = match v.ballot {
            Ballot::All => yes == mask,
            Ballot::Any => yes != 0,
            Ballot::Uniform => yes == mask || yes == 0,
            Ballot::Mask => {
                for lane in lanes(mask) {
                    warp.registers.single[v.d as usize][lane] = yes;
                }
                return;
            }
        };
        warp.registers.set_predicate(v.d, if answer { mask } else { 0 }, mask);
    }

    pub(super) fn find_equal(&mut self, warp: &mut Warp, mask: u32, m: &Match) {
        let mut values = [0; 32];
        for lane in lanes(mask) {
            values[lane] = warp.registers.lane(m.class, m.a, lane);
        }
        let equal = |to: u64| lanes(mask).filter(|l| values[*l] == to).fold(0, |m, l| m | 1 << l);
        for lane in lanes(mask) {
            let same: u32 = equal(values[lane]);
            let answer = match m.all {
                true if same == mask => mask,
                true => 0,
                false => same,
            };
            warp.registers.single[m.d as usize][lane] = answer;
            if m.equal != NONE {
                let bit = if same == mask { mask } else { 0 };
                warp.registers.set_predicate(m.equal, bit, 1 << lane);
            }
        }
    }
}
