//! Running a kernel: what a launch is, and the grid of its blocks.
//!
//! Blocks run one after the other on the calling thread. What a launch does to memory is done
//! when `run` returns, also after a fault up to where it happened.

mod access;
mod block;
mod fault;
mod group;
mod memory;
mod race;
mod random;
mod turn;
mod warp;

pub use fault::{Fault, FaultKind};
pub use memory::{GlobalMemory, Span};

use crate::Entry;
use block::Grid;

/// In which order threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Lanes stay together where they can: fast.
    Converged,
    /// Blocks, warps and lanes in an order drawn from the seed; lanes part at any instruction
    /// and come together only where the program makes them.
    Adversarial {
        /// The same seed gives the same order.
        seed: u64,
    },
}

/// How a launch is executed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// In which order threads run.
    pub schedule: Schedule,
    /// Report accesses of threads to the same bytes that nothing puts in order.
    pub races: bool,
    /// The most thread instructions, 0 for no limit.
    pub budget: u64,
}

/// A kernel with its arguments.
pub struct Launch<'a> {
    /// The kernel.
    pub entry: &'a Entry,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of shared memory besides what the kernel declares.
    pub dynamic_shared: u32,
    /// Arguments laid out as `Entry::params` says.
    pub params: &'a [u8],
    /// Where global addresses lead.
    pub memory: &'a dyn GlobalMemory,
    /// How it is executed.
    pub options: Options,
}

/// What a launch did.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Threads of the grid.
    pub threads: u64,
    /// Instructions, counted for each thread.
    pub instructions: u64,
    /// Instructions of the thread that had most.
    pub longest_thread: u64,
    /// 32-byte sectors of global memory that warps loaded from, counted for each instruction.
    pub sectors_loaded: u64,
    /// The same for stores and atomics.
    pub sectors_stored: u64,
    /// Bytes of global memory that threads asked for.
    pub bytes_loaded: u64,
    /// Bytes that they wrote there.
    pub bytes_stored: u64,
}

/// Runs a kernel to its end or to the first fault.
///
/// # Safety
/// The memory of every span that `launch.memory` answers with must be there, and nobody else may
/// touch it, until this returns.
pub unsafe fn run(launch: &Launch<'_>) -> Result<Stats, Fault> {
    check(launch)?;
    Grid::new(launch).run()
}

/// What the driver should have refused.
fn check(launch: &Launch<'_>) -> Result<(), Fault> {
    let fail = |message: String| {
        let message = format!("kernel {}: {message}", launch.entry.name);
        Err(Fault { kind: FaultKind::IllegalInstruction, message })
    };
    let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
    if threads == 0 || threads > 1024 {
        return fail(format!("a block of {threads} threads"));
    }
    if let Some(most) = launch.entry.max_threads.filter(|most| threads > u64::from(*most)) {
        return fail(format!("a block of {threads} threads, but at most {most} are allowed"));
    }
    if launch.grid.contains(&0) {
        return fail("an empty grid".into());
    }
    if launch.params.len() < launch.entry.param_bytes() as usize {
        let (given, wanted) = (launch.params.len(), launch.entry.param_bytes());
        return fail(format!("{given} bytes of parameters, but it takes {wanted}"));
    }
    Ok(())
}
