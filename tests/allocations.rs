//! Decoding and encoding a tile allocates nothing after a worker's first tile.
//!
//! The test's own `malloc` counts, for each thread, so that C libraries are counted too.

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::{
    Batch, Codec, Engine, Packed, PixelBatch, PixelJob, PixelSink, PixelSource, Pixels, Predictor,
    Sample, TileJob, TileSpec,
};
use gpugtiff::error::Result;
use gpugtiff::io::{ByteSource, Memory};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Which counter this thread last had a tile for, how many, and its allocations then.
    static LAST: Cell<(usize, usize, usize)> = const { Cell::new((0, 0, 0)) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: glibc's own allocator, as for the functions below.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: glibc's own allocator.
    unsafe { __libc_calloc(number, size) }
}

#[unsafe(no_mangle)]
extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: memory of glibc's own allocator: the caller's promise.
    unsafe { __libc_realloc(memory, size) }
}

#[unsafe(no_mangle)]
extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> i32 {
    count();
    // SAFETY: `out` is valid for writes: the caller's promise.
    unsafe {
        *out = __libc_memalign(align, size);
        if (*out).is_null() { libc::ENOMEM } else { 0 }
    }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: glibc's own allocator.
    unsafe { __libc_memalign(align, size) }
}

/// Adds up what threads allocate between two tiles, the first tile of each left out.
struct Between {
    number: usize,
    tiles: AtomicUsize,
    counted: AtomicUsize,
    allocated: AtomicUsize,
}

impl Between {
    fn new() -> Between {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (tiles, counted, allocated) = Default::default();
        Between { number, tiles, counted, allocated }
    }

    /// This thread has a tile; what it did since the tile before counts from the `from`-th on.
    fn tile(&self, from: usize) {
        let now = ALLOCATIONS.get();
        let tiles = match LAST.get() {
            (number, tiles, before) if number == self.number => {
                if tiles + 1 >= from {
                    self.counted.fetch_add(1, Ordering::Relaxed);
                    self.allocated.fetch_add(now - before, Ordering::Relaxed);
                }
                tiles + 1
            }
            _ => 1,
        };
        LAST.set((self.number, tiles, now));
        self.tiles.fetch_add(1, Ordering::Relaxed);
    }

    /// All tiles came, and none but a thread's first one was allocated for.
    fn check(&self, what: &str) {
        let [tiles, counted, allocated] =
            [&self.tiles, &self.counted, &self.allocated].map(|n| n.load(Ordering::Relaxed));
        assert_eq!((tiles, allocated), (TILES, 0), "{what}: tiles and allocations");
        assert!(counted >= TILES - 2 * MOST_THREADS, "{what}: {counted} tiles were watched");
    }
}

impl PixelSink for Between {
    fn put(&self, _: u64, _: Pixels<'_>) {
        // The first one is decoded.
        self.tile(2);
    }
}

impl PixelSource for Between {
    fn get(&self, id: u64, tile: &mut [u8]) -> bool {
        let noise = |i: usize| (i as u64 * id).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
        tile.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 64) as u8 ^ noise(i) as u8);
        // The first one is encoded when this thread asks for the second.
        self.tile(3);
        true
    }
}

/// A source that is staged.
struct NotConcurrent(Memory);

impl ByteSource for NotConcurrent {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
}

/// Small tiles of a codec come first: ZSTD gives memory back, once, when a context that has seen large
/// tiles gets more than a hundred small ones.
fn specs() -> Vec<TileSpec> {
    let mut specs = Vec::new();
    for codec in [Codec::None, Codec::PackBits, Codec::Lzw, Codec::Deflate, Codec::Zstd] {
        let (sample, predictor) = (Sample::Bit { on: 255 }, Predictor::None);
        let (samples, width, height, swap) = (1, 200, 128, false);
        specs.push(TileSpec { codec, predictor, sample, samples, width, height, swap });
        let predictors = match codec {
            Codec::None | Codec::PackBits => &[Predictor::None][..],
            _ => &[Predictor::None, Predictor::Horizontal, Predictor::FloatingPoint],
        };
        for &predictor in predictors {
            for swap in [false, true] {
                let sample = Sample::Whole { bytes: 4, unit: 4 };
                let (samples, width, height) = (3, 64, 64);
                specs.push(TileSpec { codec, predictor, sample, samples, width, height, swap });
            }
        }
    }
    specs
}

const TILES: usize = 96;
const MOST_THREADS: usize = 3;

fn encode(spec: &Arc<TileSpec>, level: i32, threads: usize) -> Packed {
    let tiles =
        (0..TILES as u64).map(|id| PixelJob { id, rows: spec.height, inside: None }).collect();
    let batch = PixelBatch { spec: Arc::clone(spec), level, tiles, threads };
    let (mut packed, counter) = (Packed::default(), Between::new());
    CpuEngine.encode(&batch, &counter, &mut packed).unwrap();
    counter.check(&format!("encoding {spec:?}, level {level}, {threads} threads"));
    packed
}

/// The tiles of a packed batch, to be decoded.
fn jobs(spec: &TileSpec, packed: &Packed) -> Vec<TileJob> {
    let job = |(id, range): (usize, &std::ops::Range<usize>)| TileJob {
        id: id as u64,
        offset: range.start as u64,
        len: range.len(),
        rows: spec.height,
        columns: spec.width,
        padded: true,
        part: None,
    };
    packed.tiles.iter().enumerate().map(job).collect()
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    black_box(Box::new(5));
    black_box(Vec::<u8>::with_capacity(1 << 20));
    black_box(zstd::bulk::Compressor::new(3).unwrap());
    assert!(ALLOCATIONS.get() >= before + 3);
}

#[test]
fn tiles_are_encoded_and_decoded_without_allocating() {
    for spec in specs().into_iter().map(Arc::new) {
        let outcome = std::thread::spawn(move || check(&spec)).join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn check(spec: &Arc<TileSpec>) {
    for (level, threads) in [(1, 1), (6, 1), (6, MOST_THREADS)] {
        let packed = encode(spec, level, threads);
        let jobs = jobs(spec, &packed);
        let memory = Memory(packed.bytes);
        let staged = NotConcurrent(memory.clone());
        let sources: [Arc<dyn ByteSource>; 2] = [Arc::new(memory), Arc::new(staged)];
        for source in sources {
            let what = format!("decoding {spec:?}, {threads} threads");
            let (tiles, all) = (jobs.clone(), Between::new());
            let batch =
                Batch { spec: Arc::clone(spec), tiles, source: Arc::clone(&source), threads };
            assert!(CpuEngine.stage(batch).unwrap().decode(&all).is_empty(), "{what}");
            all.check(&what);
            let singly = Between::new();
            for &job in &jobs {
                CpuEngine.decode_tile(spec, &source, job, &singly).unwrap();
            }
            singly.check(&format!("{what}, one by one"));
        }
    }
}
