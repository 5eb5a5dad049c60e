//! What a batch has the device do, once its tiles are in the lane or were read past the host: tables and
//! tiles up, `stow`, unpacking, checksums, lay-out, and down.

use super::arena::Place;
use super::codestreams::{MOST_TILES, finish};
use super::decode_plan::{Plan, SLACK};
use super::driver::{Answer, Stream};
use super::kernels::{DecodeTile, Shape, Stow, StowTile, Undo};
use super::nvcomp::Tables;
use super::nvjpeg2k::Taken;
use super::probe::Gpu;
use super::run::Submission;
use super::staging::{Item, content};
use super::tables::{Arrays, Chunk, head};
use super::target::Target;
use super::unpack::{framing, nothing, room, unpack};
use crate::engine::Codec;

/// What a status holds before it is written.
pub(super) const SENTINEL: i32 = -77;

/// What is submitted of a batch.
pub(super) struct Order<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) plan: &'a Plan,
    pub(super) items: &'a [Item],
    /// Tiles that go to the device.
    pub(super) count: usize,
    pub(super) target: Option<&'a Target>,
    pub(super) arrays: Arrays,
    /// Where the tiles end in the lane's input.
    pub(super) end: usize,
    /// Bytes that go up of what cuFile should have read.
    pub(super) landed: usize,
    /// Bytes that come down.
    pub(super) down: usize,
}

