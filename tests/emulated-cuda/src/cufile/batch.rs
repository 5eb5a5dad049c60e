//! Batches: many reads submitted with one call, and asked for with others.

use std::ffi::c_uint;

use super::check::{Checked, Request};
use super::flight::{Ending, end, finish, submit};
use super::status::{BATCH_FULL, INTERNAL_ERROR, INVALID_VALUE, Outcome, refuse};
use super::{context, opened};
use crate::driver::{Driver, thread};

/// A read as a caller asks for it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOParams {
    /// 1.
    pub mode: u32,
    /// Device memory.
    pub base: u64,
    /// Where in the file.
    pub file_offset: i64,
    /// Where behind `base`.
    pub base_offset: i64,
    /// How many bytes.
    pub size: usize,
    /// The file's handle.
    pub file: u64,
    /// 0 for reading.
    pub opcode: u32,
    /// The caller's, given back with the event.
    pub cookie: usize,
}

/// What a caller is told of a read.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CUfileIOEvents {
    /// As it was submitted.
    pub cookie: usize,
    /// Complete, failed or canceled.
    pub status: u32,
    /// The bytes; negative where it failed.
    pub ret: isize,
}

const CANCELED: u32 = 0x8;
const COMPLETE: u32 = 0x10;
const FAILED: u32 = 0x40;

/// A batch that is set up.
pub(super) struct Batch {
    most: usize,
    /// Numbers and cookies of reads that are not reported.
    entries: Vec<(u64, usize)>,
    /// How often nothing was done when somebody asked without waiting.
    polls: u64,
}

pub(super) fn set_up(driver: &mut Driver, entries: c_uint) -> Outcome<u64> {
    opened(driver)?;
    let most = driver.cufile.staged.batch(&driver.settings.cufile);
    if entries == 0 || entries > most {
        return Err(refuse(INVALID_VALUE, format!("a batch of {entries}, {most} at most")));
    }
    let handle = driver.handle();
    let made = Batch { most: entries as usize, entries: Vec::new(), polls: 0 };
    driver.cufile.batches.insert(handle, made);
    driver.ledger.cufile.batches.begin(handle, u64::from(entries), 0, driver.ledger.calls);
    Ok(handle)
}

fn batch(driver: &mut Driver, handle: u64) -> Outcome<&mut Batch> {
    opened(driver)?;
    let found = driver.cufile.batches.get_mut(&handle);
    found.ok_or_else(|| refuse(INVALID_VALUE, "no such batch"))
}

/// Submits all of them or none; or half of them, if so set, and says that it failed.
pub(super) fn submit_all(driver: &mut Driver, handle: u64, params: &[CUfileIOParams]) -> Outcome {
    let found = batch(driver, handle)?;
    if params.is_empty() {
        return Err(refuse(INVALID_VALUE, "no reads"));
    }
    if found.entries.len() + params.len() > found.most {
        let text = format!(
            "{} reads more, {} are in flight, {} at most",
            params.len(),
            found.entries.len(),
            found.most
        );
        return Err(refuse(BATCH_FULL, text));
    }
    let checked = params.iter().map(|one| one.checked(driver)).collect::<Outcome<Vec<_>>>()?;
    // In no order that anybody could rely on.
    let mut order: Vec<usize> = (0..checked.len()).collect();
    shuffle(driver, &mut order);
    let is_half = driver.settings.cufile.half == Some(driver.ledger.cufile.submissions + 1);
    if is_half {
        order.truncate(order.len().div_ceil(2));
    }
    for index in order {
        let id = submit(driver, checked[index], Some(handle));
        batch(driver, handle)?.entries.push((id, params[index].cookie));
    }
    driver.ledger.cufile.submissions += 1;
    if is_half { Err(refuse(INTERNAL_ERROR, "half of it is done, as set")) } else { Ok(()) }
}

impl CUfileIOParams {
    fn checked(&self, driver: &Driver) -> Outcome<Checked> {
        if (self.mode, self.opcode) != (1, 0) {
            let text = format!("mode {}, opcode {}", self.mode, self.opcode);
            return Err(refuse(INVALID_VALUE, text));
        }
        let request = Request {
            file: self.file,
            base: self.base,
            offset: self.file_offset,
            base_offset: self.base_offset,
            size: self.size as u64,
        };
        request.checked(driver)
    }
}

fn shuffle<T>(driver: &mut Driver, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, driver.random.below(index as u64 + 1) as usize);
    }
}

