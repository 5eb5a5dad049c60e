//! How fast a raster could be read at best: the fastest decoder known to us, the
//! predictor and one copy into place, from memory, on all cores, with nothing
//! else around them. `make bench` shows it beside the driver.
//!
//!     limit <file>      prints `seconds <best of 5>` and `hash <of the pixels>`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gpugtiff::batch::image::{Expected, Image};
use gpugtiff::batch::plan::Tile;
use gpugtiff::engine::cpu::deflate::Deflate;
use gpugtiff::engine::cpu::interleave::deinterleave;
use gpugtiff::engine::cpu::lzw::Lzw;
use gpugtiff::engine::cpu::zstd::Zstd;
use gpugtiff::engine::cpu::{packbits, predictor};
use gpugtiff::engine::{Codec, Predictor, TileJob};
use gpugtiff::io::Memory;
use gpugtiff::tiff::{Header, Ifd, Layout};

/// The output, written by several threads at places that do not overlap.
struct Output(*mut u8);

// SAFETY: each thread writes the tiles it took from the common counter.
unsafe impl Sync for Output {}

struct Decoders {
    lzw: Lzw,
    deflate: Deflate,
    zstd: Zstd,
    scratch: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: limit <file>")?;
    let bytes = std::fs::read(path)?;
    let source = Memory(bytes.clone());
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
    let image = Image::open(Arc::new(source), header.first_ifd, &expected, 1 << 30)?;
    let cover = image.grid.cover(&image.grid.image());
    let planes: Vec<u32> = (0..image.grid.planes).collect();
    let mut tiles = Vec::new();
    for tile in image.grid.tiles(cover, &planes) {
        tiles.push((tile, image.job(tile)?.ok_or("a sparse tile")?));
    }
    let unit = image.spec.sample.bytes();
    let plane = image.grid.width as usize * image.grid.height as usize * unit;
    let mut output = vec![0xA5u8; plane * expected.bands as usize];
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        read(&image, &tiles, &bytes, &Output(output.as_mut_ptr()), plane);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("seconds {best:.6}");
    Ok(())
}

fn read(image: &Image, tiles: &[(Tile, TileJob)], bytes: &[u8], out: &Output, plane: usize) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut tile_bytes = vec![0u8; image.spec.tile_bytes()];
                let mut decoders = Decoders {
                    lzw: Lzw::new(),
                    deflate: Deflate::new(),
                    zstd: Zstd::new(),
                    scratch: Vec::new(),
                };
                while let Some((tile, job)) = tiles.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let packed = &bytes[job.offset as usize..][..job.len];
                    let pixels = decode(image, packed, &mut tile_bytes, &mut decoders);
                    place(image, *tile, pixels, out, plane);
                }
            });
        }
    });
}

fn decode<'a>(
    image: &Image,
    packed: &'a [u8],
    tile: &'a mut [u8],
    decoders: &mut Decoders,
) -> &'a [u8] {
    let spec = &image.spec;
    let result = match spec.codec {
        Codec::None if !spec.swap => return packed,
        Codec::None => {
            tile[..packed.len()].copy_from_slice(packed);
            Ok(packed.len())
        }
        Codec::Lzw => decoders.lzw.decode(packed, tile),
        Codec::Deflate => decoders.deflate.decode(packed, tile),
        Codec::Zstd => decoders.zstd.decode(packed, tile),
        Codec::PackBits => packbits::decode(packed, tile),
    };
    result.expect("an intact file");
    let (row, unit) = (spec.row_bytes(), spec.sample.bytes());
    match spec.predictor {
        Predictor::None => {}
        Predictor::Horizontal => {
            predictor::undo_horizontal(tile, row, spec.samples, unit, spec.swap);
        }
        Predictor::FloatingPoint => {
            predictor::undo_floating_point(tile, row, spec.samples, unit, &mut decoders.scratch);
        }
    }
    tile
}

/// Band after band, as the driver is asked to.
fn place(image: &Image, tile: Tile, pixels: &[u8], out: &Output, plane: usize) {
    let rect = image.grid.rect(tile);
    let (unit, samples) = (image.spec.sample.bytes(), image.spec.samples);
    let line = image.grid.width as usize * unit;
    let len = rect.width as usize * unit;
    for y in 0..rect.height as usize {
        let row = &pixels[y * image.spec.row_bytes()..][..len * samples];
        let at = (rect.y as usize + y) * line + rect.x as usize * unit;
        let first = tile.plane as usize * plane + at;
        // SAFETY: inside the output, and of this tile alone.
        let mut rows: Vec<&mut [u8]> = (0..samples)
            .map(|i| unsafe { std::slice::from_raw_parts_mut(out.0.add(first + i * plane), len) })
            .collect();
        match samples {
            1 => rows[0].copy_from_slice(row),
            _ => deinterleave(row, samples, unit, &mut rows),
        }
    }
}
