//! Contexts: which thread has which, and what belongs to whom.

use emulated_cuda::api::context::{
    cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxGetDevice, cuCtxPopCurrent_v2,
    cuCtxPushCurrent_v2, cuCtxSetCurrent, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxRelease_v2,
    cuDevicePrimaryCtxRetain,
};
use emulated_cuda::api::device::{cuDeviceGet, cuDeviceGetCount, cuDeviceGetUuid_v2, cuInit};
use emulated_cuda::api::event::{cuEventCreate, cuEventRecord};
use emulated_cuda::api::memory::{cuMemAlloc_v2, cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::api::stream::{cuStreamCreate, cuStreamSynchronize, cuStreamWaitEvent};

use crate::case::{allocate, ask, event, isolated, ok, start, stream};

#[test]
fn a_thread_without_a_context_gets_201() {
    isolated("contexts::a_thread_without_a_context_gets_201", &[], || {
        assert_eq!(ask(|place| cuDeviceGet(place, 0)), Err(3));
        let context = start(0);
        let memory = allocate(16);
        std::thread::spawn(move || {
            assert_eq!(ask(|place| cuCtxGetCurrent(place)), Ok(0));
            assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(201));
            assert_eq!(cuMemFree_v2(memory), 201);
            assert_eq!(ask(|place| cuStreamCreate(place, 0)), Err(201));
            ok(cuCtxSetCurrent(context));
            ok(cuMemFree_v2(memory));
        })
        .join()
        .unwrap();
        ok(cuCtxSetCurrent(0));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(201));
    });
}

#[test]
fn the_stack_of_contexts() {
    isolated("contexts::the_stack_of_contexts", &[("DEVICES", "2")], || {
        let first = start(0);
        let second = ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap();
        ok(cuCtxPushCurrent_v2(second));
        assert_eq!(ask(|place| cuCtxGetDevice(place)), Ok(1));
        assert_eq!(ask(|place| cuCtxPopCurrent_v2(place)), Ok(second));
        assert_eq!(ask(|place| cuCtxGetCurrent(place)), Ok(first));
        assert_eq!(ask(|place| cuCtxPopCurrent_v2(place)), Ok(first));
        assert_eq!(ask(|place| cuCtxPopCurrent_v2(place)), Err(201));
        assert_eq!(cuCtxPushCurrent_v2(12345), 201);
        assert_eq!(cuCtxSetCurrent(12345), 201);
    });
}

#[test]
fn handles_stay_in_their_context() {
    isolated("contexts::handles_stay_in_their_context", &[("DEVICES", "2")], || {
        start(0);
        let (own, mark, memory) = (stream(), event(), allocate(16));
        let other = ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap();
        ok(cuCtxSetCurrent(other));
        assert_eq!(cuStreamSynchronize(own), 400);
        assert_eq!(cuEventRecord(mark, 0), 400);
        assert_eq!(cuMemsetD8Async(memory, 0, 16, 0), 1);
        assert_eq!(cuMemFree_v2(memory), 1);
        // Waiting for another device's event is what CUDA allows.
        ok(cuStreamWaitEvent(stream(), mark, 0));
        // A second context of one device has its own handles too.
        let third = ask(|place| cuCtxCreate_v2(place, 0, 0)).unwrap();
        assert_eq!(cuStreamSynchronize(own), 400);
        ok(cuCtxDestroy_v2(third));
        assert_eq!(ask(|place| cuCtxGetCurrent(place)), Ok(other));
    });
}

#[test]
fn primary_contexts_are_counted() {
    let finished = isolated("contexts::primary_contexts_are_counted", &[], || {
        let context = start(0);
        assert_eq!(ask(|place| cuDevicePrimaryCtxRetain(place, 0)), Ok(context));
        allocate(4096);
        let _ = (stream(), ask(|place| cuEventCreate(place, 0)));
        ok(cuDevicePrimaryCtxRelease_v2(0));
        let active = || {
            let mut flags = std::mem::MaybeUninit::uninit();
            ask(|place| cuDevicePrimaryCtxGetState(0, Some(&mut flags), place)).unwrap()
        };
        assert_eq!(active(), 1);
        ok(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(active(), 0);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(201));
    });
    // What went with the context was not freed by anybody.
    let lost = &finished.report.items("allocations")[0];
    assert_eq!(*lost.at("abandoned"), crate::json::Json::Boolean(true));
    assert_eq!(finished.report.number("leaks.streams"), 0);
}

#[test]
fn visible_devices_and_refusals() {
    let name = "contexts::visible_devices_and_refusals";
    isolated(name, &[("DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2,0")], || {
        ok(cuInit(0));
        assert_eq!(ask(|place| cuDeviceGetCount(place)), Ok(2));
        let uuid = ask(|place| cuDeviceGetUuid_v2(place, 0)).unwrap();
        assert_eq!(&uuid, b"emulated-device2");
        assert_eq!(ask(|place| cuDeviceGet(place, 2)), Err(101));
    });
    isolated(name, &[("DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", "")], || {
        assert_eq!(cuInit(0), 100);
    });
    isolated(name, &[("DEVICES", "0")], || assert_eq!(cuInit(0), 100));
    isolated(name, &[("CUINIT", "803")], || assert_eq!(cuInit(0), 803));
    isolated(name, &[("CUINIT_MS", "200")], || {
        let starter = std::thread::spawn(|| cuInit(0));
        // Others are answered meanwhile.
        assert_eq!(ask(|place| cuDeviceGetCount(place)), Err(3));
        assert!(!starter.is_finished());
        assert_eq!(starter.join().unwrap(), 0);
        ok(cuInit(0));
    });
    isolated(name, &[("COMPUTE_MODE", "exclusive")], || {
        ok(cuInit(0));
        assert_eq!(ask(|place| cuDevicePrimaryCtxRetain(place, 0)), Err(46));
    });
}
