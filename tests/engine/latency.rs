//! A source where every request takes a millisecond: how many are under way at once, and how many rounds
//! of them it takes, in simulated time. One by one it would be as many as there are tiles.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gpugtiff::engine::cuda::Verify;
use gpugtiff::engine::{Batch, Codec, Engine, Predictor, Sample, TileJob, TileSpec};
use gpugtiff::error::Result;
use gpugtiff::io::{ByteSource, Memory};

use crate::emulator;
use crate::suite::Keep;

const TILES: usize = 256;
const WORKERS: usize = 8;

/// Answers nobody before as many ask as there are workers, or as there are tiles left: a round.
struct Slow {
    bytes: Memory,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    done: usize,
    /// How many asked at once, round by round.
    rounds: Vec<usize>,
}

impl ByteSource for Slow {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let round = state.rounds.len();
        state.waiting += 1;
        if state.waiting == WORKERS.min(TILES - state.done) {
            state.next();
        } else {
            // Where nobody else comes, fewer do.
            let patience = Duration::from_secs(3);
            let same = |state: &mut State| state.rounds.len() == round;
            let (after, late) = self.answered.wait_timeout_while(state, patience, same).unwrap();
            state = after;
            if late.timed_out() {
                state.next();
            }
        }
        self.answered.notify_all();
        drop(state);
        self.bytes.read_at(offset, buf)
    }

    fn concurrent(&self) -> bool {
        true
    }
}

impl State {
    fn next(&mut self) {
        self.rounds.push(self.waiting);
        self.done += std::mem::take(&mut self.waiting);
    }
}

fn batch(side: usize, source: Arc<dyn ByteSource>) -> Batch {
    let spec = TileSpec {
        codec: Codec::None,
        predictor: Predictor::None,
        sample: Sample::Whole { bytes: 1, unit: 1 },
        samples: 1,
        width: side,
        height: side,
        swap: false,
    };
    let len = side * side;
    let job = |id: usize| TileJob {
        id: id as u64,
        offset: (id * len) as u64,
        len,
        columns: side,
        rows: side,
        padded: true,
        part: None,
    };
    Batch { spec: Arc::new(spec), tiles: (0..TILES).map(job).collect(), source, threads: WORKERS }
}

/// Tiles of 16 KiB, of which a task takes several, and of 1 KiB, of which it would take many.
#[test]
fn as_many_reads_are_under_way_as_there_are_workers() {
    for side in [128, 32] {
        let engine = emulator::engine(Verify::No);
        let slow = Arc::new(Slow {
            bytes: Memory((0..TILES * side * side).map(|i| (i >> 3) as u8).collect()),
            state: Mutex::default(),
            answered: Condvar::new(),
        });
        let staged = engine.stage(batch(side, slow.clone())).unwrap();
        let keep = Keep::default();
        assert!(staged.decode(&keep).is_empty());
        assert_eq!(keep.0.lock().unwrap().len(), TILES);
        let rounds = std::mem::take(&mut slow.state.lock().unwrap().rounds);
        assert_eq!(rounds, [WORKERS; TILES / WORKERS], "tiles of {side} x {side}");
    }
}
