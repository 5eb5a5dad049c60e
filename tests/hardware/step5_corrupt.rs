//! Damaged tiles, in processes of their own: nvCOMP calls what it makes of them undefined, and a
//! device that faults is lost to its process. Every tile must come out right, or not at all.

use std::sync::Arc;

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Codec, Engine};

use crate::machine::{count, engine, sized};
use crate::naive::Naive;
use crate::raster::{Raster, Stored, integers};
use crate::tiles::Random;
use crate::{child, report, suite};

const CODECS: [(&str, Codec); 2] = [("Deflate", Codec::Deflate), ("ZSTD", Codec::Zstd)];
const VERIFY: [(&str, Verify); 2] = [("ALL", Verify::All), ("NO", Verify::No)];
/// After a fault a child is on the CPU, so there are many children of few batches.
const BATCHES: u64 = 4;

/// What became of damaged tiles.
#[derive(Default)]
struct Fates {
    /// As without damage.
    right: usize,
    /// Not what was stored, but what the bytes mean now: the reference finds the same. That is
    /// common in ZSTD, which has no checksum, and happens in Deflate: Adler-32 is a sum, and
    /// small differences that trade places leave it as it is.
    changed: usize,
    /// An error.
    failed: usize,
    /// Something else than the reference finds.
    wrong: usize,
}

/// Flips one bit in each of some tiles; says in which.
fn flip(pieces: &mut [Vec<u8>], random: &mut Random) -> Vec<usize> {
    let damaged: Vec<usize> = (0..pieces.len()).filter(|_| random.below(8) == 0).collect();
    for &tile in &damaged {
        let at = random.below(pieces[tile].len());
        pieces[tile][at] ^= 1 << random.below(8);
    }
    damaged
}

fn batch(engine: &dyn Engine, codec: Codec, seed: u64, fates: &mut Fates) {
    let edge = sized(128, 32);
    let raster = Raster::new(integers(codec, edge, edge), 64);
    let mut pieces = raster.pack(&CpuEngine).pieces();
    let damaged = flip(&mut pieces, &mut Random::new(seed));
    let stored = Stored::of(pieces.into_iter());
    let spec = Arc::clone(&raster.spec);
    let (came, failed) = stored.try_decode(engine, &spec);
    let (meant, _) = stored.try_decode(&Naive, &spec);
    for (id, pixels) in came.iter().enumerate() {
        let context = format!("{codec:?}, seed {seed}, tile {id}");
        if !damaged.contains(&id) {
            assert!(*pixels == raster.pixels[id], "{context}: nothing was wrong with it");
        } else if failed.contains(&(id as u64)) {
            assert!(pixels.is_empty(), "{context}: came and failed");
            fates.failed += 1;
        } else if *pixels == raster.pixels[id] {
            fates.right += 1;
        } else {
            let as_meant = *pixels == meant[id];
            assert!(as_meant || codec != Codec::Deflate, "{context}: wrong, checksum or not");
            match as_meant {
                true => fates.changed += 1,
                false => fates.wrong += 1,
            }
        }
    }
}

/// A role is a codec, a way to verify and a number.
fn as_child(role: &str) {
    let mut words = role.split(' ');
    let mut word = || words.next().unwrap();
    let (codec, verify) = (word(), word());
    let codec = CODECS.iter().find(|(name, _)| *name == codec).unwrap().1;
    let verify = VERIFY.iter().find(|(name, _)| *name == verify).unwrap().1;
    let number: u64 = word().parse().unwrap();
    let engine = engine(verify);
    let mut fates = Fates::default();
    for n in 0..BATCHES {
        batch(&engine, codec, 1 + number * BATCHES + n, &mut fates);
    }
    let Fates { right, changed, failed, wrong } = fates;
    let (faults, redone) = (count(&engine, "CUDA_FAULTS"), count(&engine, "CUDA_TILES_REDONE"));
    child::say(&format!("{right} {changed} {failed} {wrong} {redone} {faults}"));
    engine.notices().iter().for_each(|notice| child::say(notice));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn bit_flips() {
    if let Some(role) = child::role() {
        return as_child(&role);
    }
    report::chapter("Corrupt tiles", |text| {
        let head =
            ["codec, VERIFY", "right", "as it reads now", "error", "other", "redone", "faults"];
        report::head(text, &head);
        let mut notices = std::collections::BTreeSet::new();
        let mut wrong_though_verified = 0;
        for (codec, _) in CODECS {
            for (verify, _) in VERIFY {
                let mut sums = [0u64; 6];
                for number in 0..sized(10, 3) {
                    let role = format!("{codec} {verify} {number}");
                    let said = child::run("step5_corrupt::bit_flips", &role);
                    let numbers = said[0].split(' ').map(|n| n.parse::<u64>().unwrap());
                    sums.iter_mut().zip(numbers).for_each(|(sum, n)| *sum += n);
                    notices.extend(said[1..].iter().cloned());
                }
                let [right, changed, failed, wrong, redone, faults] = sums;
                assert!(right + changed + failed + wrong > 0, "nothing was damaged");
                let name = format!("{codec}, {verify}");
                report::row(text, &[&name, &right, &changed, &failed, &wrong, &redone, &faults]);
                wrong_though_verified += if verify == "ALL" { wrong } else { 0 };
            }
        }
        text.push_str(
            "\n*other*: pixels that the reference does not find in the same damaged bytes.\n",
        );
        notices.iter().for_each(|notice| text.push_str(&format!("- {notice}\n")));
        assert_eq!(wrong_though_verified, 0, "VERIFY=ALL let wrong pixels through");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn damage_of_any_kind() {
    const NAME: &str = "step5_corrupt::damage_of_any_kind";
    if let Some(role) = child::role() {
        let verify = VERIFY.iter().find(|(name, _)| *name == role).unwrap().1;
        suite::damaged_tiles_are_right_or_fail_and_never_partial(&engine(verify));
        return child::say("done");
    }
    report::chapter("Damage of any kind, in children", |_| {
        for (verify, _) in VERIFY {
            child::run(NAME, verify);
        }
    });
}
