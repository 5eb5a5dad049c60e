//! Predictors and byte order, both ways, against the naive ones.

use gpugtiff::engine::cpu::predictor::forward::{apply_floating_point, apply_horizontal};
use gpugtiff::engine::cpu::predictor::{undo_floating_point, undo_horizontal};
use gpugtiff::engine::{Codec, Predictor, Sample, TileSpec};

use crate::input::Input;
use crate::{naive, tiles};

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let floating = input.flag();
    let bytes: u8 = if floating { input.pick(&[2, 4, 8]) } else { input.pick(&[1, 2, 4, 8]) };
    let predictor = if floating { Predictor::FloatingPoint } else { Predictor::Horizontal };
    let spec = TileSpec {
        codec: Codec::None,
        predictor,
        sample: Sample::Whole { bytes, unit: bytes },
        samples: 1 + input.below(9),
        width: 1 + input.below(70),
        height: 1,
        swap: input.flag(),
    };
    let row_bytes = spec.row_bytes();
    let stored = input.rest();
    // Rows that are there in part stay as they are.
    let whole = stored.len() / row_bytes * row_bytes;

    let mut expected = stored.to_vec();
    expected[..whole].chunks_exact_mut(row_bytes).for_each(|row| naive::undo(&spec, row));
    let mut pixels = stored[..whole].to_vec();
    undo(&spec, &mut pixels);
    assert!(pixels == expected[..whole], "undone: {spec:?}");

    let mut again = pixels.clone();
    let (samples, size) = (spec.samples, usize::from(bytes));
    match floating {
        true => apply_floating_point(&mut again, row_bytes, samples, size, &mut vec![0; row_bytes]),
        false => apply_horizontal(&mut again, row_bytes, samples, size, spec.swap),
    }
    assert!(again == stored[..whole], "applied: {spec:?}");
    assert!(tiles::store(&spec, &pixels) == stored[..whole], "the naive ones: {spec:?}");
}

fn undo(spec: &TileSpec, rows: &mut [u8]) {
    let (row_bytes, samples, size) = (spec.row_bytes(), spec.samples, spec.sample.bytes());
    match spec.predictor {
        Predictor::FloatingPoint => {
            undo_floating_point(rows, row_bytes, samples, size, &mut Vec::new());
        }
        _ => undo_horizontal(rows, row_bytes, samples, size, spec.swap),
    }
}
