//! Who unpacks tiles on the device: nvCOMP, kernels of ours, nvJPEG2000 (see [`super::codestreams`]), or
//! nobody where they lie as they are.

use super::arena::LANES;
use super::codestreams;
use super::driver::{Answer, Stream};
use super::nvcomp::Tables;
use super::probe::Gpu;
use crate::engine::{Codec, TileJob, TileSpec};

/// What unpacking a batch asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// Streams begin at multiples of this.
    pub(super) align: usize,
    /// Bytes of device memory besides.
    pub(super) temporary: usize,
}

impl Needs {
    /// Of batches of `tiles` tiles.
    pub(super) fn of(gpu: &Gpu, spec: &TileSpec, tiles: usize) -> Answer<Needs> {
        match spec.codec {
            Codec::None | Codec::Lzw | Codec::PackBits | Codec::Gtiff => {
                Ok(Needs { align: 16, temporary: 0 })
            }
            // Batches of all lanes have states at once.
            Codec::Jpeg2000(_) => {
                Ok(Needs { align: 16, temporary: LANES * tiles * codestreams::besides(spec) })
            }
            codec @ (Codec::Deflate | Codec::Zstd) => {
                let stored = spec.stored_row_bytes() * spec.height;
                Ok(Needs {
                    align: gpu.nvcomp.alignments(codec, None)?.input.max(8),
                    temporary: gpu.nvcomp.decompress_temp(codec, tiles, stored)?,
                })
            }
        }
    }
}

/// Bytes that are unpacked of a tile, at most. Our kernels stop where nothing but padding follows;
/// nvCOMP wants room for all that is there.
pub(super) fn room(spec: &TileSpec, job: &TileJob) -> usize {
    let rows = match spec.codec {
        Codec::Lzw | Codec::PackBits => job.rows,
        Codec::None | Codec::Deflate | Codec::Zstd | Codec::Jpeg2000(_) | Codec::Gtiff => {
            spec.height
        }
    };
    spec.stored_row_bytes() * rows
}

/// What `stow` has to look at: 1 is zlib, 2 is ZSTD.
pub(super) fn framing(codec: Codec) -> u32 {
    match codec {
        Codec::None | Codec::Lzw | Codec::PackBits | Codec::Jpeg2000(_) | Codec::Gtiff => 0,
        Codec::Deflate => 1,
        Codec::Zstd => 2,
    }
}

/// A stream that is right and holds nothing.
pub(super) fn nothing(codec: Codec) -> &'static [u8] {
    match codec {
        Codec::None | Codec::Lzw | Codec::PackBits | Codec::Jpeg2000(_) | Codec::Gtiff => &[],
        // One last block of fixed codes, which ends at once.
        Codec::Deflate => &[3, 0],
        // Magic, one segment of no bytes, one last raw block of none.
        Codec::Zstd => &[0x28, 0xB5, 0x2F, 0xFD, 0x20, 0, 1, 0, 0],
    }
}

/// Unpacks on a stream. What became of each tile is in the tables afterwards.
///
/// # Safety
/// As for `NvComp::decompress`; temporary memory and streams must be as [`Needs`] says.
pub(super) unsafe fn unpack(
    gpu: &Gpu,
    codec: Codec,
    tables: &Tables,
    stream: &Stream,
) -> Answer<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match codec {
            // These are on their way already.
            Codec::None | Codec::Jpeg2000(_) | Codec::Gtiff => Ok(()),
            Codec::Deflate | Codec::Zstd => {
                gpu.nvcomp.decompress(codec, tables, stream, &gpu.device)
            }
            Codec::Lzw => gpu.kernels.lzw(stream, tables),
            Codec::PackBits => gpu.kernels.packbits(stream, tables),
        }
    }
}
