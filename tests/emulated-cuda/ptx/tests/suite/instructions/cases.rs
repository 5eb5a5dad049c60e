//! What instructions compute, written down independently of how they are executed: in wide
//! integers, bit by bit, or by Rust's own types.

use super::{Case, Expected};

fn case(opcode: &'static str, classes: &'static str, expected: Expected) -> Case {
    Case { opcode, classes, expected }
}

fn s16(v: u64) -> i128 {
    (v as i16).into()
}
fn s32(v: u64) -> i128 {
    (v as i32).into()
}
fn s64(v: u64) -> i128 {
    (v as i64).into()
}
fn u16s(v: u64) -> i128 {
    (v as u16).into()
}
fn u32s(v: u64) -> i128 {
    (v as u32).into()
}
fn u64s(v: u64) -> i128 {
    v.into()
}

/// Cases for an operation on two numbers in all widths and both signs.
macro_rules! all_widths {
    ($list:ident, $name:literal, $f:expr) => {
        $list.push(case(concat!($name, ".u16"), "hhh", |a, b, _| $f(u16s(a), u16s(b)) as u64));
        $list.push(case(concat!($name, ".s16"), "hhh", |a, b, _| $f(s16(a), s16(b)) as u64));
        $list.push(case(concat!($name, ".u32"), "rrr", |a, b, _| $f(u32s(a), u32s(b)) as u64));
        $list.push(case(concat!($name, ".s32"), "rrr", |a, b, _| $f(s32(a), s32(b)) as u64));
        $list.push(case(concat!($name, ".u64"), "ddd", |a, b, _| $f(u64s(a), u64s(b)) as u64));
        $list.push(case(concat!($name, ".s64"), "ddd", |a, b, _| $f(s64(a), s64(b)) as u64));
    };
}

