//! The engine contract: one suite, run on every engine. An engine joins by a line each of
//! `pixels!`, `manners!` and `damage!`; the naive reference shows that the suite itself is right.

mod auto;
mod emulator;
mod encode;
mod gds;
mod jpeg2000;
#[path = "../emulated-cuda/tests/suite/json.rs"]
mod json;
mod latency;
mod naive;
mod on_file;
mod patience;
mod suite;
mod tiles;

use gpugtiff::engine::Engine;
use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use naive::Naive;

/// Every kind of tile, both ways.
macro_rules! pixels {
    ($name:ident, $engine:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn every_kind_of_tile_decodes_exactly() {
                suite::every_kind_of_tile_decodes_exactly(&$engine);
            }

            #[test]
            fn random_batches_decode_exactly() {
                suite::random_batches_decode_exactly(&$engine);
            }

            #[test]
            fn every_kind_of_tile_encodes_exactly() {
                encode::every_kind_of_tile_encodes_exactly(&$engine);
            }

            #[test]
            fn random_batches_encode_exactly() {
                encode::random_batches_encode_exactly(&$engine);
            }
        }
    };
}

/// What engines do besides.
macro_rules! manners {
    ($name:ident, $engine:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn wanted_parts_come() {
                suite::wanted_parts_come(&$engine);
            }

            #[test]
            fn short_bottom_tiles_are_taken() {
                suite::short_bottom_tiles_are_taken(&$engine);
            }

            #[test]
            fn a_source_that_fails_is_an_error() {
                suite::a_source_that_fails_is_an_error(&$engine);
            }

            #[test]
            fn any_number_of_threads_gives_the_same() {
                suite::any_number_of_threads_gives_the_same(&$engine);
            }

            #[test]
            fn tiles_can_be_left_out() {
                encode::tiles_can_be_left_out(&$engine);
            }

            #[test]
            fn short_strips_store_their_rows_only() {
                encode::short_strips_store_their_rows_only(&$engine);
            }

            #[test]
            fn any_number_of_threads_gives_the_same_bytes() {
                encode::any_number_of_threads_gives_the_same_bytes(&$engine);
            }

            #[test]
            fn one_buffer_serves_batches_of_any_shape() {
                encode::one_buffer_serves_batches_of_any_shape(&$engine);
            }

            #[test]
            fn batches_encoded_at_once_do_not_mix() {
                encode::batches_encoded_at_once_do_not_mix(&$engine);
            }
        }
    };
}

