//! The n-th call fails, for every n: over all calls to the driver and to nvCOMP of a read and of a
//! write, with every code that is plausible there. Each case is a process of its own on the emulated
//! driver. The pixels are right, or there is a clean error; nothing hangs, crashes or leaks, and
//! after a fault that sticks nothing is called any more.

#[path = "../engine/emulator.rs"]
#[allow(dead_code)]
mod emulator;
#[path = "../engine/on_file.rs"]
#[allow(dead_code)]
mod on_file;

mod ashore;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Out of memory, not ready, an error that passes, and two that stick.
const CUDA_CODES: [i32; 5] = [2, 46, 999, 700, 719];
/// Invalid value, cannot decompress, a CUDA error behind it.
const NVCOMP_CODES: [i32; 3] = [10, 12, 1000];
/// Not supported on this file, an internal error.
const CUFILE_CODES: [i32; 2] = [5008, 5030];
const STICKY: [i32; 2] = [700, 719];
const PATIENCE: Duration = Duration::from_secs(60);

/// What a child printed.
struct Outcome {
    line: String,
    /// Calls that may fail.
    calls: usize,
    report: String,
    status: Option<i32>,
}

fn run(what: &str, fail: Option<(usize, i32)>) -> Outcome {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let child = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("gpugtiff-faults-{}-{child}.json", std::process::id());
    let report = std::env::temp_dir().join(name);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture"]);
    command.env("GPUGTIFF_FAULTS", what).env("EMUCUDA_REPORT", &report);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command.env("GPUGTIFF_NVCOMP", emulator::path());
    if let Some((n, code)) = fail {
        // A program that calls the driver itself says from when on calls count.
        let name = if what == "ashore" { "GPUGTIFF_FAULTS_FAIL" } else { "EMUCUDA_FAIL" };
        command.env(name, format!("{n}:{code}"));
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{what} {fail:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    let said = |what: &str| {
        let line = out.lines().find_map(|line| line.split_once(what));
        line.map(|(_, said)| said.to_string())
    };
    let errors = String::from_utf8_lossy(&done.stderr);
    let line = said("outcome: ").unwrap_or_else(|| panic!("{what} {fail:?}: {out}{errors}"));
    let report = take(&report);
    let calls = said("calls: ").map(|calls| calls.parse().unwrap());
    let calls = calls.unwrap_or_else(|| number(&report, "total_calls"));
    Outcome { line, calls, report, status: done.status.code() }
}

fn take(path: &PathBuf) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    text
}

/// The number behind a key of the report's top level.
fn number(report: &str, key: &str) -> usize {
    let at = report.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {report}"));
    let rest = report[at + key.len() + 3..].trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The text from a key to the end of its value's brackets.
fn section<'a>(report: &'a str, key: &str) -> &'a str {
    let at = report.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {report}"));
    let rest = report[at + key.len() + 3..].trim_start();
    let mut depth = 0;
    for (i, c) in rest.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return &rest[..=i];
                }
            }
            _ => {}
        }
    }
    rest
}

