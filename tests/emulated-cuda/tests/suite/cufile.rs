//! cuFile: what reads bring, in which order they are reported, and what time they take.

use std::fs::File;
use std::os::fd::AsRawFd;

use emulated_cuda::cufile::api::{
    cuFileBatchIODestroy, cuFileBatchIOGetStatus, cuFileBatchIOSetUp, cuFileBatchIOSubmit,
    cuFileBufDeregister, cuFileBufRegister, cuFileDriverClose_v2, cuFileDriverGetProperties,
    cuFileDriverOpen, cuFileGetParameterBool, cuFileGetParameterSizeT, cuFileGetVersion,
    cuFileHandleDeregister, cuFileHandleRegister, cuFileRead, cuFileSetParameterBool,
    cuFileSetParameterSizeT, cuFileUseCount,
};
use emulated_cuda::cufile::{CUfileDescr, CUfileError, CUfileIOEvents, CUfileIOParams};

use crate::case::{allocate, ask, download, isolated, pattern, start};
use crate::json::Json;

pub(crate) const FILE_BYTES: usize = 300_000;

pub(crate) const COMPLETE: u32 = 0x10;

#[track_caller]
pub(crate) fn done(error: CUfileError) {
    assert_eq!((error.err, error.cu_err), (0, 0));
}

