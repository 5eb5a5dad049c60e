//! Which pages of a file hold the tiles of a batch, and where each tile is once they were read one run
//! behind the other.
//!
//! Tiles that share a page, or whose pages follow each other, are read as one run: what lies between
//! them is read along, and no page twice. Absent: the device, and who reads.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::TILES;
use super::cufile::{PAGE, Read};
use crate::engine::TileJob;
use crate::error::Result;
use crate::process::memory;

/// Runs of pages, in the order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pages(Vec<Run>);

/// Pages that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    pages: Range<u64>,
    /// Where they go.
    at: usize,
    /// Tiles in them.
    tiles: usize,
}

/// The pages that a tile is in. Ends of files are far from the end of 64 bits.
fn pages(job: &TileJob) -> Range<u64> {
    let page = PAGE as u64;
    let end = job.offset.saturating_add(job.len as u64).min(u64::MAX - page);
    job.offset / page * page..end.next_multiple_of(page)
}

impl Pages {
    /// Of these tiles, in any order; they may overlap.
    pub(super) fn of(jobs: &[TileJob]) -> Result<Pages> {
        let mut wanted = memory::collect(jobs.iter().map(pages), TILES)?;
        wanted.sort_unstable_by_key(|pages| pages.start);
        let mut runs: Vec<Run> = Vec::new();
        for pages in wanted {
            let at = runs.last().map_or(0, |run| run.at + run.bytes());
            match runs.last_mut().filter(|run| pages.start <= run.pages.end) {
                Some(run) => {
                    run.pages.end = run.pages.end.max(pages.end);
                    run.tiles += 1;
                }
                None => memory::push(&mut runs, Run { pages, at, tiles: 1 }, TILES)?,
            }
        }
        Ok(Pages(runs))
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.0.last().map_or(0, |run| run.at + run.bytes())
    }

    /// Where a tile's bytes are.
    pub(super) fn find(&self, job: &TileJob) -> Range<usize> {
        let after = self.0.partition_point(|run| run.pages.start <= job.offset);
        // Made of this tile's pages, too.
        let run = &self.0[after - 1];
        let first = run.at + (job.offset - run.pages.start) as usize;
        first..first + job.len
    }

    /// The reads of a file of `len` bytes, none of more than `largest`.
    pub(super) fn reads(&self, len: u64, largest: usize) -> Result<Vec<Read>> {
        let mut reads = memory::room(self.0.len(), TILES)?;
        for run in &self.0 {
            let end = run.pages.end.min(len);
            let mut offset = run.pages.start;
            while offset < end {
                let bytes = (end - offset).min(largest as u64) as usize;
                let at = run.at + (offset - run.pages.start) as usize;
                memory::push(&mut reads, Read { offset, at, bytes }, TILES)?;
                offset += bytes as u64;
            }
        }
        Ok(reads)
    }

    /// Tiles that share a run with others.
    pub(super) fn merged(&self) -> usize {
        self.0.iter().map(|run| run.tiles).filter(|tiles| *tiles > 1).sum()
    }
}

impl Run {
    fn bytes(&self) -> usize {
        (self.pages.end - self.pages.start) as usize
    }
}

/// How much room the pages of tiles take up at most, counted as they come.
#[derive(Debug, Default)]
pub(super) struct Usage {
    last: Range<u64>,
    bytes: u64,
}

impl Usage {
    /// With one more tile. Sorting may find more to be read together, never less.
    pub(super) fn with(&mut self, job: &TileJob) -> usize {
        let pages = pages(job);
        if (self.last.start..=self.last.end).contains(&pages.start) && self.bytes > 0 {
            let more = pages.end.saturating_sub(self.last.end);
            self.bytes = self.bytes.saturating_add(more);
            self.last.end = self.last.end.max(pages.end);
        } else {
            self.bytes = self.bytes.saturating_add(pages.end - pages.start);
            self.last = pages;
        }
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(offset: u64, len: usize) -> TileJob {
        TileJob { id: 0, offset, len, columns: 1, rows: 1, padded: true, part: None }
    }

    #[test]
    fn neighbours_are_read_together_and_nothing_twice() {
        // One page, the next one, a gap of a page, and a tile that was there before.
        let jobs = [job(100, 50), job(5000, 3000), job(12_300, 10), job(16_500, 9000), job(120, 8)];
        let pages = Pages::of(&jobs).unwrap();
        assert_eq!(pages.bytes(), 2 * PAGE + 4 * PAGE);
        assert_eq!(pages.merged(), 5);
        let read = |offset, at, bytes| Read { offset, at, bytes };
        let whole = [read(0, 0, 2 * PAGE), read(3 * PAGE as u64, 2 * PAGE, 25_500 - 3 * PAGE)];
        assert_eq!(pages.reads(25_500, 1 << 20).unwrap(), whole);
        let cut = pages.reads(25_500, PAGE).unwrap();
        let cut: Vec<usize> = cut.iter().map(|read| read.bytes).collect();
        assert_eq!(cut, [4096, 4096, 4096, 4096, 4096, 924]);
        assert_eq!(
            pages.find(&jobs[2]),
            2 * PAGE + 12_300 - 3 * PAGE..2 * PAGE + 12_310 - 3 * PAGE
        );
    }

    #[test]
    fn every_tile_is_where_it_is_found() {
        let mut seed = 0x5eed_0060_u64;
        let mut below = |end: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % end
        };
        let len = 300_000;
        let file: Vec<u8> = (0..len).map(|i: u64| ((i * i) >> 5) as u8).collect();
        for round in 0..300 {
            let far = [2_000, 50_000, 290_000][round % 3];
            let mut one = || {
                let offset = below(far);
                job(offset, 1 + below((len - offset).min(9000)) as usize)
            };
            let jobs: Vec<TileJob> = (0..1 + round % 20).map(|_| one()).collect();
            let pages = Pages::of(&jobs).unwrap();
            let mut landed = vec![0; pages.bytes()];
            let mut reads = pages.reads(len, 1 + round % 3 * PAGE + PAGE - 1).unwrap();
            for Read { offset, at, bytes } in &reads {
                let from = *offset as usize;
                landed[*at..at + bytes].copy_from_slice(&file[from..from + bytes]);
            }
            for job in &jobs {
                let (at, from) = (pages.find(job), job.offset as usize);
                assert_eq!(landed[at], file[from..from + job.len], "round {round}");
            }
            reads.sort_by_key(|read| read.offset);
            let apart = |pair: &[Read]| pair[0].offset + pair[0].bytes as u64 <= pair[1].offset;
            assert!(reads.windows(2).all(apart), "round {round}: read twice");
            let mut usage = Usage::default();
            let most = jobs.iter().map(|job| usage.with(job)).last();
            assert!(most.unwrap() >= pages.bytes(), "round {round}");
        }
    }

    #[test]
    fn the_end_of_all_offsets() {
        let jobs = [job(u64::MAX - 3, 100), job(u64::MAX, usize::MAX)];
        // Files do not get there; nothing overflows.
        assert_eq!(Pages::of(&jobs).unwrap().bytes(), 0);
        let mut usage = Usage::default();
        (0..3).for_each(|_| assert!(usage.with(&job(0, usize::MAX)) > 1 << 62));
        (0..3).for_each(|_| assert!(usage.with(&job(1 << 62, usize::MAX)) > 1 << 62));
    }
}
