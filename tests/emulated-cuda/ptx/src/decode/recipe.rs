//! How instructions that work on registers alone are executed: what each lane does, and in
//! which files its operands are.

use crate::registers::{Class, LaneFn};

/// One instruction's execution and the classes of its operands.
pub(super) struct Recipe {
    pub(super) run: LaneFn,
    pub(super) d: Class,
    pub(super) s: &'static [Class],
    pub(super) k: u32,
}

macro_rules! one {
    ($d:ty, $a:ty, $f:expr) => {{
        fn run(r: &mut Registers, o: &Operands, mask: u32) {
            r.map1::<$d, $a>(o, mask, $f)
        }
        Recipe { run, d: <$d>::CLASS, s: &[<$a>::CLASS], k: 0 }
    }};
    ($t:ty, $f:expr) => {
        one!($t, $t, $f)
    };
}

macro_rules! two {
    ($d:ty, $a:ty, $b:ty, $f:expr) => {{
        fn run(r: &mut Registers, o: &Operands, mask: u32) {
            r.map2::<$d, $a, $b>(o, mask, $f)
        }
        Recipe { run, d: <$d>::CLASS, s: &[<$a>::CLASS, <$b>::CLASS], k: 0 }
    }};
    ($t:ty, $f:expr) => {
        two!($t, $t, $t, $f)
    };
}

macro_rules! three {
    ($d:ty, $a:ty, $b:ty, $c:ty, $f:expr) => {{
        fn run(r: &mut Registers, o: &Operands, mask: u32) {
            r.map3::<$d, $a, $b, $c>(o, mask, $f)
        }
        Recipe { run, d: <$d>::CLASS, s: &[<$a>::CLASS, <$b>::CLASS, <$c>::CLASS], k: 0 }
    }};
    ($t:ty, $f:expr) => {
        three!($t, $t, $t, $t, $f)
    };
}

pub(super) use {one, three, two};