/// A file of a pattern, which the process keeps open.
pub(crate) fn file() -> (&'static File, Vec<u8>) {
    let bytes = pattern(9, FILE_BYTES);
    let path = std::env::temp_dir().join(format!("emulated-cufile-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let file = Box::leak(Box::new(File::open(&path).unwrap()));
    std::fs::remove_file(path).unwrap();
    (file, bytes)
}

pub(crate) fn describe(file: &File) -> CUfileDescr {
    CUfileDescr { kind: 1, fd: i64::from(file.as_raw_fd()), operations: 0 }
}

pub(crate) fn register(file: &File) -> Result<u64, u32> {
    let descr = describe(file);
    ask(|place| cuFileHandleRegister(place, Some(&descr)).err)
}

/// An open driver, a file and its handle.
pub(crate) fn open() -> (u64, Vec<u8>) {
    start(0);
    done(cuFileDriverOpen());
    let (file, bytes) = file();
    (register(file).unwrap(), bytes)
}

pub(crate) fn set_up(entries: u32) -> Result<u64, u32> {
    ask(|place| cuFileBatchIOSetUp(place, entries).err)
}

/// A read of a batch; its cookie is its offset in the file.
pub(crate) fn entry(file: u64, base: u64, offset: usize, at: usize, size: usize) -> CUfileIOParams {
    CUfileIOParams {
        mode: 1,
        base,
        file_offset: offset as i64,
        base_offset: at as i64,
        size,
        file,
        opcode: 0,
        cookie: offset,
    }
}

pub(crate) fn submit(batch: u64, entries: &[CUfileIOParams]) -> u32 {
    // SAFETY: the slice is that long.
    unsafe { cuFileBatchIOSubmit(batch, entries.len() as u32, entries.as_ptr(), 0) }.err
}

/// What is done of a batch, or a code.
pub(crate) fn events(batch: u64, least: u32, most: u32) -> Result<Vec<CUfileIOEvents>, u32> {
    timed(batch, least, most, None)
}

fn timed(
    batch: u64,
    least: u32,
    most: u32,
    timeout: Option<&libc::timespec>,
) -> Result<Vec<CUfileIOEvents>, u32> {
    let mut events = vec![CUfileIOEvents { cookie: 0, status: 0, ret: 0 }; most as usize];
    let mut count = most;
    let place = events.as_mut_ptr();
    // SAFETY: room for so many events.
    match unsafe { cuFileBatchIOGetStatus(batch, least, Some(&mut count), place, timeout) }.err {
        0 => {
            events.truncate(count as usize);
            Ok(events)
        }
        code => Err(code),
    }
}

const TILE: usize = 1000;

/// Reads of 256 tiles in a scattered order, in batches of 128, all submitted up front.
fn scattered(file: u64, target: u64) -> Vec<u64> {
    let tiles: Vec<usize> = (0..256).map(|tile| tile * 77 % 256).collect();
    let batch = |tiles: &[usize]| {
        let batch = set_up(128).unwrap();
        let entries: Vec<_> =
            tiles.iter().map(|tile| entry(file, target, tile * TILE, tile * TILE, TILE)).collect();
        assert_eq!(submit(batch, &entries), 0);
        batch
    };
    tiles.chunks(128).map(batch).collect()
}

#[test]
fn a_batch_brings_all_bytes_in_any_order() {
    let mut orders = Vec::new();
    for seed in ["1", "2", "3"] {
        let name = "cufile::a_batch_brings_all_bytes_in_any_order";
        let finished = isolated(name, &[("SEED", seed)], || {
            let (file, bytes) = open();
            let target = allocate(256 * TILE);
            done(cuFileBufRegister(target, 256 * TILE, 0));
            let mut order = Vec::new();
            let batches = scattered(file, target);
            for batch in &batches {
                let mut left = 128;
                while left > 0 {
                    let found = events(*batch, 1, 50).unwrap();
                    assert!((1..=50).contains(&found.len()));
                    left -= found.len();
                    for event in found {
                        assert_eq!((event.status, event.ret), (COMPLETE, TILE as isize));
                        order.push(event.cookie);
                    }
                }
                assert_eq!(events(*batch, 0, 1), Ok(Vec::new()));
                cuFileBatchIODestroy(*batch);
            }
            println!("order {order:?}");
            order.sort_unstable();
            assert_eq!(order, (0..256).map(|tile| tile * TILE).collect::<Vec<_>>());
            assert_eq!(download(target, 256 * TILE).unwrap(), bytes[..256 * TILE]);
            done(cuFileBufDeregister(target));
            cuFileHandleDeregister(file);
            done(cuFileDriverClose_v2());
        });
        if !finished.ran {
            continue;
        }
        orders.push(
            finished.output.lines().find(|line| line.contains("order [")).unwrap().to_owned(),
        );
        let report = &finished.report;
        assert!(report.items("errors").is_empty());
        assert_eq!(report.number("cufile.rounds"), 32);
        assert_eq!(report.number("cufile.simulated_ns"), 32_000_000);
        assert_eq!(report.number("cufile.in_flight_peak"), 256);
        assert_eq!(report.number("cufile.submissions"), 2);
        assert_eq!(report.number("cufile.bytes"), 256 * TILE as u64);
        assert_eq!(report.number("cufile.unregistered"), 0);
        let reads = report.items("cufile.reads");
        let asked = reads.iter().map(|read| read.number("asked")).min().unwrap();
        assert!(reads.iter().all(|read| read.number("submitted") < asked));
        assert!(reads.iter().all(|read| read.text("status") == "complete"));
        let on_timeline = |line: &&Json| line.text("kind") == "cufile";
        assert_eq!(report.items("timeline").iter().filter(on_timeline).count(), 256);
        for kind in ["open", "handles", "buffers", "batches"] {
            assert_eq!(report.number(&format!("leaks.cufile_{kind}")), 0);
        }
    }
    assert!(orders.is_empty() || (orders[0] != orders[1] && orders[1] != orders[2]));
}

#[test]
fn what_ends_at_once_is_reported_in_any_order() {
    isolated("cufile::what_ends_at_once_is_reported_in_any_order", &[], || {
        let (file, _) = open();
        let target = allocate(8 * TILE);
        let batch = set_up(8).unwrap();
        for tile in 0..8 {
            assert_eq!(submit(batch, &[entry(file, target, tile * TILE, tile * TILE, TILE)]), 0);
        }
        let order: Vec<usize> =
            events(batch, 8, 8).unwrap().iter().map(|event| event.cookie / TILE).collect();
        assert_ne!(order, (0..8).collect::<Vec<_>>());
    });
}

#[test]
fn reads_one_by_one_take_a_round_each() {
    let finished = isolated("cufile::reads_one_by_one_take_a_round_each", &[], || {
        let (file, bytes) = open();
        let target = allocate(FILE_BYTES);
        for tile in 0..256 {
            let at = (tile * TILE) as i64;
            assert_eq!(cuFileRead(file, target, TILE, at, at), TILE as isize);
        }
        assert_eq!(download(target, 256 * TILE).unwrap(), bytes[..256 * TILE]);
    });
    assert_eq!(finished.report.number("cufile.rounds"), 256);
    assert_eq!(finished.report.number("cufile.unregistered"), 256);
    assert_eq!(finished.report.number("cufile.in_flight_peak"), 1);
    assert_eq!(finished.report.number("leaks.cufile_handles"), 1);
    assert_eq!(finished.report.number("leaks.cufile_open"), 1);
}

#[test]
fn threads_that_read_one_by_one_overlap() {
    let name = "cufile::threads_that_read_one_by_one_overlap";
    let finished = isolated(name, &[("CUFILE_SLEEP_US", "500")], || {
        let (file, _) = open();
        let target = allocate(FILE_BYTES);
        let context = ask(|place| emulated_cuda::api::context::cuCtxGetCurrent(place)).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..8 {
                scope.spawn(move || {
                    crate::case::ok(emulated_cuda::api::context::cuCtxSetCurrent(context));
                    for tile in 0..32 {
                        let at = ((tile * 8 + worker) * TILE) as i64;
                        assert_eq!(cuFileRead(file, target, TILE, at, at), TILE as isize);
                    }
                });
            }
        });
    });
    assert_eq!(finished.report.number("cufile.rounds"), 32);
    assert!(finished.report.number("cufile.in_flight_peak") > 1);
}

