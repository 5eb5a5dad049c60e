//! A batch of compressed tiles on its way through the device.
//!
//! One buffer goes up: the tiles, each where nvCOMP wants it, then the tables. nvCOMP or a kernel
//! unpacks, `adler32` sums up, `undo` lays the wanted parts out, and one buffer comes down: what became of
//! each tile, then the pixels. What the device may not be given (see [`super::frames`]) or got wrong
//! is decoded on the CPU, out of the same staging memory.

use std::sync::Arc;

use super::arena::Sizes;
use super::driver::Answer;
use super::frames;
use super::kernels::{DecodeTile, Shape, Undo};
use super::nvcomp::Tables;
use super::nvtx::Range;
use super::plan::Planned;
use super::probe::Gpu;
use super::run::{Lane, Submission};
use super::staging::{Item, inspect, place, read};
use super::tables::{Arrays, Chunk, head, report};
use super::target::{Target, Upload};
use super::unpack::{Needs, room, unpack};
use super::verify::{Check, Kind, Verdict};
use super::{SUCCESS, Works};
use crate::engine::cpu;
use crate::engine::{Batch, Codec, PixelSink, Pixels, TileError, TileJob, TileSpec};
use crate::error::Result;
use crate::process::pool;

/// What a status holds before it is written.
pub(super) const SENTINEL: i32 = -77;
/// Zero bytes behind the last tile: a decoder may look further than its stream.
const SLACK: usize = 64;
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
        Plan::new(gpu, &self.spec, tiles)
    }
}

impl Plan {
    /// Plans batches of `tiles` tiles.
    pub(super) fn new(gpu: &Gpu, spec: &Arc<TileSpec>, tiles: usize) -> Answer<Plan> {
        let Needs { align, temporary } = Needs::of(gpu, spec, tiles)?;
        let lead = if spec.codec == Codec::Deflate { frames::ZLIB_HEADER } else { 0 };
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
        let sizes = Sizes {
            input: slots
                + SLACK
                + 2 * 256
                + tiles * (Arrays::TILE_BYTES + Arrays::PLACE_BYTES)
                + 4 * spec.samples,
            output,
            output_regions: 2,
            work: raw * tiles + temporary + 256,
        };
        let spec = Arc::clone(spec);
        Ok(Plan { spec, tiles, slots, align, lead, raw, temporary, sizes })
    }

    /// Bytes of a slot that a tile takes up, from `at` on, and where its first byte is.
    pub(super) fn slot(&self, at: usize, job: &TileJob) -> (usize, usize) {
        let growth = if self.spec.codec == Codec::Zstd { frames::ZSTD_GROWTH } else { 0 };
        let stream = (at + self.lead).next_multiple_of(self.align);
        let first = stream - self.lead + growth;
        (first, first + job.len)
    }

    /// How many of the first tiles go into one batch.
    pub(super) fn fitting(&self, jobs: &[TileJob]) -> usize {
        let mut at = 0;
        let over = |job: &TileJob| {
            at = self.slot(at, job).1;
            at > self.slots
        };
        let most = jobs.len().min(self.tiles);
        jobs[..most].iter().position(over).unwrap_or(most)
    }
}

/// A batch on its way.
pub(super) struct Flight {
    lane: Lane,
    plan: Arc<Plan>,
    works: Arc<Works>,
    items: Vec<Item>,
    /// Tiles that go to the device.
    count: usize,
    /// Where pixels stay on the device; else they come down.
    target: Option<Arc<Target>>,
    threads: usize,
    outcome: Answer<()>,
}

impl Flight {
    /// Reads the tiles into the lane and sends them off. An error is the source's; what the
    /// device says comes out of `land`.
    pub(super) fn start(
        works: &Arc<Works>,
        plan: &Arc<Plan>,
        mut lane: Lane,
        batch: &Batch,
        jobs: &[TileJob],
        target: Option<&Arc<Target>>,
    ) -> Result<Flight> {
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
        let mut flight = Flight {
            lane,
            plan: Arc::clone(plan),
            works: Arc::clone(works),
            count: items.iter().filter(|item| item.on_device).count(),
            items,
            target: target.cloned(),
            threads: batch.threads,
            outcome: Ok(()),
        };
        flight.outcome = flight.submit(end);
        Ok(flight)
    }

