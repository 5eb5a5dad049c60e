//! mov with its vectors, selections, and addresses from one space to another.

use super::builder::{Builder, class_of};
use super::exactly;
use crate::ParseError;
use crate::code::{Action, window};
use crate::registers::{Class, LaneFn, NONE, Operands, Registers, Word, lanes};
use crate::syntax::{Instruction, Operand, Space, type_size};

pub(super) fn action(
    builder: &mut Builder<'_>,
    i: &Instruction,
) -> Result<Option<Action>, ParseError> {
    let parts: Vec<&str> = i.opcode.split('.').collect();
    match parts.as_slice() {
        ["mov", "pred"] => {
            let [d, a] = exactly::<2>(builder, i)?;
            let d = builder.destination(d, Class::Predicate)?;
            let a = builder.source(a, Class::Predicate)?;
            let operands = Operands { d, e: NONE, s: [a, 0, 0, 0], k: 0 };
            Ok(Some(Action::Lanes(copy_predicate, operands)))
        }
        ["mov", kind] => movement(builder, i, kind),
        ["selp", kind] => selection(builder, i, kind),
        ["slct", kind, "s32"] => by_sign(builder, i, kind),
        ["cvta", "to", space, "u64"] => generic(builder, i, space, false),
        ["cvta", space, "u64"] => generic(builder, i, space, true),
        ["isspacep", space] => {
            let Some(space) = space_of(space) else { return Ok(None) };
            let [d, a] = exactly::<2>(builder, i)?;
            let d = builder.destination(d, Class::Predicate)?;
            let a = builder.source(a, Class::Double)?;
            Ok(Some(Action::InSpace(space, d, a)))
        }
        _ => Ok(None),
    }
}

/// A space by its name in an opcode.
pub(super) fn space_of(name: &str) -> Option<Space> {
    Some(match name {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "const" => Space::Const,
        "param" => Space::Param,
        _ => return None,
    })
}

fn copy_predicate(r: &mut Registers, o: &Operands, mask: u32) {
    r.set_predicate(o.d, r.predicate(o.s[0]), mask);
}

fn copy(class: Class) -> LaneFn {
    match class {
        Class::Half => |r, o, mask| r.map1::<u16, u16>(o, mask, |a| a),
        Class::Single => |r, o, mask| r.map1::<u32, u32>(o, mask, |a| a),
        _ => |r, o, mask| r.map1::<u64, u64>(o, mask, |a| a),
    }
}

fn movement(
    builder: &mut Builder<'_>,
    i: &Instruction,
    kind: &str,
) -> Result<Option<Action>, ParseError> {
    let Some(bytes) = type_size(kind).filter(|b| *b > 1) else { return Ok(None) };
    let class = class_of(bytes);
    let [d, a] = exactly::<2>(builder, i)?;
    match (d, a) {
        (Operand::Vector(parts), _) => unpack(builder, parts, a, bytes),
        (_, Operand::Vector(parts)) => pack(builder, d, parts, bytes),
        (_, Operand::Name(name)) if is_clock(name) => {
            Ok(Some(Action::Clock(class, builder.destination(d, class)?)))
        }
        _ => {
            let d = builder.destination(d, class)?;
            let a = builder.source(a, class)?;
            let operands = Operands { d, e: NONE, s: [a, 0, 0, 0], k: 0 };
            Ok(Some(Action::Lanes(copy(class), operands)))
        }
    }
}

fn is_clock(name: &str) -> bool {
    matches!(name, "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo")
}

/// The class of a part of a vector that fills `bytes`.
fn part(parts: &[Operand], bytes: u64) -> Option<Class> {
    match (bytes, parts.len()) {
        (4, 2) | (8, 4) => Some(Class::Half),
        (8, 2) => Some(Class::Single),
        _ => None,
    }
}

fn pack(
    builder: &mut Builder<'_>,
    d: &Operand,
    parts: &[Operand],
    bytes: u64,
) -> Result<Option<Action>, ParseError> {
    let Some(class) = part(parts, bytes) else { return Ok(None) };
    let d = builder.destination(d, class_of(bytes))?;
    let mut operands = Operands { d, e: NONE, ..Operands::default() };
    for (n, part) in parts.iter().enumerate() {
        operands.s[n] = builder.source(part, class)?;
    }
    let run: LaneFn = match (class, bytes) {
        (Class::Single, _) => {
            |r, o, mask| r.map2::<u64, u32, u32>(o, mask, |a, b| a.wide() | b.wide() << 32)
        }
        (_, 4) => {
            |r, o, mask| r.map2::<u32, u16, u16>(o, mask, |a, b| u32::from(a) | u32::from(b) << 16)
        }
        _ => pack_four,
    };
    Ok(Some(Action::Lanes(run, operands)))
}

