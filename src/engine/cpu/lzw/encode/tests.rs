//! Streams against an encoder as libtiff's rules read, and through two decoders.

use super::super::Lzw;
use super::*;
use std::collections::HashMap;
use weezl::{BitOrder, decode::Decoder};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Bytes of many kinds: noise of any spread, runs, ramps, repeats, and a change half way.
fn sample(s: &mut u64, len: usize) -> Vec<u8> {
    let mut data: Vec<u8> = Vec::with_capacity(len);
    let (mut spread, mut kind) = (1 + random(s) % 256, random(s) % 4);
    while data.len() < len {
        if data.len() > len / 2 && random(s).is_multiple_of(1000) {
            (spread, kind) = (1 + random(s) % 256, random(s) % 4);
        }
        match kind {
            0 => data.push((random(s) % spread) as u8),
            1 => {
                let run = 1 + random(s) as usize % 400;
                data.extend(std::iter::repeat_n((random(s) % spread) as u8, run));
            }
            2 => data.push(((data.len() as u64 / 7 + random(s) % 2) % spread) as u8),
            _ => {
                let back = random(s) as usize % (data.len() + 1);
                let piece = &data[back..(back + 50).min(data.len())].to_vec();
                data.extend(piece);
                data.push((random(s) % spread) as u8);
            }
        }
    }
    data.truncate(len);
    data
}

/// The encoder as it would be written down: strings in a map, one bit at a time, a Clear where
/// tif_lzw.c has one.
fn naive(src: &[u8]) -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    let put = |bits: &mut Vec<bool>, code: usize, width: u32| {
        bits.extend((0..width).rev().map(|i| code >> i & 1 == 1));
    };
    let (mut wide, mut next) = (9, FIRST);
    if let Some((&first, rest)) = src.split_first() {
        put(&mut bits, CLEAR, 9);
        let mut table = HashMap::new();
        let (mut since, mut bytes, mut check, mut best) = (0, 1, 10_000, 0);
        let mut string = usize::from(first);
        for &byte in rest {
            bytes += 1;
            if let Some(&longer) = table.get(&(string, byte)) {
                string = longer;
                continue;
            }
            put(&mut bits, string, wide);
            table.insert((string, byte), next);
            string = usize::from(byte);
            next += 1;
            let mut clear = next == 4094;
            if !clear && next > (1 << wide) - 1 {
                wide += 1;
            } else if !clear && bytes >= check {
                check = bytes + 10_000;
                let ratio = (bytes << 8) / (bits.len() - since);
                clear = ratio <= best;
                best = ratio;
            }
            if clear {
                since = bits.len();
                put(&mut bits, CLEAR, wide);
                (wide, next, bytes, best) = (9, FIRST, 0, 0);
                table.clear();
            }
        }
        put(&mut bits, string, wide);
        if next + 1 == 4094 {
            put(&mut bits, CLEAR, wide);
            wide = 9;
        } else if next + 1 > (1 << wide) - 1 {
            wide += 1;
        }
    }
    put(&mut bits, EOI, wide);
    bits.chunks(8)
        .map(|c| (0..8).fold(0, |b, i| b << 1 | u8::from(c.get(i) == Some(&true))))
        .collect()
}

/// Encodes inside a guarded buffer, and reads the stream with two decoders.
fn check(encoder: &mut Encoder, data: &[u8], what: &str) -> Vec<u8> {
    let room = bound(data.len());
    let mut code = vec![0xA5; room + 64];
    let made = encoder.encode(data, &mut code[..room]).unwrap();
    assert!(code[room..].iter().all(|&b| b == 0xA5), "{what}: outside");
    code.truncate(made);
    let mut out = vec![0; data.len()];
    assert_eq!(Lzw::new().decode(&code, &mut out), Ok(data.len()), "{what}");
    assert!(out == data, "{what}: own decoder");
    let out = Decoder::with_tiff_size_switch(BitOrder::Msb, 8).decode(&code).unwrap();
    assert!(out == data, "{what}: weezl");
    code
}

