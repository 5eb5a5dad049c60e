//! Who used each byte last.

use std::collections::HashMap;

use super::{Use, User};
use crate::launch::Span;

/// Uses of a byte that are not in order among themselves: the lanes of one warp, or more.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// The block, counted from 1; 0 for nobody.
    block: u32,
    /// Barriers before, in that block.
    epoch: u32,
    /// Meetings of the warp before: the fewest, if lanes differ.
    stamp: u32,
    mask: u32,
    line: u32,
    warp: u8,
    spread: Spread,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Spread {
    #[default]
    Warp,
    Block,
    Grid,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    writes: Uses,
    reads: Uses,
}

const PAGE: usize = 1024;

/// The cells of a stretch of memory, a page at a time.
struct Region {
    base: u64,
    pages: Vec<Option<Box<[Cell; PAGE]>>>,
    /// Most memory knows no atomics.
    atomics: HashMap<u64, Uses>,
}

impl Region {
    fn new(base: u64, len: u64) -> Self {
        let mut pages = Vec::new();
        pages.resize_with((len as usize).div_ceil(PAGE), || None);
        Region { base, pages, atomics: HashMap::new() }
    }
}

/// The shadows of a launch.
pub(in crate::launch) struct Races {
    shared: Region,
    global: Vec<Region>,
    /// The region that was used last.
    latest: usize,
    block: u32,
    epoch: u32,
}

impl Races {
    pub(in crate::launch) fn new(shared: usize) -> Self {
        let shared = Region::new(0, shared as u64);
        Races { shared, global: Vec::new(), latest: 0, block: 0, epoch: 0 }
    }

    /// The block of this number begins, with shared memory that nobody used.
    pub(in crate::launch) fn start_block(&mut self, number: u64) {
        self.block = number as u32 + 1;
        self.epoch = 0;
        self.shared.atomics.clear();
        for page in self.shared.pages.iter_mut().flatten() {
            page.fill(Cell::default());
        }
    }

    /// All threads of the block have met.
    pub(in crate::launch) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Enters an access to shared memory; says what it is not in order with.
    pub(in crate::launch) fn shared(
        &mut self,
        user: User<'_>,
        address: u64,
        bytes: u64,
        kind: Use,
    ) -> Option<String> {
        let now = Now { user, block: self.block, epoch: self.epoch };
        (address..address + bytes).find_map(|at| now.enter(&mut self.shared, at, kind))
    }

    /// The same for global memory, in an allocation.
    pub(in crate::launch) fn global(
        &mut self,
        user: User<'_>,
        span: Span,
        address: u64,
        bytes: u64,
        kind: Use,
    ) -> Option<String> {
        if self.global.get(self.latest).is_none_or(|r| r.base != span.base) {
            let known = self.global.iter().position(|r| r.base == span.base);
            self.latest = known.unwrap_or(self.global.len());
            if known.is_none() {
                self.global.push(Region::new(span.base, span.len));
            }
        }
        let now = Now { user, block: self.block, epoch: self.epoch };
        let region = &mut self.global[self.latest];
        let offset = address - span.base;
        (offset..offset + bytes).find_map(|at| now.enter(region, at, kind))
    }
}

/// A lane at a moment.
struct Now<'a> {
    user: User<'a>,
    block: u32,
    epoch: u32,
}

impl Now<'_> {
    fn enter(&self, region: &mut Region, offset: u64, kind: Use) -> Option<String> {
        let page = region.pages.get_mut(offset as usize / PAGE)?;
        let page = page.get_or_insert_with(|| Box::new([Cell::default(); PAGE]));
        let cell = &mut page[offset as usize % PAGE];
        let at = region.base + offset;
        let says = |uses: &Uses, did: &str| {
            self.conflicts(uses).then(|| format!("at {at:#x}, {}", uses.describe(did)))
        };
        if let Some(conflict) = says(&cell.writes, "wrote") {
            return Some(conflict);
        }
        if kind != Use::Read
            && let Some(conflict) = says(&cell.reads, "read")
        {
            return Some(conflict);
        }
        if matches!(kind, Use::Atomic | Use::Reduction) {
            // What was before the first atomic need not be before the next one: it stays.
            self.add(region.atomics.entry(offset).or_default());
            return None;
        }
        let changed = || region.atomics.get(&offset).and_then(|uses| says(uses, "changed"));
        if let Some(conflict) = (!region.atomics.is_empty()).then(changed).flatten() {
            return Some(conflict);
        }
        match kind {
            Use::Read => self.add(&mut cell.reads),
            _ => {
                *cell = Cell { writes: self.alone(), reads: Uses::default() };
                if !region.atomics.is_empty() {
                    region.atomics.remove(&offset);
                }
            }
        }
        None
    }

    fn alone(&self) -> Uses {
        Uses {
            block: self.block,
            epoch: self.epoch,
            stamp: self.user.clocks.stamp(),
            mask: 1 << self.user.lane,
            line: self.user.line,
            warp: self.user.warp as u8,
            spread: Spread::Warp,
        }
    }

    /// Whether uses by others are not all before now.
    fn conflicts(&self, uses: &Uses) -> bool {
        if uses.block == 0 {
            return false;
        }
        if uses.spread == Spread::Grid || uses.block != self.block {
            return true;
        }
        if uses.epoch < self.epoch {
            return false;
        }
        uses.spread == Spread::Block
            || u32::from(uses.warp) != self.user.warp
            || self.user.clocks.unordered(uses.mask, uses.stamp, self.user.lane) != 0
    }

    /// Adds this use to others. Those that come before it are forgotten: what is after this one
    /// is after them.
    fn add(&self, uses: &mut Uses) {
        if uses.block == 0 {
            *uses = self.alone();
        } else if uses.spread == Spread::Grid || uses.block != self.block {
            uses.spread = Spread::Grid;
        } else if uses.epoch < self.epoch {
            *uses = self.alone();
        } else if uses.spread == Spread::Block || u32::from(uses.warp) != self.user.warp {
            uses.spread = Spread::Block;
        } else {
            let kept = self.user.clocks.unordered(uses.mask, uses.stamp, self.user.lane);
            let alone = self.alone();
            let stamp = if kept == 0 { alone.stamp } else { alone.stamp.min(uses.stamp) };
            *uses = Uses { mask: kept | alone.mask, stamp, ..alone };
        }
    }
}

impl Uses {
    fn describe(&self, did: &str) -> String {
        let (block, warp, lanes, line) = (self.block - 1, self.warp, self.mask, self.line);
        let more = match self.spread {
            Spread::Warp => "",
            Spread::Block => " and other warps",
            Spread::Grid => " and other blocks",
        };
        format!(
            "which lanes {lanes:#x} of warp {warp} in block number {block}{more} {did} at PTX \
             line {line} with no barrier in between"
        )
    }
}
