//! Where the tiles are: TileOffsets and TileByteCounts, or StripOffsets and StripByteCounts.
//!
//! Refuses to read a tile, and to guess: what libtiff estimates for compressed data is
//! `Error::Unsupported`. The arrays are read in pages when a tile is asked for, so that a file
//! with a million tiles costs only the entries in use. Invariants: every [`ByteRange`] lies within
//! the file and, like libtiff's, is not much longer than ten times the tile; the pages kept take
//! at most 16 MiB, whatever the file says; no lock is held while reading.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::header::{ByteOrder, Header};
use super::ifd::{Entry, Ifd, Place, outside, within};
use super::layout::{Layout, Planar};
use super::tag::{self, kind};
use crate::error::{Error, Result};
use crate::io::ByteSource;

/// Entries in a page: 4096 bytes of LONG8.
const PAGE: u64 = 512;
/// Pages kept: a million tiles at 16 bytes each.
const MAX_KEPT: usize = 2048;
/// Pages read in one request, at most.
const MAX_READ: usize = 512;

/// Bytes of the file that hold one tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// How many, never zero.
    pub len: u64,
}

/// Where the tiles of a directory are.
#[derive(Debug)]
pub struct Striles {
    offsets: Array,
    counts: Counts,
    tiles: u64,
    /// Entries that the first page lacks, so that pages of offsets begin where blocks of the file
    /// do: what caches files by the block (/vsicurl/) then reads no two for one.
    lacking: u64,
    /// Every such block ends in the middle of an entry.
    straddles: bool,
    /// Bytes of a whole decoded tile.
    tile_bytes: u64,
    /// The only strip of an image, whose byte count libtiff doubts.
    lone_strip: bool,
    uncompressed: bool,
    cache: Mutex<Cache>,
}

/// Lengths of tiles as stored, or the same for all where the tag is missing.
#[derive(Debug)]
enum Counts {
    Stored(Array),
    Computed(u64),
}

/// An array of numbers in the file, at least as long as there are tiles.
#[derive(Debug)]
struct Array {
    place: Place,
    width: u64,
    order: ByteOrder,
}

/// Offsets and lengths of up to [`PAGE`] tiles, unchecked.
type Page = Arc<[(u64, u64)]>;

/// The pages read last; the oldest one goes first.
#[derive(Debug, Default)]
struct Cache {
    pages: HashMap<u64, Page>,
    age: VecDeque<u64>,
}

impl Striles {
    /// Checks that the arrays are there and long enough; reads nothing.
    pub fn new(header: &Header, ifd: &Ifd, layout: &Layout) -> Result<Striles> {
        let tiles = layout.tile_count();
        let order = header.byte_order;
        let offsets = find(ifd, tag::TILE_OFFSETS, tag::STRIP_OFFSETS)?
            .ok_or_else(|| Error::corrupt("the directory has no offsets of tiles", ifd.offset))?;
        let counts = match find(ifd, tag::TILE_BYTE_COUNTS, tag::STRIP_BYTE_COUNTS)? {
            Some(entry) => Counts::Stored(Array::new(entry, order, tiles)?),
            None => Counts::Computed(computed(ifd, layout)?),
        };
        let offsets = Array::new(offsets, order, tiles)?;
        Ok(Striles {
            lacking: offsets.lacking(),
            straddles: offsets.straddles(),
            offsets,
            counts,
            tiles,
            tile_bytes: layout.tile_bytes(),
            lone_strip: !layout.tiled && tiles == 1,
            uncompressed: layout.compression == 1,
            cache: Mutex::default(),
        })
    }

    /// Where tile `index` is; `None` for one that was never written.
    pub fn range(&self, source: &dyn ByteSource, index: u64) -> Result<Option<ByteRange>> {
        Ok(self.ranges(source, [index])?.pop().flatten())
    }

    /// The same, of which only offsets are read.
    pub fn offsets_only(self) -> Striles {
        Striles { counts: Counts::Computed(0), ..self }
    }

    /// How many tiles there are.
    pub fn count(&self) -> u64 {
        self.tiles
    }

