//! Markers of JPEG 2000: a codestream that is found lies in its tile, and is found again alone.

use gpugtiff::engine::jpeg2000::{Codestream, Kind};
use gpugtiff::engine::{Codec, Predictor, Sample, TileJob, TileSpec};

pub(crate) fn run(data: &[u8]) {
    let Ok(mut found) = Codestream::find(data) else { return };
    let range = found.range.clone();
    assert!(range.end <= data.len(), "{range:?} of {}", data.len());
    let mut stream = data[range.clone()].to_vec();
    assert!(stream.starts_with(&[0xFF, 0x4F]), "no codestream begins there");
    assert!(found.width > 0 && found.height > 0 && found.components > 0 && found.bits > 0);

    let alone = Codestream::find(&stream).expect("the same codestream");
    let elsewhere = Codestream { range: 0..stream.len(), ..found.clone() };
    assert_eq!(alone, elsewhere, "without what is around it");

    let bytes = found.bits.div_ceil(8);
    let spec = TileSpec {
        codec: Codec::Jpeg2000(Kind { signed: found.signed, ycbcr: false }),
        predictor: Predictor::None,
        sample: Sample::Whole { bytes, unit: bytes },
        samples: found.components,
        width: found.width,
        height: found.height,
        swap: false,
    };
    let job = TileJob {
        id: 0,
        offset: 0,
        len: data.len(),
        rows: found.height,
        columns: found.width,
        padded: true,
        part: None,
    };
    if let Ok(tile) = Codestream::of_tile(&spec, &job, data) {
        assert_eq!(tile, found);
    }
    found.make_unsigned(&mut stream);
    let unsigned = Codestream::find(&stream).expect("only depths were changed");
    assert_eq!(unsigned, Codestream { range: 0..stream.len(), ..found }, "declared unsigned");
}
