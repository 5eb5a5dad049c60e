//! How tiles to be encoded go through the device: with which algorithm, how many at a time, in which
//! memory.

use std::sync::Arc;
use std::time::Instant;

use super::arena::{LANES, Sizes};
use super::driver::Answer;
use super::frames::{ZLIB_HEADER, ZLIB_TRAILER};
use super::kernels::Report;
use super::probe::Gpu;
use super::run::Run;
use super::tables::Arrays;
use super::verify::Kind;
use super::{Works, lock};
use crate::engine::{Codec, PixelBatch, TileSpec};

/// Larger tiles are taken only after a round trip of that size: nvCOMP's header contradicts itself.
const DEFLATE_SURE: usize = 64 << 10;
const ZSTD_SURE: usize = 16 << 20;
/// A batch of the writer's is a quarter of BATCH_MB; three of the device's make one.
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

impl Plan {
    fn new(
        gpu: &Gpu,
        spec: &Arc<TileSpec>,
        effort: i32,
        wanted: usize,
        budget: usize,
    ) -> Answer<Option<Plan>> {
        let mut tiles = wanted;
        while tiles > 0 {
            let plan = Plan::of(gpu, spec, effort, tiles)?;
            let need = plan.sizes.device();
            if need <= budget {
                return Ok(Some(plan));
            }
            let fewer = (tiles as u128 * budget as u128 / need as u128) as usize;
            tiles = fewer.min(tiles - 1);
        }
        Ok(None)
    }

    fn of(gpu: &Gpu, spec: &Arc<TileSpec>, effort: i32, tiles: usize) -> Answer<Plan> {
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

    /// Whether nvCOMP is known to do tiles of this size.
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

/// Bytes of the reports in front of what was packed.
pub(super) fn head(tiles: usize) -> usize {
    (tiles * size_of::<Report>()).next_multiple_of(256)
}

impl Works {
    /// How such tiles go through the device, if they do.
    pub(super) fn encode_plan(&self, batch: &PixelBatch) -> Option<Arc<Plan>> {
        let spec = &batch.spec;
        let level = if self.settings.level_given { batch.level } else { 0 };
        let effort = effort(spec.codec, level);
        if !self.takes(spec) {
            return None;
        }
        let mut plans = lock(&self.encoding);
        let key = ((**spec).clone(), effort);
        let known = plans.get(&key).cloned();
        let plan = known.unwrap_or_else(|| {
            let planned = self.gpu.device.enter().and_then(|current| {
                let budget = self.budget(&current)?;
                Plan::new(&self.gpu, spec, effort, self.wanted(spec, BATCH_SHARE, 1), budget)
            });
            let plan = self.or_too_big(planned).map(Arc::new);
            plans.insert(key, plan.clone());
            plan
        });
        plan.filter(|plan| !self.gpu.trust().refuted.contains(&plan.kind()))
    }

    /// Remembers what became of a plan.
    fn plan_again(&self, plan: &Plan, instead: Option<Arc<Plan>>) {
        let key = ((*plan.spec).clone(), plan.effort);
        lock(&self.encoding).insert(key, instead);
    }

    /// The arena, for batches of this plan or of a smaller one.
    pub(super) fn encode_run(&self, plan: &mut Arc<Plan>) -> Option<Arc<Run>> {
        let current = self.gpu.device.enter().ok()?;
        let deadline = Instant::now() + self.patience();
        loop {
            match Run::begin(&self.gpu, &current, plan.sizes) {
                Ok(Some(run)) => {
                    self.note_memory(&run);
                    return Some(Arc::new(run));
                }
                Ok(None) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        self.tally.busy.add(1);
                        return None;
                    }
                    self.gpu.arena.wait(left);
                }
                Err(fault) if fault.is_out_of_memory() && plan.tiles > 1 => {
                    let (spec, effort) = (&plan.spec, plan.effort);
                    let half = Plan::new(&self.gpu, spec, effort, plan.tiles / 2, usize::MAX);
                    let half = self.or_too_big(half).map(Arc::new);
                    self.plan_again(plan, half.clone());
                    *plan = half?;
                }
                Err(fault) => {
                    self.note_fault(fault);
                    self.plan_again(plan, None);
                    return None;
                }
            }
        }
    }
}
