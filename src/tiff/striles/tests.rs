use super::*;
use crate::io::Memory;
use crate::tiff::ByteOrder;
use crate::tiff::array::{MAX_READ, PAGE};
use crate::tiff::fixture::{Counted, Fixture, Random, VARIANTS};
use crate::tiff::tag::kind::{BYTE, LONG, LONG8, SHORT, SLONG8};

fn open(file: &dyn ByteSource, at: u64) -> Result<Striles> {
    let header = Header::read(file)?;
    let ifd = Ifd::read(file, &header, at)?;
    Striles::new(&header, &ifd, &Layout::new(&header, &ifd)?)
}

fn first(fixture: &Fixture) -> Result<Option<ByteRange>> {
    let (file, at) = fixture.build();
    open(&file, at)?.range(&file, 0)
}

fn some(offset: u64, len: u64) -> Option<ByteRange> {
    Some(ByteRange { offset, len })
}

fn corrupt<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

fn unsupported<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Unsupported(_)))
}

/// `tiles` tiles of one 16-bit pixel; tile i has i + 7 bytes (as far as 16 bits go) at
/// 2 i + 1, and tile 5 was never written.
fn many(variant: (ByteOrder, bool), tiles: u64, kind: u16) -> (Memory, u64) {
    let offsets: Vec<u64> = (0..tiles).map(|i| if i == 5 { 0 } else { 2 * i + 1 }).collect();
    let counts: Vec<u64> = (0..tiles).map(|i| if i == 5 { 0 } else { (i + 7) & 0xFFFF }).collect();
    Fixture::tiled(variant)
        .with(tag::IMAGE_WIDTH, LONG, &[tiles])
        .with(tag::IMAGE_LENGTH, SHORT, &[1])
        .with(tag::TILE_WIDTH, SHORT, &[1])
        .with(tag::TILE_LENGTH, SHORT, &[1])
        .with(tag::TILE_OFFSETS, kind, &offsets)
        .with(tag::TILE_BYTE_COUNTS, LONG, &counts)
        .build()
}

#[test]
fn every_type_and_kind_of_file() {
    for variant in VARIANTS {
        for kind in [SHORT, LONG, LONG8, SLONG8] {
            let (file, at) = many(variant, 600, kind);
            let striles = open(&file, at).unwrap();
            let all = striles.ranges(&file, (0..600).rev()).unwrap();
            for (index, range) in (0..600).rev().zip(all) {
                let expected = if index == 5 { None } else { some(2 * index + 1, index + 7) };
                assert_eq!(range, expected, "{kind} {index}");
                assert_eq!(striles.range(&file, index).unwrap(), expected);
            }
            for index in [600, 1024, 5_000_000, u64::MAX] {
                let range = striles.range(&file, index);
                assert!(matches!(range, Err(Error::Corrupt { .. })), "{index}");
            }
        }
    }
}

#[test]
fn arrays_within_the_entry() {
    for variant in VARIANTS {
        let strips = Fixture::strips(variant, 4).with(tag::STRIP_OFFSETS, SHORT, &[601, 641]);
        let (file, at) = strips.with(tag::STRIP_BYTE_COUNTS, SHORT, &[40, 30]).build();
        let source = Counted::new(&file);
        let striles = open(&source, at).unwrap();
        source.take();
        let expected = [some(601, 40), some(641, 30)];
        assert_eq!(striles.ranges(&source, [0, 1]).unwrap(), expected);
        assert_eq!(source.take(), (0, 0));
    }
}

#[test]
fn only_the_pages_in_use_are_read_and_only_once() {
    let (file, at) = many(VARIANTS[0], 100_000, LONG8);
    let source = Counted::new(&file);
    let striles = open(&source, at).unwrap();
    source.take();
    // One entry of each page may be a page of its own.
    let entry = 8 + 4;
    let page = PAGE * entry;
    striles.range(&source, 50_000).unwrap();
    let (requests, bytes) = source.take();
    assert!(requests == 2 && (page - entry..=page).contains(&bytes), "{requests} {bytes}");
    striles.ranges(&source, 50_000..50_100).unwrap();
    assert_eq!(source.take(), (0, 0));
    striles.ranges(&source, [0, 1, 99_999, 600, 50_001]).unwrap();
    let (requests, bytes) = source.take();
    assert!(requests <= 6 && bytes <= 3 * page, "{requests} {bytes}");
    striles.ranges(&source, 0..100_000).unwrap();
    assert!(source.take().0 <= 6);
}