/// Bad tiles: apart, since a device may not survive them.
macro_rules! damage {
    ($name:ident, $engine:expr $(, $ignore:meta)?) => {
        mod $name {
            use super::*;

            #[test]
            $(#[$ignore])?
            fn a_bad_tile_fails_alone() {
                suite::a_bad_tile_fails_alone(&$engine);
            }

            #[test]
            $(#[$ignore])?
            fn damaged_tiles_are_right_or_fail_and_never_partial() {
                suite::damaged_tiles_are_right_or_fail_and_never_partial(&$engine);
            }
        }
    };
}

pixels!(cpu, CpuEngine);
manners!(cpu_manners, CpuEngine);
damage!(cpu_damage, CpuEngine);
pixels!(reference, Naive);
manners!(reference_manners, Naive);
damage!(reference_damage, Naive);
manners!(cuda_manners, emulator::engine(Verify::All));
damage!(
    gds_damage,
    emulator::on_file(Verify::First),
    ignore = "started by bad_tiles_whatever_nvcomp_makes_of_them"
);
damage!(
    cuda_damage,
    emulator::engine(Verify::All),
    ignore = "started by bad_tiles_whatever_nvcomp_makes_of_them"
);

/// Corrupt input is undefined to nvCOMP: whatever it does, in a process of its own.
#[test]
fn bad_tiles_whatever_nvcomp_makes_of_them() {
    let tests = ["a_bad_tile_fails_alone", "damaged_tiles_are_right_or_fail_and_never_partial"];
    for corrupt in ["unwritten", "garbage", "neighbour", "fault"] {
        for (way, test) in ["cuda_damage", "gds_damage"].iter().flat_map(|w| tests.map(|t| (w, t)))
        {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", &format!("{way}::{test}")]);
            let done = command.env("EMUCUDA_CORRUPT", corrupt).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{corrupt}: {way}: {said}");
        }
    }
}

/// On the device alone: nothing is compared, and a tile that the CPU had to do is a failure, so
/// that the CPU cannot hide a fault of the device.
mod cuda_alone {
    use super::*;

    fn alone(what: impl Fn(&dyn Engine), done: &str, least: u64) {
        let engine = emulator::engine(Verify::No);
        what(&engine);
        assert_eq!(emulator::count(&engine, "CUDA_TILES_REDONE"), 0);
        assert_eq!(emulator::count(&engine, "CUDA_TILES_BUSY"), 0);
        // Tiles of two codecs are left to the CPU to be encoded; decoded are all of them.
        for codec in ["NONE", "LZW", "DEFLATE", "PACKBITS", "ZSTD"] {
            let name = format!("CUDA_TILES_ON_CPU_{codec}");
            assert_eq!(emulator::count(&engine, &name), 0, "{name}");
        }
        assert_eq!(emulator::count(&engine, "CUDA_FAULTS"), 0);
        assert!(emulator::count(&engine, done) >= least);
    }

    #[test]
    fn every_kind_of_tile_decodes_exactly() {
        alone(suite::every_kind_of_tile_decodes_exactly, "CUDA_TILES_DECODED", 1000);
    }

    #[test]
    fn random_batches_decode_exactly() {
        alone(suite::random_batches_decode_exactly, "CUDA_TILES_DECODED", 1000);
    }

    #[test]
    fn every_kind_of_tile_encodes_exactly() {
        alone(encode::every_kind_of_tile_encodes_exactly, "CUDA_TILES_ENCODED", 1000);
    }

    #[test]
    fn random_batches_encode_exactly() {
        alone(encode::random_batches_encode_exactly, "CUDA_TILES_ENCODED", 1000);
    }

    #[test]
    #[ignore = "started by every_schedule_gives_the_same_pixels"]
    fn every_kind_of_small_tile() {
        let both = |engine: &dyn Engine| {
            suite::every_kind_of_small_tile_decodes_exactly(engine);
            encode::every_kind_of_small_tile_encodes_exactly(engine);
        };
        alone(both, "CUDA_TILES_ENCODED", 840);
    }

    /// Warps split, blocks in random order, work of the streams in any order that the events allow,
    /// and no two threads at one byte: in processes of their own.
    #[test]
    fn every_schedule_gives_the_same_pixels() {
        let seed = std::env::var("GPUGTIFF_SEED").unwrap_or("1".into());
        let start = |(schedule, order, seed): (&str, &str, &str)| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "cuda_alone::every_kind_of_small_tile"]);
            command.env("EMUCUDA_SCHEDULE", schedule).env("EMUCUDA_ORDER", order);
            command.env("EMUCUDA_SEED", seed).env("EMUCUDA_RACES", "1");
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let ways = [("adversarial", "mixed", &*seed), ("adversarial", "contrary", "2")];
        for (way, child) in ways.map(|way| (way, start(way))) {
            let done = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{way:?}: {said}");
        }
    }

    /// Each of them several of the device's, which share its lanes.
    #[test]
    fn batches_encoded_at_once_do_not_mix() {
        let engine = emulator::try_engine(Verify::No, 16 << 10).unwrap_or_else(|no| panic!("{no}"));
        encode::batches_encoded_at_once_do_not_mix(&engine);
        assert_eq!(emulator::count(&engine, "CUDA_TILES_REDONE"), 0);
        assert_eq!(emulator::count(&engine, "CUDA_TILES_ENCODED"), 3 * 12 * 30);
    }
}
