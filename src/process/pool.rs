//! The process's worker threads.
//!
//! Two ways to use them: [`run`] shares a loop between the calling thread and
//! the workers and returns when it is done; [`spawn`] hands over one piece of
//! work and goes on. The caller always works too, so `run` makes progress even
//! where no thread could be started, and may be called from a worker.
//!
//! A forked child gets workers of its own (see [`super`]). At exit the
//! workers stop taking work and the exiting thread waits for what they are doing.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PerProcess;

static POOL: PerProcess<Pool> = PerProcess::new();

/// How long exit waits for workers in the middle of something.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    work: Condvar,
    stopping: AtomicBool,
    busy: AtomicUsize,
    /// Threads inside `run` that are not workers.
    callers: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    workers: usize,
}

/// The body of a job. The lifetime is erased; see `run`.
type Body = dyn Fn(usize) + Sync + 'static;

struct Job {
    body: BodyPtr,
    tasks: usize,
    /// Workers that may be inside at once, the caller not counted.
    helpers: usize,
    next: AtomicUsize,
    inside: AtomicUsize,
    done: Mutex<Done>,
    finished: Condvar,
}

#[derive(Default)]
struct Done {
    count: usize,
    panic: Option<Box<dyn Any + Send>>,
}

enum BodyPtr {
    Borrowed(*const Body),
    Owned(Box<dyn Fn(usize) + Send + Sync>),
}

// SAFETY: the pointee is Sync, and `run` keeps it alive until every task is done.
unsafe impl Send for BodyPtr {}
// SAFETY: as above.
unsafe impl Sync for BodyPtr {}

/// A mutex that a panicking task poisoned still holds consistent counts.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `body(0)`, …, `body(tasks - 1)`, each once, on up to `threads` threads
/// of which the caller is one. A panic in a task is raised again here.
pub fn run(threads: usize, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
    let caller = Caller::new();
    let helpers = threads.min(tasks).saturating_sub(1).min(caller.helpers(threads));
    if helpers == 0 {
        (0..tasks).for_each(body);
        return;
    }
    // SAFETY: only the lifetime changes. `job.wait()` below returns after every
    // task that was claimed has ended, and no task can be claimed any more.
    let erased: &'static Body =
        unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Body>(body) };
    let job = Arc::new(Job::new(BodyPtr::Borrowed(erased), tasks, helpers));
    let pool = pool();
    pool.submit(Arc::clone(&job), true);
    job.work();
    pool.forget(&job);
    job.wait();
}

/// A thread inside `run`.
struct Caller {
    is_worker: bool,
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

impl Caller {
    fn new() -> Caller {
        let caller = Caller { is_worker: IS_WORKER.get() };
        if !caller.is_worker {
            pool().callers.fetch_add(1, Ordering::Relaxed);
        }
        caller
    }