    /// Where many tiles are, in the order asked for, with few requests.
    pub fn ranges(
        &self,
        source: &dyn ByteSource,
        indices: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<Option<ByteRange>>> {
        let indices: Vec<u64> = indices.into_iter().collect();
        let file_len = source.len();
        let entries = self.entries(source, &indices, file_len)?;
        let entries = indices.iter().zip(entries);
        entries.map(|(index, (offset, len))| self.check(*index, offset, len, file_len)).collect()
    }

    /// What the file says of where many tiles begin.
    pub fn offsets(&self, source: &dyn ByteSource, indices: &[u64]) -> Result<Vec<u64>> {
        let entries = self.entries(source, indices, source.len())?;
        Ok(entries.into_iter().map(|(offset, _)| offset).collect())
    }

    /// The entries of tiles, unchecked.
    fn entries(
        &self,
        source: &dyn ByteSource,
        indices: &[u64],
        file_len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::with_capacity(indices.len());
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

    /// The longest start of `indices` whose entries fit into one request, and its pages.
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
        let missing: Vec<u64> =
            pages.iter().filter(|(_, slot)| slot.is_none()).map(|(page, _)| *page).collect();
        if missing.is_empty() {
            return Ok(pages);
        }
        // With the single entry between two of them they are one range.
        let between = missing.windows(2).filter(|pair| self.straddles && pair[0] + 2 == pair[1]);
        let between: Vec<u64> = between.map(|pair| pair[0] + 1).collect();
        let mut missing = [missing, between].concat();
        missing.sort_unstable();
        let read = self.read(source, &missing, file_len)?;
        let mut cache = self.cache();
        for (page, entries) in missing.into_iter().zip(read) {
            cache.keep(page, entries.clone());
            pages.insert(page, Some(entries));
        }
        Ok(pages)
    }

    /// Reads ascending pages in one request, neighbours as one range.
    fn read(&self, source: &dyn ByteSource, pages: &[u64], file_len: u64) -> Result<Vec<Page>> {
        let runs: Vec<(u64, u64)> = pages
            .chunk_by(|left, right| left + 1 == *right)
            .map(|run| (self.first(run[0]), self.first(run[run.len() - 1] + 1).min(self.tiles)))
            .collect();
        let mut arrays = vec![&self.offsets];
        if let Counts::Stored(counts) = &self.counts {
            arrays.push(counts);
        }
        let mut buffers = Vec::new();
        for (first, end) in &runs {
            for array in &arrays {
                buffers.push(array.buffer(*first, *end, file_len)?);
            }
        }
        // One by one: what caches small reads (/vsicurl/) does not cache many at once.
        for (at, bytes) in &mut buffers {
            if let Some(at) = at {
                source.read_at(*at, bytes)?;
            }
        }
        let mut read = Vec::with_capacity(pages.len());
        for ((first, end), run) in runs.iter().zip(buffers.chunks_exact(arrays.len())) {
            let entries = self.decode(run);
            let mut page = self.page(*first);
            while self.first(page) < *end {
                let until = self.first(page + 1).min(*end);
                let cut = (self.first(page) - first) as usize..(until - first) as usize;
                read.push(Page::from(entries.get(cut).unwrap_or_default()));
                page += 1;
            }
        }
        Ok(read)
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

    /// The entries in the bytes of one run of pages.
    fn decode(&self, run: &[(Option<u64>, Vec<u8>)]) -> Vec<(u64, u64)> {
        let offsets = run.first().map(|(_, bytes)| self.offsets.numbers(bytes));
        let counts = match (&self.counts, run.get(1)) {
            (Counts::Stored(array), Some((_, bytes))) => Some(array.numbers(bytes)),
            _ => None,
        };
        let offsets = offsets.into_iter().flatten();
        match (counts, &self.counts) {
            (None, Counts::Computed(len)) => offsets.map(|at| (at, *len)).collect(),
            (counts, _) => offsets.zip(counts.into_iter().flatten()).collect(),
        }
    }

    /// What libtiff and GTiff make of an entry.
    pub fn check(
        &self,
        index: u64,
        offset: u64,
        len: u64,
        file_len: u64,
    ) -> Result<Option<ByteRange>> {
        let len = if self.lone_strip { self.doubt(offset, len, file_len)? } else { len };
        if len == 0 {
            return Ok(None);
        }
        // libtiff has its own ideas of both; the caller asks it.
        if offset == 0 || self.out_of_proportion(len) {
            return Err(Error::corrupt(format!("tile {index} has {len} bytes"), offset));
        }
        match within(offset, len, file_len) {
            Some(_) => Ok(Some(ByteRange { offset, len })),
            None => Err(outside(&format!("tile {index}"), offset, len, file_len)),
        }
    }

    /// The length of the only strip, which libtiff replaces where it cannot be right
    /// (ByteCountLooksBad in tif_dirread.c).
    fn doubt(&self, offset: u64, len: u64, file_len: u64) -> Result<u64> {
        if offset == 0 {
            return Ok(len);
        }
        if !self.uncompressed {
            let unknown = || Error::Unsupported("a compressed strip of unknown length".into());
            return if len == 0 { Err(unknown()) } else { Ok(len) };
        }
        let too_long = file_len.checked_sub(offset).is_some_and(|left| len > left);
        Ok(if too_long || len < self.tile_bytes { self.tile_bytes } else { len })
    }

    /// More than libtiff would read of a tile (TIFFFillStrip in tif_read.c).
    fn out_of_proportion(&self, len: u64) -> bool {
        len > 1 << 20 && (len - 4096) / 10 > self.tile_bytes
    }

    fn beyond(&self, index: u64) -> Error {
        Error::corrupt(format!("tile {index} of {} was asked for", self.tiles), 0)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages by number, `None` where they are still to be read.
type Pages = BTreeMap<u64, Option<Page>>;

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
    fn new(entry: &Entry, order: ByteOrder, tiles: u64) -> Result<Array> {
        let Entry { tag, kind, count, place, .. } = entry;
        // SLONG8 is against the rules, but some files have it and libtiff reads it.
        let width = match *kind {
            kind::SHORT | kind::LONG | kind::LONG8 | kind::SLONG8 => kind::size(*kind),
            _ => None,
        };
        match width {
            Some(width) if *count >= tiles => Ok(Array { place: *place, width, order }),
            Some(_) => Err(Error::Unsupported(format!("tag {tag}: {count} of {tiles} tiles"))),
            None => Err(Error::Unsupported(format!("tag {tag} of type {kind}"))),
        }
    }

    /// How many entries would fit between a block of the file, as large as a page, and the first; one
    /// that begins before the block counts.
    fn lacking(&self) -> u64 {
        match self.place {
            Place::At(base) => (base % (PAGE * self.width)).div_ceil(self.width),
            Place::Inline(_) => 0,
        }
    }

    fn straddles(&self) -> bool {
        matches!(self.place, Place::At(base) if !base.is_multiple_of(self.width))
    }

    /// Room for entries `first..end` and where to read them, or themselves if they are inline.
    fn buffer(&self, first: u64, end: u64, file_len: u64) -> Result<(Option<u64>, Vec<u8>)> {
        // Neither overflows: tiles are counted in 31 bits.
        let (skip, len) = (first * self.width, (end - first) * self.width);
        let base = match &self.place {
            Place::Inline(value) => return Ok((None, value[..(len as usize).min(8)].to_vec())),
            Place::At(base) => *base,
        };
        let at = base.saturating_add(skip);
        within(at, len, file_len).ok_or_else(|| {
            outside(&format!("the entries of tiles {first} to {end}"), at, len, file_len)
        })?;
        Ok((Some(at), vec![0; len as usize]))
    }

    fn numbers(&self, bytes: &[u8]) -> impl Iterator<Item = u64> {
        let order = self.order;
        bytes.chunks_exact(self.width as usize).map(move |bytes| order.uint(bytes))
    }
}

/// The entry of either tag: to libtiff they are the same one, so both together are ambiguous.
fn find(ifd: &Ifd, tile: u16, strip: u16) -> Result<Option<&Entry>> {
    match (ifd.find(tile), ifd.find(strip)) {
        (Some(_), Some(_)) => Err(Error::Unsupported(format!("tag {tile} next to tag {strip}"))),
        (entry, None) | (None, entry) => Ok(entry),
    }
}

/// The length of every tile where the tag is missing (EstimateStripByteCounts in tif_dirread.c).
fn computed(ifd: &Ifd, layout: &Layout) -> Result<u64> {
    let enough = match layout.planar {
        Planar::Contiguous => 1,
        Planar::Separate => u64::from(layout.samples_per_pixel),
    };
    if layout.tile_count() != enough {
        return Err(Error::corrupt("the directory has no byte counts of tiles", ifd.offset));
    }
    if layout.compression != 1 {
        return Err(Error::Unsupported("compressed tiles of unknown length".into()));
    }
    Ok(layout.tile_bytes())
}

#[cfg(test)]
mod tests;
