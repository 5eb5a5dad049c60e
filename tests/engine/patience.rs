//! A device that another dataset keeps busy: how long one waits for it, and that it is taken up again.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpugtiff::engine::cuda::{CudaEngine, Settings, Verify};
use gpugtiff::engine::{Batch, Engine, Packed, TileSpec};
use gpugtiff::error::Result;
use gpugtiff::io::{ByteSource, Memory};

use crate::emulator::{self, count};
use crate::naive::Naive;
use crate::suite::Keep;
use crate::tiles::Random;
use crate::{auto, encode, suite};

const PATIENCE: Duration = Duration::from_millis(300);
const TILES: usize = 12;
/// Each of them several of the device's.
const BATCHES: u32 = 6;

/// Says that it is being read, and goes on when it is told to: the device's memory is lent meanwhile.
struct Held {
    bytes: Memory,
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl ByteSource for Held {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let _ = self.reached.send(());
        let _ = self.go_on.lock().unwrap().recv();
        self.bytes.read_at(offset, buf)
    }
}

#[test]
fn who_has_waited_in_vain_does_not_wait_again() {
    let spec = TileSpec { width: 32, height: 32, ..auto::spec() };
    let (mut random, mut case) = (Random::new(11), suite::Case::new(spec));
    for _ in 0..TILES {
        case.add(32, &mut random);
    }
    let (reached, is_reached) = channel();
    let (tell, go_on) = channel();
    let bytes = Memory(case.file.clone());
    let source = Arc::new(Held { bytes, reached, go_on: Mutex::new(go_on) });
    let (spec, tiles) = (Arc::new(case.spec.clone()), case.jobs.clone());
    let batch = Batch { spec, tiles, source, threads: 1 };
    let other = emulator::engine(Verify::No);
    let holder = std::thread::spawn(move || {
        let keep = Keep::default();
        other.stage(batch).unwrap().decode(&keep).len()
    });
    is_reached.recv().unwrap();
    let patience = Some(PATIENCE);
    let settings = Settings { patience, ..emulator::settings(Verify::No, 16 << 10) };
    let [reader, writer] =
        [0, 1].map(|_| CudaEngine::new(settings.clone()).unwrap_or_else(|no| panic!("{no}")));
    let mut pixels = encode::Case::new(case.spec.clone());
    (0..TILES).for_each(|_| pixels.add(32, &mut random));
    let mut packed = Packed::default();
    let started = Instant::now();
    for _ in 0..BATCHES {
        case.run(&reader, false, 1).check_exact(&case, "busy");
        pixels.encode(&writer, 1, &mut packed);
    }
    let took = started.elapsed();
    assert!(took > 2 * PATIENCE && took < BATCHES * PATIENCE, "{took:?}");
    assert_eq!(count(&reader, "CUDA_TILES_BUSY"), u64::from(BATCHES) * TILES as u64);
    assert_eq!(count(&writer, "CUDA_TILES_ENCODED"), 0);
    drop(tell);
    assert_eq!(holder.join().unwrap(), 0);
    // Other tests have the device too, and nobody waits for them now: it is had sooner or later.
    let until = Instant::now() + Duration::from_secs(20);
    while count(&reader, "CUDA_TILES_DECODED") == 0 || count(&writer, "CUDA_TILES_ENCODED") == 0 {
        assert!(Instant::now() < until, "the device is not taken up again");
        case.run(&reader, false, 1).check_exact(&case, "free");
        pixels.encode(&writer, 1, &mut packed);
        pixels.read_back(&Naive, &packed, "free");
    }
}
