//! `undo`: stored rows become pixels in a window.

use ptx::{Module, Stats};

use crate::cases::{
    LAYOUTS, Layout, SAMPLES, WIDTHS, Window, Work, kinds, matrix_tests, shape, small,
};
use crate::device::{Arguments, Device, Mode, Random};
use crate::kernels;
use crate::reference::{self, Kind};

/// What a byte is that nobody wrote.
const UNTOUCHED: u8 = 0xC3;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) samples: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
    /// x, y, w, h.
    pub(crate) crop: [usize; 4],
    pub(crate) layout: Layout,
    pub(crate) work: Work,
}

/// Why a tile is good or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    Failed,
    Short,
    WrongSum,
    Longer,
}

/// Tells of a tile that is not as it should be.
type Outcome = Result<Stats, String>;

pub(crate) fn random_crop(random: &mut Random, width: usize, rows: usize) -> [usize; 4] {
    let (x, y) = (random.below(width), random.below(rows));
    [x, y, 1 + random.below(width - x), 1 + random.below(rows - y)]
}

/// What is in the window afterwards.
fn expected(case: &Case, window: &Window, raw: &[u8]) -> Vec<u8> {
    let Case { kind, samples, width, crop: [x, y, w, h], .. } = *case;
    let bytes = if kind.bit == 0 { kind.bytes } else { 1 };
    let row = kind.row(width, samples);
    let mut out = vec![UNTOUCHED; window.len];
    for line in 0..h {
        let pixels = reference::undo(kind, samples, width, &raw[(y + line) * row..][..row]);
        for i in 0..w * samples {
            let at = window.at(i / samples, line, i % samples);
            out[at..at + bytes].copy_from_slice(&pixels[(x * samples + i) * bytes..][..bytes]);
        }
    }
    out
}

/// `DecodeTile`, as kernels.cu declares it.
fn entry(raw: u64, out: u64, rows: usize, crop: [usize; 4], adler: u32) -> Vec<u8> {
    let small = [rows, crop[0], crop[1], crop[2], crop[3], adler as usize];
    let mut bytes: Vec<u8> = [raw, out].iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.extend(small.iter().flat_map(|n| (*n as u32).to_le_bytes()));
    bytes.resize(64, 0);
    bytes
}

/// Runs a case with one tile for each fate and compares the windows and reports.
pub(crate) fn run(
    module: &Module,
    mode: Mode,
    case: &Case,
    random: &mut Random,
    device: Device,
) -> Outcome {
    run_with(module, mode, case, random, device, &[Fate::Good, Fate::Failed])
}

