//! What must be changed in a file so that libtiff, which has no JPEG 2000, takes its directories:
//! a few bytes, each where it is in the file. GTiff then knows everything of such an image but its
//! pixels, which it fails on: a codestream is no Deflate stream.
//!
//! Refuses to change or copy anything itself. Invariant: only values of Compression, Predictor and
//! PhotometricInterpretation are replaced, and only in directories whose tiles are JPEG 2000; and, to
//! have a certain directory for the first and only one, what points to it and from it to others.

use std::collections::BTreeSet;

use super::header::{ByteOrder, Header};
use super::ifd::{Entry, Ifd, Place};
use super::tag::{self, kind};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::memory;

/// More directories are not looked at: what lies behind is GTiff's to refuse.
const MAX_DIRECTORIES: usize = 4096;
/// Deflate, which every libtiff has.
const DEFLATE: u64 = 8;
const RGB: u64 = 2;
const YCBCR: u64 = 6;

/// Which directory is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The first, with all others in reach.
    First,
    /// Only this one, counted from 1.
    Number(usize),
    /// Only the one at this offset.
    At(u64),
}

/// A byte in place of another.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Where in the file.
    pub offset: u64,
    /// What is to be there.
    pub byte: u8,
}

/// The directories of a file, one after the other, each once. Ends with a damaged one: what follows
/// it is out of GTiff's reach too.
struct Chain<'a> {
    source: &'a dyn ByteSource,
    header: &'a Header,
    next: u64,
    seen: BTreeSet<u64>,
}

impl<'a> Chain<'a> {
    fn new(source: &'a dyn ByteSource, header: &'a Header) -> Chain<'a> {
        Chain { source, header, next: header.first_ifd, seen: BTreeSet::new() }
    }
}

impl Iterator for Chain<'_> {
    type Item = Ifd;

    fn next(&mut self) -> Option<Ifd> {
        let over = self.next == 0 || self.seen.len() >= MAX_DIRECTORIES;
        if over || !self.seen.insert(self.next) {
            return None;
        }
        let ifd = Ifd::read_entries(self.source, self.header, self.next).ok()?;
        self.next = ifd.next;
        Some(ifd)
    }
}

/// The changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// In the order of their offsets.
    pub patches: Vec<Patch>,
    /// Where the directories are that were changed; the first of the file, if among them, as 0 too.
    pub directories: BTreeSet<u64>,
}

impl Overlay {
    /// Looks at the directories of a file. Nothing is to be changed if the one wanted is absent or
    /// not JPEG 2000: GTiff then has another reason for what it says.
    pub fn new(source: &dyn ByteSource, wanted: Wanted) -> Result<Overlay> {
        let header = Header::read(source)?;
        let mut overlay = Overlay::default();
        match wanted {
            Wanted::First => {
                for ifd in Chain::new(source, &header) {
                    overlay.cover(&header, &ifd)?;
                    if overlay.directories.is_empty() {
                        break;
                    }
                }
            }
            Wanted::Number(number) => {
                let index = number.checked_sub(1);
                let ifd = index.and_then(|index| Chain::new(source, &header).nth(index));
                ifd.iter().try_for_each(|ifd| overlay.isolate(&header, ifd, source.len()))?;
            }
            Wanted::At(offset) => {
                let ifd = Ifd::read_entries(source, &header, offset)?;
                overlay.isolate(&header, &ifd, source.len())?;
            }
        }
        if overlay.directories.contains(&header.first_ifd) {
            overlay.directories.insert(0);
        }
        overlay.patches.sort_unstable_by_key(|patch| patch.offset);
        overlay.patches.dedup_by_key(|patch| patch.offset);
        Ok(overlay)
    }

