//! Events.

use std::ffi::c_uint;

use crate::door::{self, Place, put};
use crate::driver::Driver;
use crate::status::{Answer, Code};
use crate::task::Task;
use crate::work::Event;

#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(event: Place<'_, u64>, flags: c_uint) -> u32 {
    door::context("cuEventCreate", |driver, context| {
        if flags & !7 != 0 {
            return Err(Code::INVALID_VALUE.because(format!("event flags {flags:#x}")));
        }
        let handle = driver.handle();
        let made = Event { context, timing: flags & 2 == 0, recorded: None, queries: 0 };
        driver.work.events.insert(handle, made);
        put(event, handle)
    })
}

/// The event, which must be of the context.
fn lookup(driver: &mut Driver, context: u64, event: u64) -> Answer<&mut Event> {
    match driver.work.events.get_mut(&event) {
        Some(found) if found.context == context => Ok(found),
        Some(_) => Err(Code::INVALID_HANDLE.because("an event of another context")),
        None => Err(Code::INVALID_HANDLE.because("no such event")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: u64) -> u32 {
    door::context("cuEventDestroy_v2", |driver, context| {
        lookup(driver, context, event)?;
        driver.work.events.remove(&event);
        Ok(())
    })
}

fn record(driver: &mut Driver, context: u64, event: u64, stream: u64) -> Answer {
    let stream = driver.stream(context, stream)?;
    lookup(driver, context, event)?;
    let id = driver.submit(stream, Task::EventRecord, None);
    lookup(driver, context, event)?.recorded = Some(id);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: u64, stream: u64) -> u32 {
    door::context("cuEventRecord", |driver, context| record(driver, context, event, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint) -> u32 {
    door::context("cuEventRecordWithFlags", |driver, context| match flags {
        0 => record(driver, context, event, stream),
        _ => Err(Code::NOT_SUPPORTED.because("external events")),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: u64) -> u32 {
    door::context("cuEventQuery", |driver, context| {
        let found = lookup(driver, context, event)?;
        found.queries += 1;
        let third = found.queries % 3 == 0;
        let targets: Vec<u64> = found.recorded.into_iter().collect();
        driver.poll(&targets, third)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: u64) -> u32 {
    door::context("cuEventSynchronize", |driver, context| {
        let targets = lookup(driver, context, event)?.recorded.into_iter().collect();
        driver.wait(targets, true)
    })
}

/// The modelled time of an event's last record, in nanoseconds.
fn moment(driver: &mut Driver, context: u64, event: u64) -> Answer<u64> {
    let found = lookup(driver, context, event)?;
    if !found.timing {
        return Err(Code::INVALID_HANDLE.because("an event without timing"));
    }
    let Some(id) = found.recorded else {
        return Err(Code::INVALID_HANDLE.because("an event that was never recorded"));
    };
    if driver.work.pending.contains_key(&id) {
        return Err(Code::NOT_READY.into());
    }
    Ok(driver.modelled_end(id))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime(milliseconds: Place<'_, f32>, start: u64, end: u64) -> u32 {
    door::context("cuEventElapsedTime", |driver, context| {
        let start = moment(driver, context, start)?;
        let end = moment(driver, context, end)?;
        put(milliseconds, ((end as f64 - start as f64) / 1e6) as f32)
    })
}
