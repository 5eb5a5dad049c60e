//! What `undo` and `apply` are tried with: kinds of samples, layouts of pixels, sizes of launches.

use crate::device::{Random, Size};
use crate::reference::Kind;

pub(crate) const SAMPLES: [usize; 9] = [1, 2, 3, 4, 5, 31, 32, 33, 200];
pub(crate) const WIDTHS: [usize; 10] = [1, 2, 31, 33, 37, 64, 100, 255, 256, 5000];

/// Every size of samples with every predictor that it may have, in both byte orders.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    let none = [(1, 1), (2, 2), (4, 4), (8, 8), (4, 2), (8, 4), (16, 8)].map(|(b, u)| (b, u, 1));
    let sums = [1, 2, 4, 8].map(|b| (b, b, 2));
    let planes = [2, 4, 8].map(|b| (b, b, 3));
    let whole = none.into_iter().chain(sums).chain(planes).flat_map(|(bytes, unit, predictor)| {
        [false, true].map(|big| Kind { bytes, unit, predictor, big, bit: 0 })
    });
    whole.chain([1, 255].map(|bit| Kind { bytes: 1, unit: 1, predictor: 1, big: false, bit }))
}

/// How pixels lie outside of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One row after the other; the strides are left to the kernel.
    Compact,
    /// Rows of a larger image.
    Padded,
    /// Planes.
    Planar,
    /// Room between the pixels.
    Sparse,
    /// Bottom up, samples in reverse, at an odd address.
    Reversed,
    /// Interleaved at an odd address.
    Odd,
    /// Planes at odd addresses.
    OddPlanes,
}

pub(crate) const LAYOUTS: [Layout; 7] = [
    Layout::Compact,
    Layout::Padded,
    Layout::Planar,
    Layout::Sparse,
    Layout::Reversed,
    Layout::Odd,
    Layout::OddPlanes,
];

/// A window of pixels in an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Where the allocation is, modulo 256.
    pub(crate) phase: usize,
    /// Its bytes.
    pub(crate) len: usize,
    /// Where the first pixel is.
    pub(crate) first: usize,
    /// Strides in bytes; `line` is 0 where the kernel is to find them.
    pub(crate) strides: [i64; 3],
    own: [i64; 3],
}

impl Window {
    /// For `w` x `h` pixels of so many samples of so many bytes.
    pub(crate) fn new(layout: Layout, [w, h]: [usize; 2], samples: usize, bytes: usize) -> Window {
        let (w, h, s, b) = (w as i64, h as i64, samples as i64, bytes as i64);
        let interleaved = |line: i64| [s * b, line, b];
        let own = match layout {
            Layout::Compact | Layout::Odd => interleaved(w * s * b),
            Layout::Padded => interleaved((w + 3) * s * b + b),
            Layout::Planar => [b, (w + 1) * b, (w + 1) * h * b],
            Layout::OddPlanes => [b, w * b + 1, (w * b + 1) * h + 2],
            Layout::Sparse => [(s + 1) * b, (w * (s + 1) + 1) * b, b],
            Layout::Reversed => [s * b, -(w * s * b + 1), -b],
        };
        let backward = |stride: i64, count: i64| (-stride).max(0) * (count - 1).max(0);
        let forward = |stride: i64, count: i64| stride.max(0) * (count - 1).max(0);
        let sum = |f: &dyn Fn(i64, i64) -> i64| f(own[0], w) + f(own[1], h) + f(own[2], s);
        let phase = match layout {
            Layout::Compact | Layout::Sparse => 0,
            Layout::Padded => 16 * bytes,
            Layout::Planar => 3 * bytes,
            Layout::Reversed => 5,
            Layout::Odd | Layout::OddPlanes => 7,
        };
        Window {
            phase,
            len: (sum(&backward) + sum(&forward) + b) as usize,
            first: sum(&backward) as usize,
            strides: if layout == Layout::Compact { [0; 3] } else { own },
            own,
        }
    }

    /// Where a sample is in the allocation.
    pub(crate) fn at(&self, x: usize, y: usize, s: usize) -> usize {
        let [pixel, line, sample] = self.own;
        (self.first as i64 + x as i64 * pixel + y as i64 * line + s as i64 * sample) as usize
    }
}

/// The pad of a warp, warps of a block, blocks of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) shared: u32,
    pub(crate) warps: u32,
    pub(crate) blocks: u32,
}

impl Work {
    /// As the engine does it: a row fits if it can.
    pub(crate) fn usual(row: usize, rows: usize) -> Work {
        let shared = (row + 64).next_multiple_of(16).clamp(1 << 10, 40 << 10);
        let warps = ((40 << 10) / shared).clamp(1, 8).min(rows.max(1));
        let blocks = rows.div_ceil(warps).max(1);
        Work { shared: shared as u32, warps: warps as u32, blocks: blocks as u32 }
    }

    /// Small pads, and rows that are not shared out evenly.
    pub(crate) fn odd(random: &mut Random) -> Work {
        Work {
            shared: *random.pick(&[1024, 1032, 1056, 2000, 4096]),
            warps: 1 + random.below(3) as u32,
            blocks: 1 + random.below(2) as u32,
        }
    }

    pub(crate) fn size(self, tiles: usize) -> Size {
        Size {
            grid: (tiles as u32, self.blocks),
            block: (32, self.warps),
            shared: self.warps * self.shared,
        }
    }
}

/// The width of a small tile, and how it is worked on: every other kind has rows of which only a
/// part fits into a pad, the others some that just do not fit; every other tile has more warps than
/// its three rows.
pub(crate) fn small(number: usize, kind: &Kind, samples: usize) -> (usize, Work) {
    let (width, shared) = match number % 2 {
        0 if samples == 1 => (1020 / kind.bytes, 1039),
        // Whole vectors.
        0 if samples == 31 => (48, 1039),
        0 => (37, 1039),
        _ if kind.bit != 0 => (9000 / samples + 9, 1024),
        _ => (1600 / samples / kind.bytes + 9, 1024),
    };
    let blocks = 1 + (number + samples / 2) as u32 % 2;
    (width, Work { shared, warps: 2, blocks })
}

/// `Shape`, as kernels.cu declares it.
pub(crate) fn shape(
    kind: Kind,
    [width, height]: [usize; 2],
    samples: usize,
    strides: [i64; 3],
    shared: u32,
    check: bool,
) -> Vec<u8> {
    let small = [
        width as u32,
        height as u32,
        samples as u32,
        kind.bytes as u32,
        kind.unit as u32,
        kind.predictor,
        kind.big.into(),
        kind.bit.into(),
    ];
    let mut bytes: Vec<u8> = small.iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.extend((kind.row(width, samples) as u64).to_le_bytes());
    bytes.extend(strides.iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend([shared, check.into(), 0, 0].iter().flat_map(|n: &u32| n.to_le_bytes()));
    bytes
}

/// The matrix of a kernel, in four parts that run side by side.
macro_rules! matrix_tests {
    ($seed:literal) => {
        #[test]
        fn no_predictor() {
            matrix($seed + 1, |kind| kind.predictor == 1 && kind.bit == 0);
        }

        #[test]
        fn horizontal_differences() {
            matrix($seed + 2, |kind| kind.predictor == 2);
        }

        #[test]
        fn floating_point_differences() {
            matrix($seed + 3, |kind| kind.predictor == 3);
        }

        #[test]
        fn bits() {
            matrix($seed + 4, |kind| kind.bit != 0);
        }
    };
}

pub(crate) use matrix_tests;
