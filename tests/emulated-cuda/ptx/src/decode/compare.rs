//! Comparisons: setp and set. A comparison of 32 lanes is a mask.

use crate::registers::{Class, LaneFn, NONE, Operands, Registers, Word};

/// How the comparison and a further predicate are put together, in `Operands::k`.
pub(super) const AND: u32 = 1;
pub(super) const OR: u32 = 2;
pub(super) const XOR: u32 = 3;

/// A comparison as an instruction names it: `lt.u32`, `neu.f64`.
pub(super) struct Comparison {
    pub(super) class: Class,
    /// Writes predicates d and e.
    pub(super) predicates: LaneFn,
    /// Writes all ones, or 1.0 with k set, to a 32-bit register.
    pub(super) value: LaneFn,
}

#[inline(always)]
fn finish(r: &mut Registers, o: &Operands, mask: u32, bits: u32) {
    let further = if o.k == 0 { 0 } else { r.predicate(o.s[2]) };
    let join = |v: u32| match o.k {
        AND => v & further,
        OR => v | further,
        XOR => v ^ further,
        _ => v,
    };
    r.set_predicate(o.d, join(bits), mask);
    if o.e != NONE {
        r.set_predicate(o.e, join(!bits), mask);
    }
}

fn finish_value(r: &mut Registers, o: &Operands, mask: u32, bits: u32) {
    let yes = if o.k != 0 { 1.0f32.to_bits() } else { u32::MAX };
    for lane in crate::registers::lanes(mask) {
        r.single[o.d as usize][lane] = if bits >> lane & 1 != 0 { yes } else { 0 };
    }
}

macro_rules! comparison {
    ($t:ty, $f:expr) => {{
        fn predicates(r: &mut Registers, o: &Operands, mask: u32) {
            let bits = r.test2::<$t, $t>(o, $f);
            finish(r, o, mask, bits);
        }
        fn value(r: &mut Registers, o: &Operands, mask: u32) {
            let bits = r.test2::<$t, $t>(o, $f);
            finish_value(r, o, mask, bits);
        }
        Comparison { class: <$t>::CLASS, predicates, value }
    }};
}

macro_rules! ordered {
    ($name:expr, $t:ty, $as:ty) => {
        match $name {
            "eq" => comparison!($t, |a, b| a == b),
            "ne" => comparison!($t, |a, b| a != b),
            "lt" | "lo" => comparison!($t, |a, b| (a as $as) < (b as $as)),
            "le" | "ls" => comparison!($t, |a, b| (a as $as) <= (b as $as)),
            "gt" | "hi" => comparison!($t, |a, b| (a as $as) > (b as $as)),
            "ge" | "hs" => comparison!($t, |a, b| (a as $as) >= (b as $as)),
            _ => return None,
        }
    };
}

macro_rules! floating {
    ($name:expr, $t:ty, $as:ty) => {{
        macro_rules! of {
            (|$a:ident, $b:ident| $e:expr) => {
                comparison!($t, |a, b| {
                    let ($a, $b) = (<$as>::from_bits(a), <$as>::from_bits(b));
                    $e
                })
            };
        }
        match $name {
            "eq" => of!(|a, b| a == b),
            "ne" => of!(|a, b| a != b && !a.is_nan() && !b.is_nan()),
            "lt" => of!(|a, b| a < b),
            "le" => of!(|a, b| a <= b),
            "gt" => of!(|a, b| a > b),
            "ge" => of!(|a, b| a >= b),
            "equ" => of!(|a, b| a == b || a.is_nan() || b.is_nan()),
            "neu" => of!(|a, b| a != b),
            "ltu" => of!(|a, b| a < b || a.is_nan() || b.is_nan()),
            "leu" => of!(|a, b| a <= b || a.is_nan() || b.is_nan()),
            "gtu" => of!(|a, b| a > b || a.is_nan() || b.is_nan()),
            "geu" => of!(|a, b| a >= b || a.is_nan() || b.is_nan()),
            "num" => of!(|a, b| !a.is_nan() && !b.is_nan()),
            "nan" => of!(|a, b| a.is_nan() || b.is_nan()),
            _ => return None,
        }
    }};
}

/// A comparison by its name and type.
pub(super) fn comparison(name: &str, kind: &str) -> Option<Comparison> {
    // Bits know equality only.
    if kind.starts_with('b') && !matches!(name, "eq" | "ne") {
        return None;
    }
    Some(match kind {
        "u16" | "b16" => ordered!(name, u16, u16),
        "u32" | "b32" => ordered!(name, u32, u32),
        "u64" | "b64" => ordered!(name, u64, u64),
        "s16" => ordered!(name, u16, i16),
        "s32" => ordered!(name, u32, i32),
        "s64" => ordered!(name, u64, i64),
        "f32" => floating!(name, u32, f32),
        "f64" => floating!(name, u64, f64),
        _ => return None,
    })
}
