//! GPUDirect Storage on the emulated driver: every tile comes from a real file, past the host, and is
//! decoded on the device; what does not come is read by the host.

use std::process::{Command, Stdio};

use gpugtiff::engine::Engine;
use gpugtiff::engine::cuda::Verify;

use crate::emulator::count;
use crate::{on_file, suite};

/// Nothing is compared, and neither the CPU nor a read by the host may hide anything.
fn alone(what: impl Fn(&dyn Engine), least: u64) {
    let engine = on_file::engine(Verify::No);
    what(&engine);
    for name in ["CUDA_TILES_REDONE", "CUDA_TILES_BUSY", "CUDA_FAULTS", "CUDA_GDS_FALLBACKS"] {
        assert_eq!(count(&engine, name), 0, "{name}: {:?}", engine.notices());
    }
    for codec in ["NONE", "LZW", "DEFLATE", "PACKBITS", "ZSTD"] {
        let name = format!("CUDA_TILES_ON_CPU_{codec}");
        assert_eq!(count(&engine, &name), 0, "{name}");
    }
    let reads = count(&engine, "CUDA_GDS_READS");
    assert!(
        reads > 0 && count(&engine, "CUDA_TILES_DECODED") >= least,
        "{reads} reads: {:?}",
        engine.notices()
    );
}

#[test]
fn random_batches_decode_exactly() {
    alone(|engine| suite::some_random_batches_decode_exactly(engine, 120), 1000);
}

#[test]
fn every_kind_of_small_tile() {
    alone(suite::every_kind_of_small_tile_decodes_exactly, 800);
}

/// Warps split, streams in any order that the events allow, and bytes that land as late as they may: in
/// processes of their own.
#[test]
fn every_schedule_gives_the_same_pixels() {
    let seed = std::env::var("GPUGTIFF_SEED").unwrap_or("1".into());
    let start = |(order, land, seed): (&str, &str, &str)| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "gds::every_kind_of_small_tile"]);
        command.env("EMUCUDA_SCHEDULE", "adversarial").env("EMUCUDA_RACES", "1");
        command.env("EMUCUDA_ORDER", order).env("EMUCUDA_CUFILE_LAND", land);
        command.env("EMUCUDA_SEED", seed).stdout(Stdio::piped()).spawn().unwrap()
    };
    let ways = [("mixed", "late", &*seed), ("contrary", "contrary", "2")];
    for (way, child) in ways.map(|way| (way, start(way))) {
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{way:?}: {said}");
    }
}