impl Order<'_> {
    /// Writes the tables, since they hold device addresses which are known only now, and asks for
    /// everything up to the download.
    pub(super) fn send(
        &self,
        submission: &mut Submission<'_>,
        taken: &mut Option<Taken>,
    ) -> Answer<()> {
        let Order { gpu, plan, count, arrays, .. } = *self;
        let place = submission.place;
        let on_host = matches!(plan.spec.codec, Codec::Jpeg2000(_));
        // Of tiles that nvJPEG2000 reads on the host the tables alone go up; what became of them is
        // known already.
        let (mut statuses, mut first) = ([SENTINEL; MOST_TILES], 0);
        if on_host {
            (statuses, *taken) = self.decode_codestreams(submission)?;
            first = arrays.inputs;
        }
        self.write_tables(submission.tables(), &place, &statuses);
        submission.upload(first..arrays.uploaded, self.landed)?;
        let stream = submission.compute(2)?;
        let packed = plan.spec.codec != Codec::None;
        let check = plan.spec.codec == Codec::Deflate;
        let here = |offset: usize| place.input + offset as u64;
        if plan.direct {
            self.stow(stream, &place)?;
        }
        if packed {
            self.unpack(stream, &place)?;
        }
        submission.unpacked()?;
        if on_host {
            self.finish(stream, &place)?;
        }
        if check {
            let arrays = [arrays.outputs, arrays.sizes, arrays.room, arrays.adler].map(here);
            // SAFETY: regions of this batch and the work region, which belongs to the compute
            // stream; the plan made them large enough.
            unsafe { gpu.kernels.adler32(stream, count, arrays)? };
        }
        let or_null = |there: bool, offset: usize| if there { here(offset) } else { 0 };
        let undo = Undo {
            tiles: here(arrays.tiles),
            statuses: or_null(packed, arrays.statuses),
            actual: or_null(packed && !on_host, arrays.sizes),
            adler: or_null(check, arrays.adler),
            reports: place.output,
        };
        let rows = self.items.iter().map(|item| item.part.height).max().unwrap_or(1);
        let shape = Shape::new(&plan.spec, check);
        // SAFETY: as above.
        unsafe { gpu.kernels.undo(stream, count, rows, undo, shape)? };
        submission.download(self.down)?;
        let Some(target) = self.target else { return Ok(()) };
        // The caller's stream may be far behind: what became of the tiles is heard before.
        submission.linger(|stream| {
            target.order(stream)?;
            let tables = [here(arrays.places), here(arrays.which), 0];
            // SAFETY: as above; the target is the caller's word.
            unsafe { gpu.kernels.place(stream, count, rows, tables, target.shape(false))? };
            target.placed(stream)
        })
    }

    fn write_tables(&self, input: &mut [u8], place: &Place, statuses: &[i32]) {
        let Order { plan, arrays, .. } = *self;
        let (slots, raws) = plan.homes(place);
        input[self.end..arrays.end].fill(0);
        for (at, item) in self.items.iter().filter(|item| item.on_device).enumerate() {
            let slot = slots + item.stream.start as u64;
            let raw = match plan.spec.codec {
                Codec::None => slot,
                _ => raws + (at * plan.raw) as u64,
            };
            let tile = DecodeTile {
                raw,
                out: place.output + item.crop as u64,
                rows: item.job.rows as u32,
                x: item.part.x as u32,
                y: item.part.y as u32,
                width: item.part.width as u32,
                height: item.part.height as u32,
                adler: item.adler,
                finish: item.codestream.as_ref().map_or([0; 3], |it| finish(&plan.spec, it, raw)),
            };
            let chunk = Chunk {
                input: slot,
                input_bytes: item.stream.len(),
                output: raw,
                room: room(&plan.spec, &item.job),
            };
            arrays.put_chunk(input, at, chunk);
            let status = statuses.get(at).copied().unwrap_or(SENTINEL);
            arrays.put_tile(input, at, &tile.bytes(), status);
            if plan.direct {
                arrays.put_stow(input, at, &self.stow_tile(item, place.landing, slot, at));
            }
            if let Some(target) = self.target {
                arrays.put_place(input, at, &target.place(item, tile.out));
            }
        }
        if let Some(target) = self.target {
            arrays.put_which(input, target.which());
        }
        if plan.direct {
            let nothing = nothing(plan.spec.codec);
            input[arrays.nothing..][..nothing.len()].copy_from_slice(nothing);
        }
    }

    /// How the `at`-th tile that was read past the host gets to its slot; zeros follow the last one.
    fn stow_tile(&self, item: &Item, landing: u64, to: u64, at: usize) -> StowTile {
        let slack = if at + 1 == self.count { SLACK } else { 0 };
        StowTile {
            from: landing + item.bytes.start as u64,
            to,
            bytes: item.job.len as u32,
            room: (item.stream.len() + slack) as u32,
            content: content(&self.plan.spec, &item.job) as u32,
            reserved: 0,
        }
    }

    /// Brings tiles from where the file was read to, to where they are unpacked from.
    fn stow(&self, stream: &Stream, place: &Place) -> Answer<()> {
        let Order { plan, count, arrays, .. } = *self;
        let here = |offset: usize| place.input + offset as u64;
        let stow = Stow {
            tiles: here(arrays.stows),
            inputs: here(arrays.inputs),
            input_bytes: here(arrays.input_bytes),
            decode: here(arrays.tiles),
            verdicts: place.output + head(count) as u64,
            nothing: here(arrays.nothing),
            nothing_bytes: nothing(plan.spec.codec).len() as u64,
            framing: framing(plan.spec.codec),
            reserved: 0,
        };
        let largest = self.items.iter().map(|item| item.job.len).max().unwrap_or(0);
        // SAFETY: regions of this batch, as above; what was read ends in whole pages.
        unsafe { self.gpu.kernels.stow(stream, count, largest, stow) }
    }

    fn unpack(&self, stream: &Stream, place: &Place) -> Answer<()> {
        let Order { plan, count, arrays, .. } = *self;
        let (_, raws) = plan.homes(place);
        let tables = Tables {
            largest: plan.spec.stored_row_bytes() * plan.spec.height,
            temporary: (raws + (plan.raw * plan.tiles) as u64).next_multiple_of(256),
            temporary_bytes: plan.temporary,
            ..arrays.of_nvcomp(place.input, count)
        };
        // SAFETY: as above.
        unsafe { unpack(self.gpu, plan.spec.codec, &tables, stream) }
    }
}
