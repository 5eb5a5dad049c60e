//! GPUDirect Storage on the emulated driver: every tile comes from a real file, past the host, and is
//! decoded on the device; what does not come is read by the host.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Batch, Codec, Engine};
use gpugtiff::error::Result;
use gpugtiff::io::{ByteSource, Memory};

use crate::emulator::{self, count};
use crate::json::Json;
use crate::on_file::{self, OnFile};
use crate::suite::{self, Case};
use crate::tiles::Random;

/// Nothing is compared, and neither the CPU nor a read by the host may hide anything.
fn alone(what: impl Fn(&dyn Engine), least: u64) {
    let engine = emulator::on_file(Verify::No);
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

/// The CPU and the host may help.
#[test]
fn manners() {
    let engine = emulator::on_file(Verify::All);
    suite::short_bottom_tiles_are_taken(&engine);
    suite::a_source_that_fails_is_an_error(&engine);
    suite::any_number_of_threads_gives_the_same(&engine);
    suite::wanted_parts_come(&engine);
    assert!(count(&engine, "CUDA_GDS_READS") > 0 && count(&engine, "CUDA_TILES_VERIFIED") > 0);
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

/// Tiles so far apart that no two share a page, or one behind the other.
fn tiles(codec: Codec, count: usize, apart: bool) -> Case {
    let mut random = Random::new(7);
    let mut case = Case::new(suite::plain(codec));
    for _ in 0..count {
        if apart {
            case.file.resize(case.file.len().next_multiple_of(4096) + 4096 + 100, 0xEE);
        }
        case.add(24, &mut random);
    }
    case
}

/// Runs a test of this file that is ignored in a process of its own: what the emulator reports of it.
fn in_a_process(test: &str, settings: &[(&str, &str)]) -> Json {
    let path = std::env::temp_dir().join(format!("gpugtiff-{test}-{}.json", std::process::id()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", &format!("gds::{test}")]).env("EMUCUDA_REPORT", &path);
    for (name, value) in settings {
        command.env(name, value);
    }
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{settings:?}: {said}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    Json::parse(&text)
}

/// The same where nothing may go wrong.
fn report(test: &str, settings: &[(&str, &str)]) -> Json {
    let report = in_a_process(test, settings);
    for what in ["errors", "faults"] {
        assert!(report.items(what).is_empty(), "{settings:?}: {:?}", report.items(what));
    }
    report
}

/// Entries of the timeline of this kind.
fn of_kind<'a>(report: &'a Json, kind: &str) -> Vec<&'a Json> {
    report.items("timeline").iter().filter(|entry| entry.text("kind") == kind).collect()
}

fn direct(batch_bytes: usize) -> OnFile {
    OnFile(emulator::try_direct(Verify::No, batch_bytes).unwrap_or_else(|no| panic!("{no}")))
}

#[test]
#[ignore = "started by one_batch_of_256_tiles"]
fn batch_of_256() {
    let (case, engine) = (tiles(Codec::Deflate, 256, true), direct(64 << 20));
    emulator::reset();
    case.run(&engine, true, 2).check_exact(&case, "256 tiles");
    assert_eq!(count(&engine, "CUDA_TILES_DECODED"), 256);
    assert_eq!(count(&engine, "CUDA_GDS_READS"), 256);
    assert_eq!(count(&engine, "CUDA_GDS_TILES_MERGED"), 0);
}

/// One buffer, all reads before the first is asked for, and no byte of a tile goes up or comes down.
#[test]
fn one_batch_of_256_tiles() {
    for land in ["early", "late", "contrary"] {
        let report = report("batch_of_256", &[("EMUCUDA_CUFILE_LAND", land)]);
        assert_eq!(report.items("cufile.buffers").len(), 1);
        assert_eq!(report.items("cufile.handles").len(), 1);
        let batches = report.items("cufile.batches");
        assert_eq!(batches.iter().map(|batch| batch.number("entries")).max(), Some(128));
        let reads = report.items("cufile.reads");
        assert_eq!((reads.len(), report.number("cufile.unregistered")), (256, 0));
        // The last one ends where the file does.
        let aligned = reads.iter().filter(|read| *read.at("aligned") == Json::Boolean(true));
        assert!(aligned.count() >= 255);
        let submitted = reads.iter().map(|read| read.number("submitted")).max();
        let asked = reads.iter().map(|read| read.number("asked")).min();
        assert!(submitted < asked, "{submitted:?} {asked:?}");
        let up = of_kind(&report, "H2D");
        // 112 bytes of tables a tile, 32 of them for stow.
        let bytes: u64 = up.iter().map(|copy| copy.number("bytes")).sum();
        assert!(up.len() == 1 && bytes <= 256 * 160 + 1024, "{} copies, {bytes} bytes", up.len());
        assert_eq!(of_kind(&report, "D2H").len(), 1);
        let names: Vec<&str> = of_kind(&report, "kernel").iter().map(|k| k.text("name")).collect();
        assert_eq!(names, ["stow", "adler32", "undo"]);
        assert_eq!(of_kind(&report, "nvcomp").len(), 1);
        let leaks = ["cufile_handles", "cufile_batches"];
        assert!(leaks.iter().all(|what| report.number(&format!("leaks.{what}")) == 0));
    }
}

#[test]
#[ignore = "started by tiles_for_the_cpu_come_back_in_one_copy"]
fn batch_with_bad_tiles() {
    for (codec, redone) in [(Codec::Deflate, 3), (Codec::Zstd, 2)] {
        let mut case = tiles(codec, 64, false);
        let engine = direct(64 << 20);
        // Tiles that are refused, first and last ones among them: the CPU cannot decode them either.
        for tile in [0, 63] {
            case.file[case.jobs[tile].offset as usize] ^= 0x55;
        }
        if codec == Codec::Deflate {
            // One whose checksum is wrong, which only the device can tell.
            let job = case.jobs[30];
            case.file[job.offset as usize + job.len - 1] ^= 1;
        }
        let outcome = case.run(&engine, true, 2);
        assert_eq!(outcome.failed.len(), redone, "{codec:?}: {:?}", outcome.failed);
        assert!(outcome.came.iter().all(|(id, pixels)| case.expected[id] == *pixels));
        // A tile that was never shown to nvCOMP says nothing about its neighbours.
        assert_eq!(count(&engine, "CUDA_TILES_REDONE"), redone as u64, "{codec:?}");
        assert_eq!(count(&engine, "CUDA_TILES_DECODED"), 64 - redone as u64, "{codec:?}");
        emulator::reset();
        case.run(&engine, true, 2);
    }
}

#[test]
fn tiles_for_the_cpu_come_back_in_one_copy() {
    let report = report("batch_with_bad_tiles", &[]);
    let down = of_kind(&report, "D2H");
    assert_eq!((of_kind(&report, "H2D").len(), down.len()), (1, 2));
    assert_eq!(report.number("nvcomp.zstd.corrupt"), 0);
}

#[test]
#[ignore = "started by neighbours_are_read_together"]
fn neighbours() {
    let (case, engine) = (tiles(Codec::None, 256, false), direct(64 << 20));
    case.run(&engine, true, 2).check_exact(&case, "neighbours");
    assert_eq!(count(&engine, "CUDA_GDS_TILES_MERGED"), 256);
}

#[test]
fn neighbours_are_read_together() {
    let bytes = tiles(Codec::None, 256, false).file.len() as u64;
    for (limit, reads) in [("16384", 1), ("64", bytes.div_ceil(64 << 10))] {
        // As many calls as it takes.
        let report = report(
            "neighbours",
            &[("EMUCUDA_CUFILE_LIMIT_KB", limit), ("EMUCUDA_CUFILE_BATCH", "2")],
        );
        assert_eq!(report.items("cufile.reads").len() as u64, reads);
        assert_eq!(report.number("cufile.bytes"), bytes);
        assert_eq!(report.number("cufile.submissions"), reads.div_ceil(2));
    }
}

#[test]
#[ignore = "started by any_read_may_fail"]
fn failing_reads() {
    // Seven tiles a batch of the device's.
    let engine = direct(28 << 10);
    for codec in [Codec::None, Codec::Deflate, Codec::Zstd] {
        let case = tiles(codec, 12, true);
        let mut fallbacks = count(&engine, "CUDA_GDS_FALLBACKS");
        for (n, what) in (1..=12).flat_map(|n| ["short", "5", "5030"].map(|what| (n, what))) {
            emulator::reset();
            emulator::set("CUFILE_READ", &format!("{n}:{what}"));
            let context = format!("{codec:?}, read {n}: {what}");
            case.run(&engine, true, 2).check_exact(&case, &context);
            fallbacks += 1;
            assert_eq!(count(&engine, "CUDA_GDS_FALLBACKS"), fallbacks, "{context}");
        }
        emulator::set("CUFILE_READ", "*:5");
        case.run(&engine, true, 2).check_exact(&case, "every read fails");
        emulator::set("CUFILE_READ", "");
        case.run(&engine, true, 2).check_exact(&case, "and none");
    }
    assert_eq!(count(&engine, "CUDA_TILES_REDONE"), 0);
    assert_eq!(count(&engine, "CUDA_FAULTS"), 0);
    let told = engine.notices();
    assert!(told.len() == 1 && told[0].contains("GPUDirect Storage"), "{told:?}");
}

/// That batch is read by the host, and no other; the user hears of it once.
#[test]
fn any_read_may_fail() {
    for land in ["early", "late", "contrary"] {
        report("failing_reads", &[("EMUCUDA_CUFILE_LAND", land), ("EMUCUDA_ORDER", "mixed")]);
    }
}

#[test]
#[ignore = "started by a_submission_that_fails_may_have_begun"]
fn half_submitted() {
    let (case, engine) = (tiles(Codec::Deflate, 100, true), direct(64 << 20));
    for _ in 0..2 {
        case.run(&engine, true, 2).check_exact(&case, "half of the reads");
    }
    assert_eq!(count(&engine, "CUDA_TILES_DECODED"), 200);
    assert_eq!([count(&engine, "CUDA_GDS_READS"), count(&engine, "CUDA_GDS_FALLBACKS")], [0, 1]);
}

/// The memory is left to the reads that may be under way, and cuFile is not asked again.
#[test]
fn a_submission_that_fails_may_have_begun() {
    let report = in_a_process("half_submitted", &[("EMUCUDA_CUFILE_HALF", "1")]);
    assert_eq!(report.number("cufile.submissions"), 1);
    assert_eq!(report.number("calls.cuFileBatchIOCancel"), 1);
    let said: Vec<&str> = report.items("errors").iter().map(|it| it.text("symbol")).collect();
    assert_eq!(said, ["cuFileBatchIOSubmit"]);
}

#[test]
#[ignore = "started by memory_that_cannot_be_registered_is_not_read_to"]
fn unregistered() {
    let (case, engine) = (tiles(Codec::Deflate, 100, true), direct(64 << 20));
    for _ in 0..2 {
        case.run(&engine, true, 2).check_exact(&case, "unregistered");
    }
    assert_eq!(count(&engine, "CUDA_TILES_DECODED"), 200);
    assert_eq!([count(&engine, "CUDA_GDS_READS"), count(&engine, "CUDA_GDS_FALLBACKS")], [0, 1]);
    assert_eq!(engine.notices().len(), 1);
}

#[test]
fn memory_that_cannot_be_registered_is_not_read_to() {
    let report = in_a_process("unregistered", &[("EMUCUDA_CUFILE_PINNED_MB", "1")]);
    assert_eq!(report.number("calls.cuFileBufRegister"), 1);
    assert_eq!(report.number("cufile.submissions"), 0);
}

#[test]
#[ignore = "started by eight_reads_are_under_way_throughout"]
fn slow_reads() {
    let case = tiles(Codec::Deflate, 256, true);
    let batch_bytes = std::env::var("GPUGTIFF_BATCH_BYTES").unwrap().parse().unwrap();
    let engine = direct(batch_bytes);
    emulator::reset();
    case.run(&engine, true, 8).check_exact(&case, "slow reads");
    assert_eq!(count(&engine, "CUDA_GDS_READS"), 256);
    let batches = count(&engine, "CUDA_BATCHES");
    assert!(if batch_bytes > 1 << 20 { batches == 1 } else { batches > 4 }, "{batches} batches");
}

/// A millisecond each: in one batch of the device's, or in several, of which the next ones are under way
/// when one is waited for.
#[test]
fn eight_reads_are_under_way_throughout() {
    for batch_bytes in ["67108864", "122880"] {
        let settings = [
            ("EMUCUDA_CUFILE_LATENCY_US", "1000"),
            ("EMUCUDA_CUFILE_WORKERS", "8"),
            ("GPUGTIFF_BATCH_BYTES", batch_bytes),
        ];
        let report = report("slow_reads", &settings);
        assert_eq!(report.number("cufile.rounds"), 32, "{batch_bytes}");
        let reads = report.items("cufile.reads");
        let mut spans: Vec<_> =
            reads.iter().map(|r| (r.number("start_ns"), r.number("end_ns"))).collect();
        spans.sort();
        let rounds: Vec<usize> = spans.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect();
        assert_eq!(rounds, [8; 32], "{batch_bytes}");
    }
}

/// A file that is not what the host reads: cuFile brings other bytes.
struct Liar {
    told: on_file::Local,
    truth: Memory,
}

impl ByteSource for Liar {
    fn len(&self) -> u64 {
        self.truth.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.truth.read_at(offset, buf)
    }

    fn concurrent(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        self.told.descriptor()
    }
}

/// In a process of its own: what is learnt of such tiles counts for all of it.
#[test]
#[ignore = "started by bytes_that_are_not_in_the_file_are_noticed"]
fn lies() {
    let case = tiles(Codec::None, 40, true);
    let other: Vec<u8> = case.file.iter().map(|byte| byte ^ 1).collect();
    let engine = emulator::try_direct(Verify::First, 64 << 20).unwrap_or_else(|no| panic!("{no}"));
    for round in 1..=2 {
        let (told, truth) = (on_file::Local::new(&other), Memory(case.file.clone()));
        let batch = Batch {
            spec: Arc::new(case.spec.clone()),
            tiles: case.jobs.clone(),
            source: Arc::new(Liar { told, truth }),
            threads: 2,
        };
        let keep = suite::Keep::default();
        assert!(engine.stage(batch).unwrap().decode(&keep).is_empty());
        assert!(*keep.0.lock().unwrap() == case.expected, "round {round}");
        assert_eq!(count(&engine, "CUDA_MISMATCHES"), 1);
        assert_eq!(count(&engine, "CUDA_GDS_READS"), 40, "only the first time");
    }
    // The device is not to blame.
    assert_eq!(count(&engine, "CUDA_TILES_DECODED"), 40);
}

#[test]
fn bytes_that_are_not_in_the_file_are_noticed() {
    report("lies", &[]);
}
