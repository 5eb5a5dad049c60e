//! The tables that travel with a batch: arrays of the batch's length, one behind the other.

use super::kernels::{DecodeTile, EncodeTile, PlaceTile, Report, StowTile, Verdict};
use super::nvcomp::Tables;

/// Where each array begins in the input region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrays {
    /// Addresses of input chunks, 8 bytes each.
    pub(super) inputs: usize,
    /// Their sizes.
    pub(super) input_bytes: usize,
    /// Room for each output chunk.
    pub(super) room: usize,
    /// Addresses of output chunks.
    pub(super) outputs: usize,
    /// `DecodeTile`s or `EncodeTile`s.
    pub(super) tiles: usize,
    /// `PlaceTile`s, and which samples of theirs are wanted, in a batch that stays on the device.
    pub(super) places: usize,
    /// As above.
    pub(super) which: usize,
    /// `StowTile`s, and a stream of nothing, in a batch that was read past the host.
    pub(super) stows: usize,
    /// As above.
    pub(super) nothing: usize,
    /// nvCOMP's statuses, 4 bytes each.
    pub(super) statuses: usize,
    /// Up to here it is uploaded; what follows is written by the device.
    pub(super) uploaded: usize,
    /// Sizes that came out.
    pub(super) sizes: usize,
    /// Checksums.
    pub(super) adler: usize,
    /// Where compressed tiles go, one more than tiles.
    pub(super) offsets: usize,
    /// The end.
    pub(super) end: usize,
}

impl Arrays {
    /// The most that a tile takes up.
    pub(super) const TILE_BYTES: usize = 5 * 8 + 64 + 2 * 4 + 8;
    /// The same of a batch that stays on the device, besides.
    pub(super) const PLACE_BYTES: usize = size_of::<PlaceTile>();

    /// The same of a batch that was read past the host.
    pub(super) const STOW_BYTES: usize = size_of::<StowTile>();
    /// Room for a stream of nothing, which no decoder reads more than.
    pub(super) const NOTHING_BYTES: usize = 64;

    /// What nvCOMP is to know of them, where they begin at `input` in device memory; how large chunks
    /// are, and its temporary memory, are not said yet.
    pub(super) fn of_nvcomp(&self, input: u64, count: usize) -> Tables {
        let here = |offset: usize| input + offset as u64;
        Tables {
            inputs: here(self.inputs),
            input_bytes: here(self.input_bytes),
            outputs: here(self.outputs),
            room: here(self.room),
            output_bytes: here(self.sizes),
            statuses: here(self.statuses),
            count,
            largest: 0,
            temporary: 0,
            temporary_bytes: 0,
        }
    }

    /// Begins at `start`, a multiple of 8. `wanted` is how many samples a caller on the device
    /// wants of each tile, or 0; `stowed`: it was read past the host.
    pub(super) fn new(start: usize, count: usize, wanted: usize, stowed: bool) -> Arrays {
        let mut at = start;
        let mut array = |bytes: usize| {
            let here = at;
            at += bytes.next_multiple_of(8);
            here
        };
        let (inputs, input_bytes) = (array(8 * count), array(8 * count));
        let (room, outputs, tiles) = (array(8 * count), array(8 * count), array(64 * count));
        let placed = if wanted > 0 { count } else { 0 };
        let (places, which) = (array(Arrays::PLACE_BYTES * placed), array(4 * wanted));
        let (tiles_stowed, nothing) = if stowed { (count, Arrays::NOTHING_BYTES) } else { (0, 0) };
        let (stows, nothing) = (array(Arrays::STOW_BYTES * tiles_stowed), array(nothing));
        let (statuses, uploaded) = (array(4 * count), array(0));
        let (sizes, adler, offsets) = (array(8 * count), array(4 * count), array(8 * count));
        Arrays {
            inputs,
            input_bytes,
            room,
            outputs,
            tiles,
            places,
            which,
            stows,
            nothing,
            statuses,
            uploaded,
            sizes,
            adler,
            offsets,
            end: array(0) + 8,
        }
    }

