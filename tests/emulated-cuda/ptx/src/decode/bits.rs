//! Logic, shifts and what works on single bits and bytes.

use super::recipe::{Recipe, one, three, two};
use crate::registers::{Class, Operands, Registers, Word};

/// The recipe of an opcode, if it is one of these.
pub(super) fn recipe(opcode: &str) -> Option<Recipe> {
    logic(opcode).or_else(|| shifts(opcode)).or_else(|| fields(opcode)).or_else(|| counts(opcode))
}

fn logic(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "and.b16" => two!(u16, |a, b| a & b),
        "and.b32" => two!(u32, |a, b| a & b),
        "and.b64" => two!(u64, |a, b| a & b),
        "or.b16" => two!(u16, |a, b| a | b),
        "or.b32" => two!(u32, |a, b| a | b),
        "or.b64" => two!(u64, |a, b| a | b),
        "xor.b16" => two!(u16, |a, b| a ^ b),
        "xor.b32" => two!(u32, |a, b| a ^ b),
        "xor.b64" => two!(u64, |a, b| a ^ b),
        "not.b16" => one!(u16, |a| !a),
        "not.b32" => one!(u32, |a| !a),
        "not.b64" => one!(u64, |a| !a),
        "cnot.b16" => one!(u16, |a| u16::from(a == 0)),
        "cnot.b32" => one!(u32, |a| u32::from(a == 0)),
        "cnot.b64" => one!(u64, |a| u64::from(a == 0)),
        "and.pred" => predicates(|a, b| a & b),
        "or.pred" => predicates(|a, b| a | b),
        "xor.pred" => predicates(|a, b| a ^ b),
        "not.pred" => {
            fn run(r: &mut Registers, o: &Operands, mask: u32) {
                r.set_predicate(o.d, !r.predicate(o.s[0]), mask);
            }
            Recipe { run, d: Class::Predicate, s: &[Class::Predicate], k: 0 }
        }
        "lop3.b32" => {
            fn run(r: &mut Registers, o: &Operands, mask: u32) {
                let table = o.k;
                r.map3::<u32, u32, u32, u32>(o, mask, |a, b, c| look_up(a, b, c, table));
            }
            Recipe { run, d: Class::Single, s: &[Class::Single; 3], k: 0 }
        }
        _ => return None,
    })
}

/// Predicates are masks, so that one operation serves all lanes.
fn predicates(f: fn(u32, u32) -> u32) -> Recipe {
    fn and(r: &mut Registers, o: &Operands, mask: u32) {
        r.set_predicate(o.d, r.predicate(o.s[0]) & r.predicate(o.s[1]), mask);
    }
    fn or(r: &mut Registers, o: &Operands, mask: u32) {
        r.set_predicate(o.d, r.predicate(o.s[0]) | r.predicate(o.s[1]), mask);
    }
    fn xor(r: &mut Registers, o: &Operands, mask: u32) {
        r.set_predicate(o.d, r.predicate(o.s[0]) ^ r.predicate(o.s[1]), mask);
    }
    let run = match f(0b1100, 0b1010) {
        0b1000 => and,
        0b1110 => or,
        _ => xor,
    };
    Recipe { run, d: Class::Predicate, s: &[Class::Predicate; 2], k: 0 }
}

fn look_up(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let pick = |v: u32, wanted: bool| if wanted { v } else { !v };
    (0..8).filter(|i| table >> i & 1 != 0).fold(0, |result, i| {
        result | pick(a, i & 4 != 0) & pick(b, i & 2 != 0) & pick(c, i & 1 != 0)
    })
}

/// Amounts are 32 bits and stop at the width.
fn shifts(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "shl.b16" => two!(u16, u16, u32, |a, n| if n > 15 { 0 } else { a << n }),
        "shl.b32" => two!(u32, |a, n| if n > 31 { 0 } else { a << n }),
        "shl.b64" => two!(u64, u64, u32, |a, n| if n > 63 { 0 } else { a << n }),
        "shr.u16" | "shr.b16" => two!(u16, u16, u32, |a, n| if n > 15 { 0 } else { a >> n }),
        "shr.u32" | "shr.b32" => two!(u32, |a, n| if n > 31 { 0 } else { a >> n }),
        "shr.u64" | "shr.b64" => two!(u64, u64, u32, |a, n| if n > 63 { 0 } else { a >> n }),
        "shr.s16" => two!(u16, u16, u32, |a, n| (a as i16 >> n.min(15)) as u16),
        "shr.s32" => two!(u32, |a, n| (a as i32 >> n.min(31)) as u32),
        "shr.s64" => two!(u64, u64, u32, |a, n| (a as i64 >> n.min(63)) as u64),
        "shf.l.wrap.b32" => three!(u32, |a, b, n| (funnel(a, b) << (n & 31) >> 32) as u32),
        "shf.r.wrap.b32" => three!(u32, |a, b, n| (funnel(a, b) >> (n & 31)) as u32),
        "shf.l.clamp.b32" => {
            three!(u32, |a, b, n| { if n > 31 { a } else { (funnel(a, b) << n >> 32) as u32 } })
        }
        "shf.r.clamp.b32" => three!(u32, |a, b, n| (funnel(a, b) >> n.min(32)) as u32),
        _ => return None,
    })
}

