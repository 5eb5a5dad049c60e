//! Device memory: fake addresses with exact bounds.
//!
//! Refuses to know streams. Invariants: an address is never given out twice; between two
//! allocations lie unmapped addresses; a base is a multiple of 256 and of nothing better;
//! no device address is an address of the host, and the processor can't dereference one.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::random::Random;
use crate::status::{Answer, Code};

/// The first fake address: the 49th bit makes it non-canonical on the host.
const FIRST: u64 = 1 << 48;

/// Each device has its own range of addresses.
const RANGE: u64 = 1 << 44;

/// The least distance between two allocations.
const GAP: u64 = 1 << 16;

/// Where an allocation is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// Given out by cuMemAllocAsync, but the stream has not come to it.
    Promised,
    Live,
    /// Freed by cuMemFreeAsync, but the stream has not come to it; still usable.
    Doomed,
}

/// One allocation of a device.
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) context: u64,
    pub(crate) life: Life,
    /// Its line in the report.
    pub(crate) record: usize,
    backing: Backing,
}

impl Allocation {
    fn span(&self) -> ptx::Span {
        ptx::Span { base: self.base, len: self.bytes, data: self.backing.start() }
    }
}

/// What a device has given out, and at most.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    pub(crate) used: u64,
    pub(crate) peak: u64,
}

/// The memory of all devices.
#[derive(Default)]
pub(crate) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
    /// Base and length of what was freed, for the messages.
    graves: BTreeMap<u64, u64>,
    next: Vec<u64>,
    usage: Vec<Usage>,
}

/// Whether an address is of the kind given out here.
pub(crate) fn fake(address: u64) -> bool {
    (FIRST..FIRST << 1).contains(&address)
}

impl Memory {
    pub(crate) fn new(devices: usize) -> Self {
        Memory {
            next: (0..devices as u64).map(|device| FIRST + device * RANGE).collect(),
            usage: vec![Usage::default(); devices],
            ..Memory::default()
        }
    }

    /// A new allocation; `room` is what the device may give out in all.
    pub(crate) fn allocate(
        &mut self,
        place: (usize, u64),
        bytes: u64,
        room: u64,
        life: Life,
        record: usize,
    ) -> Answer<u64> {
        let (device, context) = place;
        if bytes == 0 {
            return Err(Code::INVALID_VALUE.because("an allocation of no bytes"));
        }
        let rounded = bytes.checked_next_multiple_of(256).unwrap_or(u64::MAX);
        let used = self.usage[device].used;
        let fits = used.checked_add(rounded).is_some_and(|sum| sum <= room);
        let backing = if fits { Backing::new(bytes as usize) } else { None };
        let Some(backing) = backing else {
            let text = format!("{bytes} bytes asked for, {used} of {room} in use");
            return Err(Code::OUT_OF_MEMORY.because(text));
        };
        let base = self.next[device].next_multiple_of(512) + 256;
        let noise = Random::new(base).below(64) * 512;
        self.next[device] = base + rounded + GAP + noise;
        let usage = &mut self.usage[device];
        usage.used += rounded;
        usage.peak = usage.peak.max(usage.used);
        let allocation = Allocation { base, bytes, device, context, life, record, backing };
        self.allocations.insert(base, allocation);
        Ok(base)
    }

    /// Takes an allocation away; its line in the report.
    pub(crate) fn release(&mut self, base: u64) -> Option<usize> {
        let allocation = self.allocations.remove(&base)?;
        self.usage[allocation.device].used -= allocation.bytes.next_multiple_of(256);
        self.graves.insert(base, allocation.bytes);
        Some(allocation.record)
    }

    /// The allocation that begins exactly there.
    pub(crate) fn beginning_at(&mut self, base: u64) -> Answer<&mut Allocation> {
        if !self.allocations.contains_key(&base) {
            return Err(Code::INVALID_VALUE.because(self.describe(base, 1)));
        }
        Ok(self.allocations.get_mut(&base).expect("looked up above"))
    }

