use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/jpeg2000/", $name, ".j2k"))
    };
}

fn spec(bytes: u8, samples: usize, kind: Kind) -> TileSpec {
    TileSpec {
        codec: Codec::Jpeg2000(kind),
        predictor: crate::engine::Predictor::None,
        sample: Sample::Whole { bytes, unit: bytes },
        samples,
        width: 32,
        height: 32,
        swap: false,
    }
}

const JOB: TileJob =
    TileJob { id: 0, offset: 7, len: 0, rows: 32, columns: 32, padded: true, part: None };

fn check(bytes: &[u8], spec: &TileSpec) -> std::result::Result<Codestream, String> {
    Codestream::of_tile(spec, &JOB, bytes).map_err(|error| error.to_string())
}

#[test]
fn what_streams_say() {
    let facts = |bytes: &[u8]| {
        let found = Codestream::find(bytes).unwrap();
        assert_eq!((found.width, found.height, found.range.start), (32, 32, 0));
        (found.components, found.bits, found.signed, found.converts, found.reversible)
    };
    assert_eq!(facts(fixture!("u8")), (1, 8, false, false, true));
    assert_eq!(facts(fixture!("i8")), (1, 8, true, false, true));
    assert_eq!(facts(fixture!("u16x4")), (4, 16, false, false, true));
    assert_eq!(facts(fixture!("i16x3-mct")), (3, 16, true, true, true));
    assert_eq!(facts(fixture!("u8x3-lossy")), (3, 8, false, true, false));
    let sampling = |bytes: &[u8]| Codestream::find(bytes).unwrap().sampling;
    assert_eq!(sampling(fixture!("u8x3")), Sampling::Full);
    assert_eq!(sampling(fixture!("u8x3-422")), Sampling::Chroma(2, 1));
    assert_eq!(sampling(fixture!("u8x3-420")), Sampling::Chroma(2, 2));
    let cropped = Codestream::find(fixture!("u8-cropped")).unwrap();
    assert_eq!((cropped.width, cropped.height), (20, 27));
}

#[test]
fn boxes_and_trailing_bytes() {
    let stream = fixture!("u8").to_vec();
    let header = [&20u32.to_be_bytes()[..], b"ftyp", b"jp2 ", &[0; 8]].concat();
    let length = (8 + stream.len() as u32).to_be_bytes();
    let long = [&1u32.to_be_bytes()[..], b"jp2c", &(16 + stream.len() as u64).to_be_bytes()];
    for start in [
        [&length[..], b"jp2c"].concat(),
        [&0u32.to_be_bytes()[..], b"jp2c"].concat(),
        long.concat(),
    ] {
        let file = [&SIGNATURE[..], &header, &start, &stream].concat();
        let found = Codestream::find(&file).unwrap();
        assert_eq!(file[found.range], stream);
    }
    for wrong in [&b"jp2d"[..], b""] {
        let file = [&SIGNATURE[..], &header, &length, wrong, &stream].concat();
        assert!(Codestream::find(&file).is_err(), "{wrong:?}");
    }
    let padded = [&stream[..], &[0; 100]].concat();
    assert_eq!(Codestream::find(&padded).unwrap().range, 0..stream.len());
}

#[test]
fn a_stream_must_hold_its_tile() {
    let plain = Kind::default();
    let right = spec(1, 1, plain);
    assert!(check(fixture!("u8"), &right).is_ok());
    let said = |bytes: &[u8], spec: &TileSpec| check(bytes, spec).unwrap_err();
    for (bytes, spec, what) in [
        (&fixture!("u8-cropped")[..], right.clone(), "20 x 27 pixels where a tile has 32 x 32"),
        (fixture!("u8"), TileSpec { width: 31, ..right.clone() }, "32 x 32 pixels where"),
        (fixture!("u8x2"), right.clone(), "2 components of 8 bits where a tile has 1 of 8"),
        (fixture!("u16"), right.clone(), "1 components of 16 bits"),
        (fixture!("i8"), right.clone(), "signed components where samples are unsigned"),
        (fixture!("u8x3-422"), super::tests::spec(1, 3, plain), "subsampled"),
    ] {
        assert!(said(bytes, &spec).contains(what), "{}", said(bytes, &spec));
    }
    let ycbcr = spec(1, 3, Kind { ycbcr: true, ..plain });
    assert!(check(fixture!("u8x3-422"), &ycbcr).is_ok());
    let edge = TileJob { columns: 20, rows: 20, ..JOB };
    assert!(Codestream::of_tile(&right, &edge, fixture!("u8-cropped")).is_ok());
    let beyond = TileJob { columns: 21, rows: 20, ..JOB };
    assert!(Codestream::of_tile(&right, &beyond, fixture!("u8-cropped")).is_err());
}