fn run_with(
    module: &Module,
    mode: Mode,
    case: &Case,
    random: &mut Random,
    mut device: Device,
    fates: &[Fate],
) -> Outcome {
    let Case { kind, samples, width, rows, crop, layout, work } = *case;
    let sample = if kind.bit == 0 { kind.bytes } else { 1 };
    let window = Window::new(layout, [crop[2], crop[3]], samples, sample);
    let (mut tiles, mut wanted, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    let [mut status, mut sums] = [const { Vec::<u32>::new() }; 2];
    let mut actual = Vec::<u64>::new();
    let needed = rows * kind.row(width, samples);
    for fate in fates {
        let raw = random.bytes(needed.next_multiple_of(16));
        let out = device.put_at(window.phase, &vec![UNTOUCHED; window.len]);
        let sum = random.next() as u32;
        let expects = if *fate == Fate::WrongSum { sum ^ 1 } else { sum };
        tiles.extend(entry(device.put(&raw), out + window.first as u64, rows, crop, expects));
        status.push(if *fate == Fate::Failed { 3 } else { 0 });
        sums.push(sum);
        actual.push(match fate {
            Fate::Short => needed as u64 - 1,
            Fate::Longer => needed as u64 + 1,
            _ => needed as u64,
        });
        let (state, size) = (status.last().copied(), actual.last().copied());
        reports.extend([u64::from(sum) << 32 | u64::from(state.unwrap()), size.unwrap()]);
        let good = matches!(fate, Fate::Good | Fate::Longer);
        let want = if good { expected(case, &window, &raw) } else { vec![UNTOUCHED; window.len] };
        wanted.push((out, want));
    }
    let at_reports = device.put(&vec![UNTOUCHED; 16 * fates.len()]);
    let pointers = [
        device.put_at(8, &tiles),
        device.put_u32(&status),
        device.put_u64(&actual),
        device.put_u32(&sums),
        at_reports,
    ];
    let shape = shape(kind, [width, rows], samples, window.strides, work.shared, true);
    let arguments = Arguments::pointers(&pointers).and(shape);
    let stats = device.launch(module, "undo", work.size(fates.len()), arguments, mode)?;
    if device.get_u64(at_reports) != reports {
        return Err(format!("reports of {case:?}"));
    }
    for ((out, want), fate) in wanted.into_iter().zip(fates) {
        let got = device.get(out);
        if let Some(at) = (0..want.len()).find(|at| got[*at] != want[*at]) {
            let (got, want) = (got[at], want[at]);
            return Err(format!("{fate:?} byte {at}: {got:02x}, not {want:02x}; {case:?}"));
        }
    }
    Ok(stats)
}

/// Every number of samples and width in every layout; large rows in one of them.
fn matrix(seed: u64, choose: impl Fn(&Kind) -> bool) {
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for (number, kind) in kinds().filter(choose).enumerate() {
        for (samples, width) in SAMPLES.iter().flat_map(|s| WIDTHS.map(|w| (*s, w))) {
            let large = samples * width > 9000;
            // The largest rows are tried with a quarter of the kinds each.
            if samples * width > 100_000 && (number + samples) % 4 != 0 {
                continue;
            }
            let first = random.below(LAYOUTS.len());
            for layout in 0..if large { 1 } else { LAYOUTS.len() } {
                let rows = if large { 1 } else { 1 + random.below(4) };
                let whole = random.below(3) == 0;
                let crop = random_crop(&mut random, width, rows);
                let row = kind.row(width, samples);
                let case = Case {
                    kind,
                    samples,
                    width,
                    rows,
                    crop: if whole { [0, 0, width, rows] } else { crop },
                    layout: LAYOUTS[(first + layout) % LAYOUTS.len()],
                    work: match random.below(3) {
                        0 => Work::usual(row, rows),
                        _ => Work::odd(&mut random),
                    },
                };
                let fates: &[Fate] = if large { &[Fate::Good] } else { &[Fate::Good, Fate::Short] };
                let device = Device::new();
                run_with(kernels(), Mode::Converged, &case, &mut random, device, fates)
                    .unwrap_or_else(|message| panic!("{message}"));
            }
        }
    }
}

matrix_tests!(0x5eed_0040);

/// Small tiles of every kind and way through the kernel.
pub(crate) fn small_cases(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, kind) in kinds().enumerate() {
        for samples in [1, 3, 31, 33] {
            let (width, work) = small(number, &kind, samples);
            let (x, y) = (random.below(6), random.below(2));
            let cut = if samples == 31 { 0 } else { random.below(4) };
            cases.push(Case {
                kind,
                samples,
                width,
                rows: 3,
                crop: [x, y, width - x - cut, 3 - y],
                layout: LAYOUTS[(number + samples) % LAYOUTS.len()],
                work,
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

fn plain_case() -> Case {
    Case {
        kind: Kind { bytes: 2, unit: 2, predictor: 2, big: true, bit: 0 },
        samples: 3,
        width: 37,
        rows: 5,
        crop: [3, 1, 30, 4],
        layout: Layout::Padded,
        work: Work { shared: 1024, warps: 2, blocks: 2 },
    }
}

/// Tiles of every fate.
pub(crate) fn run_fates(module: &Module, mode: Mode, device: Device) -> Outcome {
    let fates = [Fate::Failed, Fate::Good, Fate::Short, Fate::WrongSum, Fate::Longer, Fate::Good];
    let mut random = Random::new(0x5eed_0045);
    run_with(module, mode, &plain_case(), &mut random, device, &fates)
}

#[test]
fn only_good_tiles_are_written_and_all_are_reported() {
    for mode in [Mode::Converged, Mode::Adversarial(7)] {
        run_fates(kernels(), mode, Device::new()).unwrap();
    }
}

/// Tables that may be absent: with none, every tile is good; without a check any sum will do.
pub(crate) fn run_absent(module: &Module, device: impl Fn() -> Device) -> Result<(), String> {
    let case = plain_case();
    let mut random = Random::new(0x5eed_0046);
    let window = Window::new(case.layout, [30, 4], 3, 2);
    let raw = random.bytes((5 * 37 * 6_usize).next_multiple_of(16));
    let want = expected(&case, &window, &raw);
    for (status, check) in [(None, true), (Some(0), false), (Some(1), false)] {
        let mut device = device();
        let out = device.put_at(window.phase, &vec![UNTOUCHED; window.len]);
        let tile = entry(device.put(&raw), out + window.first as u64, 5, case.crop, 77);
        let mut pointers = [device.put(&tile), 0, 0, 0, 0];
        if let Some(status) = status {
            pointers[1] = device.put_u32(&[status]);
            pointers[2] = device.put_u64(&[5 * 37 * 6]);
        }
        let shape = shape(case.kind, [37, 5], 3, window.strides, 1024, check);
        let arguments = Arguments::pointers(&pointers).and(shape);
        device.launch(module, "undo", case.work.size(1), arguments, Mode::Converged)?;
        let good = status != Some(1);
        let want = if good { want.clone() } else { vec![UNTOUCHED; window.len] };
        if device.get(out) != want {
            return Err(format!("status {status:?}, check {check}"));
        }
    }
    Ok(())
}

#[test]
fn absent_tables() {
    run_absent(kernels(), Device::new).unwrap();
}

/// As many tiles as a file of one-row strips has, each of them to its own place.
#[test]
fn seventy_thousand_strips() {
    const COUNT: usize = 70_000;
    let kind = Kind { bytes: 2, unit: 2, predictor: 2, big: false, bit: 0 };
    let raw = Random::new(0x5eed_0047).bytes(COUNT * 16);
    let mut device = Device::new();
    let (from, out) = (device.put(&raw), device.put(&vec![UNTOUCHED; COUNT * 6]));
    let tile = |i: usize| entry(from + 16 * i as u64, out + 6 * i as u64, 1, [0, 0, 3, 1], 0);
    let tiles = device.put(&(0..COUNT).flat_map(tile).collect::<Vec<_>>());
    let arguments = Arguments::pointers(&[tiles, 0, 0, 0, 0]);
    let arguments = arguments.and(shape(kind, [3, 1], 1, [0; 3], 1024, false));
    let work = Work { shared: 1024, warps: 1, blocks: 1 };
    device.launch(kernels(), "undo", work.size(COUNT), arguments, Mode::Converged).unwrap();
    let want = raw.chunks(16).flat_map(|row| reference::undo(kind, 1, 3, &row[..6]));
    assert!(want.eq(device.get(out)));
}