fn pack_four(r: &mut Registers, o: &Operands, mask: u32) {
    for lane in lanes(mask) {
        let of = |n: usize| r.half[o.s[n] as usize][lane].wide() << (16 * n);
        r.double[o.d as usize][lane] = of(0) | of(1) | of(2) | of(3);
    }
}

/// Destinations are d, e and the second and third source; k is the bits of a part.
fn unpack(
    builder: &mut Builder<'_>,
    parts: &[Operand],
    a: &Operand,
    bytes: u64,
) -> Result<Option<Action>, ParseError> {
    let Some(class) = part(parts, bytes) else { return Ok(None) };
    let mut to = [NONE; 4];
    for (n, part) in parts.iter().enumerate() {
        if *part != Operand::Sink {
            to[n] = builder.destination(part, class)?;
        }
    }
    let a = builder.source(a, class_of(bytes))?;
    let operands = Operands { d: to[0], e: to[1], s: [a, to[2], to[3], 0], k: 0 };
    let run: LaneFn = match (class, bytes) {
        (Class::Single, _) => |r, o, mask| split::<u32, u64>(r, o, mask, 32),
        (_, 4) => |r, o, mask| split::<u16, u32>(r, o, mask, 16),
        _ => |r, o, mask| split::<u16, u64>(r, o, mask, 16),
    };
    Ok(Some(Action::Lanes(run, operands)))
}

fn split<D: Word, A: Word>(r: &mut Registers, o: &Operands, mask: u32, bits: u32) {
    for (n, d) in [o.d, o.e, o.s[1], o.s[2]].into_iter().enumerate() {
        if d != NONE {
            let one = Operands { d, e: NONE, s: [o.s[0], 0, 0, 0], k: 0 };
            let shift = bits * n as u32;
            r.map1::<D, A>(&one, mask, |a| D::narrow(a.wide() >> shift));
        }
    }
}

fn selection(
    builder: &mut Builder<'_>,
    i: &Instruction,
    kind: &str,
) -> Result<Option<Action>, ParseError> {
    let Some(bytes) = type_size(kind).filter(|b| *b > 1) else { return Ok(None) };
    let class = class_of(bytes);
    let [d, a, b, p] = exactly::<4>(builder, i)?;
    let d = builder.destination(d, class)?;
    let (a, b) = (builder.source(a, class)?, builder.source(b, class)?);
    let p = builder.source(p, Class::Predicate)?;
    let run: LaneFn = match class {
        Class::Half => |r, o, mask| r.select::<u16>(o, mask),
        Class::Single => |r, o, mask| r.select::<u32>(o, mask),
        _ => |r, o, mask| r.select::<u64>(o, mask),
    };
    Ok(Some(Action::Lanes(run, Operands { d, e: NONE, s: [a, b, p, 0], k: 0 })))
}

fn by_sign(
    builder: &mut Builder<'_>,
    i: &Instruction,
    kind: &str,
) -> Result<Option<Action>, ParseError> {
    let Some(class) = type_size(kind).filter(|b| *b > 1).map(class_of) else { return Ok(None) };
    let [d, a, b, c] = exactly::<4>(builder, i)?;
    let d = builder.destination(d, class)?;
    let (a, b) = (builder.source(a, class)?, builder.source(b, class)?);
    let c = builder.source(c, Class::Single)?;
    let run: LaneFn = match class {
        Class::Half => |r, o, m| {
            r.map3::<u16, u16, u16, u32>(o, m, |a, b, c| if (c as i32) < 0 { b } else { a })
        },
        Class::Single => |r, o, m| {
            r.map3::<u32, u32, u32, u32>(o, m, |a, b, c| if (c as i32) < 0 { b } else { a })
        },
        _ => |r, o, m| {
            r.map3::<u64, u64, u64, u32>(o, m, |a, b, c| if (c as i32) < 0 { b } else { a })
        },
    };
    Ok(Some(Action::Lanes(run, Operands { d, e: NONE, s: [a, b, c, 0], k: 0 })))
}

/// Adds or takes off the begin of a space's window. The sum is made with a constant register.
fn generic(
    builder: &mut Builder<'_>,
    i: &Instruction,
    space: &str,
    to_generic: bool,
) -> Result<Option<Action>, ParseError> {
    let Some(space) = space_of(space) else { return Ok(None) };
    let [d, a] = exactly::<2>(builder, i)?;
    let d = builder.destination(d, Class::Double)?;
    let a = builder.source(a, Class::Double)?;
    let base = window::base(space);
    let offset =
        builder.constant(Class::Double, if to_generic { base } else { base.wrapping_neg() });
    let operands = Operands { d, e: NONE, s: [a, offset, 0, 0], k: 0 };
    let run: LaneFn = |r, o, mask| r.map2::<u64, u64, u64>(o, mask, u64::wrapping_add);
    Ok(Some(Action::Lanes(run, operands)))
}
