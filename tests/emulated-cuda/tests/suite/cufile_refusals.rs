//! What cuFile refuses, and reads that fail.

use std::os::fd::AsRawFd;

use emulated_cuda::api::context::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain};
use emulated_cuda::api::device::cuInit;
use emulated_cuda::cufile::CUfileDescr;
use emulated_cuda::cufile::api::{
    cuFileBufDeregister, cuFileBufRegister, cuFileDriverGetProperties, cuFileDriverOpen,
    cuFileHandleDeregister, cuFileHandleRegister, cuFileRead,
};

use crate::case::{allocate, ask, isolated, ok, start};
use crate::cufile::{
    COMPLETE, describe, done, entry, events, file, open, register, set_up, submit,
};
use crate::process::child_answers;

#[test]
fn the_driver_wants_cuda_and_everything_wants_the_driver() {
    let name = "cufile_refusals::the_driver_wants_cuda_and_everything_wants_the_driver";
    let finished = isolated(name, &[], || {
        let refused = cuFileDriverOpen();
        assert_eq!((refused.err, refused.cu_err), (5011, 3));
        ok(cuInit(0));
        let (kept, _) = file();
        assert_eq!(register(kept), Err(5001));
        assert_eq!(set_up(1), Err(5001));
        assert_eq!(ask(|place| cuFileDriverGetProperties(place).err), Err(5001));
        assert_eq!(cuFileRead(1, 2, 3, 0, 0), -5001);
        done(cuFileDriverOpen());
        let handle = register(kept).unwrap();
        // No context is current.
        let refused = cuFileBufRegister(1 << 48, 10, 0);
        assert_eq!((refused.err, refused.cu_err), (5011, 201));
        assert_eq!(cuFileRead(handle, 1 << 48, 10, 0, 0), -5011);
    });
    let errors = finished.report.items("errors");
    assert!(errors[0].text("message").contains("CUDA is not initialized"));
    assert_eq!(finished.report.number("cufile.opened"), 1);
}

#[test]
fn a_forked_child_is_refused() {
    isolated("cufile_refusals::a_forked_child_is_refused", &[], || {
        let (handle, _) = open();
        let target = allocate(10);
        assert!(child_answers(|| {
            cuFileDriverOpen().err == 5001
                && cuFileRead(handle, target, 10, 0, 0) == -5001
                && set_up(1) == Err(5001)
        }));
        assert_eq!(cuFileRead(handle, target, 10, 0, 0), 10);
    });
}

#[test]
fn files_that_are_none() {
    isolated("cufile_refusals::files_that_are_none", &[], || {
        open();
        let (kept, _) = file();
        let directory = std::fs::File::open("/").unwrap();
        assert_eq!(register(&directory), Err(5018));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(register(&null), Err(5018));
        let wrong =
            |descr: Option<&CUfileDescr>| ask(|place| cuFileHandleRegister(place, descr).err);
        assert_eq!(wrong(None), Err(5022));
        assert_eq!(wrong(Some(&CUfileDescr { kind: 2, ..describe(kept) })), Err(5022));
        assert_eq!(wrong(Some(&CUfileDescr { fd: 999, ..describe(kept) })), Err(5022));
        let handle = register(kept).unwrap();
        assert_eq!(register(kept), Err(5028));
        cuFileHandleDeregister(handle);
        let again = register(kept).unwrap();
        assert_eq!(cuFileRead(handle, allocate(10), 10, 0, 0), -5027);
        assert_eq!(cuFileRead(again, allocate(10), 10, 0, 0), 10);
        let path = format!("/proc/self/fd/{}", kept.as_raw_fd());
        let written = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        assert_eq!(register(&written), Err(5019));
    });
    for (files, code) in [("direct", 5019), ("none", 5008)] {
        isolated("cufile_refusals::files_that_are_none", &[("CUFILE_FILES", files)], || {
            start(0);
            done(cuFileDriverOpen());
            assert_eq!(register(file().0), Err(code));
        });
    }
    isolated("cufile_refusals::files_that_are_none", &[("CUFILE", "refused")], || {
        start(0);
        assert_eq!(cuFileDriverOpen().err, 5033);
    });
}

#[test]
fn memory_that_is_none() {
    isolated("cufile_refusals::memory_that_is_none", &[("CUFILE_PINNED_MB", "1")], || {
        let (file, _) = open();
        let memory = allocate(8192);
        assert_eq!(cuFileBufRegister(memory, 8193, 0).err, 5014);
        assert_eq!(cuFileBufRegister(memory, 0, 0).err, 5022);
        assert_eq!(cuFileBufRegister(memory, 1, 9).err, 5022);
        let host = [0u8; 16];
        assert_eq!(cuFileBufRegister(host.as_ptr() as u64, 16, 0).err, 5013);
        done(cuFileBufRegister(memory, 4096, 0));
        assert_eq!(cuFileBufRegister(memory + 100, 10, 0).err, 5023);
        assert_eq!(cuFileBufRegister(allocate(2 << 20), 2 << 20, 0).err, 5036);
        assert_eq!(cuFileBufDeregister(memory + 1).err, 5022);
        // Within the registered range, out of it, across its end, and across the allocation's.
        assert_eq!(cuFileRead(file, memory, 96, 0, 4000), 96);
        assert_eq!(cuFileRead(file, memory, 96, 0, 4096), 96);
        assert_eq!(cuFileRead(file, memory, 97, 0, 4000), -5017);
        assert_eq!(cuFileRead(file, memory, 97, 0, 8096), -5014);
        assert_eq!(cuFileRead(file, memory, 97, 0, 100_000), -5014);
        assert_eq!(cuFileRead(file, memory - 1, 10, 0, 0), -5012);
        assert_eq!(cuFileRead(file, host.as_ptr() as u64, 16, 0, 0), -5013);
        assert_eq!(cuFileRead(file, memory, 10, -1, 0), -5022);
        assert_eq!(cuFileRead(file, memory, 10, 0, -1), -5022);
    });
    isolated("cufile_refusals::memory_that_is_none", &[("DEVICES", "2")], || {
        let (file, _) = open();
        let memory = allocate(100);
        ok(cuCtxSetCurrent(ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap()));
        assert_eq!(cuFileBufRegister(memory, 100, 0).err, 5015);
        assert_eq!(cuFileRead(file, memory, 100, 0, 0), -5015);
    });
}

