//! The kernel that makes pixels of what nvJPEG2000 leaves: what it is given, as `finish.cuh` declares it.

use super::driver::{Answer, Stream};
use super::kernels::{Kernels, copy_size, pointer};
use crate::engine::TileSpec;

/// What `finish` does with a tile, in the upper half of the first word behind it; the lower half has the
/// columns that were decoded, the second word the address of planes. Signed bytes:
pub(super) const LIFTED: u64 = 1;
/// YCbCr, side by side.
pub(super) const YCBCR: u64 = 2;
/// YCbCr in planes, with the columns and rows that a sample of chroma stands for.
pub(super) const PLANES: u64 = 4;

/// What all tiles that are finished have in common.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Finish {
    width: u32,
    height: u32,
    samples: u32,
    bytes: u32,
}

impl Finish {
    /// Of tiles of this kind.
    pub(super) fn new(spec: &TileSpec) -> Finish {
        Finish {
            width: spec.width as u32,
            height: spec.height as u32,
            samples: spec.samples as u32,
            bytes: spec.sample.bytes() as u32,
        }
    }
}

impl Kernels {
    /// Makes pixels of what nvJPEG2000 left: `DecodeTile`s, and statuses.
    ///
    /// # Safety
    /// As for `adler32`.
    pub(super) unsafe fn finish(
        &self,
        stream: &Stream,
        count: usize,
        mut tables: [u64; 2],
        mut shape: Finish,
    ) -> Answer<()> {
        let pixels = shape.width as usize * shape.height as usize;
        let [tiles, statuses] = &mut tables;
        let mut params = [pointer(tiles), pointer(statuses), pointer(&mut shape)];
        // SAFETY: as above.
        unsafe { stream.launch(self.finish, copy_size(count, pixels), &mut params) }
    }
}