    /// Changes a directory, if its tiles are JPEG 2000.
    fn cover(&mut self, header: &Header, ifd: &Ifd) -> Result<()> {
        let compression = ifd.u16(tag::COMPRESSION).ok().flatten();
        if !compression.is_some_and(tag::is_jpeg2000) {
            return Ok(());
        }
        self.directories.insert(ifd.offset);
        let first = ifd.offset + header.count_size();
        let mut done = BTreeSet::new();
        for (i, entry) in ifd.entries().iter().enumerate() {
            let value = match entry.tag {
                tag::COMPRESSION => DEFLATE,
                // libtiff knows it with Deflate, not with JPEG 2000.
                tag::PREDICTOR => 1,
                // What we make of it.
                tag::PHOTOMETRIC if ifd.scalar(entry.tag).is_ok_and(|p| p == Some(YCBCR)) => RGB,
                _ => continue,
            };
            if done.insert(entry.tag) {
                let at = first + (i as u64 + 1) * header.entry_size() - header.offset_size();
                self.replace(header.byte_order, entry, at, value)?;
            }
        }
        Ok(())
    }

    /// Changes a directory, if its tiles are JPEG 2000, and has it for the only one of the file.
    fn isolate(&mut self, header: &Header, ifd: &Ifd, file_len: u64) -> Result<()> {
        self.cover(header, ifd)?;
        if self.directories.is_empty() {
            return Ok(());
        }
        let width = header.offset_size() as usize;
        self.put(header.byte_order, width as u64, ifd.offset, width)?;
        let entries = ifd.entries().len() as u64 * header.entry_size();
        let next = ifd.offset + header.count_size() + entries;
        if next + width as u64 <= file_len {
            self.put(header.byte_order, next, 0, width)?;
        }
        Ok(())
    }

    /// Has one number at `at` instead of the entry's.
    fn replace(&mut self, order: ByteOrder, entry: &Entry, at: u64, value: u64) -> Result<()> {
        let width = match (kind::integer(entry.kind), kind::size(entry.kind)) {
            (Some(_), Some(width)) => width as usize,
            _ => return Ok(()),
        };
        if entry.count != 1 || !matches!(entry.place, Place::Inline(_)) {
            return Ok(());
        }
        self.put(order, at, value, width)
    }

    fn put(&mut self, order: ByteOrder, at: u64, value: u64, width: usize) -> Result<()> {
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        let bytes = match order {
            ByteOrder::Little => &little[..width],
            ByteOrder::Big => &big[8 - width..],
        };
        let patches = (at..).zip(bytes).map(|(offset, &byte)| Patch { offset, byte });
        memory::extend(&mut self.patches, patches, "the changes of an overlay")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::fixture::{Fixture, VARIANTS};
    use super::*;
    use crate::io::Memory;

    fn apply(file: &Memory, overlay: &Overlay) -> Memory {
        let mut bytes = file.0.clone();
        for patch in &overlay.patches {
            bytes[patch.offset as usize] = patch.byte;
        }
        Memory(bytes)
    }

    #[test]
    fn only_what_libtiff_does_not_take_is_changed() {
        for variant in VARIANTS {
            for (compression, photometric) in [(34712, 6), (33003, 2), (33005, 1)] {
                let (file, at) = Fixture::new(variant)
                    .tag(tag::IMAGE_WIDTH, kind::SHORT, &[100])
                    .tag(tag::COMPRESSION, kind::SHORT, &[compression])
                    .tag(tag::PHOTOMETRIC, kind::LONG, &[photometric])
                    .tag(tag::PREDICTOR, kind::SHORT, &[2])
                    .tag(tag::TILE_WIDTH, kind::SHORT, &[64])
                    .build();
                let overlay = Overlay::new(&file, Wanted::First).unwrap();
                assert_eq!(overlay.directories, BTreeSet::from([0, at]));
                let file = apply(&file, &overlay);
                let header = Header::read(&file).unwrap();
                let ifd = Ifd::read(&file, &header, at).unwrap();
                let number = |tag| ifd.scalar(tag).unwrap().unwrap();
                assert_eq!(number(tag::COMPRESSION), DEFLATE);
                assert_eq!(number(tag::PREDICTOR), 1);
                assert_eq!(
                    number(tag::PHOTOMETRIC),
                    if photometric == 6 { 2 } else { photometric }
                );
                assert_eq!((number(tag::IMAGE_WIDTH), number(tag::TILE_WIDTH)), (100, 64));
                assert_eq!(Overlay::new(&file, Wanted::First).unwrap(), Overlay::default());
            }
        }
    }

    /// A classic file of directories with one tag, and how often it was read from.
    struct Chained(Memory, AtomicUsize);

    impl Chained {
        fn new(directories: u32, compression: impl Fn(u32) -> u16) -> Chained {
            let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
            for i in 0..directories {
                let next = if i + 1 < directories { 8 + (i + 1) * 18 } else { 0 };
                bytes.extend([1, 0, 3, 1, 3, 0, 1, 0, 0, 0]);
                bytes.extend(u32::from(compression(i)).to_le_bytes());
                bytes.extend(next.to_le_bytes());
            }
            Chained(Memory(bytes), AtomicUsize::new(0))
        }
    }

    impl ByteSource for Chained {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(offset, buffer)
        }
    }

