//! A fragment's turn: it executes instructions until it parts, waits, leaves, meets another
//! fragment, or has had enough.

use super::block::Grid;
use super::fault::{Fault, FaultKind};
use super::group::Arrival;
use super::warp::{Fragment, Wait, Warp, uniform};
use crate::code::{Action, Barrier, window};
use crate::registers::{Class, FULL, NONE, lanes};

/// How a turn may end besides by the program.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Ends when the position is here or beyond.
    pub(super) stop: u32,
    /// Ends after so many instructions.
    pub(super) steps: u64,
}

/// What an instruction leaves to do.
enum Next {
    Step,
    Jump(u32),
    /// The fragment is gone or has to wait: it is back among the warp's, if it is to be.
    End,
}

impl Grid<'_> {
    /// Gives a warp's fragment a turn.
    pub(super) fn turn(
        &mut self,
        warp: &mut Warp,
        index: usize,
        bounds: Bounds,
    ) -> Result<(), Fault> {
        let mut fragment = warp.fragments.swap_remove(index);
        let code = self.code;
        let mut left = bounds.steps;
        loop {
            let step = &code.steps[fragment.pc as usize];
            let mask = match step.guard {
                NONE => fragment.mask,
                guard => fragment.mask & warp.registers.predicate(guard),
            };
            fragment.steps += 1;
            self.stats.instructions += u64::from(fragment.mask.count_ones());
            if self.stats.instructions > self.budget {
                let message = format!("more than {} thread instructions", self.budget);
                return Err(self.fault(FaultKind::Budget, warp, fragment.mask, step.line, message));
            }
            if let Action::Lanes(run, operands) = &step.action {
                if mask != 0 {
                    run(&mut warp.registers, operands, mask);
                }
                fragment.pc += 1;
            } else {
                match self.act(warp, &mut fragment, mask)? {
                    Next::Step => fragment.pc += 1,
                    Next::Jump(pc) => fragment.pc = pc,
                    Next::End => return Ok(()),
                }
            }
            left -= 1;
            if fragment.pc >= bounds.stop || left == 0 {
                warp.fragments.push(fragment);
                return Ok(());
            }
        }
    }

    /// Everything that is more than registers lane by lane.
    fn act(&mut self, warp: &mut Warp, f: &mut Fragment, mask: u32) -> Result<Next, Fault> {
        let code = self.code;
        let step = &code.steps[f.pc as usize];
        if mask == 0 {
            return Ok(Next::Step);
        }
        match &step.action {
            Action::Load(access) => self.load(warp, mask, access, step.line)?,
            Action::Store(access) => self.store(warp, mask, access, step.line)?,
            Action::Atomic(atomic) => self.atomic(warp, mask, atomic, step.line)?,
            Action::Branch(to) => {
                if mask == f.mask {
                    return Ok(Next::Jump(*to));
                }
                part(warp, f, mask, *to, f.pc + 1);
                return Ok(Next::End);
            }
            Action::Table(index, targets) => return self.jump(warp, f, mask, *index, targets),
            Action::ActiveMask(d) => {
                for lane in lanes(mask) {
                    warp.registers.single[*d as usize][lane] = mask;
                }
            }
            Action::Clock(class, d) => {
                let now = self.stats.instructions;
                for lane in lanes(mask) {
                    warp.registers.set_lane(*class, *d, lane, now);
                }
            }
            Action::InSpace(space, d, a) => {
                for lane in lanes(mask) {
                    let inside = window::space(warp.registers.double[*a as usize][lane]) == *space;
                    warp.registers.set_lane(Class::Predicate, *d, lane, inside.into());
                }
            }
            Action::Nothing => {}
            Action::Trap => {
                return Err(self.fault(FaultKind::Trap, warp, mask, step.line, "trap".into()));
            }
            _ => {
                // What remains is executed by all lanes of a fragment or by none.
                if mask != f.mask {
                    f.steps -= 1;
                    self.stats.instructions -= u64::from(f.mask.count_ones());
                    part(warp, f, mask, f.pc, f.pc + 1);
                    return Ok(Next::End);
                }
                return self.act_together(warp, f);
            }
        }
        Ok(Next::Step)
    }

    fn act_together(&mut self, warp: &mut Warp, f: &mut Fragment) -> Result<Next, Fault> {
        let code = self.code;
        let step = &code.steps[f.pc as usize];
        let (members, anywhere) = match &step.action {
            Action::Exit => {
                warp.book(f);
                warp.live &= !f.mask;
                return Ok(Next::End);
            }
            Action::Barrier(barrier) => return self.wait(warp, f, barrier, step.line),
            Action::WarpBarrier(members) => (*members, true),
            Action::Shuffle(shuffle) => (shuffle.members, false),
            Action::Vote(vote) => (vote.members, false),
            Action::Match(equal) => (equal.members, false),
            _ => return Ok(Next::Step),
        };
        match self.arrive(warp, f, members, anywhere, step.line)? {
            Arrival::Waiting => return Ok(Next::End),
            Arrival::Complete => {}
        }
        match &step.action {
            Action::Shuffle(shuffle) => self.shuffle(warp, f.mask, shuffle, step.line)?,
            Action::Vote(vote) => self.vote(warp, f.mask, vote),
            Action::Match(equal) => self.find_equal(warp, f.mask, equal),
            _ => {}
        }
        Ok(Next::Step)
    }

    /// A branch by a table: one fragment for each target.
    fn jump(
        &mut self,
        warp: &mut Warp,
        f: &mut Fragment,
        mask: u32,
        index: u32,
        targets: &[u32],
    ) -> Result<Next, Fault> {
        let line = self.code.steps[f.pc as usize].line;
        warp.book(f);
        let mut rest = mask;
        while rest != 0 {
            let choice = warp.registers.single[index as usize][rest.trailing_zeros() as usize];
            let same: u32 = lanes(rest)
                .filter(|lane| warp.registers.single[index as usize][*lane] == choice)
                .fold(0, |mask, lane| mask | 1 << lane);
            let Some(target) = targets.get(choice as usize) else {
                let message = format!("entry {choice} of a table of {}", targets.len());
                return Err(self.fault(FaultKind::IllegalInstruction, warp, same, line, message));
            };
            if same == FULL || same == f.mask {
                return Ok(Next::Jump(*target));
            }
            warp.fragments.push(Fragment::ready(*target, same));
            rest &= !same;
        }
        if f.mask & !mask != 0 {
            warp.fragments.push(Fragment::ready(f.pc + 1, f.mask & !mask));
        }
        Ok(Next::End)
    }

    fn wait(
        &mut self,
        warp: &mut Warp,
        f: &mut Fragment,
        barrier: &Barrier,
        line: u32,
    ) -> Result<Next, Fault> {
        let number = uniform(&warp.registers, Class::Single, barrier.id, f.mask);
        let threads = match barrier.threads {
            NONE => Some(0),
            index => uniform(&warp.registers, Class::Single, index, f.mask),
        };
        match (number, threads) {
            (Some(number), Some(threads)) if number < 16 => {
                f.wait = Wait::Block(number as u32, threads as u32);
                warp.fragments.push(*f);
                Ok(Next::End)
            }
            _ => {
                let message = "lanes of a warp at different barriers".into();
                Err(self.fault(FaultKind::Divergence, warp, f.mask, line, message))
            }
        }
    }
}

/// Lanes of the mask go one way, the others of the fragment another.
fn part(warp: &mut Warp, f: &mut Fragment, mask: u32, pc: u32, other: u32) {
    warp.book(f);
    warp.fragments.push(Fragment::ready(other, f.mask & !mask));
    warp.fragments.push(Fragment::ready(pc, mask));
}
