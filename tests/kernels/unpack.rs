//! `lzw` and `packbits` against the CPU's decoders, stream by stream.

use gpugtiff::engine::cpu::lzw::Lzw;
use gpugtiff::engine::cpu::packbits;
use ptx::{Module, Stats};

use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::kernels;
use crate::streams::{self, Stream};

const UNTOUCHED: u8 = 0xC3;
const CORRUPT: u32 = 12;
/// One thread a tile, of streams that are right.
const SERIAL: &str = "serial_lzw";

/// What must become of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Made(Vec<u8>),
    Corrupt,
}

/// What the CPU makes of it. Of LZW the device leaves to the CPU what no writer makes.
fn fate(kernel: &str, stream: &Stream) -> Fate {
    let mut out = vec![0; stream.room];
    let made = match kernel {
        "lzw" if is_odd(stream) => return Fate::Corrupt,
        "lzw" | SERIAL => Lzw::new().decode(&stream.packed, &mut out),
        _ => packbits::decode(&stream.packed, &mut out),
    };
    match made {
        Ok(size) => {
            out.truncate(size);
            Fate::Made(out)
        }
        Err(_) => Fate::Corrupt,
    }
}

/// Whether an LZW stream has a segment of 3840 codes or more, or a great many of them, before the
/// tile is full.
fn is_odd(stream: &Stream) -> bool {
    let bit = |i: usize| usize::from(stream.packed[i / 8] >> (7 - i % 8) & 1);
    let (mut at, mut made, mut clears) = (0, 0, 0);
    let mut lengths: Vec<usize> = Vec::new();
    while made < stream.room {
        if lengths.len() == 3840 {
            return true;
        }
        let width = match lengths.len() {
            ..254 => 9,
            254..766 => 10,
            766..1790 => 11,
            _ => 12,
        };
        if at + width > stream.packed.len() * 8 {
            return false;
        }
        let code = (at..at + width).fold(0, |n, i| n << 1 | bit(i));
        at += width;
        let length = match code {
            256 => {
                clears += 1;
                if clears > 64 + stream.room / 256 {
                    return true;
                }
                lengths.clear();
                continue;
            }
            0..256 => 1,
            _ => match lengths.get(code.wrapping_sub(258)) {
                Some(length) => length + 1,
                None => return false,
            },
        };
        made += length;
        lengths.push(length);
    }
    false
}

/// Unpacks all streams in one launch and looks at each.
pub(crate) fn run(
    module: &Module,
    kernel: &str,
    mode: Mode,
    streams: &[Stream],
    mut device: Device,
) -> Result<Stats, String> {
    let mut packed = Vec::new();
    for stream in streams {
        // What is left of the last word may be read.
        let mut bytes = stream.packed.clone();
        if kernel == "lzw" {
            bytes.resize(bytes.len().next_multiple_of(4), 0xEE);
        }
        packed.push(device.put(&bytes));
    }
    let outputs: Vec<u64> =
        streams.iter().map(|stream| device.put(&vec![UNTOUCHED; stream.room])).collect();
    let sizes: Vec<u64> = streams.iter().map(|stream| stream.packed.len() as u64).collect();
    let rooms: Vec<u64> = streams.iter().map(|stream| stream.room as u64).collect();
    let made = device.put(&vec![UNTOUCHED; 8 * streams.len()]);
    let status = device.put(&vec![UNTOUCHED; 4 * streams.len()]);
    let tables = [
        device.put_u64(&packed),
        device.put_u64(&sizes),
        device.put_u64(&outputs),
        device.put_u64(&rooms),
        made,
        status,
    ];
    let tables: Vec<u8> = tables.iter().flat_map(|table| table.to_le_bytes()).collect();
    let threads = if kernel == SERIAL { 1 } else { 256 };
    let size = Size { grid: (streams.len() as u32, 1), block: (threads, 1), shared: 0 };
    let stats = device.launch(module, kernel, size, Arguments::default().and(tables), mode)?;
    let (made, status) = (device.get_u64(made), device.get_u32(status));
    for (i, stream) in streams.iter().enumerate() {
        let out = device.get(outputs[i]);
        let got = match status[i] {
            0 => Fate::Made(out.get(..made[i] as usize).ok_or("too large")?.to_vec()),
            CORRUPT => Fate::Corrupt,
            status => return Err(format!("{kernel}, tile {i}: status {status}")),
        };
        let want = fate(kernel, stream);
        if got != want {
            let (packed, room) = (&stream.packed, stream.room);
            return Err(format!("{kernel}, tile {i}: {packed:?} in {room}: {got:?}, not {want:?}"));
        }
    }
    Ok(stats)
}

/// Streams as writers make them, some of more bytes than there is room, or with more behind.
pub(crate) fn written(random: &mut Random, kernel: &str, count: usize, most: usize) -> Vec<Stream> {
    let stream = |_| {
        let data = streams::tile(random, most);
        let mut packed = match kernel {
            "lzw" => streams::lzw(&data),
            _ => streams::packed_bits(&data, 1 + random.below(200)),
        };
        let room = match random.below(8) {
            0 => 1 + random.below(data.len()),
            1 => data.len() + random.below(50),
            _ => data.len(),
        };
        if random.below(8) == 0 {
            packed.extend(random.bytes(20));
        }
        Stream { packed, room }
    };
    (0..count).map(stream).collect()
}

