//! `place`: chosen bands of tiles where a caller wants them, or compared with what is there.

use ptx::{Module, Stats};

use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::kernels;

/// What a byte is that nobody wrote.
const UNTOUCHED: u8 = 0xC3;

const BYTES: [usize; 5] = [1, 2, 4, 8, 16];

/// Indices of strides.
const PIXEL: usize = 0;
const LINE: usize = 1;
const BAND: usize = 2;

/// What phases and gaps are multiples of.
#[derive(Debug, Clone, Copy)]
enum Grain {
    Sample,
    HalfSample,
    Byte,
}

/// How samples lie at a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrangement {
    /// Strides, the smallest first.
    order: [usize; 3],
    /// What is left free behind a sample and behind what the next two strides step over.
    gaps: [usize; 3],
    /// The strides that are negative.
    backward: [bool; 3],
    /// Where the target is, modulo 256.
    phase: usize,
    grain: Grain,
}

/// Compact.
pub(crate) const INTERLEAVED: Arrangement = Arrangement {
    order: [BAND, PIXEL, LINE],
    gaps: [0; 3],
    backward: [false; 3],
    phase: 0,
    grain: Grain::Sample,
};

/// Compact.
pub(crate) const PLANAR: Arrangement = Arrangement { order: [PIXEL, LINE, BAND], ..INTERLEAVED };

const ARRANGEMENTS: [Arrangement; 12] = [
    INTERLEAVED,
    PLANAR,
    // A band's line after the other's.
    Arrangement { order: [PIXEL, BAND, LINE], gaps: [0, 0, 1], ..INTERLEAVED },
    // Parts of larger ones.
    Arrangement { gaps: [1, 2, 3], phase: 1, ..INTERLEAVED },
    Arrangement { gaps: [0, 1, 2], phase: 3, ..PLANAR },
    Arrangement { gaps: [1, 0, 1], phase: 1, grain: Grain::HalfSample, ..INTERLEAVED },
    // At odd addresses, the last two with odd strides.
    Arrangement { phase: 7, grain: Grain::Byte, ..INTERLEAVED },
    Arrangement { gaps: [0, 1, 2], phase: 5, grain: Grain::Byte, ..PLANAR },
    Arrangement { gaps: [1, 1, 1], phase: 2, grain: Grain::Byte, ..INTERLEAVED },
    // Mirrored, upside down, and all the way round.
    Arrangement { backward: [true, false, false], gaps: [1, 1, 0], ..PLANAR },
    Arrangement { backward: [false, true, true], gaps: [1, 2, 3], grain: Grain::Byte, ..PLANAR },
    // Turned by a quarter as well.
    Arrangement { order: [BAND, LINE, PIXEL], backward: [true; 3], gaps: [0, 0, 1], ..PLANAR },
];

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) bytes: usize,
    pub(crate) samples: usize,
    /// The samples that are wanted.
    pub(crate) which: Vec<u32>,
    /// Widths and heights.
    pub(crate) tiles: Vec<[usize; 2]>,
    pub(crate) arrangement: Arrangement,
    /// That each tile has.
    pub(crate) blocks: u32,
}

/// A byte of a target that is not as the tile has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Difference {
    tile: usize,
    pixel: [usize; 2],
    band: usize,
    byte: usize,
}

impl Case {
    /// From a pixel, line and band to the next one; the same for all tiles.
    fn strides(&self) -> [i64; 3] {
        let Arrangement { order, gaps, backward, .. } = self.arrangement;
        let most = |axis: usize| self.tiles.iter().map(|tile| tile[axis]).max().unwrap_or(0);
        let counts = [most(0), most(1), self.which.len()];
        let (mut strides, mut next) = ([0; 3], self.bytes);
        for (axis, gap) in order.into_iter().zip(gaps) {
            next += gap * self.grain();
            strides[axis] = if backward[axis] { -(next as i64) } else { next as i64 };
            next *= counts[axis];
        }
        strides
    }

    fn grain(&self) -> usize {
        match self.arrangement.grain {
            Grain::Sample => self.bytes,
            Grain::HalfSample => self.bytes.div_ceil(2),
            Grain::Byte => 1,
        }
    }

    /// The bytes from the first to the last sample of a tile's target, and where pixel (0, 0) of
    /// the first band is among them.
    fn extent(&self, [w, h]: [usize; 2]) -> (usize, usize) {
        let counts = [w, h, self.which.len()];
        if counts.contains(&0) {
            return (0, 0);
        }
        let reach = |sign: i64| {
            let steps = self.strides().into_iter().zip(counts);
            steps.map(|(stride, n)| (sign * stride).max(0) * (n as i64 - 1)).sum::<i64>() as usize
        };
        (reach(-1) + reach(1) + self.bytes, reach(-1))
    }

