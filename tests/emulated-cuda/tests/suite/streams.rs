//! What runs when: laziness, the legacy stream, events, host functions, implicit waits.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use emulated_cuda::api::context::cuCtxSynchronize;
use emulated_cuda::api::copy::{cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};
use emulated_cuda::api::event::{
    cuEventCreate, cuEventElapsedTime, cuEventQuery, cuEventRecord, cuEventSynchronize,
};
use emulated_cuda::api::memory::{cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::api::stream::{
    cuLaunchHostFunc, cuStreamCreate, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};

use crate::case::{
    allocate, ask, download, event, isolated, ok, pattern, pinned, start, stream, upload,
};
use crate::json::Json;

/// What a pinned buffer holds after a copy out that nothing but `then` waits for.
fn copy_out_then(then: impl FnOnce(u64)) -> Vec<u8> {
    let source = upload(&[5; 64]);
    let target = pinned(64);
    target.fill(0);
    let stream = stream();
    // SAFETY: pinned memory that lives as long as the process.
    ok(unsafe { cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), source, 64, stream) });
    then(stream);
    target.to_vec()
}

#[test]
fn nothing_runs_before_somebody_waits() {
    isolated("streams::nothing_runs_before_somebody_waits", &[], || {
        start(0);
        let other = stream();
        let unseen = copy_out_then(|_| ok(cuStreamSynchronize(other)));
        assert_ne!(unseen, [5; 64]);
        // From the submission on the old content is gone too.
        assert_ne!(unseen, [0; 64]);
        assert_eq!(copy_out_then(|stream| ok(cuStreamSynchronize(stream))), [5; 64]);
        assert_eq!(copy_out_then(|_| ok(cuCtxSynchronize())), [5; 64]);
        let mark = event();
        let seen = copy_out_then(|stream| {
            ok(cuEventRecord(mark, stream));
            ok(cuEventSynchronize(mark));
        });
        assert_eq!(seen, [5; 64]);
    });
}

#[test]
fn pinned_input_is_read_late_and_pageable_input_at_once() {
    let name = "streams::pinned_input_is_read_late_and_pageable_input_at_once";
    let finished = isolated(name, &[], || {
        start(0);
        let stream = stream();
        let (one, two) = (allocate(64), allocate(64));
        let late = pinned(64);
        late.fill(1);
        let mut early = [1u8; 64];
        // SAFETY: the pinned memory lives as long as the process, the other is copied.
        unsafe {
            ok(cuMemcpyHtoDAsync_v2(one, late.as_ptr().cast(), 64, stream));
            ok(cuMemcpyHtoDAsync_v2(two, early.as_ptr().cast(), 64, stream));
        }
        late.fill(2);
        early.fill(2);
        ok(cuStreamSynchronize(stream));
        assert_eq!(download(one, 64), Ok(vec![2; 64]));
        assert_eq!(download(two, 64), Ok(vec![1; 64]));
        let mut pageable = vec![0u8; 64];
        // SAFETY: a pageable copy is done when it returns.
        ok(unsafe { cuMemcpyDtoHAsync_v2(pageable.as_mut_ptr().cast(), two, 64, stream) });
        assert_eq!(pageable, [1; 64]);
        ok(cuMemFree_v2(one));
    });
    let implicit: Vec<&str> = finished.report.items("syncs").iter().filter_map(implicit).collect();
    let expected = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemFree_v2"];
    assert_eq!(implicit, expected);
}

fn implicit(sync: &Json) -> Option<&str> {
    (*sync.at("explicit") == Json::Boolean(false)).then(|| sync.text("symbol"))
}

#[test]
fn the_legacy_stream_orders_blocking_streams_only() {
    let name = "streams::the_legacy_stream_orders_blocking_streams_only";
    isolated(name, &[], || {
        start(0);
        // A blocking stream's work comes before later work of the legacy stream.
        for (flags, ordered) in [(0, true), (1, false)] {
            let memory = upload(&[1; 16]);
            let other = ask(|place| cuStreamCreate(place, flags)).unwrap();
            ok(cuMemsetD8Async(memory, 2, 16, other));
            assert_eq!(download(memory, 16) == Ok(vec![2; 16]), ordered);
        }
        // And work of the legacy stream before later work of a blocking one.
        for (flags, ordered) in [(0, true), (1, false)] {
            let memory = upload(&[1; 16]);
            let other = ask(|place| cuStreamCreate(place, flags)).unwrap();
            ok(cuMemsetD8Async(memory, 2, 16, 0));
            let target = pinned(16);
            // SAFETY: pinned memory that lives as long as the process.
            ok(unsafe { cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), memory, 16, other) });
            ok(cuStreamSynchronize(other));
            assert_eq!(target == [2; 16], ordered);
        }
        // The per-thread stream is a blocking one, and another one in each thread.
        let memory = upload(&[1; 16]);
        ok(cuMemsetD8Async(memory, 2, 16, 2));
        assert_eq!(cuStreamQuery(2), 600);
        assert_eq!(download(memory, 16), Ok(vec![2; 16]));
        ok(cuStreamQuery(2));
    });
}

