//! Tiles of JPEG 2000, on the CPU by GDAL's driver and on the emulated device by its nvJPEG2000. There is
//! no encoder here: the tiles are those of tests/jpeg2000, whose pixels follow from a formula.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Once};

use gpugtiff::engine::cpu::{self, CpuEngine};
use gpugtiff::engine::cuda::{CudaEngine, Verify};
use gpugtiff::engine::jpeg2000::{Codestream, Kind};
use gpugtiff::engine::{
    Batch, Codec, Engine, Part, PixelSink, Pixels, Predictor, Sample, TileError, TileJob, TileSpec,
};
use gpugtiff::io::Memory;

use crate::emulator::{self, count};
use crate::json::Json;
use crate::tiles::Random;

const SIDE: usize = 32;

/// Name, stream, bytes of a sample, samples, signed, YCbCr, the steps of chroma.
type Fixture = (&'static str, &'static [u8], u8, usize, Kind, [usize; 2]);

macro_rules! fixture {
    ($name:literal, $bytes:literal, $samples:literal, $signed:literal, $ycbcr:literal, $steps:expr) => {
        (
            $name,
            include_bytes!(concat!("../jpeg2000/", $name, ".j2k")),
            $bytes,
            $samples,
            Kind { signed: $signed, ycbcr: $ycbcr },
            $steps,
        )
    };
}

const FIXTURES: &[Fixture] = &[
    fixture!("u8", 1, 1, false, false, [1, 1]),
    fixture!("i8", 1, 1, true, false, [1, 1]),
    fixture!("u16", 2, 1, false, false, [1, 1]),
    fixture!("i16", 2, 1, true, false, [1, 1]),
    fixture!("u8x2", 1, 2, false, false, [1, 1]),
    fixture!("u8x3", 1, 3, false, false, [1, 1]),
    fixture!("u8x3", 1, 3, false, true, [1, 1]),
    fixture!("u8x3-mct", 1, 3, false, false, [1, 1]),
    fixture!("u8x3-mct", 1, 3, false, true, [1, 1]),
    fixture!("u8x4", 1, 4, false, false, [1, 1]),
    fixture!("i16x3-mct", 2, 3, true, false, [1, 1]),
    fixture!("u16x4", 2, 4, false, false, [1, 1]),
    fixture!("u8-tiles", 1, 1, false, false, [1, 1]),
    fixture!("u8-cropped", 1, 1, false, false, [1, 1]),
    fixture!("i8-cropped", 1, 1, true, false, [1, 1]),
    fixture!("u8x3-cropped", 1, 3, false, true, [1, 1]),
    fixture!("u8x3-422", 1, 3, false, true, [2, 1]),
    fixture!("u8x3-420", 1, 3, false, true, [2, 2]),
];

/// Irreversible ones: what comes out is OpenJPEG's word.
const LOSSY: &[Fixture] = &[
    fixture!("u8x3-lossy", 1, 3, false, false, [1, 1]),
    fixture!("u16-lossy", 2, 1, false, false, [1, 1]),
];

/// The CPU engine's decoder is GDAL's.
fn provide() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: it may be called at any time.
        unsafe { gdal_sys::GDALAllRegister() };
        cpu::jpeg2000::provide(gpugtiff::gdal::jpeg2000::decode);
    });
}

fn spec(&(_, _, bytes, samples, kind, _): &Fixture) -> TileSpec {
    TileSpec {
        codec: Codec::Jpeg2000(kind),
        predictor: Predictor::None,
        sample: Sample::Whole { bytes, unit: bytes },
        samples,
        width: SIDE,
        height: SIDE,
        swap: false,
    }
}

/// Columns and rows that a fixture has.
fn size(name: &str) -> [usize; 2] {
    if name.ends_with("cropped") { [20, 27] } else { [SIDE; 2] }
}