    /// Where a sample is in a tile's target.
    fn at(&self, tile: usize, [x, y]: [usize; 2], band: usize) -> usize {
        let [pixel, line, next] = self.strides();
        let away = x as i64 * pixel + y as i64 * line + band as i64 * next;
        (self.extent(self.tiles[tile]).1 as i64 + away) as usize
    }

    /// Puts a tile where it belongs.
    fn place(&self, tile: usize, from: &[u8], to: &mut [u8]) {
        let [w, h] = self.tiles[tile];
        for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
            for (band, sample) in self.which.iter().enumerate() {
                let number = (y * w + x) * self.samples + *sample as usize;
                let at = self.at(tile, [x, y], band);
                to[at..][..self.bytes].copy_from_slice(&from[number * self.bytes..][..self.bytes]);
            }
        }
    }

    /// Any byte of a target but those in between.
    pub(crate) fn difference(&self, random: &mut Random) -> Difference {
        let filled: Vec<usize> =
            (0..self.tiles.len()).filter(|i| !self.tiles[*i].contains(&0)).collect();
        let tile = *random.pick(&filled);
        Difference {
            tile,
            pixel: self.tiles[tile].map(|size| random.below(size)),
            band: random.below(self.which.len()),
            byte: random.below(self.bytes),
        }
    }
}

/// `PlaceShape`, as kernels.cu declares it.
pub(crate) fn shape(
    [samples, bytes, bands]: [usize; 3],
    compare: bool,
    strides: [i64; 3],
) -> Vec<u8> {
    let small = [samples, bytes, bands, compare.into()];
    let small = small.iter().flat_map(|n| (*n as u32).to_le_bytes());
    small.chain(strides.iter().flat_map(|n| n.to_le_bytes())).collect()
}

/// `PlaceTile`, as kernels.cu declares it.
pub(crate) fn entry(from: u64, to: u64, [w, h]: [usize; 2]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [from, to].iter().flat_map(|n| n.to_le_bytes()).collect();
    bytes.extend([w as u32, h as u32].iter().flat_map(|n| n.to_le_bytes()));
    bytes.resize(32, 0xEE);
    bytes
}

/// Tiles and targets of a case on the device.
struct Laid {
    from: Vec<(u64, Vec<u8>)>,
    to: Vec<(u64, Vec<u8>)>,
    table: u64,
}

impl Laid {
    fn new(
        device: &mut Device,
        case: &Case,
        random: &mut Random,
        fill: impl Fn(usize, &[u8], &mut [u8]),
    ) -> Laid {
        let mut laid = Laid { from: Vec::new(), to: Vec::new(), table: 0 };
        let mut table = Vec::new();
        for (i, size) in case.tiles.iter().enumerate() {
            let pixels = random.bytes(size[0] * size[1] * case.samples * case.bytes);
            // As tiles that follow others, no better aligned than their samples.
            let from = device.put_at(3 * i * case.bytes, &pixels);
            let (len, first) = case.extent(*size);
            let mut there = vec![UNTOUCHED; len];
            fill(i, &pixels, &mut there);
            let to = device.put_at(case.arrangement.phase * case.grain(), &there);
            table.extend(entry(from, to + first as u64, *size));
            laid.from.push((from, pixels));
            laid.to.push((to, there));
        }
        laid.table = device.put(&table);
        laid
    }
}

fn launch(
    module: &Module,
    mode: Mode,
    case: &Case,
    device: &mut Device,
    pointers: (u64, Option<u64>),
) -> Result<Stats, String> {
    let (table, differs) = pointers;
    // Where nothing is compared, nothing is told of.
    let pointers = [table, device.put_u32(&case.which), differs.unwrap_or(0)];
    let sizes = [case.samples, case.bytes, case.which.len()];
    let shape = shape(sizes, differs.is_some(), case.strides());
    let arguments = Arguments::pointers(&pointers).and(shape);
    let grid = (case.tiles.len() as u32, case.blocks);
    device.launch(module, "place", Size { grid, block: (256, 1), shared: 0 }, arguments, mode)
}

/// Says where a tile or a target is not what it should be.
fn check(device: &Device, case: &Case, what: &str, all: &[(u64, Vec<u8>)]) -> Result<(), String> {
    for (i, (at, want)) in all.iter().enumerate() {
        let got = device.get(*at);
        if let Some(k) = (0..want.len()).find(|k| got[*k] != want[*k]) {
            let (got, want, len) = (got[k], want[k], want.len());
            return Err(format!(
                "{what} {i}, byte {k} of {len}: {got:02x}, not {want:02x}; {case:?}"
            ));
        }
    }
    Ok(())
}

