//! Round trips, odd shapes and damage, against a decoder as the specification has it.

use super::*;
use weezl::{BitOrder, encode::Encoder};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Bytes of many kinds: noise of any spread, runs, ramps, repeats from far back.
fn sample(s: &mut u64, len: usize) -> Vec<u8> {
    let (spread, kind) = (1 + random(s) % 256, random(s) % 4);
    let mut data: Vec<u8> = Vec::with_capacity(len);
    while data.len() < len {
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

fn encode(data: &[u8]) -> Vec<u8> {
    Encoder::with_tiff_size_switch(BitOrder::Msb, 8).encode(data).unwrap()
}

/// Packs codes, each with its width, most significant bit first.
fn pack(codes: &[(usize, u32)]) -> Vec<u8> {
    let mut bits = Vec::new();
    for &(code, width) in codes {
        bits.extend((0..width).rev().map(|i| (code >> i & 1) as u8));
    }
    bits.chunks(8).map(|c| c.iter().enumerate().fold(0, |b, (i, bit)| b | bit << (7 - i))).collect()
}

/// The decoder as the specification has it: strings in vectors, one byte at a time.
fn naive(src: &[u8], room: usize) -> Result<Vec<u8>, CodecError> {
    if src.len() > 1 && src[0] == 0 && src[1] & 1 == 1 {
        return Err(CodecError::OldStyleLzw);
    }
    let (mut out, mut bit, mut width) = (Vec::new(), 0, 9);
    let mut table: Vec<Vec<u8>> = Vec::new();
    let mut prev: Option<Vec<u8>> = None;
    while out.len() < room && bit + width <= src.len() * 8 {
        let code =
            (bit..bit + width).fold(0, |c, b| c << 1 | usize::from(src[b / 8] >> (7 - b % 8) & 1));
        bit += width;
        if code == EOI {
            break;
        }
        if code == CLEAR {
            table = (0..FIRST).map(|i| vec![i as u8]).collect();
            (prev, width) = (None, 9);
            continue;
        }
        if table.is_empty() {
            return Err(CodecError::LzwWithoutClear);
        }
        if let Some(mut new) = prev.take() {
            if table.len() == TABLE {
                return Err(CodecError::LzwTableFull);
            }
            if code > table.len() {
                return Err(CodecError::LzwCode(code as u16));
            }
            new.push(if code == table.len() { new[0] } else { table[code][0] });
            table.push(new);
            width = match table.len() {
                0..511 => 9,
                511..1023 => 10,
                1023..2047 => 11,
                _ => 12,
            };
        } else if code > EOI {
            return Err(CodecError::LzwCode(code as u16));
        }
        out.extend(&table[code]);
        prev = Some(table[code].clone());
    }
    out.truncate(room);
    Ok(out)
}

/// Decodes inside a guarded buffer and compares with `naive`.
fn check(codec: &mut Lzw, src: &[u8], room: usize, what: &str) {
    let mut out = vec![0xA5; room + 128];
    let got = codec.decode(src, &mut out[64..64 + room]);
    assert!(out[..64].iter().chain(&out[64 + room..]).all(|&b| b == 0xA5), "{what}: outside");
    match (got, naive(src, room)) {
        (Ok(n), Ok(want)) => assert!(out[64..64 + n] == want[..], "{what}: bytes differ"),
        (Err(a), Err(b)) => assert_eq!(a, b, "{what}"),
        (a, b) => panic!("{what}: {a:?} but naive {:?}", b.map(|v| v.len())),
    }
}

#[test]
fn round_trips() {
    let first = 0x5eed_0004_u64;
    println!("seed {first:#x}");
    let (mut s, mut codec) = (first, Lzw::new());
    for case in 0..4000 {
        let len = (random(&mut s) % if case % 40 == 0 { 60_000 } else { 2000 }) as usize;
        let data = sample(&mut s, len);
        let code = encode(&data);
        let mut out = vec![0; len];
        assert_eq!(codec.decode(&code, &mut out), Ok(len), "case {case}");
        assert!(out == data, "case {case}");
        check(&mut codec, &code, len + 40, &format!("case {case}, roomy"));
        check(&mut codec, &code, len / 2, &format!("case {case}, cut"));
    }
}

#[test]
fn damaged_streams_decode_as_the_naive_decoder_has_it() {
    let first = 0x5eed_0005_u64;
    println!("seed {first:#x}");
    let (mut s, mut codec) = (first, Lzw::new());
    for case in 0..4000 {
        let len = 1 + random(&mut s) as usize % if case % 20 == 0 { 20_000 } else { 1500 };
        let mut code = encode(&sample(&mut s, len));
        for _ in 0..1 + random(&mut s) % 3 {
            let at = random(&mut s) as usize % code.len();
            code[at] ^= 1 << (random(&mut s) % 8);
        }
        if case % 3 == 0 {
            code.truncate(random(&mut s) as usize % code.len());
        }
        check(&mut codec, &code, len, &format!("case {case}"));
    }
    for case in 0..2000 {
        let mut code: Vec<u8> = (0..random(&mut s) % 500).map(|_| random(&mut s) as u8).collect();
        code.splice(0..0, [0x80, 0]);
        check(&mut codec, &code, random(&mut s) as usize % 3000, &format!("noise {case}"));
    }
}

#[test]
fn odd_shapes() {
    let a = usize::from(b'a');
    let mut codec = Lzw::default();
    let mut decode = |codes: &[(usize, u32)], room: usize| {
        let src = pack(codes);
        check(&mut codec, &src, room, &format!("{codes:?}"));
        let mut out = vec![0; room];
        codec.decode(&src, &mut out).map(|n| out[..n].to_vec())
    };
    let (clear, eoi) = ((CLEAR, 9), (EOI, 9));
    assert_eq!(decode(&[], 4), Ok(vec![]));
    assert_eq!(decode(&[eoi], 4), Ok(vec![]));
    assert_eq!(decode(&[clear, eoi], 4), Ok(vec![]));
    assert_eq!(decode(&[(a, 9), eoi], 4), Err(CodecError::LzwWithoutClear));
    assert_eq!(decode(&[clear, clear, clear, (a, 9), (258, 9), eoi], 9), Ok(b"aaa".to_vec()));
    assert_eq!(decode(&[clear, (a, 9), clear, (a, 9), (a, 9), eoi], 9), Ok(b"aaa".to_vec()));
    assert_eq!(decode(&[clear, (a, 9), (258, 9)], 9), Ok(b"aaa".to_vec()), "no EOI");
    assert_eq!(decode(&[clear, (a, 9), (258, 9), (9, 5)], 9), Ok(b"aaa".to_vec()), "half a code");
    assert_eq!(decode(&[clear, (a, 9), eoi, (300, 9)], 9), Ok(b"a".to_vec()), "trailing bytes");
    assert_eq!(decode(&[clear, (a, 9), (258, 9), (300, 9)], 3), Ok(b"aaa".to_vec()), "full");
    assert_eq!(decode(&[clear, (a, 9), (258, 9), (259, 9)], 4), Ok(b"aaaa".to_vec()), "cut");
    assert_eq!(decode(&[clear, (258, 9)], 9), Err(CodecError::LzwCode(258)));
    assert_eq!(decode(&[clear, (a, 9), (259, 9)], 9), Err(CodecError::LzwCode(259)));
    assert_eq!(decode(&[(0, 9), (256, 9)], 9), Err(CodecError::LzwWithoutClear));
    assert_eq!(codec.decode(&[0, 1, 0], &mut [0; 9]), Err(CodecError::OldStyleLzw));
    assert_eq!(codec.decode(&[0], &mut [0; 9]), Ok(0));
}

#[test]
fn a_full_table_goes_on_without_clear_until_libtiff_gives_up() {
    let mut codes = vec![(CLEAR, 9), (7, 9)];
    for next in FIRST..TABLE + 3 {
        let width = match next {
            0..511 => 9,
            511..1023 => 10,
            1023..2047 => 11,
            _ => 12,
        };
        codes.push((next % 256, width));
        let src = pack(&codes);
        if next > 4090 && !(4100..TABLE - 3).contains(&next) {
            let made = next - FIRST + 2;
            let got = Lzw::new().decode(&src, &mut vec![0; made + 10]);
            let want = if next < TABLE { Ok(made) } else { Err(CodecError::LzwTableFull) };
            assert_eq!(got, want, "{next}");
            check(&mut Lzw::new(), &src, made + 10, &format!("{next}"));
        }
    }
}