/// Streams that no writer makes.
pub(crate) fn hostile(random: &mut Random, kernel: &str, count: usize, most: usize) -> Vec<Stream> {
    let whole = written(random, kernel, count, most);
    let stream = |stream: Stream| match (kernel, random.below(2)) {
        ("lzw", 0) => {
            let codes = 1 + random.below(most);
            let codes = streams::random_codes(random, codes);
            Stream { packed: streams::from_codes(&codes), room: 1 + random.below(4 * most) }
        }
        _ => Stream { packed: streams::damage(random, stream.packed), ..stream },
    };
    whole.into_iter().map(stream).collect()
}

/// Tiles with several segments and windows, full ones among them; strings up to their longest.
pub(crate) fn large(random: &mut Random, kernel: &str) -> Vec<Stream> {
    let mut tiles = vec![
        random.bytes(20_000),
        streams::land_cover(random, 60_000),
        vec![7; 65_536],
        streams::tile(random, 20_000),
    ];
    tiles.push([&tiles[0][..9000], &tiles[1][..30_000], &tiles[0][..6000]].concat());
    let pack = |data: Vec<u8>| Stream {
        packed: match kernel {
            "lzw" => streams::lzw(&data),
            _ => streams::packed_bits(&data, 256),
        },
        room: data.len(),
    };
    let mut streams: Vec<Stream> = tiles.into_iter().map(pack).collect();
    if kernel == "lzw" {
        // A full segment with long strings from its first codes to its last.
        let code = |k: u32| if k.is_multiple_of(40) { k % 251 } else { 257 + k };
        let codes: Vec<u32> = (0..3839).map(code).collect();
        streams.push(Stream { packed: streams::from_codes(&codes), room: 100_000 });
    }
    streams
}

fn check(kernel: &str, mode: Mode, streams: &[Stream]) -> Stats {
    run(kernels(), kernel, mode, streams, Device::new()).unwrap_or_else(|message| {
        panic!("{message}");
    })
}

fn many(kernel: &str, seed: u64) {
    let mut random = Random::new(seed);
    for most in [20, 300, 600, 2000] {
        for _ in 0..5 {
            check(kernel, Mode::Converged, &written(&mut random, kernel, 500, most));
        }
    }
    check(kernel, Mode::Converged, &large(&mut random, kernel));
}

fn many_hostile(kernel: &str, seed: u64) {
    let mut random = Random::new(seed);
    for most in [8, 300, 2000] {
        check(kernel, Mode::Converged, &hostile(&mut random, kernel, 800, most));
    }
    check(kernel, Mode::Converged, &hostile(&mut random, kernel, 60, 12_000));
}

fn adversarial(kernel: &str, seed: u64) {
    let mut random = Random::new(seed);
    for seed in 0..6 {
        for most in [30, 300, 700] {
            let mode = Mode::Adversarial(seed);
            check(kernel, mode, &written(&mut random, kernel, 6, most));
            check(kernel, mode, &hostile(&mut random, kernel, 6, most));
        }
    }
    check(kernel, Mode::Adversarial(7), &large(&mut random, kernel)[1..3]);
}

#[test]
fn lzw_of_random_tiles() {
    many("lzw", 0x5eed_00a1);
}

#[test]
fn lzw_that_nobody_writes() {
    many_hostile("lzw", 0x5eed_00a2);
}

#[test]
fn lzw_in_any_order() {
    adversarial("lzw", 0x5eed_00a3);
}

#[test]
fn packbits_of_random_tiles() {
    many("packbits", 0x5eed_00b1);
}

#[test]
fn packbits_that_nobody_writes() {
    many_hostile("packbits", 0x5eed_00b2);
}

#[test]
fn packbits_in_any_order() {
    adversarial("packbits", 0x5eed_00b3);
}

/// Streams by hand.
pub(crate) fn odd_shapes(kernel: &str) -> Vec<Stream> {
    if kernel == "lzw" { odd_lzw() } else { odd_packbits() }
}

/// The first codes, Clears in odd places, ends that are missing, codes too high.
fn odd_lzw() -> Vec<Stream> {
    let longest: Vec<u32> = [9].into_iter().chain(258..4096).collect();
    let twice: Vec<u32> = longest[..300].iter().copied().chain([256]).chain(0..255).collect();
    let cases: Vec<(Vec<u32>, usize)> = vec![
        (vec![], 5),
        (vec![257], 5),
        (vec![256, 256, 256, 65, 257], 5),
        (vec![65], 1),
        (vec![65, 258, 259, 260], 10),
        (vec![65, 258, 259, 260], 9),
        (vec![258], 4),
        (vec![65, 259], 4),
        (vec![65, 66, 259, 257], 4),
        (vec![65, 66, 260, 257], 4),
        // Full before the code that cannot be, and not quite.
        (vec![65, 66, 258, 4095], 4),
        (vec![65, 66, 67, 4095], 4),
        (vec![256; 64], 4),
        (vec![256; 65], 4),
        (longest[..400].to_vec(), 100_000),
        (twice, 50_000),
    ];
    let made = cases.iter().map(|(codes, room)| (streams::from_codes(codes), *room));
    let by_hand = [&[][..], &[0x80], &[0x80, 0], &[0x80, 0x40], &[0, 1, 2], &[1; 9]];
    let by_hand = by_hand.map(|packed| (packed.to_vec(), 3));
    made.chain(by_hand).map(|(packed, room)| Stream { packed, room }).collect()
}

