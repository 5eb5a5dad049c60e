//! Tiles as a file has them, brought to their slots and judged, held against what the host's own rules
//! (`frames.rs`) say of the same bytes.

use std::io::Write;

use ptx::{Module, Stats};

use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::{frames, kernels};

const UNTOUCHED: u8 = 0xC3;
/// Where a refused tile points, and how much is there.
const NOTHING: [u64; 2] = [0x1234_5678_9ABC, 9];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Bare,
    Zlib,
    Zstd,
}

/// A tile at some address modulo 16, and what its frame must hold.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    bytes: Vec<u8>,
    phase: usize,
    content: u32,
}

/// What becomes of a tile: its stream and checksum, or nothing where it is refused.
fn judged(framing: Framing, tile: &Tile) -> Option<(Vec<u8>, u32)> {
    match framing {
        Framing::Bare => Some((tile.bytes.clone(), 0)),
        Framing::Zlib => {
            let adler = frames::zlib_adler(&tile.bytes)?;
            let stream = frames::ZLIB_HEADER..tile.bytes.len() - frames::ZLIB_TRAILER;
            Some((tile.bytes[stream].to_vec(), adler))
        }
        Framing::Zstd => match frames::zstd_frame(&tile.bytes, tile.content as usize)? {
            // No writer makes so many blocks; the device would be held up by them.
            _ if blocks(&tile.bytes) > 64 + tile.content / 1024 => None,
            frames::Frame::Whole => Some((tile.bytes.clone(), 0)),
            frames::Frame::Patched(header) => {
                Some(([&header[..], &tile.bytes[frames::ZSTD_PLAIN..]].concat(), 0))
            }
        },
    }
}

/// Blocks of a frame that is whole.
fn blocks(frame: &[u8]) -> u32 {
    let (descriptor, mut count) = (frame[4], 0);
    let field = match (descriptor >> 6, descriptor & 0x20 != 0) {
        (0, single) => usize::from(single),
        (flag, _) => 1 << flag,
    };
    let mut at = 5 + usize::from(descriptor & 0x20 == 0) + field;
    loop {
        let header = u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], 0]);
        count += 1;
        at += 3 + if header >> 1 & 3 == 1 { 1 } else { (header >> 3) as usize };
        if header & 1 != 0 {
            return count;
        }
    }
}

fn room(tile: &Tile, framing: Framing) -> usize {
    let growth = if framing == Framing::Zstd { frames::ZSTD_GROWTH } else { 0 };
    (tile.bytes.len() + growth).next_multiple_of(16).max(16)
}

/// Stows a batch and looks at every byte that may change.
pub(crate) fn run(
    module: &Module,
    mode: Mode,
    framing: Framing,
    tiles: &[Tile],
    blocks: u32,
    mut device: Device,
) -> Result<Stats, String> {
    let (mut table, mut slots) = (Vec::new(), Vec::new());
    for tile in tiles {
        // Nothing is there beyond the 8 bytes that a tile begins and ends in.
        let (skip, phase) = (tile.phase % 8, tile.phase / 8 * 8);
        let mut source = vec![0xA5; skip];
        source.extend(&tile.bytes);
        source.resize(source.len().next_multiple_of(8).max(8), 0xA5);
        let from = device.put_at(phase, &source) + skip as u64;
        let to = device.put(&vec![UNTOUCHED; room(tile, framing)]);
        slots.push(to);
        table.extend(from.to_le_bytes().into_iter().chain(to.to_le_bytes()));
        let words = [tile.bytes.len() as u32, room(tile, framing) as u32, tile.content, 0];
        table.extend(words.into_iter().flat_map(u32::to_le_bytes));
    }
    let count = tiles.len();
    let inputs = device.put(&vec![UNTOUCHED; 8 * count]);
    let input_bytes = device.put(&vec![UNTOUCHED; 8 * count]);
    let decode = device.put(&vec![UNTOUCHED; 64 * count]);
    let verdicts = device.put(&vec![UNTOUCHED; 8 * count]);
    let table = device.put(&table);
    let numbers = [table, inputs, input_bytes, decode, verdicts, NOTHING[0], NOTHING[1]];
    let mut stow: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    stow.extend([framing as u32, 0].into_iter().flat_map(u32::to_le_bytes));
    let size = Size { grid: (count as u32, blocks), block: (256, 1), shared: 0 };
    let stats = device.launch(module, "stow", size, Arguments::default().and(stow), mode)?;
    let (inputs, input_bytes) = (device.get_u64(inputs), device.get_u64(input_bytes));
    let (decode, verdicts) = (device.get(decode), device.get_u32(verdicts));
    for (i, tile) in tiles.iter().enumerate() {
        let what = || format!("{framing:?} tile {i}, {} bytes at {}", tile.bytes.len(), tile.phase);
        let judged = judged(framing, tile);
        let stream = judged.as_ref().map(|(stream, _)| &stream[..]);
        let adler = judged.as_ref().map_or(0, |(_, adler)| *adler);
        let refused = u32::from(judged.is_none());
        if verdicts[2 * i..2 * i + 2] != [adler, refused] {
            return Err(format!("{}: verdict {:x?}", what(), &verdicts[2 * i..2 * i + 2]));
        }
        let want = match stream {
            Some(stream) => [slots[i], stream.len() as u64],
            None => NOTHING,
        };
        if [inputs[i], input_bytes[i]] != want {
            return Err(format!("{}: {:x} and {}", what(), inputs[i], input_bytes[i]));
        }
        let mut entry = [UNTOUCHED; 64];
        if framing == Framing::Zlib {
            entry[36..40].copy_from_slice(&adler.to_le_bytes());
        }
        if decode[64 * i..64 * (i + 1)] != entry {
            return Err(format!("{}: its entry", what()));
        }
        let slot = device.get(slots[i]);
        let Some(stream) = stream else { continue };
        let mut want = stream.to_vec();
        want.resize(room(tile, framing), 0);
        if let Some(at) = (0..want.len()).find(|&at| slot[at] != want[at]) {
            return Err(format!("{}: byte {at} is {:02x}", what(), slot[at]));
        }
    }
    Ok(stats)
}

