//! How tiles of one kind go through the device to be decoded: how many at a time, where each is, and
//! the memory that takes.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::arena::{LANES, Place, Sizes};
use super::codestreams;
use super::cufile::PAGE;
use super::driver::Answer;
use super::frames;
use super::pages::Usage;
use super::plan::Planned;
use super::probe::Gpu;
use super::tables::{Arrays, head, verdicts};
use super::unpack::Needs;
use super::verify::Kind;
use crate::engine::cpu;
use crate::engine::jpeg2000::Kind as Jpeg2000;
use crate::engine::{Codec, TileJob, TileSpec};

/// Zero bytes behind the last tile: a decoder may look further than its stream.
pub(super) const SLACK: usize = 64;
/// What is stowed begins and ends at multiples of this.
const STOW_ALIGN: usize = 16;
/// Crops begin at multiples of this.
pub(super) const CROP_ALIGN: usize = 16;

/// How tiles of one kind go through the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) spec: Arc<TileSpec>,
    /// Tiles in a batch, at most.
    pub(super) tiles: usize,
    /// Bytes of compressed tiles in a batch, at most.
    slots: usize,
    /// A slot's stream begins at a multiple of this…
    align: usize,
    /// …after so many bytes of the tile's own header.
    lead: usize,
    /// Bytes of an unpacked tile, room included.
    pub(super) raw: usize,
    pub(super) temporary: usize,
    /// Tiles are read past the host.
    pub(super) direct: bool,
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
        Plan::new(gpu, &self.spec, tiles, self.direct)
    }
}

impl Plan {
    /// Plans batches of `tiles` tiles, read past the host if `direct`.
    pub(super) fn new(gpu: &Gpu, spec: &Arc<TileSpec>, tiles: usize, direct: bool) -> Answer<Plan> {
        let Needs { align, temporary } = Needs::of(gpu, spec, tiles)?;
        let align = if direct { align.max(STOW_ALIGN) } else { align };
        let header = if spec.codec == Codec::Deflate { frames::ZLIB_HEADER } else { 0 };
        let lead = if direct { 0 } else { header };
        let stored = spec.stored_row_bytes() * spec.height;
        // A tile that does not compress is a little larger than its pixels; in LZW up to half as
        // large again, of which one must fit.
        let usual = tiles * (stored + stored / 128 + 64 + align);
        let slots = match spec.codec {
            Codec::Lzw => usual.max(cpu::lzw::bound(stored) + align),
            _ => usual,
        };
        let raw = match spec.codec {
            Codec::None => 0,
            // Planes of chroma, where there are fewer samples, lie behind the pixels.
            Codec::Jpeg2000(Jpeg2000 { ycbcr: true, .. }) => 2 * codestreams::planes_at(spec),
            _ => stored.next_multiple_of(256),
        };
        let crop = (spec.tile_bytes() + 1).next_multiple_of(CROP_ALIGN);
        let output = head(tiles) + tiles * crop;
        let tables =
            2 * 256 + tiles * (Arrays::TILE_BYTES + Arrays::PLACE_BYTES) + 4 * spec.samples;
        let work = raw * tiles + temporary + 256;
        let sizes = match direct {
            false => {
                Sizes { input: slots + SLACK + tables, output, output_regions: 2, work, landing: 0 }
            }
            // Pages begin and end where tiles do not; of tiles that lie apart there are fewer.
            true => Sizes {
                input: tables + tiles * Arrays::STOW_BYTES + Arrays::NOTHING_BYTES,
                output: output + verdicts(tiles),
                output_regions: 2,
                work: Plan::stowed(slots) + work,
                landing: (slots + slots / 8 + 2 * PAGE).next_multiple_of(PAGE),
            },
        };
        let spec = Arc::clone(spec);
        Ok(Plan { spec, tiles, slots, align, lead, raw, temporary, direct, sizes })
    }

    /// Bytes of the slots that tiles are stowed in.
    fn stowed(slots: usize) -> usize {
        (slots + SLACK).next_multiple_of(256)
    }

    /// Device addresses of the slots and of the unpacked tiles.
    pub(super) fn homes(&self, place: &Place) -> (u64, u64) {
        match self.direct {
            true => (place.work, place.work + Plan::stowed(self.slots) as u64),
            false => (place.input, place.work),
        }
    }

    /// Page-locked bytes for codestreams of all lanes, and for some that grow.
    pub(super) fn staged(&self) -> usize {
        LANES * (self.slots + self.slots / 4 + 512 * self.tiles)
    }

    /// Bytes in front of the pixels that come down.
    pub(super) fn head(&self, tiles: usize) -> usize {
        head(tiles) + if self.direct { verdicts(tiles) } else { 0 }
    }

    /// What a comparison vouches for.
    pub(super) fn kind(&self) -> Kind {
        let of = if self.direct { Kind::decode_directly } else { Kind::decode };
        of(&self.spec)
    }

    /// Bytes of a slot that a tile takes up, from `at` on, and where its first byte is.
    pub(super) fn slot(&self, at: usize, job: &TileJob) -> (usize, usize) {
        let growth = if self.spec.codec == Codec::Zstd { frames::ZSTD_GROWTH } else { 0 };
        let stream = (at + self.lead).next_multiple_of(self.align);
        if self.direct {
            return (stream, stream + (job.len + growth).next_multiple_of(STOW_ALIGN));
        }
        let first = stream - self.lead + growth;
        (first, first + job.len)
    }

    /// How many of the first tiles go into one batch.
    pub(super) fn fitting(&self, jobs: &[TileJob]) -> usize {
        let (mut at, mut pages) = (0, Usage::default());
        let over = |job: &TileJob| {
            at = self.slot(at, job).1;
            at > self.slots || self.direct && pages.with(job) > self.sizes.landing
        };
        let most = jobs.len().min(self.tiles);
        jobs[..most].iter().position(over).unwrap_or(most)
    }
}