    /// The allocation that holds the address.
    pub(crate) fn holding(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address - allocation.base < allocation.bytes).then_some(allocation)
    }

    /// The allocation that holds all of a range, for checks when work is submitted.
    pub(crate) fn range(&self, device: usize, address: u64, bytes: u64) -> Answer<&Allocation> {
        match self.holding(address) {
            Some(found) if found.device != device => Err(Code::INVALID_VALUE
                .because(format!("{address:#x} is memory of device {}", found.device))),
            Some(found) if bytes <= found.bytes - (address - found.base) => Ok(found),
            _ => Err(Code::INVALID_VALUE.because(self.describe(address, bytes))),
        }
    }

    /// The host's memory behind a range, for work that executes; a reason otherwise.
    pub(crate) fn bytes(&self, device: usize, address: u64, bytes: u64) -> Result<*mut u8, String> {
        let found = self.range(device, address, bytes).map_err(|refusal| refusal.message)?;
        if found.life == Life::Promised {
            return Err(format!("{address:#x} is not allocated yet in the order of its stream"));
        }
        Ok(found.backing.start().wrapping_add((address - found.base) as usize))
    }

    /// What is at an address, for people.
    pub(crate) fn describe(&self, address: u64, bytes: u64) -> String {
        let range = format!("{bytes} bytes at {address:#x}");
        if let Some(found) = self.holding(address) {
            let offset = address - found.base;
            return format!(
                "{range}: offset {offset} in the {} bytes at {:#x}",
                found.bytes, found.base
            );
        }
        let grave = self.graves.range(..=address).next_back();
        if let Some((base, length)) = grave.filter(|(base, length)| address - *base < **length) {
            return format!("{range}: use after free of the {length} bytes at {base:#x}");
        }
        match self.allocations.range(..=address).next_back() {
            Some((base, before)) if address - base < before.bytes + GAP => format!(
                "{range}: {} bytes after the end of the {} bytes at {base:#x}",
                address - base - before.bytes,
                before.bytes
            ),
            _ => format!("{range}: in no allocation"),
        }
    }

    pub(crate) fn usage(&self, device: usize) -> Usage {
        self.usage.get(device).copied().unwrap_or_default()
    }

    /// Lets the peaks start again at what is in use.
    pub(crate) fn forget_peaks(&mut self) {
        for usage in &mut self.usage {
            usage.peak = usage.used;
        }
    }

    /// The bases of a context's allocations.
    pub(crate) fn of_context(&self, context: u64) -> Vec<u64> {
        let of = self.allocations.values().filter(|one| one.context == context);
        of.map(|allocation| allocation.base).collect()
    }

    /// What kernels of a device see.
    pub(crate) fn view(&self, device: usize) -> View<'_> {
        View { memory: self, device }
    }
}

/// The memory of one device, as its kernels see it.
pub(crate) struct View<'a> {
    memory: &'a Memory,
    device: usize,
}

impl ptx::GlobalMemory for View<'_> {
    fn span(&self, address: u64) -> Option<ptx::Span> {
        let found = self.memory.holding(address)?;
        (found.device == self.device && found.life != Life::Promised).then(|| found.span())
    }
}

#[cfg(test)]
mod tests {
    use super::{Life, Memory};

    fn place(memory: &mut Memory, bytes: u64) -> u64 {
        memory.allocate((0, 1), bytes, 1 << 30, Life::Live, 0).unwrap()
    }

    #[test]
    fn addresses_are_new_apart_and_just_256_aligned() {
        let mut memory = Memory::new(1);
        let mut last = 0;
        for bytes in [1, 255, 256, 257, 4096, 1 << 20] {
            let base = place(&mut memory, bytes);
            assert_eq!(base % 512, 256);
            assert!(base > last);
            assert!(memory.range(0, base, bytes).is_ok());
            assert!(memory.range(0, base, bytes + 1).is_err());
            assert!(memory.range(0, base + bytes, 1).is_err());
            assert!(memory.range(0, base - 1, 1).is_err());
            last = base + bytes;
            memory.release(base);
        }
        assert_eq!(memory.usage(0).used, 0);
        assert_eq!(memory.usage(0).peak, 1 << 20);
    }

    #[test]
    fn messages_say_what_is_wrong() {
        let mut memory = Memory::new(1);
        let base = place(&mut memory, 100);
        assert!(memory.describe(base + 104, 4).contains("4 bytes after the end"));
        memory.release(base);
        assert!(memory.describe(base + 4, 4).contains("use after free"));
        assert!(memory.describe(16, 4).contains("no allocation"));
    }
}
