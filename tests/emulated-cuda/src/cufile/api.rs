//! The exported functions of cuFile, those that reading needs.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names, arguments and contracts are cuFile's"
)]

use std::ffi::{c_int, c_long, c_uint};
use std::io::Write;
use std::time::Duration;

use super::batch::{self, CUfileIOEvents, CUfileIOParams, Wait};
use super::check::Request;
use super::file::{self, CUfileDescr};
use super::flight::{finish, submit};
use super::opened;
use super::parameters::{self, CUfileDrvProps};
use super::settings::Mode;
use super::status::{
    CUfileError, DRIVER_CLOSING, INVALID_VALUE, NVFS_SETUP_ERROR, Outcome, SUCCESS, cuda, refuse,
    told,
};
use crate::door::{self, Place};
use crate::driver::{Driver, thread};
use crate::status::Code;

const VERSION: c_int = 1140;

/// One call: the first one of all leaves a log, where the environment says or else in the
/// working directory.
fn call(symbol: &'static str, body: impl FnOnce(&mut Driver) -> Outcome) -> CUfileError {
    value(symbol, body).map_or_else(|error| error, |()| SUCCESS)
}

fn value<T>(
    symbol: &'static str,
    body: impl FnOnce(&mut Driver) -> Outcome<T>,
) -> Result<T, CUfileError> {
    let logged = |driver: &mut Driver| {
        if !std::mem::replace(&mut driver.cufile.is_logged, true) {
            log(driver);
        }
        body(driver)
    };
    door::library(symbol, logged).map_err(told)
}

fn log(driver: &mut Driver) {
    let path = std::env::var("CUFILE_LOGFILE_PATH").unwrap_or_else(|_| "cufile.log".into());
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "emulated cuFile: {}", driver.symbol);
    }
    driver.ledger.cufile.log = path;
}

