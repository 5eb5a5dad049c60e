//! Tiles to be encoded on their way through the device.
//!
//! The pixels of a batch go up in one buffer with the tables; `apply` predicts, nvCOMP packs,
//! `adler32` sums up, `measure` and `gather` bring the packed tiles together behind each other.
//! Two buffers come down: what became of each tile, and then exactly the packed bytes. Up to three
//! batches are on their way at once, and the caller's next begins while the last ones of this are
//! still out: the device does not run dry in between. The source is asked once for each tile: whatever has to be
//! done again on the CPU is done out of the staging memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::LANES;
use super::driver::Answer;
use super::encode_plan::Plan;
use super::kernels::{EncodeTile, Measure, Report, Shape};
use super::nvcomp::Tables;
use super::nvtx;
use super::order::SENTINEL;
use super::probe::Gpu;
use super::run::{Lane, Submission};
use super::tables::{Arrays, Chunk, head, report};
use super::verify::Verdict;
use super::{SUCCESS, TILES, Works};
use crate::engine::cpu::{self, CpuEngine};
use crate::engine::{
    Codec, Engine, Packed, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels, Sample, TileJob,
};
use crate::error::Result;
use crate::process::{memory, pool};

/// Deflate, 32 KiB window, default effort: what zlib itself writes.
const ZLIB: [u8; 2] = [0x78, 0x9C];
/// Tiles that are fetched as one task hold about this much.
const TASK_BYTES: usize = 128 << 10;

/// Encodes a batch of the caller's in batches of the device's, three of them on their way.
pub(super) fn encode(
    works: &Arc<Works>,
    batch: &PixelBatch,
    source: &dyn PixelSource,
    packed: &mut Packed,
) -> Result<()> {
    let run = works
        .encode_plan(batch)
        .and_then(|mut plan| works.encode_run(&mut plan).map(|run| (plan, run)));
    let Some((plan, run)) = run else {
        works.tally.left.add(batch.tiles.len() as u64);
        return CpuEngine.encode(batch, source, packed);
    };
    works.note_level(batch);
    let mut pile = Pile { packed, at: 0 };
    pile.packed.tiles.clear();
    let mut flights: VecDeque<Flight<'_>> = VecDeque::new();
    for jobs in batch.tiles.chunks(plan.tiles) {
        let lane = loop {
            if let Some(lane) = run.next_lane(flights.len()) {
                break lane;
            }
            if let Some(oldest) = flights.pop_front() {
                oldest.land(&mut pile)?;
            }
        };
        flights.push_back(Flight::start(works, &plan, lane, batch, jobs, source)?);
    }
    flights.into_iter().try_for_each(|flight| flight.land(&mut pile))
}

impl Works {
    /// Levels of ZSTD mean nothing to nvCOMP.
    fn note_level(&self, batch: &PixelBatch) {
        if batch.spec.codec == Codec::Zstd && self.settings.levels_given.1 {
            self.notice("ZSTD_LEVEL has no effect on the GPU".into());
        }
    }
}

/// Where packed tiles are put together.
struct Pile<'a> {
    packed: &'a mut Packed,
    at: usize,
}

impl Pile<'_> {
    /// Room for `bytes` more.
    fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let end = self.at + bytes;
        if self.packed.bytes.len() < end {
            let more = end - self.packed.bytes.len();
            memory::grow(&mut self.packed.bytes, more, "packed tiles")?;
            self.packed.bytes.resize(end, 0);
        }
        Ok(&mut self.packed.bytes[self.at..end])
    }

    fn add(&mut self, bytes: &[u8]) -> Result<Range<usize>> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        let range = self.at..self.at + bytes.len();
        self.at = range.end;
        Ok(range)
    }
}

/// A batch on its way.
struct Flight<'a> {
    works: Arc<Works>,
    plan: Arc<Plan>,
    lane: Lane,
    batch: &'a PixelBatch,
    jobs: &'a [PixelJob],
    /// Which tiles are not left out, in the order in which they are on the device.
    kept: Vec<usize>,
    outcome: Answer<()>,
}