#[test]
fn streams_are_libtiffs() {
    let first = 0x5eed_0031_u64;
    println!("seed {first:#x}");
    let (mut s, mut encoder) = (first, Encoder::new());
    for case in 0..1500 {
        let len = (random(&mut s) % if case % 10 == 0 { 120_000 } else { 4000 }) as usize;
        let data = sample(&mut s, len);
        let what = format!("case {case}, {len} bytes");
        assert!(check(&mut encoder, &data, &what) == naive(&data), "{what}");
    }
}

/// Also where the last code is the one that widens the codes or fills the table.
#[test]
fn every_length_ends_well() {
    let mut s = 0x5eed_0032_u64;
    let noise: Vec<u8> = (0..9000).map(|_| random(&mut s) as u8).collect();
    let mut encoder = Encoder::new();
    // Noise makes a code of nearly every byte: 254 and 766 of them widen the codes, 3836 fill the
    // table.
    for lens in [0..30, 250..290, 760..800, 1785..1860, 3836..4050, 7672..7700] {
        for len in lens {
            let what = format!("{len} bytes of noise");
            assert!(check(&mut encoder, &noise[..len], &what) == naive(&noise[..len]), "{what}");
        }
    }
    assert_eq!(check(&mut encoder, &[], "nothing"), [0x80, 0x80]);
    assert_eq!(check(&mut encoder, &[7], "a byte"), [0x80, 0x01, 0xE0, 0x20]);
}

#[test]
fn runs_and_noise_of_any_length() {
    let mut s = 0x5eed_0033_u64;
    let mut encoder = Encoder::default();
    for len in [1 << 20, (1 << 20) + 1, 9 << 20] {
        let zeros = vec![0; len];
        assert!(check(&mut encoder, &zeros, "zeros") == naive(&zeros), "{len} zeros");
        let noise: Vec<u8> = (0..len).map(|_| random(&mut s) as u8).collect();
        let code = check(&mut encoder, &noise, "noise");
        assert!(code.len() < bound(len) && code.len() > len, "{len} bytes of noise");
    }
}

#[test]
fn what_was_encoded_before_leaves_no_trace() {
    let mut s = 0x5eed_0034_u64;
    let data = sample(&mut s, 30_000);
    let want = naive(&data);
    let mut encoder = Encoder::new();
    // More tables than there are ages.
    for round in 0..700 {
        let len = random(&mut s) as usize % 3000;
        check(&mut encoder, &sample(&mut s, len), "in between");
        if round % 50 == 49 || (250..260).contains(&round) {
            assert!(check(&mut encoder, &data, "again") == want, "round {round}");
        }
    }
}

/// Tables in which every slot is taken by a string that never comes.
#[test]
fn strings_that_find_no_slot_are_forgotten() {
    let first = 0x5eed_0035_u64;
    println!("seed {first:#x}");
    let (mut s, mut encoder) = (first, Encoder::new());
    for round in 0..100 {
        let spread = 2 + random(&mut s) % 200;
        let data: Vec<u8> = (0..3000).map(|_| (random(&mut s) % spread) as u8).collect();
        encoder.slots.fill(encoder.age.wrapping_add(1 << AGE) | 255 << BYTE);
        let code = check(&mut encoder, &data, &format!("round {round}"));
        let want = naive(&data);
        assert!(code.len() >= want.len() && code.len() < want.len() * 3, "round {round}");
        assert!(check(&mut encoder, &data, "afterwards") == want, "round {round}");
    }
}

#[test]
fn too_little_room_is_an_error() {
    let mut encoder = Encoder::new();
    assert_eq!(encoder.encode(&[1; 100], &mut vec![0; bound(100) - 1]), Err(CodecError::NoRoom));
    assert_eq!(encoder.encode(&[], &mut []), Err(CodecError::NoRoom));
}
