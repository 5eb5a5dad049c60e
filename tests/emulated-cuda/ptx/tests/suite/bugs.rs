//! Planted bugs: what each way of running finds, and that right kernels pass all of them.

use ptx::{Fault, FaultKind};

use crate::device::{Arg, Runner};

const SEEDS: std::ops::Range<u64> = 1..9;

fn plain() -> Runner {
    Runner::fixture("bugs")
}

/// What came of a run: the right bytes, wrong ones, or a fault.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    Fault(FaultKind),
}

fn outcome(result: Result<bool, Fault>) -> Outcome {
    match result {
        Ok(true) => Outcome::Right,
        Ok(false) => Outcome::Wrong,
        Err(fault) => {
            assert!(fault.message.contains("PTX line") && fault.message.contains("kernel"));
            Outcome::Fault(fault.kind)
        }
    }
}

fn blocks(mut way: Runner, name: &str) -> Outcome {
    let input: Vec<u32> = (0..384).map(|i| i * i + 5).collect();
    let (from, to) = (way.device.put(&input), way.device.put(&[0u32; 384]));
    let sums = way.device.put(&[0u32; 3]);
    let args = [Arg::U64(from), Arg::U64(to), Arg::U64(sums)];
    outcome(way.run(name, [3, 1, 1], [128, 1, 1], 0, &args).map(|_| {
        let part = |b: &[u32]| b.iter().sum::<u32>() + 127 * 64;
        let expected: Vec<u32> = input.chunks(128).map(part).collect();
        way.device.get::<u32>(to) == input && way.device.get::<u32>(sums) == expected
    }))
}

fn warps(mut way: Runner, name: &str) -> Outcome {
    let input: Vec<u32> = (0..256).map(|i| i * 3 + 1).collect();
    let (from, to) = (way.device.put(&input), way.device.put(&[0u32; 256]));
    let args = [Arg::U64(from), Arg::U64(to)];
    outcome(way.run(name, [2, 1, 1], [32, 4, 1], 0, &args).map(|_| {
        let found = way.device.get::<u32>(to);
        found.iter().enumerate().all(|(i, v)| {
            let (warp, lane) = (i / 32 * 32, i % 32);
            *v == input[warp + 31 - (lane + 1) % 32]
        })
    }))
}

fn adversarial(run: impl Fn(Runner) -> Outcome) -> Vec<Outcome> {
    SEEDS.map(|seed| run(plain().adversarial(seed))).collect()
}

#[test]
fn right_kernels_pass_every_way() {
    for seed in SEEDS {
        assert_eq!(blocks(plain().adversarial(seed).races(), "blocks_right"), Outcome::Right);
        assert_eq!(warps(plain().adversarial(seed).races(), "warps_right"), Outcome::Right);
    }
    for way in [plain, || plain().races()] {
        assert_eq!(blocks(way(), "blocks_right"), Outcome::Right);
        assert_eq!(warps(way(), "warps_right"), Outcome::Right);
    }
}

#[test]
fn a_missing_syncthreads() {
    for name in ["no_barrier_after_fill", "no_barrier_in_tree", "no_barrier_before_reuse"] {
        assert_eq!(blocks(plain(), name), Outcome::Wrong, "{name}");
        assert_eq!(blocks(plain().races(), name), Outcome::Fault(FaultKind::Race), "{name}");
        let found = adversarial(|way| blocks(way, name));
        assert!(found.contains(&Outcome::Wrong), "{name}: {found:?}");
    }
}

#[test]
fn a_missing_syncwarp() {
    for name in ["no_syncwarp_before_shared_read", "no_syncwarp_after_global_copy"] {
        assert_eq!(warps(plain(), name), Outcome::Right, "{name}");
        assert_eq!(warps(plain().races(), name), Outcome::Fault(FaultKind::Race), "{name}");
        let found = adversarial(|way| warps(way, name));
        assert!(found.contains(&Outcome::Wrong), "{name}: {found:?}");
    }
}

/// Runs a kernel that has one buffer of zeros and expects a fault of every way.
fn always(name: &str, threads: u32, kind: FaultKind) -> Vec<Fault> {
    let ways = [plain(), plain().races()].into_iter();
    ways.chain(SEEDS.map(|seed| plain().adversarial(seed)))
        .map(|mut way| {
            let zeros: Vec<u32> = (0..threads).map(|t| t % 2).collect();
            let out = way.device.put(&zeros);
            let result = way.run(name, [1, 1, 1], [threads, 1, 1], 0, &[Arg::U64(out)]);
            let fault = result.expect_err(name);
            assert_eq!(fault.kind, kind, "{fault}");
            fault
        })
        .collect()
}

