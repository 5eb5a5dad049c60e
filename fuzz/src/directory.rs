//! TIFF directories: any bytes are a file. Whatever is read of it lies within it, what leaders tell
//! agrees with that, the overlay changes bytes that there are, and directories that are written anew
//! hold the same tags. Small images are decoded.

use std::sync::Arc;

use gpugtiff::batch::image::{Expected, Image};
use gpugtiff::batch::plan::Tile;
use gpugtiff::engine::cpu::CpuEngine;
use gpugtiff::engine::{Batch, Engine, PixelSink, Pixels};
use gpugtiff::error::Result;
use gpugtiff::io::{ByteSource, Memory};
use gpugtiff::tiff::directory::lay_out;
use gpugtiff::tiff::leaders::{Found, Leaders};
use gpugtiff::tiff::overlay::{Overlay, Wanted};
use gpugtiff::tiff::{Directory, Header, Ifd, Layout, Strile, Striles};

/// Directories and tiles that are looked at.
const MOST_DIRECTORIES: usize = 8;
const MOST_TILES: u64 = 40;
/// Bytes of tiles that are decoded.
const MOST_BYTES: u64 = 1 << 20;

/// A remote file that was fetched whole.
struct Remote(Memory);

impl ByteSource for Remote {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn remote(&self) -> bool {
        true
    }

    fn fetched(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.0.read_at(offset, buf).is_ok()
    }
}

/// Looks at the size of what comes.
struct Measure {
    rows: usize,
    row_bytes: usize,
}

impl PixelSink for Measure {
    fn put(&self, _id: u64, pixels: Pixels<'_>) {
        assert_eq!(pixels.data.len(), pixels.rows * pixels.row_bytes);
        assert_eq!((pixels.rows, pixels.row_bytes), (self.rows, self.row_bytes));
    }
}

pub(crate) fn run(data: &[u8]) {
    let source = Remote(Memory(data.to_vec()));
    overlay(&source.0);
    let Ok(header) = Header::read(&source) else { return };
    let mut offset = header.first_ifd;
    for _ in 0..MOST_DIRECTORIES {
        let Ok(ifd) = Ifd::read(&source, &header, offset) else { return };
        rewrite(&source, &header, &ifd);
        if let Ok(layout) = Layout::new(&header, &ifd) {
            tiles(&source, &header, &ifd, &layout);
            image(data, offset, &layout);
        }
        offset = ifd.next;
    }
}

fn tiles(source: &Remote, header: &Header, ifd: &Ifd, layout: &Layout) {
    let Ok(striles) = Striles::new(header, ifd, layout) else { return };
    assert_eq!(striles.count(), layout.tile_count());
    let striles = Arc::new(striles);
    let count = striles.count();
    let some = (0..count.min(MOST_TILES)).chain(count.saturating_sub(3)..count);
    let leaders = Leaders::find(source, header, ifd, layout, &striles);
    for tile in some {
        if let Ok(Some(range)) = striles.range(source, tile) {
            let end = range.offset.checked_add(range.len);
            assert!(range.len > 0 && end.is_some_and(|end| end <= source.len()), "{range:?}");
        }
        if let Some(leaders) = &leaders {
            if let Ok(Found::At(range)) = leaders.locate(source, tile) {
                let end = range.offset.checked_add(range.len);
                assert!(end.is_some_and(|end| end <= source.len()), "by its leader: {range:?}");
            }
            for (offset, len) in leaders.extents(source, &[tile]).unwrap_or_default() {
                assert!(offset.checked_add(len).is_some(), "to fetch: {len} at {offset}");
            }
        }
    }
    assert!(striles.range(source, count).is_err(), "a tile behind the last");
}

/// The first tiles of an image that GDAL would say the same of.
fn image(data: &[u8], offset: u64, layout: &Layout) {
    let one_bit = layout.bits_per_sample == 1;
    let expected = Expected {
        width: layout.width,
        height: layout.height,
        bands: u32::from(layout.samples_per_pixel),
        sample_bytes: if one_bit { 1 } else { (layout.bits_per_sample / 8).min(16) as u8 },
        bit: one_bit.then_some(255),
        block_width: layout.tile_width,
        block_height: layout.tile_height,
        first_tile: None,
        converted: false,
    };
    let source: Arc<dyn ByteSource> = Arc::new(Memory(data.to_vec()));
    let Ok(image) = Image::open(Arc::clone(&source), offset, &expected, 1 << 20) else { return };
    if image.spec.tile_bytes() as u64 > MOST_BYTES {
        return;
    }
    for index in 0..u32::try_from(layout.tile_count().min(4)).unwrap_or(0) {
        let (column, row) = (index % layout.tiles_across, index / layout.tiles_across);
        if row >= layout.tiles_down.min(image.grid.down()) || column >= image.grid.across() {
            break;
        }
        let Ok(Some(job)) = image.job(Tile { plane: 0, row, column }) else { continue };
        assert!(job.offset + job.len as u64 <= source.len(), "{job:?}");
        let sink = Measure { rows: job.rows, row_bytes: image.spec.row_bytes() };
        let batch = Batch {
            spec: Arc::clone(&image.spec),
            tiles: vec![job],
            source: Arc::clone(&source),
            threads: 1,
        };
        if let Ok(staged) = CpuEngine.stage(batch) {
            let _ = staged.decode(&sink);
        }
    }
}

fn overlay(source: &Memory) {
    for wanted in [Wanted::First, Wanted::Number(1), Wanted::Number(3), Wanted::At(8)] {
        let Ok(overlay) = Overlay::new(source, wanted) else { continue };
        assert!(overlay.patches.is_sorted_by(|a, b| a.offset < b.offset), "patches in order");
        assert!(overlay.patches.iter().all(|patch| patch.offset < source.len()), "in the file");
        assert_eq!(overlay.patches.is_empty(), overlay.directories.is_empty());
    }
}

/// Writes the directory anew and reads it back.
fn rewrite(source: &Remote, header: &Header, ifd: &Ifd) {
    let Ok(mut directory) = Directory::take_over(source, header, ifd) else { return };
    directory.set_height(77);
    directory.set_striles(vec![Strile { offset: 16, len: 4 }; ifd.entries().len() % 5]);
    for big in [header.big, true] {
        let at = 16;
        let laid = lay_out(&[directory.clone(), directory.clone()], at, big).expect("memory");
        let file = Memory([&laid.header[..], &laid.bytes[..]].concat());
        let written = Header::read(&file).expect("a header");
        assert_eq!(written.byte_order, header.byte_order);
        let first = Ifd::read_entries(&file, &written, written.first_ifd).expect("a directory");
        assert_ne!(first.next, 0, "the second directory");
        let tags = first.entries().iter().map(|entry| entry.tag);
        assert!(tags.is_sorted_by(|a, b| a < b), "sorted tags");
        for entry in first.entries() {
            let Some(old) = ifd.find(entry.tag).filter(|_| !is_ours(entry.tag)) else { continue };
            assert_eq!((entry.kind, entry.count), (old.kind, old.count), "tag {}", entry.tag);
            let (new, old) = (first.value(&file, entry, 1 << 20), ifd.value(source, old, 1 << 20));
            if let Ok(old) = old {
                assert_eq!(new.expect("a value"), old, "tag {}", entry.tag);
            }
        }
    }
}

/// Tags that a new directory sets itself: ImageLength and the places of tiles.
fn is_ours(tag: u16) -> bool {
    matches!(tag, 257 | 273 | 279 | 324 | 325)
}
