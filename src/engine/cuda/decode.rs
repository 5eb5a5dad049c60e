//! A batch of compressed tiles on its way through the device.
//!
//! One buffer goes up: the tiles, each where nvCOMP wants it, then the tables. nvCOMP or a kernel
//! unpacks, `adler32` sums up, `undo` lays the wanted parts out, and one buffer comes down: what became of
//! each tile, then the pixels. What the device may not be given (see [`super::frames`]) or got wrong
//! is decoded on the CPU, out of the same staging memory.
//!
//! A batch that is read past the host (see [`super::gds`]) sends up its tables alone; `stow` brings
//! the tiles to where they would have been, and looks at them in the host's stead.

use std::sync::Arc;

use super::arena::{Place, Sizes};
use super::cufile::PAGE;
use super::driver::Answer;
use super::frames;
use super::gds::Direct;
use super::kernels::{DecodeTile, Shape, Stow, StowTile, Undo};
use super::nvcomp::Tables;
use super::nvtx::Range;
use super::pages::Usage;
use super::plan::Planned;
use super::probe::Gpu;
use super::run::{Lane, Submission};
use super::staging::{Item, content, inspect, place, read};
use super::tables::{Arrays, Chunk, head, report, verdict, verdicts};
use super::target::Target;
use super::unpack::{Needs, framing, nothing, room, unpack};
use super::verify::Kind;
use super::{Course, SUCCESS, Works, decode_on_cpu};
use crate::engine::cpu;
use crate::engine::{Codec, PixelSink, Pixels, TileError, TileJob, TileSpec};
use crate::error::Result;
use crate::process::pool;

