//! Single instructions with random operands, held against Rust.
//!
//! A case has an opcode, the classes of its operands (h 16, r 32, d 64 bits, p a predicate; the
//! first is the destination), and what it computes from the operands as 64 bits each. After a
//! blank come operands that are always the same; an opcode that begins with = is a whole text.

mod cases;

use crate::device::{Arg, Random, Runner};

pub(crate) type Expected = fn(u64, u64, u64) -> u64;

pub(crate) struct Case {
    pub(crate) opcode: &'static str,
    pub(crate) classes: &'static str,
    pub(crate) expected: Expected,
}

/// Operands are loaded as 64 bits and cut to their class; the result is widened with zeros.
fn kernel(case: &Case) -> String {
    let name = |i: usize, class: char| match class {
        'h' => format!("%h{i}"),
        'r' => format!("%r{i}"),
        'd' => format!("%d{i}"),
        _ => format!("%p{i}"),
    };
    let classes: Vec<char> = case.classes.chars().collect();
    let operands: Vec<String> = (1..classes.len()).map(|i| name(i, classes[i])).collect();
    let d = name(0, classes[0]);
    let call = match case.opcode.split_once(' ') {
        Some((text, more)) if text.starts_with('=') => format!("{} {more}", &text[1..]),
        Some((opcode, more)) => format!("{opcode} {d}, {}, {more}", operands.join(", ")),
        None => format!("{} {d}, {}", case.opcode, operands.join(", ")),
    };
    let widen = match classes[0] {
        'h' => "cvt.u64.u16 %d5, %h0",
        'r' => "cvt.u64.u32 %d5, %r0",
        'd' => "mov.b64 %d5, %d0",
        _ => "selp.u64 %d5, 1, 0, %p0",
    };
    format!(
        ".version 8.0\n.target sm_70\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<6>; .reg .b64 %d<10>;\n\
         ld.param.u64 %d6, [in]; ld.param.u64 %d7, [out]; mov.u32 %r4, %tid.x;\n\
         mad.wide.u32 %d6, %r4, 24, %d6; mad.wide.u32 %d7, %r4, 8, %d7;\n\
         ld.global.u64 %d1, [%d6]; ld.global.u64 %d2, [%d6+8]; ld.global.u64 %d3, [%d6+16];\n\
         cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; cvt.u32.u64 %r3, %d3;\n\
         cvt.u16.u64 %h1, %d1; cvt.u16.u64 %h2, %d2; cvt.u16.u64 %h3, %d3;\n\
         and.b32 %r5, %r3, 1; setp.ne.u32 %p3, %r5, 0;\n\
         and.b32 %r5, %r2, 1; setp.ne.u32 %p2, %r5, 0;\n\
         and.b32 %r5, %r1, 1; setp.ne.u32 %p1, %r5, 0;\n\
         {call};\n{widen};\nst.global.u64 [%d7], %d5;\nret;\n}}\n"
    )
}

fn check(cases: &[Case], seed: u64) {
    println!("seed {seed}");
    let mut random = Random(seed);
    for case in cases {
        // 77 threads: a full warp, another, and a part of one.
        let operands: Vec<[u64; 3]> =
            (0..77).map(|_| [random.operand(), random.operand(), random.operand()]).collect();
        let mut way = Runner::new(&kernel(case));
        let (from, to) = (way.device.put(&operands), way.device.put(&[0u64; 77]));
        way.run("k", [1, 1, 1], [77, 1, 1], 0, &[Arg::U64(from), Arg::U64(to)]).unwrap();
        let bits = match &case.classes[..1] {
            "h" => 0xffff,
            "r" => 0xffff_ffff,
            "p" => 1,
            _ => u64::MAX,
        };
        for ([a, b, c], found) in operands.into_iter().zip(way.device.get::<u64>(to)) {
            let expected = (case.expected)(a, b, c) & bits;
            let (opcode, classes) = (case.opcode, case.classes);
            assert_eq!(found, expected, "{opcode} ({classes}) of {a:#x}, {b:#x}, {c:#x}");
        }
    }
}

#[test]
fn integer_arithmetic() {
    check(&cases::arithmetic(), 101);
}

#[test]
fn bits_and_shifts() {
    check(&cases::bits(), 102);
}

#[test]
fn comparisons_and_selections() {
    check(&cases::comparisons(), 103);
}

#[test]
fn conversions() {
    check(&cases::conversions(), 104);
}

#[test]
fn floating_point() {
    check(&cases::floats(), 105);
}
