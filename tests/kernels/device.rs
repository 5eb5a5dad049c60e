//! Device memory made of exact allocations at fake addresses, and launches on it.

use std::cell::Cell;

use ptx::{Entry, GlobalMemory, Launch, Module, Options, Schedule, Span, Stats};

/// Thread instructions after which a kernel is taken to hang.
const BUDGET: u64 = 20_000_000_000;

/// Where allocations are: so far apart that each is found by its address.
const FIRST: u64 = 0x7A << 36;
const DISTANCE: u64 = 1 << 32;

/// In which order threads run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    Converged,
    /// Shuffled by a seed, races looked for.
    Adversarial(u64),
}

struct Allocation {
    base: u64,
    /// Bytes in front of those that can be reached.
    skip: usize,
    cells: Box<[Cell<u8>]>,
}

/// Allocations lie far apart and far beyond 4 GiB.
#[derive(Default)]
pub(crate) struct Device {
    allocations: Vec<Allocation>,
    /// Memory that is not ours, such as a very large one.
    pub(crate) foreign: Vec<Span>,
    budget: Option<u64>,
}

impl Device {
    pub(crate) fn new() -> Device {
        Device::default()
    }

    /// Gives up after so many thread instructions.
    pub(crate) fn with_budget(budget: u64) -> Device {
        Device { budget: Some(budget), ..Device::default() }
    }

    /// Makes an allocation at an address that is `phase` more than a multiple of 256.
    pub(crate) fn put_at(&mut self, phase: usize, bytes: &[u8]) -> u64 {
        assert!(bytes.len() < 1 << 31 && phase < 1 << 20);
        let base = FIRST + DISTANCE * self.allocations.len() as u64 + phase as u64;
        let cells = std::iter::repeat_n(&0, phase).chain(bytes).map(|byte| Cell::new(*byte));
        self.allocations.push(Allocation { base, skip: phase, cells: cells.collect() });
        base
    }

    /// Makes an allocation, aligned as the driver aligns.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u64 {
        self.put_at(0, bytes)
    }

    pub(crate) fn put_u64(&mut self, numbers: &[u64]) -> u64 {
        self.put(&numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn put_u32(&mut self, numbers: &[u32]) -> u64 {
        self.put(&numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>())
    }

    /// What is in the allocation that begins at `base`.
    pub(crate) fn get(&self, base: u64) -> Vec<u8> {
        let found = self.allocations.iter().find(|a| a.base == base).expect("an allocation");
        found.cells[found.skip..].iter().map(Cell::get).collect()
    }

    pub(crate) fn get_u64(&self, base: u64) -> Vec<u64> {
        self.get(base).as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect()
    }

    pub(crate) fn get_u32(&self, base: u64) -> Vec<u32> {
        self.get(base).as_chunks().0.iter().map(|n| u32::from_le_bytes(*n)).collect()
    }

    /// Runs a kernel to its end.
    pub(crate) fn launch(
        &self,
        module: &Module,
        kernel: &str,
        size: Size,
        arguments: Arguments,
        mode: Mode,
    ) -> Result<Stats, String> {
        let entry = module.entry(kernel).ok_or_else(|| format!("no kernel {kernel}"))?;
        let (schedule, races) = match mode {
            Mode::Converged => (Schedule::Converged, false),
            Mode::Adversarial(seed) => (Schedule::Adversarial { seed }, true),
        };
        let params = arguments.laid_out(entry);
        let launch = Launch {
            entry,
            grid: [size.grid.0, size.grid.1, 1],
            block: [size.block.0, size.block.1, 1],
            dynamic_shared: size.shared,
            params: &params,
            memory: self,
            options: Options { schedule, races, budget: self.budget.unwrap_or(BUDGET) },
        };
        // SAFETY: the allocations live as long as `self`, and nobody else looks at them meanwhile.
        unsafe { ptx::run(&launch) }.map_err(|fault| fault.to_string())
    }
}

impl GlobalMemory for Device {
    fn span(&self, address: u64) -> Option<Span> {
        let number = address.checked_sub(FIRST).map(|distance| (distance / DISTANCE) as usize);
        let ours = number.and_then(|number| self.allocations.get(number)).map(|a| {
            let reachable = &a.cells[a.skip..];
            Span { base: a.base, len: reachable.len() as u64, data: reachable.as_ptr() as *mut u8 }
        });
        let mut spans = ours.into_iter().chain(self.foreign.iter().copied());
        spans.find(|span| (span.base..span.base + span.len).contains(&address))
    }
}

/// Blocks, threads and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) grid: (u32, u32),
    pub(crate) block: (u32, u32),
    pub(crate) shared: u32,
}

/// The arguments of a kernel, one after the other.
#[derive(Default)]
pub(crate) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    pub(crate) fn pointers(addresses: &[u64]) -> Arguments {
        Arguments(addresses.iter().map(|a| a.to_le_bytes().to_vec()).collect())
    }

    pub(crate) fn and(mut self, argument: impl AsRef<[u8]>) -> Arguments {
        self.0.push(argument.as_ref().to_vec());
        self
    }

    fn laid_out(&self, entry: &Entry) -> Vec<u8> {
        assert_eq!(self.0.len(), entry.params.len(), "arguments of {}", entry.name);
        let mut bytes = vec![0; entry.param_bytes() as usize];
        for (param, argument) in entry.params.iter().zip(&self.0) {
            assert_eq!(argument.len(), param.size as usize, "an argument of {}", entry.name);
            bytes[param.offset as usize..][..argument.len()].copy_from_slice(argument);
        }
        bytes
    }
}

/// Numbers that look random and are the same on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end.max(1)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
