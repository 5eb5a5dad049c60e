//! The engine suite, with every tile compared with the CPU's and with none. Damaged tiles are not
//! here but in [`crate::step5_corrupt`]: a device may not survive them.

use gpugtiff::engine::Engine;
use gpugtiff::engine::cuda::Verify;

use crate::machine::{count, engine};
use crate::{encode, machine, report, suite};

/// Thousands of small batches: not where the driver is emulated, and the engine's own tests have
/// them there.
const LONG: [&str; 4] = [
    "every_kind_of_tile_decodes_exactly",
    "every_kind_of_tile_encodes_exactly",
    "random_batches_decode_exactly",
    "random_batches_encode_exactly",
];

/// None of these holds a damaged tile, so the device has no excuse for leaving one to the CPU.
fn judge(engine: &dyn Engine, test: &str) {
    assert_eq!(count(engine, "CUDA_FAULTS"), 0, "{:?}", engine.notices());
    assert_eq!(count(engine, "CUDA_MISMATCHES"), 0, "{:?}", engine.notices());
    if LONG.contains(&test) {
        assert_eq!(count(engine, "CUDA_TILES_REDONE"), 0, "{:?}", engine.notices());
        let done = count(engine, "CUDA_TILES_DECODED") + count(engine, "CUDA_TILES_ENCODED");
        assert!(done > 1000, "the device did {done} tiles");
    }
}

fn run(title: &str, test: &str, verify: Verify, body: fn(&dyn Engine)) {
    if machine::small() && LONG.contains(&test) {
        return report::left_out(title, "small sizes");
    }
    report::chapter(title, |_| {
        let engine = engine(verify);
        body(&engine);
        judge(&engine, test);
    });
}

macro_rules! suite {
    ($($room:ident::$test:ident,)*) => {
        /// VERIFY=ALL.
        mod verified {
            use super::*;
            $(
                #[test]
                #[ignore = "needs an NVIDIA GPU"]
                fn $test() {
                    let name = stringify!($test);
                    run(&format!("{name}, VERIFY=ALL"), name, Verify::All, $room::$test);
                }
            )*
        }

        /// VERIFY=NO.
        mod alone {
            use super::*;
            $(
                #[test]
                #[ignore = "needs an NVIDIA GPU"]
                fn $test() {
                    let name = stringify!($test);
                    run(&format!("{name}, VERIFY=NO"), name, Verify::No, $room::$test);
                }
            )*
        }
    };
}

suite! {
    suite::every_kind_of_tile_decodes_exactly,
    suite::random_batches_decode_exactly,
    suite::a_bad_tile_fails_alone,
    suite::wanted_parts_come,
    suite::short_bottom_tiles_are_taken,
    suite::a_source_that_fails_is_an_error,
    suite::any_number_of_threads_gives_the_same,
    encode::every_kind_of_tile_encodes_exactly,
    encode::random_batches_encode_exactly,
    encode::tiles_can_be_left_out,
    encode::short_strips_store_their_rows_only,
    encode::any_number_of_threads_gives_the_same_bytes,
    encode::one_buffer_serves_batches_of_any_shape,
    encode::batches_encoded_at_once_do_not_mix,
    suite::every_kind_of_small_tile_decodes_exactly,
    encode::every_kind_of_small_tile_encodes_exactly,
}
