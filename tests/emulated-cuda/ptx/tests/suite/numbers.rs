//! Arithmetic that NVRTC made instructions of.

use crate::device::{Arg, Random, Runner};

#[test]
fn integers_of_all_widths() {
    let seed = 0x5eed;
    println!("seed {seed}");
    let mut random = Random(seed);
    let n = 2000u32;
    let a: Vec<u64> = (0..n).map(|_| random.operand()).collect();
    let b: Vec<u64> = (0..n).map(|_| random.operand()).collect();
    let mut way = Runner::fixture("numbers");
    let out = way.device.put(&vec![0u64; 24 * n as usize]);
    let args =
        [Arg::U64(way.device.put(&a)), Arg::U64(way.device.put(&b)), Arg::U64(out), Arg::U32(n)];
    way.run("maths", [n.div_ceil(96), 1, 1], [96, 1, 1], 0, &args).unwrap();
    let found = way.device.get::<u64>(out);
    for (t, (x, y)) in a.into_iter().zip(b).enumerate() {
        for (k, (found, expected)) in found[24 * t..].iter().zip(expected(x, y)).enumerate() {
            assert_eq!(*found, expected, "result {k} of {x:#x} and {y:#x}");
        }
    }
}

fn permuted(x: u32, y: u32, selector: u32) -> u32 {
    let bytes = (u64::from(y) << 32 | u64::from(x)).to_le_bytes();
    let pick = |i: u32| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[nibble as usize & 7];
        if nibble < 8 { byte } else { ((byte as i8) >> 7) as u8 }
    };
    u32::from_le_bytes([pick(0), pick(1), pick(2), pick(3)])
}

fn expected(x: u64, y: u64) -> [u64; 24] {
    let (xi, yi, xl, yl) = (x as u32 as i32, y as u32 as i32, x as u32, y as u32);
    let pair = u64::from(yl) << 32 | u64::from(xl);
    let ordered = if (x as i64) < (y as i64) { x ^ y } else { !(x & y) };
    [
        x.wrapping_add(y),
        x.wrapping_mul(y),
        x.checked_div(y).unwrap_or(0),
        x.checked_rem(y).unwrap_or(0),
        if y as i64 > 0 { (x as i64 / y as i64) as u64 } else { 0 },
        ((u128::from(x) * u128::from(y)) >> 64) as u64,
        ((i128::from(x as i64) * i128::from(y as i64)) >> 64) as u64,
        xl.checked_div(yl).unwrap_or(0).into(),
        if yi > 0 { i64::from(xi % yi) as u64 } else { 0 },
        x as i8 as i64 as u64,
        (x as u16).wrapping_mul(y as u16).into(),
        i64::from(x as i16 >> (y & 15)) as u64,
        x >> (y & 63),
        (x as i64 >> (y & 63)) as u64,
        x << (y & 63),
        u64::from(
            x.count_ones()
                + y.leading_zeros() * 100
                + xl.count_ones() * 10000
                + yl.leading_zeros() * 1000000,
        ),
        x.reverse_bits() ^ u64::from(yl.reverse_bits()),
        permuted(xl, yl, (x >> 32) as u32 & 0x7777).into(),
        pair << (y >> 32 & 31) >> 32,
        u64::from((pair >> (y >> 34 & 63).min(32)) as u32),
        x >> 13 & 0x7ff | (y & !0x7ff) << 1,
        i64::from(xi.min(yi)) as u64 ^ u64::from(xl.max(yl)),
        u64::from(((x >> 7) as u32).wrapping_add(xi.abs_diff(yi)).wrapping_add(if x == 0 {
            0
        } else {
            x.trailing_zeros() + 1
        })),
        ordered,
    ]
}

#[test]
fn floating_point() {
    let n = 512u32;
    let mut random = Random(21);
    let mut fraction = || (random.next() as i64 >> 20) as f64 / 65536.0 / 1024.0;
    let mut a: Vec<f32> = (0..n).map(|_| fraction() as f32).collect();
    let mut b: Vec<f64> = (0..n).map(|_| fraction()).collect();
    (a[0], b[0]) = (0.0, -0.0);
    (a[1], b[1]) = (2.5, f64::NAN);
    (a[2], b[2]) = (-3.5, 0.5);
    let mut way = Runner::fixture("numbers");
    let out = way.device.put(&vec![0f64; 12 * n as usize]);
    let args =
        [Arg::U64(way.device.put(&a)), Arg::U64(way.device.put(&b)), Arg::U64(out), Arg::U32(n)];
    way.run("floats", [n / 64, 1, 1], [64, 1, 1], 0, &args).unwrap();
    let found = way.device.get::<f64>(out);
    for (t, (x, y)) in a.into_iter().zip(b).enumerate() {
        let wide = f64::from(x);
        let whole = y.floor() + f64::from(x.ceil()) + y.round_ties_even() + y.trunc();
        let expected = [
            wide.mul_add(y, 1.5),
            f64::from(x * y as f32 - x),
            y / wide,
            y.abs().sqrt(),
            f64::from(x as i32),
            if y.is_nan() { (1u64 << 63) as f64 } else { y.abs() as u64 as f64 },
            whole,
            y.min(wide) - wide.max(y),
            f64::from(if x < y as f32 { -x } else { x }),
            f64::from(x.to_bits() as i32) + y.to_bits() as i64 as f64,
            f64::from(y as i32 as u8) + f64::from(x as i32 as i16),
            f64::from(x / (t as f32 + 1.0)) + if y.is_nan() { 1.0 } else { 0.0 },
        ];
        for (k, (found, expected)) in found[12 * t..].iter().zip(expected).enumerate() {
            let equal = *found == expected || found.is_nan() && expected.is_nan();
            assert!(equal, "result {k} of {x} and {y}: {found}, not {expected}");
        }
    }
}

#[test]
fn tables_switches_and_own_arrays() {
    const PRIMES: [u64; 8] = [2, 3, 5, 7, 11, 13, 17, 19];
    let n = 700u32;
    let mut random = Random(31);
    let input: Vec<u32> = (0..n).map(|_| random.operand() as u32).collect();
    let mut calls = 0;
    let mut ways = vec![Runner::fixture("numbers")];
    ways.extend((1..5).map(|seed| Runner::fixture("numbers").adversarial(seed).races()));
    for mut way in ways {
        let (from, out) = (way.device.put(&input), way.device.put(&vec![0u64; n as usize]));
        let args = [Arg::U64(from), Arg::U64(out), Arg::U32(n)];
        way.run("choose", [n.div_ceil(64), 1, 1], [64, 1, 1], 0, &args).unwrap();
        for (v, found) in input.iter().zip(way.device.get::<u64>(out)) {
            let wide = u64::from(*v);
            let own = |i: u32| u64::from(i & 15).wrapping_mul(wide);
            let expected = match v % 11 {
                0 => PRIMES[*v as usize & 7],
                1 => 10u64.pow(v & 3) * wide,
                2 => own(*v),
                3 => wide / 3,
                4 => wide * 5,
                5 => (!v).into(),
                6 => wide ^ 0x55,
                7 => wide << 7,
                8 => (1..=v & 31).fold(0u64, |r, i| r.wrapping_add(own(i).wrapping_mul(i.into()))),
                9 => wide >> 3,
                _ => own(v >> 4) + 1,
            };
            assert_eq!(found, expected, "{v}");
        }
        let count = way.device.put(&[0u32]);
        way.run("called", [1, 1, 1], [1, 1, 1], 0, &[Arg::U64(count)]).unwrap();
        calls += way.device.get::<u32>(count)[0];
    }
    assert_eq!(calls, 5 * n);
}