#[test]
fn limits_of_reads_and_batches() {
    let settings = [("CUFILE_LIMIT_KB", "4"), ("CUFILE_BATCH", "3")];
    isolated("cufile_refusals::limits_of_reads_and_batches", &settings, || {
        let (file, _) = open();
        let target = allocate(8192);
        assert_eq!(cuFileRead(file, target, 4096, 0, 0), 4096);
        assert_eq!(cuFileRead(file, target, 4097, 0, 0), -5022);
        assert_eq!(cuFileRead(file, target, 0, 0, 0), -5022);
        assert_eq!(set_up(4), Err(5022));
        assert_eq!(set_up(0), Err(5022));
        let batch = set_up(2).unwrap();
        let good = entry(file, target, 0, 0, 10);
        // One that is ill-formed keeps the others out as well.
        for (bad, code) in [
            (entry(file, target, 0, 0, 4097), 5022),
            (entry(1, target, 0, 0, 10), 5027),
            (entry(file, 1 << 48, 0, 0, 10), 5012),
            (entry(file, target, 0, 8192, 10), 5014),
        ] {
            assert_eq!(submit(batch, &[good, bad]), code);
            assert_eq!(events(batch, 1, 1), Err(5022));
        }
        let mut writes = good;
        writes.opcode = 1;
        assert_eq!(submit(batch, &[writes]), 5022);
        assert_eq!(submit(batch, &[good; 3]), 5037);
        assert_eq!(submit(batch, &[good]), 0);
        assert_eq!(submit(batch, &[good; 2]), 5037);
        assert_eq!(events(batch, 2, 2), Err(5022));
        assert_eq!(events(batch, 1, 0), Err(5022));
        assert_eq!(events(batch, 1, 2).unwrap().len(), 1);
        assert_eq!(submit(batch, &[good; 2]), 0);
    });
}

#[test]
fn the_nth_read_fails_or_comes_short() {
    let settings = [("CUFILE_READ", "2:short,3:5,4:5030")];
    let finished =
        isolated("cufile_refusals::the_nth_read_fails_or_comes_short", &settings, || {
            let (file, bytes) = open();
            let target = allocate(500);
            assert_eq!(cuFileRead(file, target, 100, 0, 0), 100);
            assert_eq!(cuFileRead(file, target, 100, 0, 100), 50);
            let found = crate::case::download(target, 200).unwrap();
            assert_eq!(found[100..150], bytes[..50]);
            assert_ne!(found[150..200], bytes[50..100]);
            let batch = set_up(3).unwrap();
            let entries: Vec<_> = (2..5).map(|n| entry(file, target, 0, n * 100, 100)).collect();
            assert_eq!(submit(batch, &entries), 0);
            let mut ends: Vec<_> =
                events(batch, 3, 3).unwrap().iter().map(|one| (one.status, one.ret)).collect();
            ends.sort_unstable();
            assert_eq!(ends, [(COMPLETE, 100), (0x40, -5030), (0x40, -5)]);
        });
    if finished.ran {
        let reads = finished.report.items("cufile.reads");
        assert_eq!(reads.iter().filter(|read| read.text("status") == "failed").count(), 2);
    }
    isolated(
        "cufile_refusals::the_nth_read_fails_or_comes_short",
        &[("CUFILE_READ", "*:5")],
        || {
            let (file, _) = open();
            assert_eq!(cuFileRead(file, allocate(10), 10, 0, 0), -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(5));
        },
    );
}

#[test]
fn the_nth_call_fails() {
    // cuInit, retain, set current, open, register, allocate, read.
    for (fail, code) in [("7:5030", -5030), ("7:2", -5011), ("7:719", -5011)] {
        let finished = isolated("cufile_refusals::the_nth_call_fails", &[("FAIL", fail)], || {
            let (file, _) = open();
            let target = allocate(100);
            assert_eq!(cuFileRead(file, target, 10, 0, 0), code);
            let lost = fail == "7:719";
            assert_eq!(cuFileRead(file, target, 10, 0, 0), if lost { -5011 } else { 10 });
        });
        if finished.ran {
            let injected = &finished.report.items("injected")[0];
            assert_eq!(injected.text("symbol"), "cuFileRead");
        }
    }
    isolated("cufile_refusals::the_nth_call_fails", &[("FAIL", "4:999")], || {
        start(0);
        let refused = cuFileDriverOpen();
        assert_eq!((refused.err, refused.cu_err), (5011, 999));
    });
}
