//! Integer arithmetic.

use super::recipe::{Recipe, one, three, two};
use crate::registers::{LANES, Operands, Registers, Word};

/// The recipe of an opcode, if it is one of these.
pub(super) fn recipe(opcode: &str) -> Option<Recipe> {
    sums(opcode).or_else(|| products(opcode)).or_else(|| quotients(opcode)).or_else(|| rest(opcode))
}

fn sums(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "add.s16" | "add.u16" => two!(u16, u16::wrapping_add),
        "add.s32" | "add.u32" => two!(u32, u32::wrapping_add),
        "add.s64" | "add.u64" => two!(u64, u64::wrapping_add),
        "add.sat.s32" => two!(u32, |a, b| (a as i32).saturating_add(b as i32) as u32),
        "sub.s16" | "sub.u16" => two!(u16, u16::wrapping_sub),
        "sub.s32" | "sub.u32" => two!(u32, u32::wrapping_sub),
        "sub.s64" | "sub.u64" => two!(u64, u64::wrapping_sub),
        "sub.sat.s32" => two!(u32, |a, b| (a as i32).saturating_sub(b as i32) as u32),
        "neg.s16" => one!(u16, u16::wrapping_neg),
        "neg.s32" => one!(u32, u32::wrapping_neg),
        "neg.s64" => one!(u64, u64::wrapping_neg),
        "abs.s16" => one!(u16, |a| (a as i16).wrapping_abs() as u16),
        "abs.s32" => one!(u32, |a| (a as i32).wrapping_abs() as u32),
        "abs.s64" => one!(u64, |a| (a as i64).wrapping_abs() as u64),
        "min.u16" => two!(u16, |a, b| a.min(b)),
        "min.u32" => two!(u32, |a, b| a.min(b)),
        "min.u64" => two!(u64, |a, b| a.min(b)),
        "min.s16" => two!(u16, |a, b| (a as i16).min(b as i16) as u16),
        "min.s32" => two!(u32, |a, b| (a as i32).min(b as i32) as u32),
        "min.s64" => two!(u64, |a, b| (a as i64).min(b as i64) as u64),
        "max.u16" => two!(u16, |a, b| a.max(b)),
        "max.u32" => two!(u32, |a, b| a.max(b)),
        "max.u64" => two!(u64, |a, b| a.max(b)),
        "max.s16" => two!(u16, |a, b| (a as i16).max(b as i16) as u16),
        "max.s32" => two!(u32, |a, b| (a as i32).max(b as i32) as u32),
        "max.s64" => two!(u64, |a, b| (a as i64).max(b as i64) as u64),
        _ => return None,
    })
}

fn high32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}
fn high32s(a: u32, b: u32) -> u32 {
    ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
}
fn high64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}
fn high64s(a: u64, b: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
}
fn high16(a: u16, b: u16) -> u16 {
    ((u32::from(a) * u32::from(b)) >> 16) as u16
}
fn high16s(a: u16, b: u16) -> u16 {
    ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16
}
fn wide16(a: u16, b: u16) -> u32 {
    u32::from(a) * u32::from(b)
}
fn wide16s(a: u16, b: u16) -> u32 {
    (i32::from(a as i16) * i32::from(b as i16)) as u32
}
fn wide32(a: u32, b: u32) -> u64 {
    u64::from(a) * u64::from(b)
}
fn wide32s(a: u32, b: u32) -> u64 {
    (i64::from(a as i32) * i64::from(b as i32)) as u64
}
fn low24(a: u32, b: u32) -> u32 {
    (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)
}
fn low24s(a: u32, b: u32) -> u32 {
    let cut = |v: u32| ((v << 8) as i32) >> 8;
    cut(a).wrapping_mul(cut(b)) as u32
}

