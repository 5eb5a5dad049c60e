//! The one way in: every exported function is a closure handed to a function here.
//!
//! Refuses to know what a call does. Invariants: a call is counted before anything else; a
//! forked child and a process that is exiting never reach the state; no panic leaves.

use std::io::Write;
use std::mem::MaybeUninit;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::Duration;

use crate::driver::Driver;
use crate::report;
use crate::settings::{Failure, Which};
use crate::status::{Answer, Code};
use crate::task::IN_CALLBACK;

/// Where a result goes; none where the caller passed null.
pub type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));
static OWNER: AtomicI32 = AtomicI32::new(0);
static EXITING: AtomicBool = AtomicBool::new(false);
static LATE_CALLS: AtomicU64 = AtomicU64::new(0);
static REPORTER: AtomicI32 = AtomicI32::new(0);
static LAST_REPORT: Mutex<Option<report::Written>> = Mutex::new(None);

/// Stores a result; a null place is an invalid value.
pub(crate) fn put<T>(place: Place<'_, T>, value: T) -> Answer {
    match place {
        Some(place) => {
            place.write(value);
            Ok(())
        }
        None => Err(Code::INVALID_VALUE.because("a null pointer for a result")),
    }
}

/// The state, for functions that are no CUDA calls.
pub(crate) fn state() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the one that initialised the driver.
pub(crate) fn own() {
    OWNER.store(process(), Ordering::SeqCst);
}

fn process() -> i32 {
    // SAFETY: takes nothing, always succeeds.
    unsafe { libc::getpid() }
}

fn forked() -> bool {
    let owner = OWNER.load(Ordering::SeqCst);
    owner != 0 && owner != process()
}

extern "C" fn leave() {
    // A child that was forked off inherits this handler, but the report is not its own.
    if REPORTER.load(Ordering::SeqCst) != process() {
        return;
    }
    EXITING.store(true, Ordering::SeqCst);
    // Another thread may be in a call; one that waits for this thread never comes out of it.
    for _ in 0..1000 {
        let driver = match DRIVER.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        *LAST_REPORT.lock().unwrap_or_else(PoisonError::into_inner) = report::write(&driver);
        return;
    }
}

/// Lets the report tell of a call that came after the process began to exit.
fn note_late_call() {
    let mut last = LAST_REPORT.lock().unwrap_or_else(PoisonError::into_inner);
    let late = LATE_CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(report) = last.as_mut() {
        report.amend(late);
    }
}

/// Answers that need no state: null where the call may go on.
fn turned_away(symbol: &'static str) -> Option<Code> {
    if forked() {
        note_child_call(symbol);
        return Some(Code::NOT_INITIALIZED);
    }
    if EXITING.load(Ordering::SeqCst) {
        note_late_call();
        return Some(Code::DEINITIALIZED);
    }
    if IN_CALLBACK.get() {
        return Some(Code::NOT_PERMITTED);
    }
    None
}

/// A forked child has no report; its calls are listed next to the parent's.
fn note_child_call(symbol: &str) {
    let Ok(path) = std::env::var("EMUCUDA_REPORT") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path + ".forked");
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{} {symbol}", process());
    }
}

/// Counts the call and, if it is the one that must fail, loses the device or just says so.
fn admit(driver: &mut Driver, symbol: &'static str) -> Result<(), Code> {
    static EXIT: Once = Once::new();
    EXIT.call_once(|| {
        REPORTER.store(process(), Ordering::SeqCst);
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::atexit(leave) };
    });
    driver.ledger.count(symbol);
    driver.symbol = symbol;
    let calls = driver.ledger.calls;
    let code = match &driver.settings.fail {
        Some(Failure { call: Which::Nth(n), code }) if *n == calls => *code,
        Some(Failure { call: Which::Next(name), code }) if name == symbol => {
            let code = *code;
            driver.settings.fail = None;
            code
        }
        _ => return Ok(()),
    };
    driver.ledger.injected = Some((symbol, code.0, calls));
    if code.sticky() {
        let context = driver.current().ok();
        let device = context.map_or(0, |context| driver.device_of(context));
        let text = format!("injected into {symbol}");
        driver.fault(device, code, None, text);
    }
    Err(code)
}

fn guarded(
    driver: &mut Driver,
    symbol: &'static str,
    body: impl FnOnce(&mut Driver) -> Answer,
) -> Result<(), Code> {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| body(driver)));
    let refusal = match outcome {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(refusal)) => refusal,
        Err(_) => Code::UNKNOWN.because("a panic of the emulator"),
    };
    if refusal.code != Code::NOT_READY {
        driver.ledger.error(symbol, refusal.code.0, refusal.message);
    }
    Err(refusal.code)
}

