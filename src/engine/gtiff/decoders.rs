//! Decoders that wait for the next tile of their image.
//!
//! To open one costs a sixth of a JPEG tile, so they are kept; as each may hold a tile and what its
//! codec needs, few are: a mosaic of a thousand files must not have one for each file and thread.
//! Refuses to keep those of large tiles, and of images that nobody reads any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use crate::process::PerProcess;

/// Decodes tiles of one directory that are alike, one after the other.
pub trait Decoder: Send {
    /// Decodes the bytes of a tile into the pixels of a whole one, or tells what GTiff said. The bytes
    /// are lost. After a failure the decoder is not used again.
    fn decode(&mut self, bytes: &mut [u8], pixels: &mut [u8]) -> Result<(), String>;
}

/// What tiles of one decoder have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Likeness {
    pub(super) height: usize,
    /// The tables that they bring along, if they are JPEG.
    pub(super) tables: u16,
}

struct Idle {
    owner: u64,
    tiles: Likeness,
    decoder: Box<dyn Decoder>,
}

/// The one that waits longest comes first.
static IDLE: PerProcess<Mutex<Vec<Idle>>> = PerProcess::new();

/// For each thread that the machine can run: one for whole strips and one for the last.
const IDLE_PER_THREAD: usize = 2;

/// Whose decoders they are: an image. Those that wait go with it.
#[derive(Debug)]
pub(super) struct Owner(u64);

impl Owner {
    pub(super) fn new() -> Owner {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        Owner(COUNTER.fetch_add(1, Ordering::Relaxed))
    }

    /// One that waits.
    pub(super) fn take(&self, tiles: Likeness) -> Option<Box<dyn Decoder>> {
        with_idle(|idle| {
            let is_it = |found: &Idle| found.owner == self.0 && found.tiles == tiles;
            Some(idle.remove(idle.iter().rposition(is_it)?).decoder)
        })
    }

    /// Has one wait.
    pub(super) fn give(&self, tiles: Likeness, decoder: Box<dyn Decoder>) {
        let surplus = with_idle(|idle| {
            if idle.try_reserve(1).is_err() {
                return Some(decoder);
            }
            idle.push(Idle { owner: self.0, tiles, decoder });
            (idle.len() > most_idle()).then(|| idle.remove(0).decoder)
        });
        // Closed when the lock is free again.
        drop(surplus);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let next = || {
            with_idle(|idle| {
                let at = idle.iter().position(|found| found.owner == self.0)?;
                Some(idle.remove(at))
            })
        };
        while next().is_some() {}
    }
}

/// Asking the system takes a dozen calls.
fn most_idle() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| IDLE_PER_THREAD * thread::available_parallelism().map_or(1, usize::from))
}

fn with_idle<T>(use_it: impl FnOnce(&mut Vec<Idle>) -> T) -> T {
    let idle = IDLE.get_or_init(Mutex::default);
    use_it(&mut idle.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Counts how many of its kind there are.
    struct Counted(Arc<AtomicUsize>);

    impl Counted {
        fn boxed(count: &Arc<AtomicUsize>) -> Box<dyn Decoder> {
            count.fetch_add(1, Ordering::SeqCst);
            Box::new(Counted(Arc::clone(count)))
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Decoder for Counted {
        fn decode(&mut self, _: &mut [u8], _: &mut [u8]) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn few_wait_and_none_outlives_its_owner() {
        let count = Arc::new(AtomicUsize::new(0));
        let most = most_idle();
        let alike = |height| Likeness { height, tables: 3 };
        let (one, other) = (Owner::new(), Owner::new());
        for _ in 0..3 * most {
            one.give(alike(8), Counted::boxed(&count));
        }
        assert!(count.load(Ordering::SeqCst) <= most);
        other.give(alike(8), Counted::boxed(&count));
        assert!(other.take(alike(7)).is_none());
        assert!(other.take(Likeness { height: 8, tables: 1 }).is_none());
        let taken = other.take(alike(8));
        assert!(taken.is_some() && other.take(alike(8)).is_none());
        drop(one);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(taken);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}