#[test]
fn a_million_tiles_take_few_requests() {
    let tiles = 1_200_000;
    let (file, at) = many(VARIANTS[3], tiles, LONG);
    let source = Counted::new(&file);
    let striles = open(&source, at).unwrap();
    source.take();
    let all = striles.ranges(&source, 0..tiles).unwrap();
    assert_eq!(all[1_000_001], some(2_000_003, 1_000_008 & 0xFFFF));
    let (requests, bytes) = source.take();
    // Half as many entries at a time where each second page is a single one.
    let most = 2 * 2 * tiles.div_ceil(PAGE * MAX_READ as u64);
    assert!(requests <= most && bytes == tiles * 8, "{requests} {bytes}");
}

#[test]
fn threads_agree() {
    let (file, at) = many(VARIANTS[1], 20_000, LONG);
    let striles = open(&file, at).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..5 {
            let (file, striles) = (&file, &striles);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..2000 {
                    let index = 6 + random.below(19_994) as u64;
                    let range = striles.range(file, index).unwrap();
                    assert_eq!(range, some(2 * index + 1, (index + 7) & 0xFFFF));
                }
            });
        }
    });
}

#[test]
fn missing_tiles_and_tiles_outside_the_file() {
    let tiled = Fixture::tiled(VARIANTS[0]);
    let offsets = |at| tiled.clone().with(tag::TILE_OFFSETS, LONG, &[at; 12]);
    assert_eq!(first(&offsets(1000)).unwrap(), some(1000, 100));
    let zero = |at| offsets(at).with(tag::TILE_BYTE_COUNTS, SHORT, &[0; 12]);
    assert_eq!(first(&zero(0)).unwrap(), None);
    assert_eq!(first(&zero(1000)).unwrap(), None);
    assert!(corrupt(first(&offsets(0))));
    let len = tiled.build().0.len();
    assert_eq!(first(&offsets(len - 100)).unwrap(), some(len - 100, 100));
    let text = first(&offsets(len - 99)).unwrap_err().to_string();
    let expected = format!(
        "tile 0 of 100 bytes at {0} is not within the file's {len} bytes (offset {0})",
        len - 99
    );
    assert_eq!(text, expected);
    let huge = offsets(1).with(tag::TILE_OFFSETS, LONG8, &[u64::MAX; 12]);
    assert!(matches!(first(&huge), Err(Error::Corrupt { .. })));
}

#[test]
fn arrays_too_short_too_long_of_another_type_or_twice() {
    let tiled = Fixture::tiled(VARIANTS[2]);
    assert!(unsupported(first(&tiled.clone().with(tag::TILE_OFFSETS, LONG, &[1000; 11]))));
    assert!(unsupported(first(&tiled.clone().with(tag::TILE_BYTE_COUNTS, LONG, &[9; 4]))));
    assert!(unsupported(first(&tiled.clone().with(tag::TILE_BYTE_COUNTS, BYTE, &[9; 12]))));
    assert!(unsupported(first(&tiled.clone().tag(tag::STRIP_OFFSETS, LONG, &[1000; 12]))));
    let long = tiled.clone().with(tag::TILE_BYTE_COUNTS, LONG, &[99; 13]);
    assert_eq!(first(&long).unwrap(), some(1000, 99));
    let strips = tiled.clone().without(tag::TILE_OFFSETS);
    assert!(matches!(first(&strips), Err(Error::Corrupt { .. })));
    let strips = strips.with(tag::STRIP_OFFSETS, LONG, &[1001; 12]);
    assert_eq!(first(&strips).unwrap(), some(1001, 100));
}

#[test]
fn missing_byte_counts() {
    let lone = Fixture::strips(VARIANTS[0], 7).without(tag::STRIP_BYTE_COUNTS);
    assert_eq!(first(&lone).unwrap(), some(600, 70));
    assert!(unsupported(first(&lone.with(tag::COMPRESSION, SHORT, &[8]))));
    let strips = Fixture::strips(VARIANTS[0], 3).without(tag::STRIP_BYTE_COUNTS);
    assert!(matches!(first(&strips), Err(Error::Corrupt { .. })));
    let planes = strips
        .with(tag::ROWS_PER_STRIP, SHORT, &[7])
        .with(tag::SAMPLES_PER_PIXEL, SHORT, &[2])
        .with(tag::PLANAR_CONFIGURATION, SHORT, &[2])
        .with(tag::STRIP_OFFSETS, SHORT, &[700, 800]);
    let (file, at) = planes.build();
    let ranges = open(&file, at).unwrap().ranges(&file, [1, 0]).unwrap();
    assert_eq!(ranges, [some(800, 70), some(700, 70)]);
}

