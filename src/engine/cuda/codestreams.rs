//! Tiles of JPEG 2000 in a batch: nvJPEG2000 decodes them one by one on the batch's stream, and a kernel
//! of ours (`finish`) does what TIFF wants besides.

use super::arena::Place;
use super::decode_plan::Plan;
use super::driver::{Answer, Stream};
use super::finish::{Finish, LIFTED, PLANES, YCBCR};
use super::nvjpeg2k::{self, Taken};
use super::order::{Order, SENTINEL};
use super::run::Submission;
use super::staging::Item;
use super::{SUCCESS, Works};
use crate::engine::cpu::jpeg2000::wants_rgb;
use crate::engine::jpeg2000::{Codestream, Sampling};
use crate::engine::{Codec, TileSpec};
use crate::process::memory;

/// Tiles in a batch, at most: each has a state and a parsed stream of its own.
pub(super) const MOST_TILES: usize = 64;

/// Bytes that nvJPEG2000 has for one tile besides its pixels, as we plan it: two passes of wavelets in
/// 32 bits, the codestream, and something.
pub(super) fn besides(spec: &TileSpec) -> usize {
    let samples = spec.width * spec.height * spec.samples;
    8 * samples + 2 * spec.tile_bytes() + (64 << 10)
}

/// Where the planes of a subsampled tile are, behind its pixels.
pub(super) fn planes_at(spec: &TileSpec) -> usize {
    spec.tile_bytes().next_multiple_of(256)
}

/// What `finish` has to do with a tile: how many columns are there, and how they become pixels.
pub(super) fn finish(spec: &TileSpec, header: &Codestream, raw: u64) -> [u64; 3] {
    let Codec::Jpeg2000(kind) = spec.codec else { return [0; 3] };
    let how = match header.sampling {
        Sampling::Chroma(x, y) => PLANES | u64::from(x) << 8 | u64::from(y) << 16,
        Sampling::Full if wants_rgb(kind, header) => YCBCR,
        Sampling::Full if is_lifted(header) => LIFTED,
        Sampling::Full => 0,
    };
    [how << 32 | header.width as u64, raw + planes_at(spec) as u64, 0]
}

/// Whether `finish` has something to do.
fn is_unfinished(spec: &TileSpec, header: &Codestream) -> bool {
    let [how, ..] = finish(spec, header, 0);
    how != spec.width as u64
}

/// The library gives signed bytes as 16 bits only: they are declared unsigned, and moved back.
fn is_lifted(header: &Codestream) -> bool {
    header.signed && header.bits == 8
}

impl Order<'_> {
    /// Tiles that go to the device.
    fn sent(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.on_device)
    }

    /// Has all codestreams decoded: what became of each, and what they take up until the host has waited.
    pub(super) fn decode_codestreams(
        &self,
        submission: &mut Submission<'_>,
    ) -> Answer<([i32; MOST_TILES], Option<Taken>)> {
        let mut statuses = [SENTINEL; MOST_TILES];
        let Some(library) = self.gpu.nvjpeg2k.get() else { return Ok((statuses, None)) };
        let place = submission.place;
        let taken = library.take(self.count, self.plan.loan(&place));
        let (_, raws) = self.plan.homes(&place);
        let input: *const [u8] = submission.tables();
        let stream = submission.begin()?;
        // What a decoder leaves out, of a damaged tile say, is nobody else's pixels.
        // SAFETY: the work region belongs to the compute stream.
        unsafe { stream.clear(raws, self.count * self.plan.raw)? };
        for (n, (item, status)) in self.sent().zip(&mut statuses).enumerate() {
            let (Some(slot), Some(header)) = (taken.slot(n), &item.codestream) else { continue };
            // SAFETY: the lane's memory, which is read only; tables are written later.
            let bytes = unsafe { &(&*input)[item.bytes.clone()] };
            let (mut header, mut bytes) = (header.clone(), &bytes[header.range.clone()]);
            let mut copy;
            if is_lifted(&header) {
                // A tile that is not decoded here is decoded on the CPU.
                let Ok(own) = memory::copied(bytes, "a codestream") else { continue };
                copy = own;
                header.make_unsigned(&mut copy);
                bytes = &copy;
            }
            let raw = raws + (n * self.plan.raw) as u64;
            let to = match header.sampling {
                Sampling::Full => raw,
                Sampling::Chroma(..) => raw + planes_at(&self.plan.spec) as u64,
            };
            let spec = &self.plan.spec;
            let room = [spec.width, spec.height];
            let order = nvjpeg2k::Order { header: &header, stream: bytes, to, room };
            // SAFETY: the slot is this batch's until it was waited for; the work region belongs to
            // the compute stream, and has room for a whole tile, or its planes, there.
            if unsafe { library.decode(slot, &order, stream) } {
                *status = SUCCESS;
            }
        }
        Ok((statuses, Some(taken)))
    }

    /// Makes pixels of what nvJPEG2000 left.
    pub(super) fn finish(&self, stream: &Stream, place: &Place) -> Answer<()> {
        let spec = &self.plan.spec;
        let unfinished = |item: &Item| {
            item.codestream.as_ref().is_some_and(|header| is_unfinished(spec, header))
        };
        if !self.sent().any(unfinished) {
            return Ok(());
        }
        let here = |offset: usize| place.input + offset as u64;
        let tables = [here(self.arrays.tiles), here(self.arrays.statuses)];
        // SAFETY: regions of this batch and the work region, as in `send`.
        unsafe { self.gpu.kernels.finish(stream, self.count, tables, Finish::new(spec)) }
    }
}

impl Works {
    /// Whether nvJPEG2000 is here; started if this is the first to ask.
    pub(super) fn has_nvjpeg2k(&self) -> bool {
        let found = self.gpu.jpeg2000(self.settings.nvjpeg2k.as_deref());
        // Who did not ask for the device need not hear what it lacks.
        if let (Err(reason), true) = (&found, self.settings.patient) {
            self.notice(format!("JPEG 2000 is decoded on the CPU: {reason}"));
        }
        found.is_ok()
    }
}

impl Plan {
    /// What nvJPEG2000 is lent while a run of this plan has the arena.
    fn loan(&self, place: &Place) -> nvjpeg2k::Loan {
        let (_, raws) = self.homes(place);
        let start = (raws + (self.raw * self.tiles) as u64).next_multiple_of(256);
        nvjpeg2k::Loan { start, bytes: self.temporary, host: self.staged() }
    }
}
