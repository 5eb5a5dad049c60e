use super::*;
use crate::tiff::fixture::{Fixture, VARIANTS};
use crate::tiff::tag::kind::{LONG, LONG8, SHORT};

fn read(fixture: &Fixture) -> Result<Layout> {
    let (file, at) = fixture.build();
    let header = Header::read(&file)?;
    Layout::new(&header, &Ifd::read(&file, &header, at)?)
}

fn unsupported(fixture: &Fixture) -> bool {
    let outcome = read(fixture).and_then(|layout| layout.refuse_conversions());
    matches!(outcome, Err(Error::Unsupported(_)))
}

fn corrupt(fixture: &Fixture) -> bool {
    matches!(read(fixture), Err(Error::Corrupt { .. }))
}

#[test]
fn tiles_in_every_kind_of_file() {
    for variant in VARIANTS {
        let layout = read(&Fixture::tiled(variant)).unwrap();
        assert_eq!(layout.byte_order, variant.0);
        assert_eq!((layout.width, layout.height, layout.tiled), (70, 50, true));
        assert_eq!((layout.tile_width, layout.tile_height), (32, 16));
        assert_eq!((layout.tiles_across, layout.tiles_down, layout.planes), (3, 4, 1));
        assert_eq!((layout.samples_per_pixel, layout.bits_per_sample), (3, 16));
        assert_eq!((layout.compression, layout.predictor, layout.photometric), (8, 2, 2));
        assert_eq!((layout.sample_format, layout.fill_order), (1, 1));
        assert_eq!((layout.row_bytes(), layout.tile_bytes()), (192, 3072));
    }
}

#[test]
fn planes_have_tiles_of_their_own() {
    let fixture = Fixture::tiled(VARIANTS[0]).with(tag::PLANAR_CONFIGURATION, SHORT, &[2]);
    let layout = read(&fixture).unwrap();
    assert_eq!((layout.planar, layout.planes), (Planar::Separate, 3));
    assert_eq!((layout.tile_count(), layout.tile_bytes()), (36, 1024));
    assert_eq!(layout.samples_in_tile(), 1);
}

#[test]
fn strips_are_tiles_as_wide_as_the_image() {
    let layout = read(&Fixture::strips(VARIANTS[1], 3)).unwrap();
    assert_eq!((layout.tiled, layout.tile_width, layout.tile_height), (false, 10, 3));
    assert_eq!((layout.tiles_across, layout.tiles_down), (1, 3));
    assert_eq!((layout.compression, layout.predictor, layout.photometric), (1, 1, 1));
}

#[test]
fn rows_per_strip_too_large_absent_or_zero() {
    let strips = Fixture::strips(VARIANTS[2], 7);
    for rows in [8, 0xFFFF_FFFF] {
        let layout = read(&strips.clone().with(tag::ROWS_PER_STRIP, LONG, &[rows])).unwrap();
        assert_eq!((layout.tile_height, layout.tiles_down), (7, 1));
    }
    let layout = read(&strips.clone().without(tag::ROWS_PER_STRIP)).unwrap();
    assert_eq!((layout.tile_height, layout.tile_bytes()), (7, 70));
    assert!(corrupt(&strips.with(tag::ROWS_PER_STRIP, SHORT, &[0])));
}

#[test]
fn defaults_and_bits_that_do_not_fill_a_byte() {
    let fixture = Fixture::strips(VARIANTS[0], 7).without(tag::BITS_PER_SAMPLE);
    let layout = read(&fixture).unwrap();
    assert_eq!((layout.bits_per_sample, layout.row_bytes(), layout.tile_bytes()), (1, 2, 14));
}

#[test]
fn a_predictor_counts_only_for_its_codecs() {
    let fixture = Fixture::tiled(VARIANTS[0]);
    for (compression, predictor) in [(1, 1), (32773, 1), (5, 2), (8, 2), (50000, 2)] {
        let fixture = fixture.clone().with(tag::COMPRESSION, SHORT, &[compression]);
        assert_eq!(read(&fixture).unwrap().predictor, predictor, "{compression}");
    }
}

#[test]
fn what_gtiff_converts_is_left_to_it() {
    let eight = Fixture::strips(VARIANTS[0], 7);
    for photometric in [5, 6, 8, 32844, 32845] {
        assert!(unsupported(&eight.clone().with(tag::PHOTOMETRIC, SHORT, &[photometric])));
    }
    let sixteen = Fixture::tiled(VARIANTS[0]);
    assert!(read(&sixteen.clone().with(tag::PHOTOMETRIC, SHORT, &[8])).is_ok());
    assert!(unsupported(&sixteen.clone().with(tag::PHOTOMETRIC, SHORT, &[6])));
    assert!(unsupported(&sixteen.clone().with(tag::BITS_PER_SAMPLE, SHORT, &[8, 16, 16])));
    assert!(unsupported(&sixteen.clone().with(tag::SAMPLE_FORMAT, SHORT, &[1, 2, 3])));
    assert!(unsupported(&sixteen.clone().with(tag::FILL_ORDER, SHORT, &[3])));
    assert!(unsupported(&sixteen.clone().tag(tag::IMAGE_DEPTH, SHORT, &[2])));
    assert!(unsupported(&sixteen.tag(tag::DATA_TYPE, SHORT, &[2])));
}

#[test]
fn directories_that_describe_no_image() {
    let tiled = Fixture::tiled(VARIANTS[3]);
    for tag in [tag::IMAGE_WIDTH, tag::IMAGE_LENGTH, tag::TILE_WIDTH, tag::TILE_LENGTH] {
        assert!(corrupt(&tiled.clone().without(tag)), "{tag} absent");
        assert!(corrupt(&tiled.clone().with(tag, SHORT, &[0])), "{tag} zero");
        assert!(unsupported(&tiled.clone().with(tag, LONG, &[0x8000_0000])), "{tag} 2^31");
        assert!(unsupported(&tiled.clone().with(tag, LONG8, &[1 << 32])), "{tag} 2^32");
    }
    for (tag, value) in [(tag::SAMPLES_PER_PIXEL, 0), (tag::PLANAR_CONFIGURATION, 3)] {
        assert!(corrupt(&tiled.clone().with(tag, SHORT, &[value])), "{tag}");
    }
    assert!(corrupt(&tiled.with(tag::BITS_PER_SAMPLE, SHORT, &[0, 0, 0])));
}

#[test]
fn sizes_that_overflow() {
    let big = |tile: u64| {
        Fixture::strips(VARIANTS[0], 7)
            .with(tag::IMAGE_WIDTH, LONG, &[0x7FFF_FFFF])
            .with(tag::IMAGE_LENGTH, LONG, &[0x7FFF_FFFF])
            .with(tag::TILE_WIDTH, LONG, &[tile])
            .with(tag::TILE_LENGTH, LONG, &[tile])
    };
    assert!(unsupported(&big(1)));
    assert!(read(&big(0x7FFF_FFFF)).is_ok());
    let wide = big(0x7FFF_FFFF).with(tag::SAMPLES_PER_PIXEL, SHORT, &[65535]);
    assert!(unsupported(&wide.with(tag::BITS_PER_SAMPLE, SHORT, &[65535])));
}
