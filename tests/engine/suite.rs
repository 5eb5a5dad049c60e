//! What every engine must do when it decodes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use gpugtiff::engine::{
    Batch, Codec, Engine, Part, PixelSink, Pixels, TileError, TileJob, TileSpec,
};
use gpugtiff::error::{Cause, Error, Result};
use gpugtiff::io::{ByteSource, Memory};

use crate::tiles::{self, CODECS, Random};

/// Keeps what it gets, and insists on getting it once.
#[derive(Default)]
pub(crate) struct Keep(pub(crate) Mutex<HashMap<u64, Vec<u8>>>);

impl PixelSink for Keep {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        assert_eq!(pixels.data.len(), pixels.rows * pixels.row_bytes, "tile {id}");
        let before = self.0.lock().unwrap().insert(id, pixels.data.to_vec());
        assert!(before.is_none(), "tile {id} came twice");
    }
}

/// A batch in the making, with what must come out of it.
pub(crate) struct Case {
    pub(crate) spec: TileSpec,
    pub(crate) file: Vec<u8>,
    pub(crate) jobs: Vec<TileJob>,
    pub(crate) expected: HashMap<u64, Vec<u8>>,
}

impl Case {
    pub(crate) fn new(spec: TileSpec) -> Case {
        Case { spec, file: vec![0x5A; 16], jobs: Vec::new(), expected: HashMap::new() }
    }

    /// Adds a tile with `rows` of its rows stored.
    pub(crate) fn add(&mut self, rows: usize, random: &mut Random) -> u64 {
        let pixels = tiles::pixels(&self.spec, rows, random);
        let stored = tiles::store(&self.spec, &pixels);
        let id = self.push(&stored, rows);
        self.expected.insert(id, pixels);
        id
    }

    fn push(&mut self, stored: &[u8], rows: usize) -> u64 {
        let id = 1000 + self.jobs.len() as u64 * 7;
        let offset = self.file.len() as u64;
        self.file.extend_from_slice(stored);
        self.jobs.push(TileJob {
            id,
            offset,
            len: stored.len(),
            rows,
            columns: 0,
            padded: false,
            part: None,
        });
        id
    }

    /// Decodes; `concurrent` says whether the source can be read from any thread.
    pub(crate) fn run(&self, engine: &dyn Engine, concurrent: bool, threads: usize) -> Outcome {
        let source = Source { bytes: Memory(self.file.clone()), concurrent };
        let batch = Batch {
            spec: Arc::new(self.spec.clone()),
            tiles: self.jobs.clone(),
            source: Arc::new(source),
            threads,
        };
        let keep = Keep::default();
        let failed = match engine.stage(batch) {
            Ok(staged) => staged.decode(&keep),
            Err(error) => {
                let fail = |job: &TileJob| TileError { id: job.id, error: error.clone() };
                self.jobs.iter().map(fail).collect()
            }
        };
        Outcome { came: keep.0.into_inner().unwrap(), failed }
    }
}

pub(crate) struct Outcome {
    pub(crate) came: HashMap<u64, Vec<u8>>,
    pub(crate) failed: Vec<TileError>,
}

impl Outcome {
    /// Every tile either came or failed, and no tile did both.
    fn check_complete(&self, case: &Case, context: &str) {
        assert_eq!(self.came.len() + self.failed.len(), case.jobs.len(), "{context}");
        for failed in &self.failed {
            assert!(!self.came.contains_key(&failed.id), "{context}: tile {}", failed.id);
        }
    }

    pub(crate) fn check_exact(&self, case: &Case, context: &str) {
        self.check_complete(case, context);
        assert!(self.failed.is_empty(), "{context}: {:?}", self.failed[0]);
        for (id, pixels) in &case.expected {
            assert!(self.came[id] == *pixels, "{context}: tile {id} differs");
        }
    }
}

/// A file of which it can be chosen how it is read.
struct Source {
    bytes: Memory,
    concurrent: bool,
}

impl ByteSource for Source {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.bytes.read_at(offset, buf)
    }

    fn concurrent(&self) -> bool {
        self.concurrent
    }
}

pub(crate) fn every_kind_of_tile_decodes_exactly(engine: &dyn Engine) {
    let mut random = Random::new(1);
    for kind in tiles::kinds() {
        for (width, height) in [(1, 1), (16, 16), (37, 5), (64, 33)] {
            let mut case = Case::new(TileSpec { width, height, ..kind.clone() });
            for rows in [height, height, 1] {
                case.add(rows, &mut random);
            }
            let context = format!("{:?}", case.spec);
            case.run(engine, true, 1).check_exact(&case, &context);
            case.run(engine, false, 2).check_exact(&case, &context);
        }
    }
}

