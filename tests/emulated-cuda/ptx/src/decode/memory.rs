//! Loads, stores and atomics.

use super::builder::{Builder, class_of};
use super::movement::space_of;
use crate::ParseError;
use crate::code::{Access, Action, Address, Atomic, Change, window};
use crate::registers::{Class, NONE};
use crate::syntax::{Instruction, Operand, Space, type_size};

pub(super) fn action(
    builder: &mut Builder<'_>,
    i: &Instruction,
) -> Result<Option<Action>, ParseError> {
    let parts: Vec<&str> = i.opcode.split('.').collect();
    match parts[0] {
        "ld" | "ldu" | "st" => access(builder, i, &parts),
        "atom" | "red" => atomic(builder, i, &parts),
        // What is fetched ahead is not looked at; the operand must make sense nevertheless.
        _ => match i.operands.as_slice() {
            [at @ Operand::Address(..)] => {
                address(builder, at, Space::Generic)?;
                Ok(Some(Action::Nothing))
            }
            _ => Ok(None),
        },
    }
}

/// Modifiers that do not change what a single access does here: accesses take effect one by one.
fn is_hint(part: &str) -> bool {
    const HINTS: [&str; 18] = [
        "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys",
        "cluster", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt",
    ];
    HINTS.contains(&part) || part.starts_with("L1::") || part.starts_with("L2::")
}

fn access(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let [name, modifiers @ .., kind] = parts else { return Ok(None) };
    let (mut space, mut count) = (None, 1);
    for part in modifiers {
        match *part {
            "v2" => count = 2,
            "v4" => count = 4,
            _ if is_hint(part) => {}
            _ => match space_of(part) {
                Some(found) if space.is_none() => space = Some(found),
                _ => return Ok(None),
            },
        }
    }
    let Some(size) = type_size(kind).filter(|s| s * count <= 16) else { return Ok(None) };
    let space = space.unwrap_or(Space::Generic);
    let store = *name == "st";
    let (at, values) = match i.operands.as_slice() {
        [at, value] if store => (at, value),
        [value, at] if !store => (at, value),
        _ => return builder.fail(format!("`{}` has two operands", i.opcode)),
    };
    let values = match values {
        Operand::Vector(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    if values.len() as u64 != count {
        return builder.fail(format!("`{}` with {} values", i.opcode, values.len()));
    }
    if store && matches!(space, Space::Const | Space::Param) {
        return Ok(None);
    }
    let address = address(builder, at, space)?;
    let mut registers = Vec::new();
    for value in values {
        registers.push(self::value(builder, value, size, store)?);
    }
    let signed = kind.starts_with('s');
    let values = registers.into_boxed_slice();
    let access = Access { space, size: size as u8, signed, address, values };
    Ok(Some(if store { Action::Store(access) } else { Action::Load(access) }))
}

/// The register of an element; it may be wider.
fn value(
    builder: &mut Builder<'_>,
    operand: &Operand,
    size: u64,
    store: bool,
) -> Result<(Class, u32), ParseError> {
    let class = class_of(size);
    match operand {
        Operand::Sink if !store => Ok((class, NONE)),
        Operand::Name(name) => match builder.find_register(name) {
            Some((found, index)) if found as u32 >= class as u32 => Ok((found, index)),
            Some(_) => builder.fail(format!("`{name}` is too narrow")),
            None if store => Ok((class, builder.source(operand, class)?)),
            None => builder.fail(format!("`{name}` is no register")),
        },
        _ if store => Ok((class, builder.source(operand, class)?)),
        _ => builder.fail(format!("{operand:?} cannot be written")),
    }
}

fn address(builder: &Builder<'_>, operand: &Operand, space: Space) -> Result<Address, ParseError> {
    let Operand::Address(base, offset) = operand else {
        return builder.fail(format!("{operand:?} is no address"));
    };
    let Some(name) = base else {
        return Ok(Address { class: Class::Double, base: NONE, offset: *offset });
    };
    match builder.find_register(name) {
        Some((class @ (Class::Single | Class::Double), base)) => {
            return Ok(Address { class, base, offset: *offset });
        }
        Some(_) => return builder.fail(format!("`{name}` is no address")),
        None => {}
    }
    match builder.find_variable(name) {
        Some((found, at)) if found == space || space == Space::Generic => {
            let base = if space == Space::Generic { window::base(found) } else { 0 };
            let offset = base.wrapping_add(at).wrapping_add_signed(*offset) as i64;
            Ok(Address { class: Class::Double, base: NONE, offset })
        }
        Some((found, _)) => builder.fail(format!("`{name}` is in {found:?} memory")),
        None => builder.fail(format!("`{name}` is not known")),
    }
}

fn atomic(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let [name, modifiers @ .., kind] = parts else { return Ok(None) };
    let (mut space, mut operation) = (None, None);
    for part in modifiers {
        if is_hint(part) {
            continue;
        }
        match space_of(part) {
            Some(found) if space.is_none() => space = Some(found),
            None if operation.is_none() => operation = Some(*part),
            _ => return Ok(None),
        }
    }
    let space = space.unwrap_or(Space::Generic);
    let Some(change) = operation.and_then(|operation| change(operation, kind)) else {
        return Ok(None);
    };
    if !matches!(space, Space::Global | Space::Shared | Space::Generic) {
        return Ok(None);
    }
    let Some(size) = type_size(kind) else { return Ok(None) };
    let class = class_of(size);
    let wanted = if change == Change::Compare { 2 } else { 1 };
    let (old, rest) = match (*name, i.operands.as_slice()) {
        ("atom", [Operand::Sink, rest @ ..]) => (NONE, rest),
        ("atom", [d, rest @ ..]) => (builder.destination(d, class)?, rest),
        ("red", rest) if change != Change::Compare && change != Change::Exchange => (NONE, rest),
        _ => return Ok(None),
    };
    let [at, values @ ..] = rest else { return builder.fail("an atomic without an address") };
    if values.len() != wanted {
        return builder.fail(format!("`{}` with {} values", i.opcode, values.len()));
    }
    let address = address(builder, at, space)?;
    let mut operands = [NONE; 2];
    for (n, value) in values.iter().enumerate() {
        operands[n] = builder.source(value, class)?;
    }
    let size = size as u8;
    Ok(Some(Action::Atomic(Atomic { space, size, change, address, class, old, operands })))
}

fn change(operation: &str, kind: &str) -> Option<Change> {
    Some(match (operation, kind) {
        ("add", "u32" | "s32" | "u64" | "s64") => Change::Add,
        ("add", "f32" | "f64") => Change::AddFloat,
        ("min", "u32" | "u64") => Change::Min,
        ("max", "u32" | "u64") => Change::Max,
        ("min", "s32" | "s64") => Change::MinSigned,
        ("max", "s32" | "s64") => Change::MaxSigned,
        ("and", "b32" | "b64") => Change::And,
        ("or", "b32" | "b64") => Change::Or,
        ("xor", "b32" | "b64") => Change::Xor,
        ("exch", "b32" | "b64" | "u32" | "u64" | "s32" | "s64" | "f32") => Change::Exchange,
        ("cas", "b16" | "b32" | "b64" | "u32" | "s32" | "u64" | "s64") => Change::Compare,
        ("inc", "u32") => Change::Increment,
        ("dec", "u32") => Change::Decrement,
        _ => return None,
    })
}
