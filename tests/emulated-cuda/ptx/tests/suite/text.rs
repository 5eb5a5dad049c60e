//! Text that is refused, and rare forms that are not.

use ptx::{FaultKind, Module};

use crate::device::{Arg, Runner};

/// A kernel with a buffer at %d0, the thread in %r0, and a body.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_70\n.address_size 64\n\
         .visible .entry k(.param .u64 out)\n{{\n\
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;\n\
         ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )
}

/// The line in `kernel` where a body begins.
const BODY: usize = 8;

fn run(body: &str, threads: u32, buffer: &[u64]) -> Vec<u64> {
    let mut way = Runner::new(&kernel(body));
    let out = way.device.put(buffer);
    way.run("k", [1, 1, 1], [threads, 1, 1], 0, &[Arg::U64(out)]).unwrap_or_else(|e| panic!("{e}"));
    way.device.get(out)
}

#[test]
fn what_is_not_understood_is_an_error_at_its_line() {
    for wrong in [
        "frobnicate.u32 %r1, %r2;",
        "add.u32 %r1, %r2;",
        "add.u32 %r1, %r2, %r3, %r4;",
        "add.u32.ftz %r1, %r2, %r3;",
        "add.rz.f32 %r1, %r2, %r3;",
        "add.ftz.f32 %r1, %r2, %r3;",
        "add.u32 %r1, %d2, %r3;",
        "add.u32 %r99, %r2, %r3;",
        "add.u32 %r1, %r2, nothing;",
        "add.u32 5, %r2, %r3;",
        "bra NOWHERE;",
        "brx.idx %r1, NO_TABLE;",
        "call (%r1), f, (%r2);",
        "ld.global.b128 %d1, [%d0];",
        "ld.surface.u32 %r1, [%d0];",
        "ld.global.u64 %r1, [%d0];",
        "ld.global.v2.u32 %r1, [%d0];",
        "ld.global.u32 %r1, %d0;",
        "st.const.u32 [%d0], %r1;",
        "atom.global.frob.u32 %r1, [%d0], %r2;",
        "atom.global.cas.b32 %r1, [%d0], %r2;",
        "cvt.f32.u32 %r1, %r2;",
        "cvt.rn.f16.f32 %h1, %r2;",
        "cvt.u64.u32 %r1, %r2;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "mov.u32 %r1, %ctaid.w;",
        "mov.b64 {%r1, %r2, %r3}, %d0;",
        "shfl.up.b32 %r1, %r2, 1, 0;",
        "bar.arrive 0, 64;",
        "vote.sync.some.pred %p1, %p2, -1;",
        ".frob 5;",
        "tex.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [t, {%r5, %r6}];",
        "mov.u32 %r1, 12z;",
    ] {
        let text = kernel(&format!("\n{wrong}"));
        match Module::parse(&text) {
            Ok(_) => panic!("`{wrong}` was taken"),
            Err(error) => assert_eq!(error.line, BODY + 1, "{wrong}: {error}"),
        }
    }
    for (wrong, line) in [
        ("", 1),
        (".version 8.0\n.target sm_70\n.address_size 32\n", 3),
        (".version 8.0\n.func f() { ret; }", 2),
        (".version 8.0\n.extern .global .u32 x;", 2),
        (".version 8.0\n.global .u32 x[2] = {1, 2, 3};", 2),
        (".version 8.0\n.visible .entry k()\n{\n.reg .b128 %q;\nret;\n}", 4),
        (".version 8.0\n.visible .entry k()\n{\nA: ret;\nA: ret;\n}", 5),
        (".version 8.0\n.visible .entry k()\n{\nret;", 4),
    ] {
        match Module::parse(wrong) {
            Ok(_) => panic!("{wrong:?} was taken"),
            Err(error) => assert_eq!(error.line, line, "{wrong:?}: {error}"),
        }
    }
}

#[test]
fn debug_lines_pragmas_and_comments_are_passed_over() {
    let body = ".loc 1 10 3\n.pragma \"nounroll\";\n// bra NOWHERE;\n/* x\ny */\n\
                .loc 1 11 3, function_name $L__info_string0, inlined_at 1 5 3\n\
                mov.u64 %d1, 42; st.global.u64 [%d0], %d1;";
    assert_eq!(run(body, 1, &[0]), [42]);
}

