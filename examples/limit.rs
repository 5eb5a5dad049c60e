//! How fast a raster could be read, written or converted at best: the fastest codecs known
//! to us, the predictor and one copy into or out of place, from memory to memory, on all
//! cores, with nothing else around them. `make bench` shows it beside the driver.
//!
//!     limit read|write|convert <file>      prints `seconds <best of up to 5>`
//!     limit convert <file> <target>
//!
//! read: the file's tiles become bands. write: bands become such tiles, at GTiff's default
//! level. convert: the tiles are decoded and encoded anew, one by one; with a target they are read
//! from the file and written there, in any order and without a directory.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use gpugtiff::batch::image::{Expected, Image};
use gpugtiff::batch::plan::Tile;
use gpugtiff::engine::cpu::codec::CodecError;
use gpugtiff::engine::cpu::predictor::forward;
use gpugtiff::engine::cpu::{deflate, lzw, packbits, predictor, zstd};
use gpugtiff::engine::interleave::{deinterleave, interleave};
use gpugtiff::engine::{Codec, Predictor, TileJob};
use gpugtiff::io::Memory;
use gpugtiff::process::memory;
use gpugtiff::tiff::{Header, Ifd, Layout};

/// GTiff's default levels.
const ZLEVEL: i32 = 6;
const ZSTD_LEVEL: i32 = 9;

/// Repeats end after this many, or after so many seconds.
const REPEATS: usize = 5;
const SECONDS: f64 = 1.0;

/// Memory that several threads use, at places that do not overlap.
struct Shared(*mut u8);

// SAFETY: each thread uses the places of the tiles it took from the common counter.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    /// Inside the memory, and nobody else's while it is borrowed.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at), len) }
    }
}

/// What a thread keeps from tile to tile.
struct Codecs {
    lzw: (lzw::Lzw, lzw::Encoder),
    deflate: (deflate::Deflate, deflate::Encoder),
    zstd: (zstd::Zstd, zstd::Encoder),
    scratch: Vec<u8>,
    /// A tile as the files have it.
    packed: Vec<u8>,
}

impl Codecs {
    fn new(image: &Image) -> Codecs {
        Codecs {
            lzw: (lzw::Lzw::new(), lzw::Encoder::new()),
            deflate: (deflate::Deflate::new().expect("memory"), deflate::Encoder::default()),
            zstd: (zstd::Zstd::new().expect("memory"), zstd::Encoder::default()),
            scratch: vec![0; image.spec.row_bytes()],
            packed: Vec::new(),
        }
    }
}

/// A raster, packed and as bands.
struct Raster {
    image: Image,
    tiles: Vec<(Tile, TileJob)>,
    /// The file.
    bytes: Vec<u8>,
    /// Bytes of one band.
    plane: usize,
    bands: Shared,
    /// A slot for each tile.
    slots: Shared,
    slot: usize,
    files: Option<Files>,
}

/// Where tiles are read from, where they are written to, and how far that one is full.
struct Files {
    source: File,
    target: File,
    end: AtomicU64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(what), Some(path)) = (words.next(), words.next()) else {
        return Err("usage: limit read|write|convert <file> [target]".into());
    };
    let target = words.next();
    let bytes = std::fs::read(&path)?;
    let image = open(&bytes)?;
    let cover = image.grid.cover(&image.grid.image());
    let planes: Vec<u32> = (0..image.grid.planes).collect();
    let mut tiles = Vec::new();
    for tile in image.grid.tiles(cover, &planes) {
        tiles.push((tile, image.job(tile)?.ok_or("a sparse tile")?));
    }
    let plane = image.grid.width as usize * image.grid.height as usize * image.spec.sample.bytes();
    let slot = bound(&image);
    // Touched, so that no page is made while the clock runs.
    let mut bands = vec![0xA5; plane * image.spec.samples * image.grid.planes as usize];
    let in_memory = what != "read" && target.is_none();
    let mut slots = vec![0xA5; if in_memory { slot * tiles.len() } else { 0 }];
    let (bands, slots) = (Shared(bands.as_mut_ptr()), Shared(slots.as_mut_ptr()));
    let mut raster = Raster { image, tiles, bytes, plane, bands, slots, slot, files: None };
    let task = match &*what {
        "read" => read,
        "write" => {
            on_all_cores(&raster, read);
            write
        }
        "convert" if target.is_some() => convert_files,
        "convert" => convert,
        _ => return Err(format!("limit: no such task: {what}").into()),
    };
    let (mut best, mut total) = (f64::MAX, 0.0);
    for _ in 0..REPEATS {
        if let Some(target) = &target {
            std::fs::remove_file(target).or_else(|e| match e.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(e),
            })?;
        }
        let start = Instant::now();
        if let Some(target) = &target {
            let (source, target) = (File::open(&path)?, File::create(target)?);
            raster.files = Some(Files { source, target, end: AtomicU64::new(0) });
        }
        on_all_cores(&raster, task);
        raster.files = None;
        let seconds = start.elapsed().as_secs_f64();
        (best, total) = (seconds.min(best), total + seconds);
        if total > SECONDS {
            break;
        }
    }
    println!("seconds {best:.6}");
    Ok(())
}

