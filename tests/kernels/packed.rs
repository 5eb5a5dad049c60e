//! `adler32`, `measure` and `gather`: checksums, and packed tiles brought together.

use ptx::{Module, Stats};

use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::kernels;
use crate::reference;

const UNTOUCHED: u8 = 0xC3;

/// Checksums of chunks; each may claim to be longer than its limit.
pub(crate) fn run_adler(
    module: &Module,
    mode: Mode,
    chunks: &[(Vec<u8>, u64)],
    mut device: Device,
) -> Result<Stats, String> {
    let data: Vec<u64> = chunks.iter().map(|(bytes, _)| device.put(bytes)).collect();
    let sizes: Vec<u64> = chunks.iter().map(|(bytes, more)| bytes.len() as u64 + more).collect();
    // Where a size is the smaller one, the limit is beyond it.
    let limits: Vec<u64> = chunks
        .iter()
        .map(|(bytes, more)| bytes.len() as u64 + if *more == 0 { 1 << 40 } else { 0 })
        .collect();
    let out = device.put(&vec![UNTOUCHED; 4 * chunks.len()]);
    let pointers = [device.put_u64(&data), device.put_u64(&sizes), device.put_u64(&limits), out];
    let size = Size { grid: (chunks.len() as u32, 1), block: (256, 1), shared: 0 };
    let stats = device.launch(module, "adler32", size, Arguments::pointers(&pointers), mode)?;
    for (got, (bytes, more)) in device.get_u32(out).iter().zip(chunks) {
        let want = reference::adler32(bytes);
        if *got != want {
            return Err(format!("{got:08x}, not {want:08x}: {} (+ {more}) bytes", bytes.len()));
        }
    }
    Ok(stats)
}

pub(crate) fn adler_chunks(random: &mut Random) -> Vec<(Vec<u8>, u64)> {
    let small = [0, 1, 15, 16, 17, 4079, 4096, 4097, 5551, 5552, 5553, 8192 + 33];
    // The weights begin anew in the middle, at another turn of the loop in each.
    let large = [20_000, 140_000, 144_100, 148_200, 152_300];
    let sizes = small.into_iter().chain(large);
    let mut chunks: Vec<_> = sizes.map(|size| (random.bytes(size), random.next() % 3)).collect();
    let all_set = [1, 5551, 5552, 5553, 65520, 65521, 65522, 65536, 140_000];
    chunks.extend(all_set.map(|size| (vec![0xFF; size], 0)));
    chunks
}

#[test]
fn checksums() {
    let mut random = Random::new(0x5eed_0061);
    let chunks = adler_chunks(&mut random);
    for mode in [Mode::Converged, Mode::Adversarial(1), Mode::Adversarial(2)] {
        run_adler(kernels(), mode, &chunks, Device::new()).unwrap();
    }
    let chunks: Vec<_> = (0..60).map(|_| random.below(200_000)).collect();
    let chunks: Vec<_> = chunks.into_iter().map(|size| (random.bytes(size), 1)).collect();
    run_adler(kernels(), Mode::Converged, &chunks, Device::new()).unwrap();
}

#[test]
fn checksum_of_a_large_tile() {
    let sizes = [16 << 20, (16 << 20) + 7];
    let chunks = sizes.map(|size| (vec![0xFF; size], 0));
    run_adler(kernels(), Mode::Converged, &chunks, Device::new()).unwrap();
}

/// A batch of packed tiles: what the compressor said of each.
pub(crate) struct Sizes {
    pub(crate) sizes: Vec<u64>,
    pub(crate) status: Vec<u32>,
    pub(crate) adler: Option<Vec<u32>>,
    pub(crate) limit: u64,
}

impl Sizes {
    /// Some failed, some too large, some just not.
    pub(crate) fn random(random: &mut Random, count: usize, zlib: bool) -> Sizes {
        let limit = 3 << 30;
        let size = |random: &mut Random| match random.below(12) {
            0 => limit,
            1 => limit + 1,
            2 => 0,
            _ => random.next() >> 34,
        };
        Sizes {
            sizes: (0..count).map(|_| size(random)).collect(),
            status: (0..count).map(|_| u32::from(random.below(9) == 0) * 11).collect(),
            adler: zlib.then(|| (0..count).map(|_| random.next() as u32).collect()),
            limit,
        }
    }

    fn offsets(&self, extra: u64) -> Vec<u64> {
        let mut offsets = vec![0];
        for (size, status) in self.sizes.iter().zip(&self.status) {
            let stored = if *status == 0 && *size <= self.limit { size + extra } else { 0 };
            offsets.push(offsets[offsets.len() - 1] + stored);
        }
        offsets
    }
}