    /// Writes the n-th chunk's addresses and sizes.
    pub(super) fn put_chunk(&self, memory: &mut [u8], n: usize, chunk: Chunk) {
        let mut word = |array: usize, value: u64| {
            memory[array + n * 8..][..8].copy_from_slice(&value.to_ne_bytes());
        };
        word(self.inputs, chunk.input);
        word(self.input_bytes, chunk.input_bytes as u64);
        word(self.room, chunk.room as u64);
        word(self.outputs, chunk.output);
    }

    /// Writes where the n-th tile goes on the device.
    pub(super) fn put_place(&self, memory: &mut [u8], n: usize, place: &PlaceTile) {
        let at = self.places + n * Arrays::PLACE_BYTES;
        memory[at..][..Arrays::PLACE_BYTES].copy_from_slice(&place.bytes());
    }

    /// Writes how the n-th tile is stowed.
    pub(super) fn put_stow(&self, memory: &mut [u8], n: usize, stow: &StowTile) {
        let at = self.stows + n * Arrays::STOW_BYTES;
        memory[at..][..Arrays::STOW_BYTES].copy_from_slice(&stow.bytes());
    }

    /// Writes which samples go there.
    pub(super) fn put_which(&self, memory: &mut [u8], which: &[u32]) {
        for (n, sample) in which.iter().enumerate() {
            memory[self.which + 4 * n..][..4].copy_from_slice(&sample.to_ne_bytes());
        }
    }

    /// Writes the n-th tile, and its status before nvCOMP sets it.
    pub(super) fn put_tile(&self, memory: &mut [u8], n: usize, tile: &[u8; 64], status: i32) {
        memory[self.tiles + n * 64..][..64].copy_from_slice(tile);
        memory[self.statuses + n * 4..][..4].copy_from_slice(&status.to_ne_bytes());
    }
}

impl StowTile {
    /// As the device reads it.
    pub(super) fn bytes(&self) -> [u8; Arrays::STOW_BYTES] {
        // SAFETY: plain numbers without padding, of this size (asserted where it is declared).
        unsafe { std::mem::transmute(*self) }
    }
}

impl PlaceTile {
    /// As the device reads it.
    pub(super) fn bytes(&self) -> [u8; Arrays::PLACE_BYTES] {
        // SAFETY: plain numbers without padding, of this size (asserted where it is declared).
        unsafe { std::mem::transmute(*self) }
    }
}

/// What nvCOMP is told of one tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// Device address.
    pub(super) input: u64,
    /// Its size.
    pub(super) input_bytes: usize,
    /// Device address.
    pub(super) output: u64,
    /// Its size.
    pub(super) room: usize,
}

impl DecodeTile {
    /// As the device reads it.
    pub(super) fn bytes(&self) -> [u8; 64] {
        // SAFETY: plain numbers without padding, of this size (asserted where it is declared).
        unsafe { std::mem::transmute(*self) }
    }
}

impl EncodeTile {
    /// As the device reads it.
    pub(super) fn bytes(&self) -> [u8; 64] {
        // SAFETY: as above.
        unsafe { std::mem::transmute(*self) }
    }
}

/// Bytes of the reports in front of what a batch brings down.
pub(super) fn head(tiles: usize) -> usize {
    (tiles * size_of::<Report>()).next_multiple_of(256)
}

/// The n-th report at the front of a downloaded buffer.
pub(super) fn report(memory: &[u8], n: usize) -> Report {
    let at = n * size_of::<Report>();
    let four =
        |i: usize| [memory[at + i], memory[at + i + 1], memory[at + i + 2], memory[at + i + 3]];
    let size =
        u64::from_ne_bytes([&four(8)[..], &four(12)[..]].concat().try_into().unwrap_or_default());
    Report { status: i32::from_ne_bytes(four(0)), adler: u32::from_ne_bytes(four(4)), size }
}

/// Bytes of the verdicts that follow the reports of a batch that was read past the host.
pub(super) fn verdicts(tiles: usize) -> usize {
    (tiles * size_of::<Verdict>()).next_multiple_of(256)
}

/// The n-th verdict in memory that begins with them.
pub(super) fn verdict(memory: &[u8], n: usize) -> Verdict {
    let word = |at: usize| {
        let bytes = memory[n * size_of::<Verdict>() + at..].first_chunk().copied();
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    Verdict { adler: word(0), refused: word(4) }
}
