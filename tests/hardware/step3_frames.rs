//! ZSTD frames of every kind that writers make: nvCOMP is documented for frames that state their
//! size, and libtiff's do not.

use std::io::Write;

use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Codec, TileSpec};

use crate::machine::{assert_all_on_device, engine, sized};
use crate::raster::{Raster, Stored, integers};
use crate::{report, tiles};

/// How a frame is written.
#[derive(Debug, Clone, Copy)]
enum Writer {
    /// libtiff's: in pieces, with a window and without the size.
    Streamed,
    /// In one piece, with the size.
    Sized,
    /// The same with a checksum behind.
    Checked,
}

impl Writer {
    fn frame(self, rows: &[u8], level: i32) -> Vec<u8> {
        let mut coder = zstd::Encoder::new(Vec::new(), level).unwrap();
        let states_size = !matches!(self, Writer::Streamed);
        coder.include_contentsize(states_size).unwrap();
        coder.include_checksum(matches!(self, Writer::Checked)).unwrap();
        if states_size {
            coder.set_pledged_src_size(Some(rows.len() as u64)).unwrap();
        }
        rows.chunks(4096).for_each(|piece| coder.write_all(piece).unwrap());
        let frame = coder.finish().unwrap();
        // The descriptor's word on it: a size field, or one segment, which implies it.
        assert_eq!(frame[4] & 0xE0 != 0, states_size, "{self:?}: {:#x}", frame[4]);
        frame
    }
}

fn check(writer: Writer, text: &mut String) {
    for (width, height) in
        sized([(64, 64), (256, 256), (512, 512)], [(16, 16), (64, 64), (256, 300)])
    {
        for level in sized([1, 9, 19], [1, 3, 9]) {
            let raster = Raster::new(integers(Codec::Zstd, width, height), sized(200, 3));
            // What a frame holds: the rows as the predictor leaves them.
            let plain = TileSpec { codec: Codec::None, ..(*raster.spec).clone() };
            let frame = |pixels| writer.frame(&tiles::store(&plain, pixels), level);
            let frames = raster.pixels.iter().map(|pixels| frame(pixels));
            let stored = Stored::of(frames);
            let engine = engine(Verify::No);
            raster.decode(&engine, &stored, usize::MAX, 0);
            assert_all_on_device(&engine, "CUDA_TILES_DECODED", raster.pixels.len());
            let size = format!("{width}×{height}");
            report::row(text, &[&format!("{writer:?}"), &size, &level, &raster.pixels.len()]);
        }
    }
}

fn chapter(title: &str, writer: Writer) {
    report::chapter(title, |text| {
        report::head(text, &["frames, all decoded on the device", "pixels", "level", "tiles"]);
        check(writer, text);
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zstd_as_libtiff_writes_it() {
    chapter("ZSTD without content size (libtiff)", Writer::Streamed);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zstd_with_content_size() {
    chapter("ZSTD with content size", Writer::Sized);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zstd_with_checksum() {
    chapter("ZSTD with content size and checksum", Writer::Checked);
}
