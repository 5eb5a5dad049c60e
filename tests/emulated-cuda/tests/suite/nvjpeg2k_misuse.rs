//! What nvJPEG2000 does not forgive, and what it does to codestreams that are corrupt.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use emulated_cuda::api::context::cuCtxSynchronize;
use emulated_cuda::api::device::cuInit;
use emulated_cuda::api::stream::cuStreamSynchronize;
use emulated_cuda::nvjpeg2k::DeviceAllocatorV2;
use emulated_cuda::nvjpeg2k::api::{
    nvjpeg2kCreateSimple, nvjpeg2kCreateV2, nvjpeg2kDecodeParamsSetOutputFormat,
    nvjpeg2kDecodeStateCreate, nvjpeg2kDecodeStateDestroy, nvjpeg2kDestroy, nvjpeg2kStreamCreate,
    nvjpeg2kStreamDestroy, nvjpeg2kStreamGetImageInfo,
};

use crate::case::{allocate, ask, download, isolated, ok, pinned, start, upload};
use crate::j2k::Picture;
use crate::json::Json;
use crate::nvjpeg2k::Decoder;
use crate::process::child_answers;

fn picture() -> Picture {
    Picture::new(50, 40, 1, 8)
}

/// A decode that is submitted, then `then`; what is in its output when it has run.
fn spoiled(then: impl FnOnce(&Decoder, &[u8])) -> bool {
    start(0);
    let decoder = Decoder::simple();
    let bytes = picture().encoded();
    assert_eq!(decoder.parse(&bytes), 0);
    let target = upload(&[7; 2000]);
    ok(decoder.decode(&picture(), target));
    then(&decoder, &bytes);
    ok(cuCtxSynchronize());
    let found = download(target, 2000).unwrap();
    assert_ne!(found, [7; 2000]);
    found != picture().interleaved()
}

#[test]
fn what_a_decode_uses_is_used_for_nothing_else_before_it_ran() {
    let name = "nvjpeg2k_misuse::what_a_decode_uses_is_used_for_nothing_else_before_it_ran";
    type Misuse = fn(&Decoder, &[u8]);
    let again: Misuse = |decoder, bytes| {
        let other = Decoder { bits: ask(|place| nvjpeg2kStreamCreate(place)).unwrap(), ..*decoder };
        assert_eq!(other.parse(bytes), 0);
        let target = allocate(2000);
        ok(other.decode(&picture(), target));
        ok(cuStreamSynchronize(other.stream));
        // Both are wrong.
        assert_ne!(download(target, 2000).unwrap(), picture().interleaved());
    };
    let cases: [(&str, Misuse); 6] = [
        ("1", |_, _| ()),
        ("2", again),
        ("3", |decoder, bytes| assert_eq!(decoder.parse(bytes), 0)),
        ("4", |decoder, _| ok(nvjpeg2kStreamDestroy(decoder.bits))),
        ("5", |decoder, _| ok(nvjpeg2kDecodeStateDestroy(decoder.state))),
        ("6", |decoder, _| ok(nvjpeg2kDestroy(decoder.library))),
    ];
    for (seed, misuse) in cases {
        let finished = isolated(name, &[("SEED", seed)], || {
            assert_eq!(spoiled(misuse), seed != "1");
        });
        if finished.ran {
            assert_eq!(finished.report.number("nvjpeg2k.misuse") > 0, seed != "1");
        }
    }
}

static SHARED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Gives everybody the same memory, device (context 0) or pinned (1).
unsafe extern "C" fn shared(
    which: *mut c_void,
    place: *mut *mut c_void,
    _: usize,
    _: u64,
) -> c_int {
    // SAFETY: the library's place.
    unsafe { place.write(SHARED[which as usize].load(Ordering::SeqCst) as *mut c_void) };
    0
}

unsafe extern "C" fn kept(_: *mut c_void, _: *mut c_void, _: usize, _: u64) -> c_int {
    0
}

#[test]
fn states_that_share_memory_spoil_each_other() {
    let name = "nvjpeg2k_misuse::states_that_share_memory_spoil_each_other";
    // Pinned memory of two decodes in flight; device memory that is an output as well.
    for (seed, is_pinned) in [("1", true), ("2", false)] {
        let finished = isolated(name, &[("SEED", seed)], || {
            start(0);
            let target = allocate(1 << 16);
            SHARED[0].store(if is_pinned { allocate(1 << 16) } else { target }, Ordering::SeqCst);
            SHARED[1].store(pinned(1 << 16).as_ptr() as u64, Ordering::SeqCst);
            let allocator = |which: usize| DeviceAllocatorV2 {
                malloc: Some(shared),
                free: Some(kept),
                context: which as *mut c_void,
            };
            let (device, host) = (allocator(0), allocator(1));
            let library =
                ask(|place| nvjpeg2kCreateV2(0, Some(&device), Some(&host), place)).unwrap();
            let (one, two) = (Decoder::new(library), Decoder::new(library));
            let other = Picture::new(60, 40, 1, 8);
            let streams = (picture().encoded(), other.encoded());
            assert_eq!((one.parse(&streams.0), two.parse(&streams.1)), (0, 0));
            ok(one.decode(&picture(), target));
            if !is_pinned {
                ok(cuStreamSynchronize(one.stream));
                assert_eq!(download(target, 2000).unwrap(), picture().interleaved());
            }
            ok(two.decode(&other, allocate(2400)));
            ok(cuCtxSynchronize());
            assert_ne!(download(target, 2000).unwrap(), picture().interleaved());
        });
        if finished.ran {
            assert_eq!(finished.report.number("nvjpeg2k.misuse"), u64::from(is_pinned));
        }
    }
}

