//! Reads that no stream knows of, among the work of streams: each misuse must show.

use std::os::fd::AsRawFd;

use emulated_cuda::api::copy::cuMemcpyDtoDAsync_v2;
use emulated_cuda::api::memory::{cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::api::stream::cuStreamSynchronize;
use emulated_cuda::cufile::api::{
    cuFileBatchIOCancel, cuFileBatchIODestroy, cuFileBufDeregister, cuFileBufRegister,
    cuFileDriverClose_v2, cuFileHandleDeregister, cuFileRead,
};

use crate::case::{allocate, download, isolated, ok, start, stream, upload};
use crate::cufile::{COMPLETE, done, entry, events, file, open, register, set_up, submit};

const SIZE: usize = 5000;

/// A batch of one read that is in flight: the batch, its destination, and what it must bring.
fn in_flight() -> (u64, u64, Vec<u8>) {
    let (file, bytes) = open();
    let target = upload(&[7; SIZE]);
    let batch = set_up(4).unwrap();
    assert_eq!(submit(batch, &[entry(file, target, 100, 0, SIZE)]), 0);
    (batch, target, bytes[100..100 + SIZE].to_vec())
}

#[test]
fn the_destination_is_poison_until_the_read_is_reported() {
    let name = "cufile_hazards::the_destination_is_poison_until_the_read_is_reported";
    for landing in ["late", "contrary"] {
        isolated(name, &[("CUFILE_LAND", landing)], || {
            let (batch, target, expected) = in_flight();
            let before = download(target, SIZE).unwrap();
            assert!(before != expected && before != [7; SIZE]);
            assert_eq!(events(batch, 1, 1).unwrap()[0].status, COMPLETE);
            assert_eq!(download(target, SIZE).unwrap(), expected);
        });
    }
}

#[test]
fn bytes_may_be_there_before_anybody_asks() {
    let name = "cufile_hazards::bytes_may_be_there_before_anybody_asks";
    isolated(name, &[("CUFILE_LAND", "early")], || {
        let (_, target, expected) = in_flight();
        assert_eq!(download(target, SIZE).unwrap(), expected);
    });
}

#[test]
fn work_that_is_submitted_too_early_reads_poison() {
    let name = "cufile_hazards::work_that_is_submitted_too_early_reads_poison";
    isolated(name, &[("CUFILE_LAND", "contrary")], || {
        let (batch, target, expected) = in_flight();
        let (copy, stream) = (allocate(SIZE), stream());
        ok(cuMemcpyDtoDAsync_v2(copy, target, SIZE, stream));
        assert_eq!(events(batch, 1, 1).unwrap()[0].ret, SIZE as isize);
        ok(cuStreamSynchronize(stream));
        assert_ne!(download(copy, SIZE).unwrap(), expected);
        // What is submitted when the read is done is right.
        ok(cuMemcpyDtoDAsync_v2(copy, target, SIZE, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(download(copy, SIZE).unwrap(), expected);
    });
}

/// A region that earlier work still reads is read into again; what that work found.
fn reused_too_early(how: impl FnOnce(u64, u64)) {
    let (file, _) = open();
    let target = upload(&[7; SIZE]);
    let (copy, stream) = (allocate(SIZE), stream());
    ok(cuMemcpyDtoDAsync_v2(copy, target, SIZE, stream));
    how(file, target);
    ok(cuStreamSynchronize(stream));
    assert_ne!(download(copy, SIZE).unwrap(), [7; SIZE]);
}

#[test]
fn a_region_that_pending_work_reads_is_not_its_own() {
    let name = "cufile_hazards::a_region_that_pending_work_reads_is_not_its_own";
    for landing in ["early", "late", "contrary"] {
        isolated(name, &[("CUFILE_LAND", landing)], || {
            reused_too_early(|file, target| {
                let batch = set_up(1).unwrap();
                assert_eq!(submit(batch, &[entry(file, target, 0, 0, SIZE)]), 0);
                assert_eq!(events(batch, 1, 1).unwrap()[0].status, COMPLETE);
            });
        });
        isolated(name, &[("CUFILE_LAND", landing), ("SEED", "1")], || {
            reused_too_early(|file, target| {
                assert_eq!(cuFileRead(file, target, SIZE, 0, 0), SIZE as isize);
            });
        });
    }
}

#[test]
fn pending_work_that_writes_the_region_destroys_what_was_read() {
    let name = "cufile_hazards::pending_work_that_writes_the_region_destroys_what_was_read";
    for landing in ["early", "late", "contrary"] {
        isolated(name, &[("CUFILE_LAND", landing)], || {
            let (file, bytes) = open();
            let (target, stream) = (allocate(SIZE), stream());
            ok(cuMemsetD8Async(target, 0, SIZE, stream));
            assert_eq!(cuFileRead(file, target, SIZE, 0, 0), SIZE as isize);
            ok(cuStreamSynchronize(stream));
            assert_ne!(download(target, SIZE).unwrap(), bytes[..SIZE]);
        });
    }
}

#[test]
fn by_seed_a_batch_of_many_shows_every_hazard() {
    let name = "cufile_hazards::by_seed_a_batch_of_many_shows_every_hazard";
    for seed in ["0", "1", "2", "3"] {
        isolated(name, &[("SEED", seed)], || {
            let (file, bytes) = open();
            let (target, copy, stream) = (upload(&[7; SIZE]), allocate(SIZE), stream());
            let batch = set_up(50).unwrap();
            let entries: Vec<_> =
                (0..50).map(|tile| entry(file, target, tile * 100, tile * 100, 100)).collect();
            // Earlier work still reads it, and later work reads it too early.
            ok(cuMemcpyDtoDAsync_v2(copy, target, SIZE, stream));
            assert_eq!(submit(batch, &entries), 0);
            let early = allocate(SIZE);
            ok(cuMemcpyDtoDAsync_v2(early, target, SIZE, stream));
            assert_eq!(events(batch, 50, 50).unwrap().len(), 50);
            ok(cuStreamSynchronize(stream));
            assert_ne!(download(copy, SIZE).unwrap(), [7; SIZE]);
            assert_ne!(download(early, SIZE).unwrap(), bytes[..SIZE]);
            assert_eq!(download(target, SIZE).unwrap(), bytes[..SIZE]);
        });
    }
}

#[test]
fn nothing_goes_away_under_a_read() {
    let name = "cufile_hazards::nothing_goes_away_under_a_read";
    let landing = ("CUFILE_LAND", "late");
    let finished = isolated(name, &[landing], || {
        let (batch, target, _) = in_flight();
        assert_eq!(cuFileDriverClose_v2().err, 5006);
        ok(cuMemFree_v2(target));
        assert_eq!(events(batch, 1, 1), Err(5011));
    });
    if finished.ran {
        assert_eq!(finished.report.items("faults")[0].number("code"), 700);
    }
    let finished = isolated(name, &[landing, ("SEED", "1")], || {
        start(0);
        let (handle, _) = open();
        let target = allocate(SIZE);
        done(cuFileBufRegister(target, SIZE, 0));
        let batch = set_up(4).unwrap();
        assert_eq!(submit(batch, &[entry(handle, target, 0, 0, SIZE)]), 0);
        assert_eq!(cuFileBufDeregister(target).err, 5022);
        cuFileHandleDeregister(handle);
        assert_eq!(events(batch, 1, 1).unwrap()[0].ret, -5027);
        done(cuFileBufDeregister(target));
    });
    if finished.ran {
        assert_eq!(finished.report.items("errors").len(), 3);
    }
    isolated(name, &[landing, ("SEED", "2")], || {
        open();
        let (closed, _) = file();
        let handle = register(closed).unwrap();
        let batch = set_up(4).unwrap();
        assert_eq!(submit(batch, &[entry(handle, allocate(SIZE), 0, 0, SIZE)]), 0);
        // Another file gets its number.
        let (other, _) = file();
        // SAFETY: both are open.
        unsafe { libc::dup2(other.as_raw_fd(), closed.as_raw_fd()) };
        assert_eq!(events(batch, 1, 1).unwrap()[0].ret, -(libc::EBADF as isize));
    });
}

#[test]
fn a_batch_that_is_destroyed_or_canceled() {
    let name = "cufile_hazards::a_batch_that_is_destroyed_or_canceled";
    let finished = isolated(name, &[], || {
        let (batch, target, expected) = in_flight();
        cuFileBatchIODestroy(batch);
        assert_eq!(download(target, SIZE).unwrap(), expected);
        assert_eq!(events(batch, 0, 1), Err(5022));
    });
    if finished.ran {
        assert!(finished.report.items("errors")[0].text("message").contains("destroyed"));
    }
    // What has landed is not canceled any more.
    isolated(name, &[("CUFILE_LAND", "early")], || {
        let (batch, target, expected) = in_flight();
        done(cuFileBatchIOCancel(batch));
        assert_eq!(events(batch, 1, 1).unwrap()[0].status, COMPLETE);
        assert_eq!(download(target, SIZE).unwrap(), expected);
    });
    let finished = isolated(name, &[("CUFILE_LAND", "late")], || {
        let (batch, target, expected) = in_flight();
        done(cuFileBatchIOCancel(batch));
        let event = events(batch, 1, 1).unwrap()[0];
        assert_eq!((event.status, event.ret), (8, 0));
        assert_ne!(download(target, SIZE).unwrap(), expected);
        cuFileBatchIODestroy(batch);
    });
    if finished.ran {
        assert_eq!(finished.report.items("cufile.reads")[0].text("status"), "canceled");
        assert!(finished.report.items("errors").is_empty());
    }
}
