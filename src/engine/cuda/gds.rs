//! GPUDirect Storage: batches whose pages cuFile reads from the file to the device, past the host.
//!
//! A batch's reads are submitted when it is started, and what is computed of it when they are over: by
//! the batch that is started after it, once that one's reads are submitted, or when it is waited for. If
//! a read fails or ends early, the same pages are read to host memory and copied up, and the rest of the
//! way is the same. Tiles that the CPU must decode come back in one copy.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::cufile::{self, CuFile, File, Reads, Unread};
use super::decode_plan::Plan;
use super::pages::Pages;
use super::probe::{Gpu, Refusal};
use super::run::Lane;
use super::staging::{self, Item};
use super::verify::Kind;
use super::{Settings, TILES, Works, lock};
use crate::engine::{Batch, Codec, Part, TileJob, TileSpec};
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// GDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gds {
    /// Where cuFile is not in compatibility mode.
    Auto,
    /// Or an error.
    Yes,
    /// Not even looked for.
    #[default]
    No,
}

/// The files of a dataset, as cuFile knows them, or not.
pub(super) struct Files {
    cufile: Arc<CuFile>,
    known: Mutex<Vec<(Weak<dyn ByteSource>, Registered)>>,
}

/// None was refused.
type Registered = Option<Arc<File>>;

impl Files {
    /// Looks for cuFile, if it is wanted.
    pub(super) fn new(
        gpu: &Gpu,
        settings: &Settings,
    ) -> std::result::Result<Option<Files>, Refusal> {
        if settings.gds == Gds::No {
            return Ok(None);
        }
        let found = gpu.device.enter().map_err(|fault| fault.to_string());
        let found = found.and_then(|current| cufile::find(settings.cufile.as_deref(), &current));
        match found {
            Ok(cufile) if cufile.direct || settings.gds == Gds::Yes => {
                let cufile = Arc::clone(gpu.cufile.get_or_init(|| cufile));
                Ok(Some(Files { cufile, known: Mutex::default() }))
            }
            Err(why) if settings.gds == Gds::Yes => Err(Refusal::Gds(why)),
            _ => Ok(None),
        }
    }

    /// The file behind a source, or why there is none. Asked once for each.
    fn find(
        &self,
        gpu: &Gpu,
        source: &Arc<dyn ByteSource>,
    ) -> std::result::Result<Arc<File>, String> {
        let mut known = lock(&self.known);
        known.retain(|(source, _)| source.strong_count() > 0);
        let same =
            |known: &Weak<dyn ByteSource>| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(source));
        if let Some((_, file)) = known.iter().find(|(known, _)| same(known)) {
            return file.clone().ok_or_else(|| "it was refused before".into());
        }
        let register = |open: OwnedFd| File::new(&self.cufile, &gpu.device, open.as_fd());
        let file = source.descriptor().ok_or("it is not a local file".into()).and_then(register);
        let file = file.map(Arc::new);
        known.push((Arc::downgrade(source), file.as_ref().ok().cloned()));
        file
    }
}

/// Whether tiles of a codec are unpacked from where stow puts them.
fn is_stowed(codec: Codec) -> bool {
    match codec {
        Codec::None | Codec::Lzw | Codec::Deflate | Codec::PackBits | Codec::Zstd => true,
        // nvJPEG2000 reads codestreams on the host.
        Codec::Jpeg2000(_) | Codec::Gtiff => false,
    }
}

impl Works {
    /// The file that such tiles are read from past the host, if they are.
    pub(super) fn file(&self, source: &Arc<dyn ByteSource>, spec: &TileSpec) -> Option<Arc<File>> {
        let files =
            self.files.as_ref().filter(|_| self.gpu.device.usable() && is_stowed(spec.codec))?;
        let trust = self.gpu.trust();
        if trust.distrusts_cufile || trust.refuted.contains(&Kind::decode_directly(spec)) {
            return None;
        }
        drop(trust);
        let found = files.find(&self.gpu, source);
        if let (Err(why), Gds::Yes) = (&found, self.settings.gds) {
            self.notice(format!("GDS=YES: {why}: it is read through host memory"));
        }
        found.ok()
    }

