//! A grid and its blocks: which block, warp and fragment has its turn, and the barriers between
//! the warps of a block.

use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::race::Races;
use super::random::Random;
use super::turn::Bounds;
use super::warp::{Fragment, Place, Wait, Warp, thread};
use super::{Launch, Schedule, Stats};
use crate::code::{Action, Barrier, Code, Gathered};
use crate::registers::{Class, LANES, lanes};

pub(super) struct Grid<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) code: &'a Code,
    pub(super) memory: Memory<'a>,
    pub(super) stats: Stats,
    pub(super) budget: u64,
    pub(super) races: Option<Races>,
    random: Option<Random>,
    pub(super) place: Place,
}

impl<'a> Grid<'a> {
    pub(super) fn new(launch: &'a Launch<'a>) -> Self {
        let memory = Memory::new(launch, &launch.entry.variables);
        let place = Place {
            block: [0; 3],
            block_size: launch.block,
            grid_size: launch.grid,
            dynamic_shared: launch.dynamic_shared,
            total_shared: memory.shared_bytes() as u32,
        };
        let budget = launch.options.budget;
        Grid {
            launch,
            code: &launch.entry.code,
            stats: Stats::default(),
            budget: if budget == 0 { u64::MAX } else { budget },
            races: launch.options.races.then(|| Races::new(memory.shared_bytes())),
            random: match launch.options.schedule {
                Schedule::Converged => None,
                Schedule::Adversarial { seed } => Some(Random::new(seed)),
            },
            memory,
            place,
        }
    }

