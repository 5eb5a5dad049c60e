//! Tiles and batches of sizes that nvCOMP's documents are not sure about.

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Codec, Engine, Packed};

use crate::machine::{assert_all_on_device, count, engine, engine_with, sized};
use crate::raster::{Raster, Stored, floats, integers};
use crate::report;

/// Encodes tiles of this many KiB, reads them back with both engines, and says who encoded them.
fn round_trip(codec: Codec, kib: usize, text: &mut String) {
    let (width, height) = (256, kib);
    let raster = Raster::new(floats(codec, width, height), sized(32, 2));
    assert_eq!(raster.spec.tile_bytes(), kib << 10);
    let engine = engine_with(Verify::No, 1 << 30);
    let mut packed = Packed::default();
    raster.encode(&engine, &mut packed);
    let encoded = count(&engine, "CUDA_TILES_ENCODED") as usize;
    let stored = Stored::new(&packed);
    raster.decode(&CpuEngine, &stored, usize::MAX, 0);
    raster.decode(&engine, &stored, usize::MAX, 0);
    let decoded = count(&engine, "CUDA_TILES_DECODED") as usize;
    let ratio = stored.len() as f64 / (raster.pixels.len() * raster.spec.tile_bytes()) as f64;
    let all = raster.pixels.len();
    let said = engine.notices().join("; ");
    report::row(
        text,
        &[
            &format!("{codec:?}"),
            &kib,
            &format!("{encoded} of {all}"),
            &format!("{decoded} of {all}"),
            &format!("{ratio:.3}"),
            &said,
        ],
    );
    // Up to 64 KiB nothing is in doubt; above, the CPU may have to do it, and the pixels are right.
    if kib <= 64 {
        assert_eq!((encoded, decoded), (all, all), "{codec:?}, {kib} KiB: {said}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn large_tiles() {
    report::chapter("Large tiles", |text| {
        let head = ["codec", "KiB a tile", "encoded on device", "decoded", "ratio", "notices"];
        report::head(text, &head);
        let sizes: &[usize] = sized(&[32, 64, 65, 256, 1024, 4096, 16_384, 16_385], &[64, 65, 96]);
        for codec in [Codec::Deflate, Codec::Zstd] {
            sizes.iter().for_each(|&kib| round_trip(codec, kib, text));
        }
    });
}

/// Every tile must go both ways through the device, whatever the number of them.
fn both_ways(raster: &Raster) {
    let all = raster.pixels.len();
    let decoder = engine_with(Verify::No, 256 << 20);
    raster.decode(&decoder, &raster.pack(&CpuEngine), usize::MAX, 0);
    assert_all_on_device(&decoder, "CUDA_TILES_DECODED", all);
    let encoder = engine_with(Verify::No, 256 << 20);
    let stored = raster.pack(&encoder);
    assert_all_on_device(&encoder, "CUDA_TILES_ENCODED", all);
    raster.decode(&CpuEngine, &stored, usize::MAX, 0);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn batches_of_any_size() {
    report::chapter("Batch sizes", |text| {
        report::head(text, &["codec", "tiles, all on the device, both ways"]);
        let edge = sized(128, 16);
        for codec in [Codec::None, Codec::Deflate, Codec::Zstd] {
            let sizes = sized([1, 7, 160, 1024], [1, 7, 33, 160]);
            for tiles in sizes {
                both_ways(&Raster::new(integers(codec, edge, edge), tiles));
            }
            report::row(text, &[&format!("{codec:?}"), &format!("{sizes:?}")]);
        }
    });
}

/// More than 65,535, which is as far as the other directions of a grid go.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn strips_of_one_row() {
    report::chapter("One-row strips", |text| {
        report::head(text, &["codec", "strips, all on the device, both ways"]);
        let strips = sized(70_000, 700);
        for codec in [Codec::None, Codec::Deflate, Codec::Zstd] {
            both_ways(&Raster::new(integers(codec, 64, 1), strips));
            report::row(text, &[&format!("{codec:?}"), &strips]);
        }
        let compared = engine(Verify::All);
        Raster::new(integers(Codec::Deflate, 64, 1), strips).pack(&compared);
        assert_eq!(count(&compared, "CUDA_TILES_VERIFIED"), strips as u64);
        assert_eq!(count(&compared, "CUDA_MISMATCHES"), 0);
    });
}