/// GDAL counts the block that it makes for such a tile as used, and does not take that back where there
/// is no memory for it: the process's cache is full from then on.
#[test]
fn tiles_larger_than_any_image_are_refused() {
    let spec = spec(1, 1, Kind { signed: false, ycbcr: false });
    let mut stream = fixture!("u8").to_vec();
    for (width, refused) in [(1u32 << 24, false), (1 << 30, true)] {
        stream[24..28].copy_from_slice(&width.to_be_bytes());
        assert_eq!(check(&stream, &spec).is_err(), refused, "{width}");
    }
}

#[test]
fn every_cut_and_every_bit_is_survived() {
    for stream in [&fixture!("u8")[..], fixture!("u8-tiles"), fixture!("u8x3-lossy")] {
        for len in 0..stream.len() {
            let cut = Codestream::find(&stream[..len]);
            // Without its last marker a stream is whole still.
            assert_eq!(cut.is_ok(), len == stream.len() - 2, "{len} of {}", stream.len());
        }
        for bit in 0..stream.len() * 8 {
            let mut wrong = stream.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = Codestream::find(&wrong) {
                assert!(found.range.end <= wrong.len());
            }
        }
    }
}

#[test]
fn unsigned_in_every_component() {
    let mut stream = fixture!("i16x3-mct").to_vec();
    let mut found = Codestream::find(&stream).unwrap();
    found.make_unsigned(&mut stream);
    assert!(!Codestream::find(&stream).unwrap().signed);
}

/// Where the tile-parts of a stream of ours begin, and the end.
fn parts(stream: &[u8]) -> Vec<usize> {
    let header = SOT.to_be_bytes();
    let mut at = stream.windows(2).position(|two| two == header).unwrap();
    let mut parts = vec![at];
    while stream[at..].starts_with(&header) {
        at += u32_at(stream, at + 6).unwrap() as usize;
        parts.push(at);
    }
    parts
}

#[test]
fn every_tile_and_every_part_must_be_there() {
    let stream = fixture!("u8-tiles");
    let at: [usize; 5] = parts(stream).try_into().unwrap();
    let said = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut stream = stream.to_vec();
        change(&mut stream);
        Codestream::find(&stream).map(drop)
    };
    // Tiles in another order are the same tiles.
    let reversed = [&stream[..at[0]], &stream[at[2]..at[4]], &stream[at[0]..at[2]], b"\xFF\xD9"];
    assert!(Codestream::find(&reversed.concat()).is_ok());
    let no_tile = Err("a tile-part of no tile");
    let no_part = Err("a tile-part is missing");
    let not_all = Err("a tile, or a part of one, is missing");
    let cut = Err("the codestream is cut off");
    // The last tile is another one's second beginning, or of no tile, or a later part of its own.
    assert_eq!(said(&|s| s[at[3] + 5] = 2), no_part);
    assert_eq!(said(&|s| s[at[3] + 5] = 4), no_tile);
    assert_eq!(said(&|s| s[at[3] + 4] = 1), no_tile);
    assert_eq!(said(&|s| s[at[3] + 10] = 1), no_part);
    // It is the second part of the third, which says that it has two; or three; or does not say.
    let second = |of: u8| {
        move |s: &mut Vec<u8>| {
            s[at[3] + 5] = 2;
            (s[at[3] + 10], s[at[3] + 11]) = (1, of);
            let last = s[at[2]..at[3]].to_vec();
            s.splice(at[4]..at[4], last);
            s[at[4] + 5] = 3;
        }
    };
    assert_eq!(said(&second(2)), Ok(()));
    assert_eq!(said(&second(3)), not_all);
    assert_eq!(said(&second(0)), Ok(()));
    let without_end = |change: &dyn Fn(&mut Vec<u8>)| {
        said(&|s| {
            change(s);
            s.truncate(s.len() - 2);
        })
    };
    assert_eq!(without_end(&|_| {}), Ok(()));
    // Nobody says that the first tile has no further part, or where the last part ends.
    assert_eq!(without_end(&|s| s[at[0] + 11] = 0), cut);
    let open = |s: &mut Vec<u8>| s[at[3] + 6..at[3] + 10].fill(0);
    assert_eq!((said(&open), without_end(&open)), (Ok(()), cut));
}
