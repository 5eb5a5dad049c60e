//! A read between its submission and the moment it is reported.

use super::check::Checked;
use super::record::{ReadRecord, Standing};
use super::settings::{Fate, Landing};
use super::status::{CUDA_DRIVER_ERROR, HANDLE_NOT_REGISTERED};
use crate::backing;
use crate::clock::Interval;
use crate::driver::{Driver, thread};
use crate::ledger::{Kind, OperationRecord};
use crate::random::Random;
use crate::status::Code;

/// How a read ended: its bytes, or an errno below 5000, or a code of cuFile's.
pub(super) type Ending = Result<u64, u32>;

/// A read that is submitted and not reported.
pub(super) struct Flight {
    pub(super) device: usize,
    pub(super) file: u64,
    pub(super) address: u64,
    offset: u64,
    size: u64,
    pub(super) landing: Landing,
    fate: Option<Fate>,
    /// In simulated time.
    pub(super) end: u64,
    pub(super) is_canceled: bool,
    /// None until the bytes have landed.
    ending: Option<Ending>,
}

/// Submits a read: poisons its destination and notes it; its number.
pub(super) fn submit(driver: &mut Driver, checked: Checked, batch: Option<u64>) -> u64 {
    let id = driver.work.number();
    let settings = &driver.settings.cufile;
    let thread = thread();
    let time = driver.cufile.time.book(thread, settings.workers, settings.latency_ns);
    let choice = Random::new(driver.settings.seed ^ id.wrapping_mul(0x9e37_79b9)).below(4);
    let landing = settings.landing.unwrap_or(match choice {
        0 => Landing::Early,
        1 => Landing::Late,
        _ => Landing::Contrary,
    });
    let fate = settings.fate(driver.ledger.cufile.reads.len() as u64 + 1);
    let Checked { device, file, address, offset, size, .. } = checked;
    let (is_canceled, ending, end) = (false, None, time.end);
    let flight =
        Flight { device, file, address, offset, size, landing, fate, end, is_canceled, ending };
    driver.cufile.flights.insert(id, flight);
    note(driver, id, checked, batch, time);
    if let Ok(start) = driver.memory.bytes(device, address, size) {
        // SAFETY: a checked range that nobody holds a reference into.
        backing::poison(unsafe { std::slice::from_raw_parts_mut(start, size as usize) });
    }
    if landing == Landing::Early {
        land(driver, id);
    }
    id
}

/// Opens the lines of a read in the report.
fn note(driver: &mut Driver, id: u64, checked: Checked, batch: Option<u64>, time: Interval) {
    let Checked { device, address, offset, size, is_registered, is_aligned, .. } = checked;
    let thread = thread();
    let call = driver.ledger.calls;
    let record = &mut driver.ledger.cufile;
    record.in_flight_peak = record.in_flight_peak.max(driver.cufile.flights.len() as u64);
    let batch = batch.and_then(|handle| record.batches.position(handle));
    record.reads.insert(
        id,
        ReadRecord {
            symbol: driver.symbol,
            batch,
            offset,
            size,
            address,
            is_registered,
            is_aligned,
            thread,
            submitted: call,
            asked: None,
            completed: None,
            standing: Standing::Pending,
            bytes: 0,
            code: 0,
            time,
        },
    );
    driver.ledger.operations.push(OperationRecord {
        id,
        device,
        stream: None,
        kind: Kind::Cufile,
        name: driver.symbol.into(),
        bytes: size,
        thread,
        call,
        after: driver.ledger.last_sync(thread),
        dependencies: Vec::new(),
        executed: None,
        abandoned: false,
        duration: 0,
        fixed: Some(time),
    });
}

/// Lets the bytes of a read land, if they have not.
fn land(driver: &mut Driver, id: u64) {
    let Some(flight) = driver.cufile.flights.get(&id) else { return };
    if flight.ending.is_some() || flight.is_canceled {
        return;
    }
    let ending = match flight.fate {
        Some(Fate::Fails(code)) => Err(code),
        Some(Fate::Short) => transfer(driver, id, flight.size / 2),
        None => transfer(driver, id, flight.size),
    };
    if let Some(flight) = driver.cufile.flights.get_mut(&id) {
        flight.ending = Some(ending);
    }
    let order = driver.ledger.executed;
    driver.ledger.executed += 1;
    if let Some(line) = driver.ledger.operation(id) {
        line.executed = Some(order);
    }
}