pub(crate) fn run_measure(
    module: &Module,
    mode: Mode,
    batch: &Sizes,
    mut device: Device,
) -> Result<Stats, String> {
    let (count, extra) = (batch.sizes.len(), 6_u32);
    let offsets = device.put(&vec![UNTOUCHED; 8 * (count + 1)]);
    let reports = device.put(&vec![UNTOUCHED; 16 * count]);
    let pointers = [
        device.put_u64(&batch.sizes),
        device.put_u32(&batch.status),
        batch.adler.as_ref().map_or(0, |adler| device.put_u32(adler)),
        offsets,
        reports,
    ];
    let arguments = Arguments::pointers(&pointers)
        .and((count as u32).to_le_bytes())
        .and(batch.limit.to_le_bytes())
        .and(extra.to_le_bytes());
    let size = Size { grid: (1, 1), block: (1024, 1), shared: 0 };
    let stats = device.launch(module, "measure", size, arguments, mode)?;
    let want: Vec<u64> = (0..count)
        .flat_map(|i| {
            let adler = batch.adler.as_ref().map_or(0, |adler| adler[i]);
            [u64::from(adler) << 32 | u64::from(batch.status[i]), batch.sizes[i]]
        })
        .collect();
    if device.get_u64(reports) != want {
        return Err(format!("reports of {count} tiles"));
    }
    let (got, want) = (device.get_u64(offsets), batch.offsets(extra.into()));
    match (0..want.len()).find(|i| got[*i] != want[*i]) {
        Some(i) => Err(format!("offset {i} of {count}: {}, not {}", got[i], want[i])),
        None => Ok(stats),
    }
}

#[test]
fn offsets_of_packed_tiles() {
    let mut random = Random::new(0x5eed_0062);
    for count in [0, 1, 31, 32, 1023, 1024, 1025, 3000, 70_000] {
        for zlib in [false, true] {
            let batch = Sizes::random(&mut random, count, zlib);
            run_measure(kernels(), Mode::Converged, &batch, Device::new()).unwrap();
            if count < 3000 {
                for seed in 1..=3 {
                    run_measure(kernels(), Mode::Adversarial(seed), &batch, Device::new()).unwrap();
                }
            }
        }
    }
}

/// Packed tiles, `None` where a tile is left out.
pub(crate) type Tiles = Vec<Option<Vec<u8>>>;

/// Brings tiles together behind a few bytes, which shift them all.
pub(crate) fn run_gather(
    module: &Module,
    mode: Mode,
    tiles: &Tiles,
    checksums: Option<&[u32]>,
    blocks: u32,
    mut device: Device,
) -> Result<Stats, String> {
    const HEADER: [u8; 2] = [0x78, 0x9C];
    let (mut offsets, mut data) = (vec![0], Vec::new());
    let mut want = Vec::new();
    for (i, tile) in tiles.iter().enumerate() {
        let bytes = tile.as_deref().unwrap_or(&[]);
        // 8-aligned, with what is left of the last 16 bytes.
        let phase = 8 * (i % 3 % 2);
        let mut slot = bytes.to_vec();
        slot.resize((phase + slot.len()).next_multiple_of(16) - phase, 0xEE);
        data.push(device.put_at(phase, &slot));
        if tile.is_some() {
            want.extend(checksums.map_or(&[][..], |_| &HEADER));
            want.extend(bytes);
            want.extend(checksums.map(|sums| sums[i].to_be_bytes()).into_iter().flatten());
        }
        offsets.push(want.len() as u64);
    }
    let out = device.put(&vec![UNTOUCHED; want.len()]);
    let pointers = [
        device.put_u64(&data),
        device.put_u64(&offsets),
        checksums.map_or(0, |sums| device.put_u32(sums)),
        out,
    ];
    let header = u32::from(u16::from_le_bytes(HEADER));
    let arguments = Arguments::pointers(&pointers).and(header.to_le_bytes());
    let size = Size { grid: (tiles.len() as u32, blocks), block: (256, 1), shared: 0 };
    let stats = device.launch(module, "gather", size, arguments, mode)?;
    let got = device.get(out);
    match (0..want.len()).find(|i| got[*i] != want[*i]) {
        Some(i) => Err(format!("byte {i} of {}: {:02x}, not {:02x}", want.len(), got[i], want[i])),
        None => Ok(stats),
    }
}

pub(crate) fn random_tiles(random: &mut Random, count: usize, most: usize) -> Tiles {
    let tile = |random: &mut Random| {
        let size = if random.below(4) == 0 { random.below(20) } else { random.below(most) };
        (random.below(7) != 0).then(|| random.bytes(size))
    };
    (0..count).map(|_| tile(random)).collect()
}

#[test]
fn packed_tiles_follow_each_other() {
    let mut random = Random::new(0x5eed_0063);
    for (count, most, blocks) in [
        (1, 5000, 1),
        (31, 600, 2),
        (1024, 300, 1),
        (1025, 80, 1),
        (4, 200_000, 3),
        (70_000, 40, 1),
    ] {
        let tiles = random_tiles(&mut random, count, most);
        let sums: Vec<u32> = tiles.iter().map(|_| random.next() as u32).collect();
        for checksums in [None, Some(&sums[..])] {
            run_gather(kernels(), Mode::Converged, &tiles, checksums, blocks, Device::new())
                .unwrap();
            if count < 100 {
                let mode = Mode::Adversarial(count as u64);
                run_gather(kernels(), mode, &tiles, checksums, blocks, Device::new()).unwrap();
            }
        }
    }
}