/// The formula of tests/jpeg2000/make.c, before the sign.
fn sample(bytes: u8, x: usize, y: usize, component: usize) -> usize {
    let scale = if bytes == 2 { 199 } else { 1 };
    (5 * x + 3 * y + 40 * component + x * y / 8) * scale % (1 << (8 * bytes))
}

/// As JFIF says, in 16 binary digits.
fn rgb(ycbcr: [usize; 3]) -> [usize; 3] {
    let digits = |factor: f64| (factor * 65536.0).round() as i64;
    let [y, cb, cr] = ycbcr.map(|v| v as i64);
    let (cb, cr) = (cb - 128, cr - 128);
    let green = digits(0.34414) * cb + digits(0.71414) * cr;
    let all = [digits(1.402) * cr, -green, digits(1.772) * cb];
    all.map(|v| (65536 * y + v + 32768).div_euclid(65536).clamp(0, 255) as usize)
}

/// The first rows of a fixture's tile, padding zero.
fn pixels(fixture: &Fixture, rows: usize) -> Vec<u8> {
    let &(name, _, bytes, samples, kind, [x_step, y_step]) = fixture;
    let [width, height] = size(name);
    let mut out = Vec::new();
    for (y, x) in (0..rows).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
        let mut pixel = [0; 4];
        if x < width && y < height {
            for (c, to) in pixel.iter_mut().enumerate().take(samples) {
                let (x, y) = if c == 0 { (x, y) } else { (x / x_step, y / y_step) };
                *to = sample(bytes, x, y, c);
            }
            if kind.ycbcr && !name.ends_with("mct") {
                let [y, cb, cr, _] = pixel;
                pixel[..3].copy_from_slice(&rgb([y, cb, cr]));
            }
            if kind.signed {
                pixel = pixel.map(|v| v.wrapping_sub(1 << (8 * bytes - 1)));
            }
        }
        for value in &pixel[..samples] {
            out.extend_from_slice(&(*value as u16).to_ne_bytes()[..usize::from(bytes)]);
        }
    }
    out
}

/// What came of each tile, and where in it that is; as its width, bytes of a row.
type Came = HashMap<u64, (Vec<u8>, Part)>;

#[derive(Default)]
struct Keep(Mutex<Came>);

impl PixelSink for Keep {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let part = Part { x: pixels.x, y: pixels.y, width: pixels.row_bytes, height: pixels.rows };
        let twice = self.0.lock().unwrap().insert(id, (pixels.data.to_vec(), part));
        assert!(twice.is_none(), "tile {id} came twice");
    }
}

/// Decodes tiles of one kind; what came, and what failed.
fn decode(
    engine: &dyn Engine,
    spec: &TileSpec,
    tiles: &[(Vec<u8>, Option<Part>)],
    [columns, rows]: [usize; 2],
) -> (Came, Vec<TileError>) {
    provide();
    let (mut file, mut jobs) = (vec![0xEE; 10], Vec::new());
    for (id, (bytes, part)) in tiles.iter().enumerate() {
        let (offset, len, part) = (file.len() as u64, bytes.len(), *part);
        let id = id as u64;
        jobs.push(TileJob { id, offset, len, rows, columns, padded: true, part });
        file.extend_from_slice(bytes);
    }
    let source = Arc::new(Memory(file));
    let batch = Batch { spec: Arc::new(spec.clone()), tiles: jobs, source, threads: 2 };
    let keep = Keep::default();
    let failed = engine.stage(batch).unwrap().decode(&keep);
    (keep.0.into_inner().unwrap(), failed)
}

