//! `apply`: pixels become the rows that are packed.

use ptx::{Module, Stats};

use crate::cases::{
    LAYOUTS, Layout, SAMPLES, WIDTHS, Window, Work, kinds, matrix_tests, shape, small,
};
use crate::device::{Arguments, Device, Mode, Random};
use crate::kernels;
use crate::reference::{self, Kind};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) samples: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
    /// Pixels that are there.
    pub(crate) there: [usize; 2],
    pub(crate) layout: Layout,
    pub(crate) work: Work,
    /// Where the rows go, modulo 256.
    pub(crate) phase: usize,
}

/// Pixels of a tile with its fill.
fn filled(case: &Case, window: &Window, source: &[u8], fill: &[u8], y: usize) -> Vec<u8> {
    let Case { samples, width, there: [w, h], .. } = *case;
    let mut row = Vec::with_capacity(width * samples * fill.len());
    for i in 0..width * samples {
        let (x, s) = (i / samples, i % samples);
        match x < w && y < h {
            true => row.extend_from_slice(&source[window.at(x, y, s)..][..fill.len()]),
            false => row.extend_from_slice(fill),
        }
    }
    row
}

/// Runs a case with a tile or two and compares every byte around them.
pub(crate) fn run(
    module: &Module,
    mode: Mode,
    case: &Case,
    random: &mut Random,
    mut device: Device,
) -> Result<Stats, String> {
    const AROUND: usize = 5;
    let Case { kind, samples, width, rows, there, layout, work, phase } = *case;
    let bytes = if kind.bit == 0 { kind.bytes } else { 1 };
    let window = Window::new(layout, there, samples, bytes);
    let stored = kind.row(width, samples) * rows;
    let (mut tiles, mut wanted) = (Vec::new(), Vec::new());
    // The largest rows are enough once.
    let count = if width * samples > 9000 { 1 } else { 2 };
    for _ in 0..count {
        let mut source = random.bytes(window.len);
        if kind.bit != 0 {
            source.iter_mut().filter(|byte| **byte < 128).for_each(|byte| *byte = 0);
        }
        let mut fill = random.bytes(16);
        fill[0] *= u8::from(random.below(2) == 0);
        let mut want = random.bytes(stored + 2 * AROUND);
        let to = device.put_at(phase, &want);
        let from = device.put_at(window.phase, &source) + window.first as u64;
        tiles.extend([from, to + AROUND as u64].iter().flat_map(|n| n.to_le_bytes()));
        let small = [rows, there[0], there[1], 0];
        tiles.extend(small.iter().flat_map(|n| (*n as u32).to_le_bytes()));
        tiles.extend(&fill);
        tiles.extend([0; 16]);
        let pixels = |y| filled(case, &window, &source, &fill[..bytes], y);
        let made = (0..rows).flat_map(|y| reference::apply(kind, samples, &pixels(y)));
        want.splice(AROUND..AROUND + stored, made);
        wanted.push((to, want));
    }
    let shape = shape(kind, [width, rows], samples, window.strides, work.shared, false);
    let arguments = Arguments::pointers(&[device.put_at(8, &tiles)]).and(shape);
    let stats = device.launch(module, "apply", work.size(count), arguments, mode)?;
    for (to, want) in wanted {
        let got = device.get(to);
        if let Some(at) = (0..want.len()).find(|at| got[*at] != want[*at]) {
            let (got, want) = (got[at], want[at]);
            return Err(format!("byte {at} - {AROUND}: {got:02x}, not {want:02x}; {case:?}"));
        }
    }
    Ok(stats)
}

fn matrix(seed: u64, choose: impl Fn(&Kind) -> bool) {
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for (number, kind) in kinds().filter(choose).enumerate() {
        for (samples, width) in SAMPLES.iter().flat_map(|s| WIDTHS.map(|w| (*s, w))) {
            let large = samples * width > 9000;
            if samples * width > 100_000 && (number + samples) % 4 != 0 {
                continue;
            }
            let first = random.below(LAYOUTS.len());
            for layout in 0..if large { 1 } else { LAYOUTS.len() } {
                let rows = if large { 1 } else { 1 + random.below(4) };
                let edge = [random.below(width + 1), random.below(rows + 1)];
                let case = Case {
                    kind,
                    samples,
                    width,
                    rows,
                    there: if large || random.below(3) == 0 { [width, rows] } else { edge },
                    layout: LAYOUTS[(first + layout) % LAYOUTS.len()],
                    work: match random.below(3) {
                        0 => Work::usual(kind.row(width, samples).max(width * samples), rows),
                        _ => Work::odd(&mut random),
                    },
                    phase: *random.pick(&[0, 11, 3, 16 * kind.bytes - 5]),
                };
                run(kernels(), Mode::Converged, &case, &mut random, Device::new())
                    .unwrap_or_else(|message| panic!("{message}"));
            }
        }
    }
}

matrix_tests!(0x5eed_0050);

/// Small tiles of every kind and way through the kernel.
pub(crate) fn small_cases(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, kind) in kinds().enumerate() {
        for samples in [1, 3, 31, 33] {
            let (width, work) = small(number, &kind, samples);
            cases.push(Case {
                kind,
                samples,
                width,
                rows: 3,
                there: [width - random.below(6), 3 - random.below(2)],
                layout: LAYOUTS[(number + samples) % LAYOUTS.len()],
                work,
                phase: [11, 0][number % 2],
            });
        }
    }
    cases
}

#[test]
fn any_order_of_threads() {
    for seed in 1..=4 {
        let mut random = Random::new(seed);
        // Half of the cases with each seed, all of them twice.
        for case in small_cases(&mut random).iter().skip(seed as usize % 2).step_by(2) {
            run(kernels(), Mode::Adversarial(seed), case, &mut random, Device::new())
                .unwrap_or_else(|message| panic!("seed {seed}: {message}"));
        }
    }
}