/// How long a caller waits, and for how many.
pub(super) struct Wait {
    pub(super) least: usize,
    pub(super) most: usize,
    /// In nanoseconds; none is for ever.
    pub(super) timeout: Option<u64>,
}

/// What is done of a batch: at least so many, or else time is over.
pub(super) fn events(
    driver: &mut Driver,
    handle: u64,
    wait: &Wait,
) -> Outcome<Vec<CUfileIOEvents>> {
    context(driver)?;
    let found = batch(driver, handle)?;
    let entries = found.entries.clone();
    if wait.least > wait.most || wait.least > entries.len() {
        let text =
            format!("{} of {} reads wanted, at most {}", wait.least, entries.len(), wait.most);
        return Err(refuse(INVALID_VALUE, text));
    }
    let call = driver.ledger.calls;
    for (id, _) in &entries {
        if let Some(read) = driver.ledger.cufile.reads.get_mut(id) {
            read.asked.get_or_insert(call);
        }
    }
    let now = pass(driver, handle, &entries, wait);
    let mut done: Vec<(u64, usize)> =
        entries.into_iter().filter(|(id, _)| end_of(driver, *id) <= now).collect();
    shuffle(driver, &mut done);
    done.truncate(wait.most);
    let ids: Vec<u64> = done.iter().map(|(id, _)| *id).collect();
    let endings = finish(driver, &ids);
    batch(driver, handle)?.entries.retain(|(id, _)| !ids.contains(id));
    // A kernel that came too early may have lost the device.
    context(driver)?;
    Ok(done.iter().zip(endings).map(|((_, cookie), ending)| event(*cookie, ending)).collect())
}

fn end_of(driver: &Driver, id: u64) -> u64 {
    let flight = driver.cufile.flights.get(&id);
    flight.filter(|flight| !flight.is_canceled).map_or(0, |flight| flight.end)
}

/// Lets the thread's time pass as far as it waits; where that is.
fn pass(driver: &mut Driver, handle: u64, entries: &[(u64, usize)], wait: &Wait) -> u64 {
    let thread = thread();
    let now = driver.cufile.time.now(thread);
    let mut ends: Vec<u64> = entries.iter().map(|(id, _)| end_of(driver, *id)).collect();
    ends.sort_unstable();
    let wanted = match wait.least {
        0 => now,
        least => ends[least - 1],
    };
    let mut until = match wait.timeout {
        Some(timeout) => wanted.min(now.saturating_add(timeout)),
        None => wanted,
    };
    let is_idle = until <= now && ends.first().is_some_and(|first| *first > now);
    if is_idle && let Some(batch) = driver.cufile.batches.get_mut(&handle) {
        // Asking without waiting makes nothing happen, but for the third time.
        batch.polls += 1;
        if batch.polls % 3 == 0 {
            until = ends[0];
        }
    }
    driver.cufile.time.wait(thread, until);
    driver.cufile.time.now(thread)
}

fn event(cookie: usize, ending: Option<Ending>) -> CUfileIOEvents {
    let (status, ret) = match ending {
        Some(Ok(bytes)) => (COMPLETE, bytes as isize),
        Some(Err(code)) => (FAILED, -(code as isize)),
        None => (CANCELED, 0),
    };
    CUfileIOEvents { cookie, status, ret }
}

/// Cancels what has not landed; the events still come.
pub(super) fn cancel(driver: &mut Driver, handle: u64) -> Outcome {
    let entries = batch(driver, handle)?.entries.clone();
    for (id, _) in entries {
        if let Some(flight) = driver.cufile.flights.get_mut(&id) {
            flight.is_canceled = true;
        }
    }
    Ok(())
}

/// Takes a batch away. What is in flight lands all the same, and that is the caller's fault.
pub(super) fn destroy(driver: &mut Driver, handle: u64) -> Outcome {
    let ids: Vec<u64> = batch(driver, handle)?.entries.iter().map(|(id, _)| *id).collect();
    driver.cufile.batches.remove(&handle);
    driver.ledger.cufile.batches.end(handle, driver.ledger.calls);
    let flights = &driver.cufile.flights;
    let in_flight = ids.iter().any(|id| flights.get(id).is_some_and(|one| !one.is_canceled));
    if context(driver).is_ok() {
        finish(driver, &ids);
    }
    ids.iter().for_each(|id| {
        end(driver, *id);
    });
    match in_flight {
        true => Err(refuse(INVALID_VALUE, "a batch is destroyed while reads are in flight")),
        false => Ok(()),
    }
}