#[test]
fn waits_bind_to_the_last_record_before_them() {
    isolated("streams::waits_bind_to_the_last_record_before_them", &[], || {
        start(0);
        let (one, two) = (stream(), stream());
        let mark = event();
        let memory = upload(&[0; 16]);
        // A wait for an event that was never recorded is none.
        ok(cuStreamWaitEvent(two, mark, 0));
        ok(cuMemsetD8Async(memory, 1, 16, one));
        ok(cuEventRecord(mark, one));
        ok(cuStreamWaitEvent(two, mark, 0));
        // Recorded again after the wait: the wait does not move.
        ok(cuMemsetD8Async(memory, 2, 16, one));
        ok(cuEventRecord(mark, one));
        let target = pinned(16);
        // SAFETY: pinned memory that lives as long as the process.
        ok(unsafe { cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), memory, 16, two) });
        ok(cuStreamSynchronize(two));
        assert_eq!(target, [1; 16]);
        assert_eq!(cuEventQuery(mark), 600);
        ok(cuStreamSynchronize(one));
        ok(cuEventQuery(mark));
        assert_eq!(download(memory, 16), Ok(vec![2; 16]));
    });
}

#[test]
fn pollers_come_to_an_end() {
    isolated("streams::pollers_come_to_an_end", &[], || {
        start(0);
        let (mark, stream) = (event(), stream());
        let memory = allocate(16);
        ok(cuMemsetD8Async(memory, 1, 16, stream));
        ok(cuEventRecord(mark, stream));
        let codes: Vec<u32> = (0..4).map(|_| cuEventQuery(mark)).collect();
        assert_eq!(codes, [600, 600, 0, 0]);
    });
}

#[test]
fn elapsed_times_are_modelled() {
    let finished = isolated("streams::elapsed_times_are_modelled", &[], || {
        start(0);
        let stream = stream();
        let [before, after] = [0, 0].map(|flags| ask(|place| cuEventCreate(place, flags)).unwrap());
        let memory = allocate(25_000_000);
        let source = pinned(25_000_000);
        ok(cuEventRecord(before, stream));
        // SAFETY: pinned memory that lives as long as the process.
        ok(unsafe { cuMemcpyHtoDAsync_v2(memory, source.as_ptr().cast(), 25_000_000, stream) });
        ok(cuEventRecord(after, stream));
        assert_eq!(ask(|place| cuEventElapsedTime(place, before, after)), Err(600));
        ok(cuStreamSynchronize(stream));
        // One millisecond at 25 GB/s, and some microseconds to get going.
        let time = ask(|place| cuEventElapsedTime(place, before, after)).unwrap();
        assert!((1.0..1.1).contains(&time), "{time}");
        let without = event();
        ok(cuEventRecord(without, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(ask(|place| cuEventElapsedTime(place, before, without)), Err(400));
    });
    let timeline = finished.report.items("timeline");
    let copy = timeline.iter().find(|line| line.text("kind") == "H2D").unwrap();
    assert_eq!(copy.number("bytes"), 25_000_000);
    assert!(copy.number("end_ns") - copy.number("start_ns") >= 1_000_000);
}

static CALLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn called(argument: *mut c_void) {
    // A host function may make no driver calls.
    assert_eq!(emulated_cuda::api::context::cuCtxSynchronize(), 800);
    CALLED.fetch_add(argument as u32, Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_the_order_of_their_stream() {
    isolated("streams::host_functions_run_in_the_order_of_their_stream", &[], || {
        start(0);
        let stream = stream();
        ok(cuLaunchHostFunc(stream, Some(called), 41 as *mut c_void));
        assert_eq!(CALLED.load(Ordering::SeqCst), 0);
        ok(cuStreamSynchronize(stream));
        assert_eq!(CALLED.load(Ordering::SeqCst), 41);
    });
}

#[test]
fn a_read_that_must_come_first_keeps_its_source() {
    isolated("streams::a_read_that_must_come_first_keeps_its_source", &[], || {
        start(0);
        let stream = stream();
        let memory = allocate(64);
        let buffer = pinned(64);
        buffer.copy_from_slice(&pattern(4, 64));
        // SAFETY: pinned memory that lives as long as the process.
        unsafe {
            ok(cuMemcpyHtoDAsync_v2(memory, buffer.as_ptr().cast(), 64, stream));
            ok(cuMemcpyDtoHAsync_v2(buffer.as_mut_ptr().cast(), memory, 64, stream));
        }
        ok(cuStreamSynchronize(stream));
        assert_eq!(buffer, pattern(4, 64));
    });
}
