//! Faults that stay, and failures that tests ask for.

use emulated_cuda::api::context::{cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRetain};
use emulated_cuda::api::copy::cuMemcpyDtoDAsync_v2;
use emulated_cuda::api::device::{
    cuDeviceGetUuid, cuDeviceGetUuid_v2, cuDriverGetVersion, cuGetErrorName, cuInit,
};
use emulated_cuda::api::entry::cuGetProcAddress_v2;
use emulated_cuda::api::memory::{
    cuMemAlloc_v2, cuMemAllocAsync, cuMemFree_v2, cuMemFreeAsync, cuMemsetD8Async,
};
use emulated_cuda::api::settings::{emucudaReset, emucudaSet};
use emulated_cuda::api::stream::{cuStreamDestroy_v2, cuStreamSynchronize};

use crate::case::{allocate, ask, isolated, ok, start, stream};

#[test]
fn a_fault_comes_back_from_every_later_call() {
    let name = "faults::a_fault_comes_back_from_every_later_call";
    let finished = isolated(name, &[("DEVICES", "2")], || {
        start(0);
        let (one, two) = (stream(), stream());
        let memory = ask(|place| cuMemAllocAsync(place, 64, one)).unwrap();
        let other = allocate(64);
        ok(cuStreamSynchronize(one));
        ok(cuMemcpyDtoDAsync_v2(other, memory, 64, two));
        ok(cuMemFreeAsync(memory, one));
        ok(cuStreamSynchronize(one));
        // Submitted without an error; the wait has it, and all that follows.
        assert_eq!(cuStreamSynchronize(two), 700);
        assert_eq!(cuCtxSynchronize(), 700);
        assert_eq!(cuMemFree_v2(other), 700);
        assert_eq!(cuStreamDestroy_v2(one), 700);
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(700));
        assert_eq!(cuMemsetD8Async(other, 0, 64, 0), 700);
        // The other device is sound; switching away still says what was.
        ok(cuDriverGetVersion(Some(&mut std::mem::MaybeUninit::uninit())));
        assert_eq!(cuCtxSetCurrent(0), 700);
        let second = ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap();
        ok(cuCtxSetCurrent(second));
        allocate(16);
        assert_eq!(ask(|place| cuDevicePrimaryCtxRetain(place, 0)), Err(700));
    });
    let fault = &finished.report.items("faults")[0];
    assert_eq!(fault.number("code"), 700);
    assert!(fault.text("message").contains("use after free"), "{fault:?}");
    assert_eq!(finished.report.number("calls_after_fault.cuCtxSynchronize"), 1);
}

#[test]
fn memory_is_not_there_before_its_stream_came_to_it() {
    let name = "faults::memory_is_not_there_before_its_stream_came_to_it";
    isolated(name, &[], || {
        start(0);
        let (one, two) = (stream(), stream());
        let memory = ask(|place| cuMemAllocAsync(place, 64, one)).unwrap();
        ok(cuMemsetD8Async(memory, 0, 64, one));
        ok(cuStreamSynchronize(one));
        let memory = ask(|place| cuMemAllocAsync(place, 64, one)).unwrap();
        ok(cuMemsetD8Async(memory, 0, 64, two));
        assert_eq!(cuStreamSynchronize(two), 700);
    });
}

/// Six calls; the codes of each.
fn six_calls() -> Vec<u32> {
    let mut codes = vec![cuInit(0)];
    let context = ask(|place| cuDevicePrimaryCtxRetain(place, 0));
    codes.push(context.err().unwrap_or(0));
    codes.push(context.map_or(1, |it| cuCtxSetCurrent(it)));
    let memory = ask(|place| cuMemAlloc_v2(place, 100));
    codes.push(memory.err().unwrap_or(0));
    codes.push(memory.map_or(1, |it| cuMemFree_v2(it)));
    codes.push(cuCtxSynchronize());
    codes
}

#[test]
fn the_nth_call_fails() {
    let name = "faults::the_nth_call_fails";
    let finished = isolated(name, &[("FAIL", "4:2")], || {
        assert_eq!(six_calls(), [0, 0, 0, 2, 1, 0]);
    });
    if finished.ran {
        let injected = &finished.report.items("injected")[0];
        assert_eq!(injected.text("symbol"), "cuMemAlloc_v2");
        assert_eq!(injected.number("call"), 4);
        assert_eq!(finished.report.number("total_calls"), 5);
    }
    isolated(name, &[("FAIL", "5:719")], || {
        assert_eq!(six_calls(), [0, 0, 0, 0, 719, 719]);
    });
    isolated(name, &[("FAIL", "1:100")], || {
        assert_eq!(six_calls(), [100, 3, 1, 3, 1, 3]);
    });
    // A code that callers don't know would be undefined behaviour in theirs.
    isolated(name, &[("FAIL", "4:12345")], || assert_eq!(six_calls()[3], 999));
    let finished = isolated(name, &[("FAIL", "7:2")], || {
        assert_eq!(six_calls(), [0; 6]);
    });
    assert!(!finished.ran || finished.report.items("injected").is_empty());
}

#[test]
fn settings_change_while_running() {
    isolated("faults::settings_change_while_running", &[], || {
        let set = |name: &std::ffi::CStr, value: &std::ffi::CStr| {
            // SAFETY: two C strings.
            unsafe { emucudaSet(name.as_ptr(), value.as_ptr()) }
        };
        assert_eq!(six_calls(), [0; 6]);
        assert_eq!(set(c"EMUCUDA_FAIL", c"2:2"), 0);
        emucudaReset();
        ok(cuInit(0));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(2));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)).map(|_| ()), Ok(()));
        assert_eq!(set(c"FAIL", c"cuMemAlloc_v2:999"), 0);
        ok(cuCtxSynchronize());
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)), Err(999));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 16)).map(|_| ()), Ok(()), "once");
        assert_eq!(set(c"FAIL", c""), 0);
        assert_eq!(set(c"NO_SUCH_SETTING", c"1"), 1);
        assert_eq!(set(c"ORDER", c"sideways"), 1);
    });
}

#[test]
fn symbols_by_version() {
    isolated("faults::symbols_by_version", &[("DRIVER", "12020")], || {
        let find = |name: &std::ffi::CStr, version| {
            let mut status = std::mem::MaybeUninit::new(9);
            let found = ask(|place| {
                // SAFETY: a C string.
                unsafe { cuGetProcAddress_v2(name.as_ptr(), place, version, 0, Some(&mut status)) }
            });
            // SAFETY: it had a value before the call.
            (found.map(|address| address as usize), unsafe { status.assume_init() })
        };
        let old = cuDeviceGetUuid as *const () as usize;
        let new = cuDeviceGetUuid_v2 as *const () as usize;
        assert_eq!(find(c"cuDeviceGetUuid", 10000), (Ok(old), 0));
        assert_eq!(find(c"cuDeviceGetUuid", 12000), (Ok(new), 0));
        assert_eq!(find(c"cuDeviceGetUuid", 9000), (Err(500), 2));
        assert_eq!(find(c"cuNoSuchThing", 12000), (Err(500), 1));
    });
}

#[test]
fn error_names() {
    isolated("faults::error_names", &[], || {
        let name = ask(|place| cuGetErrorName(719, place)).unwrap();
        // SAFETY: a C string that is never freed.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        assert_eq!(name, c"CUDA_ERROR_LAUNCH_FAILED");
        assert_eq!(ask(|place| cuGetErrorName(12345, place)), Err(1));
    });
}
