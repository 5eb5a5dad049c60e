//! Loads, stores and atomics of a warp: first every lane's bytes are found and checked, then
//! values move.

use super::block::Grid;
use super::fault::{Fault, FaultKind};
use super::race::{Use, User};
use super::warp::Warp;
use crate::code::{Access, Address, Atomic, Change, window};
use crate::registers::{Class, FULL, LANES, NONE, Registers, lanes};
use crate::syntax::Space;

/// Where each lane's bytes are; only lanes of the access' mask count.
type Places = [*mut u8; LANES];

/// Bytes that the memory system moves at once.
const SECTOR: u64 = 32;

/// What is asked of memory by one instruction.
#[derive(Clone, Copy)]
struct Request {
    space: Space,
    address: Address,
    /// Of each lane.
    bytes: u64,
    kind: Use,
    line: u32,
}

impl Grid<'_> {
    /// The bytes of each lane, or the fault of the first lane that has none.
    fn locate(&mut self, warp: &mut Warp, mask: u32, request: Request) -> Result<Places, Fault> {
        let addresses = addresses(&warp.registers, request.address);
        if let Some(places) = self.locate_at_once(mask, &addresses, request) {
            if request.space == Space::Global {
                self.count(mask, &addresses, request);
            }
            if self.races.is_some() {
                self.watch(warp, mask, &addresses, request)?;
            }
            return Ok(places);
        }
        let mut places: Places = [std::ptr::null_mut(); LANES];
        let (mut global, bytes) = (0u32, request.bytes);
        let local = self.code.local as usize;
        for lane in lanes(mask) {
            let address = addresses[lane];
            if address & (bytes - 1) != 0 {
                let what = format!("{address:#x} is no multiple of {bytes}");
                return Err(self.fault(FaultKind::Misaligned, warp, 1 << lane, request.line, what));
            }
            let own = &mut warp.local[lane * local..(lane + 1) * local];
            match self.memory.locate(request.space, address, bytes, own) {
                Some(place) => places[lane] = place,
                None => return Err(self.out_of_bounds(warp, lane, address, request)),
            }
            let space = match request.space {
                Space::Generic => window::space(address),
                space => space,
            };
            global |= u32::from(space == Space::Global) << lane;
        }
        if global != 0 {
            self.count(global, &addresses, request);
        }
        if self.races.is_some() {
            self.watch(warp, mask, &addresses, request)?;
        }
        Ok(places)
    }

    /// The usual case: all lanes in the same stretch of memory, and nothing wrong with any.
    fn locate_at_once(
        &mut self,
        mask: u32,
        addresses: &[u64; LANES],
        request: Request,
    ) -> Option<Places> {
        let first = addresses[mask.trailing_zeros() as usize & (LANES - 1)];
        let span = self.memory.stretch(request.space, first)?;
        let last = span.len.checked_sub(request.bytes)?;
        let mut places: Places = [span.data; LANES];
        let mut fits = true;
        for lane in 0..LANES {
            // Lanes that take no part stand where the first one does.
            let address = if mask >> lane & 1 != 0 { addresses[lane] } else { first };
            let offset = address.wrapping_sub(span.base);
            fits &= address & (request.bytes - 1) == 0 && offset <= last;
            places[lane] = span.data.wrapping_add(offset as usize);
        }
        fits.then_some(places)
    }

    fn out_of_bounds(&mut self, warp: &Warp, lane: usize, address: u64, request: Request) -> Fault {
        let around = self.memory.describe(request.space, address);
        let (verb, bytes) = (request.kind.verb(), request.bytes);
        let what = format!("{verb} {bytes} bytes at {address:#x}, but {around}");
        self.fault(FaultKind::IllegalAddress, warp, 1 << lane, request.line, what)
    }

    /// Sectors and bytes. An aligned access of at most 16 bytes is in one sector.
    fn count(&mut self, mask: u32, addresses: &[u64; LANES], request: Request) {
        let mut sectors = [0u64; LANES];
        let (mut n, mut ascending) = (0, true);
        for lane in lanes(mask) {
            sectors[n] = addresses[lane] / SECTOR;
            ascending &= n == 0 || sectors[n - 1] <= sectors[n];
            n += 1;
        }
        let sectors = &mut sectors[..n];
        if !ascending {
            sectors.sort_unstable();
        }
        let distinct = 1 + sectors.windows(2).filter(|w| w[0] != w[1]).count() as u64;
        let bytes = request.bytes * n as u64;
        if request.kind.reads() {
            self.stats.sectors_loaded += distinct;
            self.stats.bytes_loaded += bytes;
        }
        if request.kind.writes() {
            self.stats.sectors_stored += distinct;
            self.stats.bytes_stored += bytes;
        }
    }

    /// Tells the race check.
    fn watch(
        &mut self,
        warp: &Warp,
        mask: u32,
        addresses: &[u64; LANES],
        request: Request,
    ) -> Result<(), Fault> {
        for lane in lanes(mask) {
            let address = addresses[lane];
            let (space, at) = match request.space {
                Space::Generic => {
                    let space = window::space(address);
                    (space, address.wrapping_sub(window::base(space)))
                }
                space => (space, address),
            };
            let Some(races) = &mut self.races else { return Ok(()) };
            let (bytes, kind, line) = (request.bytes, request.kind, request.line);
            let user = User { warp: warp.number, lane, line, clocks: &warp.clocks };
            let conflict = match space {
                Space::Shared => races.shared(user, at, bytes, kind),
                Space::Global => match self.memory.span(at) {
                    Some(span) => races.global(user, span, at, bytes, kind),
                    None => None,
                },
                _ => None,
            };
            if let Some(conflict) = conflict {
                let what = format!("{} {space:?} memory {conflict}", request.kind.verb());
                return Err(self.fault(FaultKind::Race, warp, 1 << lane, request.line, what));
            }
        }
        Ok(())
    }

    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        access: &Access,
        line: u32,
    ) -> Result<(), Fault> {
        let places = self.locate(warp, mask, request(access, Use::Read, line))?;
        for (n, (class, index)) in access.values.iter().enumerate() {
            if *index == NONE {
                continue;
            }
            let at = n * access.size as usize;
            let r = &mut warp.registers;
            // SAFETY: `locate` found the bytes of every element for every lane of the mask.
            unsafe {
                match (access.size, access.signed, class) {
                    (4, _, Class::Single) => {
                        fill(&mut r.single[*index as usize], mask, &places, at, |v: u32| v);
                    }
                    (8, _, _) => {
                        fill(&mut r.double[*index as usize], mask, &places, at, |v: u64| v);
                    }
                    (1, false, Class::Half) => {
                        fill(&mut r.half[*index as usize], mask, &places, at, |v: u8| v.into());
                    }
                    (1, false, Class::Single) => {
                        fill(&mut r.single[*index as usize], mask, &places, at, |v: u8| v.into());
                    }
                    (2, _, Class::Half) => {
                        fill(&mut r.half[*index as usize], mask, &places, at, |v: u16| v);
                    }
                    (size, signed, class) => {
                        for lane in lanes(mask) {
                            let value = read(places[lane].add(at), size, signed);
                            r.set_lane(*class, *index, lane, value);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        access: &Access,
        line: u32,
    ) -> Result<(), Fault> {
        let places = self.locate(warp, mask, request(access, Use::Write, line))?;
        for (n, (class, index)) in access.values.iter().enumerate() {
            let at = n * access.size as usize;
            let (r, index) = (&warp.registers, *index as usize);
            // SAFETY: `locate` found the bytes of every element for every lane of the mask.
            unsafe {
                match (access.size, class) {
                    (4, Class::Single) => spill(&r.single[index], mask, &places, at, |v| v),
                    (8, _) => spill(&r.double[index], mask, &places, at, |v| v),
                    (1, Class::Half) => spill(&r.half[index], mask, &places, at, |v| v as u8),
                    (1, Class::Single) => spill(&r.single[index], mask, &places, at, |v| v as u8),
                    (2, Class::Half) => spill(&r.half[index], mask, &places, at, |v| v),
                    (size, class) => {
                        for lane in lanes(mask) {
                            let value = r.lane(*class, index as u32, lane);
                            write(places[lane].add(at), size, value);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        atomic: &Atomic,
        line: u32,
    ) -> Result<(), Fault> {
        let request = Request {
            space: atomic.space,
            address: atomic.address,
            bytes: atomic.size.into(),
            kind: if atomic.old == NONE { Use::Reduction } else { Use::Atomic },
            line,
        };
        let places = self.locate(warp, mask, request)?;
        for lane in lanes(mask) {
            let operand = |n: usize| match atomic.operands[n] {
                NONE => 0,
                index => warp.registers.lane(atomic.class, index, lane),
            };
            let (a, b) = (operand(0), operand(1));
            // SAFETY: `locate` found the bytes for every lane of the mask.
            let old = unsafe { read(places[lane], atomic.size, false) };
            let new = changed(atomic.change, atomic.size, old, a, b);
            // SAFETY: as above.
            unsafe { write(places[lane], atomic.size, new) };
            if atomic.old != NONE {
                warp.registers.set_lane(atomic.class, atomic.old, lane, old);
            }
        }
        Ok(())
    }
}

fn request(access: &Access, kind: Use, line: u32) -> Request {
    let bytes = u64::from(access.size) * access.values.len() as u64;
    Request { space: access.space, address: access.address, bytes, kind, line }
}

fn addresses(registers: &Registers, address: Address) -> [u64; LANES] {
    let offset = address.offset as u64;
    let mut addresses = [offset; LANES];
    match (address.base, address.class) {
        (NONE, _) => {}
        (base, Class::Single) => {
            for (address, v) in addresses.iter_mut().zip(&registers.single[base as usize]) {
                *address = u64::from(v.wrapping_add(offset as u32));
            }
        }
        (base, _) => {
            for (address, v) in addresses.iter_mut().zip(&registers.double[base as usize]) {
                *address = v.wrapping_add(offset);
            }
        }
    }
    addresses
}

/// Reads an element of each lane into a register.
///
/// # Safety
/// Each lane of the mask has a `T` at its place plus `at` bytes.
#[inline(always)]
unsafe fn fill<D, T: Copy>(
    to: &mut [D; LANES],
    mask: u32,
    places: &Places,
    at: usize,
    f: impl Fn(T) -> D,
) {
    if mask == FULL {
        for lane in 0..LANES {
            // SAFETY: the caller's promise; alignment is not needed.
            to[lane] = f(unsafe { places[lane].add(at).cast::<T>().read_unaligned() });
        }
        return;
    }
    for lane in lanes(mask) {
        // SAFETY: as above.
        to[lane] = f(unsafe { places[lane].add(at).cast::<T>().read_unaligned() });
    }
}

/// Writes a register as an element of each lane, the highest lane last.
///
/// # Safety
/// Each lane of the mask has room for a `T` at its place plus `at` bytes.
#[inline(always)]
unsafe fn spill<A: Copy, T>(
    from: &[A; LANES],
    mask: u32,
    places: &Places,
    at: usize,
    f: impl Fn(A) -> T,
) {
    for lane in lanes(mask) {
        // SAFETY: the caller's promise; alignment is not needed.
        unsafe { places[lane].add(at).cast::<T>().write_unaligned(f(from[lane])) };
    }
}

/// A little-endian number, widened.
///
/// # Safety
/// `size` bytes must be readable.
unsafe fn read(from: *const u8, size: u8, signed: bool) -> u64 {
    // SAFETY: the caller's promise; alignment is not needed.
    unsafe {
        match (size, signed) {
            (1, false) => from.read().into(),
            (1, true) => from.cast::<i8>().read() as u64,
            (2, false) => from.cast::<u16>().read_unaligned().into(),
            (2, true) => from.cast::<i16>().read_unaligned() as u64,
            (4, false) => from.cast::<u32>().read_unaligned().into(),
            (4, true) => from.cast::<i32>().read_unaligned() as u64,
            _ => from.cast::<u64>().read_unaligned(),
        }
    }
}

/// The low bytes of a number.
///
/// # Safety
/// `size` bytes must be writable.
unsafe fn write(to: *mut u8, size: u8, value: u64) {
    // SAFETY: the caller's promise; alignment is not needed.
    unsafe {
        match size {
            1 => to.write(value as u8),
            2 => to.cast::<u16>().write_unaligned(value as u16),
            4 => to.cast::<u32>().write_unaligned(value as u32),
            _ => to.cast::<u64>().write_unaligned(value),
        }
    }
}

fn changed(change: Change, size: u8, old: u64, a: u64, b: u64) -> u64 {
    let signed = |v: u64| if size == 4 { i64::from(v as u32 as i32) } else { v as i64 };
    match change {
        Change::Add => old.wrapping_add(a),
        Change::AddFloat if size == 4 => {
            (f32::from_bits(old as u32) + f32::from_bits(a as u32)).to_bits().into()
        }
        Change::AddFloat => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        Change::Min => old.min(a),
        Change::Max => old.max(a),
        Change::MinSigned => signed(old).min(signed(a)) as u64,
        Change::MaxSigned => signed(old).max(signed(a)) as u64,
        Change::And => old & a,
        Change::Or => old | a,
        Change::Xor => old ^ a,
        Change::Exchange => a,
        Change::Compare => {
            if old == a {
                b
            } else {
                old
            }
        }
        Change::Increment => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        Change::Decrement => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
    }
}
