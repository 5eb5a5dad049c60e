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

/// libtiff counts directories in 16 bits.
const MAX_DIRECTORIES: usize = 65_535;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Where in the file.
    pub offset: u64,
    /// What is to be there.
    pub byte: u8,
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
    /// Looks at all directories of a file.
    pub fn new(source: &dyn ByteSource, wanted: Wanted) -> Result<Overlay> {
        let header = Header::read(source)?;
        let mut overlay = Overlay::default();
        let mut seen = BTreeSet::new();
        let mut next = header.first_ifd;
        let mut only = match wanted {
            Wanted::At(offset) => Some(Ifd::read(source, &header, offset)?),
            _ => None,
        };
        while next != 0 && seen.len() < MAX_DIRECTORIES && seen.insert(next) {
            // What follows a damaged directory is out of GTiff's reach too.
            let Ok(ifd) = Ifd::read(source, &header, next) else { break };
            overlay.cover(&header, &ifd);
            next = ifd.next;
            if wanted == Wanted::Number(seen.len()) {
                only = Some(ifd);
            }
        }
        if let Some(ifd) = only {
            if seen.insert(ifd.offset) {
                overlay.cover(&header, &ifd);
            }
            overlay.isolate(&header, &ifd, source.len());
        }
        if overlay.directories.contains(&header.first_ifd) {
            overlay.directories.insert(0);
        }
        overlay.patches.sort_by_key(|patch| patch.offset);
        overlay.patches.dedup_by_key(|patch| patch.offset);
        Ok(overlay)
    }

    /// Changes a directory, if its tiles are JPEG 2000.
    fn cover(&mut self, header: &Header, ifd: &Ifd) {
        let compression = ifd.u16(tag::COMPRESSION).ok().flatten();
        if !compression.is_some_and(tag::is_jpeg2000) {
            return;
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
                self.replace(header.byte_order, entry, at, value);
            }
        }
    }

    /// Has a directory for the only one of the file.
    fn isolate(&mut self, header: &Header, ifd: &Ifd, file_len: u64) {
        let width = header.offset_size() as usize;
        self.put(header.byte_order, width as u64, ifd.offset, width);
        let entries = ifd.entries().len() as u64 * header.entry_size();
        let next = ifd.offset + header.count_size() + entries;
        if next + width as u64 <= file_len {
            self.put(header.byte_order, next, 0, width);
        }
    }

    /// Has one number at `at` instead of the entry's.
    fn replace(&mut self, order: ByteOrder, entry: &Entry, at: u64, value: u64) {
        let width = match (kind::integer(entry.kind), kind::size(entry.kind)) {
            (Some(_), Some(width)) => width as usize,
            _ => return,
        };
        if entry.count != 1 || !matches!(entry.place, Place::Inline(_)) {
            return;
        }
        self.put(order, at, value, width);
    }

    fn put(&mut self, order: ByteOrder, at: u64, value: u64, width: usize) {
        let bytes = match order {
            ByteOrder::Little => value.to_le_bytes()[..width].to_vec(),
            ByteOrder::Big => value.to_be_bytes()[8 - width..].to_vec(),
        };
        let patch = |(offset, &byte)| Patch { offset, byte };
        self.patches.extend((at..).zip(&bytes).map(patch));
    }
}

#[cfg(test)]
mod tests {
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