    /// Whether GDS=YES can be had for this source.
    pub(super) fn admit(&self, source: &Arc<dyn ByteSource>) -> Result<()> {
        match &self.files {
            Some(files) if self.settings.gds == Gds::Yes => {
                let found = files.find(&self.gpu, source);
                found.map(drop).map_err(|why| Error::Device(format!("GDS=YES: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// cuFile did not bring a batch: the host reads it. The user is told once.
    fn note_unread(&self, unread: &Unread) {
        self.tally.gds_fallbacks.add(1);
        if !self.gpu.device.usable() {
            // They will hear of that.
            return;
        }
        let mut trust = self.gpu.trust();
        if !unread.settled || unread.trouble.is_lasting() {
            trust.distrusts_cufile = true;
        }
        if trust.told.insert("GDS".into()) {
            let text =
                format!("GPUDirect Storage: {}: read through host memory instead", unread.trouble);
            lock(&self.notices).push(text);
        }
    }
}

/// Where the bytes of a batch are, which is not in the lane's input.
pub(super) struct Direct {
    pages: Pages,
    source: Arc<dyn ByteSource>,
    reads: Option<Reads>,
    /// All pages are on the host, too.
    on_host: bool,
}

impl Direct {
    /// Gives each tile its slot on the device, and its place among the pages.
    pub(super) fn place(
        plan: &Plan,
        batch: &Batch,
        jobs: &[TileJob],
    ) -> Result<(Vec<Item>, Direct)> {
        let len = batch.source.len();
        let beyond =
            |job: &&TileJob| job.offset.checked_add(job.len as u64).is_none_or(|end| end > len);
        if let Some(job) = jobs.iter().find(beyond) {
            // The CPU engine finds out which ones.
            return Err(Error::corrupt("a tile is beyond the end of the file", job.offset));
        }
        let pages = Pages::of(jobs)?;
        let mut at = 0;
        let item = |job: &TileJob| {
            let slot = plan.slot(at, job);
            at = slot.1;
            let mut item = Item::new(job, job.part.unwrap_or(Part::rows(&plan.spec, job.rows)));
            (item.bytes, item.stream) = (pages.find(job), slot.0..slot.1);
            item.on_device = staging::is_fit(plan, &item);
            item
        };
        let items = memory::collect(jobs.iter().map(item), TILES)?;
        let source = Arc::clone(&batch.source);
        Ok((items, Direct { pages, source, reads: None, on_host: false }))
    }

    /// Has everything read.
    pub(super) fn begin(&mut self, works: &Works, lane: &mut Lane, file: &Arc<File>) {
        // What is not asked for is read by the host.
        let reads = self.pages.reads(self.source.len(), file.cufile.largest);
        let Ok(reads) = reads else { return };
        let (count, bytes) = (reads.len(), reads.iter().map(|read| read.bytes as u64).sum());
        let Ok(_current) = works.gpu.device.enter() else { return };
        match lane.read(file, reads) {
            Ok(reads) => {
                self.reads = Some(reads);
                works.tally.gds_reads.add(count as u64);
                works.tally.gds_merged.add(self.pages.merged() as u64);
                works.tally.gds_bytes.add(bytes);
            }
            Err(unread) => self.give_up(works, lane, &unread),
        }
    }

    fn give_up(&self, works: &Works, lane: &mut Lane, unread: &Unread) {
        if !unread.settled {
            lane.retire();
        }
        works.note_unread(unread);
    }

    /// Waits for all pages. Those that cuFile did not bring are read here, to the lane's host memory: the
    /// bytes that are to be copied up.
    pub(super) fn finish(
        &mut self,
        works: &Works,
        lane: &mut Lane,
        threads: usize,
    ) -> Result<usize> {
        let started = Instant::now();
        let current = works.gpu.device.enter();
        let read = self.reads.take().map(Reads::finish);
        drop(current);
        let landed = match read {
            Some(Ok(())) => Ok(0),
            other => {
                if let Some(Err(unread)) = other {
                    self.give_up(works, lane, &unread);
                }
                self.read_here(lane, threads).map(|()| self.pages.bytes())
            }
        };
        works.tally.read.add(started.elapsed().as_micros() as u64);
        landed
    }

    /// Reads the pages to the lane's host memory.
    fn read_here(&mut self, lane: &mut Lane, threads: usize) -> Result<()> {
        const PIECE: usize = 1 << 20;
        let mut rest = lane.landing();
        let (mut ranges, mut done) = (Vec::new(), 0);
        for read in self.pages.reads(self.source.len(), PIECE)? {
            let (gap, after) = rest.split_at_mut(read.at - done);
            gap.fill(0);
            let (here, after) = after.split_at_mut(read.bytes);
            memory::push(&mut ranges, (read.offset, here), TILES)?;
            (rest, done) = (after, read.at + read.bytes);
        }
        staging::fetch(&*self.source, threads, &mut ranges)?;
        self.on_host = true;
        Ok(())
    }

    /// Brings the tiles that `wanted` picks back to the host, in one copy.
    pub(super) fn recall(&mut self, lane: &mut Lane, items: &[Item], wanted: &[bool]) -> bool {
        let picked =
            || items.iter().zip(wanted).filter(|(_, wanted)| **wanted).map(|(item, _)| item);
        let first = picked().map(|item| item.bytes.start).min();
        let (Some(first), false) = (first, self.on_host) else { return self.on_host };
        let end = picked().map(|item| item.bytes.end).max().unwrap_or(first);
        lane.recall(first..end).is_ok()
    }

    /// A tile as the host reads it.
    pub(super) fn read_again(&self, job: &TileJob) -> Result<Vec<u8>> {
        let mut bytes = crate::engine::allocate(job.len, "a compressed tile")?;
        self.source.read_at(job.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The tiles of these jobs, to be read and decoded by the CPU engine.
    pub(super) fn batch(&self, spec: &Arc<TileSpec>, tiles: Vec<TileJob>, threads: usize) -> Batch {
        Batch { spec: Arc::clone(spec), tiles, source: Arc::clone(&self.source), threads }
    }

    /// Nobody waits for the batch any more; its memory is somebody else's when the reads are over.
    pub(super) fn abandon(&mut self, works: &Works, lane: &mut Lane) {
        let Some(reads) = self.reads.take() else { return };
        let _current = works.gpu.device.enter();
        if let Err(unread) = reads.finish()
            && !unread.settled
        {
            self.give_up(works, lane, &unread);
        }
    }
}