/// Reads from the file into the memory behind the device's.
fn transfer(driver: &mut Driver, id: u64, size: u64) -> Ending {
    let flight = &driver.cufile.flights[&id];
    let (device, symbol) = (flight.device, driver.symbol);
    let target = match driver.memory.bytes(device, flight.address, flight.size) {
        Ok(start) => start,
        Err(text) => {
            let text = format!("a read of cuFile lands in {text}");
            driver.fault(device, Code::ILLEGAL_ADDRESS, Some(id), text);
            return Err(CUDA_DRIVER_ERROR);
        }
    };
    let Some(file) = driver.cufile.files.get(&flight.file) else {
        let text = "the file of a read in flight is deregistered";
        driver.ledger.error(symbol, HANDLE_NOT_REGISTERED, text.into());
        return Err(HANDLE_NOT_REGISTERED);
    };
    if !file.is_same() {
        let text = "the file of a read in flight is closed";
        driver.ledger.error(symbol, libc::EBADF as u32, text.into());
        return Err(libc::EBADF as u32);
    }
    let mut done = 0;
    while done < size {
        let (left, at) = ((size - done) as usize, (flight.offset + done) as libc::off64_t);
        // SAFETY: the range was checked to be that long.
        let read = unsafe { libc::pread64(file.fd, target.add(done as usize).cast(), left, at) };
        match u64::try_from(read) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => (),
                // What an open for direct access may not do, cuFile does by itself.
                Some(libc::EINVAL) => return unaligned(file.fd, target, flight.offset, size),
                error => return Err(error.unwrap_or(libc::EIO) as u32),
            },
        }
    }
    Ok(done)
}

/// The same through a second descriptor without O_DIRECT.
fn unaligned(fd: libc::c_int, target: *mut u8, offset: u64, size: u64) -> Ending {
    use std::os::unix::fs::FileExt;
    let failed = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO) as u32;
    let file = std::fs::File::open(format!("/proc/self/fd/{fd}")).map_err(failed)?;
    // SAFETY: the range was checked to be that long, and nobody holds a reference into it.
    let target = unsafe { std::slice::from_raw_parts_mut(target, size as usize) };
    let mut done = 0;
    while done < target.len() {
        match file.read_at(&mut target[done..], offset + done as u64).map_err(failed)? {
            0 => break,
            bytes => done += bytes,
        }
    }
    Ok(done as u64)
}

/// Ends reads, in this order: what they wait for runs, and their bytes land.
pub(super) fn finish(driver: &mut Driver, ids: &[u64]) -> Vec<Option<Ending>> {
    let contrary = |id: &&u64| {
        let flight = driver.cufile.flights.get(id);
        flight.is_some_and(|flight| flight.landing == Landing::Contrary && !flight.is_canceled)
    };
    if let Some(first) = ids.iter().filter(contrary).min() {
        let device = driver.cufile.flights[first].device;
        let since = driver.work.pending.range(first..);
        let targets: Vec<u64> =
            since.filter(|(_, one)| one.device == device).map(|(id, _)| *id).collect();
        // A fault is the device's: the next call that asks it tells.
        let _ = driver.run(&targets);
    }
    ids.iter()
        .map(|id| {
            land(driver, *id);
            end(driver, *id)
        })
        .collect()
}

/// Takes a read out of the air; none where it was canceled before its bytes had landed.
pub(super) fn end(driver: &mut Driver, id: u64) -> Option<Ending> {
    let flight = driver.cufile.flights.remove(&id)?;
    let ending = flight.ending;
    let call = driver.ledger.calls;
    if let Some(read) = driver.ledger.cufile.reads.get_mut(&id) {
        read.completed = Some(call);
        (read.standing, read.bytes, read.code) = match ending {
            Some(Ok(bytes)) => (Standing::Complete, bytes, 0),
            Some(Err(code)) => (Standing::Failed, 0, code),
            None => (Standing::Canceled, 0, 0),
        };
    }
    if ending.is_none()
        && let Some(line) = driver.ledger.operation(id)
    {
        line.abandoned = line.executed.is_none();
    }
    ending
}