fn products(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "mul.lo.s16" | "mul.lo.u16" => two!(u16, u16::wrapping_mul),
        "mul.lo.s32" | "mul.lo.u32" => two!(u32, u32::wrapping_mul),
        "mul.lo.s64" | "mul.lo.u64" => two!(u64, u64::wrapping_mul),
        "mul.hi.u16" => two!(u16, high16),
        "mul.hi.s16" => two!(u16, high16s),
        "mul.hi.u32" => two!(u32, high32),
        "mul.hi.s32" => two!(u32, high32s),
        "mul.hi.u64" => two!(u64, high64),
        "mul.hi.s64" => two!(u64, high64s),
        "mul.wide.u16" => two!(u32, u16, u16, wide16),
        "mul.wide.s16" => two!(u32, u16, u16, wide16s),
        "mul.wide.u32" => two!(u64, u32, u32, wide32),
        "mul.wide.s32" => two!(u64, u32, u32, wide32s),
        "mul24.lo.u32" => two!(u32, low24),
        "mul24.lo.s32" => two!(u32, low24s),
        "mad.lo.s16" | "mad.lo.u16" => three!(u16, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "mad.lo.s32" | "mad.lo.u32" => three!(u32, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "mad.lo.s64" | "mad.lo.u64" => three!(u64, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "mad.hi.u16" => three!(u16, |a, b, c| high16(a, b).wrapping_add(c)),
        "mad.hi.s16" => three!(u16, |a, b, c| high16s(a, b).wrapping_add(c)),
        "mad.hi.u32" => three!(u32, |a, b, c| high32(a, b).wrapping_add(c)),
        "mad.hi.s32" => three!(u32, |a, b, c| high32s(a, b).wrapping_add(c)),
        "mad.hi.u64" => three!(u64, |a, b, c| high64(a, b).wrapping_add(c)),
        "mad.hi.s64" => three!(u64, |a, b, c| high64s(a, b).wrapping_add(c)),
        "mad.wide.u16" => three!(u32, u16, u16, u32, |a, b, c| wide16(a, b).wrapping_add(c)),
        "mad.wide.s16" => three!(u32, u16, u16, u32, |a, b, c| wide16s(a, b).wrapping_add(c)),
        "mad.wide.u32" => three!(u64, u32, u32, u64, |a, b, c| wide32(a, b).wrapping_add(c)),
        "mad.wide.s32" => three!(u64, u32, u32, u64, |a, b, c| wide32s(a, b).wrapping_add(c)),
        "mad24.lo.u32" => three!(u32, |a, b, c| low24(a, b).wrapping_add(c)),
        "mad24.lo.s32" => three!(u32, |a, b, c| low24s(a, b).wrapping_add(c)),
        _ => return None,
    })
}

/// Division by zero gives all ones and leaves the dividend as the rest: unspecified by PTX.
fn quotients(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "div.u16" => two!(u16, |a, b| a.checked_div(b).unwrap_or(!0)),
        "div.u32" => two!(u32, |a, b| a.checked_div(b).unwrap_or(!0)),
        "div.u64" => two!(u64, |a, b| a.checked_div(b).unwrap_or(!0)),
        "div.s16" => two!(u16, |a, b| quotient(a as i16 as i64, b as i16 as i64) as u16),
        "div.s32" => two!(u32, |a, b| quotient(a as i32 as i64, b as i32 as i64) as u32),
        "div.s64" => two!(u64, |a, b| quotient(a as i64, b as i64) as u64),
        "rem.u16" => two!(u16, |a, b| a.checked_rem(b).unwrap_or(a)),
        "rem.u32" => two!(u32, |a, b| a.checked_rem(b).unwrap_or(a)),
        "rem.u64" => two!(u64, |a, b| a.checked_rem(b).unwrap_or(a)),
        "rem.s16" => two!(u16, |a, b| remainder(a as i16 as i64, b as i16 as i64) as u16),
        "rem.s32" => two!(u32, |a, b| remainder(a as i32 as i64, b as i32 as i64) as u32),
        "rem.s64" => two!(u64, |a, b| remainder(a as i64, b as i64) as u64),
        _ => return None,
    })
}

fn quotient(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}
fn remainder(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

fn rest(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "sad.u32" => three!(u32, |a, b, c| c.wrapping_add(a.abs_diff(b))),
        "sad.s32" => three!(u32, |a, b, c| c.wrapping_add((a as i32).abs_diff(b as i32))),
        "dp4a.u32.u32" => three!(u32, |a, b, c| dot(a, b, c, false, false)),
        "dp4a.s32.s32" => three!(u32, |a, b, c| dot(a, b, c, true, true)),
        "dp4a.u32.s32" => three!(u32, |a, b, c| dot(a, b, c, false, true)),
        "dp4a.s32.u32" => three!(u32, |a, b, c| dot(a, b, c, true, false)),
        _ => return carried(opcode),
    })
}