/// What a status holds before it is written.
pub(super) const SENTINEL: i32 = -77;
/// Zero bytes behind the last tile: a decoder may look further than its stream.
const SLACK: usize = 64;
/// What is stowed begins and ends at multiples of this.
const STOW_ALIGN: usize = 16;
/// Crops begin at multiples of this.
const CROP_ALIGN: usize = 16;
/// Tiles that are delivered as one task hold about this much.
const TASK_BYTES: usize = 128 << 10;

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
    raw: usize,
    temporary: usize,
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
    fn homes(&self, place: &Place) -> (u64, u64) {
        match self.direct {
            true => (place.work, place.work + Plan::stowed(self.slots) as u64),
            false => (place.input, place.work),
        }
    }

    /// Bytes in front of the pixels that come down.
    fn head(&self, tiles: usize) -> usize {
        head(tiles) + if self.direct { verdicts(tiles) } else { 0 }
    }

    /// What a comparison vouches for.
    pub(super) fn kind(&self) -> Kind {
        let kind = Kind::decode(&self.spec);
        if self.direct { kind.from_file() } else { kind }
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

/// A batch on its way.
pub(super) struct Flight {
    pub(super) lane: Lane,
    pub(super) plan: Arc<Plan>,
    pub(super) works: Arc<Works>,
    pub(super) items: Vec<Item>,
    /// Tiles that go to the device.
    count: usize,
    /// Where pixels stay on the device; else they come down.
    pub(super) target: Option<Arc<Target>>,
    pub(super) threads: usize,
    /// Where its bytes are, if it is read past the host.
    pub(super) direct: Option<Direct>,
    /// What the device said so far; none while it has nothing to compute.
    outcome: Option<Answer<()>>,
    /// The source has not what it should have.
    unreadable: bool,
}

impl Flight {
    /// Reads the tiles into the lane and sends them off, or has them read and lets `depart` do the rest.
    /// An error is the source's; what the device says comes out of `land`.
    pub(super) fn start(course: &Course, mut lane: Lane, jobs: &[TileJob]) -> Result<Flight> {
        let Course { works, plan, batch, .. } = course;
        if let Some(file) = &course.file {
            let (items, mut direct) = Direct::place(plan, batch, jobs)?;
            direct.begin(works, &mut lane, file);
            return Ok(Flight::new(course, lane, items, Some(direct)));
        }
        let mut items = place(plan, jobs);
        let end = items.last().map_or(0, |item| item.bytes.end);
        let (input, _) = lane.host();
        let _range = Range::new(c"GPUGTiff read");
        let started = std::time::Instant::now();
        read(batch, &mut items, &mut input[..end])?;
        works.tally.read.add(started.elapsed().as_micros() as u64);
        for item in &mut items {
            inspect(plan, item, input);
        }
        let mut flight = Flight::new(course, lane, items, None);
        flight.outcome = Some(flight.submit(end, 0));
        Ok(flight)
    }

    fn new(course: &Course, lane: Lane, items: Vec<Item>, direct: Option<Direct>) -> Flight {
        Flight {
            lane,
            plan: Arc::clone(&course.plan),
            works: Arc::clone(&course.works),
            count: items.iter().filter(|item| item.on_device).count(),
            items,
            target: course.target.clone(),
            threads: course.batch.threads,
            direct,
            outcome: None,
            unreadable: false,
        }
    }

    /// Has the device compute what was read past the host, when it was.
    pub(super) fn depart(&mut self) {
        let (None, Some(direct)) = (self.outcome, &mut self.direct) else { return };
        let _range = Range::new(c"GPUGTiff read");
        self.outcome = Some(match direct.finish(&self.works, &mut self.lane, self.threads) {
            Ok(landed) => self.submit(0, landed),
            Err(_) => {
                self.unreadable = true;
                Ok(())
            }
        });
    }

    /// `end` is where tiles end in the lane's input, `landed` how much is to go up of what cuFile should
    /// have read.
    fn submit(&mut self, end: usize, landed: usize) -> Answer<()> {
        if self.count == 0 {
            return Ok(());
        }
        let (pixel, mut down) = (self.pixel_bytes(), self.plan.head(self.count));
        for item in self.items.iter_mut().filter(|item| item.on_device) {
            item.crop = down;
            down += (item.part.width * item.part.height * pixel).next_multiple_of(CROP_ALIGN);
        }
        let gpu = Arc::clone(&self.works.gpu);
        let _current = gpu.device.enter()?;
        let target = self.target.as_deref();
        let wanted = target.map_or(0, |target| target.which().len());
        let (plan, items, count) = (&*self.plan, &*self.items, self.count);
        let start = if plan.direct { 0 } else { (end + SLACK).next_multiple_of(256) };
        let arrays = Arrays::new(start, count, wanted, plan.direct);
        if target.is_some() {
            down = plan.head(count);
        }
        let order = Order { gpu: &gpu, plan, items, count, target, arrays, end, landed, down };
        self.lane.submit(|submission| order.send(submission))?;
        self.works.tally.batch(arrays.uploaded + landed, down);
        Ok(())
    }

    /// Waits for the batch and delivers it; the tiles that neither the device nor the CPU could
    /// decode come back.
    pub(super) fn land(mut self, sink: &dyn PixelSink) -> Vec<TileError> {
        self.depart();
        if self.unreadable {
            return self.on_cpu(&vec![true; self.items.len()], sink, true);
        }
        let device = Arc::clone(&self.works.gpu.device);
        let waiting = Range::new(c"GPUGTiff wait");
        let outcome = match self.outcome.unwrap_or(Ok(())) {
            Ok(()) => device.enter().and_then(|_current| {
                let waited = self.lane.wait();
                if waited.is_ok() {
                    self.works.tally.times(self.lane.times());
                }
                waited
            }),
            Err(fault) => Err(fault),
        };
        drop(waiting);
        let _range = Range::new(c"GPUGTiff deliver");
        self.restore_headers();
        if let Err(fault) = outcome {
            self.works.note_fault(fault);
            return self.on_cpu(&vec![true; self.items.len()], sink, true);
        }
        self.hear_verdicts();
        let left = |item: &Item| !item.on_device || item.refused;
        let mut redo: Vec<bool> = self.items.iter().map(left).collect();
        let failed = self.failed();
        if self.plan.spec.codec == Codec::Zstd && !failed.is_empty() {
            // Nothing vouches for its neighbours.
            redo.fill(true);
        } else {
            failed.iter().for_each(|&i| redo[i] = true);
        }
        let verified = self.verified(&redo);
        if !verified {
            redo.fill(true);
        }
        self.deliver(&redo, sink);
        self.on_cpu(&redo, sink, !verified)
    }

    /// What the device found in tiles that the host has not looked at.
    fn hear_verdicts(&mut self) {
        if !self.plan.direct || self.count == 0 {
            return;
        }
        let (_, output) = self.lane.view();
        let found = &output[head(self.count)..];
        for (n, item) in self.items.iter_mut().filter(|item| item.on_device).enumerate() {
            let verdict = verdict(found, n);
            (item.adler, item.refused) = (verdict.adler, verdict.refused != 0);
        }
    }

    /// The CPU gets tiles as the file has them: a patch may have stated a wrong size.
    fn restore_headers(&mut self) {
        let (input, _) = self.lane.host();
        for item in &self.items {
            if let Some(header) = item.header {
                input[item.bytes.start..][..header.len()].copy_from_slice(&header);
            }
        }
    }

    /// Tiles that the device says it could not unpack, or whose checksum is wrong.
    fn failed(&self) -> Vec<usize> {
        let (codec, row) = (self.plan.spec.codec, self.plan.spec.stored_row_bytes());
        if codec == Codec::None {
            return Vec::new();
        }
        let (_, output) = self.lane.view();
        let right = |n: usize, item: &Item| {
            let report = report(output, n);
            let rows = row * item.job.rows..=row * self.plan.spec.height;
            report.status == SUCCESS
                && rows.contains(&(report.size as usize))
                && (codec != Codec::Deflate || report.adler == item.adler)
        };
        let sent = self.items.iter().enumerate().filter(|(_, item)| item.on_device);
        let wrong = sent.enumerate().filter(|(n, (_, item))| !item.refused && !right(*n, item));
        wrong.map(|(_, (i, _))| i).collect()
    }

    pub(super) fn pixel_bytes(&self) -> usize {
        self.plan.spec.samples * self.plan.spec.sample.bytes()
    }

    /// The pixels of a tile in the lane's output.
    pub(super) fn pixels<'a>(&self, item: &Item, output: &'a [u8]) -> Pixels<'a> {
        let row_bytes = item.part.width * self.pixel_bytes();
        Pixels {
            data: &output[item.crop..][..row_bytes * item.part.height],
            rows: item.part.height,
            row_bytes,
            x: item.part.x,
            y: item.part.y,
        }
    }

    /// Hands the pixels on, on all threads.
    fn deliver(&self, redo: &[bool], sink: &dyn PixelSink) {
        let good: Vec<usize> = (0..redo.len()).filter(|&i| !redo[i]).collect();
        self.works.tally.decoded_on_device(self.plan.spec.codec, good.len());
        if self.target.is_some() {
            return;
        }
        let (_, output) = self.lane.view();
        let group = (TASK_BYTES / self.plan.spec.tile_bytes().max(1)).clamp(1, 256);
        pool::run(self.threads, good.len().div_ceil(group), &|task| {
            for &i in good.iter().skip(task * group).take(group) {
                let item = &self.items[i];
                sink.put(item.job.id, self.pixels(item, output));
            }
        });
    }

    /// Decodes the marked tiles on the CPU: from the staging memory, from what comes back of the device's,
    /// or, if what was read past the host is not to be had or `distrusted`, from the file.
    fn on_cpu(&mut self, redo: &[bool], sink: &dyn PixelSink, distrusted: bool) -> Vec<TileError> {
        let marked: Vec<usize> = (0..redo.len()).filter(|&i| redo[i]).collect();
        self.works.tally.decoded_again(self.plan.spec.codec, marked.len());
        if marked.is_empty() {
            return Vec::new();
        }
        let (spec, threads) = (&self.plan.spec, self.threads);
        if let Some(direct) = &mut self.direct {
            let recalled = !distrusted && {
                let _current = self.works.gpu.device.enter();
                direct.recall(&mut self.lane, &self.items, redo)
            };
            if !recalled {
                let jobs = marked.iter().map(|&i| self.items[i].job).collect();
                return decode_on_cpu(direct.batch(spec, jobs, threads), sink);
            }
        }
        let memory = if self.direct.is_some() { self.lane.landed() } else { self.lane.view().0 };
        let tile = |&i: &usize| (self.items[i].job, &memory[self.items[i].bytes.clone()]);
        let tiles: Vec<(TileJob, &[u8])> = marked.iter().map(tile).collect();
        cpu::decode_staged(spec, threads, &tiles, sink)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(direct) = &mut self.direct {
            direct.abandon(&self.works, &mut self.lane);
        }
    }
}

