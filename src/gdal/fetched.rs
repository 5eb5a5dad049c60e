//! Bytes of remote files that were fetched together with others, until they are asked for.
//!
//! One store for the process, of at most [`MOST`] bytes: what was put there first goes first, a
//! file's bytes go with the file, and what is taken is gone, since whoever took it has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::process::{PerProcess, memory};

/// Bytes kept, what it takes to keep them included: as much as GDAL's own cache of remote files
/// holds. Fetching more before it is asked for is no use.
pub const MOST: u64 = 16 << 20;

/// What a piece costs beyond its bytes, about.
const OVERHEAD: u64 = 128;

/// What it is called in messages.
const KEPT: &str = "fetched bytes";

static STORE: PerProcess<Mutex<Store>> = PerProcess::new();
static FILES: AtomicU64 = AtomicU64::new(0);

/// Which file, and where in it.
type Key = (u64, u64);

#[derive(Default)]
struct Store {
    pieces: BTreeMap<Key, Piece>,
    /// By age.
    order: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
}

struct Piece {
    age: u64,
    bytes: Vec<u8>,
}

fn cost(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + OVERHEAD
}

impl Store {
    fn put(&mut self, key: Key, bytes: Vec<u8>) {
        self.remove(key);
        self.bytes += cost(&bytes);
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.pieces.insert(key, Piece { age: self.clock, bytes });
        while self.bytes > MOST
            && let Some((_, &oldest)) = self.order.first_key_value()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: Key) -> Option<Vec<u8>> {
        let piece = self.pieces.remove(&key)?;
        self.order.remove(&piece.age);
        self.bytes -= cost(&piece.bytes);
        Some(piece.bytes)
    }

    /// The piece that holds all of the range, and where in it the range begins.
    fn find(&self, file: u64, offset: u64, len: usize) -> Option<(Key, usize)> {
        let (&key, piece) = self.pieces.range((file, 0)..=(file, offset)).next_back()?;
        let at = usize::try_from(offset - key.1).ok()?;
        (at.checked_add(len)? <= piece.bytes.len()).then_some((key, at))
    }
}

fn store() -> MutexGuard<'static, Store> {
    STORE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// One file's share of the store.
pub struct Fetched {
    file: u64,
}

/// Nothing yet, of a file that nobody else has.
impl Default for Fetched {
    fn default() -> Fetched {
        Fetched { file: FILES.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Fetched {
    /// Keeps bytes of the file, if there is memory to note them.
    pub fn put(&self, offset: u64, bytes: Vec<u8>) {
        if memory::check(KEPT).is_err() {
            return;
        }
        store().put((self.file, offset), bytes);
    }

    /// Copies bytes that are here; false if they are not.
    pub fn copy(&self, offset: u64, buf: &mut [u8]) -> bool {
        let store = store();
        let Some((key, at)) = store.find(self.file, offset, buf.len()) else { return false };
        buf.copy_from_slice(&store.pieces[&key].bytes[at..at + buf.len()]);
        true
    }

    /// Copies bytes that are here and forgets them; false if they are not here.
    pub fn take(&self, offset: u64, buf: &mut [u8]) -> bool {
        let mut store = store();
        let Some((key, at)) = store.find(self.file, offset, buf.len()) else { return false };
        let Some(bytes) = store.remove(key) else { return false };
        let end = at + buf.len();
        buf.copy_from_slice(&bytes[at..end]);
        // What there is no memory for is fetched again.
        for rest in [end..bytes.len(), 0..at].into_iter().filter(|rest| !rest.is_empty()) {
            if let Ok(kept) = memory::copied(&bytes[rest.clone()], KEPT) {
                store.put((self.file, key.1 + rest.start as u64), kept);
            }
        }
        true
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        // A file that was never fetched from, or a forked child's.
        if STORE.get().is_none() {
            return;
        }
        let mut store = store();
        let of_file = (self.file, 0)..=(self.file, u64::MAX);
        while let Some((&key, _)) = store.pieces.range(of_file.clone()).next() {
            store.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(fetched: &Fetched, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut buf = vec![0; len];
        fetched.copy(offset, &mut buf).then_some(buf)
    }

    fn take(fetched: &Fetched, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut buf = vec![0; len];
        fetched.take(offset, &mut buf).then_some(buf)
    }

    // One test: the store is the process's.
    #[test]
    fn what_is_taken_is_gone_and_the_rest_stays() {
        let (fetched, other) = (Fetched::default(), Fetched::default());
        fetched.put(100, (0..50).collect());
        assert_eq!(copy(&fetched, 99, 2), None);
        assert_eq!(copy(&fetched, 149, 2), None);
        assert_eq!(copy(&fetched, u64::MAX, 2), None);
        assert_eq!(copy(&other, 100, 2), None);
        assert_eq!(copy(&fetched, 149, 1), Some(vec![49]));
        assert_eq!(take(&fetched, 110, 5), Some(vec![10, 11, 12, 13, 14]));
        assert_eq!(take(&fetched, 110, 5), None);
        assert_eq!(copy(&fetched, 109, 2), None);
        assert_eq!(copy(&fetched, 100, 10), Some((0..10).collect()));
        assert_eq!(take(&fetched, 115, 35), Some((15..50).collect()));
        assert_eq!(take(&fetched, 100, 10), Some((0..10).collect()));
        assert_eq!(store().bytes, 0);

        // The oldest goes first; one that is put again is new, and not counted twice.
        let third = MOST / 3 - OVERHEAD;
        for offset in [0, third, 2 * third, 0, 3 * third] {
            fetched.put(offset, vec![1; third as usize]);
        }
        assert_eq!(copy(&fetched, third, 1), None);
        assert_eq!(copy(&fetched, 0, 1), Some(vec![1]));
        other.put(7, vec![2; 9]);
        drop(fetched);
        let store = store();
        assert_eq!((store.bytes, store.pieces.len(), store.order.len()), (9 + OVERHEAD, 1, 1));
    }
}
