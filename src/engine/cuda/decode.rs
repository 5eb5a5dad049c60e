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

use super::decode_plan::{CROP_ALIGN, Plan, SLACK};
use super::driver::Answer;
use super::gds::Direct;
use super::nvjpeg2k::Taken;
use super::nvtx::Range;
use super::order::Order;
use super::run::Lane;
use super::staging::{Item, inspect, place, read};
use super::tables::{Arrays, head, report, verdict};
use super::target::Target;
use super::{Course, SUCCESS, TILES, Works, decode_on_cpu};
use crate::engine::cpu;
use crate::engine::{Codec, PixelSink, Pixels, TileError, TileJob};
use crate::error::Result;
use crate::process::{memory, pool};

/// Tiles that are delivered as one task hold about this much.
const TASK_BYTES: usize = 128 << 10;

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
    /// What nvJPEG2000 decodes it with, until it was waited for.
    taken: Option<Taken>,
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
        let mut items = place(plan, jobs)?;
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
            taken: None,
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
        // In use as long as anything is on its way, even if it was not submitted to the end.
        let taken = &mut self.taken;
        self.lane.submit(|submission| order.send(submission, taken))?;
        self.works.tally.batch(arrays.uploaded + landed, down);
        Ok(())
    }

    /// Waits for the batch and delivers it; the tiles that neither the device nor the CPU could
    /// decode come back.
    pub(super) fn land(mut self, sink: &dyn PixelSink) -> Vec<TileError> {
        self.depart();
        if self.unreadable {
            return self.all_on_cpu(sink);
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
        // Waited for, or settled.
        self.taken = None;
        let _range = Range::new(c"GPUGTiff deliver");
        self.restore_headers();
        if let Err(fault) = outcome {
            self.works.note_fault(fault);
            return self.all_on_cpu(sink);
        }
        self.hear_verdicts();
        let left = |item: &Item| !item.on_device || item.refused;
        let mut redo = memory::or_unwind(memory::collect(self.items.iter().map(left), TILES));
        let failed = self.mark_failed(&mut redo);
        if self.plan.spec.codec == Codec::Zstd && failed {
            // Nothing vouches for its neighbours.
            redo.fill(true);
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

    /// Marks the tiles that the device says it could not unpack, or whose checksum is wrong; whether
    /// there are any.
    fn mark_failed(&self, redo: &mut [bool]) -> bool {
        let (codec, row) = (self.plan.spec.codec, self.plan.spec.stored_row_bytes());
        if codec == Codec::None {
            return false;
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
        wrong.map(|(_, (i, _))| redo[i] = true).count() > 0
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
        let good = memory::collect((0..redo.len()).filter(|&i| !redo[i]), TILES);
        let good = memory::or_unwind(good);
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

    /// Decodes all tiles on the CPU: the device has nothing of use.
    fn all_on_cpu(&mut self, sink: &dyn PixelSink) -> Vec<TileError> {
        let all = memory::or_unwind(memory::repeated(true, self.items.len(), TILES));
        self.on_cpu(&all, sink, true)
    }

    /// Decodes the marked tiles on the CPU: from the staging memory, from what comes back of the device's,
    /// or, if what was read past the host is not to be had or `distrusted`, from the file.
    fn on_cpu(&mut self, redo: &[bool], sink: &dyn PixelSink, distrusted: bool) -> Vec<TileError> {
        let marked = memory::collect((0..redo.len()).filter(|&i| redo[i]), TILES);
        let marked = memory::or_unwind(marked);
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
                let jobs = memory::collect(marked.iter().map(|&i| self.items[i].job), TILES);
                let jobs = memory::or_unwind(jobs);
                return decode_on_cpu(direct.batch(spec, jobs, threads), sink);
            }
        }
        let memory = if self.direct.is_some() { self.lane.landed() } else { self.lane.view().0 };
        let tile = |&i: &usize| (self.items[i].job, &memory[self.items[i].bytes.clone()]);
        let tiles = memory::or_unwind(memory::collect(marked.iter().map(tile), TILES));
        cpu::decode_staged(spec, threads, &tiles, sink)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Abandoned: what decodes it goes back when it is done, and before the memory that was lent for it.
        if self.taken.is_some() {
            let _ = self.works.gpu.device.enter().and_then(|_current| self.lane.wait());
            self.taken = None;
        }
        if let Some(direct) = &mut self.direct {
            direct.abandon(&self.works, &mut self.lane);
        }
    }
}
