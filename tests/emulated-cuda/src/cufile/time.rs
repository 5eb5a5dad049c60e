//! Simulated time: every read takes as long as any other, and so many run at once.

use std::collections::BTreeMap;

use crate::clock::Interval;

/// The clocks of threads and when each worker is free, in nanoseconds.
#[derive(Default)]
pub(super) struct Time {
    workers: Vec<u64>,
    threads: BTreeMap<u64, u64>,
}

impl Time {
    /// Where a thread is: only waiting moves it.
    pub(super) fn now(&self, thread: u64) -> u64 {
        self.threads.get(&thread).copied().unwrap_or(0)
    }

    /// Lets a thread wait until then.
    pub(super) fn wait(&mut self, thread: u64, until: u64) {
        let now = self.threads.entry(thread).or_default();
        *now = until.max(*now);
    }

    /// When a read that a thread submits now begins and ends.
    pub(super) fn book(&mut self, thread: u64, workers: usize, latency: u64) -> Interval {
        let now = self.now(thread);
        self.workers.resize(workers, 0);
        // The one that was idle shortest, or else the one that is free first: a thread that is
        // ahead of others takes nothing away from them.
        let order = |free: u64| if free <= now { (0, now - free) } else { (1, free) };
        let free = self.workers.iter_mut().min_by_key(|free| order(**free));
        let free = free.expect("there is a worker");
        let start = now.max(*free);
        *free = start + latency;
        Interval { start, end: start + latency }
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn reads_up_front_overlap_and_others_do_not() {
        let mut time = Time::default();
        let ends = (0..256).map(|_| time.book(1, 8, 1000).end).max();
        assert_eq!(ends, Some(32_000));
        let mut time = Time::default();
        for read in 1..=256 {
            let end = time.book(1, 8, 1000).end;
            assert_eq!(end, read * 1000);
            time.wait(1, end);
        }
    }
}
