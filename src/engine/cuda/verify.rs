//! Trust, but verify: which results of the device are compared with the CPU's.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::TILES;
use crate::engine::{Codec, Predictor, Sample, TileSpec};
use crate::error::Result;
use crate::process::memory;

/// VERIFY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verify {
    /// Tiles of the first batch of each kind.
    #[default]
    First,
    /// Every tile.
    All,
    /// None.
    No,
}

/// What a comparison with the CPU vouches for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    codec: Codec,
    predictor: Predictor,
    sample: Sample,
    swap: bool,
    /// nvCOMP's algorithm; none when decoding.
    effort: Option<i32>,
    /// Bytes of a tile, where the size matters.
    bytes: Option<usize>,
    /// Read past the host.
    direct: bool,
}

impl Kind {
    /// Tiles that are decoded.
    pub(super) fn decode(spec: &TileSpec) -> Kind {
        let TileSpec { codec, predictor, sample, swap, .. } = *spec;
        Kind { codec, predictor, sample, swap, effort: None, bytes: None, direct: false }
    }

    /// The same, read past the host.
    pub(super) fn decode_directly(spec: &TileSpec) -> Kind {
        Kind { direct: true, ..Kind::decode(spec) }
    }

    /// Tiles that are encoded.
    pub(super) fn encode(spec: &TileSpec, effort: i32, bytes: Option<usize>) -> Kind {
        Kind { effort: Some(effort), bytes, ..Kind::decode(spec) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.effort.is_some() { "encoding" } else { "decoding" };
        write!(f, "{direction} {:?}, {:?}, {:?}", self.codec, self.predictor, self.sample)?;
        if self.direct { f.write_str(", GPUDirect Storage") } else { Ok(()) }
    }
}

/// How many tiles of a first batch are compared.
const SAMPLE: usize = 64;

/// What is to be compared of one batch.
#[derive(Debug, Clone)]
pub(super) struct Check {
    /// The kind of batch.
    pub(super) kind: Kind,
    /// It was found to come out wrong before.
    pub(super) refuted: bool,
    /// At most so many tiles.
    pub(super) most: usize,
}

impl Check {
    /// The tiles to compare, spread over those that came out.
    pub(super) fn pick(&self, good: &[usize]) -> Result<Vec<usize>> {
        let count = good.len().min(self.most);
        memory::collect((0..count).map(|i| good[i * good.len() / count]), TILES)
    }

    /// How many tiles a first batch, or every batch, has compared.
    pub(super) fn most(verify: Verify, proved: bool) -> usize {
        match verify {
            Verify::All => usize::MAX,
            Verify::First if !proved => SAMPLE,
            _ => 0,
        }
    }
}

/// What the comparison found, on any thread.
#[derive(Debug, Default)]
pub(super) struct Verdict(AtomicBool);

impl Verdict {
    /// Something differs.
    pub(super) fn wrong(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Nothing differs.
    pub(super) fn right(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_spread() {
        let spec = TileSpec {
            codec: Codec::None,
            predictor: Predictor::None,
            sample: Sample::Bit { on: 1 },
            samples: 1,
            width: 1,
            height: 1,
            swap: false,
        };
        let check = |most| Check { kind: Kind::decode(&spec), refuted: false, most };
        let pick = |most, good: &[usize]| check(most).pick(good).unwrap();
        let good: Vec<usize> = (100..300).collect();
        let picked = pick(64, &good);
        assert_eq!((picked.len(), picked[0]), (64, 100));
        assert!(picked.windows(2).all(|w| w[0] < w[1]) && picked[63] > 290);
        assert_eq!(pick(usize::MAX, &good), good);
        assert_eq!(pick(64, &good[..3]), [100, 101, 102]);
        assert!(pick(0, &good).is_empty() && pick(64, &[]).is_empty());
    }
}