impl<'a> Flight<'a> {
    fn start(
        works: &Arc<Works>,
        plan: &Arc<Plan>,
        mut lane: Lane,
        batch: &'a PixelBatch,
        jobs: &'a [PixelJob],
        source: &dyn PixelSource,
    ) -> Result<Flight<'a>> {
        let _range = nvtx::Range::new(c"GPUGTiff fetch");
        let kept = fetch(plan, &mut lane, batch, jobs, source)?;
        let (works, plan) = (Arc::clone(works), Arc::clone(plan));
        let mut flight = Flight { works, plan, lane, batch, jobs, kept, outcome: Ok(()) };
        flight.outcome = flight.submit();
        Ok(flight)
    }

    fn submit(&mut self) -> Answer<()> {
        let count = self.kept.len();
        if count == 0 {
            return Ok(());
        }
        let gpu = Arc::clone(&self.works.gpu);
        let _current = gpu.device.enter()?;
        let plan = Arc::clone(&self.plan);
        let arrays =
            Arrays::new((self.jobs.len() * plan.pixels).next_multiple_of(256), count, 0, false);
        let (kept, jobs) = (&self.kept, self.jobs);
        let order = Order { gpu: &gpu, plan: &plan, kept, jobs, arrays };
        let mut down = 0;
        self.lane.submit(|submission| {
            down = order.send(submission)?;
            Ok(())
        })?;
        self.works.tally.batch(arrays.uploaded, down);
        Ok(())
    }

    /// Waits for the batch and puts it on the pile.
    fn land(mut self, pile: &mut Pile<'_>) -> Result<()> {
        let _range = nvtx::Range::new(c"GPUGTiff pack");
        let mut ranges = memory::repeated(0..0, self.jobs.len(), TILES)?;
        let mut found = memory::room(self.kept.len(), TILES)?;
        let outcome = match self.outcome {
            Ok(()) if self.kept.is_empty() => Ok(()),
            Ok(()) => {
                let device = Arc::clone(&self.works.gpu.device);
                device.enter().and_then(|_current| self.download(&mut found))
            }
            Err(fault) => Err(fault),
        };
        let mut again = memory::room(self.kept.len(), TILES)?;
        match outcome {
            Ok(()) => {
                let right = self.verified(&found)?;
                let (_, output) = self.lane.view();
                for (&i, range) in self.kept.iter().zip(found) {
                    match range.filter(|_| right) {
                        Some(range) => ranges[i] = pile.add(&output[range])?,
                        None => again.push(i),
                    }
                }
                self.works.tally.encoded.add((self.kept.len() - again.len()) as u64);
            }
            Err(fault) => {
                self.works.note_fault(fault);
                again.extend_from_slice(&self.kept);
            }
        }
        self.on_cpu(&again, &mut ranges, pile)?;
        memory::extend(&mut pile.packed.tiles, ranges, TILES)?;
        Ok(())
    }

    /// Finds where each kept tile is in the lane's output; `None` for one that the device failed on.
    /// There is room for all of them.
    fn download(&mut self, found: &mut Vec<Option<Range<usize>>>) -> Answer<()> {
        if self.plan.spec.codec == Codec::None {
            self.lane.wait()?;
            self.works.tally.times(self.lane.times());
            let mut at = 0;
            let rows = self.kept.iter().map(|&i| self.jobs[i].rows);
            let place = |rows: usize| {
                let start = at;
                at += self.plan.stored(rows);
                Some(start..at)
            };
            found.extend(rows.map(place));
            return Ok(());
        }
        self.lane.wait_for_report()?;
        let count = self.kept.len();
        let (around, most) = (self.plan.around(), self.plan.most as u64);
        let (_, output) = self.lane.view();
        let mut at = head(count);
        for n in 0..count {
            let report = report(output, n);
            // As `measure` and `gather` see it.
            let good = report.status == SUCCESS && report.size <= most;
            let size = if good { report.size as usize + around } else { 0 };
            found.push((good && size > around).then(|| at..at + size));
            at += size;
        }
        let bytes = at - head(count);
        if bytes > 0 {
            let from = self.lane.output() + head(count) as u64;
            // SAFETY: the packed bytes of this batch, into the lane that belongs to it.
            unsafe { self.lane.fetch(from, head(count), bytes)? };
            self.lane.wait()?;
            self.works.tally.times(self.lane.times());
            self.works.tally.down.add(bytes as u64);
        }
        Ok(())
    }

    /// Unpacks on the CPU what is to be compared with the pixels; false if something differs.
    fn verified(&self, found: &[Option<Range<usize>>]) -> Result<bool> {
        let spec = Arc::clone(&self.plan.spec);
        let check = self.works.check(self.plan.kind(), self.plan.is_unsure());
        if check.refuted {
            return Ok(false);
        }
        let good = (0..found.len()).filter(|&n| found[n].is_some());
        let picked = check.pick(&memory::collect(good, TILES)?)?;
        if picked.is_empty() {
            return Ok(true);
        }
        let (input, output) = self.lane.view();
        let mut tiles: Vec<(TileJob, &[u8])> = memory::room(picked.len(), TILES)?;
        for &n in &picked {
            let Some(range) = found[n].clone() else { continue };
            let job = TileJob {
                id: self.kept[n] as u64,
                offset: 0,
                len: range.len(),
                rows: self.jobs[self.kept[n]].rows,
                columns: spec.width,
                padded: false,
                part: None,
            };
            tiles.push((job, &output[range]));
        }
        let verdict = Verdict::default();
        let compare = Compare { input, plan: &self.plan, verdict: &verdict };
        let failed = cpu::decode_staged(&spec, self.batch.threads, &tiles, &compare);
        let right = verdict.right() && failed.is_empty();
        self.works.tally.verified.add(tiles.len() as u64);
        self.works.judged(check, right, true);
        Ok(right)
    }

    /// Encodes tiles on the CPU, from the staging memory.
    fn on_cpu(
        &self,
        again: &[usize],
        ranges: &mut [Range<usize>],
        pile: &mut Pile<'_>,
    ) -> Result<()> {
        if again.is_empty() {
            return Ok(());
        }
        self.works.tally.redone.add(again.len() as u64);
        let tiles = again.iter().map(|&i| PixelJob { id: i as u64, ..self.jobs[i] });
        let (tiles, spec) = (memory::collect(tiles, TILES)?, Arc::clone(&self.batch.spec));
        let PixelBatch { level, threads, .. } = *self.batch;
        let batch = PixelBatch { spec, level, tiles, threads };
        let (input, _) = self.lane.view();
        let staged = StagedPixels { input, pixels: self.plan.pixels };
        let mut packed = Packed::default();
        CpuEngine.encode(&batch, &staged, &mut packed)?;
        for (&i, range) in again.iter().zip(packed.tiles) {
            ranges[i] = pile.add(&packed.bytes[range])?;
        }
        Ok(())
    }
}