    fn submit(&mut self, end: usize) -> Answer<()> {
        if self.count == 0 {
            return Ok(());
        }
        let (pixel, mut down) = (self.pixel_bytes(), head(self.count));
        for item in self.items.iter_mut().filter(|item| item.on_device) {
            item.crop = down;
            down += (item.part.width * item.part.height * pixel).next_multiple_of(CROP_ALIGN);
        }
        let gpu = Arc::clone(&self.works.gpu);
        let _current = gpu.device.enter()?;
        let target = self.target.as_deref();
        let wanted = target.map_or(0, |target| target.which().len());
        let arrays = Arrays::new((end + SLACK).next_multiple_of(256), self.count, wanted);
        let (plan, items, count) = (&*self.plan, &*self.items, self.count);
        if target.is_some() {
            down = head(count);
        }
        let order = Order { gpu: &gpu, plan, items, count, target, arrays, end, down };
        self.lane.submit(|submission| order.send(submission))?;
        self.works.tally.batch(arrays.uploaded, down);
        Ok(())
    }

    /// Waits for the batch and delivers it; the tiles that neither the device nor the CPU could
    /// decode come back.
    pub(super) fn land(mut self, sink: &dyn PixelSink) -> Vec<TileError> {
        let device = Arc::clone(&self.works.gpu.device);
        let waiting = Range::new(c"GPUGTiff wait");
        let outcome = match self.outcome {
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
            return self.on_cpu(&vec![true; self.items.len()], sink);
        }
        let mut redo: Vec<bool> = self.items.iter().map(|item| !item.on_device).collect();
        let failed = self.failed();
        if self.plan.spec.codec == Codec::Zstd && !failed.is_empty() {
            // Nothing vouches for its neighbours.
            redo.fill(true);
        } else {
            failed.iter().for_each(|&i| redo[i] = true);
        }
        if !self.verified(&redo) {
            redo.fill(true);
        }
        self.deliver(&redo, sink);
        self.on_cpu(&redo, sink)
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
        let wrong = sent.enumerate().filter(|(n, (_, item))| !right(*n, item));
        wrong.map(|(_, (i, _))| i).collect()
    }

    fn pixel_bytes(&self) -> usize {
        self.plan.spec.samples * self.plan.spec.sample.bytes()
    }

