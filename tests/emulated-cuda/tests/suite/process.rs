//! Forked children and processes that exit.

use std::sync::atomic::{AtomicU64, Ordering};

use emulated_cuda::api::context::cuCtxSynchronize;
use emulated_cuda::api::device::{cuDriverGetVersion, cuInit};
use emulated_cuda::api::memory::cuMemFree_v2;

use crate::case::{allocate, ask, isolated, ok, start};

/// Forks; whether the child's codes were these.
pub(crate) fn child_answers(codes: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only makes the calls under test and leaves.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let answer = codes();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(if answer { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn a_forked_child_is_not_initialised() {
    let finished = isolated("process::a_forked_child_is_not_initialised", &[], || {
        // Before cuInit a child may start a driver of its own.
        assert!(child_answers(|| cuInit(0) == 0));
        start(0);
        let memory = allocate(100);
        assert!(child_answers(|| {
            cuInit(0) == 3
                && cuMemFree_v2(memory) == 3
                && cuCtxSynchronize() == 3
                && ask(|place| cuDriverGetVersion(place)) == Err(3)
        }));
        // The parent's memory is untouched.
        ok(cuMemFree_v2(memory));
        let list = std::env::var("EMUCUDA_REPORT").unwrap() + ".forked";
        let list = std::fs::read_to_string(list).unwrap();
        assert!(list.contains("cuMemFree_v2"), "{list}");
    });
    assert!(finished.report.items("leaks.allocations").is_empty());
    assert_eq!(finished.report.number("calls.cuMemFree_v2"), 1);
}

static MEMORY: AtomicU64 = AtomicU64::new(0);

extern "C" fn late() {
    println!("late: {} {}", cuMemFree_v2(MEMORY.load(Ordering::SeqCst)), cuInit(0));
}

#[test]
fn calls_after_exit_began_get_4() {
    let finished = isolated("process::calls_after_exit_began_get_4", &[], || {
        // Registered before the driver starts, so that it runs after the driver's end.
        // SAFETY: a function of this program.
        unsafe { libc::atexit(late) };
        start(0);
        MEMORY.store(allocate(100), Ordering::SeqCst);
    });
    assert!(finished.output.contains("late: 4 4"), "{}", finished.output);
    assert_eq!(finished.report.number("calls_after_exit"), 2);
    let leaks = finished.report.items("leaks.allocations");
    assert_eq!(leaks.len(), 1);
    assert_eq!(leaks[0].number("bytes"), 100);
    assert_eq!(finished.report.number("leaks.primary_contexts"), 1);
}

#[test]
fn an_exit_while_another_thread_works_does_not_hang() {
    isolated("process::an_exit_while_another_thread_works_does_not_hang", &[], || {
        let context = start(0);
        std::thread::spawn(move || {
            ok(emulated_cuda::api::context::cuCtxSetCurrent(context));
            while cuCtxSynchronize() == 0 {}
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
    });
}

#[test]
fn a_library_is_absent_where_it_is_not_linked() {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("links");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.sh");
    let links = |more: &[&str]| {
        let mut command = std::process::Command::new(script);
        command.arg(std::env::current_exe().unwrap()).arg(&place).args(more);
        assert!(command.status().unwrap().success());
        let names = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let all = links(&[]);
    assert_eq!(all.len(), 6);
    let fewer = links(&["--without", "libcufile.so.0", "--without", "libnvjpeg2k.so.0"]);
    let left = |name: &&String| !name.starts_with("libcufile") && !name.starts_with("libnvjpeg2k");
    assert_eq!(fewer, all.iter().filter(left).cloned().collect::<Vec<_>>());
    assert_eq!(links(&[]), all);
}