fn open(bytes: &[u8]) -> Result<Image, Box<dyn Error>> {
    let source = Memory(bytes.to_vec());
    let header = Header::read(&source)?;
    let layout = Layout::new(&header, &Ifd::read(&source, &header, header.first_ifd)?)?;
    let expected = Expected {
        width: layout.width,
        height: layout.height,
        bands: u32::from(layout.samples_per_pixel),
        sample_bytes: (layout.bits_per_sample / 8) as u8,
        bit: None,
        block_width: layout.tile_width,
        block_height: layout.tile_height,
        first_tile: None,
        converted: false,
    };
    Ok(Image::open(Arc::new(source), header.first_ifd, &expected, 1 << 30)?)
}

/// A task: what becomes of one tile.
type Task = fn(&Raster, usize, &mut [u8], &mut Codecs);

fn on_all_cores(raster: &Raster, task: Task) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut tile = vec![0u8; raster.image.spec.tile_bytes()];
                let mut codecs = Codecs::new(&raster.image);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= raster.tiles.len() {
                        break;
                    }
                    task(raster, index, &mut tile, &mut codecs);
                }
            });
        }
    });
}

fn read(raster: &Raster, index: usize, tile: &mut [u8], codecs: &mut Codecs) {
    let pixels = decode(raster, raster.packed(index), tile, codecs);
    with_rows(raster, index, |at, rows| {
        let (samples, unit) = (rows.len(), raster.image.spec.sample.bytes());
        let row = &pixels[at..][..rows[0].len() * samples];
        match rows {
            [only] => only.copy_from_slice(row),
            _ => deinterleave(row, samples, unit, rows),
        }
    });
}

fn write(raster: &Raster, index: usize, tile: &mut [u8], codecs: &mut Codecs) {
    // SAFETY: a slot belongs to its tile.
    let slot = unsafe { raster.slots.part(index * raster.slot, raster.slot) };
    let spec = &raster.image.spec;
    let cut = if spec.codec == Codec::None { &mut *slot } else { &mut *tile };
    with_rows(raster, index, |at, rows| {
        let (samples, unit) = (rows.len(), spec.sample.bytes());
        let row = &mut cut[at..][..rows[0].len() * samples];
        match rows {
            [only] => row.copy_from_slice(only),
            _ => {
                let rows: Vec<&[u8]> = rows.iter().map(|row| &**row).collect();
                interleave(&rows, samples, unit, row);
            }
        }
    });
    encode(raster, tile, slot, codecs);
}

fn convert(raster: &Raster, index: usize, tile: &mut [u8], codecs: &mut Codecs) {
    // SAFETY: a slot belongs to its tile.
    let slot = unsafe { raster.slots.part(index * raster.slot, raster.slot) };
    let packed = raster.packed(index);
    if raster.image.spec.codec == Codec::None {
        slot.copy_from_slice(&decode(raster, packed, tile, codecs)[..slot.len()]);
    } else {
        decode(raster, packed, tile, codecs);
        encode(raster, tile, slot, codecs);
    }
}

fn convert_files(raster: &Raster, index: usize, tile: &mut [u8], codecs: &mut Codecs) {
    let Some(files) = &raster.files else { return };
    let job = &raster.tiles[index].1;
    let mut packed = std::mem::take(&mut codecs.packed);
    packed.resize(raster.slot.max(job.len), 0);
    files.source.read_exact_at(&mut packed[..job.len], job.offset).expect("an intact file");
    let mut made = job.len;
    if raster.image.spec.codec != Codec::None {
        decode(raster, &packed[..job.len], tile, codecs);
        made = encode(raster, tile, &mut packed, codecs);
    }
    let at = files.end.fetch_add(made as u64, Ordering::Relaxed);
    files.target.write_all_at(&packed[..made], at).expect("room on the disk");
    codecs.packed = packed;
}