    pub(super) fn run(mut self) -> Result<Stats, Fault> {
        let threads: u32 = self.launch.block.iter().product();
        let mut warps: Vec<Warp> = (0..threads.div_ceil(LANES as u32))
            .map(|number| Warp::new(number, self.code, threads))
            .collect();
        let [x, y, z] = self.launch.grid.map(u64::from);
        self.stats.threads = x * y * z * u64::from(threads);
        let blocks = x * y * z;
        let mut order: Vec<u32> = match self.random {
            Some(_) => (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect(),
            None => Vec::new(),
        };
        if let Some(random) = &mut self.random {
            random.shuffle(&mut order);
        }
        for n in 0..blocks {
            let n = order.get(n as usize).map_or(n, |n| u64::from(*n));
            self.place.block = [(n % x) as u32, (n / x % y) as u32, (n / x / y) as u32];
            self.block(&mut warps)?;
        }
        Ok(self.stats)
    }

    fn block(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        self.memory.poison();
        if let Some(races) = &mut self.races {
            let [x, y, z] = self.place.block.map(u64::from);
            let [width, height, _] = self.place.grid_size.map(u64::from);
            races.start_block((z * height + y) * width + x);
        }
        for warp in warps.iter_mut() {
            warp.start(self.code, &self.place);
        }
        match self.random.take() {
            None => self.together(warps)?,
            Some(mut random) => {
                self.apart(warps, &mut random)?;
                self.random = Some(random);
            }
        }
        let longest = warps.iter().flat_map(|w| w.done).max().unwrap_or(0);
        self.stats.longest_thread = self.stats.longest_thread.max(longest);
        Ok(())
    }

    /// Each warp until all of it waits or left; of its fragments the one that is farthest back,
    /// until it meets the next.
    fn together(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        loop {
            for warp in warps.iter_mut() {
                while let Some((index, stop)) = farthest_back(warp) {
                    self.turn(warp, index, Bounds { stop, steps: u64::MAX })?;
                    if warp.fragments.len() > 1 {
                        warp.converge();
                    }
                }
            }
            if warps.iter().all(|w| w.live == 0) {
                return Ok(());
            }
            self.release(warps)?;
            warps.iter_mut().for_each(Warp::converge);
        }
    }

    /// Any fragment of any warp, for any number of instructions, with lanes parting at any time.
    fn apart(&mut self, warps: &mut [Warp], random: &mut Random) -> Result<(), Fault> {
        // A block's temper: how long a turn may be, how readily lanes part, and how far.
        let longest = [2, 16, 128, 4096][random.below(4)];
        let parting = [2, 8, 64, 512][random.below(4)];
        let pieces = [2, 3, 6, 32][random.below(4)];
        loop {
            let first = random.below(warps.len());
            let next = (0..warps.len()).map(|i| (first + i) % warps.len());
            let Some(chosen) = next.into_iter().find(|w| warps[*w].is_ready()) else {
                if warps.iter().all(|w| w.live == 0) {
                    return Ok(());
                }
                self.release(warps)?;
                if random.below(2) == 0 {
                    warps.iter_mut().for_each(Warp::converge);
                }
                continue;
            };
            let warp = &mut warps[chosen];
            let ready = |f: &Fragment| f.wait == Wait::Ready;
            let mut index = random.below(warp.fragments.len());
            while !ready(&warp.fragments[index]) {
                index = (index + 1) % warp.fragments.len();
            }
            if warp.fragments.len() < pieces && random.below(parting) == 0 {
                part(warp, index, random.next() as u32);
            }
            let steps = 1 + random.below(longest) as u64;
            self.turn(warp, index, Bounds { stop: u32::MAX, steps })?;
        }
    }

    /// Lets go the threads at a barrier that all have reached; if there is none, they wait for
    /// ever.
    fn release(&mut self, warps: &mut [Warp]) -> Result<(), Fault> {
        let live: u32 = warps.iter().map(|w| w.live.count_ones()).sum();
        for number in 0..16 {
            let at = |f: &&Fragment| matches!(f.wait, Wait::Block(n, _) if n == number);
            let here = || warps.iter().flat_map(|w| w.fragments.iter().filter(at));
            let arrived: u32 = here().map(|f| f.mask.count_ones()).sum();
            let Some(Wait::Block(_, wanted)) = here().next().map(|f| f.wait) else { continue };
            if arrived == if wanted == 0 { live } else { wanted } {
                return self.open(warps, number);
            }
        }
        Err(self.stuck(warps))
    }

    fn barrier_at(&self, pc: u32) -> Option<&'a Barrier> {
        match &self.code.steps[pc as usize].action {
            Action::Barrier(barrier) => Some(barrier),
            _ => None,
        }
    }

    fn open(&mut self, warps: &mut [Warp], number: u32) -> Result<(), Fault> {
        let waits = |f: &Fragment| matches!(f.wait, Wait::Block(n, _) if n == number);
        let (mut yes, mut all) = (0, 0);
        for warp in warps.iter() {
            let mut here = warp.fragments.iter().filter(|f| waits(f));
            let Some(first) = here.next() else { continue };
            let line = self.code.steps[first.pc as usize].line;
            let together = here.clone().all(|f| f.pc == first.pc);
            let mask = here.fold(first.mask, |mask, f| mask | f.mask);
            let aligned = self.barrier_at(first.pc).is_some_and(|b| b.aligned);
            if aligned && !(together && mask == warp.launched) {
                let missing = warp.launched & !mask;
                let what = format!("a barrier without lanes {missing:#x} of the warp");
                return Err(self.fault(FaultKind::Divergence, warp, first.mask, line, what));
            }
            for f in warp.fragments.iter().filter(|f| waits(f)) {
                let Some(barrier) = self.barrier_at(f.pc) else { continue };
                if barrier.gathered != Gathered::Nothing {
                    let votes = warp.registers.predicate(barrier.predicate) & f.mask;
                    yes += votes.count_ones();
                    all += f.mask.count_ones();
                }
            }
        }
        for warp in warps.iter_mut() {
            for i in 0..warp.fragments.len() {
                let f = warp.fragments[i];
                if !waits(&f) {
                    continue;
                }
                if let Some(barrier) = self.barrier_at(f.pc) {
                    deliver(warp, f.mask, barrier, yes, all);
                }
                warp.fragments[i] = Fragment { pc: f.pc + 1, wait: Wait::Ready, ..f };
            }
        }
        if let Some(races) = &mut self.races {
            races.barrier();
        }
        Ok(())
    }

