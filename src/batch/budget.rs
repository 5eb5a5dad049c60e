//! What all datasets of the process together may hold in front of their callers.
//!
//! A [`Lease`] stands for bytes on a shelf. When the next one does not fit, other
//! datasets' shelves are emptied, the longest unused first, and a shelf nobody has
//! touched for a second is emptied anyway: an idle dataset holds no buffers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::process::PerProcess;

static LEDGER: PerProcess<Mutex<Ledger>> = PerProcess::new();

/// How long a shelf may stay untouched.
const IDLE: Duration = Duration::from_secs(1);

/// Something that holds leases and can be asked to give them up.
pub trait Holder: Send + Sync {
    /// When it was last of use to its owner; `None` while it is in use right now.
    fn last_used(&self) -> Option<Instant>;
    /// Gives up everything, unless it is in use right now.
    fn give_up(&self);
}

#[derive(Default)]
struct Ledger {
    used: usize,
    peak: usize,
    holders: Vec<Weak<dyn Holder>>,
    janitor: bool,
}

/// Some bytes of the process's budget.
#[derive(Debug)]
pub struct Lease {
    bytes: usize,
    pid: u32,
}

fn ledger() -> MutexGuard<'static, Ledger> {
    LEDGER.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes `bytes` out of `limit` for `holder`, emptying others if need be.
pub fn lease(bytes: usize, limit: usize, holder: &Arc<dyn Holder>) -> Option<Lease> {
    if bytes > limit {
        return None;
    }
    loop {
        let mut ledger = ledger();
        ledger.holders.retain(|h| h.strong_count() > 0);
        if ledger.used + bytes <= limit {
            ledger.used += bytes;
            ledger.peak = ledger.peak.max(ledger.used);
            if !ledger.holders.iter().any(|h| std::ptr::addr_eq(h.as_ptr(), Arc::as_ptr(holder))) {
                ledger.holders.push(Arc::downgrade(holder));
            }
            hire_janitor(&mut ledger);
            return Some(Lease { bytes, pid: std::process::id() });
        }
        let before = ledger.used;
        let victim = oldest(&ledger, holder);
        // Outside the lock: giving up drops leases, which take it.
        drop(ledger);
        victim?.give_up();
        if self::ledger().used >= before {
            return None;
        }
    }
}

/// The most that was leased at once in this process.
pub fn peak() -> usize {
    ledger().peak
}

fn oldest(ledger: &Ledger, but: &Arc<dyn Holder>) -> Option<Arc<dyn Holder>> {
    ledger
        .holders
        .iter()
        .filter_map(Weak::upgrade)
        .filter(|h| !Arc::ptr_eq(h, but))
        .filter_map(|h| Some((h.last_used()?, h)))
        .min_by_key(|(used, _)| *used)
        .map(|(_, h)| h)
}

impl Drop for Lease {
    fn drop(&mut self) {
        // In a forked child the parent's lease is not in the child's ledger.
        if self.pid == std::process::id() {
            ledger().used -= self.bytes;
        }
    }
}

fn hire_janitor(ledger: &mut Ledger) {
    if ledger.janitor {
        return;
    }
    let hired = std::thread::Builder::new().name("gpugtiff-idle".into()).spawn(clean);
    ledger.janitor = hired.is_ok();
}

/// Empties idle shelves until nothing is leased any more.
fn clean() {
    loop {
        std::thread::sleep(IDLE / 2);
        let idle: Vec<_> = {
            let mut ledger = ledger();
            if ledger.used == 0 {
                ledger.janitor = false;
                drop(ledger);
                return crate::process::return_memory();
            }
            let is_idle = |h: &Arc<dyn Holder>| h.last_used().is_some_and(|t| t.elapsed() >= IDLE);
            ledger.holders.iter().filter_map(Weak::upgrade).filter(is_idle).collect()
        };
        idle.iter().for_each(|holder| holder.give_up());
    }
}