/// What is submitted of a batch whose pixels are in the lane.
struct Order<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    kept: &'a [usize],
    jobs: &'a [PixelJob],
    arrays: Arrays,
}

impl Order<'_> {
    /// Writes the tables, since they hold device addresses which are known only now, and asks for
    /// everything up to the first download, whose size comes back.
    fn send(&self, submission: &mut Submission<'_>) -> Answer<usize> {
        let Order { gpu, plan, arrays, .. } = *self;
        let (spec, count) = (&plan.spec, self.kept.len());
        let place = submission.place;
        let input = submission.tables();
        let packed = place.work + (plan.tiles * plan.raw) as u64;
        let mut direct = place.output;
        for (n, &i) in self.kept.iter().enumerate() {
            let rows = self.jobs[i].rows;
            let to = match spec.codec {
                Codec::None => direct,
                _ => place.work + (n * plan.raw) as u64,
            };
            direct += plan.stored(rows) as u64;
            let tile = EncodeTile {
                from: place.input + (i * plan.pixels) as u64,
                to,
                rows: rows as u32,
                // Padding is the source's business, as for every engine.
                width: spec.width as u32,
                height: rows as u32,
                ..EncodeTile::default()
            };
            let chunk = Chunk {
                input: to,
                input_bytes: plan.stored(rows),
                output: packed + (n * plan.most) as u64,
                room: plan.stored(rows),
            };
            arrays.put_chunk(input, n, chunk);
            arrays.put_tile(input, n, &tile.bytes(), SENTINEL);
        }
        submission.upload(0..arrays.uploaded, 0)?;
        let stream = submission.compute(LANES as u64)?;
        let here = |offset: usize| place.input + offset as u64;
        let rows = self.jobs.iter().map(|job| job.rows).max().unwrap_or(1);
        let shape = Shape::new(spec, false);
        // SAFETY: regions of this batch, and the work region, which belongs to the compute
        // stream; the plan made them large enough.
        unsafe {
            gpu.kernels.apply(stream, count, rows, here(arrays.tiles), shape)?;
            if spec.codec == Codec::None {
                submission.unpacked()?;
                let bytes = (direct - place.output) as usize;
                return submission.download(bytes).map(|()| bytes);
            }
            let temporary = packed + (plan.tiles * plan.most) as u64;
            let tables = Tables {
                largest: plan.stored(spec.height),
                temporary: temporary.next_multiple_of(256),
                temporary_bytes: plan.temporary,
                ..arrays.of_nvcomp(place.input, count)
            };
            gpu.nvcomp.compress(spec.codec, plan.effort, &tables, stream, &gpu.device)?;
            submission.unpacked()?;
            let zlib = spec.codec == Codec::Deflate;
            if zlib {
                let sums = [arrays.inputs, arrays.input_bytes, arrays.input_bytes, arrays.adler];
                gpu.kernels.adler32(stream, count, sums.map(here))?;
            }
            let adler = if zlib { here(arrays.adler) } else { 0 };
            let measure = Measure {
                sizes: here(arrays.sizes),
                statuses: here(arrays.statuses),
                adler,
                offsets: here(arrays.offsets),
                reports: place.output,
                count: count as u32,
                limit: plan.most as u64,
                extra: plan.around() as u32,
            };
            gpu.kernels.measure(stream, measure)?;
            let target = place.output + head(count) as u64;
            let gathered = [here(arrays.outputs), here(arrays.offsets), adler, target];
            gpu.kernels.gather(stream, count, plan.most, gathered, ZLIB)?;
        }
        let bytes = count * size_of::<Report>();
        submission.report(bytes).map(|()| bytes)
    }
}

