//! Offsets that do not fit in 32 bits: memory of 6 GiB of which only what is touched exists.

use crate::cases::{Work, shape};
use crate::device::{Arguments, Device, Mode, Random, Size};
use crate::kernels;
use crate::place;
use crate::reference::{self, Kind};

const BASE: u64 = 0x3_0000_0000;
const LEN: usize = 6 << 30;
const GIB: i64 = 1 << 30;

/// Pages that the system provides when they are touched.
struct Far(*mut u8);

impl Far {
    fn new() -> Far {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of its own, given back in `drop`.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), LEN, access, flags | libc::MAP_NORESERVE, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Far(at.cast())
    }

    fn device(&self) -> Device {
        let mut device = Device::new();
        device.foreign.push(ptx::Span { base: BASE, len: LEN as u64, data: self.0 });
        device
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= LEN);
        // SAFETY: inside of the mapping, which nothing refers to but raw pointers.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(at), bytes.len()) };
    }

    fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= LEN);
        // SAFETY: as above; anonymous pages begin as zeros.
        unsafe { std::slice::from_raw_parts(self.0.add(at), len) }.to_vec()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { libc::munmap(self.0.cast(), LEN) };
    }
}

/// Strides of gibibytes, and rows at the far end.
#[test]
fn pixels_far_apart() {
    let kind = Kind { bytes: 2, unit: 2, predictor: 2, big: true, bit: 0 };
    let (width, rows, samples) = (3, 2, 2);
    let row = kind.row(width, samples);
    let raw = Random::new(0x5eed_0081).bytes(rows * row);
    let end = LEN - (rows * row).next_multiple_of(16);
    let pixels: Vec<Vec<u8>> =
        raw.chunks(row).map(|row| reference::undo(kind, samples, width, row)).collect();
    // The last one leaves planes, so that a plane is more than 4 GiB away.
    for [pixel, line, sample] in
        [[2 * GIB, GIB, GIB / 2], [4, 5 * GIB, 2], [GIB, 2, 3 * GIB], [2, 1 << 20, 5 * GIB]]
    {
        let far = Far::new();
        far.put(end, &raw);
        let mut device = far.device();
        let mut tile = Vec::from((BASE + end as u64).to_le_bytes());
        tile.extend((BASE + 64).to_le_bytes());
        let small = [rows, 0, 0, width, rows, 0];
        tile.extend(small.iter().flat_map(|n| (*n as u32).to_le_bytes()));
        tile.resize(64, 0);
        let strides = [pixel, line, sample];
        let shape = shape(kind, [width, rows], samples, strides, 1024, false);
        let arguments = Arguments::pointers(&[device.put(&tile), 0, 0, 0, 0]).and(shape.clone());
        let size = Work { shared: 1024, warps: 1, blocks: 2 }.size(1);
        device.launch(kernels(), "undo", size, arguments, Mode::Converged).unwrap();
        for (y, x, s) in (0..2).flat_map(|y| (0..3).flat_map(move |x| [0, 1].map(|s| (y, x, s)))) {
            let at = 64 + y as i64 * line + x as i64 * pixel + s as i64 * sample;
            let want = &pixels[y][(x * samples + s) * 2..][..2];
            assert_eq!(far.get(at as usize, 2), want, "{strides:?}: {x}, {y}, {s}");
        }
        // And back again from there, to just before the end.
        let mut tile = Vec::from((BASE + 64).to_le_bytes());
        tile.extend((BASE + end as u64 - 100).to_le_bytes());
        let small = [rows, width, rows, 0];
        tile.extend(small.iter().flat_map(|n| (*n as u32).to_le_bytes()));
        tile.resize(64, 0);
        let arguments = Arguments::pointers(&[device.put(&tile)]).and(shape);
        device.launch(kernels(), "apply", size, arguments, Mode::Converged).unwrap();
        assert_eq!(far.get(end - 100, rows * row), raw, "{strides:?}");
    }
}

