//! ZSTD frames of every kind that writers make: nvCOMP is documented for frames that state their
//! size, and libtiff's do not.

use std::io::Write;

use gpugtiff::engine::cuda::{Unpacked, Verify, patched};
use gpugtiff::engine::{Codec, TileSpec};

use crate::machine::{assert_all_on_device, engine, sized};
use crate::raster::{Raster, Stored, integers};
use crate::{child, report, tiles};

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

/// Frames as libtiff writes them, of several levels, and what each holds.
fn streamed() -> Vec<(Vec<u8>, Vec<u8>)> {
    let edge = sized(256, 64);
    let raster = Raster::new(integers(Codec::None, edge, edge), sized(48, 6));
    let levels = [1, 9, 19].into_iter().cycle();
    let frame = |(rows, level): (Vec<u8>, i32)| (Writer::Streamed.frame(&rows, level), rows);
    raster.pixels.into_iter().zip(levels).map(frame).collect()
}

/// A role is how nvCOMP gets them: past the engine, so that nothing but nvCOMP sees to them.
fn as_child(role: &str) {
    let (frames, rows): (Vec<_>, Vec<_>) = streamed().into_iter().unzip();
    let bytes = rows[0].len();
    let given: Vec<Vec<u8>> = match role {
        "patched" => frames.iter().map(|frame| patched(frame, bytes).unwrap()).collect(),
        _ => frames,
    };
    let unpacked = match engine(Verify::No).unpack_zstd(&given, bytes) {
        Ok(unpacked) => unpacked,
        Err(fault) => return child::say(&fault),
    };
    let right = unpacked.iter().zip(&rows).filter(|(found, rows)| found.data == **rows).count();
    let told = |what: &dyn Fn(&Unpacked) -> String| {
        let mut all: Vec<String> = unpacked.iter().map(what).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    };
    let (status, size) = (told(&|it| it.status.to_string()), told(&|it| it.size.to_string()));
    child::say(&format!(
        "status {status}; size {size} of {bytes}; {right} of {} right",
        rows.len()
    ));
}

/// What nvCOMP does with frames that do not say their size is not documented, and patching them rests on
/// it: that is told. Patched they must come out right.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn zstd_unpatched_and_patched() {
    const NAME: &str = "step3_frames::zstd_unpatched_and_patched";
    if let Some(role) = child::role() {
        return as_child(&role);
    }
    report::chapter("ZSTD without content size, to nvCOMP itself", |text| {
        report::head(text, &["frames", "what nvCOMP makes of them"]);
        let mut outcome = String::new();
        for role in ["as they are", "patched"] {
            let said = child::attempt(NAME, role).map(|said| said.join(" "));
            // In one row.
            outcome = said.unwrap_or_else(|why| format!("the process {why}")).replace('\n', " ");
            report::row(text, &[&role, &outcome]);
        }
        let (count, bytes) = (streamed().len(), streamed()[0].1.len());
        let right = format!("status 0; size {bytes} of {bytes}; {count} of {count} right");
        assert_eq!(outcome, right, "patched");
    });
}
