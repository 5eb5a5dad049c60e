//! What a reader remembers from one window to the next: how callers walk, and what was decoded in
//! front of them.
//!
//! One thread at a time; a thread that is inside already, since a progress callback reads what it is
//! called for, finds nothing remembered. A forked child begins anew.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::ahead::{Kept, Load, Spare, Walk};
use super::budget::Holder;
use crate::process::PerProcess;

/// What one reader remembers. Behind an `Arc` of its own so that the process's budget can take it
/// back.
#[derive(Default)]
pub(super) struct Ahead {
    state: PerProcess<Mutex<State>>,
}

pub(super) struct State {
    pub(super) used: Instant,
    /// By plane.
    pub(super) walks: BTreeMap<u32, Follow>,
    pub(super) spare: Arc<Spare>,
}

#[derive(Default)]
pub(super) struct Follow {
    pub(super) walk: Walk,
    pub(super) loads: VecDeque<Load>,
}

impl Follow {
    pub(super) fn retire(&mut self) {
        self.loads.drain(..).for_each(|load| load.cancel());
    }
}

impl Default for State {
    fn default() -> State {
        State { used: Instant::now(), walks: BTreeMap::new(), spare: Arc::default() }
    }
}

impl State {
    fn clear(&mut self) {
        self.walks.values_mut().for_each(Follow::retire);
        self.spare.clear();
    }

    /// A tile that was decoded ahead, and the load that holds it.
    pub(super) fn find(&self, id: u64) -> Option<(&Load, Arc<Kept>)> {
        let mut loads = self.walks.values().flat_map(|f| &f.loads);
        loads.find_map(|load| Some((load, load.shelf.get(id)?)))
    }
}

thread_local! {
    /// Where this thread is inside of.
    static INSIDE: RefCell<Vec<*const Ahead>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside.
struct Inside {
    /// It was already.
    again: bool,
}

impl Inside {
    fn enter(ahead: *const Ahead) -> Inside {
        INSIDE.with_borrow_mut(|inside| {
            let again = inside.contains(&ahead);
            inside.push(ahead);
            Inside { again }
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(Vec::pop);
    }
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with what is remembered.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let inside = Inside::enter(self);
        if !inside.again {
            return work(&mut self.lock());
        }
        let mut state = State::default();
        let result = work(&mut state);
        state.clear();
        result
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

impl Holder for Ahead {
    fn last_used(&self) -> Option<Instant> {
        self.state.get()?.try_lock().ok().map(|state| state.used)
    }

    fn give_up(&self) {
        match self.state.get().map(Mutex::try_lock) {
            Some(Ok(mut state)) => state.clear(),
            Some(Err(TryLockError::Poisoned(state))) => state.into_inner().clear(),
            Some(Err(TryLockError::WouldBlock)) | None => {}
        }
    }
}