fn number(outcome: Result<(), Code>) -> u32 {
    outcome.map_or_else(|code| code.known().0, |()| 0)
}

/// A call that works before cuInit.
pub(crate) fn free(symbol: &'static str, body: impl FnOnce(&mut Driver) -> Answer) -> u32 {
    if let Some(code) = turned_away(symbol) {
        return code.0;
    }
    let mut driver = state();
    if EXITING.load(Ordering::SeqCst) {
        return Code::DEINITIALIZED.0;
    }
    number(admit(&mut driver, symbol).and_then(|()| guarded(&mut driver, symbol, body)))
}

/// Takes the time that starting is to take. Without the state: calls of other threads go on meanwhile.
pub(crate) fn start_slowly() {
    if forked() || EXITING.load(Ordering::SeqCst) || IN_CALLBACK.get() {
        return;
    }
    let driver = state();
    let time = if driver.initialized { Duration::ZERO } else { driver.settings.init_time };
    drop(driver);
    std::thread::sleep(time);
}

/// A call that needs cuInit but no context; the fault of a current context comes first.
pub(crate) fn device(symbol: &'static str, body: impl FnOnce(&mut Driver) -> Answer) -> u32 {
    free(symbol, |driver| {
        if !driver.initialized {
            return Err(Code::NOT_INITIALIZED.into());
        }
        match driver.current_fault() {
            Some(code) => Err(code.because("the device is lost")),
            None => body(driver),
        }
    })
}

/// A call that changes or asks the thread's context: it does so even after a fault, and
/// answers the fault of either context.
pub(crate) fn switch(symbol: &'static str, body: impl FnOnce(&mut Driver) -> Answer) -> u32 {
    free(symbol, |driver| {
        if !driver.initialized {
            return Err(Code::NOT_INITIALIZED.into());
        }
        let before = driver.current_fault();
        body(driver)?;
        match before.or(driver.current_fault()) {
            Some(code) => Err(code.because("the device is lost")),
            None => Ok(()),
        }
    })
}

/// A call that needs a current context.
pub(crate) fn context(symbol: &'static str, body: impl FnOnce(&mut Driver, u64) -> Answer) -> u32 {
    device(symbol, |driver| {
        let context = driver.current()?;
        body(driver, context)
    })
}

/// Why a call of another library than the driver was not done.
pub(crate) enum Refused<E> {
    /// By the door: a forked child, an exiting process, a callback.
    Away(Code),
    /// It is the one that must fail.
    Injected(Code),
    /// By the library itself, with a status of its own.
    Answered(E),
    Panicked,
}

/// A call of another library than the driver: its refusals are statuses of its own.
pub(crate) fn library<T, E: Copy + Into<u32>>(
    symbol: &'static str,
    body: impl FnOnce(&mut Driver) -> Result<T, (E, String)>,
) -> Result<T, Refused<E>> {
    if let Some(code) = turned_away(symbol) {
        return Err(Refused::Away(code));
    }
    let mut driver = state();
    if EXITING.load(Ordering::SeqCst) {
        return Err(Refused::Away(Code::DEINITIALIZED));
    }
    admit(&mut driver, symbol).map_err(Refused::Injected)?;
    inside(&mut driver, symbol, body)
}

/// Goes on with a call that has left the state in between: it is counted already.
pub(crate) fn resumed<T, E: Copy + Into<u32>>(
    symbol: &'static str,
    body: impl FnOnce(&mut Driver) -> Result<T, (E, String)>,
) -> Result<T, Refused<E>> {
    let mut driver = state();
    driver.symbol = symbol;
    inside(&mut driver, symbol, body)
}

fn inside<T, E: Copy + Into<u32>>(
    driver: &mut Driver,
    symbol: &'static str,
    body: impl FnOnce(&mut Driver) -> Result<T, (E, String)>,
) -> Result<T, Refused<E>> {
    match std::panic::catch_unwind(AssertUnwindSafe(|| body(driver))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err((status, message))) => {
            driver.ledger.error(symbol, status.into(), message);
            Err(Refused::Answered(status))
        }
        Err(_) => {
            driver.ledger.error(symbol, Code::UNKNOWN.0, "a panic of the emulator".into());
            Err(Refused::Panicked)
        }
    }
}

/// An nvCOMP call: `Err` holds a status of nvCOMP's; a failure that was asked for becomes one.
pub(crate) fn nvcomp(
    symbol: &'static str,
    failed: u32,
    known: impl Fn(u32) -> bool,
    body: impl FnOnce(&mut Driver) -> Result<(), (u32, String)>,
) -> u32 {
    match library(symbol, body) {
        Ok(()) => 0,
        Err(Refused::Answered(status)) => status,
        Err(Refused::Injected(code)) if known(code.0) => code.0,
        Err(_) => failed,
    }
}
