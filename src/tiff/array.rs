//! An array of numbers in the file, one for each tile, read in pages.
//!
//! Knows nothing of what the numbers mean. A page is what lies in one block of the file, so that
//! what caches files by the block (/vsicurl/) reads no two for one. Invariants: the pages kept take
//! at most 8 MiB, whatever the file says; no lock is held while reading.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::header::ByteOrder;
use super::ifd::{Entry, Place, outside, within};
use super::tag::kind;
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// Entries in a block of the file: 4096 bytes of LONG8.
pub(super) const PAGE: u64 = 512;
/// Pages kept: a million entries at 8 bytes each.
const MAX_KEPT: usize = 2048;
/// What is allocated, in messages.
pub(super) const OFFSETS: &str = "the offsets of tiles";
/// Pages read at a time, at most.
pub(super) const MAX_READ: usize = 512;

/// An array, at least as long as there are tiles.
#[derive(Debug)]
pub(super) struct Array {
    place: Place,
    width: u64,
    order: ByteOrder,
    tiles: u64,
    /// How many entries would fit between the block of the file that the array begins in and its
    /// first; one that begins before the block counts.
    lacking: u64,
    /// Every block ends in the middle of an entry.
    straddles: bool,
    cache: Mutex<Cache>,
}

/// The entries of a page.
type Page = Arc<[u64]>;

/// Pages by number, `None` where they are still to be read.
type Pages = BTreeMap<u64, Option<Page>>;

/// The pages read last; the oldest one goes first.
#[derive(Debug, Default)]
struct Cache {
    pages: HashMap<u64, Page>,
    age: VecDeque<u64>,
}

impl Cache {
    fn keep(&mut self, page: u64, entries: Page) {
        if self.pages.insert(page, entries).is_none() {
            self.age.push_back(page);
        }
        if self.age.len() > MAX_KEPT {
            self.age.pop_front().and_then(|oldest| self.pages.remove(&oldest));
        }
    }
}

impl Array {
    /// Checks that it is long enough; reads nothing.
    pub(super) fn new(entry: &Entry, order: ByteOrder, tiles: u64) -> Result<Array> {
        let Entry { tag, kind, count, place, .. } = entry;
        // SLONG8 is against the rules, but some files have it and libtiff reads it.
        let width = match *kind {
            kind::SHORT | kind::LONG | kind::LONG8 | kind::SLONG8 => kind::size(*kind),
            _ => None,
        };
        match width {
            Some(width) if *count >= tiles => Ok(Array::at(*place, width, order, tiles)),
            Some(_) => Err(Error::Unsupported(format!("tag {tag}: {count} of {tiles} tiles"))),
            None => Err(Error::Unsupported(format!("tag {tag} of type {kind}"))),
        }
    }

    fn at(place: Place, width: u64, order: ByteOrder, tiles: u64) -> Array {
        let base = match place {
            Place::At(base) => base,
            Place::Inline(_) => 0,
        };
        let lacking = (base % (PAGE * width)).div_ceil(width);
        let straddles = !base.is_multiple_of(width);
        Array { place, width, order, tiles, lacking, straddles, cache: Mutex::default() }
    }

    /// How many tiles there are.
    pub(super) fn tiles(&self) -> u64 {
        self.tiles
    }

    /// The entries of tiles, in the order asked for, with few requests.
    pub(super) fn get(
        &self,
        source: &dyn ByteSource,
        indices: &[u64],
        file_len: u64,
    ) -> Result<Vec<u64>> {
        let mut found = memory::room(indices.len(), OFFSETS)?;
        let mut rest = indices;
        while !rest.is_empty() {
            let (group, pages) = self.next_group(rest)?;
            let pages = self.pages(source, pages, file_len)?;
            for index in group {
                let number = self.page(*index);
                let page = pages.get(&number).and_then(|page| page.as_ref());
                let raw = page.and_then(|page| page.get((index - self.first(number)) as usize));
                found.push(*raw.ok_or_else(|| self.beyond(*index))?);
            }
            rest = &rest[group.len()..];
        }
        Ok(found)
    }