fn funnel(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn fields(opcode: &str) -> Option<Recipe> {
    if let Some(mode) = opcode.strip_prefix("prmt.b32") {
        return permutation(mode);
    }
    Some(match opcode {
        "bfe.u32" => three!(u32, |a, b, c| extract(a.into(), b, c, 32, false) as u32),
        "bfe.s32" => three!(u32, |a, b, c| extract(a.into(), b, c, 32, true) as u32),
        "bfe.u64" => three!(u64, u64, u32, u32, |a, b, c| extract(a, b, c, 64, false)),
        "bfe.s64" => three!(u64, u64, u32, u32, |a, b, c| extract(a, b, c, 64, true)),
        "bfi.b32" => {
            fn run(r: &mut Registers, o: &Operands, mask: u32) {
                r.map4::<u32>(o, mask, |a, b, c, d| insert(a.into(), b.into(), c, d) as u32);
            }
            let s = &[Class::Single; 4];
            Recipe { run, d: Class::Single, s, k: 0 }
        }
        "bfi.b64" => {
            fn run(r: &mut Registers, o: &Operands, mask: u32) {
                r.map4::<u64>(o, mask, insert);
            }
            let s = &[Class::Double, Class::Double, Class::Single, Class::Single];
            Recipe { run, d: Class::Double, s, k: 0 }
        }
        "szext.wrap.u32" => two!(u32, |a, n| cut(a, n & 31)),
        "szext.clamp.u32" => two!(u32, cut),
        "bmsk.wrap.b32" => two!(u32, |a, n| mask_of(n & 31) << (a & 31)),
        "bmsk.clamp.b32" => two!(u32, |a, n| if a > 31 { 0 } else { mask_of(n) << a }),
        _ => return None,
    })
}

fn mask_of(bits: u32) -> u32 {
    if bits > 31 { u32::MAX } else { (1 << bits) - 1 }
}

fn cut(a: u32, bits: u32) -> u32 {
    a & mask_of(bits)
}

/// Position and length count modulo 256; the sign is that of the field's last bit in the word.
fn extract(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let last = (position + length).saturating_sub(1).min(width - 1);
    let sign = signed && length != 0 && a >> last & 1 != 0;
    let fill = if sign { u64::MAX } else { 0 };
    let word = if width == 32 { a | fill << 32 } else { a };
    let moved =
        if position > 63 { fill } else { (word >> position) | shifted_up(fill, 64 - position) };
    if length > 63 { moved } else { moved & !(u64::MAX << length) | fill << length }
}

fn shifted_up(value: u64, by: u32) -> u64 {
    value.checked_shl(by).unwrap_or(0)
}

/// bfi: the low bits of the first operand into the second.
#[inline(always)]
fn insert(from: u64, into: u64, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let ones = if length > 63 { u64::MAX } else { !(u64::MAX << length) };
    let field = shifted_up(ones, position);
    into & !field | shifted_up(from, position) & field
}

fn permutation(mode: &str) -> Option<Recipe> {
    Some(match mode {
        "" => three!(u32, permute),
        ".f4e" => {
            three!(u32, |a, b, c| permute(a, b, [0x3210, 0x4321, 0x5432, 0x6543][c as usize & 3]))
        }
        ".b4e" => {
            three!(u32, |a, b, c| permute(a, b, [0x5670, 0x6701, 0x7012, 0x0123][c as usize & 3]))
        }
        ".rc8" => three!(u32, |a, b, c| permute(a, b, (c & 3) * 0x1111)),
        ".ecl" => {
            three!(u32, |a, b, c| permute(a, b, [0x3210, 0x3211, 0x3222, 0x3333][c as usize & 3]))
        }
        ".ecr" => {
            three!(u32, |a, b, c| permute(a, b, [0x0000, 0x1110, 0x2210, 0x3210][c as usize & 3]))
        }
        ".rc16" => three!(u32, |a, b, c| permute(a, b, [0x1010, 0x3232][c as usize & 1])),
        _ => return None,
    })
}

#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = funnel(a, b);
    let mut result = 0;
    for i in 0..4 {
        let pick = selector >> (4 * i) & 15;
        let byte = (bytes >> (8 * (pick & 7))) as u8;
        let byte = if pick & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        result |= u32::from(byte) << (8 * i);
    }
    result
}

fn counts(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "popc.b32" => one!(u32, |a| a.count_ones()),
        "popc.b64" => one!(u32, u64, |a| a.count_ones()),
        "clz.b32" => one!(u32, |a| a.leading_zeros()),
        "clz.b64" => one!(u32, u64, |a| a.leading_zeros()),
        "brev.b32" => one!(u32, |a| a.reverse_bits()),
        "brev.b64" => one!(u64, |a| a.reverse_bits()),
        "bfind.u32" => one!(u32, |a| highest(a.into())),
        "bfind.s32" => one!(u32, |a| highest(u64::from(if a >> 31 != 0 { !a } else { a }))),
        "bfind.u64" => one!(u32, u64, highest),
        "bfind.s64" => one!(u32, u64, |a| highest(if a >> 63 != 0 { !a } else { a })),
        "bfind.shiftamt.u32" => one!(u32, |a| shift_to_top(highest(a.into()), 31)),
        "bfind.shiftamt.s32" => one!(u32, |a| {
            shift_to_top(highest(u64::from(if a >> 31 != 0 { !a } else { a })), 31)
        }),
        "bfind.shiftamt.u64" => one!(u32, u64, |a| shift_to_top(highest(a), 63)),
        _ => return None,
    })
}

fn highest(a: u64) -> u32 {
    63u32.wrapping_sub(a.leading_zeros())
}

fn shift_to_top(position: u32, top: u32) -> u32 {
    if position == u32::MAX { position } else { top - position }
}