/// What is submitted of a batch whose tiles are in the lane.
struct Order<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    items: &'a [Item],
    /// Tiles that go to the device.
    count: usize,
    target: Option<&'a Target>,
    arrays: Arrays,
    /// Where the tiles end in the lane's input.
    end: usize,
    /// Bytes that go up of what cuFile should have read.
    landed: usize,
    /// Bytes that come down.
    down: usize,
}

impl Order<'_> {
    /// Writes the tables, since they hold device addresses which are known only now, and asks for
    /// everything up to the download.
    fn send(&self, submission: &mut Submission<'_>) -> Answer<()> {
        let Order { gpu, plan, count, arrays, .. } = *self;
        let place = submission.place;
        let (slots, raws) = plan.homes(&place);
        let input = submission.tables();
        input[self.end..arrays.end].fill(0);
        for (at, item) in self.items.iter().filter(|item| item.on_device).enumerate() {
            let raw = match plan.spec.codec {
                Codec::None => slots + item.stream.start as u64,
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
                reserved: [0; 3],
            };
            let chunk = Chunk {
                input: slots + item.stream.start as u64,
                input_bytes: item.stream.len(),
                output: raw,
                room: room(&plan.spec, &item.job),
            };
            arrays.put_chunk(input, at, chunk);
            arrays.put_tile(input, at, &tile.bytes(), SENTINEL);
            if plan.direct {
                arrays.put_stow(input, at, &self.stow(item, place.landing, chunk.input, at));
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
        submission.upload(arrays.uploaded, self.landed)?;
        let stream = submission.compute(2)?;
        let packed = plan.spec.codec != Codec::None;
        let check = plan.spec.codec == Codec::Deflate;
        let here = |offset: usize| place.input + offset as u64;
        if plan.direct {
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
            // SAFETY: regions of this batch; what was read ends in whole pages.
            unsafe { gpu.kernels.stow(stream, count, largest, stow)? };
        }
        if packed {
            let tables = Tables {
                inputs: here(arrays.inputs),
                input_bytes: here(arrays.input_bytes),
                outputs: here(arrays.outputs),
                room: here(arrays.room),
                output_bytes: here(arrays.sizes),
                statuses: here(arrays.statuses),
                count,
                largest: plan.spec.stored_row_bytes() * plan.spec.height,
                temporary: (raws + (plan.raw * plan.tiles) as u64).next_multiple_of(256),
                temporary_bytes: plan.temporary,
            };
            // SAFETY: regions of this batch and the work region, which belongs to the compute
            // stream; the plan made them large enough.
            unsafe { unpack(gpu, plan.spec.codec, &tables, stream)? };
        }
        submission.unpacked()?;
        if check {
            let arrays = [arrays.outputs, arrays.sizes, arrays.room, arrays.adler].map(here);
            // SAFETY: as above.
            unsafe { gpu.kernels.adler32(stream, count, arrays)? };
        }
        let or_null = |there: bool, offset: usize| if there { here(offset) } else { 0 };
        let undo = Undo {
            tiles: here(arrays.tiles),
            statuses: or_null(packed, arrays.statuses),
            actual: or_null(packed, arrays.sizes),
            adler: or_null(check, arrays.adler),
            reports: place.output,
        };
        let rows = self.items.iter().map(|item| item.part.height).max().unwrap_or(1);
        let shape = Shape::new(&plan.spec, check);
        // SAFETY: as above.
        unsafe { gpu.kernels.undo(stream, count, rows, undo, shape)? };
        if let Some(target) = self.target {
            target.order(stream)?;
            let tables = [here(arrays.places), here(arrays.which), 0];
            let shape = target.shape(false);
            // SAFETY: as above; the target is the caller's word.
            unsafe { gpu.kernels.place(stream, count, rows, tables, shape)? };
        }
        submission.download(self.down)
    }

    /// How the `at`-th tile that was read past the host gets to its slot; zeros follow the last one.
    fn stow(&self, item: &Item, landing: u64, to: u64, at: usize) -> StowTile {
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
}
