//! The registers of one warp: each register is a vector of 32 lanes.
//!
//! Constants and most special registers are registers too, filled in before the warp starts, so
//! that an instruction's operands are nothing but indices. No instruction is known here.

/// Threads of a warp.
pub(crate) const LANES: usize = 32;
/// A mask with every lane of a warp.
pub(crate) const FULL: u32 = u32::MAX;
/// In the index of a predicate: the opposite is meant.
pub(crate) const NEGATED: u32 = 1 << 31;
/// An index that stands for no register.
pub(crate) const NONE: u32 = u32::MAX;

/// Which file a register is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Predicate,
    Half,
    Single,
    Double,
}

/// Indices of the operands of one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operands {
    pub(crate) d: u32,
    /// A second destination, or NONE.
    pub(crate) e: u32,
    pub(crate) s: [u32; 4],
    /// What the opcode's modifiers add.
    pub(crate) k: u32,
}

/// Executes one instruction for the lanes of a mask.
pub(crate) type LaneFn = fn(&mut Registers, &Operands, u32);

/// The register files of a warp.
#[derive(Clone, Default)]
pub(crate) struct Registers {
    pub(crate) predicates: Vec<u32>,
    pub(crate) half: Vec<[u16; LANES]>,
    pub(crate) single: Vec<[u32; LANES]>,
    pub(crate) double: Vec<[u64; LANES]>,
    /// The carry flag of each lane.
    pub(crate) carry: u32,
}

/// A register's content in one lane.
pub(crate) trait Word: Copy + Default + 'static {
    const CLASS: Class;
    const BITS: u32;
    fn file(registers: &Registers) -> &[[Self; LANES]];
    fn file_mut(registers: &mut Registers) -> &mut [[Self; LANES]];
    fn wide(self) -> u64;
    fn narrow(wide: u64) -> Self;
}

macro_rules! word {
    ($type:ty, $class:ident, $file:ident) => {
        impl Word for $type {
            const CLASS: Class = Class::$class;
            const BITS: u32 = <$type>::BITS;
            #[inline(always)]
            fn file(registers: &Registers) -> &[[Self; LANES]] {
                &registers.$file
            }
            #[inline(always)]
            fn file_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
                &mut registers.$file
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn narrow(wide: u64) -> Self {
                wide as $type
            }
        }
    };
}
word!(u16, Half, half);
word!(u32, Single, single);
word!(u64, Double, double);

/// Lanes that are worked on at once: small enough to stay in vector registers, so that a
/// destination may be a source as well.
const STEP: usize = 8;

