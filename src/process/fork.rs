//! Keeps workers out of other libraries' locks while the process is forked.
//!
//! A child has a copy of every lock and only the thread that forked: one that another thread held
//! stays taken. Our own locks are made anew in a child ([`super::PerProcess`]); those of libraries
//! that workers call are not ours to make. So a worker says when it is inside such a call, and a fork
//! waits until nobody is.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A fork waits no longer: the thread that forks may hold a lock that a worker waits for.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_micros(50);

/// Threads inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork, or in the middle of it.
static FORKING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, forks of other threads wait.
pub struct HoldOff(());

/// Waits for a fork that is under way, and holds the next one off.
pub fn hold_off() -> HoldOff {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: three functions that take and return nothing; they touch atomics and this thread's
        // own count only, which is allowed around a fork.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
    let depth = DEPTH.get();
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        // A thread that is inside already must come out for the fork to go on.
        if depth > 0 || FORKING.load(Ordering::SeqCst) == 0 {
            break;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        sleep(STEP);
    }
    DEPTH.set(depth + 1);
    HoldOff(())
}

impl Drop for HoldOff {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

extern "C" fn prepare() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let own = DEPTH.try_with(Cell::get).unwrap_or(0);
    let deadline = Instant::now() + PATIENCE;
    while INSIDE.load(Ordering::SeqCst) > own && Instant::now() < deadline {
        sleep(STEP);
    }
}

extern "C" fn parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// The child has this thread and no other.
extern "C" fn child() {
    FORKING.store(0, Ordering::SeqCst);
    INSIDE.store(DEPTH.try_with(Cell::get).unwrap_or(0), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Threads take a lock inside; a child never finds it taken.
    #[test]
    fn a_child_finds_no_lock_taken() {
        static LOCK: Mutex<()> = Mutex::new(());
        static END: AtomicBool = AtomicBool::new(false);
        let worker = || {
            while !END.load(Ordering::Relaxed) {
                let _inside = hold_off();
                let _lock = LOCK.lock().unwrap();
                sleep(Duration::from_micros(200));
            }
        };
        let workers = [std::thread::spawn(worker), std::thread::spawn(worker)];
        for i in 0..50 {
            sleep(Duration::from_micros(i * 7));
            // SAFETY: the child tries a lock and ends.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::_exit(i32::from(LOCK.try_lock().is_err()));
                }
                let mut status = -1;
                libc::waitpid(pid, &mut status, 0);
                status
            };
            assert_eq!(status, 0, "fork {i}");
        }
        END.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}