/// All fixtures, whole and in parts; → how many tiles.
fn every_fixture_decodes_exactly(engine: &dyn Engine) -> u64 {
    let mut total = 0;
    for fixture in FIXTURES {
        let (name, stream, ..) = *fixture;
        let spec = spec(fixture);
        let [columns, rows] = size(name);
        let parts = [
            None,
            Some(Part { x: 3, y: 5, width: 11, height: 17 }),
            Some(Part { x: 0, y: 0, width: columns, height: 1 }),
            None,
        ];
        let tiles: Vec<_> = parts.iter().map(|part| (stream.to_vec(), *part)).collect();
        let (got, failed) = decode(engine, &spec, &tiles, [columns, rows]);
        assert!(failed.is_empty(), "{name}: {failed:?}");
        let (whole, row) = (pixels(fixture, rows), spec.row_bytes());
        for (id, part) in (0..).zip(parts) {
            let (data, came) = &got[&id];
            let part = part.unwrap_or(Part::rows(&spec, rows));
            let pixel = row / SIDE;
            for y in 0..part.height {
                let from = (part.y + y - came.y) * came.width + (part.x - came.x) * pixel;
                let ours = &data[from..][..part.width * pixel];
                let theirs = &whole[(part.y + y) * row + part.x * pixel..][..part.width * pixel];
                assert_eq!(ours, theirs, "{name} {part:?} row {y} {:?}", spec.codec);
            }
        }
        total += parts.len() as u64;
    }
    total
}

#[test]
fn on_the_cpu() {
    every_fixture_decodes_exactly(&CpuEngine);
}

#[test]
fn on_the_device_compared() {
    let engine = emulator::engine(Verify::All);
    let tiles = every_fixture_decodes_exactly(&engine);
    assert_eq!(count(&engine, "CUDA_TILES_VERIFIED"), tiles);
    assert_eq!(count(&engine, "CUDA_MISMATCHES"), 0);
}

/// Nothing is compared, and the CPU may hide nothing.
#[test]
fn on_the_device_alone() {
    let engine = emulator::engine(Verify::No);
    let tiles = every_fixture_decodes_exactly(&engine);
    for name in ["CUDA_TILES_ON_CPU_JPEG2000", "CUDA_TILES_REDONE", "CUDA_FAULTS"] {
        assert_eq!(count(&engine, name), 0, "{name}: {:?}", engine.notices());
    }
    assert_eq!(count(&engine, "CUDA_TILES_DECODED_JPEG2000"), tiles);
}

/// What the emulated library makes of irreversible ones is OpenJPEG's too; they are not compared, as on
/// a device they would be rounded otherwise.
#[test]
fn lossy_tiles_are_the_cpus_here_and_not_compared() {
    let engine = emulator::engine(Verify::All);
    for fixture in LOSSY {
        let tiles = vec![(fixture.1.to_vec(), None); 3];
        let of = |engine| decode(engine, &spec(fixture), &tiles, [SIDE; 2]);
        let (ours, theirs) = (of(&engine as &dyn Engine), of(&CpuEngine));
        assert!(ours.1.is_empty() && theirs.1.is_empty());
        assert!((0..3).all(|id| ours.0[&id].0 == theirs.0[&id].0), "{}", fixture.0);
        assert_ne!(ours.0[&0].0, pixels(fixture, SIDE), "that was to be lossy");
    }
    assert_eq!(count(&engine, "CUDA_TILES_VERIFIED"), 0);
    assert_eq!(count(&engine, "CUDA_TILES_DECODED_JPEG2000"), 6);
}

/// Warps split, streams in any order that the events allow, no two threads at one byte.
#[test]
fn every_schedule_gives_the_same_pixels() {
    for (order, seed) in [("mixed", "1"), ("contrary", "2")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "jpeg2000::on_the_device_alone"]);
        command.env("EMUCUDA_SCHEDULE", "adversarial").env("EMUCUDA_RACES", "1");
        command.env("EMUCUDA_ORDER", order).env("EMUCUDA_SEED", seed);
        let done = command.stdout(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{order}: {said}");
    }
}