/// Puts the bands of tiles at their targets.
pub(crate) fn run(
    module: &Module,
    mode: Mode,
    case: &Case,
    random: &mut Random,
    mut device: Device,
) -> Result<Stats, String> {
    let mut laid = Laid::new(&mut device, case, random, |_, _, _| ());
    let stats = launch(module, mode, case, &mut device, (laid.table, None))
        .map_err(|fault| format!("{fault}; {case:?}"))?;
    for (i, (from, to)) in laid.from.iter().zip(&mut laid.to).enumerate() {
        case.place(i, &from.1, &mut to.1);
    }
    check(&device, case, "tile", &laid.from)?;
    check(&device, case, "target", &laid.to)?;
    Ok(stats)
}

/// Compares the bands of tiles with targets that are the same but for `differences`.
pub(crate) fn run_compare(
    module: &Module,
    mode: Mode,
    case: &Case,
    differences: &[Difference],
    random: &mut Random,
    mut device: Device,
) -> Result<Stats, String> {
    let bit = 1 << random.below(8);
    let laid = Laid::new(&mut device, case, random, |tile, from, to| {
        case.place(tile, from, to);
        for it in differences.iter().filter(|it| it.tile == tile) {
            to[case.at(tile, it.pixel, it.band) + it.byte] ^= bit;
        }
    });
    let blocks = case.blocks as usize;
    let mut want = vec![0; case.tiles.len() * blocks];
    for it in differences {
        want[it.tile * blocks + it.pixel[1] % blocks] = 1;
    }
    let differs = device.put(&vec![UNTOUCHED; 4 * want.len()]);
    let stats = launch(module, mode, case, &mut device, (laid.table, Some(differs)))
        .map_err(|fault| format!("{fault}; {case:?}"))?;
    check(&device, case, "tile", &laid.from)?;
    check(&device, case, "target", &laid.to)?;
    let got = device.get_u32(differs);
    if got != want {
        return Err(format!("{got:?}, not {want:?}; {differences:?}; {case:?}"));
    }
    Ok(stats)
}

/// All bands, the other way round, some of them, one of them, and some more than once.
fn choices(samples: usize) -> Vec<Vec<u32>> {
    let end = samples as u32;
    let mut choices = vec![
        (0..end).collect(),
        (0..end).rev().collect(),
        (0..end).filter(|sample| sample % 2 == (end - 1) % 2).collect(),
        vec![end - 1],
        vec![end - 1, 0, end / 2, end - 1],
    ];
    // Of few bands there are fewer choices.
    choices.dedup();
    choices
}

/// Sizes of the tiles of a case.
fn random_tiles(random: &mut Random, bands: usize) -> Vec<[usize; 2]> {
    // More pixels than a block has threads, even for all bands together.
    let wide = 256 * bands + 1 + random.below(70);
    let sizes = [
        vec![[37, 3], [1, 1], [64, 5]],
        vec![[wide, 1], [3, 2]],
        vec![[33, 2], [0, 0], [5, 0], [0, 5], [100, 4]],
        vec![[1, 9], [31, 7]],
        vec![[256, 2]],
    ];
    random.pick(&sizes).clone()
}

fn random_case(
    random: &mut Random,
    (bytes, samples): (usize, usize),
    which: &[u32],
    arrangement: Arrangement,
) -> Case {
    let tiles = random_tiles(random, which.len());
    // One, some that share a tile's rows evenly or not, and more than most tiles have rows.
    let blocks = *random.pick(&[1, 2, 3, 8]);
    Case { bytes, samples, which: which.to_vec(), tiles, arrangement, blocks }
}

/// Every size of samples in every arrangement.
pub(crate) fn small_cases(random: &mut Random) -> Vec<Case> {
    let kinds = BYTES.into_iter().flat_map(|b| ARRANGEMENTS.map(|arrangement| (b, arrangement)));
    let case = |(number, (bytes, arrangement))| {
        let samples = 1 + (number + 2) % 5;
        let which = random.pick(&choices(samples)).clone();
        random_case(random, (bytes, samples), &which, arrangement)
    };
    kinds.enumerate().map(case).collect()
}

/// Placing a case, and comparing it with what is the same and what is not.
pub(crate) fn run_all(
    module: &Module,
    mode: Mode,
    case: &Case,
    random: &mut Random,
    device: impl Fn() -> Device,
) -> Result<(), String> {
    let difference = case.difference(random);
    run(module, mode, case, random, device())?;
    run_compare(module, mode, case, &[], random, device())?;
    run_compare(module, mode, case, &[difference], random, device())?;
    Ok(())
}

#[test]
fn any_bands_in_any_arrangement() {
    let mut random = Random::new(0x5eed_0051);
    let kinds = BYTES.into_iter().flat_map(|bytes| (1..=5).map(move |samples| (bytes, samples)));
    for (kind, arrangement) in kinds.flat_map(|kind| ARRANGEMENTS.map(|a| (kind, a))) {
        for which in choices(kind.1) {
            let case = random_case(&mut random, kind, &which, arrangement);
            run_all(kernels(), Mode::Converged, &case, &mut random, Device::new).unwrap();
        }
    }
}

