//! What every engine must do when it encodes: the naive reference reads all of it back, and so
//! does the engine itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelJob, PixelSource, Sample, TileJob, TileSpec,
};
use gpugtiff::io::Memory;

use crate::naive::Naive;
use crate::suite::Keep;
use crate::tiles::{self, CODECS, Random};

/// Tiles to be encoded; those without pixels are to be left out.
pub(crate) struct Case {
    spec: TileSpec,
    level: i32,
    jobs: Vec<PixelJob>,
    pixels: HashMap<u64, Option<Vec<u8>>>,
    /// How long the source takes over a tile.
    pause: Duration,
}

/// Gives the pixels of a case, and insists on being asked once for each tile.
struct Given<'a> {
    case: &'a Case,
    asked: Mutex<HashMap<u64, usize>>,
}

impl PixelSource for Given<'_> {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        let asked = *self.asked.lock().unwrap().entry(id).and_modify(|n| *n += 1).or_insert(1);
        assert_eq!(asked, 1, "tile {id} was asked for again");
        std::thread::sleep(self.case.pause);
        let rows = self.case.jobs.iter().find(|job| job.id == id).unwrap().rows;
        assert_eq!(tile.len(), self.case.spec.row_bytes() * rows, "tile {id}");
        match &self.case.pixels[&id] {
            Some(pixels) => tile.copy_from_slice(pixels),
            // Whatever a source leaves behind for a tile that it does not give.
            None => tile.fill(0xEE),
        }
        self.case.pixels[&id].is_some()
    }
}

impl Case {
    pub(crate) fn new(spec: TileSpec) -> Case {
        let pause = Duration::ZERO;
        Case { spec, level: 6, jobs: Vec::new(), pixels: HashMap::new(), pause }
    }

    fn push(&mut self, rows: usize, pixels: Option<Vec<u8>>) {
        let id = 500 + self.jobs.len() as u64 * 3;
        self.jobs.push(PixelJob { id, rows, inside: None });
        self.pixels.insert(id, pixels);
    }

    pub(crate) fn add(&mut self, rows: usize, random: &mut Random) {
        let mut pixels = tiles::pixels(&self.spec, rows, random);
        if let Sample::Bit { .. } = self.spec.sample {
            // Whatever is not 0 counts as set.
            pixels.iter_mut().for_each(|b| *b &= random.next() as u8 | 1);
        }
        self.push(rows, Some(pixels));
    }

    fn leave_out(&mut self, rows: usize) {
        self.push(rows, None);
    }

    pub(crate) fn encode(&self, engine: &dyn Engine, threads: usize, packed: &mut Packed) {
        let (spec, tiles) = (Arc::new(self.spec.clone()), self.jobs.clone());
        let batch = PixelBatch { spec, level: self.level, tiles, threads };
        let given = Given { case: self, asked: Mutex::default() };
        engine.encode(&batch, &given, packed).unwrap();
        assert_eq!(given.asked.into_inner().unwrap().len(), self.jobs.len());
    }

    /// What a reader must find, in tiles that were not left out.
    fn expected(&self, id: u64) -> Option<Vec<u8>> {
        let pixels = self.pixels[&id].clone()?;
        Some(match self.spec.sample {
            Sample::Whole { .. } => pixels,
            Sample::Bit { on } => pixels.iter().map(|&b| if b == 0 { 0 } else { on }).collect(),
        })
    }

    fn check(&self, engine: &dyn Engine, threads: usize, packed: &mut Packed, context: &str) {
        self.encode(engine, threads, packed);
        assert_eq!(packed.tiles.len(), self.jobs.len(), "{context}");
        let mut ranges: Vec<_> = packed.tiles.iter().filter(|r| !r.is_empty()).cloned().collect();
        ranges.sort_by_key(|r| r.start);
        assert!(ranges.windows(2).all(|w| w[0].end <= w[1].start), "{context}: overlap");
        let there = self.jobs.iter().filter(|job| self.pixels[&job.id].is_some()).count();
        assert_eq!(ranges.len(), there, "{context}: left out or not");
        for reader in [&Naive as &dyn Engine, engine] {
            self.read_back(reader, packed, &format!("{context}, read by {}", reader.name()));
        }
    }

