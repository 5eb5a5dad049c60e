//! What belongs to one process: memory; and, anew in a forked child, shared state
//! and the worker threads.
//!
//! After `fork` a child has a copy of every lock and queue but none of the
//! threads that would release or drain them. So what is shared between threads
//! lives in a [`PerProcess`]: the child finds nothing made by its own process id
//! and makes its own, and never looks at its parent's.

use std::sync::OnceLock;

pub mod memory;
pub mod pool;

/// Gives freed memory back to the system; the allocator would keep it for this
/// process.
pub fn return_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number; may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A lazily made value for each process id, never freed.
pub struct PerProcess<T: 'static> {
    head: OnceLock<Box<Node<T>>>,
}

struct Node<T: 'static> {
    pid: u32,
    value: T,
    next: OnceLock<Box<Node<T>>>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        PerProcess { head: OnceLock::new() }
    }

    /// This process's value, made by `make` the first time.
    pub fn get_or_init(&self, make: impl Fn() -> T) -> &T {
        let pid = std::process::id();
        let mut slot = &self.head;
        loop {
            let node =
                slot.get_or_init(|| Box::new(Node { pid, value: make(), next: OnceLock::new() }));
            if node.pid == pid {
                return &node.value;
            }
            slot = &node.next;
        }
    }

    /// This process's value, if it was made.
    pub fn get(&self) -> Option<&T> {
        let pid = std::process::id();
        let mut slot = &self.head;
        while let Some(node) = slot.get() {
            if node.pid == pid {
                return Some(&node.value);
            }
            slot = &node.next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once() {
        let cell = PerProcess::new();
        assert!(cell.get().is_none());
        assert_eq!(*cell.get_or_init(|| 1), 1);
        assert_eq!(*cell.get_or_init(|| 2), 1);
        assert_eq!(cell.get(), Some(&1));
    }
}
