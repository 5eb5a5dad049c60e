//! The engine contract: one suite, run on every engine. An engine joins by one
//! `suite!` line; the naive reference shows that the suite itself is right.

mod encode;
mod naive;
mod suite;
mod tiles;

use gpugtiff::engine::cpu::CpuEngine;
use naive::Naive;

macro_rules! suite {
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
            fn a_bad_tile_fails_alone() {
                suite::a_bad_tile_fails_alone(&$engine);
            }

            #[test]
            fn damaged_tiles_are_right_or_fail_and_never_partial() {
                suite::damaged_tiles_are_right_or_fail_and_never_partial(&$engine);
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
            fn every_kind_of_tile_encodes_exactly() {
                encode::every_kind_of_tile_encodes_exactly(&$engine);
            }

            #[test]
            fn random_batches_encode_exactly() {
                encode::random_batches_encode_exactly(&$engine);
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
        }
    };
}

suite!(cpu, CpuEngine);
suite!(reference, Naive);