fn raw(random: &mut Random, bytes: usize) -> Vec<u8> {
    let noise = random.bytes(bytes / 3);
    (0..bytes)
        .map(|i| if i % 3 == 0 { noise.get(i / 3).copied().unwrap_or(0) } else { i as u8 })
        .collect()
}

fn zlib(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
    coder.write_all(&raw(random, bytes)).unwrap();
    coder.finish().unwrap()
}

/// With or without content size and checksum, in blocks of `flush` bytes.
fn zstd(random: &mut Random, bytes: usize, sized: bool, check: bool, flush: usize) -> Vec<u8> {
    let mut coder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    coder.include_contentsize(sized).unwrap();
    coder.include_checksum(check).unwrap();
    if sized {
        coder.set_pledged_src_size(Some(bytes as u64)).unwrap();
    }
    for part in raw(random, bytes).chunks(flush) {
        coder.write_all(part).unwrap();
        coder.flush().unwrap();
    }
    coder.finish().unwrap()
}

/// A frame made of parts: any descriptor, a content size that is right or nearly so, blocks of any kind.
fn forged(random: &mut Random) -> Tile {
    let content = *random.pick(&[1_u32, 200, 255, 256, 300, 5000, 70_000, 140_000]);
    let descriptor = *random.pick(&[0, 0, 0x20, 0x40, 0x60, 0x80, 0xA0, 0xC0, 0xE0])
        | *random.pick(&[0_u8, 0, 0, 0, 0, 0, 4, 4, 16, 1, 2, 8]);
    let mut bytes = 0xFD2F_B528_u32.to_le_bytes().to_vec();
    bytes.push(descriptor);
    if descriptor & 0x20 == 0 {
        bytes.push(random.next() as u8);
    }
    let field = match (descriptor >> 6, descriptor & 0x20 != 0) {
        (0, single) => usize::from(single),
        (flag, _) => 1 << flag,
    };
    let mut stated = u64::from(content).wrapping_sub(if field == 2 { 256 } else { 0 });
    if random.below(8) == 0 {
        stated ^= 1 << random.below(64);
    }
    bytes.extend(&stated.to_le_bytes()[..field]);
    let many = *random.pick(&[1, 2, 2, 3, 64, 65, 66]);
    for block in 1..=many {
        let kinds = if random.below(100) == 0 { 6 } else { 5 };
        let kind = *random.pick(&[0_u32, 0, 1, 2, 2, 3][..kinds]);
        let most = match random.below(200) {
            0 => (128 << 10) + 1,
            n => [0, 3, 900, 128 << 10][n % 4],
        };
        let size = if kind == 1 { most } else { most.min(40) } as u32;
        let last = u32::from(block == many) ^ u32::from(random.below(600) == 0);
        bytes.extend(&(last | kind << 1 | size << 3).to_le_bytes()[..3]);
        let body = random.bytes(if kind == 1 { 1 } else { size as usize });
        bytes.extend(body);
    }
    if descriptor & 4 != 0 {
        bytes.extend(random.bytes(4));
    }
    match random.below(14) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => bytes.push(0),
        _ => {}
    }
    Tile { bytes, phase: random.below(16), content }
}