fn answer<T>(place: Place<'_, T>, value: T) -> Outcome {
    match place {
        Some(place) => {
            place.write(value);
            Ok(())
        }
        None => Err(refuse(INVALID_VALUE, "a null pointer for a result")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverOpen() -> CUfileError {
    call("cuFileDriverOpen", |driver| {
        if !driver.initialized {
            return Err(cuda(Code::NOT_INITIALIZED, "CUDA is not initialized"));
        }
        if driver.devices.is_empty() {
            return Err(cuda(Code::NO_DEVICE, "there is no device"));
        }
        if driver.settings.cufile.mode == Mode::Refused {
            return Err(refuse(NVFS_SETUP_ERROR, "as set"));
        }
        driver.cufile.uses += 1;
        driver.ledger.cufile.opened += 1;
        Ok(())
    })
}

fn close(symbol: &'static str) -> CUfileError {
    call(symbol, |driver| {
        opened(driver)?;
        let devices = &driver.devices;
        let is_alive = |device: usize| devices.get(device).is_some_and(|one| one.fault.is_none());
        if driver.cufile.flights.values().any(|flight| is_alive(flight.device)) {
            return Err(refuse(DRIVER_CLOSING, "reads are in flight"));
        }
        driver.cufile.uses -= 1;
        driver.ledger.cufile.closed += 1;
        if driver.cufile.uses == 0 {
            driver.cufile.release();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose() -> CUfileError {
    close("cuFileDriverClose")
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose_v2() -> CUfileError {
    close("cuFileDriverClose_v2")
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileUseCount() -> c_long {
    value("cuFileUseCount", |driver| Ok(driver.cufile.uses as c_long)).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileGetVersion(version: Place<'_, c_int>) -> CUfileError {
    call("cuFileGetVersion", |_| answer(version, VERSION))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverGetProperties(properties: Place<'_, CUfileDrvProps>) -> CUfileError {
    call("cuFileDriverGetProperties", |driver| answer(properties, parameters::properties(driver)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileGetParameterSizeT(
    parameter: c_uint,
    place: Place<'_, usize>,
) -> CUfileError {
    call("cuFileGetParameterSizeT", |driver| answer(place, parameters::size(driver, parameter)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileGetParameterBool(parameter: c_uint, place: Place<'_, bool>) -> CUfileError {
    call("cuFileGetParameterBool", |driver| answer(place, parameters::boolean(driver, parameter)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetParameterSizeT(parameter: c_uint, value: usize) -> CUfileError {
    call("cuFileSetParameterSizeT", |driver| parameters::set_size(driver, parameter, value))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetParameterBool(parameter: c_uint, value: bool) -> CUfileError {
    call("cuFileSetParameterBool", |driver| parameters::set_boolean(driver, parameter, value))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileHandleRegister(
    handle: Place<'_, u64>,
    descr: Option<&CUfileDescr>,
) -> CUfileError {
    call("cuFileHandleRegister", |driver| match handle {
        Some(place) => {
            place.write(file::register(driver, descr)?);
            Ok(())
        }
        None => Err(refuse(INVALID_VALUE, "a null pointer for a handle")),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileHandleDeregister(handle: u64) {
    call("cuFileHandleDeregister", |driver| file::deregister(driver, handle));
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufRegister(start: u64, bytes: usize, flags: c_int) -> CUfileError {
    call("cuFileBufRegister", |driver| match flags {
        0..=3 => file::register_buffer(driver, start, bytes as u64),
        _ => Err(refuse(INVALID_VALUE, format!("flags {flags}"))),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBufDeregister(start: u64) -> CUfileError {
    call("cuFileBufDeregister", |driver| file::deregister_buffer(driver, start))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileRead(
    file: u64,
    base: u64,
    size: usize,
    offset: i64,
    base_offset: i64,
) -> isize {
    let symbol = "cuFileRead";
    let refused = |error: CUfileError| -(error.err as isize);
    let request = Request { file, base, offset, base_offset, size: size as u64 };
    let submitted = value(symbol, |driver| {
        let checked = request.checked(driver)?;
        let id = submit(driver, checked, None);
        driver.ledger.cufile.submissions += 1;
        let call = driver.ledger.calls;
        if let Some(read) = driver.ledger.cufile.reads.get_mut(&id) {
            read.asked = Some(call);
        }
        Ok((id, driver.settings.cufile.sleep_us))
    });
    let (id, sleep) = match submitted {
        Ok(submitted) => submitted,
        Err(error) => return refused(error),
    };
    // Others may submit theirs meanwhile, as they would if it took its time.
    if sleep > 0 {
        std::thread::sleep(Duration::from_micros(sleep));
    }
    let ending = door::resumed(symbol, |driver| {
        let end = driver.cufile.flights.get(&id).map_or(0, |flight| flight.end);
        driver.cufile.time.wait(thread(), end);
        Ok(finish(driver, &[id]).pop().flatten())
    });
    match ending.map_err(told) {
        Ok(Some(Ok(bytes))) => bytes as isize,
        Ok(Some(Err(code))) if code < 5000 => {
            // SAFETY: the calling thread's own.
            unsafe { *libc::__errno_location() = code as c_int };
            -1
        }
        Ok(Some(Err(code))) => -(code as isize),
        Ok(None) => -1,
        Err(error) => refused(error),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOSetUp(handle: Place<'_, u64>, entries: c_uint) -> CUfileError {
    call("cuFileBatchIOSetUp", |driver| match handle {
        Some(place) => {
            place.write(batch::set_up(driver, entries)?);
            Ok(())
        }
        None => Err(refuse(INVALID_VALUE, "a null pointer for a handle")),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOSubmit(
    handle: u64,
    count: c_uint,
    params: *const CUfileIOParams,
    flags: c_uint,
) -> CUfileError {
    call("cuFileBatchIOSubmit", |driver| {
        if params.is_null() || flags != 0 {
            return Err(refuse(INVALID_VALUE, format!("no reads, or flags {flags}")));
        }
        // SAFETY: so many of them, says the contract.
        let params = unsafe { std::slice::from_raw_parts(params, count as usize) };
        batch::submit_all(driver, handle, params)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOGetStatus(
    handle: u64,
    least: c_uint,
    count: Option<&mut c_uint>,
    events: *mut CUfileIOEvents,
    timeout: Option<&libc::timespec>,
) -> CUfileError {
    call("cuFileBatchIOGetStatus", |driver| {
        let Some(count) = count.filter(|_| !events.is_null()) else {
            return Err(refuse(INVALID_VALUE, "no place for events"));
        };
        let nanoseconds = |time: &libc::timespec| {
            (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
        };
        let wait = Wait {
            least: least as usize,
            most: *count as usize,
            timeout: timeout.map(nanoseconds),
        };
        let done = batch::events(driver, handle, &wait)?;
        for (index, event) in done.iter().enumerate() {
            // SAFETY: room for `count` of them, says the contract; there are no more.
            unsafe { events.add(index).write(*event) };
        }
        *count = done.len() as c_uint;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIOCancel(handle: u64) -> CUfileError {
    call("cuFileBatchIOCancel", |driver| batch::cancel(driver, handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileBatchIODestroy(handle: u64) {
    call("cuFileBatchIODestroy", |driver| batch::destroy(driver, handle));
}
