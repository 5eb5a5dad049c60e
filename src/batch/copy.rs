//! Copying tiles as they are, where source and target agree on what a tile is.

use super::image::Image;
use super::writer::{Run, Writer};
use crate::engine::{Packed, TileJob, allocate};
use crate::error::{Error, Result};
use crate::process::memory;

/// Bytes that are read and written at once.
const COPY_BYTES: u64 = 4 << 20;
/// Tiles closer together than this are read in one go.
const READ_GAP: u64 = 4 << 10;
/// What is allocated for it, in messages.
const COPIED: &str = "tiles to be copied";

impl Writer {
    /// Copies all tiles of `source` to the first image; false if the two do not agree.
    /// Nothing was written to it before. `one_fill`: what stands for a tile that is left out
    /// is the same in all bands. `progress` says whether to go on.
    pub fn copy_tiles(
        &mut self,
        source: &Image,
        one_fill: bool,
        progress: &dyn Fn(f64) -> bool,
    ) -> Result<bool> {
        let canvas = &self.canvases[0];
        let alike = (&*source.spec, source.grid, source.tiled)
            == (&*canvas.spec, canvas.grid, !canvas.strips);
        // Of GDAL's codecs the spec does not tell how they are packed.
        if source.is_sliced() || source.cut.is_some() || !alike {
            return Ok(false);
        }
        let Some(jobs) = jobs(source, canvas.places.len())? else { return Ok(false) };
        if !one_fill && jobs.iter().any(Option::is_none) {
            return Ok(false);
        }
        self.attempt(|writer| writer.copy_jobs(source, &jobs, progress))?;
        Ok(true)
    }

    fn copy_jobs(
        &mut self,
        source: &Image,
        jobs: &[Option<TileJob>],
        progress: &dyn Fn(f64) -> bool,
    ) -> Result<()> {
        let (mut packed, mut at) = (Packed::default(), 0);
        while at < jobs.len() {
            let Some(first) = &jobs[at] else {
                self.fill_in(0, at as u64)?;
                self.advance(&mut Run::default())?;
                at += 1;
                continue;
            };
            let (count, end) = together(&jobs[at..]);
            let len = (end - first.offset) as usize;
            if packed.bytes.len() < len {
                packed.bytes = Vec::new();
                packed.bytes = allocate(len, COPIED)?;
            }
            source.source.read_at(first.offset, &mut packed.bytes[..len])?;
            let range = |job: &TileJob| {
                let begin = (job.offset - first.offset) as usize;
                begin..begin + job.len
            };
            packed.tiles.clear();
            let ranges = jobs[at..at + count].iter().flatten().map(range);
            memory::extend(&mut packed.tiles, ranges, COPIED)?;
            let ids = memory::collect((at as u64..).take(count), COPIED)?;
            // Written while the next are read.
            packed = self.ship(0, &ids, packed)?;
            self.counters.tiles_copied.add(count as u64);
            at += count;
            if !progress(at as f64 / jobs.len() as f64) {
                return Err(Error::Interrupted);
            }
        }
        self.courier.wait().map(drop)
    }
}

/// Where all tiles are, or `None` if one is not within the file.
fn jobs(source: &Image, count: usize) -> Result<Option<Vec<Option<TileJob>>>> {
    let file = source.source.len();
    let mut jobs = memory::room(count, COPIED)?;
    for id in 0..count as u64 {
        let job = match source.job(source.grid.tile(id)) {
            Ok(job) => job,
            Err(_) => return Ok(None),
        };
        let inside = |job: &TileJob| {
            let end = job.offset.checked_add(job.len as u64);
            job.len > 0 && job.len <= u32::MAX as usize && end.is_some_and(|end| end <= file)
        };
        if job.as_ref().is_some_and(|job| !inside(job)) {
            return Ok(None);
        }
        jobs.push(job);
    }
    Ok(Some(jobs))
}

/// How many tiles follow the first closely enough for one read, and where they end.
fn together(jobs: &[Option<TileJob>]) -> (usize, u64) {
    let Some(first) = &jobs[0] else { return (1, 0) };
    let (start, mut end) = (first.offset, first.offset + first.len as u64);
    let mut count = 1;
    for job in &jobs[1..] {
        let Some(job) = job else { break };
        let next = job.offset + job.len as u64;
        if job.offset < end || job.offset - end > READ_GAP || next - start > COPY_BYTES {
            break;
        }
        (count, end) = (count + 1, next);
    }
    (count, end)
}