    #[test]
    fn the_walk_ends_where_it_can_find_nothing_more() {
        let longer = MAX_DIRECTORIES as u32 + 1000;
        let all = Chained::new(longer, |_| 34712);
        let overlay = Overlay::new(&all, Wanted::First).unwrap();
        assert_eq!(overlay.directories.len(), MAX_DIRECTORIES + 1);
        assert_eq!(overlay.patches.len(), 2 * MAX_DIRECTORIES);
        assert!(overlay.patches.is_sorted_by(|a, b| a.offset < b.offset));
        let later = Chained::new(100, |i| if i == 0 { 8 } else { 34712 });
        assert_eq!(Overlay::new(&later, Wanted::First).unwrap(), Overlay::default());
        assert!(later.1.load(Ordering::Relaxed) <= 4);
    }

    #[test]
    fn only_the_directory_that_is_wanted_counts() {
        let file = Chained::new(10, |i| if i == 3 { 8 } else { 34712 });
        let overlay = Overlay::new(&file, Wanted::Number(10)).unwrap();
        assert_eq!(overlay.directories, BTreeSet::from([8 + 9 * 18]));
        assert_eq!(overlay, Overlay::new(&file, Wanted::At(8 + 9 * 18)).unwrap());
        assert_eq!(Overlay::new(&file, Wanted::Number(1)).unwrap().directories.len(), 2);
        let other = [Wanted::Number(4), Wanted::At(8 + 3 * 18)];
        for wanted in [Wanted::Number(0), Wanted::Number(11), Wanted::Number(usize::MAX)]
            .into_iter()
            .chain(other)
        {
            assert_eq!(Overlay::new(&file, wanted).unwrap(), Overlay::default());
        }
        assert!(Overlay::new(&file, Wanted::At(u64::MAX)).is_err());
    }

    #[test]
    fn a_directory_that_points_to_itself_ends_the_walk() {
        let (mut file, at) =
            Fixture::new(VARIANTS[0]).tag(tag::COMPRESSION, kind::SHORT, &[34712]).build();
        let header = Header::read(&file).unwrap();
        let next = (at + header.count_size() + header.entry_size()) as usize;
        let itself = match header.byte_order {
            ByteOrder::Little => (at as u32).to_le_bytes(),
            ByteOrder::Big => (at as u32).to_be_bytes(),
        };
        file.0[next..next + 4].copy_from_slice(&itself);
        assert_eq!(Ifd::read(&file, &header, at).unwrap().next, at);
        assert_eq!(Overlay::new(&file, Wanted::First).unwrap().patches.len(), 2);
        for wanted in [Wanted::Number(1), Wanted::At(at)] {
            let file = apply(&file, &Overlay::new(&file, wanted).unwrap());
            let header = Header::read(&file).unwrap();
            assert_eq!(Ifd::read(&file, &header, header.first_ifd).unwrap().next, 0);
        }
    }
}