#[test]
fn a_state_is_free_again_when_its_decode_was_waited_for() {
    let name = "nvjpeg2k_misuse::a_state_is_free_again_when_its_decode_was_waited_for";
    let finished = isolated(name, &[], || {
        start(0);
        let decoder = Decoder::simple();
        let bytes = picture().encoded();
        let target = allocate(2000);
        for _ in 0..3 {
            assert_eq!(decoder.parse(&bytes), 0);
            ok(decoder.decode(&picture(), target));
            ok(cuStreamSynchronize(decoder.stream));
        }
    });
    assert_eq!(finished.report.number("nvjpeg2k.misuse"), 0);
    assert_eq!(finished.report.number("nvjpeg2k.decoded"), 3);
}

#[test]
fn sizes_types_and_handles_are_checked() {
    isolated("nvjpeg2k_misuse::sizes_types_and_handles_are_checked", &[], || {
        start(0);
        let decoder = Decoder::simple();
        let target = allocate(1 << 16);
        assert_eq!(decoder.submit(&[target], 100, 0, 1), 2);
        for (count, precision, is_signed, fits) in [
            (1, 8, false, [true, true, true]),
            (1, 12, false, [false, true, true]),
            (1, 16, false, [false, true, false]),
            (1, 8, true, [false, false, true]),
            (2, 16, true, [false, false, true]),
        ] {
            let picture = Picture::with_sign(40, 32, count, precision, is_signed);
            let bytes = picture.encoded();
            for (kind, fits) in (0u32..).zip(fits) {
                assert_eq!(decoder.parse(&bytes), 0);
                let pitch = 40 * count * if kind == 0 { 1 } else { 2 };
                let submit = |pitch, count| decoder.submit(&[target], pitch, kind, count);
                assert_eq!(submit(pitch, count as u32), if fits { 0 } else { 2 });
                ok(cuStreamSynchronize(decoder.stream));
                assert_eq!(submit(pitch - 1, count as u32), 2);
                assert_eq!(submit(pitch, count as u32 + 1), 2);
            }
        }
        assert_eq!(decoder.submit(&[target], 1000, 3, 2), 2);
        assert_eq!(decoder.submit(&[0], 1000, 2, 2), 2);
        let other = Decoder::simple();
        assert_eq!(Decoder { state: other.state, ..decoder }.submit(&[target], 1000, 2, 2), 2);
        assert_eq!(ask(|place| nvjpeg2kDecodeStateCreate(7, place)), Err(2));
        assert_eq!(nvjpeg2kDestroy(7), 2);
        assert_eq!(nvjpeg2kStreamDestroy(7), 2);
        assert_eq!(nvjpeg2kDecodeParamsSetOutputFormat(decoder.parameters, 5), 2);
        assert_eq!(decoder.parse(&[]), 2);
        assert_eq!(decoder.parse(b"no codestream at all"), 3);
        for (count, precision) in [(5, 8), (1, 17)] {
            assert_eq!(decoder.parse(&Picture::new(40, 32, count, precision).encoded()), 4);
        }
    });
}

#[test]
fn an_output_out_of_bounds_is_a_fault() {
    isolated("nvjpeg2k_misuse::an_output_out_of_bounds_is_a_fault", &[], || {
        start(0);
        let decoder = Decoder::simple();
        let bytes = picture().encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        ok(decoder.decode(&picture(), allocate(1999)));
        assert_eq!(cuStreamSynchronize(decoder.stream), 700);
        assert_eq!(decoder.decode(&picture(), 1), 6);
    });
}

#[test]
fn a_stream_that_was_not_parsed_still_holds_the_one_before() {
    let name = "nvjpeg2k_misuse::a_stream_that_was_not_parsed_still_holds_the_one_before";
    isolated(name, &[], || {
        start(0);
        let decoder = Decoder::simple();
        let mut bytes = picture().encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        bytes.fill(0);
        assert_eq!(decoder.parse(b"no codestream at all"), 3);
        let info = ask(|place| nvjpeg2kStreamGetImageInfo(decoder.bits, place)).unwrap();
        assert_eq!((info.width, info.height), (50, 40));
        let target = allocate(2000);
        ok(decoder.decode(&picture(), target));
        ok(cuStreamSynchronize(decoder.stream));
        assert_eq!(download(target, 2000).unwrap(), picture().interleaved());
    });
}