fn dot(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool) -> u32 {
    let of = |v: u8, signed: bool| if signed { i32::from(v as i8) } else { i32::from(v) };
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    (0..4).fold(c, |sum, i| sum.wrapping_add((of(a[i], signed_a) * of(b[i], signed_b)) as u32))
}

const CARRY_IN: u32 = 1;
const CARRY_OUT: u32 = 2;

/// The instructions that use the carry flag: add, sub and mad with `.cc` or a `c` at the end.
fn carried(opcode: &str) -> Option<Recipe> {
    let (name, kind) = opcode.split_once('.')?;
    let (kind, out) = match kind.split_once("cc.") {
        Some((before, after)) => (format!("{before}{after}"), CARRY_OUT),
        None => (kind.to_string(), 0),
    };
    let into = if matches!(name, "addc" | "subc" | "madc") { CARRY_IN } else { 0 };
    if into | out == 0 {
        return None;
    }
    let kind = kind.replace(".s", ".u").replace("s32", "u32").replace("s64", "u64");
    let mut recipe = match (name, kind.as_str()) {
        ("add" | "addc", "u32") => two_carried::<u32>(add::<u32>),
        ("add" | "addc", "u64") => two_carried::<u64>(add::<u64>),
        ("sub" | "subc", "u32") => two_carried::<u32>(subtract::<u32>),
        ("sub" | "subc", "u64") => two_carried::<u64>(subtract::<u64>),
        ("mad" | "madc", _) => multiply_add(&opcode.replace(".cc", ""))?,
        _ => return None,
    };
    recipe.k = into | out;
    Some(recipe)
}

fn two_carried<T: Word>(run: crate::registers::LaneFn) -> Recipe {
    Recipe { run, d: T::CLASS, s: &[T::CLASS, T::CLASS], k: 0 }
}

/// Adds with the carry as the flags say; bits beyond the word become the carry.
fn lanes_with_carry<T: Word>(
    r: &mut Registers,
    o: &Operands,
    mask: u32,
    f: impl Fn(&Registers, usize, u128) -> u128,
) {
    for lane in (0..LANES).filter(|i| mask >> i & 1 != 0) {
        let carry = if o.k & CARRY_IN != 0 { r.carry >> lane & 1 } else { 0 };
        let sum = f(r, lane, carry.into());
        T::file_mut(r)[o.d as usize][lane] = T::narrow(sum as u64);
        if o.k & CARRY_OUT != 0 {
            let out = u32::from(sum >> T::BITS & 1 != 0);
            r.carry = r.carry & !(1 << lane) | out << lane;
        }
    }
}

fn add<T: Word>(r: &mut Registers, o: &Operands, mask: u32) {
    lanes_with_carry::<T>(r, o, mask, |r, lane, carry| {
        let of = |i: usize| u128::from(T::file(r)[o.s[i] as usize][lane].wide());
        of(0) + of(1) + carry
    });
}

/// The borrow is bit BITS of the wrapped difference.
fn subtract<T: Word>(r: &mut Registers, o: &Operands, mask: u32) {
    lanes_with_carry::<T>(r, o, mask, |r, lane, carry| {
        let of = |i: usize| u128::from(T::file(r)[o.s[i] as usize][lane].wide());
        of(0).wrapping_sub(of(1)).wrapping_sub(carry)
    });
}

fn multiply_add(opcode: &str) -> Option<Recipe> {
    macro_rules! carried {
        ($t:ty, $f:expr) => {{
            fn run(r: &mut Registers, o: &Operands, mask: u32) {
                lanes_with_carry::<$t>(r, o, mask, |r, lane, carry| {
                    let of = |i: usize| <$t>::file(r)[o.s[i] as usize][lane];
                    u128::from($f(of(0), of(1))) + u128::from(of(2)) + carry
                });
            }
            Recipe { run, d: <$t>::CLASS, s: &[<$t>::CLASS; 3], k: 0 }
        }};
    }
    let kind = opcode.split_once('.')?.1;
    Some(match kind {
        "lo.u32" | "lo.s32" => carried!(u32, u32::wrapping_mul),
        "lo.u64" | "lo.s64" => carried!(u64, u64::wrapping_mul),
        "hi.u32" => carried!(u32, high32),
        "hi.s32" => carried!(u32, high32s),
        "hi.u64" => carried!(u64, high64),
        "hi.s64" => carried!(u64, high64s),
        _ => return None,
    })
}