    /// How many workers are worth waking for it. Where as many threads call as there shall be
    /// workers, each does its own work: the others would only take its turn.
    fn helpers(&self, threads: usize) -> usize {
        match self.is_worker {
            true => usize::MAX,
            false => threads.saturating_sub(pool().callers.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.is_worker {
            pool().callers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs `task` on a worker, some time. There shall be as many workers as pieces of such work that
/// are waited for elsewhere while they wait for something themselves: `abreast`, or 1.
pub fn spawn(abreast: usize, task: impl FnOnce() + Send + 'static) {
    let task = Mutex::new(Some(task));
    let body = move |_| {
        if let Some(task) = lock(&task).take() {
            task();
        }
    };
    pool().submit(Arc::new(Job::new(BodyPtr::Owned(Box::new(body)), 1, abreast)), false);
}

/// While it lives, exit waits, as it does for workers.
pub struct Hold(&'static Pool);

/// Holds up exit for a thread that is not a worker.
pub fn hold() -> Hold {
    let pool = pool();
    pool.busy.fetch_add(1, Ordering::SeqCst);
    Hold(pool)
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does one queued piece of work on this thread, if there is one.
pub fn help() -> bool {
    let pool = pool();
    let Some(job) = pool.claim(&mut lock(&pool.queue), |_| true) else { return false };
    job.work_once();
    job.inside.fetch_sub(1, Ordering::AcqRel);
    true
}

/// Does one task of a loop that a worker shares on this thread, if there is one; never the piece of
/// work that the loop is in.
pub fn help_with_a_task() -> bool {
    let pool = pool();
    let is_loop = |job: &Job| matches!(job.body, BodyPtr::Borrowed(_));
    let Some(job) = pool.claim(&mut lock(&pool.queue), is_loop) else { return false };
    job.work_once();
    job.inside.fetch_sub(1, Ordering::AcqRel);
    true
}

/// Whether there is nobody to do what is spawned.
pub fn has_no_workers() -> bool {
    lock(&pool().queue).workers == 0
}

impl Job {
    fn new(body: BodyPtr, tasks: usize, helpers: usize) -> Self {
        Job {
            body,
            tasks,
            helpers,
            next: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            done: Mutex::default(),
            finished: Condvar::new(),
        }
    }

    fn open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.tasks
    }

    fn work(&self) {
        while self.work_once() {}
    }

    /// Claims and runs one task; false when none is left.
    fn work_once(&self) -> bool {
        let task = self.next.fetch_add(1, Ordering::AcqRel);
        if task >= self.tasks {
            return false;
        }
        let body: &dyn Fn(usize) = match &self.body {
            // SAFETY: this task was claimed and is not counted as done yet, so
            // `run` is still waiting and its borrow is alive.
            BodyPtr::Borrowed(body) => unsafe { &**body },
            BodyPtr::Owned(body) => body,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(task)));
        let mut done = lock(&self.done);
        if let Err(panic) = outcome {
            done.panic.get_or_insert(panic);
        }
        done.count += 1;
        if done.count == self.tasks {
            self.finished.notify_all();
        }
        true
    }

    fn wait(&self) {
        let mut done = lock(&self.done);
        while done.count < self.tasks {
            done = self.finished.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(panic) = done.panic.take() {
            drop(done);
            resume_unwind(panic);
        }
    }
}

fn pool() -> &'static Pool {
    POOL.get_or_init(|| {
        // SAFETY: registers a plain function that takes and returns nothing.
        unsafe { libc::atexit(stop) };
        Pool::default()
    })
}

/// Lets workers finish what they are in before libraries are torn down.
extern "C" fn stop() {
    let Some(pool) = POOL.get() else { return };
    pool.stopping.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + EXIT_PATIENCE;
    while pool.busy.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Pool {
    fn submit(&'static self, job: Arc<Job>, urgent: bool) {
        let wanted = job.helpers;
        let mut queue = lock(&self.queue);
        if urgent {
            queue.jobs.push_front(job);
        } else {
            queue.jobs.push_back(job);
        }
        while queue.workers < wanted {
            let started =
                std::thread::Builder::new().name("gpugtiff".into()).spawn(move || self.work());
            if started.is_err() {
                break;
            }
            queue.workers += 1;
        }
        drop(queue);
        if wanted == 1 { self.work.notify_one() } else { self.work.notify_all() }
    }

    fn forget(&self, job: &Arc<Job>) {
        lock(&self.queue).jobs.retain(|other| !Arc::ptr_eq(other, job));
    }

    /// The first job with a task left and room for one more worker.
    fn claim(&self, queue: &mut Queue, wanted: impl Fn(&Job) -> bool) -> Option<Arc<Job>> {
        queue.jobs.retain(|job| job.open());
        let has_room = |job: &Job| job.inside.load(Ordering::Acquire) < job.helpers;
        let job = queue.jobs.iter().find(|job| has_room(job) && wanted(job))?;
        job.inside.fetch_add(1, Ordering::AcqRel);
        Some(Arc::clone(job))
    }

    fn work(&self) {
        IS_WORKER.set(true);
        let mut queue = lock(&self.queue);
        loop {
            let claimed = if self.stopping.load(Ordering::SeqCst) {
                None
            } else {
                self.busy.fetch_add(1, Ordering::SeqCst);
                let claimed = self.claim(&mut queue, |_| true);
                if claimed.is_none() {
                    self.busy.fetch_sub(1, Ordering::SeqCst);
                }
                claimed
            };
            let Some(job) = claimed else {
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            loop {
                let more = !self.stopping.load(Ordering::SeqCst) && job.work_once();
                if !more {
                    break;
                }
            }
            job.inside.fetch_sub(1, Ordering::AcqRel);
            drop(job);
            self.busy.fetch_sub(1, Ordering::SeqCst);
            queue = lock(&self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let hits: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
            run(threads, hits.len(), &|i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{threads} threads");
        }
    }

    #[test]
    fn callers_are_counted_while_they_are_inside() {
        // At least these: other tests run too.
        let callers = [Caller::new(), Caller::new(), Caller::new()];
        assert_eq!(callers[0].helpers(3), 0);
        assert!(callers[0].helpers(8) <= 5);
        assert_eq!(Caller { is_worker: true }.helpers(2), usize::MAX);
    }

    #[test]
    fn nested_runs_finish() {
        let total = AtomicUsize::new(0);
        run(4, 8, &|_| {
            run(4, 8, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 64);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let outcome = catch_unwind(|| run(2, 10, &|i| assert!(i != 7, "planted")));
        assert!(outcome.is_err());
        run(2, 10, &|_| {});
    }

    #[test]
    fn spawned_work_is_done() {
        let (tx, rx) = std::sync::mpsc::channel();
        spawn(1, move || tx.send(5).unwrap());
        assert_eq!(rx.recv_timeout(Duration::from_secs(10)), Ok(5));
    }
}