#[test]
fn scopes_have_registers_and_labels_of_their_own() {
    let body = "mov.u32 %r1, 1;\n\
        { .reg .b32 %r1; mov.u32 %r1, 50; bra L; mov.u32 %r1, 60; L: add.u32 %r2, %r1, 0; }\n\
        { .reg .b32 t; mov.u32 t, 7; bra L; mov.u32 t, 8; L: add.u32 %r2, %r2, t; }\n\
        add.u32 %r1, %r1, %r2; st.global.u32 [%d0], %r1;";
    assert_eq!(run(body, 1, &[0]), [58]);
}

#[test]
fn branches_by_tables() {
    let body = "and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r0, 7;\n\
        @%p1 bra DONE;\n\
        T: .branchtargets A, B, A, C;\n\
        brx.idx %r1, T;\n\
        A: mov.u64 %d1, 100; bra.uni STORE;\n\
        B: mov.u64 %d1, 200; bra.uni STORE;\n\
        C: mov.u64 %d1, 300;\n\
        STORE: mul.wide.u32 %d2, %r0, 8; add.s64 %d2, %d2, %d0; st.global.u64 [%d2], %d1;\n\
        DONE:";
    assert_eq!(run(body, 9, &[5; 9]), [100, 200, 100, 300, 100, 200, 100, 5, 100]);
    let mut way = Runner::new(&kernel("T: .branchtargets A; brx.idx %r0, T; A:"));
    let out = way.device.put(&[0u64]);
    let fault = way.run("k", [1, 1, 1], [2, 1, 1], 0, &[Arg::U64(out)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
}

#[test]
fn loads_and_stores_of_every_size() {
    let body = "ld.global.s8 %r1, [%d0]; cvt.s64.s32 %d1, %r1; st.global.u64 [%d0+8], %d1;\n\
        ld.global.u8 %h1, [%d0]; cvt.u64.u16 %d1, %h1; st.global.u64 [%d0+16], %d1;\n\
        ld.global.s16 %d1, [%d0]; st.global.u64 [%d0+24], %d1;\n\
        ld.global.v4.u8 {%h1, _, %h3, %h4}, [%d0+4]; mov.b64 %d1, {%h1, %h3, %h4, %h1};\n\
        st.global.b64 [%d0+32], %d1;\n\
        ld.global.v2.s32 {%d1, %d2}, [%d0]; st.global.v2.u64 [%d0+48], {%d1, %d2};\n\
        st.global.v4.u16 [%d0+40], {1, %h1, %r1, 0x1ffff};";
    let first = 0x8877_6655_4433_2280u64;
    let mut buffer = [0; 8];
    buffer[0] = first;
    let expected = [
        first,
        0x80u8 as i8 as u64,
        0x80,
        0x2280,
        0x0055_0088_0077_0055,
        0xffff_ff80_0055_0001,
        0x4433_2280,
        0x8877_6655u32 as i32 as u64,
    ];
    assert_eq!(run(body, 1, &buffer), expected);
}

#[test]
fn spaces_and_generic_addresses() {
    let text = ".version 8.0\n.target sm_70\n.address_size 64\n\
        .const .align 4 .u32 table[4] = {10, 20, 30, 0x28};\n\
        .global .align 8 .u64 pointers[2] = {generic(table), generic(table)+8};\n\
        .global .f32 one = 0f3F800000;\n\
        .visible .entry k(.param .u64 out)\n{\n\
        .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n\
        .local .align 8 .b8 own[16]; .shared .align 8 .b8 pad[32];\n\
        ld.param.u64 %d0, [out];\n\
        mov.u64 %d1, own; cvta.local.u64 %d2, %d1; mov.u64 %d3, 7; st.u64 [%d2+8], %d3;\n\
        ld.local.u64 %d4, [own+8]; st.global.u64 [%d0], %d4;\n\
        mov.u64 %d1, pad; cvta.shared.u64 %d2, %d1; mov.u64 %d3, 8; st.u64 [%d2+24], %d3;\n\
        mov.u32 %r1, pad+24; ld.shared.u64 %d4, [%r1]; st.u64 [%d0+8], %d4;\n\
        isspacep.shared %p1, %d2; selp.u64 %d4, 1, 0, %p1; st.u64 [%d0+16], %d4;\n\
        isspacep.global %p1, %d2; selp.u64 %d4, 1, 0, %p1; st.u64 [%d0+24], %d4;\n\
        mov.u64 %d5, pointers; ld.global.u64 %d6, [%d5+8]; ld.u32 %r2, [%d6+4];\n\
        cvt.u64.u32 %d4, %r2; st.u64 [%d0+32], %d4;\n\
        ld.const.u32 %r2, [table+4]; cvt.u64.u32 %d4, %r2; st.u64 [%d0+40], %d4;\n\
        ld.global.f32 %r2, [one]; cvt.f64.f32 %d4, %r2; st.u64 [%d0+48], %d4;\n\
        cvta.to.shared.u64 %d7, %d2; st.global.u64 [%d0+56], %d7;\nret;\n}\n";
    let mut way = Runner::new(text);
    let out = way.device.put(&[99u64; 8]);
    way.run("k", [1, 1, 1], [1, 1, 1], 0, &[Arg::U64(out)]).unwrap();
    let expected = [7, 8, 1, 0, 40, 20, 1.0f64.to_bits(), 0];
    assert_eq!(way.device.get::<u64>(out), expected);
}

#[test]
fn bounds_of_every_space() {
    let text = |access: &str| {
        format!(
            ".version 8.0\n.target sm_70\n.const .u32 table[2]; .const .u32 next[2];\n\
             .global .u32 here; .global .u32 there[64];\n\
             .entry k(.param .u64 out) {{ .reg .b32 %r<4>; .reg .b64 %d<4>;\n\
             .local .b8 own[8]; .shared .b8 pad[8];\n{access};\nret; }}"
        )
    };
    for access in [
        "ld.const.u32 %r1, [table+8]",
        "ld.local.u32 %r1, [own+8]",
        "st.shared.u32 [pad+8], 5",
        "ld.param.u32 %r1, [out+8]",
        "ld.global.u32 %r1, [here+4]",
        "ld.u32 %r1, [4096]",
        "mov.u64 %d1, own; cvta.local.u64 %d1, %d1; ld.u64 %d2, [%d1+8]",
        "mov.u64 %d1, own; cvta.local.u64 %d1, %d1; ld.u32 %r2, [%d1-4]",
    ] {
        let mut way = Runner::new(&text(access));
        let out = way.device.put(&[0u64]);
        let fault = way.run("k", [1, 1, 1], [1, 1, 1], 0, &[Arg::U64(out)]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress, "{access}: {fault}");
    }
}

#[test]
fn atomics_of_every_kind() {
    let body = "atom.global.add.u32 %r1, [%d0], 5; st.global.u32 [%d0+4], %r1;\n\
        atom.global.min.s64 %d1, [%d0+8], -3; atom.global.max.u64 _, [%d0+16], -3;\n\
        red.global.and.b32 [%d0+24], 0xf0; red.global.or.b32 [%d0+28], 0xf;\n\
        atom.global.xor.b64 %d1, [%d0+32], %d0; atom.global.xor.b64 %d1, [%d0+32], %d0;\n\
        atom.global.exch.b32 %r2, [%d0+40], 77; st.global.u32 [%d0+44], %r2;\n\
        atom.global.cas.b64 %d1, [%d0+48], 6, 600; atom.global.cas.b64 %d1, [%d0+48], 6, 700;\n\
        atom.global.inc.u32 %r3, [%d0+56], 7; atom.global.dec.u32 %r3, [%d0+60], 9;\n\
        atom.global.add.f32 %r3, [%d0+64], 0f3F800000; atom.global.min.u32 %r3, [%d0+68], 3;\n\
        atom.global.add.f64 %d3, [%d0+72], 0d3FF8000000000000;\n\
        atom.global.max.s32 %r3, [%d0+80], -7; red.global.add.u64 [%d0+88], 1;";
    let buffer = [37, 2, 2, 0xff | 0xf0 << 32, 5, 13, 6, 7, u64::from(2.0f32.to_bits()) | 9 << 32];
    let mut buffer = buffer.to_vec();
    buffer.extend([0.5f64.to_bits(), -9i32 as u32 as u64, u64::MAX]);
    let expected = [
        42 | 37 << 32,
        -3i64 as u64,
        -3i64 as u64,
        0xf0 | 0xff << 32,
        5,
        77 | 13 << 32,
        600,
        9 << 32,
        u64::from(3.0f32.to_bits()) | 3 << 32,
        2.0f64.to_bits(),
        -7i32 as u32 as u64,
        0,
    ];
    assert_eq!(run(body, 1, &buffer), expected);
}

#[test]
fn special_registers() {
    let text = ".version 8.0\n.target sm_70\n.visible .entry k(.param .u64 out) .maxntid 64, 1, 1\n{\n\
        .reg .b32 %r<32>; .reg .b64 %d<4>; ld.param.u64 %d0, [out];\n\
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;\n\
        mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;\n\
        mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y; mov.u32 %r9, %ntid.z;\n\
        mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %nctaid.z;\n\
        mad.lo.u32 %r20, %r6, %r11, %r5; mad.lo.u32 %r20, %r20, %r10, %r4;\n\
        mad.lo.u32 %r20, %r20, %r9, %r3; mad.lo.u32 %r20, %r20, %r8, %r2;\n\
        mad.lo.u32 %r20, %r20, %r7, %r1; mul.wide.u32 %d1, %r20, 32; add.s64 %d1, %d1, %d0;\n\
        mov.u32 %r21, %laneid; mov.u32 %r22, %warpid; mov.u32 %r23, %lanemask_lt;\n\
        mov.u32 %r24, %lanemask_ge; mov.u32 %r25, %lanemask_eq; mov.u32 %r26, %dynamic_smem_size;\n\
        st.global.v4.u32 [%d1], {%r20, %r21, %r22, %r23};\n\
        st.global.v4.u32 [%d1+16], {%r24, %r25, %r26, WARP_SZ};\nret;\n}\n";
    let mut way = Runner::new(text);
    let threads = 5 * 3 * 4 * 2 * 3 * 2;
    let out = way.device.put(&vec![0u32; threads * 8]);
    way.run("k", [2, 3, 2], [5, 3, 4], 48, &[Arg::U64(out)]).unwrap();
    for (t, found) in way.device.get::<u32>(out).chunks(8).enumerate() {
        let (flat, lane) = (t as u32 % 60, t as u32 % 60 % 32);
        let expected =
            [t as u32, lane, flat / 32, (1 << lane) - 1, u32::MAX << lane, 1 << lane, 48, 32];
        assert_eq!(found, expected);
    }
    let fault = way.run("k", [1, 1, 1], [65, 1, 1], 0, &[Arg::U64(out)]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
}

#[test]
fn named_barriers_for_a_part_of_the_block() {
    let text = ".version 8.0\n.target sm_70\n.visible .entry k(.param .u64 out)\n{\n\
        .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<4>; .shared .b32 pad[96];\n\
        ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 4;\n\
        setp.ge.u32 %p1, %r0, 64; mov.u32 %r2, pad; add.u32 %r2, %r2, %r1;\n\
        @%p1 bra LAST; st.shared.u32 [%r2], %r0; barrier.sync 3, 64;\n\
        xor.b32 %r3, %r2, 128; ld.shared.u32 %r4, [%r3]; bra.uni OUT;\n\
        LAST: mov.u32 %r4, 1000;\n\
        OUT: cvt.u64.u32 %d1, %r1; add.s64 %d1, %d1, %d0; barrier.cta.sync.aligned 0;\n\
        st.global.u32 [%d1], %r4;\nret;\n}\n";
    for seed in 0..6 {
        let mut way = Runner::new(text);
        if seed > 0 {
            way = way.adversarial(seed).races();
        }
        let out = way.device.put(&[0u32; 96]);
        way.run("k", [1, 1, 1], [96, 1, 1], 0, &[Arg::U64(out)]).unwrap();
        for (t, found) in way.device.get::<u32>(out).into_iter().enumerate() {
            assert_eq!(found, if t < 64 { t as u32 ^ 32 } else { 1000 });
        }
    }
}
