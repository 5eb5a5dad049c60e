//! What belongs to one process: memory; and, anew in a forked child, shared state
//! and the worker threads.
//!
//! After `fork` a child has a copy of every lock and queue but none of the
//! threads that would release or drain them. So what is shared between threads
//! lives in a [`PerProcess`]: the child finds nothing made by its own process id
//! and makes its own, and never looks at its parent's.

use std::sync::OnceLock;

pub mod fork;
pub mod memory;
pub mod pool;
pub mod reserve;

/// Gives freed memory back to the system; the allocator would keep it for this
/// process.
pub fn return_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number; may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A lazily made value for each process id. What another process made is never freed: a lock
/// may be held there that nobody releases, by a thread that was in the middle of something.
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

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let pid = std::process::id();
        let mut node = self.head.take();
        while let Some(mut this) = node {
            node = this.next.take();
            if this.pid != pid {
                std::mem::forget(this);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock that is held while a child is forked is not the child's.
    #[test]
    #[cfg(unix)]
    fn a_child_makes_its_own() {
        use std::sync::Mutex;
        static CELL: PerProcess<Mutex<u32>> = PerProcess::new();
        let _held = CELL.get_or_init(|| Mutex::new(1)).lock().unwrap();
        // SAFETY: the child makes a value, tries its lock and ends.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let own = CELL.get_or_init(|| Mutex::new(2)).try_lock().is_ok_and(|n| *n == 2);
                libc::_exit(i32::from(!own));
            }
            let mut status = -1;
            libc::waitpid(pid, &mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }

    #[test]
    fn is_made_once() {
        let cell = PerProcess::new();
        assert!(cell.get().is_none());
        assert_eq!(*cell.get_or_init(|| 1), 1);
        assert_eq!(*cell.get_or_init(|| 2), 1);
        assert_eq!(cell.get(), Some(&1));
    }
}
