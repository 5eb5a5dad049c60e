//! What nvJPEG2000 leaves becomes pixels: held against JFIF's formula in 16 binary digits, pixel by pixel.

use ptx::{Module, Stats};

use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::kernels;

/// How a tile becomes pixels; the numbers are those of finish.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Plain,
    Lifted,
    Ycbcr,
    Planes(usize, usize),
}

/// A tile of so many columns and rows, of which some are there.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    how: How,
    columns: usize,
    rows: usize,
    good: bool,
}

/// Tiles of one shape.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    width: usize,
    height: usize,
    samples: usize,
    bytes: usize,
    tiles: Vec<Tile>,
}

fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let digits = |factor: f64| (factor * 65536.0).round() as i64;
    let [y, cb, cr] = [i64::from(y), i64::from(cb) - 128, i64::from(cr) - 128];
    let green = digits(0.34414) * cb + digits(0.71414) * cr;
    let all = [digits(1.402) * cr, -green, digits(1.772) * cb];
    all.map(|v| ((65536 * y + v + 32768).div_euclid(65536)).clamp(0, 255) as u8)
}

impl Case {
    fn pixel(&self) -> usize {
        self.samples * self.bytes
    }

    /// The tile's rows, from its own bytes and its planes.
    fn expected(&self, tile: &Tile, raw: &[u8], planes: &[u8]) -> Vec<u8> {
        let mut out = raw.to_vec();
        if !tile.good {
            return out;
        }
        let (width, height) = (self.width, self.height);
        for (i, pixel) in out.chunks_exact_mut(self.pixel()).enumerate().take(tile.rows * width) {
            let (x, y) = (i % width, i / width);
            match tile.how {
                _ if x >= tile.columns => pixel.fill(0),
                How::Plain => {}
                How::Lifted => pixel.iter_mut().for_each(|byte| *byte ^= 0x80),
                How::Ycbcr => {
                    let of = [pixel[0], pixel[1], pixel[2]];
                    pixel.copy_from_slice(&rgb(of));
                }
                How::Planes(dx, dy) => {
                    let (small, rows) = (width.div_ceil(dx), height.div_ceil(dy));
                    let (first, at) = (width * height, y / dy * small + x / dx);
                    let of = [planes[i], planes[first + at], planes[first + small * rows + at]];
                    pixel.copy_from_slice(&rgb(of));
                }
            }
        }
        out
    }
}

/// Finishes a batch and looks at every byte.
pub(crate) fn run(
    module: &Module,
    mode: Mode,
    case: &Case,
    blocks: u32,
    random: &mut Random,
    mut device: Device,
) -> Result<Stats, String> {
    let bytes = case.width * case.height * case.pixel();
    let (mut table, mut memory) = (Vec::new(), Vec::new());
    for tile in &case.tiles {
        let raw = random.bytes(bytes);
        let planes = random.bytes(3 * case.width * case.height);
        let (at, planes_at) = (device.put(&raw), device.put(&planes));
        let how = match tile.how {
            How::Plain => 0,
            How::Lifted => 1,
            How::Ycbcr => 2,
            How::Planes(x, y) => 4 | x << 8 | y << 16,
        } as u64;
        let numbers = [tile.rows as u32, 0, 0, 0, 0, 0];
        table.extend(at.to_le_bytes().into_iter().chain([0xEE; 8]));
        table.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        let words = [how << 32 | tile.columns as u64, planes_at, 0];
        table.extend(words.into_iter().flat_map(u64::to_le_bytes));
        memory.push((at, raw, planes));
    }
    let table = device.put(&table);
    // Of either sign.
    let bad = [7, -77i32 as u32];
    let status = |(i, tile): (usize, &Tile)| if tile.good { 0 } else { bad[i % 2] };
    let statuses: Vec<u32> = case.tiles.iter().enumerate().map(status).collect();
    let statuses = device.put_u32(&statuses);
    let shape = [case.width, case.height, case.samples, case.bytes];
    let shape: Vec<u8> = shape.into_iter().flat_map(|n| (n as u32).to_le_bytes()).collect();
    let size = Size { grid: (case.tiles.len() as u32, blocks), block: (256, 1), shared: 0 };
    let arguments = Arguments::pointers(&[table, statuses]).and(shape);
    let stats = device.launch(module, "finish", size, arguments, mode)?;
    for (i, (tile, (at, raw, planes))) in case.tiles.iter().zip(&memory).enumerate() {
        let (got, want) = (device.get(*at), case.expected(tile, raw, planes));
        if let Some(byte) = (0..bytes).find(|&byte| got[byte] != want[byte]) {
            let (got, want) = (got[byte], want[byte]);
            return Err(format!("{case:?} tile {i} byte {byte}: {got}, not {want}"));
        }
    }
    Ok(stats)
}

/// All ways, with and without columns that are missing.
pub(crate) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for (samples, bytes) in [(1, 1), (3, 1), (4, 1), (1, 2), (3, 2)] {
        for (width, height) in [(1, 1), (16, 5), (33, 17)] {
            let mut ways = vec![How::Plain];
            if bytes == 1 {
                ways.push(How::Lifted);
            }
            if (samples, bytes) == (3, 1) {
                ways.extend([How::Ycbcr, How::Planes(2, 1), How::Planes(2, 2), How::Planes(1, 2)]);
            }
            let tile = |how| Tile {
                how,
                columns: 1 + random.below(width),
                rows: 1 + random.below(height),
                good: random.below(6) > 0,
            };
            let mut tiles: Vec<Tile> = ways.iter().copied().map(tile).collect();
            let whole = |&how| Tile { how, columns: width, rows: height, good: true };
            tiles.extend(ways.iter().map(whole));
            cases.push(Case { width, height, samples, bytes, tiles });
        }
    }
    cases
}

#[test]
fn every_way_to_become_pixels() {
    let mut random = Random::new(0xF1);
    for round in 0..6 {
        let mode = if round < 3 { Mode::Converged } else { Mode::Adversarial(round) };
        for case in cases(&mut random) {
            let blocks = 1 + (round as u32) % 3;
            run(kernels(), mode, &case, blocks, &mut random, Device::new()).unwrap();
        }
    }
}
