//! How the work is shared out and how memory is used, from what the interpreter counted.

use ptx::Stats;

use crate::apply;
use crate::cases::{Layout, Work};
use crate::device::{Device, Mode, Random};
use crate::kernels;
use crate::packed;
use crate::place::{self, INTERLEAVED, PLANAR};
use crate::reference::Kind;
use crate::undo;

/// The longest thread over the mean.
fn check_balance(what: &str, stats: &Stats) {
    let mean = stats.instructions as f64 / stats.threads as f64;
    let ratio = stats.longest_thread as f64 / mean;
    assert!(ratio <= 64.0, "{what}: the longest thread takes {ratio:.1} x the mean");
}

/// 32-byte sectors that were touched, over those that the tiles and pixels fill.
fn check_sectors(what: &str, stats: &Stats, bytes: usize) {
    let ratio = (stats.sectors_loaded + stats.sectors_stored) as f64 / (bytes as f64 / 32.0);
    println!("{what}: {ratio:.3}");
    assert!(ratio <= 1.5, "{what}: {ratio:.3} x the ideal sectors");
    assert!(ratio >= 0.99, "{what}: {ratio:.3} x the ideal sectors, fewer than there are");
}

/// Tiles of 256 x 256 in the layouts that windows have, launched as the engine does.
#[test]
fn sectors_and_balance_of_predictors() {
    let kinds = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (4, 3)];
    let mut random = Random::new(0x5eed_0071);
    for ((bytes, predictor), samples) in kinds.into_iter().flat_map(|k| [(k, 1), (k, 3)]) {
        for layout in [Layout::Compact, Layout::Padded, Layout::Planar] {
            let kind = Kind { bytes, unit: bytes, predictor, big: bytes > 1, bit: 0 };
            let row = kind.row(256, samples);
            let work = Work::usual(row, 256);
            let what = format!("predictor {predictor}, {samples} x {bytes} bytes, {layout:?}");
            let case = undo::Case {
                kind,
                samples,
                width: 256,
                rows: 256,
                crop: [0, 0, 256, 256],
                layout,
                work,
            };
            let mode = Mode::Converged;
            let stats = undo::run(kernels(), mode, &case, &mut random, Device::new()).unwrap();
            // One of the two tiles is not good, so that only the table is read for it.
            check_sectors(&format!("undo, {what}"), &stats, 2 * row * 256);
            check_balance(&format!("undo, {what}"), &stats);
            let case = apply::Case {
                kind,
                samples,
                width: 256,
                rows: 256,
                there: [256, 256],
                layout,
                work,
                phase: 11,
            };
            let stats = apply::run(kernels(), mode, &case, &mut random, Device::new()).unwrap();
            check_sectors(&format!("apply, {what}"), &stats, 4 * row * 256);
            check_balance(&format!("apply, {what}"), &stats);
        }
    }
}

#[test]
fn balance_of_the_others() {
    let mut random = Random::new(0x5eed_0072);
    let tiles: Vec<_> = (0..64).map(|_| (random.bytes(16 << 10), 0)).collect();
    let stats = packed::run_adler(kernels(), Mode::Converged, &tiles, Device::new()).unwrap();
    check_balance("adler32", &stats);
    check_sectors("adler32", &stats, 64 << 14);
    let sizes = packed::Sizes::random(&mut random, 5000, true);
    let stats = packed::run_measure(kernels(), Mode::Converged, &sizes, Device::new()).unwrap();
    check_balance("measure", &stats);
    let tiles: packed::Tiles = (0..64).map(|_| Some(random.bytes(9000))).collect();
    let sums = vec![7; 64];
    let stats =
        packed::run_gather(kernels(), Mode::Converged, &tiles, Some(&sums), 1, Device::new())
            .unwrap();
    check_balance("gather", &stats);
    check_sectors("gather", &stats, 64 * 9000 * 2);
}

/// Samples of a tile of 256 x 256 go to planes and to pixels.
#[test]
fn sectors_and_balance_of_placing() {
    let (width, blocks) = (256, 32);
    for (bytes, samples) in [(1, 1), (1, 3), (4, 1), (4, 3)] {
        // A plane has some bytes out of every sector of the tile, so that each reads all of it.
        for (arrangement, times) in [(PLANAR, samples), (INTERLEAVED, 1)] {
            let what = format!("place, {samples} x {bytes} bytes, {times} x read");
            let sizes = [bytes, samples, width];
            let stats =
                place::run_compact(kernels(), sizes, arrangement, blocks, Device::new).unwrap();
            let all = width * width * samples;
            // A warp looks up the band at every step, and its tile once, in three loads.
            let tables = all / 32 + 3 * 8 * blocks as usize;
            let most = times * all * bytes / 32 + tables;
            println!("{what}: {} sectors of {most}", stats.sectors_loaded);
            assert!(stats.sectors_loaded <= most as u64, "{what}: {}", stats.sectors_loaded);
            check_balance(&what, &stats);
        }
    }
}
