//! The report: that it says what happened.

use emulated_cuda::api::copy::cuMemcpyHtoDAsync_v2;
use emulated_cuda::api::event::{cuEventRecord, cuEventSynchronize};
use emulated_cuda::api::memory::{cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::api::settings::{emucudaReport, emucudaReset};
use emulated_cuda::api::stream::cuStreamWaitEvent;

use crate::case::{allocate, event, isolated, ok, pinned, start, stream};
use crate::json::Json;

#[test]
fn dependencies_syncs_and_allocations() {
    let finished = isolated("report::dependencies_syncs_and_allocations", &[], || {
        start(0);
        let (one, two, mark) = (stream(), stream(), event());
        let memory = allocate(1000);
        let source = pinned(1000);
        // SAFETY: pinned memory that lives as long as the process.
        ok(unsafe { cuMemcpyHtoDAsync_v2(memory, source.as_ptr().cast(), 1000, one) });
        ok(cuEventRecord(mark, one));
        ok(cuStreamWaitEvent(two, mark, 0));
        ok(cuMemsetD8Async(memory, 0, 10, two));
        ok(cuEventRecord(mark, two));
        ok(cuEventSynchronize(mark));
        ok(cuMemsetD8Async(memory, 1, 10, one));
        ok(cuMemFree_v2(memory));
    });
    let report = &finished.report;
    let timeline = report.items("timeline");
    let kinds: Vec<&str> = timeline.iter().map(|line| line.text("kind")).collect();
    let expected = ["H2D", "event-record", "event-wait", "memset", "event-record", "memset"];
    assert_eq!(kinds, expected);
    let ids = |items: &[usize]| {
        Json::Array(items.iter().map(|index| timeline[*index].at("id").clone()).collect())
    };
    assert_eq!(*timeline[0].at("dependencies"), ids(&[]));
    assert_eq!(*timeline[2].at("dependencies"), ids(&[1]));
    assert_eq!(*timeline[4].at("dependencies"), ids(&[3]));
    assert_eq!(*timeline[5].at("dependencies"), ids(&[1]));
    assert_eq!(*timeline[0].at("after_sync"), Json::Null);
    assert_eq!(*timeline[5].at("after_sync"), Json::Number(0));
    assert!(timeline.iter().all(|line| *line.at("executed") != Json::Null));
    assert!(timeline[3].number("start_ns") >= timeline[0].number("end_ns"));
    let syncs = report.items("syncs");
    assert_eq!(syncs[0].text("symbol"), "cuEventSynchronize");
    assert_eq!(*syncs[0].at("targets"), ids(&[4]));
    assert_eq!(*syncs[1].at("targets"), ids(&[5]));
    assert_eq!(*syncs[1].at("explicit"), Json::Boolean(false));
    assert_eq!(report.items("peak_device_bytes"), [Json::Number(1024)]);
    let allocations = report.items("allocations");
    assert_eq!(allocations[0].text("kind"), "device");
    assert_eq!(allocations[0].number("freed"), report.number("total_calls"));
    assert_eq!(*allocations[1].at("freed"), Json::Null);
    assert_eq!(report.items("leaks.allocations").len(), 1);
    assert_eq!(report.number("leaks.streams"), 2);
}

#[test]
fn a_reset_opens_a_new_ledger() {
    let finished = isolated("report::a_reset_opens_a_new_ledger", &[], || {
        start(0);
        let freed = allocate(5000);
        ok(cuMemFree_v2(freed));
        let kept = allocate(100);
        ok(cuMemsetD8Async(kept, 0, 10, stream()));
        assert_eq!(emucudaReset(), 0);
        ok(cuMemsetD8Async(kept, 0, 20, 0));
        ok(emulated_cuda::api::context::cuCtxSynchronize());
        assert_eq!(emucudaReport(), 0);
    });
    let report = &finished.report;
    assert_eq!(report.number("total_calls"), 2);
    let timeline = report.items("timeline");
    assert_eq!(timeline.len(), 1);
    assert_eq!(timeline[0].number("bytes"), 20);
    let allocations = report.items("allocations");
    assert_eq!(allocations.len(), 1);
    assert_eq!(allocations[0].number("call"), 0);
    assert_eq!(report.items("peak_device_bytes"), [Json::Number(256)]);
}