/// Calls `each` with every row of the tile: its offset there, and its pieces of the bands.
fn with_rows(raster: &Raster, index: usize, mut each: impl FnMut(usize, &mut [&mut [u8]])) {
    let (image, tile) = (&raster.image, raster.tiles[index].0);
    let rect = image.grid.rect(tile);
    let unit = image.spec.sample.bytes();
    let (line, len) = (image.grid.width as usize * unit, rect.width as usize * unit);
    for y in 0..rect.height as usize {
        let at = (rect.y as usize + y) * line + rect.x as usize * unit;
        let first = tile.plane as usize * raster.plane + at;
        if y + memory::ROWS_AHEAD < rect.height as usize {
            for i in 0..image.spec.samples {
                let next = first + i * raster.plane + memory::ROWS_AHEAD * line;
                memory::will_write(raster.bands.0.wrapping_add(next), len);
            }
        }
        // SAFETY: inside the bands, and of this tile alone.
        let mut rows: Vec<&mut [u8]> = (0..image.spec.samples)
            .map(|i| unsafe { raster.bands.part(first + i * raster.plane, len) })
            .collect();
        each(y * image.spec.row_bytes(), &mut rows);
    }
}

impl Raster {
    /// A tile as the file has it.
    fn packed(&self, index: usize) -> &[u8] {
        let job = &self.tiles[index].1;
        &self.bytes[job.offset as usize..][..job.len]
    }
}

fn decode<'a>(
    raster: &Raster,
    packed: &'a [u8],
    tile: &'a mut [u8],
    codecs: &mut Codecs,
) -> &'a [u8] {
    let spec = &raster.image.spec;
    let result = match spec.codec {
        Codec::None if !spec.swap => return packed,
        Codec::None => {
            tile[..packed.len()].copy_from_slice(packed);
            Ok(packed.len())
        }
        Codec::Lzw => codecs.lzw.0.decode(packed, tile),
        Codec::Deflate => codecs.deflate.0.decode(packed, tile),
        Codec::Zstd => codecs.zstd.0.decode(packed, tile),
        Codec::PackBits => packbits::decode(packed, tile),
        Codec::Jpeg2000(_) | Codec::Gtiff => Err(CodecError::Unsupported),
    };
    result.expect("an intact file");
    let (row, unit) = (spec.row_bytes(), spec.sample.bytes());
    match spec.predictor {
        Predictor::None => {}
        Predictor::Horizontal => {
            predictor::undo_horizontal(tile, row, spec.samples, unit, spec.swap);
        }
        Predictor::FloatingPoint => {
            predictor::undo_floating_point(tile, row, spec.samples, unit, &mut codecs.scratch);
        }
    }
    tile
}

/// The most bytes that a tile may become.
fn bound(image: &Image) -> usize {
    let (row, bytes) = (image.spec.row_bytes(), image.spec.tile_bytes());
    match image.spec.codec {
        Codec::None => bytes,
        Codec::PackBits => packbits::bound(row, image.spec.height),
        Codec::Lzw => lzw::bound(bytes),
        Codec::Deflate => deflate::bound(bytes),
        Codec::Zstd => zstd::bound(bytes),
        Codec::Jpeg2000(_) | Codec::Gtiff => 0,
    }
}

/// Encodes the pixels in `tile` and says how many bytes that made; without a codec they are in their
/// slot already.
fn encode(raster: &Raster, tile: &mut [u8], slot: &mut [u8], codecs: &mut Codecs) -> usize {
    let spec = &raster.image.spec;
    let (row, unit) = (spec.row_bytes(), spec.sample.bytes());
    match spec.predictor {
        Predictor::None => {}
        Predictor::Horizontal => {
            forward::apply_horizontal(tile, row, spec.samples, unit, spec.swap);
        }
        Predictor::FloatingPoint => {
            forward::apply_floating_point(tile, row, spec.samples, unit, &mut codecs.scratch);
        }
    }
    let made: Result<usize, CodecError> = match spec.codec {
        Codec::None => Ok(slot.len()),
        Codec::Lzw => codecs.lzw.1.encode(tile, slot),
        Codec::Deflate => codecs.deflate.1.encode(ZLEVEL, tile, slot),
        Codec::Zstd => codecs.zstd.1.encode(ZSTD_LEVEL, tile, slot),
        Codec::PackBits => packbits::encode(tile, row, slot),
        Codec::Jpeg2000(_) | Codec::Gtiff => Err(CodecError::Unsupported),
    };
    made.expect("room for a tile")
}
