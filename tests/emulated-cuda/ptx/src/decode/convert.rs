//! cvt between integers, and between integers and floating point.
//!
//! Registers may be wider than the types: the source's low bits count, and the result fills up
//! the destination with its sign or zeros.

use crate::registers::{Class, LaneFn, Operands, Registers, Word, lanes};

/// A type that cvt knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) bits: u32,
    pub(super) signed: bool,
    pub(super) float: bool,
}

impl Number {
    pub(super) fn parse(name: &str) -> Option<Number> {
        let bits = name.get(1..)?.parse().ok().filter(|b| matches!(b, 8 | 16 | 32 | 64))?;
        let (signed, float) = match &name[..1] {
            "u" | "b" => (false, false),
            "s" => (true, false),
            "f" if bits >= 32 => (true, true),
            _ => return None,
        };
        Some(Number { bits, signed, float })
    }

    fn code(self) -> u32 {
        self.bits | u32::from(self.signed) << 8 | u32::from(self.float) << 9
    }

    fn decode(code: u32) -> Number {
        Number { bits: code & 0xff, signed: code >> 8 & 1 != 0, float: code >> 9 & 1 != 0 }
    }
}

/// To an integer: how a fraction is rounded. To a float: which way an inexact result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

/// What `Operands::k` holds for `mixed`.
pub(super) fn packed(to: Number, from: Number, rounding: Rounding, whole: bool, sat: bool) -> u32 {
    to.code()
        | from.code() << 10
        | (rounding as u32) << 20
        | u32::from(whole) << 22
        | u32::from(sat) << 23
}

/// The function for conversions among integers without saturation.
pub(super) fn integers(d: Class, a: Class) -> LaneFn {
    use Class::*;
    match (d, a) {
        (Half, Half) => widths::<u16, u16>,
        (Half, Single) => widths::<u16, u32>,
        (Half, _) => widths::<u16, u64>,
        (Single, Half) => widths::<u32, u16>,
        (Single, Single) => widths::<u32, u32>,
        (Single, _) => widths::<u32, u64>,
        (_, Half) => widths::<u64, u16>,
        (_, Single) => widths::<u64, u32>,
        _ => widths::<u64, u64>,
    }
}

fn widths<D: Word, A: Word>(r: &mut Registers, o: &Operands, mask: u32) {
    let (to, from) = (Number::decode(o.k & 0x3ff), Number::decode(o.k >> 10 & 0x3ff));
    // The narrower of the two says how many bits survive, and whose sign fills up.
    let inner = if from.bits < to.bits { from } else { to };
    if !inner.signed && inner.bits == A::BITS.min(D::BITS) {
        return r.map1::<D, A>(o, mask, |a| D::narrow(a.wide()));
    }
    let shift = 64 - inner.bits;
    let outer = 64 - to.bits;
    if inner.signed && to.signed {
        return r
            .map1::<D, A>(o, mask, |a| D::narrow(((a.wide() << shift) as i64 >> shift) as u64));
    }
    if inner.signed {
        return r.map1::<D, A>(o, mask, |a| {
            let v = ((a.wide() << shift) as i64 >> shift) as u64;
            D::narrow(v << outer >> outer)
        });
    }
    r.map1::<D, A>(o, mask, |a| D::narrow(a.wide() << shift >> shift));
}

/// Conversions with a floating side, or that saturate; `e` holds the classes.
pub(super) fn mixed(r: &mut Registers, o: &Operands, mask: u32) {
    let (to, from) = (Number::decode(o.k & 0x3ff), Number::decode(o.k >> 10 & 0x3ff));
    let rounding = match o.k >> 20 & 3 {
        0 => Rounding::Nearest,
        1 => Rounding::Zero,
        2 => Rounding::Down,
        _ => Rounding::Up,
    };
    let (whole, sat) = (o.k >> 22 & 1 != 0, o.k >> 23 & 1 != 0);
    let class = |code: u32| match code {
        0 => Class::Half,
        1 => Class::Single,
        _ => Class::Double,
    };
    let (d, a) = (class(o.e & 3), class(o.e >> 2 & 3));
    for lane in lanes(mask) {
        let bits = r.lane(a, o.s[0], lane);
        let value = if from.float {
            let value = if from.bits == 32 {
                f32::from_bits(bits as u32).into()
            } else {
                f64::from_bits(bits)
            };
            if to.float {
                float_to_float(value, to, rounding, whole, sat)
            } else {
                to_integer(value, to, rounding)
            }
        } else {
            let shift = 64 - from.bits;
            let value = if from.signed {
                i128::from((bits << shift) as i64 >> shift)
            } else {
                i128::from(bits << shift >> shift)
            };
            if to.float { from_integer(value, to, rounding) } else { limited(value, to) as u64 }
        };
        r.set_lane(d, o.d, lane, value);
    }
}

fn round_whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn limited(value: i128, to: Number) -> i128 {
    let (low, high) = if to.signed {
        (-(1i128 << (to.bits - 1)), (1i128 << (to.bits - 1)) - 1)
    } else {
        (0, (1i128 << to.bits) - 1)
    };
    value.clamp(low, high)
}

/// Out of range becomes the nearest there is; NaN becomes 0, or the top bit for 64 bits.
fn to_integer(value: f64, to: Number, rounding: Rounding) -> u64 {
    if value.is_nan() {
        return if to.bits == 64 { 1 << 63 } else { 0 };
    }
    limited(round_whole(value, rounding) as i128, to) as u64
}

fn from_integer(value: i128, to: Number, rounding: Rounding) -> u64 {
    if to.bits == 64 {
        let near = value as f64;
        return directed(near, (near as i128).cmp(&value), rounding).to_bits();
    }
    let near = value as f32;
    directed32(near, (near as i128).cmp(&value), rounding).to_bits().into()
}

fn float_to_float(value: f64, to: Number, rounding: Rounding, whole: bool, sat: bool) -> u64 {
    let value = if whole { round_whole(value, rounding) } else { value };
    let value = if sat && value.is_nan() {
        0.0
    } else if sat {
        value.clamp(0.0, 1.0)
    } else {
        value
    };
    if to.bits == 64 {
        return value.to_bits();
    }
    let near = value as f32;
    let order = f64::from(near).partial_cmp(&value).unwrap_or(std::cmp::Ordering::Equal);
    let near = if whole { near } else { directed32(near, order, rounding) };
    near.to_bits().into()
}

/// Corrects what was rounded to nearest; `order` says how it compares with the exact value.
fn directed(near: f64, order: std::cmp::Ordering, rounding: Rounding) -> f64 {
    if steps_down(near < 0.0, order, rounding) {
        near.next_down()
    } else if steps_up(near < 0.0, order, rounding) {
        near.next_up()
    } else {
        near
    }
}

fn directed32(near: f32, order: std::cmp::Ordering, rounding: Rounding) -> f32 {
    if steps_down(near < 0.0, order, rounding) {
        near.next_down()
    } else if steps_up(near < 0.0, order, rounding) {
        near.next_up()
    } else {
        near
    }
}

fn steps_down(negative: bool, order: std::cmp::Ordering, rounding: Rounding) -> bool {
    let downwards = rounding == Rounding::Down || rounding == Rounding::Zero && !negative;
    order.is_gt() && downwards
}

fn steps_up(negative: bool, order: std::cmp::Ordering, rounding: Rounding) -> bool {
    let upwards = rounding == Rounding::Up || rounding == Rounding::Zero && negative;
    order.is_lt() && upwards
}
