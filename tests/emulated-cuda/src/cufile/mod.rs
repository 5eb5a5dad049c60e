//! cuFile: reads from files straight into device memory, which no stream knows of.
//!
//! Refuses to know C signatures (those are in [`api`]). Invariants: a read's destination is
//! poison from its submission until its bytes land, and they land at a moment that a seed
//! decides, completion at the latest; nothing orders a read and the work of streams but the
//! caller; time is simulated and moves only when a thread waits.

pub mod api;
mod batch;
mod check;
mod file;
mod flight;
mod parameters;
mod record;
pub(crate) mod report;
mod settings;
mod status;
mod time;

use std::collections::BTreeMap;

use crate::driver::Driver;
use crate::status::Code;

pub use batch::{CUfileIOEvents, CUfileIOParams};
pub use file::CUfileDescr;
pub use parameters::CUfileDrvProps;
pub(crate) use record::CufileRecord;
pub(crate) use settings::CufileSettings;
pub use status::CUfileError;

use batch::Batch;
use file::{Buffer, File};
use flight::Flight;
use parameters::Staged;
use status::{Outcome, cuda, refuse};
use time::Time;

/// What is open, registered and in flight.
#[derive(Default)]
pub(crate) struct Cufile {
    /// How often the driver was opened and not closed.
    uses: u64,
    /// By handle.
    files: BTreeMap<u64, File>,
    /// By the address of their first byte.
    buffers: BTreeMap<u64, Buffer>,
    batches: BTreeMap<u64, Batch>,
    /// Reads that are not reported as done, by their numbers among all operations.
    flights: BTreeMap<u64, Flight>,
    staged: Staged,
    time: Time,
    is_logged: bool,
}

impl Cufile {
    /// Forgets all that was registered; the report's lines stay without an end.
    fn release(&mut self) {
        let (time, is_logged) = (std::mem::take(&mut self.time), self.is_logged);
        *self = Cufile { time, is_logged, ..Cufile::default() };
    }

    /// How often the driver was opened and not closed.
    pub(crate) fn uses(&self) -> u64 {
        self.uses
    }

    /// Lets simulated time begin again.
    pub(crate) fn forget_time(&mut self) {
        self.time = Time::default();
    }
}

/// That CUDA works for the calling thread: its context.
fn context(driver: &Driver) -> Outcome<u64> {
    if !driver.initialized {
        return Err(cuda(Code::NOT_INITIALIZED, "CUDA is not initialized"));
    }
    let context = driver.current().map_err(|refusal| cuda(refusal.code, refusal.message))?;
    match driver.fault_of(context) {
        Some(code) => Err(cuda(code, "the device is lost")),
        None => Ok(context),
    }
}

/// That the driver is open.
fn opened(driver: &Driver) -> Outcome {
    match driver.cufile.uses {
        0 => Err(refuse(status::DRIVER_NOT_INITIALIZED, "the cuFile driver is not open")),
        _ => Ok(()),
    }
}
