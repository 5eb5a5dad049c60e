//! Instructions on registers: arithmetic by its recipes, comparisons and conversions.

use super::builder::{Builder, class_of};
use super::convert::{Number, Rounding};
use super::{bits, compare, convert, exactly, float, integer};
use crate::ParseError;
use crate::code::Action;
use crate::registers::{Class, NONE, Operands};
use crate::syntax::{Instruction, Operand};

/// Arithmetic and logic.
pub(super) fn action(
    builder: &mut Builder<'_>,
    i: &Instruction,
) -> Result<Option<Action>, ParseError> {
    let found = integer::recipe(&i.opcode)
        .or_else(|| bits::recipe(&i.opcode))
        .or_else(|| float::recipe(&i.opcode));
    let Some(recipe) = found else { return Ok(None) };
    let mut given = i.operands.as_slice();
    let mut operands = Operands { e: NONE, k: recipe.k, ..Operands::default() };
    if i.opcode == "lop3.b32" {
        match given.split_last() {
            Some((Operand::Integer(table), rest)) => {
                operands.k = *table as u32 & 0xff;
                given = rest;
            }
            _ => return builder.fail("lop3 without a table"),
        }
    }
    if given.len() != recipe.s.len() + 1 {
        let (name, wanted) = (&i.opcode, recipe.s.len() + 1);
        return builder.fail(format!("`{name}` has {wanted} operands, not {}", given.len()));
    }
    operands.d = builder.destination(&given[0], recipe.d)?;
    for (n, class) in recipe.s.iter().enumerate() {
        operands.s[n] = builder.source(&given[n + 1], *class)?;
    }
    Ok(Some(Action::Lanes(recipe.run, operands)))
}

/// setp, set and cvt, which have two types or a choice of destinations.
pub(super) fn typed(
    builder: &mut Builder<'_>,
    i: &Instruction,
) -> Result<Option<Action>, ParseError> {
    let parts: Vec<&str> = i.opcode.split('.').collect();
    match parts[0] {
        "setp" => set_predicate(builder, i, &parts[1..]),
        "set" => set(builder, i, &parts[1..]),
        _ => conversion(builder, i, &parts[1..]),
    }
}

/// `setp.lt.and.u32 p|q, a, b, !c`
fn set_predicate(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let (name, join, kind) = match *parts {
        [name, kind] => (name, 0, kind),
        [name, "and", kind] => (name, compare::AND, kind),
        [name, "or", kind] => (name, compare::OR, kind),
        [name, "xor", kind] => (name, compare::XOR, kind),
        _ => return Ok(None),
    };
    let Some(comparison) = compare::comparison(name, kind) else { return Ok(None) };
    let mut operands = Operands { e: NONE, k: join, ..Operands::default() };
    if join != 0 {
        let [_, _, _, further] = exactly::<4>(builder, i)?;
        operands.s[2] = builder.source(further, Class::Predicate)?;
    } else {
        exactly::<3>(builder, i)?;
    }
    (operands.d, operands.e) = predicate_pair(builder, &i.operands[0])?;
    operands.s[0] = builder.source(&i.operands[1], comparison.class)?;
    operands.s[1] = builder.source(&i.operands[2], comparison.class)?;
    Ok(Some(Action::Lanes(comparison.predicates, operands)))
}

fn predicate_pair(builder: &Builder<'_>, operand: &Operand) -> Result<(u32, u32), ParseError> {
    let one = |operand: &Operand| match operand {
        Operand::Sink => Ok(NONE),
        other => builder.destination(other, Class::Predicate),
    };
    match operand {
        Operand::Pair(first, second) => Ok((one(first)?, one(second)?)),
        other => Ok((one(other)?, NONE)),
    }
}

/// `set.lt.u32.s32 d, a, b`
fn set(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let [name, to, kind] = *parts else { return Ok(None) };
    let k = match to {
        "u32" | "s32" => 0,
        "f32" => 1,
        _ => return Ok(None),
    };
    let Some(comparison) = compare::comparison(name, kind) else { return Ok(None) };
    let [d, a, b] = exactly::<3>(builder, i)?;
    let d = builder.destination(d, Class::Single)?;
    let a = builder.source(a, comparison.class)?;
    let b = builder.source(b, comparison.class)?;
    let operands = Operands { d, e: NONE, s: [a, b, 0, 0], k };
    Ok(Some(Action::Lanes(comparison.value, operands)))
}

fn conversion(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let [modifiers @ .., to, from] = parts else { return Ok(None) };
    let (Some(to), Some(from)) = (Number::parse(to), Number::parse(from)) else { return Ok(None) };
    let (mut rounding, mut whole, mut sat) = (None, false, false);
    for modifier in modifiers {
        let (mode, to_whole) = match *modifier {
            "sat" if !sat => {
                sat = true;
                continue;
            }
            "rn" => (Rounding::Nearest, false),
            "rz" => (Rounding::Zero, false),
            "rm" => (Rounding::Down, false),
            "rp" => (Rounding::Up, false),
            "rni" => (Rounding::Nearest, true),
            "rzi" => (Rounding::Zero, true),
            "rmi" => (Rounding::Down, true),
            "rpi" => (Rounding::Up, true),
            _ => return Ok(None),
        };
        if rounding.replace(mode).is_some() {
            return Ok(None);
        }
        whole = to_whole;
    }
    let [d, a] = exactly::<2>(builder, i)?;
    let (class, d) = wide_enough(builder, d, to.bits)?;
    let (from_class, a) = match a {
        Operand::Name(name) if builder.find_register(name).is_some() => {
            wide_enough(builder, a, from.bits)?
        }
        other => {
            let class = class_of(u64::from(from.bits / 8));
            (class, builder.source(other, class)?)
        }
    };
    let k = convert::packed(to, from, rounding.unwrap_or(Rounding::Nearest), whole, sat);
    let e = (class as u32 - 1) | ((from_class as u32 - 1) << 2);
    let operands = Operands { d, e, s: [a, 0, 0, 0], k };
    if to.float || from.float || sat {
        if to.float != from.float && rounding.is_none() || to.float && !from.float && whole {
            return builder.fail(format!("`{}` without a fitting rounding", i.opcode));
        }
        return Ok(Some(Action::Lanes(convert::mixed, operands)));
    }
    if rounding.is_some() {
        return Ok(None);
    }
    Ok(Some(Action::Lanes(convert::integers(class, from_class), operands)))
}

/// A register of at least so many bits.
fn wide_enough(
    builder: &Builder<'_>,
    operand: &Operand,
    bits: u32,
) -> Result<(Class, u32), ParseError> {
    let Operand::Name(name) = operand else {
        return builder.fail(format!("{operand:?} is no register"));
    };
    let has = |class: Class| match class {
        Class::Predicate => 0,
        Class::Half => 16,
        Class::Single => 32,
        Class::Double => 64,
    };
    match builder.find_register(name) {
        Some((class, index)) if has(class) >= bits => Ok((class, index)),
        Some(_) => builder.fail(format!("`{name}` is too narrow")),
        None => builder.fail(format!("`{name}` is no register")),
    }
}
