use std::sync::Mutex;

use super::*;
use crate::io::Memory;
use crate::tiff::fixture::{Fixture, VARIANTS};
use crate::tiff::tag::kind::{LONG, SHORT};

/// A file of which only what was fetched is known.
struct Remote {
    file: Memory,
    fetched: Mutex<Vec<(u64, u64)>>,
}

impl ByteSource for Remote {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buf)
    }

    fn fetch(&self, ranges: &[(u64, u64)]) {
        self.fetched.lock().unwrap().extend(ranges);
    }

    fn fetched(&self, offset: u64, buf: &mut [u8]) -> bool {
        let end = offset + buf.len() as u64;
        let fetched = self.fetched.lock().unwrap();
        fetched.iter().any(|(start, len)| *start <= offset && end <= start + len)
            && self.file.read_at(offset, buf).is_ok()
    }
}

fn header() -> Header {
    Header { byte_order: super::super::ByteOrder::Little, big: false, first_ifd: 0 }
}

fn with_text(lines: &str) -> Memory {
    let text = format!("GDAL_STRUCTURAL_METADATA_SIZE={:06} bytes\n{lines}", lines.len());
    Memory([b"II\x2a\0\0\0\0\0", text.as_bytes(), &[0; 20]].concat())
}

const COG: &str = "LAYOUT=IFDS_BEFORE_DATA\nBLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\n\
    BLOCK_TRAILER=LAST_4_BYTES_REPEATED\nKNOWN_INCOMPATIBLE_EDITION=NO\n ";

#[test]
fn the_text_behind_the_header() {
    let read = |text: &str| Structure::read(&with_text(text), &header());
    assert_eq!(read(COG), Some(Structure { masks: false }));
    let masks = format!("{COG}MASK_INTERLEAVED_WITH_IMAGERY=YES\n");
    assert_eq!(read(&masks), Some(Structure { masks: true }));
    for (line, other) in [
        ("ROW_MAJOR", "RANDOM"),
        ("SIZE_AS_UINT4", "NONE"),
        ("LAST_4_BYTES_REPEATED", "NONE"),
        ("EDITION=NO", "EDITION=YES"),
    ] {
        assert_eq!(read(&COG.replace(line, other)), None, "{other}");
    }
    let whole = with_text(COG).0;
    for len in [0, 8, 20, 40, 60] {
        assert_eq!(Structure::read(&Memory(whole[..len].to_vec()), &header()), None);
    }
}

/// Where tiles begin.
const FIRST: usize = 1 << 16;

/// Three tiles of an image, each with its mask's behind it; lengths in the order of the file.
const LENGTHS: [(u64, u64); 3] = [(100, 9), (50, 4), (70, 30)];

fn laid_out(change: impl Fn(&mut Vec<u8>)) -> (Remote, Vec<ByteRange>, Vec<ByteRange>, Leaders) {
    let mut bytes = vec![0; FIRST];
    let (mut images, mut masks) = (Vec::new(), Vec::new());
    let put = |bytes: &mut Vec<u8>, len: u64, list: &mut Vec<ByteRange>| {
        bytes.extend((len as u32).to_le_bytes());
        list.push(ByteRange { offset: bytes.len() as u64, len });
        bytes.extend((0..len).map(|i| i as u8 + 1));
        bytes.extend_from_within(bytes.len() - 4..);
    };
    for (image, mask) in LENGTHS {
        put(&mut bytes, image, &mut images);
        put(&mut bytes, mask, &mut masks);
    }
    let offsets: Vec<u64> = images.iter().map(|range| range.offset).collect();
    let (file, at) = Fixture::tiled(VARIANTS[0])
        .with(tag::IMAGE_WIDTH, LONG, &[3 * 16])
        .with(tag::IMAGE_LENGTH, SHORT, &[16])
        .with(tag::TILE_WIDTH, SHORT, &[16])
        .with(tag::TILE_LENGTH, SHORT, &[16])
        .with(tag::TILE_OFFSETS, LONG, &offsets)
        .with(tag::TILE_BYTE_COUNTS, LONG, &LENGTHS.map(|(image, _)| image))
        .build();
    // The directory is read from its own file: where it lies is of no interest here.
    let header = Header::read(&file).unwrap();
    let ifd = Ifd::read(&file, &header, at).unwrap();
    let layout = Layout::new(&header, &ifd).unwrap();
    let leaders = Leaders {
        structure: Structure { masks: true },
        images: Arc::new(Striles::new(&header, &ifd, &layout).unwrap()),
        is_mask: false,
    };
    // Entries of arrays first, tiles behind them.
    assert!(file.0.len() < FIRST);
    bytes[..file.0.len()].copy_from_slice(&file.0);
    change(&mut bytes);
    (Remote { file: Memory(bytes), fetched: Mutex::default() }, images, masks, leaders)
}

#[test]
fn what_was_fetched_tells_where_tiles_and_masks_are() {
    let (file, images, masks, leaders) = laid_out(|_| ());
    let as_mask = |leaders: Leaders| Leaders { is_mask: true, ..leaders };
    assert_eq!(leaders.locate(&file, 0).unwrap(), Found::Unknown, "nothing was fetched");
    let extents = leaders.extents(&file, &[0, 1, 2]).unwrap();
    let between = images[1].offset - images[0].offset;
    assert_eq!(extents[0], (images[0].offset - EDGE, between));
    assert_eq!(extents[2].0, images[2].offset - EDGE);
    file.fetch(&extents);
    for tile in 0..2 {
        assert_eq!(leaders.locate(&file, tile).unwrap(), Found::At(images[tile as usize]));
    }
    assert_eq!(leaders.locate(&file, 2).unwrap(), Found::Unknown, "nothing bounds the last");
    assert_eq!(leaders.extents(&file, &[0, 1]).unwrap(), [], "both are here");
    let leaders = as_mask(leaders);
    for tile in 0..2 {
        assert_eq!(leaders.locate(&file, tile).unwrap(), Found::At(masks[tile as usize]));
    }
    assert_eq!(leaders.locate(&file, 2).unwrap(), Found::Unknown);
}

#[test]
fn what_does_not_agree_tells_nothing() {
    let (_, images, masks, _) = laid_out(|_| ());
    let at = |offset: u64| offset as usize;
    // A byte of each leader and trailer of the first tile and its mask.
    let image = [at(images[0].offset) - 4, at(images[0].offset + images[0].len)];
    let mask = [at(masks[0].offset) - 4, at(masks[0].offset + masks[0].len)];
    for byte in image.into_iter().chain(mask) {
        let (file, images, _, leaders) = laid_out(|bytes| bytes[byte] ^= 1);
        file.fetch(&[(0, file.len())]);
        let found = leaders.locate(&file, 0).unwrap();
        let expected = if image.contains(&byte) { Found::Unknown } else { Found::At(images[0]) };
        assert_eq!(found, expected, "image, byte {byte}");
        let leaders = Leaders { is_mask: true, ..leaders };
        // The image's trailer says nothing of the mask.
        let found = leaders.locate(&file, 0).unwrap();
        assert_eq!(found == Found::Unknown, byte != image[1], "mask, byte {byte}");
    }
    // Without masks the tile must reach up to the next one.
    let (file, _, _, leaders) = laid_out(|_| ());
    file.fetch(&[(0, file.len())]);
    let leaders = Leaders { structure: Structure { masks: false }, ..leaders };
    assert_eq!(leaders.locate(&file, 0).unwrap(), Found::Unknown);
}