/// Fetches the pixels of all tiles to the lane; says which are not left out.
fn fetch(
    plan: &Plan,
    lane: &mut Lane,
    batch: &PixelBatch,
    jobs: &[PixelJob],
    source: &dyn PixelSource,
) -> Result<Vec<usize>> {
    let (input, _) = lane.host();
    let group = (TASK_BYTES / plan.pixels.max(1)).clamp(1, 256);
    let slots = input[..jobs.len() * plan.pixels].chunks_mut(group * plan.pixels);
    let groups = memory::collect(slots.map(Mutex::new), TILES)?;
    let kept = Mutex::new(memory::room(jobs.len(), TILES)?);
    pool::run(batch.threads, groups.len(), &|task| {
        let mut slots = groups[task].lock().unwrap_or_else(PoisonError::into_inner);
        let first = task * group;
        for (n, slot) in slots.chunks_mut(plan.pixels).enumerate() {
            let job = &jobs[first + n];
            if source.get(job.id, &mut slot[..plan.spec.row_bytes() * job.rows]) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(first + n);
            }
        }
    });
    let mut kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    kept.sort_unstable();
    Ok(kept)
}

/// Pixels that were fetched before.
struct StagedPixels<'a> {
    input: &'a [u8],
    pixels: usize,
}

impl PixelSource for StagedPixels<'_> {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        tile.copy_from_slice(&self.input[id as usize * self.pixels..][..tile.len()]);
        true
    }
}

/// Compares unpacked tiles with the pixels they were made of.
struct Compare<'a> {
    input: &'a [u8],
    plan: &'a Plan,
    verdict: &'a Verdict,
}

impl PixelSink for Compare<'_> {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let given = &self.input[id as usize * self.plan.pixels..][..pixels.data.len()];
        let same = match self.plan.spec.sample {
            Sample::Whole { .. } => given == pixels.data,
            // Whatever is not 0 was stored as a set bit.
            Sample::Bit { .. } => {
                given.iter().zip(pixels.data).all(|(a, b)| (*a != 0) == (*b != 0))
            }
        };
        if !same {
            self.verdict.wrong();
        }
    }
}
