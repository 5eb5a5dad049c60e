//! Single and double precision. Only rounding to nearest, and no flushing of subnormals: any
//! other modifier is refused. The `.approx` instructions are as exact as Rust's.

use super::recipe::{Recipe, one, three, two};
use crate::registers::{Class, Operands, Registers, Word, lanes};

macro_rules! single {
    (|$($x:ident),+| $e:expr) => {
        |$($x: u32),+| { $(let $x = f32::from_bits($x);)+ let v: f32 = $e; v.to_bits() }
    };
}
macro_rules! double {
    (|$($x:ident),+| $e:expr) => {
        |$($x: u64),+| { $(let $x = f64::from_bits($x);)+ let v: f64 = $e; v.to_bits() }
    };
}

/// The recipe of an opcode, if it is one of these.
pub(super) fn recipe(opcode: &str) -> Option<Recipe> {
    let plain = opcode.replace(".rn", "");
    singles(&plain).or_else(|| doubles(&plain)).or_else(|| tests(&plain))
}

fn singles(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "add.f32" => two!(u32, single!(|a, b| a + b)),
        "sub.f32" => two!(u32, single!(|a, b| a - b)),
        "mul.f32" => two!(u32, single!(|a, b| a * b)),
        "div.f32" | "div.full.f32" | "div.approx.f32" => two!(u32, single!(|a, b| a / b)),
        "fma.f32" | "mad.f32" => three!(u32, single!(|a, b, c| a.mul_add(b, c))),
        "neg.f32" => one!(u32, |a| a ^ 1 << 31),
        "abs.f32" => one!(u32, |a| a & !(1 << 31)),
        "min.f32" => two!(u32, single!(|a, b| least(a.into(), b.into()) as f32)),
        "max.f32" => two!(u32, single!(|a, b| -least(-f64::from(a), -f64::from(b)) as f32)),
        "sqrt.f32" | "sqrt.approx.f32" => one!(u32, single!(|a| a.sqrt())),
        "rsqrt.approx.f32" => one!(u32, single!(|a| 1.0 / a.sqrt())),
        "rcp.f32" | "rcp.approx.f32" => one!(u32, single!(|a| 1.0 / a)),
        "ex2.approx.f32" => one!(u32, single!(|a| a.exp2())),
        "lg2.approx.f32" => one!(u32, single!(|a| a.log2())),
        "sin.approx.f32" => one!(u32, single!(|a| a.sin())),
        "cos.approx.f32" => one!(u32, single!(|a| a.cos())),
        "tanh.approx.f32" => one!(u32, single!(|a| a.tanh())),
        "copysign.f32" => two!(u32, single!(|a, b| b.copysign(a))),
        _ => return None,
    })
}

fn doubles(opcode: &str) -> Option<Recipe> {
    Some(match opcode {
        "add.f64" => two!(u64, double!(|a, b| a + b)),
        "sub.f64" => two!(u64, double!(|a, b| a - b)),
        "mul.f64" => two!(u64, double!(|a, b| a * b)),
        "div.f64" => two!(u64, double!(|a, b| a / b)),
        "fma.f64" | "mad.f64" => three!(u64, double!(|a, b, c| a.mul_add(b, c))),
        "neg.f64" => one!(u64, |a| a ^ 1 << 63),
        "abs.f64" => one!(u64, |a| a & !(1 << 63)),
        "min.f64" => two!(u64, double!(|a, b| least(a, b))),
        "max.f64" => two!(u64, double!(|a, b| -least(-a, -b))),
        "sqrt.f64" => one!(u64, double!(|a| a.sqrt())),
        "rcp.f64" => one!(u64, double!(|a| 1.0 / a)),
        "copysign.f64" => two!(u64, double!(|a, b| b.copysign(a))),
        _ => return None,
    })
}

/// A number wins over NaN, and -0 is less than +0.
fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

const FINITE: u32 = 0;
const INFINITE: u32 = 1;
const NUMBER: u32 = 2;
const NOT_A_NUMBER: u32 = 3;
const NORMAL: u32 = 4;
const SUBNORMAL: u32 = 5;

fn tests(opcode: &str) -> Option<Recipe> {
    let (property, kind) = opcode.strip_prefix("testp.")?.rsplit_once('.')?;
    let k = match property {
        "finite" => FINITE,
        "infinite" => INFINITE,
        "number" => NUMBER,
        "notanumber" => NOT_A_NUMBER,
        "normal" => NORMAL,
        "subnormal" => SUBNORMAL,
        _ => return None,
    };
    let d = Class::Predicate;
    match kind {
        "f32" => Some(Recipe { run: test_single, d, s: &[Class::Single], k }),
        "f64" => Some(Recipe { run: test_double, d, s: &[Class::Double], k }),
        _ => None,
    }
}

fn has(category: std::num::FpCategory, property: u32) -> bool {
    use std::num::FpCategory::*;
    match property {
        FINITE => !matches!(category, Nan | Infinite),
        INFINITE => category == Infinite,
        NUMBER => category != Nan,
        NOT_A_NUMBER => category == Nan,
        // PTX counts zero among the normal numbers.
        NORMAL => matches!(category, Normal | Zero),
        _ => category == Subnormal,
    }
}

fn test_single(r: &mut Registers, o: &Operands, mask: u32) {
    for lane in lanes(mask) {
        let value = f32::from_bits(r.single[o.s[0] as usize][lane]);
        r.set_lane(Class::Predicate, o.d, lane, has(value.classify(), o.k).into());
    }
}

fn test_double(r: &mut Registers, o: &Operands, mask: u32) {
    for lane in lanes(mask) {
        let value = f64::from_bits(r.double[o.s[0] as usize][lane]);
        r.set_lane(Class::Predicate, o.d, lane, has(value.classify(), o.k).into());
    }
}