#[test]
fn the_byte_count_of_a_lone_strip_is_doubted() {
    let lone = Fixture::strips(VARIANTS[1], 7);
    for (stored, used) in [(0, 70), (69, 70), (70, 70), (71, 71), (100_000, 70)] {
        let fixture = lone.clone().with(tag::STRIP_BYTE_COUNTS, LONG, &[stored]);
        assert_eq!(first(&fixture).unwrap(), some(600, used), "{stored}");
    }
    let sparse = lone.with(tag::STRIP_BYTE_COUNTS, SHORT, &[0]);
    let sparse = sparse.with(tag::STRIP_OFFSETS, SHORT, &[0]);
    assert_eq!(first(&sparse).unwrap(), None);
    let deflate = |len| {
        let fixture = Fixture::strips(VARIANTS[1], 7).with(tag::COMPRESSION, SHORT, &[8]);
        first(&fixture.with(tag::STRIP_BYTE_COUNTS, SHORT, &[len]))
    };
    assert_eq!(deflate(20).unwrap(), some(600, 20));
    assert!(unsupported(deflate(0)));
}

#[test]
fn a_length_out_of_proportion_is_an_error() {
    let fixture = Fixture::tiled(VARIANTS[0]).tail(3 << 20);
    let counted = |len| fixture.clone().with(tag::TILE_BYTE_COUNTS, LONG, &[len; 12]);
    assert_eq!(first(&counted(1 << 20)).unwrap(), some(1000, 1 << 20));
    assert!(corrupt(first(&counted((1 << 20) + 1))));
}

#[test]
fn hostile_files_never_panic_nor_read_more_than_they_hold() {
    for seed in 1..6000_u64 {
        let mut random = Random(seed);
        let variant = VARIANTS[random.below(4)];
        let fixture = match random.below(3) {
            0 => Fixture::tiled(variant).tail(random.below(3000)),
            rows => Fixture::strips(variant, 1 + 3 * rows as u64).tail(random.below(800)),
        };
        let (mut file, at) = fixture.build();
        for _ in 0..random.below(6) {
            let index = at as usize + random.below(file.0.len() - at as usize);
            file.0[index] = [0, 0xFF, 1, random.next() as u8][random.below(4)];
        }
        let source = Counted::new(&file);
        let Ok(striles) = open(&source, at) else {
            continue;
        };
        source.take();
        let indices: Vec<u64> = (0..20).map(|i| i * (1 + random.below(9000) as u64)).collect();
        for index in indices {
            if let Ok(Some(range)) = striles.range(&source, index) {
                let end = range.offset + range.len;
                assert!(range.len > 0 && end <= file.len(), "seed {seed}: {range:?}");
            }
            let (_, bytes) = source.take();
            assert!(bytes <= 2 * file.len(), "seed {seed}: {bytes} of {}", file.len());
        }
    }
}

/// A directory of the right tags, some of them with random types, counts and values.
fn random_directory(random: &mut Random) -> Vec<u8> {
    let mut fixture = Fixture::new(VARIANTS[random.below(4)]).tail(random.below(500));
    let mut tags = tag::LAYOUT.to_vec();
    tags.extend([[273, 279], [324, 325]][random.below(2)]);
    tags.retain(|tag| matches!(tag, 256 | 257 | 273 | 324) || random.below(3) > 0);
    let odds = 1 + random.below(20);
    for tag in tags {
        fixture = match random.below(odds) {
            0 => {
                let values = vec![random.next(); random.below(10)];
                fixture.tag(tag, random.below(20) as u16, &values)
            }
            _ => fixture.tag(tag, [SHORT, LONG, LONG8][random.below(3)], &[1]),
        };
    }
    let mut file = fixture.build().0.0;
    for _ in 0..random.below(4) {
        let index = 16 + random.below(file.len() - 16);
        file[index] = [0, 1, 0xFF, random.next() as u8][random.below(4)];
    }
    file
}

#[test]
fn random_directories_never_panic_nor_read_more_than_they_hold() {
    let mut tiles = 0;
    for seed in 1..20_000_u64 {
        let mut random = Random(seed);
        let file = Memory(random_directory(&mut random));
        let source = Counted::new(&file);
        let at = Header::read(&file).unwrap().first_ifd;
        let opened = open(&source, at);
        let range = opened.and_then(|striles| striles.range(&source, random.next() % 3));
        if let Ok(Some(range)) = range {
            let end = range.offset + range.len;
            assert!(range.len > 0 && end <= file.len(), "seed {seed}: {range:?}");
            tiles += 1;
        }
        let (_, bytes) = source.take();
        let limit = (tag::LAYOUT.len() as u64 + 4) * file.len();
        assert!(bytes <= limit, "seed {seed}: {bytes} of {}", file.len());
    }
    assert!(tiles > 100, "only {tiles} directories had a tile");
}