    pub(crate) fn read_back(&self, reader: &dyn Engine, packed: &Packed, context: &str) {
        let stored = self.jobs.iter().zip(&packed.tiles).filter(|(_, range)| !range.is_empty());
        let tiles = stored.map(|(job, range)| TileJob {
            id: job.id,
            offset: range.start as u64,
            len: range.len(),
            rows: job.rows,
            columns: self.spec.width,
            padded: false,
            part: None,
        });
        let batch = Batch {
            spec: Arc::new(self.spec.clone()),
            tiles: tiles.collect(),
            source: Arc::new(Memory(packed.bytes.clone())),
            threads: 1,
        };
        let keep = Keep::default();
        let failed = reader.stage(batch).unwrap().decode(&keep);
        assert!(failed.is_empty(), "{context}: {:?}", failed[0]);
        let came = keep.0.into_inner().unwrap();
        for job in &self.jobs {
            assert!(came.get(&job.id) == self.expected(job.id).as_ref(), "{context}: {}", job.id);
        }
    }
}

/// The bytes of each tile.
fn pieces(packed: &Packed) -> Vec<Vec<u8>> {
    packed.tiles.iter().map(|range| packed.bytes[range.clone()].to_vec()).collect()
}

fn of_codec(codec: Codec) -> TileSpec {
    let kind = tiles::kinds().into_iter().find(|kind| kind.codec == codec).unwrap();
    TileSpec { width: 40, height: 24, ..kind }
}

pub(crate) fn every_kind_of_tile_encodes_exactly(engine: &dyn Engine) {
    let mut random = Random::new(21);
    for kind in tiles::kinds() {
        for (width, height) in [(1, 1), (16, 16), (37, 5), (64, 33)] {
            let mut case = Case::new(TileSpec { width, height, ..kind.clone() });
            for rows in [height, height, 1] {
                case.add(rows, &mut random);
            }
            let context = format!("{:?}", case.spec);
            case.check(engine, 1, &mut Packed::default(), &context);
            case.check(engine, 2, &mut Packed::default(), &context);
        }
    }
}

/// A few pixels of each: for engines that take long over one.
pub(crate) fn every_kind_of_small_tile_encodes_exactly(engine: &dyn Engine) {
    let mut random = Random::new(23);
    for kind in tiles::kinds() {
        let mut case = Case::new(TileSpec { width: 37, height: 3, ..kind });
        case.add(3, &mut random);
        case.add(2, &mut random);
        let mut packed = Packed::default();
        case.encode(engine, 1, &mut packed);
        case.read_back(&Naive, &packed, &format!("{:?}", case.spec));
    }
}