/// Looks at the wanted part of each tile alone.
struct Parts<'a>(&'a Case, Mutex<Vec<u64>>);

impl PixelSink for Parts<'_> {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let Parts(case, came) = self;
        let part = case.jobs.iter().find(|job| job.id == id).unwrap().part.unwrap();
        let (row, pixel) = (case.spec.row_bytes(), case.spec.samples * case.spec.sample.bytes());
        for y in part.y..part.y + part.height {
            let at = (y - pixels.y) * pixels.row_bytes + (part.x - pixels.x) * pixel;
            let ours = &pixels.data[at..][..part.width * pixel];
            let theirs = &case.expected[&id][y * row + part.x * pixel..][..part.width * pixel];
            assert!(ours == theirs, "{:?}: row {y} of {part:?} differs", case.spec);
        }
        came.lock().unwrap().push(id);
    }
}

/// Of tiles of which a part is wanted, that part at least comes.
pub(crate) fn wanted_parts_come(engine: &dyn Engine) {
    let seed = std::env::var("GPUGTIFF_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_260);
    let mut random = Random::new(seed);
    for kind in tiles::kinds() {
        let (width, height) = (1 + random.below(90), 1 + random.below(60));
        let mut case = Case::new(TileSpec { width, height, ..kind });
        for _ in 0..3 {
            let rows = 1 + random.below(height);
            case.add(rows, &mut random);
            let (x, y) = (random.below(width), random.below(rows));
            let (width, height) = (1 + random.below(width - x), 1 + random.below(rows - y));
            case.jobs.last_mut().unwrap().part = Some(Part { x, y, width, height });
        }
        let parts = Parts(&case, Mutex::default());
        let source = Source { bytes: Memory(case.file.clone()), concurrent: random.below(4) > 0 };
        let batch = Batch {
            spec: Arc::new(case.spec.clone()),
            tiles: case.jobs.clone(),
            source: Arc::new(source),
            threads: 2,
        };
        let failed = engine.stage(batch).unwrap().decode(&parts);
        assert!(failed.is_empty(), "GPUGTIFF_SEED={seed} {:?}: {:?}", case.spec, failed[0]);
        assert_eq!(parts.1.lock().unwrap().len(), 3, "GPUGTIFF_SEED={seed} {:?}", case.spec);
    }
}

/// A few pixels of each: for engines that take long over one.
pub(crate) fn every_kind_of_small_tile_decodes_exactly(engine: &dyn Engine) {
    let mut random = Random::new(3);
    for kind in tiles::kinds() {
        let mut case = Case::new(TileSpec { width: 37, height: 3, ..kind });
        case.add(3, &mut random);
        case.add(2, &mut random);
        case.run(engine, true, 1).check_exact(&case, &format!("{:?}", case.spec));
    }
}

pub(crate) fn random_batches_decode_exactly(engine: &dyn Engine) {
    some_random_batches_decode_exactly(engine, 400);
}

pub(crate) fn some_random_batches_decode_exactly(engine: &dyn Engine, rounds: u64) {
    let kinds = tiles::kinds();
    let seed = std::env::var("GPUGTIFF_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_260);
    for round in 0..rounds {
        let mut random = Random::new(seed + round);
        let kind = kinds[random.below(kinds.len())].clone();
        let (width, height) = (1 + random.below(200), 1 + random.below(90));
        let mut case = Case::new(TileSpec { width, height, ..kind });
        for _ in 0..random.below(40) {
            let rows = 1 + random.below(height);
            case.add(rows, &mut random);
        }
        let (concurrent, threads) = (random.below(2) == 0, 1 + random.below(5));
        let context = format!("GPUGTIFF_SEED={} {:?}", seed + round, case.spec);
        case.run(engine, concurrent, threads).check_exact(&case, &context);
    }
}

pub(crate) fn plain(codec: Codec) -> TileSpec {
    let kinds = tiles::kinds();
    let kind = kinds.into_iter().find(|kind| kind.codec == codec).unwrap();
    TileSpec { width: 40, height: 24, ..kind }
}

pub(crate) fn a_bad_tile_fails_alone(engine: &dyn Engine) {
    for codec in CODECS {
        for concurrent in [true, false] {
            let mut random = Random::new(3);
            let mut case = Case::new(plain(codec));
            case.add(24, &mut random);
            // Too short for any codec to hold a tile.
            let bad = case.push(&[0x80, 0x0B], 24);
            case.add(24, &mut random);
            let outcome = case.run(engine, concurrent, 2);
            let context = format!("{codec:?}, concurrent {concurrent}");
            outcome.check_complete(&case, &context);
            let failed: Vec<u64> = outcome.failed.iter().map(|f| f.id).collect();
            assert_eq!(failed, [bad], "{context}");
            for (id, pixels) in &case.expected {
                assert!(outcome.came[id] == *pixels, "{context}");
            }
        }
    }
}

/// Deflate and whole ZSTD frames notice; what other codecs deliver has at least
/// the tile's size. In no case does anything panic or come in part.
pub(crate) fn damaged_tiles_are_right_or_fail_and_never_partial(engine: &dyn Engine) {
    for round in 0..600 {
        let mut random = Random::new(77_000 + round);
        let codec = random.pick(&CODECS);
        let mut case = Case::new(plain(codec));
        let pixels = tiles::pixels(&case.spec, 24, &mut random);
        let mut stored = tiles::store(&case.spec, &pixels);
        match random.below(3) {
            0 => stored.truncate(random.below(stored.len())),
            1 => {
                let at = random.below(stored.len());
                stored[at] ^= 1 << random.below(8);
            }
            _ => stored.iter_mut().for_each(|b| *b ^= u8::from(random.next().is_multiple_of(97))),
        }
        let id = case.push(&stored, 24);
        let outcome = case.run(engine, round % 2 == 0, 1);
        let context = format!("round {round} {codec:?}");
        outcome.check_complete(&case, &context);
        if let Some(came) = outcome.came.get(&id) {
            assert_eq!(came.len(), pixels.len(), "{context}");
            if codec == Codec::Deflate {
                assert!(*came == pixels, "{context}: wrong pixels with a right checksum");
            }
        }
    }
}

pub(crate) fn short_bottom_tiles_are_taken(engine: &dyn Engine) {
    for codec in CODECS {
        let mut random = Random::new(5);
        let mut case = Case::new(plain(codec));
        // Seven rows stored: enough for seven, not for eight.
        let id = case.add(7, &mut random);
        case.run(engine, true, 1).check_exact(&case, "seven of seven rows");
        case.jobs[0].rows = 8;
        let outcome = case.run(engine, true, 1);
        assert_eq!(outcome.failed.len(), 1, "{codec:?}: tile {id} has seven rows, not eight");
        // All rows stored where only some are wanted: other writers do that.
        let mut case = Case::new(plain(codec));
        let id = case.add(24, &mut random);
        case.jobs[0].rows = 7;
        let outcome = case.run(engine, true, 1);
        let all = &case.expected[&id];
        assert!(outcome.came[&id] == all[..case.spec.row_bytes() * 7], "{codec:?}");
    }
}

pub(crate) fn a_source_that_fails_is_an_error(engine: &dyn Engine) {
    struct Broken;
    impl ByteSource for Broken {
        fn len(&self) -> u64 {
            1 << 40
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let source = Cause("unplugged".into());
            Err(Error::Io { offset, len: buf.len() as u64, source })
        }
        fn concurrent(&self) -> bool {
            true
        }
    }
    let tiles = (0..5)
        .map(|id| TileJob {
            id,
            offset: 1000 * id,
            len: 600,
            rows: 24,
            columns: 0,
            padded: true,
            part: None,
        })
        .collect();
    let spec = Arc::new(plain(Codec::Deflate));
    let batch = Batch { spec, tiles, source: Arc::new(Broken), threads: 2 };
    let keep = Keep::default();
    let failed = engine.stage(batch).unwrap().decode(&keep);
    assert!(keep.0.lock().unwrap().is_empty());
    assert_eq!(failed.len(), 5);
    assert!(failed.iter().all(|f| matches!(f.error, Error::Io { .. })), "{failed:?}");
}

pub(crate) fn any_number_of_threads_gives_the_same(engine: &dyn Engine) {
    let mut random = Random::new(11);
    let mut case = Case::new(plain(Codec::Lzw));
    for _ in 0..300 {
        case.add(24, &mut random);
    }
    for threads in [1, 2, 3, 16] {
        case.run(engine, true, threads).check_exact(&case, &format!("{threads} threads"));
        case.run(engine, false, threads).check_exact(&case, &format!("{threads} threads"));
    }
}