/// Damages one tile in three.
fn harmed(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    match random.below(9) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => {
            // Most of what is looked at is at the start.
            let most = *random.pick(&[10, usize::MAX]);
            let at = random.below(bytes.len().min(most));
            bytes[at] ^= 1 << random.below(8);
        }
        2 => bytes.extend([random.next() as u8, 0, 1]),
        _ => {}
    }
    bytes
}

/// Tiles of all sizes, right ones and others.
pub(crate) fn random_tiles(random: &mut Random, framing: Framing, count: usize) -> Vec<Tile> {
    let tile = |random: &mut Random| {
        let most = *random.pick(&[1, 20, 300, 5000, 70_000]);
        let size = 1 + random.below(most);
        let bytes = match framing {
            Framing::Bare => random.bytes(size),
            Framing::Zlib => zlib(random, size),
            Framing::Zstd if random.below(2) == 0 => return forged(random),
            Framing::Zstd => {
                let (sized, check) = (random.below(2) == 0, random.below(3) == 0);
                let flush = *random.pick(&[size, size / 2 + 1, size / 70 + 1]);
                zstd(random, size, sized, check, flush)
            }
        };
        let content = size as u32 + u32::from(random.below(12) == 0);
        Tile { bytes: harmed(random, bytes), phase: random.below(16), content }
    };
    (0..count).map(|_| tile(random)).collect()
}

/// The two bytes of a zlib header, each with all values and the other one right.
pub(crate) fn headers() -> Vec<Tile> {
    let header = |header: [u8; 2]| {
        let bytes = [&header[..], &[3, 0, 0, 0, 0, 1]].concat();
        Tile { bytes, phase: usize::from(header[0]) % 16, content: 0 }
    };
    let all = |right: u8, first: bool| {
        (0..=255).map(move |byte| if first { [byte, right] } else { [right, byte] })
    };
    let mut tiles: Vec<Tile> = all(0x9C, true).chain(all(0x78, false)).map(header).collect();
    // Too short for a stream in between, whatever it begins with.
    let short = (0..=7).map(|len| Tile {
        bytes: vec![0x78, 0x9C, 3, 0, 0, 0, 1][..len].into(),
        phase: len,
        content: 0,
    });
    tiles.extend(short);
    tiles
}

pub(crate) const FRAMINGS: [Framing; 3] = [Framing::Bare, Framing::Zlib, Framing::Zstd];

#[test]
fn tiles_are_stowed_as_the_host_would() {
    let seed =
        std::env::var("GPUGTIFF_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_00a1);
    let mut random = Random::new(seed);
    let (mut taken, mut refused) = ([0; 3], [0; 3]);
    for round in 0..40 {
        for (i, framing) in FRAMINGS.into_iter().enumerate() {
            let tiles = random_tiles(&mut random, framing, 40);
            let mode = [Mode::Converged, Mode::Adversarial(round)][usize::from(round % 4 == 0)];
            let blocks = 1 + (round % 3) as u32;
            run(kernels(), mode, framing, &tiles, blocks, Device::new())
                .unwrap_or_else(|why| panic!("GPUGTIFF_SEED={seed}: round {round}: {why}"));
            let good = tiles.iter().filter(|tile| judged(framing, tile).is_some()).count();
            (taken[i], refused[i]) = (taken[i] + good, refused[i] + tiles.len() - good);
        }
    }
    println!("taken {taken:?}, refused {refused:?}");
    // Of 1600 each; about 80 of zlib are refused.
    assert!(taken.iter().all(|&n| n > 300) && refused[1] > 30 && refused[2] > 300);
}

#[test]
fn every_zlib_header_is_judged_as_the_host_would() {
    run(kernels(), Mode::Converged, Framing::Zlib, &headers(), 1, Device::new()).unwrap();
}

#[test]
fn large_tiles_are_shared_by_blocks() {
    let mut random = Random::new(0x5eed_00a2);
    for framing in FRAMINGS {
        let bytes = match framing {
            Framing::Bare => random.bytes(1 << 20),
            Framing::Zlib => zlib(&mut random, 2 << 20),
            Framing::Zstd => zstd(&mut random, 2 << 20, false, false, 1 << 20),
        };
        let tiles = [3, 8].map(|phase| Tile { bytes: bytes.clone(), phase, content: 2 << 20 });
        run(kernels(), Mode::Converged, framing, &tiles, 16, Device::new()).unwrap();
    }
}
