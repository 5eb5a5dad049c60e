//! Streams and host functions.

use std::ffi::{c_int, c_uint, c_void};

use crate::door::{self, Place, put};
use crate::driver::Driver;
use crate::status::{Answer, Code};
use crate::task::{Callback, Task};
use crate::work::StreamKind;

fn create(
    driver: &mut Driver,
    context: u64,
    place: Place<'_, u64>,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    let kind = match flags {
        0 => StreamKind::Blocking,
        1 => StreamKind::NonBlocking,
        _ => return Err(Code::INVALID_VALUE.because(format!("stream flags {flags}"))),
    };
    put(place, driver.create_stream(context, kind, priority))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreate(stream: Place<'_, u64>, flags: c_uint) -> u32 {
    door::context("cuStreamCreate", |driver, context| create(driver, context, stream, flags, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreateWithPriority(
    stream: Place<'_, u64>,
    flags: c_uint,
    priority: c_int,
) -> u32 {
    door::context("cuStreamCreateWithPriority", |driver, context| {
        create(driver, context, stream, flags, priority.clamp(-5, 0))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: u64) -> u32 {
    door::context("cuStreamDestroy_v2", |driver, context| {
        if stream <= 2 {
            return Err(Code::INVALID_HANDLE.because("a built-in stream is destroyed"));
        }
        let stream = driver.stream(context, stream)?;
        // What is queued stays queued: destroying does not wait.
        driver.work.streams.remove(&stream);
        Ok(())
    })
}

/// The operations that must have run before a stream counts as done.
fn ends(driver: &Driver, stream: u64) -> Vec<u64> {
    match driver.work.streams[&stream].kind {
        // An operation put there now would wait for all blocking streams.
        StreamKind::Legacy => driver.work.predecessors(stream),
        _ => driver.work.streams[&stream].last.into_iter().collect(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: u64) -> u32 {
    door::context("cuStreamSynchronize", |driver, context| {
        let stream = driver.stream(context, stream)?;
        let targets = ends(driver, stream);
        driver.wait(targets, true)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(stream: u64) -> u32 {
    door::context("cuStreamQuery", |driver, context| {
        let stream = driver.stream(context, stream)?;
        let found = driver.work.streams.get_mut(&stream).expect("resolved above");
        found.queries += 1;
        let third = found.queries % 3 == 0;
        let targets = ends(driver, stream);
        driver.poll(&targets, third)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCtx(stream: u64, place: Place<'_, u64>) -> u32 {
    door::context("cuStreamGetCtx", |driver, context| {
        let found = match driver.work.streams.get(&stream) {
            Some(stream) => stream.context,
            None => {
                driver.stream(context, stream)?;
                context
            }
        };
        put(place, found)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetFlags(stream: u64, flags: Place<'_, c_uint>) -> u32 {
    door::context("cuStreamGetFlags", |driver, context| {
        let stream = driver.stream(context, stream)?;
        let kind = driver.work.streams[&stream].kind;
        put(flags, c_uint::from(kind == StreamKind::NonBlocking))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetPriority(stream: u64, priority: Place<'_, c_int>) -> u32 {
    door::context("cuStreamGetPriority", |driver, context| {
        let stream = driver.stream(context, stream)?;
        put(priority, driver.work.streams[&stream].priority)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamIsCapturing(stream: u64, status: Place<'_, c_uint>) -> u32 {
    door::context("cuStreamIsCapturing", |driver, context| {
        let stream = driver.stream(context, stream)?;
        put(status, c_uint::from(driver.work.streams[&stream].capturing))
    })
}

fn capture(driver: &mut Driver, context: u64, stream: u64, capturing: bool) -> Answer {
    let stream = driver.stream(context, stream)?;
    if let Some(stream) = driver.work.streams.get_mut(&stream) {
        stream.capturing = capturing;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: u64, _mode: c_uint) -> u32 {
    door::context("cuStreamBeginCapture_v2", |driver, context| {
        if stream <= 1 {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED.because("the default stream"));
        }
        capture(driver, context, stream, true)
    })
}

/// There is no graph in it.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamEndCapture(stream: u64, graph: Place<'_, u64>) -> u32 {
    door::context("cuStreamEndCapture", |driver, context| {
        capture(driver, context, stream, false)?;
        put(graph, 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint) -> u32 {
    door::context("cuStreamWaitEvent", |driver, context| {
        if flags > 1 {
            return Err(Code::INVALID_VALUE.because(format!("wait flags {flags}")));
        }
        let stream = driver.stream(context, stream)?;
        // An event of another context is allowed here, as in CUDA.
        let Some(event) = driver.work.events.get(&event) else {
            return Err(Code::INVALID_HANDLE.because("no such event"));
        };
        if let Some(recorded) = event.recorded {
            driver.submit(stream, Task::EventWait, Some(recorded));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(
    stream: u64,
    function: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
) -> u32 {
    door::context("cuLaunchHostFunc", |driver, context| {
        let stream = driver.stream(context, stream)?;
        let Some(function) = function else {
            return Err(Code::INVALID_VALUE.because("no host function"));
        };
        let callback = Callback { function, argument: argument as usize };
        driver.submit(stream, Task::HostFunction(callback), None);
        Ok(())
    })
}
