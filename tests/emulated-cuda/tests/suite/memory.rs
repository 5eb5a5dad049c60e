//! Device and pinned memory: bounds, poison, freeing, running out.

use emulated_cuda::api::copy::{cuMemcpyDtoDAsync_v2, cuMemcpyHtoDAsync_v2};
use emulated_cuda::api::memory::{
    cuMemAlloc_v2, cuMemFree_v2, cuMemGetInfo_v2, cuMemsetD8Async, cuMemsetD32Async,
    cuPointerGetAttribute,
};
use emulated_cuda::api::pinned::{
    cuMemFreeHost, cuMemHostAlloc, cuMemHostRegister_v2, cuMemHostUnregister,
};
use emulated_cuda::api::stream::cuStreamSynchronize;

use crate::case::{allocate, ask, download, isolated, ok, pattern, pinned, start, stream, upload};

#[test]
fn bounds_are_exact() {
    let finished = isolated("memory::bounds_are_exact", &[], || {
        start(0);
        let pointer = upload(&pattern(1, 1000));
        assert_eq!(pointer % 512, 256);
        assert_eq!(download(pointer, 1000), Ok(pattern(1, 1000)));
        assert_eq!(download(pointer, 1001), Err(1));
        assert_eq!(download(pointer + 999, 1), Ok(pattern(1, 1000)[999..].to_vec()));
        assert_eq!(download(pointer + 1000, 1), Err(1));
        assert_eq!(download(pointer - 1, 1), Err(1));
        assert_eq!(cuMemsetD8Async(pointer, 0, 1001, 0), 1);
        assert_eq!(cuMemsetD32Async(pointer, 0, 251, 0), 1);
        assert_eq!(cuMemsetD32Async(pointer + 2, 0, 1, 0), 1);
        ok(cuMemsetD32Async(pointer + 4, 0x0403_0201, 2, 0));
        assert_eq!(download(pointer + 4, 8), Ok(vec![1, 2, 3, 4, 1, 2, 3, 4]));
        assert_eq!(cuMemcpyDtoDAsync_v2(pointer + 500, pointer, 501, 0), 1);
    });
    let errors = finished.report.items("errors");
    assert!(errors.iter().any(|error| error.text("message").contains("0 bytes after the end")));
}

#[test]
fn fresh_memory_is_neither_zero_nor_what_was_there() {
    isolated("memory::fresh_memory_is_neither_zero_nor_what_was_there", &[], || {
        start(0);
        let first = upload(&[0; 4096]);
        ok(cuMemFree_v2(first));
        let second = allocate(4096);
        assert_ne!(first, second);
        let bytes = download(second, 4096).unwrap();
        assert!(bytes.iter().filter(|byte| **byte == 0).count() < 100);
        assert!(pinned(4096).iter().filter(|byte| **byte == 0).count() < 100);
    });
}

#[test]
fn freeing_twice_and_using_after_free() {
    let name = "memory::freeing_twice_and_using_after_free";
    let finished = isolated(name, &[], || {
        start(0);
        let pointer = allocate(100);
        assert_eq!(cuMemFree_v2(pointer + 4), 1);
        ok(cuMemFree_v2(pointer));
        assert_eq!(cuMemFree_v2(pointer), 1);
        assert_eq!(download(pointer, 4), Err(1));
        ok(cuMemFree_v2(0));
        let block = ask(|place| cuMemHostAlloc(place, 100, 0)).unwrap() as *mut _;
        ok(cuMemFreeHost(block));
        assert_eq!(cuMemFreeHost(block), 1);
    });
    let errors = finished.report.items("errors");
    assert!(errors.iter().any(|error| error.text("message").contains("use after free")));
    assert!(finished.report.items("leaks.allocations").is_empty());
}

#[test]
fn memory_runs_out_and_comes_back() {
    let settings = [("MEMORY_MB", "100")];
    isolated("memory::memory_runs_out_and_comes_back", &settings, || {
        start(0);
        let large = allocate(60 << 20);
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 60 << 20)), Err(2));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, usize::MAX)), Err(2));
        let free = ask(ask_total).unwrap();
        assert_eq!(free, 40 << 20);
        ok(cuMemFree_v2(large));
        allocate(100 << 20);
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 1)), Err(2));
    });
}

fn ask_total(free: emulated_cuda::Place<'_, usize>) -> u32 {
    let mut total = std::mem::MaybeUninit::uninit();
    cuMemGetInfo_v2(free, Some(&mut total))
}

#[test]
fn others_hold_memory() {
    let settings = [("FREE_MB", "50,70"), ("DEVICES", "3")];
    isolated("memory::others_hold_memory", &settings, || {
        for (device, free) in [(2, 70), (1, 70), (0, 50)] {
            start(device);
            assert_eq!(ask(ask_total), Ok(free << 20));
        }
        allocate(20 << 20);
        assert_eq!(ask(ask_total), Ok(30 << 20));
        assert_eq!(ask(|place| cuMemAlloc_v2(place, 31 << 20)), Err(2));
    });
}

#[test]
fn a_large_arena_costs_nothing_until_touched() {
    let name = "memory::a_large_arena_costs_nothing_until_touched";
    let finished = isolated(name, &[], || {
        start(0);
        let arena = allocate(6 << 30);
        let end = arena + (6 << 30) - 100;
        assert_ne!(download(end, 100), Ok(vec![0; 100]));
        ok(cuMemsetD8Async(end, 7, 100, 0));
        assert_eq!(download(end, 100), Ok(vec![7; 100]));
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        let resident: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(resident * 4096 < 200 << 20, "{resident} pages");
    });
    assert_eq!(finished.report.items("peak_device_bytes").len(), 1);
}

#[test]
fn pinned_memory_can_be_refused_or_registered() {
    let name = "memory::pinned_memory_can_be_refused_or_registered";
    isolated(name, &[("PINNED", "refuse")], || {
        start(0);
        assert_eq!(ask(|place| cuMemHostAlloc(place, 100, 0)), Err(2));
    });
    isolated(name, &[("PINNED", "allow")], || {
        start(0);
        let mut own = pattern(3, 4096);
        let pointer = own.as_mut_ptr().cast();
        ok(cuMemHostRegister_v2(pointer, 4096, 0));
        assert_eq!(cuMemHostRegister_v2(pointer, 4096, 0), 712);
        let target = allocate(8192);
        // SAFETY: the vector outlives the copy; the longer range is refused unread.
        unsafe {
            assert_eq!(cuMemcpyHtoDAsync_v2(target, pointer, 4097, 0), 1);
            ok(cuMemcpyHtoDAsync_v2(target, pointer, 4096, 0));
        }
        own.fill(9);
        ok(cuStreamSynchronize(0));
        assert_eq!(download(target, 4096), Ok(vec![9; 4096]));
        ok(cuMemHostUnregister(pointer));
        assert_eq!(cuMemHostUnregister(pointer), 713);
    });
}

#[test]
fn pointers_are_described() {
    isolated("memory::pointers_are_described", &[], || {
        start(0);
        let pointer = allocate(100);
        let kind = |pointer| {
            let mut kind = 0u32;
            let place = (&raw mut kind).cast();
            // SAFETY: the attribute asked for has four bytes.
            match unsafe { cuPointerGetAttribute(place, 2, pointer) } {
                0 => Ok(kind),
                code => Err(code),
            }
        };
        assert_eq!(kind(pointer + 10), Ok(2));
        assert_eq!(kind(pinned(10).as_ptr() as u64), Ok(1));
        assert_eq!(kind(vec![0u8; 10].as_ptr() as u64), Err(1));
        let _ = stream();
    });
}