impl Registers {
    /// A predicate by an index that may be NEGATED.
    #[inline(always)]
    pub(crate) fn predicate(&self, index: u32) -> u32 {
        let flip = if index & NEGATED != 0 { FULL } else { 0 };
        self.predicates[(index & !NEGATED) as usize] ^ flip
    }

    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, index: u32, bits: u32, mask: u32) {
        if index != NONE {
            let p = &mut self.predicates[index as usize];
            *p = *p & !mask | bits & mask;
        }
    }

    #[inline(always)]
    fn put<D: Word>(&mut self, index: u32, from: usize, values: [D; STEP], mask: u32) {
        let to = &mut D::file_mut(self)[index as usize][from..from + STEP];
        if mask == FULL {
            to.copy_from_slice(&values);
            return;
        }
        // A choice for each lane, not a branch: this is done in vectors.
        for i in 0..STEP {
            to[i] = if mask >> (from + i) & 1 != 0 { values[i] } else { to[i] };
        }
    }

    #[inline(always)]
    pub(crate) fn map1<D: Word, A: Word>(&mut self, o: &Operands, mask: u32, f: impl Fn(A) -> D) {
        for from in (0..LANES).step_by(STEP) {
            let mut values = [D::default(); STEP];
            let a = &A::file(self)[o.s[0] as usize][from..from + STEP];
            for i in 0..STEP {
                values[i] = f(a[i]);
            }
            self.put(o.d, from, values, mask);
        }
    }

    #[inline(always)]
    pub(crate) fn map2<D: Word, A: Word, B: Word>(
        &mut self,
        o: &Operands,
        mask: u32,
        f: impl Fn(A, B) -> D,
    ) {
        for from in (0..LANES).step_by(STEP) {
            let mut values = [D::default(); STEP];
            let a = &A::file(self)[o.s[0] as usize][from..from + STEP];
            let b = &B::file(self)[o.s[1] as usize][from..from + STEP];
            for i in 0..STEP {
                values[i] = f(a[i], b[i]);
            }
            self.put(o.d, from, values, mask);
        }
    }

    #[inline(always)]
    pub(crate) fn map3<D: Word, A: Word, B: Word, C: Word>(
        &mut self,
        o: &Operands,
        mask: u32,
        f: impl Fn(A, B, C) -> D,
    ) {
        for from in (0..LANES).step_by(STEP) {
            let mut values = [D::default(); STEP];
            let a = &A::file(self)[o.s[0] as usize][from..from + STEP];
            let b = &B::file(self)[o.s[1] as usize][from..from + STEP];
            let c = &C::file(self)[o.s[2] as usize][from..from + STEP];
            for i in 0..STEP {
                values[i] = f(a[i], b[i], c[i]);
            }
            self.put(o.d, from, values, mask);
        }
    }

    /// Two words and two numbers to a word.
    #[inline(always)]
    pub(crate) fn map4<T: Word>(
        &mut self,
        o: &Operands,
        mask: u32,
        f: impl Fn(T, T, u32, u32) -> T,
    ) {
        for from in (0..LANES).step_by(STEP) {
            let mut values = [T::default(); STEP];
            let a = &T::file(self)[o.s[0] as usize][from..from + STEP];
            let b = &T::file(self)[o.s[1] as usize][from..from + STEP];
            let c = &self.single[o.s[2] as usize][from..from + STEP];
            let d = &self.single[o.s[3] as usize][from..from + STEP];
            for i in 0..STEP {
                values[i] = f(a[i], b[i], c[i], d[i]);
            }
            self.put(o.d, from, values, mask);
        }
    }

    /// The first source where the predicate of the third holds, else the second.
    #[inline(always)]
    pub(crate) fn select<T: Word>(&mut self, o: &Operands, mask: u32) {
        let choice = self.predicate(o.s[2]);
        for from in (0..LANES).step_by(STEP) {
            let mut values = [T::default(); STEP];
            let a = &T::file(self)[o.s[0] as usize][from..from + STEP];
            let b = &T::file(self)[o.s[1] as usize][from..from + STEP];
            for i in 0..STEP {
                values[i] = if choice >> (from + i) & 1 != 0 { a[i] } else { b[i] };
            }
            self.put(o.d, from, values, mask);
        }
    }

    /// Lanes where `f` holds.
    #[inline(always)]
    pub(crate) fn test2<A: Word, B: Word>(&self, o: &Operands, f: impl Fn(A, B) -> bool) -> u32 {
        let a = &A::file(self)[o.s[0] as usize];
        let b = &B::file(self)[o.s[1] as usize];
        let mut bits = 0;
        for i in 0..LANES {
            bits |= u32::from(f(a[i], b[i])) << i;
        }
        bits
    }

    /// One lane of a register, widened with zeros.
    #[inline(always)]
    pub(crate) fn lane(&self, class: Class, index: u32, lane: usize) -> u64 {
        match class {
            Class::Half => self.half[index as usize][lane].into(),
            Class::Single => self.single[index as usize][lane].into(),
            Class::Double => self.double[index as usize][lane],
            Class::Predicate => u64::from(self.predicate(index) >> lane & 1),
        }
    }

    /// Sets one lane of a register to the low bits of a value.
    #[inline(always)]
    pub(crate) fn set_lane(&mut self, class: Class, index: u32, lane: usize, value: u64) {
        match class {
            Class::Half => self.half[index as usize][lane] = value as u16,
            Class::Single => self.single[index as usize][lane] = value as u32,
            Class::Double => self.double[index as usize][lane] = value,
            Class::Predicate => {
                self.set_predicate(index, (value as u32 & 1) << lane, 1 << lane);
            }
        }
    }
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}
