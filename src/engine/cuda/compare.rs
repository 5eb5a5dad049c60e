//! A decoded batch, compared with what the CPU makes of the same tiles.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::Arc;

use super::TILES;
use super::decode::Flight;
use super::target::{Target, Upload};
use super::verify::Verdict;
use crate::engine::cpu;
use crate::engine::{PixelSink, Pixels, TileJob};
use crate::error::Result;
use crate::process::memory;

impl Flight {
    /// Compares with the CPU what is to be compared; false if something differs.
    pub(super) fn verified(&self, redo: &[bool]) -> bool {
        // Irreversible wavelets are rounded by every decoder in its own way.
        let exact = |i: &usize| self.items[*i].codestream.as_ref().is_none_or(|it| it.reversible);
        let good = (0..redo.len()).filter(|&i| !redo[i]).filter(exact);
        let good = memory::or_unwind(memory::collect(good, TILES));
        let check = self.works.check(self.plan.kind(), false);
        if check.refuted {
            return false;
        }
        let picked = memory::or_unwind(check.pick(&good));
        if picked.is_empty() {
            return true;
        }
        let packed = picked.iter().map(|&i| self.packed(i));
        let Ok(packed) = memory::try_collect(packed, TILES) else { return false };
        let tile =
            |(&i, packed): (&usize, _)| (TileJob { id: i as u64, ..self.items[i].job }, packed);
        let tiles = picked.iter().zip(packed.iter().map(|bytes| &bytes[..])).map(tile);
        let tiles = memory::or_unwind(memory::collect(tiles, TILES));
        let compared = match &self.target {
            Some(target) => self.compare_there(target, tiles),
            None => Some(self.compare(tiles)),
        };
        let Some((same, intact)) = compared else { return false };
        let right = same && intact;
        self.works.tally.verified.add(picked.len() as u64);
        self.works.judged(check, right, intact && !redo.iter().any(|&again| again));
        right
    }

    /// A tile for the CPU. What was read past the host is read again, so that cuFile's word is not taken
    /// for what is in the file.
    fn packed(&self, i: usize) -> Result<Cow<'_, [u8]>> {
        let item = &self.items[i];
        match &self.direct {
            Some(direct) => direct.read_again(&item.job).map(Cow::Owned),
            None => Ok(Cow::Borrowed(&self.lane.view().0[item.bytes.clone()])),
        }
    }

    /// Whether all pixels are the CPU's, and whether it could decode the tiles, which are known by their
    /// places here.
    fn compare(&self, tiles: Vec<(TileJob, &[u8])>) -> (bool, bool) {
        let verdict = Verdict::default();
        let (_, output) = self.lane.view();
        let compare = Compare { flight: self, output, verdict: &verdict };
        let failed = cpu::decode_staged(&self.plan.spec, self.threads, &tiles, &compare);
        (verdict.right(), failed.is_empty())
    }

    /// The same on the device, with what is in the target's memory; `None` if that failed.
    fn compare_there(
        &self,
        target: &Arc<Target>,
        mut tiles: Vec<(TileJob, &[u8])>,
    ) -> Option<(bool, bool)> {
        tiles.iter_mut().for_each(|(job, _)| job.id = self.items[job.id as usize].job.id);
        let upload = Upload::new(target);
        let failed = cpu::decode_staged(&self.plan.spec, self.threads, &tiles, &upload);
        match upload.differs(&self.works.gpu) {
            Ok(differs) => Some((!differs, failed.is_empty())),
            Err(fault) => {
                self.works.note_fault(fault);
                None
            }
        }
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