#[test]
fn the_end_of_the_file_is_short_and_beyond_it_is_nothing() {
    isolated("cufile::the_end_of_the_file_is_short_and_beyond_it_is_nothing", &[], || {
        let (file, bytes) = open();
        let target = allocate(1000);
        assert_eq!(cuFileRead(file, target, 1000, FILE_BYTES as i64 - 10, 0), 10);
        let found = download(target, 1000).unwrap();
        assert_eq!(found[..10], bytes[FILE_BYTES - 10..]);
        assert_eq!(cuFileRead(file, target, 1000, FILE_BYTES as i64, 0), 0);
        let batch = set_up(1).unwrap();
        assert_eq!(submit(batch, &[entry(file, target, FILE_BYTES - 7, 0, 100)]), 0);
        assert_eq!(events(batch, 1, 1).unwrap()[0].ret, 7);
    });
}

#[test]
fn asking_without_waiting_comes_to_an_end() {
    isolated("cufile::asking_without_waiting_comes_to_an_end", &[], || {
        let (file, _) = open();
        let target = allocate(1000);
        let batch = set_up(2).unwrap();
        let entries = [entry(file, target, 0, 0, 500), entry(file, target, 500, 500, 500)];
        assert_eq!(submit(batch, &entries), 0);
        assert_eq!(events(batch, 0, 2), Ok(Vec::new()));
        let short = libc::timespec { tv_sec: 0, tv_nsec: 1000 };
        assert_eq!(timed(batch, 2, 2, Some(&short)), Ok(Vec::new()));
        let mut found = 0;
        for _ in 0..10 {
            found += events(batch, 0, 2).unwrap().len();
        }
        assert_eq!(found, 2);
    });
}

#[test]
fn a_log_appears_where_nobody_says_otherwise() {
    isolated("cufile::a_log_appears_where_nobody_says_otherwise", &[], || {
        let place =
            std::env::temp_dir().join(format!("emulated-cufile-log-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        std::env::set_current_dir(&place).unwrap();
        // SAFETY: no other thread looks at the environment.
        unsafe { std::env::remove_var("CUFILE_LOGFILE_PATH") };
        start(0);
        assert!(!place.join("cufile.log").exists());
        done(cuFileDriverOpen());
        assert!(place.join("cufile.log").exists());
        std::fs::remove_dir_all(place).unwrap();
    });
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("another.log");
    let _ = std::fs::remove_file(&path);
    let setting = ("CUFILE_LOGFILE_PATH", path.to_str().unwrap());
    let name = "cufile::a_log_appears_where_nobody_says_otherwise";
    let finished = isolated(name, &[setting], || {
        start(0);
        done(cuFileDriverOpen());
    });
    if finished.ran {
        assert!(path.exists());
        assert_eq!(finished.report.text("cufile.log"), setting.1);
    }
}

#[test]
fn compatibility_mode_is_told() {
    let name = "cufile::compatibility_mode_is_told";
    let cases: [&[(&str, &str)]; 3] =
        [&[], &[("CUFILE", "compat")], &[("CUFILE_FORCE_COMPAT_MODE", "true")]];
    for (index, settings) in cases.into_iter().enumerate() {
        isolated(name, settings, || {
            let (file, bytes) = open();
            let found = ask(|place| cuFileDriverGetProperties(place).err).unwrap();
            assert_eq!((found.max_direct_io_size, found.max_batch_io_size), (16384, 128));
            let told = (found.major, found.minor, found.status_flags);
            assert_eq!(told == (0, 0, 0), index > 0);
            let forced = ask(|place| cuFileGetParameterBool(2, place).err);
            assert_eq!(forced, Ok(index == 2));
            // It reads all the same.
            let target = allocate(100);
            assert_eq!(cuFileRead(file, target, 100, 5, 0), 100);
            assert_eq!(download(target, 100).unwrap(), bytes[5..105]);
        });
    }
}

#[test]
fn parameters_are_set_before_the_driver_is_open() {
    isolated("cufile::parameters_are_set_before_the_driver_is_open", &[], || {
        start(0);
        assert_eq!(ask(|place| cuFileGetVersion(place).err), Ok(1140));
        done(cuFileSetParameterSizeT(5, 64));
        done(cuFileSetParameterBool(2, true));
        assert_eq!(cuFileSetParameterSizeT(9, 129).err, 5022);
        done(cuFileDriverOpen());
        assert_eq!(cuFileSetParameterSizeT(5, 128).err, 5026);
        assert_eq!(ask(|place| cuFileGetParameterSizeT(5, place).err), Ok(64));
        let found = ask(|place| cuFileDriverGetProperties(place).err).unwrap();
        assert_eq!((found.major, found.max_direct_io_size), (0, 64));
        done(cuFileDriverOpen());
        assert_eq!(cuFileUseCount(), 2);
        done(cuFileDriverClose_v2());
        done(cuFileDriverClose_v2());
        assert_eq!(cuFileDriverClose_v2().err, 5001);
    });
}