#[test]
fn any_order_of_threads() {
    let mut random = Random::new(0x5eed_0052);
    for case in small_cases(&mut random) {
        for mode in [1, 2].map(Mode::Adversarial) {
            run_all(kernels(), mode, &case, &mut random, Device::new).unwrap();
        }
    }
}

/// Differences in every byte of a sample, at both ends of all tiles, in some tiles at once, and two
/// that a thread finds one after the other.
pub(crate) fn run_differences(
    module: &Module,
    case: &Case,
    random: &mut Random,
    device: impl Fn() -> Device,
) -> Result<(), String> {
    let (band, byte) = (case.which.len() - 1, case.bytes - 1);
    let mut all: Vec<Vec<Difference>> =
        (0..case.bytes).map(|byte| vec![Difference { byte, ..case.difference(random) }]).collect();
    for (tile, [w, h]) in case.tiles.iter().copied().enumerate() {
        all.push(vec![Difference { tile, pixel: [0, 0], band: 0, byte: 0 }]);
        all.push(vec![Difference { tile, pixel: [w - 1, h - 1], band, byte }]);
    }
    all.push(all[case.bytes..].iter().step_by(2).flatten().copied().collect());
    all.push(
        [0, case.blocks as usize].map(|y| Difference { tile: 0, pixel: [9, y], band, byte }).into(),
    );
    for differences in all {
        run_compare(module, Mode::Converged, case, &differences, random, device())?;
    }
    Ok(())
}

/// What `run_differences` is for: no tile is empty, and the first has more rows than blocks.
pub(crate) fn cases_with_differences() -> impl Iterator<Item = Case> {
    let kinds = BYTES.into_iter().flat_map(|b| ARRANGEMENTS.map(|arrangement| (b, arrangement)));
    kinds.map(|(bytes, arrangement)| {
        let (which, tiles) = (vec![2, 0], vec![[137, 3], [1, 1], [40, 4]]);
        Case { bytes, samples: 3, which, tiles, arrangement, blocks: 2 }
    })
}

#[test]
fn any_byte_that_differs_is_noticed() {
    let mut random = Random::new(0x5eed_0053);
    for case in cases_with_differences() {
        run_differences(kernels(), &case, &mut random, Device::new).unwrap();
    }
}

/// Places and compares all of an aligned tile compactly, and counts the sectors of its target.
pub(crate) fn run_compact(
    module: &Module,
    [bytes, samples, width]: [usize; 3],
    arrangement: Arrangement,
    blocks: u32,
    device: impl Fn() -> Device,
) -> Result<Stats, String> {
    let which = (0..samples as u32).collect();
    let case = Case { bytes, samples, which, tiles: vec![[width, width]], arrangement, blocks };
    let mut random = Random::new(0x5eed_0054);
    let (mode, random) = (Mode::Converged, &mut random);
    let placed = run(module, mode, &case, random, device())?;
    let compared = run_compare(module, mode, &case, &[], random, device())?;
    let ideal = (width * width * samples * bytes / 32) as u64;
    // Halves of samples come one after the other, each from all sectors and perhaps one more; when
    // they are compared they always do.
    let in_halves = |halves: bool| if halves { 3 * ideal } else { ideal };
    let halfway = arrangement.phase > 0;
    // Tiles and tables are read in the same way.
    let there = compared.sectors_loaded - placed.sectors_loaded;
    if placed.sectors_stored > in_halves(halfway) || there > in_halves(bytes == 16) {
        let stored = placed.sectors_stored;
        return Err(format!("{stored} and {there} sectors, not {ideal}; {case:?}"));
    }
    Ok(placed)
}

/// Every size of samples as pixels and as planes, and what is aligned to half of the largest.
pub(crate) fn compact_cases() -> impl Iterator<Item = ([usize; 2], Arrangement)> {
    let sizes = BYTES.into_iter().flat_map(|bytes| [1, 2, 3, 5].map(|samples| [bytes, samples]));
    let aligned = sizes.flat_map(|sizes| [INTERLEAVED, PLANAR].map(|to| (sizes, to)));
    let halfway = Arrangement { phase: 1, grain: Grain::HalfSample, ..INTERLEAVED };
    aligned.chain([([16, 1], halfway), ([16, 3], halfway)])
}

#[test]
fn neighbours_are_written_by_neighbours() {
    for ([bytes, samples], arrangement) in compact_cases() {
        run_compact(kernels(), [bytes, samples, 64], arrangement, 4, Device::new).unwrap();
    }
}
