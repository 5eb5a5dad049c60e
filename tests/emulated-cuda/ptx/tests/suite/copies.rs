//! Bytes, vectors, structures and counters, and what is said about them afterwards.

use crate::device::{Arg, Random, Runner};
use crate::scans::ways;

#[test]
fn bytes_from_anywhere_to_anywhere() {
    for mut way in ways("copy") {
        let mut random = Random(3);
        let input: Vec<u8> = (0..1500).map(|_| random.next() as u8).collect();
        let from = way.device.put(&input);
        for (skip, lead, n) in [(0, 0, 1000), (8, 0, 1003), (16, 32, 1007), (1, 5, 33), (0, 8, 8)] {
            let to = way.device.put(&[0xaau8; 1500]);
            let args = [Arg::U64(from + skip), Arg::U64(to + lead), Arg::U64(n)];
            way.run("copy", [2, 1, 1], [48, 1, 1], 0, &args).unwrap();
            let found = way.device.get::<u8>(to);
            let (skip, lead, n) = (skip as usize, lead as usize, n as usize);
            assert_eq!(found[lead..lead + n], input[skip..skip + n]);
            assert!(found[..lead].iter().chain(&found[lead + n..]).all(|b| *b == 0xaa));
        }
    }
}

#[test]
fn sectors_and_bytes_are_counted() {
    let mut way = Runner::fixture("copy");
    let (from, to) = (way.device.put(&[1u8; 4096]), way.device.put(&[0u8; 4096]));
    let run = |skip, n| {
        let args = [Arg::U64(from + skip), Arg::U64(to + skip), Arg::U64(n)];
        way.run("copy", [1, 1, 1], [32, 1, 1], 0, &args).unwrap()
    };
    let whole = run(0, 512);
    assert_eq!((whole.bytes_loaded, whole.bytes_stored), (512, 512));
    assert_eq!((whole.sectors_loaded, whole.sectors_stored), (16, 16));
    assert_eq!(whole.threads, 32);
    assert!(whole.longest_thread * 32 >= whole.instructions);
    // 32 bytes beginning in the middle of a sector touch two.
    let askew = run(17, 32);
    assert_eq!((askew.bytes_loaded, askew.sectors_loaded), (32, 2));
    // The longest thread is the one that has a byte more to copy.
    let uneven = run(17, 33);
    assert!(uneven.longest_thread > askew.longest_thread);
}

#[test]
fn a_sector_counts_once_in_whatever_order_lanes_touch_it() {
    let text = ".version 8.0\n.target sm_70\n.visible .entry k(.param .u64 out)\n{\n\
        .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x;\n\
        and.b32 %r1, %r0, 3; shl.b32 %r1, %r1, 5; or.b32 %r1, %r1, %r0;\n\
        cvt.u64.u32 %d1, %r1; add.s64 %d1, %d1, %d0; st.global.u8 [%d1], 1;\nret;\n}\n";
    let mut way = Runner::new(text);
    let out = way.device.put(&[0u8; 128]);
    let stats = way.run("k", [1, 1, 1], [32, 1, 1], 0, &[Arg::U64(out)]).unwrap();
    assert_eq!((stats.sectors_stored, stats.bytes_stored), (4, 32));
    assert_eq!((stats.sectors_loaded, stats.bytes_loaded), (0, 0));
}

#[test]
fn the_byte_after_the_last_one_is_not_there() {
    for threads in [32, 48] {
        let mut way = Runner::fixture("copy");
        let (from, to) = (way.device.put(&[1u8; 200]), way.device.put(&[0u8; 99]));
        let run = |n| {
            let args = [Arg::U64(from + 1), Arg::U64(to), Arg::U64(n)];
            way.run("copy", [1, 1, 1], [threads, 1, 1], 0, &args)
        };
        run(99).unwrap();
        let fault = run(100).unwrap_err();
        assert_eq!(fault.kind, ptx::FaultKind::IllegalAddress);
        assert!(fault.message.contains("0 bytes after 99 bytes"), "{fault}");
    }
}

#[test]
fn vectors_through_shared_memory() {
    for mut way in ways("copy") {
        let mut random = Random(5);
        let input: Vec<u64> = (0..64 * 2 * 3).map(|_| random.next()).collect();
        let data = way.device.put(&input);
        way.run("reverse", [3, 1, 1], [64, 1, 1], 0, &[Arg::U64(data)]).unwrap();
        let found = way.device.get::<u64>(data);
        for (given, found) in input.chunks(128).zip(found.chunks(128)) {
            assert!(given.iter().rev().eq(found));
        }
    }
}

#[test]
fn a_structure_as_a_parameter() {
    let mut way = Runner::fixture("copy");
    let out = way.device.put(&[0u64; 3]);
    let mut big = Vec::new();
    for v in [10u32, 20, 30, 40, 50] {
        big.extend(v.to_le_bytes());
    }
    big.extend([77, 0, 0, 0]);
    big.extend(u64::MAX.to_le_bytes());
    for i in 0..5 {
        let args = [Arg::U64(out), Arg::Bytes(big.clone()), Arg::U32(i)];
        way.run("fields", [1, 1, 1], [1, 1, 1], 0, &args).unwrap();
        assert_eq!(way.device.get::<u64>(out), [10 * (u64::from(i) + 1), 77, u64::MAX]);
    }
}

#[test]
fn atomics_count_in_shared_and_global_memory() {
    for mut way in ways("copy") {
        let mut random = Random(9);
        let input: Vec<u8> = (0..3000).map(|_| random.next() as u8 & 31).collect();
        let (from, to) = (way.device.put(&input), way.device.put(&[0u32; 256]));
        let args = [Arg::U64(from), Arg::U64(to), Arg::U32(3000)];
        way.run("histogram", [4, 1, 1], [64, 1, 1], 0, &args).unwrap();
        let mut expected = [0u32; 256];
        input.iter().for_each(|v| expected[usize::from(*v)] += 1);
        assert_eq!(way.device.get::<u32>(to), expected);
    }
}

/// Prints the speed; what is computed is checked.
#[test]
fn work_at_some_speed() {
    let mut way = Runner::fixture("copy");
    let (blocks, threads, rounds) = (16, 256, 500);
    let out = way.device.put(&vec![0u32; (blocks * threads) as usize]);
    let start = std::time::Instant::now();
    let args = [Arg::U64(out), Arg::U32(rounds)];
    let stats = way.run("work", [blocks, 1, 1], [threads, 1, 1], 0, &args).unwrap();
    let rate = stats.instructions as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.0} M thread instructions a second");
    for (t, found) in way.device.get::<u32>(out).into_iter().enumerate() {
        let t = t as u32;
        let (mut a, mut b, mut c) = (t, t.wrapping_mul(7).wrapping_add(1), u64::from(t));
        for _ in 0..rounds {
            a = a.wrapping_mul(1664525).wrapping_add(1013904223);
            b ^= a >> 13;
            c = c.wrapping_add(u64::from(b).wrapping_mul(u64::from(a)));
            b = b.rotate_left(5).wrapping_add(c as u32);
        }
        assert_eq!(found, a ^ b ^ (c >> 32) as u32);
    }
}