pub(super) fn arithmetic() -> Vec<Case> {
    let mut list = Vec::new();
    all_widths!(list, "add", |a: i128, b: i128| a + b);
    all_widths!(list, "sub", |a: i128, b: i128| a - b);
    all_widths!(list, "mul.lo", |a: i128, b: i128| a.wrapping_mul(b));
    all_widths!(list, "min", |a: i128, b: i128| a.min(b));
    all_widths!(list, "max", |a: i128, b: i128| a.max(b));
    all_widths!(list, "div", |a: i128, b: i128| if b == 0 { -1 } else { a / b });
    all_widths!(list, "rem", |a: i128, b: i128| if b == 0 { a } else { a % b });
    list.extend([
        case("mul.hi.u16", "hhh", |a, b, _| ((u16s(a) * u16s(b)) >> 16) as u64),
        case("mul.hi.s16", "hhh", |a, b, _| ((s16(a) * s16(b)) >> 16) as u64),
        case("mul.hi.u32", "rrr", |a, b, _| ((u32s(a) * u32s(b)) >> 32) as u64),
        case("mul.hi.s32", "rrr", |a, b, _| ((s32(a) * s32(b)) >> 32) as u64),
        case("mul.hi.u64", "ddd", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        case("mul.hi.s64", "ddd", |a, b, _| ((s64(a) * s64(b)) >> 64) as u64),
        case("mul.wide.u16", "rhh", |a, b, _| (u16s(a) * u16s(b)) as u64),
        case("mul.wide.s16", "rhh", |a, b, _| (s16(a) * s16(b)) as u64),
        case("mul.wide.u32", "drr", |a, b, _| (u32s(a) * u32s(b)) as u64),
        case("mul.wide.s32", "drr", |a, b, _| (s32(a) * s32(b)) as u64),
        case("mad.lo.s16", "hhhh", |a, b, c| (s16(a) * s16(b) + s16(c)) as u64),
        case("mad.lo.u32", "rrrr", |a, b, c| (u32s(a) * u32s(b) + u32s(c)) as u64),
        case("mad.lo.s64", "dddd", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        case("mad.hi.u32", "rrrr", |a, b, c| (((u32s(a) * u32s(b)) >> 32) + u32s(c)) as u64),
        case("mad.hi.s32", "rrrr", |a, b, c| (((s32(a) * s32(b)) >> 32) + s32(c)) as u64),
        case("mad.hi.s64", "dddd", |a, b, c| (((s64(a) * s64(b)) >> 64) + s64(c)) as u64),
        case("mad.wide.u16", "rhhr", |a, b, c| (u16s(a) * u16s(b) + u32s(c)) as u64),
        case("mad.wide.s16", "rhhr", |a, b, c| (s16(a) * s16(b) + u32s(c)) as u64),
        case("mad.wide.u32", "drrd", |a, b, c| (u32s(a) * u32s(b) + u64s(c)) as u64),
        case("mad.wide.s32", "drrd", |a, b, c| (s32(a) * s32(b) + u64s(c)) as u64),
        case("mul24.lo.u32", "rrr", |a, b, _| (a & 0xff_ffff) * (b & 0xff_ffff)),
        case("neg.s16", "hh", |a, _, _| -s16(a) as u64),
        case("neg.s32", "rr", |a, _, _| -s32(a) as u64),
        case("neg.s64", "dd", |a, _, _| -s64(a) as u64),
        case("abs.s16", "hh", |a, _, _| s16(a).unsigned_abs() as u64),
        case("abs.s32", "rr", |a, _, _| s32(a).unsigned_abs() as u64),
        case("abs.s64", "dd", |a, _, _| s64(a).unsigned_abs() as u64),
        case("sad.u32", "rrrr", |a, b, c| ((u32s(a) - u32s(b)).abs() + u32s(c)) as u64),
        case("sad.s32", "rrrr", |a, b, c| ((s32(a) - s32(b)).abs() + u32s(c)) as u64),
        case("add.sat.s32", "rrr", |a, b, _| saturated(s32(a) + s32(b))),
        case("sub.sat.s32", "rrr", |a, b, _| saturated(s32(a) - s32(b))),
        // The carry goes through the flag: 128 bits from 64, and 64 bits from 32.
        case("=add.cc.u64 %d0, %d1, %d3; addc.u64 %d0, 0, 0", "d", |a, _, c| {
            a.overflowing_add(c).1.into()
        }),
        case("=sub.cc.u32 %r0, %r1, %r3; subc.u32 %r0, 5, 2", "r", |a, _, c| {
            3 - u64::from((a as u32) < c as u32)
        }),
        case("=mad.lo.cc.u32 %r0, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, 0", "r", |a, b, c| {
            ((u32s(a) * u32s(b) + u32s(c)) >> 32) as u64
        }),
        case("dp4a.u32.u32", "rrrr", |a, b, c| dot(a, b, c, i64::from, i64::from)),
        case("dp4a.s32.u32", "rrrr", |a, b, c| dot(a, b, c, |v| i64::from(v as i8), i64::from)),
    ]);
    list
}

fn saturated(v: i128) -> u64 {
    v.clamp(i32::MIN.into(), i32::MAX.into()) as u64
}

fn dot(a: u64, b: u64, c: u64, of_a: fn(u8) -> i64, of_b: fn(u8) -> i64) -> u64 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let sum: i64 = (0..4).map(|i| of_a(a[i]) * of_b(b[i])).sum();
    (c as i64).wrapping_add(sum) as u64
}

/// Bit `i` of a word of `width` bits that goes on with `fill`.
fn bit(v: u64, i: u64, width: u64, fill: bool) -> bool {
    if i < width { v >> i & 1 != 0 } else { fill }
}

/// A word of `width` bits, each by its position.
fn bitwise(width: u64, f: impl Fn(u64) -> bool) -> u64 {
    (0..width).fold(0, |v, i| v | u64::from(f(i)) << i)
}

fn extracted(a: u64, b: u64, c: u64, width: u64, signed: bool) -> u64 {
    let (position, length) = (b & 255, c & 255);
    let last = (position + length).saturating_sub(1).min(width - 1);
    let sign = signed && length > 0 && bit(a, last, width, false);
    bitwise(width, |i| {
        if i < length && position + i < width { bit(a, position + i, width, sign) } else { sign }
    })
}

fn shifted(a: u64, n: u64, width: u64, fill: bool) -> u64 {
    let n = n & 0xffff_ffff;
    bitwise(width, |i| bit(a, i.saturating_add(n), width, fill))
}

fn shifted_left(a: u64, n: u64, width: u64) -> u64 {
    let n = n & 0xffff_ffff;
    bitwise(width, |i| i >= n && bit(a, i - n, width, false))
}

fn funnel(a: u64, b: u64) -> u64 {
    b << 32 | a & 0xffff_ffff
}

pub(super) fn bits() -> Vec<Case> {
    vec![
        case("and.b16", "hhh", |a, b, _| a & b),
        case("and.b32", "rrr", |a, b, _| a & b),
        case("or.b64", "ddd", |a, b, _| a | b),
        case("xor.b32", "rrr", |a, b, _| a ^ b),
        case("not.b16", "hh", |a, _, _| !a),
        case("not.b64", "dd", |a, _, _| !a),
        case("cnot.b32", "rr", |a, _, _| (a as u32 == 0).into()),
        case("and.pred", "ppp", |a, b, _| a & b),
        case("or.pred", "ppp", |a, b, _| a | b),
        case("xor.pred", "ppp", |a, b, _| a ^ b),
        case("not.pred", "pp", |a, _, _| !a),
        case("mov.pred", "pp", |a, _, _| a),
        case("lop3.b32 0x96", "rrrr", |a, b, c| a ^ b ^ c),
        case("lop3.b32 0xe8", "rrrr", |a, b, c| a & b | b & c | a & c),
        case("lop3.b32 0x2a", "rrrr", |a, b, c| c & !(a & b)),
        case("shl.b16", "hhr", |a, b, _| shifted_left(a, b, 16)),
        case("shl.b32", "rrr", |a, b, _| shifted_left(a, b, 32)),
        case("shl.b64", "ddr", |a, b, _| shifted_left(a, b, 64)),
        case("shr.u16", "hhr", |a, b, _| shifted(a, b, 16, false)),
        case("shr.u32", "rrr", |a, b, _| shifted(a, b, 32, false)),
        case("shr.u64", "ddr", |a, b, _| shifted(a, b, 64, false)),
        case("shr.s16", "hhr", |a, b, _| shifted(a, b, 16, (a as i16) < 0)),
        case("shr.s32", "rrr", |a, b, _| shifted(a, b, 32, (a as i32) < 0)),
        case("shr.s64", "ddr", |a, b, _| shifted(a, b, 64, (a as i64) < 0)),
        case("shf.l.wrap.b32", "rrrr", |a, b, c| shifted_left(funnel(a, b), c & 31, 64) >> 32),
        case("shf.r.wrap.b32", "rrrr", |a, b, c| shifted(funnel(a, b), c & 31, 64, false)),
        case("shf.l.clamp.b32", "rrrr", |a, b, c| {
            shifted_left(funnel(a, b), u64::from(c as u32).min(32), 64) >> 32
        }),
        case("shf.r.clamp.b32", "rrrr", |a, b, c| {
            shifted(funnel(a, b), u64::from(c as u32).min(32), 64, false)
        }),
        case("bfe.u32", "rrrr", |a, b, c| extracted(a, b, c, 32, false)),
        case("bfe.s32", "rrrr", |a, b, c| extracted(a, b, c, 32, true)),
        case("bfe.u64", "ddrr", |a, b, c| extracted(a, b, c, 64, false)),
        case("bfe.s64", "ddrr", |a, b, c| extracted(a, b, c, 64, true)),
        case("bfi.b32 5, 11", "rrr", |a, b, _| {
            bitwise(
                32,
                |i| {
                    if (5..16).contains(&i) { a >> (i - 5) & 1 != 0 } else { b >> i & 1 != 0 }
                },
            )
        }),
        case("bfi.b32 %r3, 20", "rrr", |a, b, c| {
            bitwise(32, |i| {
                let begin = c & 255;
                if i >= begin && i < begin + 20 {
                    a >> (i - begin) & 1 != 0
                } else {
                    b >> i & 1 != 0
                }
            })
        }),
        case("bfi.b64 8, %r3", "ddd", |a, b, c| {
            bitwise(64, |i| {
                if i >= 8 && i < 8 + (c & 255) { a >> (i - 8) & 1 != 0 } else { b >> i & 1 != 0 }
            })
        }),
        case("prmt.b32", "rrrr", |a, b, c| {
            let bytes = funnel(a, b).to_le_bytes();
            (0..4).fold(0, |v, i| {
                let pick = c >> (4 * i) & 15;
                let byte = bytes[pick as usize & 7];
                let byte = if pick < 8 {
                    byte
                } else if byte < 128 {
                    0
                } else {
                    255
                };
                v | u64::from(byte) << (8 * i)
            })
        }),
        case("prmt.b32.f4e", "rrrr", |a, b, c| funnel(a, b) >> (8 * (c & 3))),
        case("prmt.b32.rc8", "rrrr", |a, _, c| (a >> (8 * (c & 3)) & 255) * 0x0101_0101),
        case("prmt.b32.rc16", "rrrr", |a, _, c| (a >> (16 * (c & 1)) & 0xffff) * 0x0001_0001),
        case("popc.b32", "rr", |a, _, _| (0..32).map(|i| a >> i & 1).sum()),
        case("popc.b64", "rd", |a, _, _| (0..64).map(|i| a >> i & 1).sum()),
        case("clz.b32", "rr", |a, _, _| {
            (0..32).rev().take_while(|i| a >> i & 1 == 0).count() as u64
        }),
        case("clz.b64", "rd", |a, _, _| {
            (0..64).rev().take_while(|i| a >> i & 1 == 0).count() as u64
        }),
        case("brev.b32", "rr", |a, _, _| bitwise(32, |i| a >> (31 - i) & 1 != 0)),
        case("brev.b64", "dd", |a, _, _| bitwise(64, |i| a >> (63 - i) & 1 != 0)),
        case("bfind.u32", "rr", |a, _, _| {
            (0..32).rev().find(|i| a >> i & 1 != 0).unwrap_or(u64::MAX)
        }),
        case("bfind.s32", "rr", |a, _, _| {
            (0..32).rev().find(|i| a >> i & 1 != a >> 31 & 1).unwrap_or(u64::MAX)
        }),
        case("bfind.shiftamt.u64", "rd", |a, _, _| {
            (0..64).rev().find(|i| a >> i & 1 != 0).map_or(u64::MAX, |i| 63 - i)
        }),
    ]
}

pub(super) fn comparisons() -> Vec<Case> {
    let mut list = vec![
        case("setp.eq.b16", "phh", |a, b, _| (a as u16 == b as u16).into()),
        case("setp.eq.u32", "prr", |a, b, _| (a as u32 == b as u32).into()),
        case("setp.ne.b64", "pdd", |a, b, _| (a != b).into()),
        case("setp.lo.u32", "prr", |a, b, _| (u32s(a) < u32s(b)).into()),
        case("setp.hs.u64", "pdd", |a, b, _| (a >= b).into()),
        case("setp.lt.and.s32 %p3", "prr", |a, b, c| u64::from(s32(a) < s32(b)) & c),
        case("setp.ge.or.u16 !%p3", "phh", |a, b, c| u64::from(u16s(a) >= u16s(b)) | !c),
        case("setp.gt.xor.s64 %p3", "pdd", |a, b, c| u64::from(s64(a) > s64(b)) ^ c),
        case("=setp.lt.s32 %p1|%p0, %r1, %r2", "p", |a, b, _| (s32(a) >= s32(b)).into()),
        case("=setp.gt.or.u32 %p0|%p1, %r1, %r2, %p3; selp.u32 %r0, 1, 0, %p1", "r", |a, b, c| {
            u64::from(u32s(a) <= u32s(b)) | c & 1
        }),
        case("set.le.u32.s32", "rrr", |a, b, _| if s32(a) <= s32(b) { u64::MAX } else { 0 }),
        case("set.gt.f32.u32", "rrr", |a, b, _| if u32s(a) > u32s(b) { 0x3f80_0000 } else { 0 }),
        case("selp.b16", "hhhp", |a, b, c| if c & 1 != 0 { a } else { b }),
        case("selp.b32", "rrrp", |a, b, c| if c & 1 != 0 { a } else { b }),
        case("selp.f64", "dddp", |a, b, c| if c & 1 != 0 { a } else { b }),
        case("slct.u32.s32", "rrrr", |a, b, c| if (c as i32) < 0 { b } else { a }),
    ];
    macro_rules! ordered {
        ($($name:literal, $op:tt;)*) => {$(
            list.push(case(concat!("setp.", $name, ".u16"), "phh", |a, b, _| (u16s(a) $op u16s(b)).into()));
            list.push(case(concat!("setp.", $name, ".s16"), "phh", |a, b, _| (s16(a) $op s16(b)).into()));
            list.push(case(concat!("setp.", $name, ".u32"), "prr", |a, b, _| (u32s(a) $op u32s(b)).into()));
            list.push(case(concat!("setp.", $name, ".s32"), "prr", |a, b, _| (s32(a) $op s32(b)).into()));
            list.push(case(concat!("setp.", $name, ".u64"), "pdd", |a, b, _| (u64s(a) $op u64s(b)).into()));
            list.push(case(concat!("setp.", $name, ".s64"), "pdd", |a, b, _| (s64(a) $op s64(b)).into()));
        )*};
    }
    ordered!("lt", <; "le", <=; "gt", >; "ge", >=; "eq", ==; "ne", !=;);
    list
}

pub(super) fn conversions() -> Vec<Case> {
    vec![
        case("cvt.u32.u64", "rd", |a, _, _| a),
        case("cvt.u64.u32", "dr", |a, _, _| u32s(a) as u64),
        case("cvt.s64.s32", "dr", |a, _, _| s32(a) as u64),
        case("cvt.u64.s32", "dr", |a, _, _| s32(a) as u64),
        case("cvt.s64.u32", "dr", |a, _, _| u32s(a) as u64),
        case("cvt.u16.u32", "hr", |a, _, _| a),
        case("cvt.s32.s16", "rh", |a, _, _| s16(a) as u64),
        case("cvt.u32.u16", "rh", |a, _, _| u16s(a) as u64),
        case("cvt.s32.s8", "rr", |a, _, _| a as i8 as u64),
        case("cvt.u32.u8", "rr", |a, _, _| u64::from(a as u8)),
        case("cvt.s16.s8", "hr", |a, _, _| a as i8 as u64),
        case("cvt.u16.u8", "hh", |a, _, _| u64::from(a as u8)),
        case("cvt.u8.s32", "hr", |a, _, _| u64::from(a as u8)),
        case("cvt.s8.u64", "rd", |a, _, _| a as i8 as u64),
        case("cvt.s8.u8", "hh", |a, _, _| a as i8 as u64),
        case("cvt.u8.s8", "rr", |a, _, _| u64::from(a as u8)),
        case("cvt.s64.s8", "dd", |a, _, _| a as i8 as u64),
        case("cvt.u32.s16", "dr", |a, _, _| u64::from(s16(a) as u32)),
        case("cvt.sat.u8.s32", "rr", |a, _, _| s32(a).clamp(0, 255) as u64),
        case("cvt.sat.s16.s64", "hd", |a, _, _| s64(a).clamp(-32768, 32767) as u64),
        case("cvt.sat.u32.s64", "rd", |a, _, _| s64(a).clamp(0, 0xffff_ffff) as u64),
        case("cvt.rn.f32.u32", "rr", |a, _, _| (a as u32 as f32).to_bits().into()),
        case("cvt.rn.f32.s64", "rd", |a, _, _| (a as i64 as f32).to_bits().into()),
        case("cvt.rz.f32.u64", "rd", |a, _, _| {
            // The 24 bits from the highest on, the rest cut off.
            let cut = if a == 0 { 0 } else { a & !(u64::MAX >> 24 >> a.leading_zeros()) };
            (cut as f32).to_bits().into()
        }),
        case("cvt.rn.f64.s32", "dr", |a, _, _| f64::from(a as i32).to_bits()),
        case("cvt.rn.f64.u64", "dd", |a, _, _| (a as f64).to_bits()),
        case("cvt.rzi.s32.f32", "rr", |a, _, _| f32::from_bits(a as u32) as i32 as u64),
        case("cvt.rzi.u32.f64", "rd", |a, _, _| u64::from(f64::from_bits(a) as u32)),
        case("cvt.rni.s64.f64", "dd", |a, _, _| {
            let v = f64::from_bits(a);
            if v.is_nan() { 1 << 63 } else { v.round_ties_even() as i64 as u64 }
        }),
        case("cvt.rmi.s32.f32", "rr", |a, _, _| f32::from_bits(a as u32).floor() as i32 as u64),
        case("cvt.rpi.s32.f32", "rr", |a, _, _| f32::from_bits(a as u32).ceil() as i32 as u64),
        case("=mov.b64 %d0, {%r1, %r2}", "d", |a, b, _| funnel(a, b)),
        case("=mov.b32 %r0, {%h1, %h2}", "r", |a, b, _| a & 0xffff | b << 16),
        case("=mov.b64 %d0, {%h1, %h2, %h3, %h1}", "d", |a, b, c| {
            a & 0xffff | (b & 0xffff) << 16 | (c & 0xffff) << 32 | a << 48
        }),
        case("=mov.b64 {%r0, %r5}, %d1; sub.u32 %r0, %r5, %r0", "r", |a, _, _| {
            (a >> 32).wrapping_sub(a)
        }),
        case("=mov.b32 {%h1, %h0}, %r1", "h", |a, _, _| a >> 16),
        case("=mov.b64 {_, _, %h0, _}, %d1", "h", |a, _, _| a >> 32),
        case(
            "=mov.u32 %r0, 77; @%p1 mov.u32 %r0, %r2; @!%p3 mov.u32 %r0, 9",
            "r",
            |a, b, c| match (a & 1, c & 1) {
                (_, 0) => 9,
                (1, _) => b,
                _ => 77,
            },
        ),
    ]
}

fn one(f: impl Fn(f32, f32, f32) -> f32, a: u64, b: u64, c: u64) -> u64 {
    let of = |v: u64| (v as i32) as f32 / 64.0;
    f(of(a), of(b), of(c)).to_bits().into()
}

/// Operands are made fractions first, so that they are numbers of all sizes and no NaN.
macro_rules! single {
    ($opcode:literal, $f:expr) => {
        case(
            concat!(
                "=cvt.rn.f32.s32 %r1, %r1; mul.f32 %r1, %r1, 0.015625;",
                "cvt.rn.f32.s32 %r2, %r2; mul.f32 %r2, %r2, 0f3C800000;",
                "cvt.rn.f32.s32 %r3, %r3; mul.rn.f32 %r3, %r3, 0f3C800000;",
                $opcode
            ),
            "r",
            |a, b, c| one($f, a, b, c),
        )
    };
}

pub(super) fn floats() -> Vec<Case> {
    vec![
        single!("add.f32 %r0, %r1, %r2", |a, b, _| a + b),
        single!("sub.rn.f32 %r0, %r1, %r2", |a, b, _| a - b),
        single!("mul.f32 %r0, %r1, %r2", |a, b, _| a * b),
        single!("fma.rn.f32 %r0, %r1, %r2, %r3", |a, b, c| a.mul_add(b, c)),
        single!("div.rn.f32 %r0, %r1, %r2", |a, b, _| a / b),
        single!("neg.f32 %r0, %r1", |a, _, _| -a),
        single!("abs.f32 %r0, %r1", |a, _, _| a.abs()),
        single!("min.f32 %r0, %r1, %r2", |a, b, _| if a < b { a } else { b }),
        single!("max.f32 %r0, %r1, %r2", |a, b, _| if a > b { a } else { b }),
        single!("abs.f32 %r1, %r1; sqrt.rn.f32 %r0, %r1", |a, _, _| a.abs().sqrt()),
        single!("setp.lt.f32 %p1, %r1, %r2; selp.f32 %r0, %r1, %r2, %p1", |a, b, _| a.min(b)),
        single!("cvt.rmi.f32.f32 %r0, %r1", |a, _, _| a.floor()),
        single!("cvt.f64.f32 %d1, %r1; cvt.rn.f32.f64 %r0, %d1", |a, _, _| a),
    ]
}