    /// The pixels of a tile in the lane's output.
    fn pixels<'a>(&self, item: &Item, output: &'a [u8]) -> Pixels<'a> {
        let row_bytes = item.part.width * self.pixel_bytes();
        Pixels {
            data: &output[item.crop..][..row_bytes * item.part.height],
            rows: item.part.height,
            row_bytes,
            x: item.part.x,
            y: item.part.y,
        }
    }

    /// Compares with the CPU what is to be compared; false if something differs.
    fn verified(&self, redo: &[bool]) -> bool {
        let good: Vec<usize> = (0..redo.len()).filter(|&i| !redo[i]).collect();
        let check = self.works.check(Kind::decode(&self.plan.spec), false);
        if check.refuted {
            return false;
        }
        let picked = check.pick(&good);
        if picked.is_empty() {
            return true;
        }
        if let Some(target) = &self.target {
            return self.verified_there(target, check, &picked, redo);
        }
        let (input, output) = self.lane.view();
        let verdict = Verdict::default();
        // Known by their places here.
        let known = |&i: &usize| {
            let item = &self.items[i];
            (TileJob { id: i as u64, ..item.job }, &input[item.bytes.clone()])
        };
        let tiles: Vec<(TileJob, &[u8])> = picked.iter().map(known).collect();
        let compare = Compare { flight: self, output, verdict: &verdict };
        let failed = cpu::decode_staged(&self.plan.spec, self.threads, &tiles, &compare);
        let right = verdict.right() && failed.is_empty();
        self.works.tally.verified.add(picked.len() as u64);
        let intact = failed.is_empty() && !redo.iter().any(|&again| again);
        self.works.judged(check, right, intact);
        right
    }

    /// Compares, on the device, what is in the target's memory with the CPU's pixels.
    fn verified_there(
        &self,
        target: &Arc<Target>,
        check: Check,
        picked: &[usize],
        redo: &[bool],
    ) -> bool {
        let (input, _) = self.lane.view();
        let tile = |&i: &usize| (self.items[i].job, &input[self.items[i].bytes.clone()]);
        let tiles: Vec<(TileJob, &[u8])> = picked.iter().map(tile).collect();
        let upload = Upload::new(target);
        let failed = cpu::decode_staged(&self.plan.spec, self.threads, &tiles, &upload);
        let same = match upload.differs(&self.works.gpu) {
            Ok(differs) => !differs,
            Err(fault) => {
                self.works.note_fault(fault);
                return false;
            }
        };
        let right = same && failed.is_empty();
        self.works.tally.verified.add(picked.len() as u64);
        let intact = failed.is_empty() && !redo.iter().any(|&again| again);
        self.works.judged(check, right, intact);
        right
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

    /// Decodes the marked tiles on the CPU, from the staging memory.
    fn on_cpu(&self, redo: &[bool], sink: &dyn PixelSink) -> Vec<TileError> {
        let marked = (0..redo.len()).filter(|&i| redo[i]);
        let (input, _) = self.lane.view();
        let tiles: Vec<(TileJob, &[u8])> =
            marked.map(|i| (self.items[i].job, &input[self.items[i].bytes.clone()])).collect();
        self.works.tally.decoded_again(self.plan.spec.codec, tiles.len());
        cpu::decode_staged(&self.plan.spec, self.threads, &tiles, sink)
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
    /// Bytes that come down.
    down: usize,
}

impl Order<'_> {
    /// Writes the tables, since they hold device addresses which are known only now, and asks for
    /// everything up to the download.
    fn send(&self, submission: &mut Submission<'_>) -> Answer<()> {
        let Order { gpu, plan, count, arrays, .. } = *self;
        let place = submission.place;
        let input = submission.tables();
        input[self.end..arrays.end].fill(0);
        for (at, item) in self.items.iter().filter(|item| item.on_device).enumerate() {
            let raw = match plan.spec.codec {
                Codec::None => place.input + item.stream.start as u64,
                _ => place.work + (at * plan.raw) as u64,
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
                input: place.input + item.stream.start as u64,
                input_bytes: item.stream.len(),
                output: raw,
                room: room(&plan.spec, &item.job),
            };
            arrays.put_chunk(input, at, chunk);
            arrays.put_tile(input, at, &tile.bytes(), SENTINEL);
            if let Some(target) = self.target {
                arrays.put_place(input, at, &target.place(item, tile.out));
            }
        }
        if let Some(target) = self.target {
            arrays.put_which(input, target.which());
        }
        submission.upload(arrays.uploaded)?;
        let stream = submission.compute(2)?;
        let packed = plan.spec.codec != Codec::None;
        let check = plan.spec.codec == Codec::Deflate;
        let here = |offset: usize| place.input + offset as u64;
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
                temporary: (place.work + (plan.raw * plan.tiles) as u64).next_multiple_of(256),
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
}

/// Compares the CPU's pixels with the device's.
struct Compare<'a> {
    flight: &'a Flight,
    output: &'a [u8],
    verdict: &'a Verdict,
}

impl PixelSink for Compare<'_> {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let flight = self.flight;
        let item = &flight.items[id as usize];
        let ours = flight.pixels(item, self.output);
        let pixel = flight.pixel_bytes();
        for (y, row) in ours.data.chunks_exact(ours.row_bytes.max(1)).enumerate() {
            let at = (item.part.y + y) * pixels.row_bytes + item.part.x * pixel;
            if pixels.data.get(at..at + row.len()) != Some(row) {
                self.verdict.wrong();
            }
        }
    }
}
