//! The tables that travel with a batch: arrays of the batch's length, one behind the other.

use super::kernels::{DecodeTile, EncodeTile, Report};

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

    /// Begins at `start`, a multiple of 8.
    pub(super) fn new(start: usize, count: usize) -> Arrays {
        let mut at = start;
        let mut next = |bytes: usize| {
            let here = at;
            at += (bytes * count).next_multiple_of(8);
            here
        };
        let (inputs, input_bytes) = (next(8), next(8));
        let (room, outputs, tiles, statuses) = (next(8), next(8), next(64), next(4));
        let uploaded = next(0);
        let (sizes, adler, offsets) = (next(8), next(4), next(8));
        Arrays {
            inputs,
            input_bytes,
            room,
            outputs,
            tiles,
            statuses,
            uploaded,
            sizes,
            adler,
            offsets,
            end: next(0) + 8,
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

    /// Writes the n-th tile, and its status before nvCOMP sets it.
    pub(super) fn put_tile(&self, memory: &mut [u8], n: usize, tile: &[u8; 64], status: i32) {
        memory[self.tiles + n * 64..][..64].copy_from_slice(tile);
        memory[self.statuses + n * 4..][..4].copy_from_slice(&status.to_ne_bytes());
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

/// The n-th report at the front of a downloaded buffer.
pub(super) fn report(memory: &[u8], n: usize) -> Report {
    let at = n * size_of::<Report>();
    let four =
        |i: usize| [memory[at + i], memory[at + i + 1], memory[at + i + 2], memory[at + i + 3]];
    let size =
        u64::from_ne_bytes([&four(8)[..], &four(12)[..]].concat().try_into().unwrap_or_default());
    Report { status: i32::from_ne_bytes(four(0)), adler: u32::from_ne_bytes(four(4)), size }
}