    /// Nobody can go on: says who waits for whom.
    fn stuck(&self, warps: &[Warp]) -> Fault {
        let lanes_first = |f: &Fragment| !matches!(f.wait, Wait::Lanes(_));
        let mut waiting: Vec<(&Warp, &Fragment)> =
            warps.iter().flat_map(|w| w.fragments.iter().map(move |f| (w, f))).collect();
        waiting.sort_by_key(|(_, f)| lanes_first(f));
        let (warp, f) = waiting[0];
        let line = self.code.steps[f.pc as usize].line;
        let what = match f.wait {
            Wait::Lanes(members) => {
                let missing = members & !f.mask;
                let gone = missing & !warp.live;
                format!("lanes {missing:#x} of mask {members:#x} never come ({gone:#x} left)")
            }
            _ => {
                let elsewhere: Vec<String> = waiting
                    .iter()
                    .filter(|(_, other)| other.pc != f.pc)
                    .map(|(w, o)| {
                        let line = self.code.steps[o.pc as usize].line;
                        format!("warp {} lanes {:#x} at line {line}", w.number, o.mask)
                    })
                    .collect();
                format!("a barrier that not all threads reach: {}", elsewhere.join(", "))
            }
        };
        self.fault(FaultKind::Divergence, warp, f.mask, line, what)
    }

    /// A fault of the first thread of a mask.
    pub(super) fn fault(
        &self,
        kind: FaultKind,
        warp: &Warp,
        mask: u32,
        line: u32,
        what: String,
    ) -> Fault {
        let lane = mask.trailing_zeros().min(LANES as u32 - 1);
        let thread = thread(warp.number, lane, self.launch.block);
        let (name, block) = (&self.launch.entry.name, self.place.block);
        let message =
            format!("kernel {name}, PTX line {line}, block {block:?}, thread {thread:?}: {what}");
        Fault { kind, message }
    }
}

/// The ready fragment with the lowest position, and where the next one is.
fn farthest_back(warp: &Warp) -> Option<(usize, u32)> {
    if let [only] = warp.fragments.as_slice() {
        return (only.wait == Wait::Ready).then_some((0, u32::MAX));
    }
    let ready = || warp.fragments.iter().enumerate().filter(|(_, f)| f.wait == Wait::Ready);
    let (index, _) = ready().min_by_key(|(_, f)| f.pc)?;
    let stop = ready().filter(|(i, _)| *i != index).map(|(_, f)| f.pc).min().unwrap_or(u32::MAX);
    Some((index, stop))
}

/// Takes some lanes out of a fragment.
fn part(warp: &mut Warp, index: usize, choice: u32) {
    let mut f = warp.fragments[index];
    let (stay, go) = (f.mask & choice, f.mask & !choice);
    if stay != 0 && go != 0 {
        warp.book(&mut f);
        warp.fragments[index] = Fragment { mask: stay, ..f };
        warp.fragments.push(Fragment { mask: go, ..f });
    }
}

/// What a barrier gathered, to the lanes of a fragment.
fn deliver(warp: &mut Warp, mask: u32, barrier: &Barrier, yes: u32, all: u32) {
    let value = match barrier.gathered {
        Gathered::Nothing => return,
        Gathered::Count => {
            for lane in lanes(mask) {
                warp.registers.set_lane(Class::Single, barrier.result, lane, yes.into());
            }
            return;
        }
        Gathered::All => yes == all,
        Gathered::Any => yes != 0,
    };
    warp.registers.set_predicate(barrier.result, if value { mask } else { 0 }, mask);
}
