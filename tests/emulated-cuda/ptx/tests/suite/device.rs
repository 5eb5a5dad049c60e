//! A device for tests: allocations at fake addresses, and launches with typed arguments.

use std::cell::Cell;

use ptx::{Fault, GlobalMemory, Launch, Module, Options, Schedule, Span, Stats};

/// Numbers for tests; the seed is printed by those that draw from it.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Often small, often at the edges, sometimes anything.
    pub(crate) fn operand(&mut self) -> u64 {
        let edges = [0, 1, 2, 31, 32, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff];
        match self.next() % 6 {
            0 => edges[self.next() as usize % edges.len()],
            1 => !edges[self.next() as usize % edges.len()],
            2 => self.next() % 70,
            3 => self.next() >> (self.next() % 64),
            4 => 1 << 63 >> (self.next() % 64),
            _ => self.next(),
        }
    }
}

/// Allocations, each with its own bytes and gaps around it.
#[derive(Default)]
pub(crate) struct Device {
    buffers: Vec<(u64, Box<[Cell<u8>]>)>,
}

const FIRST: u64 = 0x7f00_0000_0000;

impl Device {
    /// An address for a copy of the bytes, 256-aligned.
    pub(crate) fn put<T: Copy>(&mut self, values: &[T]) -> u64 {
        let address = match self.buffers.last() {
            Some((base, bytes)) => (base + bytes.len() as u64 + 1024).next_multiple_of(256),
            None => FIRST,
        };
        // SAFETY: tests put plain numbers without padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        self.buffers.push((address, bytes.iter().map(|b| Cell::new(*b)).collect()));
        address
    }

    pub(crate) fn get<T: Copy>(&self, address: u64) -> Vec<T> {
        let span = self.span(address).expect("an allocation");
        let count = span.len as usize / size_of::<T>();
        // SAFETY: the span is a whole buffer, which lives as long as self.
        (0..count).map(|i| unsafe { span.data.cast::<T>().add(i).read_unaligned() }).collect()
    }
}

impl GlobalMemory for Device {
    fn span(&self, address: u64) -> Option<Span> {
        self.buffers.iter().find_map(|(base, bytes)| {
            let (len, data) = (bytes.len() as u64, bytes.as_ptr().cast_mut().cast::<u8>());
            (address.wrapping_sub(*base) < len).then_some(Span { base: *base, len, data })
        })
    }
}

/// An argument of a kernel.
#[derive(Clone)]
pub(crate) enum Arg {
    U32(u32),
    U64(u64),
    Bytes(Vec<u8>),
}

/// How kernels are run: a module, a device, and options.
pub(crate) struct Runner {
    module: Module,
    pub(crate) device: Device,
    pub(crate) options: Options,
}

pub(crate) const CONVERGED: Options =
    Options { schedule: Schedule::Converged, races: false, budget: 0 };

impl Runner {
    pub(crate) fn new(text: &str) -> Self {
        let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
        Runner { module, device: Device::default(), options: CONVERGED }
    }

    /// A fixture by its name.
    pub(crate) fn fixture(name: &str) -> Self {
        let path = format!("{}/tests/fixtures/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
        Self::new(&std::fs::read_to_string(path).expect("a fixture"))
    }

    pub(crate) fn adversarial(mut self, seed: u64) -> Self {
        self.options.schedule = Schedule::Adversarial { seed };
        self
    }

    pub(crate) fn races(mut self) -> Self {
        self.options.races = true;
        self
    }

    pub(crate) fn run(
        &self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
        args: &[Arg],
    ) -> Result<Stats, Fault> {
        let entry = self.module.entry(name).expect("a kernel");
        let mut params = vec![0; entry.param_bytes() as usize];
        assert_eq!(args.len(), entry.params.len());
        for (arg, param) in args.iter().zip(&entry.params) {
            let bytes = match arg {
                Arg::U32(v) => v.to_le_bytes().to_vec(),
                Arg::U64(v) => v.to_le_bytes().to_vec(),
                Arg::Bytes(bytes) => bytes.clone(),
            };
            assert_eq!(bytes.len(), param.size as usize);
            params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let (memory, options) = (&self.device, self.options);
        let params = params.as_slice();
        let launch = Launch { entry, grid, block, dynamic_shared, params, memory, options };
        // SAFETY: the device's buffers outlive the launch, and this thread alone uses them.
        unsafe { ptx::run(&launch) }
    }
}
