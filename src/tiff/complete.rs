//! Whether a file that somebody else wrote has all its tiles.
//!
//! Refuses to decode a tile: what is looked at are the arrays of offsets and byte counts. Invariant:
//! a file passes only if every directory of its chain could be read.

use std::collections::BTreeSet;

use super::array::OFFSETS;
use super::header::Header;
use super::ifd::{Ifd, within};
use super::layout::Layout;
use super::striles::Striles;
use super::tag;
use crate::error::{Cause, Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// Tiles looked at in one go.
const AT_ONCE: u64 = 1 << 16;

/// Which directories must have all their tiles; the others may leave some out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// None of them.
    None,
    /// Images, but no overviews and no masks.
    Images,
    /// All of them.
    All,
}

/// What is expected of a file's directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Directories that were there before and are not looked at.
    pub skip: usize,
    /// Of those that follow, which are whole.
    pub whole: Whole,
}

/// Bits of NewSubfileType: a reduced version of another image, a mask.
const REDUCED_OR_MASK: u64 = 1 | 4;

/// The number of directories in the file's chain.
pub fn count(source: &dyn ByteSource) -> Result<usize> {
    let mut found = 0;
    walk(source, |_, _, _| {
        found += 1;
        Ok(())
    })?;
    Ok(found)
}

/// Checks that no tile is missing where none may be, and that all others lie within the file.
pub fn check(source: &dyn ByteSource, expected: Expectation) -> Result<()> {
    walk(source, |header, ifd, number| {
        let kind = ifd.scalar(tag::NEW_SUBFILE_TYPE)?.unwrap_or(0);
        let whole = match expected.whole {
            Whole::None => false,
            Whole::Images => kind & REDUCED_OR_MASK == 0,
            Whole::All => true,
        };
        if number < expected.skip {
            return Ok(());
        }
        check_directory(source, header, ifd, number, whole)
    })
}

fn walk(
    source: &dyn ByteSource,
    mut visit: impl FnMut(&Header, &Ifd, usize) -> Result<()>,
) -> Result<()> {
    let header = Header::read(source)?;
    let (mut next, mut seen) = (header.first_ifd, BTreeSet::new());
    while next != 0 {
        if !seen.insert(next) {
            return Err(Error::corrupt("the directories form a loop", next));
        }
        let ifd = Ifd::read(source, &header, next)?;
        visit(&header, &ifd, seen.len() - 1)?;
        next = ifd.next;
    }
    Ok(())
}

fn check_directory(
    source: &dyn ByteSource,
    header: &Header,
    ifd: &Ifd,
    number: usize,
    whole: bool,
) -> Result<()> {
    // GTiff may write what this reader has no word for; of arrays it has one kind.
    let layout = match Layout::new(header, ifd) {
        Err(Error::Unsupported(_)) => return Ok(()),
        layout => layout?,
    };
    let striles = match Striles::new(header, ifd, &layout) {
        Err(Error::Unsupported(_)) if !whole => return Ok(()),
        striles => striles?,
    };
    let (count, file_len) = (striles.count(), source.len());
    let (mut missing, mut first) = (0_u64, None);
    let mut start = 0;
    while start < count {
        let end = count.min(start + AT_ONCE);
        let indices = memory::collect(start..end, OFFSETS)?;
        for (index, (offset, len)) in indices.iter().zip(striles.stored(source, &indices)?) {
            if len == 0 {
                missing += 1;
                first.get_or_insert(*index);
            } else if offset == 0 || within(offset, len, file_len).is_none() {
                return Err(Error::File(Cause(format!(
                    "tile {index} of directory {number} should have {len} bytes at offset {offset}, \
                     and the file has {file_len}"
                ))));
            }
        }
        start = end;
    }
    match first.filter(|_| whole) {
        None => Ok(()),
        Some(first) => Err(Error::File(Cause(format!(
            "{missing} of {count} tiles of directory {number} were not written, the first of them \
             is tile {first}"
        )))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiff::fixture::{Fixture, VARIANTS};
    use crate::tiff::tag::kind;

    const ALL: Expectation = Expectation { skip: 0, whole: Whole::All };
    const SOME: Expectation = Expectation { skip: 0, whole: Whole::None };

    fn text(fixture: &Fixture, expected: Expectation) -> String {
        check(&fixture.build().0, expected).map_or_else(|error| error.to_string(), |()| "".into())
    }

    #[test]
    fn a_missing_tile_is_told_unless_tiles_may_be_left_out() {
        for variant in VARIANTS {
            let mut counts = [100; 12];
            assert_eq!(text(&Fixture::tiled(variant), ALL), "");
            (counts[3], counts[7]) = (0, 0);
            let lost = Fixture::tiled(variant).with(tag::TILE_BYTE_COUNTS, kind::SHORT, &counts);
            let said = text(&lost, ALL);
            assert!(
                said.contains("2 of 12 tiles of directory 0") && said.contains("tile 3"),
                "{said}"
            );
            assert_eq!(text(&lost, SOME), "");
            assert_eq!(text(&lost, Expectation { skip: 1, ..ALL }), "");
            let images = Expectation { skip: 0, whole: Whole::Images };
            assert_eq!(text(&lost, images), said);
            let overview = lost.tag(tag::NEW_SUBFILE_TYPE, kind::LONG, &[1]);
            assert_eq!((text(&overview, images), text(&overview, ALL)), ("".into(), said));
        }
    }

    #[test]
    fn a_tile_beyond_the_end_is_never_right() {
        for variant in VARIANTS {
            let cut = Fixture::tiled(variant).tail(1200);
            assert!(text(&cut, SOME).contains("should have 100 bytes"), "{}", text(&cut, SOME));
            let zero = Fixture::strips(variant, 2).with(tag::STRIP_OFFSETS, kind::LONG, &[0; 4]);
            assert!(text(&zero, SOME).contains("offset 0"), "{}", text(&zero, SOME));
        }
    }

    #[test]
    fn directories_are_counted_and_a_loop_is_an_error() {
        let mut fixture = Fixture::tiled(VARIANTS[0]);
        assert_eq!(count(&fixture.build().0).unwrap(), 1);
        fixture.next = 8;
        assert!(count(&fixture.build().0).is_err());
        fixture.next = 1 << 30;
        assert!(count(&fixture.build().0).is_err());
    }
}