/// Heads at the seams of pieces, spans and windows; runs that the stream has no bytes for.
fn odd_packbits() -> Vec<Stream> {
    let heads: Vec<Vec<u8>> = vec![
        vec![],
        vec![128; 5000],
        [vec![128; 4095], vec![127], (0..128).collect()].concat(),
        [vec![128; 4095], vec![255, 7]].concat(),
        [vec![128; 4095], vec![255]].concat(),
        [0x81, 9].repeat(2048),
        [&[128][..], &[0x81, 9].repeat(2048)].concat(),
        vec![0; 9000],
        vec![255; 9001],
        vec![100, 1, 2, 3, 4],
        vec![0x81],
        vec![127; 4096],
    ];
    let rooms = [1, 4, 130, 5000, 262_144];
    let in_rooms = |packed: &Vec<u8>| rooms.map(|room| Stream { packed: packed.clone(), room });
    heads.iter().flat_map(in_rooms).collect()
}

/// A little of everything.
pub(crate) fn small_cases(random: &mut Random, kernel: &str) -> Vec<Stream> {
    let mut streams = Vec::new();
    for most in [20, 300, 900] {
        streams.extend(written(random, kernel, 6, most));
        streams.extend(hostile(random, kernel, 12, most));
    }
    streams
}

#[test]
fn lzw_in_odd_shapes() {
    check("lzw", Mode::Converged, &odd_shapes("lzw"));
}

#[test]
fn packbits_in_odd_shapes() {
    check("packbits", Mode::Converged, &odd_shapes("packbits"));
}

/// As long as a segment can be, with strings as long as they can be; and longer than the device has
/// room for, in tiles that are full before and in one that is not.
#[test]
fn lzw_in_the_longest_segments() {
    let longest: Vec<u32> = [9].into_iter().chain(258..4096).collect();
    let too_long: Vec<u32> = longest.iter().copied().chain([5; 1100]).collect();
    let twice: Vec<u32> = longest.iter().copied().chain([256]).chain(longest.clone()).collect();
    let cases = [
        (longest.clone(), 1 << 23),
        (longest.iter().copied().chain([257]).collect(), 1 << 23),
        (twice, 10_000_000),
        (too_long.clone(), 1 << 23),
        (too_long, 7_000_000),
    ];
    let streams = cases.map(|(codes, room)| Stream { packed: streams::from_codes(&codes), room });
    check("lzw", Mode::Converged, &streams);
}

/// Slopes of two bytes with a little noise, differenced, as elevations are stored.
fn elevations(random: &mut Random) -> Vec<u8> {
    let mut steps = || (random.below(9) + random.below(9)) as i16 - 8;
    (0..256 * 128).flat_map(|_| steps().to_le_bytes()).collect()
}

/// Tiles of 64 KiB, a row of the table in docs/cuda.md each.
#[test]
fn instructions_of_lzw() {
    let serial = Module::parse(include_str!("serial.ptx")).unwrap();
    let mut random = Random::new(0x5eed_00c1);
    let tiles = [
        ("noise", random.bytes(1 << 16)),
        ("elevations, predictor 2", elevations(&mut random)),
        ("land cover", patches(&mut random)),
        ("constant", vec![0; 1 << 16]),
    ];
    for (what, data) in tiles {
        let streams = [Stream { packed: streams::lzw(&data), room: data.len() }];
        let count = |module: &Module, kernel| {
            run(module, kernel, Mode::Converged, &streams, Device::new()).unwrap()
        };
        let (ours, serial) = (count(kernels(), "lzw"), count(&serial, SERIAL));
        let each = ours.instructions as f64 / data.len() as f64;
        let (longest, alone) = (ours.longest_thread, serial.longest_thread);
        let (packed, times) = (streams[0].packed.len(), alone as f64 / longest as f64);
        println!("| {what} | {packed} | {each:.0} | {longest} | {alone} | {times:.0} × |");
        assert!(times >= 20.0, "{what}: the longest thread has only {times:.1} x less to do");
    }
}

/// A map of a few classes, each row much like the one before.
fn patches(random: &mut Random) -> Vec<u8> {
    let mut row = streams::land_cover(random, 256);
    let mut map = Vec::new();
    for _ in 0..256 {
        for _ in 0..2 {
            let (at, to) = (1 + random.below(254), row[random.below(256)]);
            row[at] = if random.below(3) == 0 { to } else { row[at - 1] };
        }
        map.extend_from_slice(&row);
    }
    map
}
