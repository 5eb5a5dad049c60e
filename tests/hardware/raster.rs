//! Rasters made for measuring: terrain with a little noise, in tiles, and the way through an engine.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels, Predictor,
    Sample, TileJob, TileSpec,
};
use gpugtiff::error::Result;
use gpugtiff::io::ByteSource;

use crate::machine;
use crate::tiles::Random;

/// Level of compression, of Deflate and of ZSTD.
const LEVEL: i32 = 6;

/// Tiles of whole numbers of two bytes and predictor 2.
pub(crate) fn integers(codec: Codec, width: usize, height: usize) -> TileSpec {
    spec(codec, Predictor::Horizontal, 2, width, height)
}

/// Tiles of floating-point numbers of four bytes and predictor 3.
pub(crate) fn floats(codec: Codec, width: usize, height: usize) -> TileSpec {
    spec(codec, Predictor::FloatingPoint, 4, width, height)
}

fn spec(codec: Codec, predictor: Predictor, bytes: u8, width: usize, height: usize) -> TileSpec {
    let predictor = if codec == Codec::None { Predictor::None } else { predictor };
    let sample = Sample::Whole { bytes, unit: bytes };
    TileSpec { codec, predictor, sample, samples: 1, width, height, swap: false }
}

/// Tiles of one kind: their pixels, and room for what an engine makes of them.
pub(crate) struct Raster {
    pub(crate) spec: Arc<TileSpec>,
    pub(crate) pixels: Vec<Vec<u8>>,
}

impl Raster {
    pub(crate) fn new(spec: TileSpec, tiles: usize) -> Raster {
        let mut random = Random::new(tiles as u64 + 1);
        // A few different ones: making pixels takes longer than packing them.
        let kinds: Vec<Vec<u8>> = (0..tiles.min(16)).map(|_| terrain(&spec, &mut random)).collect();
        let pixels = (0..tiles).map(|i| kinds[i % kinds.len()].clone()).collect();
        Raster { spec: Arc::new(spec), pixels }
    }

    /// Megabytes of pixels a second.
    pub(crate) fn rate(&self, took: Duration) -> f64 {
        (self.pixels.len() * self.spec.tile_bytes()) as f64 / 1e6 / took.as_secs_f64().max(1e-9)
    }

    /// Packs all tiles as one batch.
    pub(crate) fn encode(&self, engine: &dyn Engine, packed: &mut Packed) -> Duration {
        let rows = self.spec.height;
        let tiles =
            (0..self.pixels.len() as u64).map(|id| PixelJob { id, rows, inside: None }).collect();
        let spec = Arc::clone(&self.spec);
        let batch = PixelBatch { spec, level: LEVEL, tiles, threads: machine::threads() };
        let begun = Instant::now();
        engine.encode(&batch, self, packed).unwrap();
        begun.elapsed()
    }

    /// Packed by an engine, ready to be decoded.
    pub(crate) fn pack(&self, engine: &dyn Engine) -> Stored {
        let mut packed = Packed::default();
        self.encode(engine, &mut packed);
        Stored::new(&packed)
    }

    /// Unpacks `stored` in batches of `step` tiles, with `ahead` of them on their way besides the
    /// one that is waited for. Every pixel is checked, after the clock was stopped.
    pub(crate) fn decode(
        &self,
        engine: &dyn Engine,
        stored: &Stored,
        step: usize,
        ahead: usize,
    ) -> Duration {
        let room = Room::new(self.pixels.len(), self.spec.tile_bytes());
        let jobs = stored.jobs(self.spec.height);
        let mut rest = jobs.chunks(step.max(1)).map(|tiles| Batch {
            spec: Arc::clone(&self.spec),
            tiles: tiles.to_vec(),
            source: Arc::new(stored.bytes.clone()),
            threads: machine::threads(),
        });
        let begun = Instant::now();
        let mut staged = std::collections::VecDeque::new();
        loop {
            while staged.len() <= ahead
                && let Some(batch) = rest.next()
            {
                staged.push_back(engine.stage(batch).unwrap());
            }
            let Some(next) = staged.pop_front() else { break };
            let failed = next.decode(&room);
            assert!(failed.is_empty(), "{}: {:?}", engine.name(), failed[0]);
        }
        let took = begun.elapsed();
        for (id, tile) in room.0.into_iter().enumerate() {
            let right = tile.into_inner().unwrap() == self.pixels[id];
            assert!(right, "{}: tile {id} differs, {:?}", engine.name(), self.spec);
        }
        took
    }
}

