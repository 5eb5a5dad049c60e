//! What C holds instead of our objects: numbers in the shape of pointers, each given out once.
//!
//! A handle is looked up, never followed: one that was freed, belongs to another kind or was
//! never ours is refused without touching memory, and an object that is freed while another
//! thread works with it lives until that is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::result::{
    GPUGTIFF_BAD_HANDLE, GPUGTIFF_NULL_ARGUMENT, GPUGTIFF_OUT_OF_MEMORY, Outcome, fail,
};

/// All live objects of one kind, by handle.
pub(super) struct Table<T> {
    kind: &'static str,
    live: RwLock<Option<HashMap<usize, Arc<T>>>>,
}

/// How many were given out. Handles are 16 apart, as if they were addresses, and shared by no two
/// kinds; nor by two copies of the library in a process, each of which begins somewhere else.
static COUNT: AtomicUsize = AtomicUsize::new(1);

fn next() -> usize {
    // Where this copy is, well mixed, in the upper half.
    let copy = std::ptr::from_ref(&COUNT).addr().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
    (copy & !0xFFFF_FFFF).wrapping_add(16 * COUNT.fetch_add(1, Ordering::Relaxed))
}

impl<T> Table<T> {
    /// For objects that messages call `kind`.
    pub(super) const fn new(kind: &'static str) -> Table<T> {
        Table { kind, live: RwLock::new(None) }
    }

    /// A handle for the object.
    pub(super) fn give_out(&self, object: T) -> Outcome<*mut T> {
        let handle = next();
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let live = live.get_or_insert_default();
        if live.try_reserve(1).is_err() {
            return fail(GPUGTIFF_OUT_OF_MEMORY, format!("no memory for one more {}", self.kind));
        }
        live.insert(handle, Arc::new(object));
        Ok(std::ptr::without_provenance_mut(handle))
    }

    /// The object of a handle.
    pub(super) fn get(&self, handle: *const T) -> Outcome<Arc<T>> {
        self.ask(handle, Arc::clone)
    }

    /// Asks the object of a handle something, before anybody can take it back.
    pub(super) fn ask<R>(
        &self,
        handle: *const T,
        question: impl FnOnce(&Arc<T>) -> R,
    ) -> Outcome<R> {
        if handle.is_null() {
            return fail(GPUGTIFF_NULL_ARGUMENT, format!("the {} is NULL", self.kind));
        }
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        match live.as_ref().and_then(|live| live.get(&handle.addr())) {
            Some(object) => Ok(question(object)),
            None => self.refuse(),
        }
    }

    /// Takes the object back; NULL is nobody's.
    pub(super) fn take_back(&self, handle: *mut T) -> Outcome<Option<Arc<T>>> {
        if handle.is_null() {
            return Ok(None);
        }
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        match live.as_mut().and_then(|live| live.remove(&handle.addr())) {
            Some(object) => Ok(Some(object)),
            None => self.refuse(),
        }
    }

    fn refuse<R>(&self) -> Outcome<R> {
        let text = format!("the {0} was freed already, or is not a {0} of this library", self.kind);
        fail(GPUGTIFF_BAD_HANDLE, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_other_kinds_and_freed_ones_are_refused() {
        static NUMBERS: Table<u32> = Table::new("number");
        static OTHERS: Table<u32> = Table::new("other");
        let handle = NUMBERS.give_out(7).unwrap();
        assert_eq!(*NUMBERS.get(handle).unwrap(), 7);
        assert_eq!(OTHERS.get(handle).unwrap_err().code, GPUGTIFF_BAD_HANDLE);
        let held = NUMBERS.get(handle).unwrap();
        assert!(NUMBERS.take_back(handle).unwrap().is_some());
        assert_eq!(*held, 7);
        assert_eq!(NUMBERS.get(handle).unwrap_err().code, GPUGTIFF_BAD_HANDLE);
        assert_eq!(NUMBERS.take_back(handle).unwrap_err().code, GPUGTIFF_BAD_HANDLE);
        assert!(NUMBERS.take_back(std::ptr::null_mut()).unwrap().is_none());
        assert_eq!(NUMBERS.get(std::ptr::null()).unwrap_err().code, GPUGTIFF_NULL_ARGUMENT);
    }
}