    /// The longest start of `indices` whose entries are read at a time, and its pages.
    fn next_group<'a>(&self, indices: &'a [u64]) -> Result<(&'a [u64], Pages)> {
        let mut pages = Pages::new();
        for (position, index) in indices.iter().enumerate() {
            if *index >= self.tiles {
                return Err(self.beyond(*index));
            }
            let page = self.page(*index);
            if pages.len() == MAX_READ && !pages.contains_key(&page) {
                return Ok((&indices[..position], pages));
            }
            pages.entry(page).or_insert(None);
        }
        Ok((indices, pages))
    }

    /// Fills in the pages, from the cache or the file.
    fn pages(&self, source: &dyn ByteSource, mut pages: Pages, file_len: u64) -> Result<Pages> {
        {
            let cache = self.cache();
            pages.iter_mut().for_each(|(page, slot)| *slot = cache.pages.get(page).cloned());
        }
        let missing = pages.iter().filter(|(_, slot)| slot.is_none()).map(|(page, _)| *page);
        let missing: Vec<u64> = memory::collect(missing, OFFSETS)?;
        // With the single entry between two of them they are one range.
        let close = if self.straddles { 2 } else { 1 };
        for run in missing.chunk_by(|left, right| left + close >= *right) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let entries = self.read(source, self.first(first), self.first(last + 1), file_len)?;
            let mut cache = self.cache();
            for page in first..=last {
                let cut = |page| (self.first(page) - self.first(first)) as usize;
                let end = cut(page + 1).min(entries.len());
                let entries = Page::from(entries.get(cut(page)..end).unwrap_or_default());
                cache.keep(page, Arc::clone(&entries));
                pages.insert(page, Some(entries));
            }
        }
        Ok(pages)
    }

    /// Reads the entries of tiles `first..end`, as far as there are tiles. By a plain read: what
    /// caches small reads (/vsicurl/) does not cache many at once.
    fn read(
        &self,
        source: &dyn ByteSource,
        first: u64,
        end: u64,
        file_len: u64,
    ) -> Result<Vec<u64>> {
        let end = end.min(self.tiles);
        // Neither overflows: tiles are counted in 31 bits.
        let (skip, len) = (first * self.width, (end - first) * self.width);
        let base = match &self.place {
            Place::Inline(value) => return self.numbers(&value[..(len as usize).min(8)]),
            Place::At(base) => *base,
        };
        let at = base.saturating_add(skip);
        within(at, len, file_len).ok_or_else(|| {
            outside(&format!("the entries of tiles {first} to {end}"), at, len, file_len)
        })?;
        let mut bytes = memory::bytes(len as usize, OFFSETS)?;
        source.read_at(at, &mut bytes)?;
        self.numbers(&bytes)
    }

    fn numbers(&self, bytes: &[u8]) -> Result<Vec<u64>> {
        let entries = bytes.chunks_exact(self.width as usize);
        memory::collect(entries.map(|bytes| self.order.uint(bytes)), OFFSETS)
    }

    /// The page that holds a tile's entry. An entry that lies in two blocks of the file is a page of
    /// its own, so that the others of either block are read without the other.
    fn page(&self, index: u64) -> u64 {
        // Does not overflow: tiles are counted in 31 bits.
        let place = index + self.lacking;
        match self.straddles {
            true => place / PAGE * 2 + u64::from(!place.is_multiple_of(PAGE)),
            false => place / PAGE,
        }
    }

    /// The first tile of a page, or of the next if the page has none.
    fn first(&self, page: u64) -> u64 {
        let place = match self.straddles {
            true => page / 2 * PAGE + page % 2,
            false => page * PAGE,
        };
        place.saturating_sub(self.lacking)
    }

    fn beyond(&self, index: u64) -> Error {
        Error::corrupt(format!("tile {index} of {} was asked for", self.tiles), 0)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
