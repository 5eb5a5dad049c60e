//! How tiles to be encoded go through the device: with which algorithm, how many at a time, in which
//! memory.

use std::sync::Arc;
use std::time::Instant;

use super::arena::{LANES, Sizes};
use super::driver::Answer;
use super::frames::{ZLIB_HEADER, ZLIB_TRAILER};
use super::plan::{Begun, Planned};
use super::probe::Gpu;
use super::run::Run;
use super::tables::{Arrays, head};
use super::verify::Kind;
use super::{ON_CPU, Works, encodes, lock};
use crate::engine::{Codec, PixelBatch, TileSpec};

/// Larger tiles are compared, all of a first batch of that size: nvCOMP's header contradicts itself.
const DEFLATE_SURE: usize = 64 << 10;
const ZSTD_SURE: usize = 16 << 20;
/// A batch of the writer's is a sixth of BATCH_MB; two of the device's make one.
const BATCH_SHARE: usize = 12;

/// nvCOMP's algorithm for a level that was asked for, or was not (0).
pub(super) fn effort(codec: Codec, level: i32) -> i32 {
    match (codec, level) {
        (Codec::Deflate, 1) => 1,
        (Codec::Deflate, 6..=8) => 4,
        (Codec::Deflate, 9..) => 5,
        (Codec::Deflate, _) => 2,
        _ => 0,
    }
}

/// How tiles of one kind go through the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// What they are like.
    pub(super) spec: Arc<TileSpec>,
    /// nvCOMP's algorithm.
    pub(super) effort: i32,
    /// Tiles in a batch, at most.
    pub(super) tiles: usize,
    /// Bytes of a tile's pixels in the input, of its rows, and of what it may become.
    pub(super) pixels: usize,
    /// As above.
    pub(super) raw: usize,
    /// As above.
    pub(super) most: usize,
    /// Bytes that nvCOMP wants besides.
    pub(super) temporary: usize,
    /// The regions.
    pub(super) sizes: Sizes,
}

impl Planned for Plan {
    fn tiles(&self) -> usize {
        self.tiles
    }

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn resized(&self, gpu: &Gpu, tiles: usize) -> Answer<Plan> {
        Plan::new(gpu, &self.spec, self.effort, tiles)
    }
}

impl Plan {
    /// Plans batches of `tiles` tiles.
    fn new(gpu: &Gpu, spec: &Arc<TileSpec>, effort: i32, tiles: usize) -> Answer<Plan> {
        let stored = spec.stored_row_bytes() * spec.height;
        let pixels = spec.tile_bytes().next_multiple_of(16);
        let packs = spec.codec != Codec::None;
        let (raw, most, temporary) = match packs {
            false => (0, 0, 0),
            true => {
                let needs = gpu.nvcomp.alignments(spec.codec, Some(effort))?;
                let align = needs.input.max(needs.output).max(256);
                let most = gpu.nvcomp.max_output(spec.codec, effort, stored)?;
                let temporary = gpu.nvcomp.compress_temp(spec.codec, effort, tiles, stored)?;
                (stored.next_multiple_of(align), most.next_multiple_of(align), temporary)
            }
        };
        let around = ZLIB_HEADER + ZLIB_TRAILER;
        let output = match packs {
            false => tiles * stored,
            true => head(tiles) + tiles * (most + around),
        };
        let sizes = Sizes {
            input: tiles * pixels + 256 + tiles * Arrays::TILE_BYTES + 64,
            output,
            // The second download is asked for by the host, so no event can guard the region.
            output_regions: LANES,
            work: tiles * (raw + most) + temporary + 256,
            landing: 0,
        };
        let spec = Arc::clone(spec);
        Ok(Plan { spec, effort, tiles, pixels, raw, most, temporary, sizes })
    }

    /// Bytes of framing around nvCOMP's.
    pub(super) fn around(&self) -> usize {
        match self.spec.codec {
            Codec::Deflate => ZLIB_HEADER + ZLIB_TRAILER,
            _ => 0,
        }
    }

    /// What a comparison vouches for. Beyond what nvCOMP is sure of, for this size alone.
    pub(super) fn kind(&self) -> Kind {
        let stored = self.stored(self.spec.height);
        Kind::encode(&self.spec, self.effort, Some(stored).filter(|_| self.is_unsure()))
    }

    /// Whether nvCOMP's header contradicts itself about tiles of this size.
    pub(super) fn is_unsure(&self) -> bool {
        let sure = match self.spec.codec {
            Codec::Deflate => DEFLATE_SURE,
            Codec::Zstd => ZSTD_SURE,
            _ => usize::MAX,
        };
        self.stored(self.spec.height) > sure
    }

    /// Bytes of so many rows.
    pub(super) fn stored(&self, rows: usize) -> usize {
        self.spec.stored_row_bytes() * rows
    }
}

impl Works {
    /// How such tiles go through the device, if they do.
    pub(super) fn encode_plan(&self, batch: &PixelBatch) -> Option<Arc<Plan>> {
        let spec = &batch.spec;
        // ZSTD has no levels here.
        let level = if self.settings.levels_given.0 { batch.level } else { 0 };
        let effort = effort(spec.codec, level);
        if !encodes(spec) || !self.is_fit_for(spec.codec) {
            return None;
        }
        let known = lock(&self.encoding).get(&((**spec).clone(), effort)).cloned();
        let plan = known.unwrap_or_else(|| {
            let tiles = self.wanted(spec, BATCH_SHARE, 1);
            let plan = self.planned(ON_CPU, |gpu| Plan::new(gpu, spec, effort, tiles));
            lock(&self.encoding).insert(((**spec).clone(), effort), plan.clone());
            plan
        });
        plan.filter(|plan| !self.gpu.trust().refuted.contains(&plan.kind()))
    }

    /// The run that such batches are encoded in: the one under way, or a new one for this plan or
    /// a smaller one. Waits for others, who have the arena.
    pub(super) fn encode_run(&self, plan: &mut Arc<Plan>) -> Option<Arc<Run>> {
        let deadline = Instant::now() + self.patience();
        loop {
            let mut under_way = lock(&self.encode_run);
            let fits = |run: &Arc<Run>| run.sizes == plan.sizes && !run.has_had_its_turn();
            if let Some(run) = under_way.upgrade().filter(fits) {
                return Some(run);
            }
            let instead = |plan: &Plan, instead| {
                lock(&self.encoding).insert(((*plan.spec).clone(), plan.effort), instead);
            };
            match self.begin(plan, instead) {
                Begun::Run(run) => {
                    let run = Arc::new(run);
                    *under_way = Arc::downgrade(&run);
                    return Some(run);
                }
                Begun::Refused => return None,
                Begun::Busy => drop(under_way),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.give_up();
                self.tally.busy.bump();
                return None;
            }
            self.gpu.arena.wait(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_for_algorithms() {
        let algorithms: Vec<i32> = (0..=12).map(|level| effort(Codec::Deflate, level)).collect();
        assert_eq!(algorithms, [2, 1, 2, 2, 2, 2, 4, 4, 4, 5, 5, 5, 5]);
        for codec in [Codec::None, Codec::Zstd] {
            assert!((0..=22).all(|level| effort(codec, level) == 0), "{codec:?}");
        }
    }
}
