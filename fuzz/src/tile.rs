//! A tile of any kind through the CPU engine: all its rows or an error, and the naive engine's
//! pixels; pixels encoded and decoded again are the same ones.

use std::sync::{Arc, Mutex};

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, Part, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels,
    TileJob, TileSpec,
};
use gpugtiff::io::{ByteSource, Memory};

use crate::input::Input;
use crate::naive::Naive;
use crate::tiles;

/// Keeps the one tile.
#[derive(Default)]
struct Keep(Mutex<Option<Kept>>);

#[derive(Debug, PartialEq)]
struct Kept {
    data: Vec<u8>,
    rows: usize,
    row_bytes: usize,
    x: usize,
    y: usize,
}

impl PixelSink for Keep {
    fn put(&self, _id: u64, pixels: Pixels<'_>) {
        let Pixels { data, rows, row_bytes, x, y } = pixels;
        let kept = Kept { data: data.to_vec(), rows, row_bytes, x, y };
        assert!(self.0.lock().unwrap().replace(kept).is_none(), "the tile came twice");
    }
}

/// A source that engines read from any thread, or by a request for all of a batch.
struct Source(Memory, bool);

impl ByteSource for Source {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> gpugtiff::error::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn concurrent(&self) -> bool {
        self.1
    }
}

struct Given<'a>(&'a [u8]);

impl PixelSource for Given<'_> {
    fn get(&self, _id: u64, tile: &mut [u8]) -> bool {
        tile.copy_from_slice(&self.0[..tile.len()]);
        true
    }
}

pub(crate) fn run(data: &[u8]) {
    thread_local! {
        static KINDS: Vec<TileSpec> = tiles::kinds();
    }
    let mut input = Input::new(data);
    let index = usize::from(input.u16());
    let kind = KINDS.with(|kinds| kinds[index % kinds.len()].clone());
    let (width, height) = (1 + input.below(70), 1 + input.below(40));
    let spec = TileSpec { width, height, ..kind };
    let rows = 1 + input.below(height);
    let concurrent = input.flag();
    let mode = input.u8();
    let part = input.flag().then(|| {
        let (x, y) = (input.below(width), input.below(rows));
        let (width, height) = (1 + input.below(width - x), 1 + input.below(rows - y));
        Part { x, y, width, height }
    });
    let columns = width;
    let mut bytes = input.rest().to_vec();
    // Most inputs are pixels that a naive writer packs, and what follows them damages the stream.
    if !mode.is_multiple_of(4) {
        let pixels = filled(&bytes, &spec, rows);
        if mode % 4 == 1 {
            return encode(&spec, rows, &pixels);
        }
        let mut stream = tiles::store(&spec, &pixels);
        for hit in bytes.get(pixels.len()..).unwrap_or_default().chunks_exact(3).take(8) {
            let at = usize::from(u16::from_le_bytes([hit[0], hit[1]])) % stream.len().max(1);
            if let Some(byte) = stream.get_mut(at) {
                *byte ^= hit[2];
            }
        }
        bytes = stream;
    }
    let len = bytes.len();
    let job = TileJob { id: 0, offset: 0, len, rows, columns, padded: mode & 64 != 0, part };
    compare(&spec, job, bytes, concurrent);
}

/// Pixels of a tile from bytes, over and over.
fn filled(bytes: &[u8], spec: &TileSpec, rows: usize) -> Vec<u8> {
    let len = spec.row_bytes() * rows;
    let mut pixels: Vec<u8> = bytes.iter().copied().cycle().take(len).collect();
    pixels.resize(len, 0);
    if let gpugtiff::engine::Sample::Bit { on } = spec.sample {
        pixels.iter_mut().for_each(|pixel| *pixel = if *pixel & 1 == 0 { 0 } else { on });
    }
    pixels
}

fn decode(engine: &dyn Engine, batch: Batch) -> Option<Kept> {
    let keep = Keep::default();
    let failed = match engine.stage(batch) {
        Ok(staged) => staged.decode(&keep),
        Err(_) => return None,
    };
    let kept = keep.0.into_inner().unwrap();
    assert_eq!(kept.is_none(), failed.len() == 1, "{failed:?}");
    kept
}

fn compare(spec: &TileSpec, job: TileJob, bytes: Vec<u8>, concurrent: bool) {
    let batch = |job: TileJob| Batch {
        spec: Arc::new(spec.clone()),
        tiles: vec![job],
        source: Arc::new(Source(Memory(bytes.clone()), concurrent)),
        threads: 1,
    };
    let Some(ours) = decode(&CpuEngine, batch(job)) else { return };
    let whole = decode(&Naive, batch(TileJob { part: None, ..job }));
    // Of uncompressed tiles no more than the part is looked at: the rest may be missing.
    if whole.is_none() && job.part.is_some() && spec.codec == Codec::None {
        return;
    }
    // Of PackBits the naive engine drops a stretch that the end of the tile cuts off. Of damaged
    // streams of these two the libraries have different opinions; with pixels they agree on those.
    let lenient = matches!(spec.codec, Codec::PackBits | Codec::Deflate | Codec::Zstd);
    if whole.is_none() && lenient {
        return;
    }
    let whole = whole.unwrap_or_else(|| panic!("the naive engine refuses it: {spec:?} {job:?}"));
    let part = job.part.unwrap_or(Part::rows(spec, job.rows));
    let pixel = spec.samples * spec.sample.bytes();
    for y in part.y..part.y + part.height {
        let at = (y - ours.y) * ours.row_bytes + (part.x - ours.x) * pixel;
        let naive = y * whole.row_bytes + part.x * pixel;
        let wide = part.width * pixel;
        assert!(
            ours.data[at..at + wide] == whole.data[naive..naive + wide],
            "row {y} of {spec:?} {job:?}"
        );
    }
}

fn encode(spec: &TileSpec, rows: usize, pixels: &[u8]) {
    let batch = PixelBatch {
        spec: Arc::new(spec.clone()),
        level: 1 + (pixels.len() % 9) as i32,
        tiles: vec![PixelJob { id: 0, rows, inside: None }],
        threads: 1,
    };
    let mut packed = Packed::default();
    CpuEngine.encode(&batch, &Given(pixels), &mut packed).expect("any pixels can be encoded");
    let bytes = packed.bytes[packed.tiles[0].clone()].to_vec();
    let job = TileJob {
        id: 0,
        offset: 0,
        len: bytes.len(),
        rows,
        columns: spec.width,
        padded: false,
        part: None,
    };
    for engine in [&CpuEngine as &dyn Engine, &Naive] {
        let batch = Batch {
            spec: Arc::new(spec.clone()),
            tiles: vec![job],
            source: Arc::new(Source(Memory(bytes.clone()), true)),
            threads: 1,
        };
        let kept = decode(engine, batch);
        let same = kept.is_some_and(|kept| kept.data == pixels);
        assert!(same, "encoded and decoded by {}: {spec:?}", engine.name());
    }
}
