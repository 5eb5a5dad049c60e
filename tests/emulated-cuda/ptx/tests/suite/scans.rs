//! Warps and blocks that work together, in every order and with the race check on.

use crate::device::{Arg, Random, Runner};

/// Converged, with races, and in several orders.
pub(crate) fn ways(fixture: &str) -> Vec<Runner> {
    let mut ways = vec![Runner::fixture(fixture), Runner::fixture(fixture).races()];
    for seed in 1..7 {
        ways.push(Runner::fixture(fixture).adversarial(seed));
        ways.push(Runner::fixture(fixture).adversarial(seed).races());
    }
    ways
}

fn values(n: usize) -> Vec<u32> {
    let mut random = Random(7);
    (0..n).map(|_| random.next() as u32).collect()
}

#[test]
fn shuffles_make_prefix_sums() {
    for mut way in ways("scan") {
        for width in [1u32, 31, 32, 33, 100] {
            let (rows, warps) = (6, 3);
            let input = values((rows * width) as usize);
            let (from, to) = (way.device.put(&input), way.device.put(&vec![0u32; input.len()]));
            let args = [Arg::U64(from), Arg::U64(to), Arg::U32(width)];
            way.run("row_sums", [rows / warps, 1, 1], [32, warps, 1], 0, &args).unwrap();
            let found = way.device.get::<u32>(to);
            for (given, found) in input.chunks(width as usize).zip(found.chunks(width as usize)) {
                let mut sum = 0u32;
                for (given, found) in given.iter().zip(found) {
                    sum = sum.wrapping_add(*given);
                    assert_eq!(sum, *found);
                }
            }
        }
    }
}

#[test]
fn shared_memory_makes_sums() {
    for mut way in ways("scan") {
        let input = values(3001);
        let sum: u64 = input.iter().map(|v| u64::from(*v)).sum();
        let from = way.device.put(&input);
        let (parts, total) = (way.device.put(&[0u64; 3]), way.device.put(&[0u64]));
        let args = |to| [Arg::U64(from), Arg::U64(to), Arg::U32(3001)];
        way.run("block_sum", [3, 1, 1], [256, 1, 1], 0, &args(parts)).unwrap();
        assert_eq!(way.device.get::<u64>(parts).iter().sum::<u64>(), sum);
        way.run("grid_sum", [3, 1, 1], [96, 1, 1], 3 * 8, &args(total)).unwrap();
        assert_eq!(way.device.get::<u64>(total), [sum]);
    }
}

#[test]
fn too_little_dynamic_shared_memory_is_an_illegal_address() {
    let mut way = Runner::fixture("scan");
    let (from, to) = (way.device.put(&values(96)), way.device.put(&[0u64]));
    let args = [Arg::U64(from), Arg::U64(to), Arg::U32(96)];
    let fault = way.run("grid_sum", [1, 1, 1], [96, 1, 1], 2 * 8, &args).unwrap_err();
    assert_eq!(fault.kind, ptx::FaultKind::IllegalAddress);
    assert!(fault.message.contains("thread [64, 0, 0]"), "{fault}");
}

#[test]
fn votes_and_matches() {
    for mut way in ways("scan") {
        let mut random = Random(11);
        let mut input: Vec<u32> = (0..128).map(|_| random.next() as u32 % 120).collect();
        input[..32].fill(9);
        input[40] |= 1 << 31;
        let (from, to) = (way.device.put(&input), way.device.put(&[0u32; 128 * 6]));
        way.run("votes", [2, 1, 1], [64, 1, 1], 0, &[Arg::U64(from), Arg::U64(to)]).unwrap();
        let found = way.device.get::<u32>(to);
        let masked = |warp: &[u32], f: &dyn Fn(u32) -> bool| {
            warp.iter().enumerate().fold(0, |m, (i, v)| m | u32::from(f(*v)) << i)
        };
        for (t, v) in input.iter().enumerate() {
            let (warp, lane) = (&input[t / 32 * 32..][..32], t % 32);
            let block = &input[t / 64 * 64..][..64];
            let found = &found[6 * t..6 * t + 6];
            assert_eq!(found[0], masked(warp, &|v| v & 1 != 0));
            let all = u32::from(warp.iter().all(|v| *v < 100));
            assert_eq!(found[1], all | u32::from(warp.contains(&7)) << 1);
            assert_eq!(found[2], masked(warp, &|other| other == *v));
            let same = warp.iter().all(|other| other >> 31 == warp[0] >> 31);
            assert_eq!(found[3], if same { u32::MAX ^ 1 } else { 0 });
            let from = if lane % 8 + 3 < 8 { lane + 3 } else { lane };
            assert_eq!(found[4], warp[from]);
            let odd = block.iter().filter(|v| **v & 1 != 0).count() as u32;
            let five = u32::from(block.contains(&5));
            if way.options.schedule == ptx::Schedule::Converged {
                assert_eq!(found[5], u32::MAX.wrapping_add(odd + five));
            }
        }
    }
}

#[test]
fn groups_of_lanes_with_masks_of_their_own() {
    for mut way in ways("scan") {
        let to = way.device.put(&[0u32; 32]);
        way.run("groups", [1, 1, 1], [32, 1, 1], 0, &[Arg::U64(to)]).unwrap();
        let sum = |group: u32| (8 * group + 1..8 * group + 9).sum::<u32>();
        let expected: Vec<u32> = (0..32)
            .map(|lane| match lane / 8 {
                1 => lane + 1,
                3 => 0,
                group => sum(group),
            })
            .collect();
        assert_eq!(way.device.get::<u32>(to), expected);
    }
}