fn check(what: &str, (n, code): (usize, i32), outcome: &Outcome, calm: &Outcome) {
    let context = format!("{what}, call {n} fails with {code}: {}", outcome.line);
    assert_eq!(outcome.status, Some(0), "{context}");
    let injected = section(&outcome.report, "injected");
    assert!(injected.contains("\"symbol\""), "{context}: the call was not reached");
    let good = ["exact", "refused", "error"].iter().any(|word| outcome.line.starts_with(word));
    assert!(good, "{context}");
    let sticky = STICKY.contains(&code);
    let program = what == "ashore" && injected.contains("nvcomp");
    if sticky && (injected.contains("nvjpeg2k") || program) {
        // The device is lost, and the library says a number of its own: what was made stays, and what
        // the program has.
        return;
    }
    if sticky && !injected.contains("nvcomp") {
        let after = section(&outcome.report, "calls_after_fault");
        // The caller's context comes back even then: it may be another device's.
        let others = after.matches("\":").count() - after.matches("cuCtxSetCurrent").count();
        assert_eq!(others, 0, "{context}: {after}");
    } else {
        // The arena is the process's: one piece of each kind of memory, and nothing on its way.
        let leaks = section(&outcome.report, "leaks");
        for kind in ["device", "pinned"] {
            let live = leaks.matches(&format!("\"kind\":\"{kind}\"")).count();
            // What the driver would not take back is not ours to lose.
            let refused = usize::from(injected.contains("Free"));
            // Reads that nobody could ask about, for want of a context too, or that may have begun keep
            // what they may come to.
            let is_one_of = |calls: &[&str]| calls.iter().any(|call| injected.contains(call));
            let unasked = is_one_of(&["cuFileBatchIOGetStatus", "cuFileBatchIOSubmit", "cuCtx"]);
            let refused = refused + usize::from(what == "direct" && unasked && kind == "device");
            // So does a state that could not be destroyed.
            let kept = is_one_of(&["nvjpeg2kDecodeStateDestroy", "cuCtx"]);
            let refused = refused + usize::from(what == "jpeg2000" && kept);
            // nvJPEG2000 has page-locked memory of its own.
            let refused = refused + usize::from(what == "jpeg2000" && kind == "pinned");
            assert!(live <= 1 + refused, "{context}: {leaks}");
        }
        for kind in ["streams", "events"] {
            let most = number(section(&calm.report, "leaks"), kind);
            let refused = usize::from(injected.contains("Destroy"));
            assert!(number(leaks, kind) <= most + refused, "{context}: {leaks}");
        }
        assert_eq!(number(leaks, "pending_operations"), 0, "{context}: {leaks}");
    }
}

fn sweep(what: &str) {
    let calm = run(what, None);
    assert_eq!(calm.line, "exact", "{}", calm.report);
    let calls = calm.calls;
    // All begin alike: those calls fail once.
    let first = match what {
        "start" | "ashore" => 1,
        _ => 1 + run("start", None).calls,
    };
    let codes = &codes(what);
    let cases: Vec<(usize, i32)> =
        (first..=calls).flat_map(|n| codes.iter().map(move |&code| (n, code))).collect();
    let outcomes: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let (next, tried) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(&(n, code)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !chosen(codes, n, code) {
                        continue;
                    }
                    let outcome = run(what, Some((n, code)));
                    check(what, (n, code), &outcome, &calm);
                    tried.fetch_add(1, Ordering::Relaxed);
                    let word = outcome.line.split(':').next().unwrap().to_string();
                    *outcomes.lock().unwrap().entry(word).or_default() += 1;
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    println!(
        "{what}: calls {first} to {calls}, {} failures injected: {outcomes:?}",
        tried.into_inner()
    );
}

/// How calls may fail.
fn codes(what: &str) -> Vec<i32> {
    let cufile = if what == "direct" { &CUFILE_CODES[..] } else { &[] };
    CUDA_CODES.iter().chain(&NVCOMP_CODES).chain(cufile).copied().collect()
}

/// Each call fails in one way, which changes from call to call; in all of them with
/// GPUGTIFF_FAULTS_ALL.
fn chosen(codes: &[i32], n: usize, code: i32) -> bool {
    if std::env::var_os("GPUGTIFF_FAULTS_ALL").is_some() {
        return true;
    }
    let at = codes.iter().position(|&c| c == code).unwrap();
    at == n % codes.len()
}

#[test]
fn every_call_of_the_start_may_fail() {
    sweep("start");
}

#[test]
fn every_call_of_a_read_may_fail() {
    sweep("read");
}

/// From a file, past the host.
#[test]
fn every_call_of_a_direct_read_may_fail() {
    sweep("direct");
}

/// Through nvJPEG2000, which is started by it.
#[test]
fn every_call_of_a_jpeg2000_read_may_fail() {
    sweep("jpeg2000");
}

#[test]
fn every_call_of_a_write_may_fail() {
    sweep("write");
}

/// By the C API, into memory of the caller's and into tensors.
#[test]
fn every_call_of_a_read_to_the_device_may_fail() {
    sweep("ashore");
}

/// What the other tests start in a process of its own.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let Ok(what) = std::env::var("GPUGTIFF_FAULTS") else { return };
    let fail = std::env::var("GPUGTIFF_FAULTS_FAIL").unwrap_or_default();
    let outcome = match what.as_str() {
        "ashore" => ashore::outcome(&fail, STICKY.iter().any(|c| fail.ends_with(&format!(":{c}")))),
        _ => work::outcome(&what),
    };
    println!("outcome: {outcome}");
}