impl PixelSource for Raster {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        tile.copy_from_slice(&self.pixels[id as usize]);
        true
    }
}

/// Hills of a random slope, with noise in the last bits.
fn terrain(spec: &TileSpec, random: &mut Random) -> Vec<u8> {
    let phase = random.below(1000) as f32;
    let (slope, height) = (0.01 + random.below(9) as f32 / 300.0, 200.0 + phase);
    let mut tile = Vec::with_capacity(spec.tile_bytes());
    for i in 0..spec.width * spec.height {
        let (x, y) = ((i % spec.width) as f32, (i / spec.width) as f32);
        let noise = random.below(8) as f32 / 8.0;
        let metres = 2000.0 + height * ((x * slope + phase).sin() + (y * slope).cos()) + noise;
        match spec.sample.bytes() {
            2 => tile.extend((metres as u16).to_ne_bytes()),
            // To an eighth of a metre.
            _ => tile.extend(((metres * 8.0).round() / 8.0).to_ne_bytes()),
        }
    }
    tile
}

/// Packed tiles in memory.
pub(crate) struct Stored {
    bytes: Shared,
    tiles: Vec<Range<usize>>,
}

/// Bytes that batches share.
#[derive(Clone)]
struct Shared(Arc<Vec<u8>>);

impl ByteSource for Shared {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn concurrent(&self) -> bool {
        true
    }
}

impl Stored {
    pub(crate) fn new(packed: &Packed) -> Stored {
        let pieces = packed.tiles.iter().map(|range| packed.bytes[range.clone()].to_vec());
        Stored::of(pieces)
    }

    /// Tiles that were packed elsewhere.
    pub(crate) fn of(pieces: impl Iterator<Item = Vec<u8>>) -> Stored {
        let (mut bytes, mut tiles) = (Vec::new(), Vec::new());
        for piece in pieces {
            tiles.push(bytes.len()..bytes.len() + piece.len());
            bytes.extend(piece);
        }
        Stored { bytes: Shared(Arc::new(bytes)), tiles }
    }

    /// All of them, together.
    pub(crate) fn len(&self) -> usize {
        self.bytes.0.len()
    }

    /// The tiles' bytes.
    pub(crate) fn pieces(&self) -> Vec<Vec<u8>> {
        self.tiles.iter().map(|range| self.bytes.0[range.clone()].to_vec()).collect()
    }

    fn jobs(&self, rows: usize) -> Vec<TileJob> {
        let job = |(id, range): (usize, &Range<usize>)| TileJob {
            id: id as u64,
            offset: range.start as u64,
            len: range.len(),
            rows,
            columns: 0,
            padded: true,
            part: None,
        };
        self.tiles.iter().enumerate().map(job).collect()
    }

    /// Decodes as one batch whatever is in there: the tiles that came, and those that failed.
    pub(crate) fn try_decode(
        &self,
        engine: &dyn Engine,
        spec: &Arc<TileSpec>,
    ) -> (Vec<Vec<u8>>, HashSet<u64>) {
        let room = Room::new(self.tiles.len(), 0);
        let tiles = self.jobs(spec.height);
        let ids: HashSet<u64> = tiles.iter().map(|job| job.id).collect();
        let source = Arc::new(self.bytes.clone());
        let batch = Batch { spec: Arc::clone(spec), tiles, source, threads: machine::threads() };
        let failed = match engine.stage(batch) {
            Ok(staged) => staged.decode(&room).iter().map(|failed| failed.id).collect(),
            Err(_) => ids,
        };
        (room.0.into_iter().map(|tile| tile.into_inner().unwrap()).collect(), failed)
    }
}

/// Memory for tiles, filled from any thread.
struct Room(Vec<Mutex<Vec<u8>>>);

impl Room {
    /// Written once before it is measured: the system gives memory on first use.
    fn new(tiles: usize, bytes: usize) -> Room {
        Room((0..tiles).map(|_| Mutex::new(vec![0xA5; bytes])).collect())
    }
}

impl PixelSink for Room {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let mut tile = self.0[id as usize].lock().unwrap();
        tile.clear();
        tile.extend_from_slice(pixels.data);
    }
}