/// Packed tiles more than 4 GiB after the first one, and a tile whose rows begin beyond that.
#[test]
fn tiles_far_apart() {
    let far = Far::new();
    let mut random = Random::new(0x5eed_0082);
    let (bytes, gap) = (random.bytes(1000), 5_u64 << 30);
    let mut device = far.device();
    let data = device.put(&bytes);
    // The tile in between is not there: only the two at the ends are launched.
    let tables = [device.put_u64(&[data, data]), device.put_u64(&[gap, gap + 1000, gap + 2000])];
    let arguments = Arguments::pointers(&[tables[0], tables[1], 0, BASE]);
    let size = Size { grid: (2, 1), block: (256, 1), shared: 0 };
    device
        .launch(kernels(), "gather", size, arguments.and(0_u32.to_le_bytes()), Mode::Converged)
        .unwrap();
    assert_eq!(far.get(gap as usize, 2000), [&bytes[..], &bytes].concat());

    // Row 2 of a tile with rows of 2.5 GiB is 5 GiB away.
    let kind = Kind { bytes: 1, unit: 1, predictor: 2, big: false, bit: 0 };
    far.put(gap as usize, &bytes);
    let mut shape = shape(kind, [100, 3], 1, [0; 3], 1024, false);
    shape[32..40].copy_from_slice(&(gap / 2).to_le_bytes());
    let mut tile = Vec::from(BASE.to_le_bytes());
    let out = device.put(&[0; 100]);
    tile.extend(out.to_le_bytes());
    tile.extend([3, 0, 2, 100, 1, 0].iter().flat_map(|n: &u32| n.to_le_bytes()));
    tile.resize(64, 0);
    let arguments = Arguments::pointers(&[device.put(&tile), 0, 0, 0, 0]).and(shape);
    let size = Work { shared: 1024, warps: 1, blocks: 1 }.size(1);
    device.launch(kernels(), "undo", size, arguments, Mode::Converged).unwrap();
    assert_eq!(device.get(out), reference::undo(kind, 1, 100, &bytes[..100]));
}

/// Samples of a tile with pixels of a gibibyte, and where they go.
#[test]
fn placed_far_apart() {
    let (width, rows, samples, bytes) = (3, 2, 1 << 28, 4);
    let which = [samples as u32 - 1, 5];
    let size = Size { grid: (1, 2), block: (256, 1), shared: 0 };
    let places = (0..2).flat_map(|y| (0..3).flat_map(move |x| [0, 1].map(|band| (y, x, band))));
    // From the first, and backward from the last one.
    for (first, strides) in [
        (64, [GIB, 5 * GIB / 2, 64]),
        (64, [4, 64, 5 * GIB]),
        (5 * GIB + 4097, [-4, -5 * GIB, -64]),
        (5 * GIB + 4096, [-2 * GIB, -64, -5 * GIB / 8]),
    ] {
        let far = Far::new();
        let mut device = far.device();
        let mut random = Random::new(0x5eed_0083);
        let source = |(y, x, band): (usize, usize, usize)| {
            ((y * width + x) * samples + which[band] as usize) * bytes
        };
        let target = |(y, x, band): (usize, usize, usize)| {
            let [pixel, line, next] = strides;
            (first + x as i64 * pixel + y as i64 * line + band as i64 * next) as usize
        };
        let values: Vec<_> = places.clone().map(|at| (at, random.bytes(bytes))).collect();
        values.iter().for_each(|(at, value)| far.put(source(*at), value));
        let tile = place::entry(BASE, BASE + first as u64, [width, rows]);
        let differs = device.put_u32(&[7, 7]);
        let pointers = [device.put(&tile), device.put_u32(&which), differs];
        let run = |compare| {
            let shape = place::shape([samples, bytes, which.len()], compare, strides);
            let arguments = Arguments::pointers(&pointers).and(shape);
            device.launch(kernels(), "place", size, arguments, Mode::Converged).unwrap();
            device.get_u32(differs)
        };
        assert_eq!(run(false), [7, 7]);
        for (at, value) in &values {
            assert_eq!(far.get(target(*at), bytes), *value, "{strides:?}: {at:?}");
        }
        assert_eq!(run(true), [0, 0], "{strides:?}");
        far.put(target((1, 2, 1)) + 3, &[!values[values.len() - 1].1[3]]);
        assert_eq!(run(true), [0, 1], "{strides:?}");
    }
}