/// A stream with a few bits flipped, or cut, or something else.
fn damaged(stream: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    match random.below(8) {
        0 => bytes.truncate(random.below(stream.len())),
        1 => bytes = (0..300).map(|_| random.below(256) as u8).collect(),
        2 => {}
        _ => {
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
    }
    // One that says it is irreversible would not be compared.
    let reversible = Codestream::find(&bytes).map_or(true, |found| found.reversible);
    if reversible { bytes } else { stream.to_vec() }
}

/// Random and hostile streams: the pixels, or the refusal, of the CPU.
fn damage() {
    let seed = std::env::var("GPUGTIFF_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
    println!("GPUGTIFF_SEED={seed}");
    let mut random = Random::new(seed);
    let engine = emulator::engine(Verify::All);
    let mut kinds = [0; 2];
    for _ in 0..12 {
        let fixture = &FIXTURES[random.below(FIXTURES.len() - 5)];
        let tiles: Vec<_> = (0..20).map(|_| (damaged(fixture.1, &mut random), None)).collect();
        let of = |engine| decode(engine, &spec(fixture), &tiles, size(fixture.0));
        let ((ours, our_errors), (theirs, their_errors)) =
            (of(&engine as &dyn Engine), of(&CpuEngine));
        assert_eq!(ours.len() + our_errors.len(), tiles.len());
        let ids = |errors: &[TileError]| {
            let mut ids: Vec<u64> = errors.iter().map(|error| error.id).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(&our_errors), ids(&their_errors), "{}", fixture.0);
        for (id, (pixels, _)) in &theirs {
            let lossless = &ours[id].0 == pixels;
            assert!(lossless, "{} tile {id}", fixture.0);
        }
        kinds[0] += theirs.len();
        kinds[1] += their_errors.len();
    }
    assert!(kinds.iter().all(|&n| n > 20), "{kinds:?}");
}

#[test]
#[ignore = "started by bad_tiles_whatever_nvjpeg2000_makes_of_them"]
fn damage_of_one_kind() {
    damage();
}

#[test]
fn bad_tiles_whatever_nvjpeg2000_makes_of_them() {
    for corrupt in ["parse", "decode", "garbage", "unwritten", "fault"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "jpeg2000::damage_of_one_kind"]);
        let done = command.env("EMUCUDA_J2K_CORRUPT", corrupt).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{corrupt}: {said}");
    }
}

/// Staged and never decoded, while others go on: nothing of theirs is touched.
#[test]
fn abandoned_batches_leave_others_alone() {
    provide();
    let engine = emulator::engine(Verify::No);
    let fixture = &FIXTURES[1];
    for _ in 0..6 {
        let source = Arc::new(Memory(fixture.1.to_vec()));
        let (len, spec) = (fixture.1.len(), Arc::new(spec(fixture)));
        let job = |id| TileJob {
            id,
            offset: 0,
            len,
            rows: SIDE,
            columns: SIDE,
            padded: true,
            part: None,
        };
        let tiles = (0..20).map(job).collect();
        drop(engine.stage(Batch { spec, tiles, source, threads: 2 }).unwrap());
        every_fixture_decodes_exactly(&engine);
    }
    assert_eq!(count(&engine, "CUDA_TILES_ON_CPU_JPEG2000"), 0, "{:?}", engine.notices());
}

/// So many tiles in one batch of the caller's, after one that has everything made.
fn many(tiles: usize) {
    let engine = emulator::engine(Verify::No);
    let fixture = &FIXTURES[5];
    let one = |n| vec![(fixture.1.to_vec(), None); n];
    decode(&engine, &spec(fixture), &one(tiles), [SIDE; 2]);
    emulator::reset();
    let before = count(&engine, "CUDA_TILES_DECODED_JPEG2000");
    let (got, failed) = decode(&engine, &spec(fixture), &one(tiles), [SIDE; 2]);
    assert!(got.len() == tiles && failed.is_empty());
    assert_eq!(count(&engine, "CUDA_TILES_DECODED_JPEG2000") - before, tiles as u64);
}

#[test]
#[ignore = "started by one_wait_for_64_tiles"]
fn many_64() {
    many(64);
}

#[test]
#[ignore = "started by one_wait_for_64_tiles"]
fn many_256() {
    many(256);
}