/// A stream whose last half is missing.
fn truncated() -> Vec<u8> {
    let mut bytes = picture().encoded();
    bytes.truncate(bytes.len() / 2);
    bytes
}

#[test]
fn a_corrupt_stream_is_told_or_not() {
    let name = "nvjpeg2k_misuse::a_corrupt_stream_is_told_or_not";
    for mode in ["parse", "decode", "garbage", "unwritten", "fault"] {
        let finished = isolated(name, &[("J2K_CORRUPT", mode)], || {
            start(0);
            let decoder = Decoder::simple();
            let bytes = truncated();
            let target = upload(&[7; 2000]);
            assert_eq!(decoder.parse(&bytes), if mode == "parse" { 3 } else { 0 });
            let submitted = decoder.decode(&picture(), target);
            assert_eq!(
                submitted,
                match mode {
                    "parse" => 2,
                    "decode" => 3,
                    _ => 0,
                }
            );
            let waited = cuStreamSynchronize(decoder.stream);
            assert_eq!(waited, if mode == "fault" { 719 } else { 0 });
            if mode != "fault" {
                let found = download(target, 2000).unwrap();
                assert_eq!(found == [7; 2000], mode != "garbage");
                assert_ne!(found, picture().interleaved());
            }
        });
        if finished.ran {
            let counted = ["corrupt", "parse_refused"]
                .map(|field| finished.report.number(&format!("nvjpeg2k.{field}")));
            assert_eq!(counted, if mode == "parse" { [0, 1] } else { [1, 0] });
            assert_eq!(finished.report.number("nvjpeg2k.decoded"), 0);
        }
    }
}

#[test]
fn by_seed_a_corrupt_stream_is_told_in_every_way() {
    let name = "nvjpeg2k_misuse::by_seed_a_corrupt_stream_is_told_in_every_way";
    let mut seen = std::collections::BTreeSet::new();
    for seed in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"] {
        let finished = isolated(name, &[("SEED", seed)], || {
            start(0);
            let decoder = Decoder::simple();
            let bytes = truncated();
            let target = upload(&[7; 2000]);
            let outcome = match (decoder.parse(&bytes), decoder.decode(&picture(), target)) {
                (3, _) => "parse",
                (0, 3) => "decode",
                (0, 0) => {
                    ok(cuStreamSynchronize(decoder.stream));
                    match download(target, 2000).unwrap() == [7; 2000] {
                        true => "unwritten",
                        false => "garbage",
                    }
                }
                other => panic!("{other:?}"),
            };
            println!("\nended as {outcome}");
        });
        let line = finished.output.lines().find(|line| line.starts_with("ended as"));
        seen.extend(line.map(String::from));
    }
    assert!(seen.is_empty() || seen.len() == 4, "{seen:?}");
}

#[test]
fn bytes_that_change_between_parsing_and_decoding() {
    isolated(
        "nvjpeg2k_misuse::bytes_that_change_between_parsing_and_decoding",
        &[("J2K_CORRUPT", "decode")],
        || {
            start(0);
            let decoder = Decoder::simple();
            let mut bytes = picture().encoded();
            assert_eq!(decoder.parse(&bytes), 0);
            bytes.fill(0);
            assert_eq!(decoder.decode(&picture(), allocate(2000)), 3);
        },
    );
}

#[test]
fn calls_fail_where_they_must() {
    let name = "nvjpeg2k_misuse::calls_fail_where_they_must";
    isolated(name, &[("NVJPEG2K", "refused")], || {
        ok(cuInit(0));
        assert_eq!(ask(|place| nvjpeg2kCreateSimple(place)), Err(7));
    });
    // cuInit, retain, set current, create: the fourth call.
    for (fail, status) in [("4:5", 5), ("4:700", 6), ("4:999", 6)] {
        let finished = isolated(name, &[("FAIL", fail)], || {
            start(0);
            assert_eq!(ask(|place| nvjpeg2kCreateSimple(place)), Err(status));
        });
        if finished.ran {
            let symbol = finished.report.items("injected")[0].text("symbol").to_owned();
            assert_eq!(symbol, "nvjpeg2kCreateSimple");
        }
    }
    isolated(name, &[("PINNED", "refuse")], || {
        start(0);
        let decoder = Decoder::simple();
        let bytes = picture().encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        assert_eq!(decoder.decode(&picture(), allocate(2000)), 5);
        assert!(child_answers(|| ask(|place| nvjpeg2kCreateSimple(place)) == Err(6)));
    });
    let finished = isolated(name, &[], || {
        start(0);
        Decoder::simple();
    });
    if finished.ran {
        assert_eq!(*finished.report.at("leaks.nvjpeg2k"), Json::Number(4));
    }
}