/// One `Packed` for all of them.
pub(crate) fn random_batches_encode_exactly(engine: &dyn Engine) {
    let kinds = tiles::kinds();
    let mut packed = Packed::default();
    let seed = std::env::var("GPUGTIFF_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(30_260);
    for round in 0..150 {
        let mut random = Random::new(seed + round);
        let kind = kinds[random.below(kinds.len())].clone();
        let (width, height) = (1 + random.below(200), 1 + random.below(90));
        let mut case = Case::new(TileSpec { width, height, ..kind });
        case.level = 1 + random.below(12) as i32;
        for _ in 0..random.below(40) {
            let rows = if random.below(3) == 0 { 1 + random.below(height) } else { height };
            match random.below(7) {
                0 => case.leave_out(rows),
                _ => case.add(rows, &mut random),
            }
        }
        let threads = 1 + random.below(5);
        let context = format!("GPUGTIFF_SEED={} {:?}", seed + round, case.spec);
        case.check(engine, threads, &mut packed, &context);
    }
}

pub(crate) fn tiles_can_be_left_out(engine: &dyn Engine) {
    for codec in CODECS {
        let mut random = Random::new(23);
        let mut case = Case::new(of_codec(codec));
        for i in 0..40 {
            if i % 3 == 1 { case.leave_out(24) } else { case.add(24, &mut random) }
        }
        let mut packed = Packed::default();
        case.check(engine, 3, &mut packed, &format!("{codec:?}"));
        for (i, range) in packed.tiles.iter().enumerate() {
            assert_eq!(range.is_empty(), i % 3 == 1, "{codec:?}: tile {i}");
        }
        let mut none = Case::new(of_codec(codec));
        none.check(engine, 2, &mut packed, "a batch of no tiles");
        none.leave_out(24);
        none.check(engine, 2, &mut packed, "a batch of nothing but left-out tiles");
    }
}

pub(crate) fn short_strips_store_their_rows_only(engine: &dyn Engine) {
    for codec in CODECS {
        let mut random = Random::new(25);
        let mut case = Case::new(of_codec(codec));
        for rows in [24, 24, 7] {
            case.add(rows, &mut random);
        }
        let mut packed = Packed::default();
        case.check(engine, 1, &mut packed, &format!("{codec:?}"));
        // A reader that wants an eighth row does not find it.
        let range = packed.tiles[2].clone();
        let job = TileJob {
            id: 1,
            offset: range.start as u64,
            len: range.len(),
            rows: 8,
            columns: case.spec.width,
            padded: false,
            part: None,
        };
        let spec = Arc::new(case.spec.clone());
        let source = Arc::new(Memory(packed.bytes));
        let batch = Batch { spec, tiles: vec![job], source, threads: 1 };
        let failed = Naive.stage(batch).unwrap().decode(&Keep::default());
        assert_eq!(failed.len(), 1, "{codec:?}: seven rows, not eight");
    }
}

/// Nor does it matter which tiles are encoded together, or what was encoded before.
pub(crate) fn any_number_of_threads_gives_the_same_bytes(engine: &dyn Engine) {
    for codec in CODECS {
        let mut random = Random::new(27);
        let mut case = Case::new(of_codec(codec));
        for _ in 0..100 {
            case.add(24, &mut random);
        }
        let mut packed = Packed::default();
        case.encode(engine, 1, &mut packed);
        let want = pieces(&packed);
        for threads in [0, 2, 3, 16] {
            case.encode(engine, threads, &mut packed);
            assert!(pieces(&packed) == want, "{codec:?}, {threads} threads");
        }
        for (job, want) in case.jobs.iter().zip(&want).take(10) {
            let mut alone = Case::new(case.spec.clone());
            alone.push(job.rows, case.pixels[&job.id].clone());
            alone.encode(engine, 1, &mut packed);
            assert!(pieces(&packed) == [&want[..]], "{codec:?}, tile {} alone", job.id);
        }
    }
}

pub(crate) fn one_buffer_serves_batches_of_any_shape(engine: &dyn Engine) {
    let mut random = Random::new(29);
    let mut packed = Packed::default();
    for (width, height, count) in [(300, 200, 3), (5, 3, 400), (1, 1, 1), (64, 64, 70), (9, 9, 2)] {
        for codec in CODECS {
            let mut case = Case::new(TileSpec { width, height, ..of_codec(codec) });
            for _ in 0..count {
                case.add(height, &mut random);
            }
            case.check(engine, 2, &mut packed, &format!("{:?}", case.spec));
            assert_eq!(packed.tiles.len(), count);
        }
    }
}

/// One of them is slow, so that others which began later are done before.
pub(crate) fn batches_encoded_at_once_do_not_mix(engine: &dyn Engine) {
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let (mut random, mut packed) = (Random::new(77 + thread), Packed::default());
                for round in 0..12 {
                    let codec = [Codec::Deflate, Codec::Zstd, Codec::None][round / 4];
                    let mut case = Case::new(of_codec(codec));
                    case.pause = Duration::from_millis(2 * u64::from(thread == 0));
                    for _ in 0..30 {
                        case.add(case.spec.height, &mut random);
                    }
                    case.encode(engine, 1, &mut packed);
                    case.read_back(&Naive, &packed, &format!("thread {thread}, {codec:?}"));
                }
            });
        }
    });
}