/// From the emulator's report, not from our counters.
#[test]
fn one_wait_for_64_tiles() {
    for tiles in [64, 256] {
        let name = format!("many_{tiles}");
        let path =
            std::env::temp_dir().join(format!("gpugtiff-{name}-{}.json", std::process::id()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", &format!("jpeg2000::{name}")]);
        let done = command.env("EMUCUDA_REPORT", &path).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        let report = Json::parse(&std::fs::read_to_string(&path).unwrap());
        std::fs::remove_file(path).unwrap();
        assert_eq!(report.items("syncs").len(), tiles / 64, "one wait a batch");
        let made = |it: &&Json| it.text("kind") == "device";
        let fresh = report.items("allocations").iter().filter(made).count();
        assert!(fresh <= 1, "the pool is one piece of memory, made before: {fresh}");
        let library = report.at("nvjpeg2k");
        assert_eq!(library.number("decoded"), tiles as u64);
        assert_eq!((library.number("misuse"), library.number("corrupt")), (0, 0));
        assert!(library.number("states") <= 192);
        let of = |kind: &'static str| {
            let all = report.items("timeline").iter();
            all.filter(move |it| it.text("kind") == kind).count()
        };
        assert_eq!(of("nvjpeg2k"), tiles);
        assert_eq!((of("H2D"), of("D2H")), (tiles / 64, tiles / 64), "tables up, pixels down");
    }
}

/// Runs a test of this file that is ignored in a process of its own.
fn in_a_process(test: &str, settings: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", &format!("jpeg2000::{test}")]);
    let done = command.envs(settings.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "started by memory_that_the_library_keeps_is_never_lent_again"]
fn hoarded() {
    let engine = emulator::engine(Verify::No);
    let tiles = every_fixture_decodes_exactly(&engine);
    let on_device = count(&engine, "CUDA_TILES_DECODED_JPEG2000");
    assert!(0 < on_device && on_device < tiles, "one run at the most: {on_device} of {tiles}");
    let told = engine.notices();
    assert!(told.iter().any(|said| said.contains("keeps memory")), "{told:?}");
    every_fixture_decodes_exactly(&engine);
    assert_eq!(count(&engine, "CUDA_TILES_DECODED_JPEG2000"), on_device);
}

#[test]
fn memory_that_the_library_keeps_is_never_lent_again() {
    in_a_process("hoarded", &[("EMUCUDA_J2K_HOARD", "1")]);
}

/// The library is elsewhere at first, then there is no page-locked memory for its trial.
#[test]
#[ignore = "started by the_library_is_sought_again"]
fn late() {
    let decoded = |engine: &CudaEngine| {
        every_fixture_decodes_exactly(engine);
        count(engine, "CUDA_TILES_DECODED_JPEG2000")
    };
    let nowhere = emulator::without_nvjpeg2k();
    assert_eq!(decoded(&nowhere), 0);
    let engine = emulator::engine(Verify::No);
    emulator::set("PINNED", "refuse");
    assert_eq!(decoded(&engine), 0);
    emulator::set("PINNED", "allow");
    assert!(decoded(&engine) > 0, "{:?}", engine.notices());
}

#[test]
fn the_library_is_sought_again() {
    in_a_process("late", &[]);
}

/// Next to nothing that claims to be a gigabyte, or only a row of it.
#[test]
fn a_large_tile_needs_more_than_a_header() {
    let fixture = &FIXTURES[0];
    let side = 32 << 10;
    let spec = TileSpec { width: side, height: side, ..spec(fixture) };
    for rows in [side, 1] {
        let mut stream = fixture.1.to_vec();
        stream.resize(1500, 0);
        let (_, failed) = decode(&CpuEngine, &spec, &[(stream, None)], [SIDE, rows]);
        let said = failed[0].error.to_string();
        assert!(said.contains("bytes where a tile needs 1073741824"), "{said}");
    }
}
