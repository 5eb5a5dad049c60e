//! A case in a process of its own, and the calls that most cases make.

use std::mem::MaybeUninit;
use std::process::Command;

use emulated_cuda::Place;
use emulated_cuda::api::context::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain};
use emulated_cuda::api::copy::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use emulated_cuda::api::device::cuInit;
use emulated_cuda::api::event::cuEventCreate;
use emulated_cuda::api::memory::cuMemAlloc_v2;
use emulated_cuda::api::pinned::cuMemHostAlloc;
use emulated_cuda::api::stream::cuStreamCreate;

use crate::json::Json;

const DONE: &str = "the case is done";

/// What a case left.
pub(crate) struct Finished {
    /// False in the child of another case of the same test, where there is nothing to check.
    pub(crate) ran: bool,
    pub(crate) output: String,
    pub(crate) report: Json,
}

/// Runs `body` in a child process with these settings. `name` is the path of the test, which
/// may have several cases if their settings differ.
pub(crate) fn isolated(name: &str, settings: &[(&str, &str)], body: impl FnOnce()) -> Finished {
    let key = format!("{name}{settings:?}");
    if let Ok(case) = std::env::var("EMUCUDA_CASE") {
        if case != key {
            return Finished { ran: false, output: String::new(), report: Json::Null };
        }
        body();
        println!("{DONE}");
        // Without a return: the harness must not add to what the report says.
        std::process::exit(0);
    }
    let settings_text: String = settings.iter().map(|(_, value)| *value).collect();
    let file = format!("{}-{settings_text}.json", name.replace("::", "-")).replace([':', '/'], "_");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let _ = std::fs::remove_file(&path);
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("EMUCUDA_CASE", key).env("EMUCUDA_REPORT", &path).env_remove("EMUCUDA_SEED");
    command.env_remove("CUDA_VISIBLE_DEVICES").env("CUFILE_LOGFILE_PATH", "/dev/null");
    for (key, value) in settings {
        let is_own = !["CUDA_", "LD_", "CUFILE_LOGFILE_PATH", "CUFILE_FORCE"]
            .iter()
            .any(|prefix| key.starts_with(prefix));
        let key = if is_own { format!("EMUCUDA_{key}") } else { key.to_string() };
        command.env(key, value);
    }
    let result = command.output().expect("the test's own executable");
    let output = String::from_utf8_lossy(&result.stdout).into_owned()
        + &String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success() && output.contains(DONE), "{name} {settings:?}:\n{output}");
    let report = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    Finished { ran: true, output, report: Json::parse(&report) }
}

/// The result of a call that stores one, or its code.
pub(crate) fn ask<T>(call: impl FnOnce(Place<'_, T>) -> u32) -> Result<T, u32> {
    let mut place = MaybeUninit::uninit();
    match call(Some(&mut place)) {
        // SAFETY: a call that succeeds has stored its result.
        0 => Ok(unsafe { place.assume_init() }),
        code => Err(code),
    }
}

/// That a call succeeded.
#[track_caller]
pub(crate) fn ok(code: u32) {
    assert_eq!(code, 0);
}

/// Initialises the driver and makes a device's primary context current.
pub(crate) fn start(device: i32) -> u64 {
    ok(cuInit(0));
    let context = ask(|place| cuDevicePrimaryCtxRetain(place, device)).unwrap();
    ok(cuCtxSetCurrent(context));
    context
}

pub(crate) fn allocate(bytes: usize) -> u64 {
    ask(|place| cuMemAlloc_v2(place, bytes)).unwrap()
}

/// Pinned memory that lives as long as the process.
pub(crate) fn pinned(bytes: usize) -> &'static mut [u8] {
    let start = ask(|place| cuMemHostAlloc(place, bytes, 0)).unwrap();
    // SAFETY: that many bytes of ours, never freed by the cases that use this.
    unsafe { std::slice::from_raw_parts_mut(start as *mut u8, bytes) }
}

/// A stream that does not care for the legacy one.
pub(crate) fn stream() -> u64 {
    ask(|place| cuStreamCreate(place, 1)).unwrap()
}

pub(crate) fn event() -> u64 {
    ask(|place| cuEventCreate(place, 2)).unwrap()
}

/// New device memory that holds the bytes.
pub(crate) fn upload(bytes: &[u8]) -> u64 {
    let pointer = allocate(bytes.len().max(1));
    // SAFETY: the slice is that long.
    ok(unsafe { cuMemcpyHtoD_v2(pointer, bytes.as_ptr().cast(), bytes.len()) });
    pointer
}

/// What device memory holds, or the code that came instead.
pub(crate) fn download(pointer: u64, bytes: usize) -> Result<Vec<u8>, u32> {
    let mut copy = vec![0; bytes];
    // SAFETY: the vector is that long.
    match unsafe { cuMemcpyDtoH_v2(copy.as_mut_ptr().cast(), pointer, bytes) } {
        0 => Ok(copy),
        code => Err(code),
    }
}

/// Bytes that differ between seeds.
pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * 7 + index / 251) as u8 ^ seed.wrapping_mul(37)).collect()
}