#[test]
fn divergent_shuffles() {
    for name in [
        "divergent_shuffle",
        "shuffles_in_both_branches",
        "shuffle_after_exit",
        "shuffle_from_outside",
        "divergent_syncwarp",
    ] {
        always(name, 32, FaultKind::Divergence);
    }
}

#[test]
fn divergent_barriers() {
    for fault in always("divergent_barrier", 64, FaultKind::Divergence) {
        let line = fault.message.split("PTX line ").nth(1).unwrap();
        let line: usize = line.split(',').next().unwrap().parse().unwrap();
        let path = format!("{}/tests/fixtures/bugs.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.lines().nth(line - 1).unwrap().contains("bar.sync"), "{fault}");
    }
    always("barrier_of_some_warps", 64, FaultKind::Divergence);
}

#[test]
fn an_index_off_by_one() {
    for way in [plain, || plain().races(), || plain().adversarial(3)] {
        let mut way = way();
        let out = way.device.put(&[0u32; 100]);
        let args = [Arg::U64(out), Arg::U32(100)];
        let fault = way.run("off_by_one", [4, 1, 1], [32, 1, 1], 0, &args).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        for part in ["block [3, 0, 0]", "thread [4, 0, 0]", "400 bytes from", "writes 4 bytes"] {
            assert!(fault.message.contains(part), "{fault}");
        }
        let args = [Arg::U64(out), Arg::U32(99)];
        way.run("off_by_one", [4, 1, 1], [32, 1, 1], 0, &args).unwrap();
    }
    always("shared_off_by_one", 64, FaultKind::IllegalAddress);
}

#[test]
fn addresses_that_are_not_aligned_or_nowhere() {
    let mut way = plain();
    let (from, to) = (way.device.put(&[0u8; 72]), way.device.put(&[0u8; 64]));
    let run = |from, to| {
        let args = [Arg::U64(from), Arg::U64(to)];
        way.run("misaligned", [1, 1, 1], [2, 1, 1], 0, &args).unwrap_err()
    };
    let fault = run(from, to);
    assert_eq!(fault.kind, FaultKind::Misaligned);
    assert!(fault.message.contains("thread [1, 0, 0]"), "{fault}");
    assert_eq!(run(0, to).kind, FaultKind::IllegalAddress);
    assert_eq!(run(from + 128, to).kind, FaultKind::IllegalAddress);
    // Half of it is there.
    assert_eq!(run(from + 64, to).kind, FaultKind::IllegalAddress);
}

#[test]
fn races_between_blocks() {
    let mut way = plain().races();
    let data = way.device.put(&[0u32; 4 * 32]);
    let run = |name, grid, args: &[Arg]| way.run(name, [grid, 1, 1], [32, 1, 1], 0, args);
    let fault = run("neighbours", 4, &[Arg::U64(data)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Race);
    assert!(fault.message.contains("block number"), "{fault}");
    // One block reads what it alone writes.
    run("neighbours", 1, &[Arg::U64(data)]).unwrap();
    let fault = run("count_and_look", 2, &[Arg::U64(data), Arg::U64(data + 128)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Race);
    assert_eq!(run("same_place", 1, &[Arg::U64(data)]).unwrap_err().kind, FaultKind::Race);
}

#[test]
fn budgets_and_traps() {
    for mut way in [plain(), plain().adversarial(1)] {
        way.options.budget = 100_000;
        let flag = way.device.put(&[0u32]);
        let fault = way.run("for_ever", [1, 1, 1], [64, 1, 1], 0, &[Arg::U64(flag)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Budget);
        let set = way.device.put(&[1u32, 2, 3, 4]);
        way.run("for_ever", [1, 1, 1], [64, 1, 1], 0, &[Arg::U64(set)]).unwrap();
        let fault = way.run("give_up", [1, 1, 1], [4, 1, 1], 0, &[Arg::U64(set)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Trap);
        assert!(fault.message.contains("thread [2, 0, 0]"), "{fault}");
    }
}

#[test]
fn launches_that_cannot_be() {
    let mut way = plain();
    let out = way.device.put(&[0u32; 32]);
    for (grid, block) in [([1, 1, 1], [1025, 1, 1]), ([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [0, 1, 1])]
    {
        let fault = way.run("same_place", grid, block, 0, &[Arg::U64(out)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut way = plain().adversarial(seed);
        let data = way.device.put(&[7u32; 4 * 32]);
        way.run("neighbours", [4, 1, 1], [32, 1, 1], 0, &[Arg::U64(data)]).unwrap();
        way.device.get::<u32>(data)
    };
    assert_eq!(run(5), run(5));
    assert!((0..8).any(|seed| run(seed) != run(5)));
}
