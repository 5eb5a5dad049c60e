//! Directories to be written: tags taken over from another file, with a height and tile arrays
//! of our own.
//!
//! Refuses to write anything itself: it lays bytes out for an offset, and says what they are.
//! Values are kept as bytes in the file's byte order, which is the one they were read in.

use std::collections::BTreeMap;

use super::header::{ByteOrder, Header};
use super::ifd::Ifd;
use super::tag::{self, kind};
use crate::error::Result;
use crate::io::ByteSource;
use crate::process::memory;

/// Bytes at the start of the file that are kept free for either kind of header.
pub const RESERVED: u64 = 16;

/// One value is not larger than this: GTiff writes ICC profiles and XML, no pixels.
const MOST_VALUE: u64 = 1 << 30;
/// What is allocated for it, in messages.
const ARRAYS: &str = "a directory to be written";

/// Tags that say where something is; they are ours to say, or say nothing any more.
const PLACES: [u16; 8] = [
    tag::STRIP_OFFSETS,
    tag::STRIP_BYTE_COUNTS,
    tag::TILE_OFFSETS,
    tag::TILE_BYTE_COUNTS,
    330,   // SubIFDs
    34665, // Exif
    34853, // GPS
    40965, // Interoperability
];

/// Where a tile is; both zero if the file leaves it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strile {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// A directory to be.
#[derive(Debug, Clone)]
pub struct Directory {
    order: ByteOrder,
    tiled: bool,
    values: BTreeMap<u16, Value>,
    striles: Vec<Strile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    kind: u16,
    count: u64,
    bytes: Vec<u8>,
}

/// Directories, one pointing to the next, for a certain place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laid {
    /// What to write there.
    pub bytes: Vec<u8>,
    /// The header that points to the first.
    pub header: [u8; RESERVED as usize],
}

impl Directory {
    /// Takes over every tag but those that say where something is.
    pub fn take_over(source: &dyn ByteSource, header: &Header, ifd: &Ifd) -> Result<Directory> {
        Directory::take(source, header, ifd, |tag| !PLACES.contains(&tag), MOST_VALUE)
    }

    /// Takes over some tags, each of at most `limit` bytes.
    pub fn take_some(
        source: &dyn ByteSource,
        header: &Header,
        ifd: &Ifd,
        tags: &[u16],
        limit: u64,
    ) -> Result<Directory> {
        Directory::take(source, header, ifd, |tag| tags.contains(&tag), limit)
    }

    fn take(
        source: &dyn ByteSource,
        header: &Header,
        ifd: &Ifd,
        wanted: impl Fn(u16) -> bool,
        limit: u64,
    ) -> Result<Directory> {
        let mut values = BTreeMap::new();
        for entry in ifd.entries() {
            if !wanted(entry.tag) || values.contains_key(&entry.tag) {
                continue;
            }
            let bytes = ifd.value(source, entry, limit)?;
            values.insert(entry.tag, Value { kind: entry.kind, count: entry.count, bytes });
        }
        let tiled = values.contains_key(&tag::TILE_WIDTH);
        Ok(Directory { order: header.byte_order, tiled, values, striles: Vec::new() })
    }

    /// The image's height.
    pub fn set_height(&mut self, height: u32) {
        self.set(tag::IMAGE_LENGTH, kind::LONG, u64::from(height));
    }

    /// A tag of one number.
    pub fn set(&mut self, tag: u16, kind: u16, number: u64) {
        self.set_list(tag, kind, &[number]);
    }

    /// A tag of some numbers.
    pub fn set_list(&mut self, tag: u16, kind: u16, numbers: &[u64]) {
        let size = kind::size(kind).unwrap_or(1) as usize;
        let mut bytes = Vec::new();
        for &number in numbers {
            bytes.extend_from_slice(put(self.order, number, size).as_ref());
        }
        self.values.insert(tag, Value { kind, count: numbers.len() as u64, bytes });
    }

    /// The first tag, but for those of `ignored`, that only one of the two has or that has other
    /// values in the other.
    pub fn difference(&self, other: &Directory, ignored: &[u16]) -> Option<u16> {
        let tags = self.values.keys().chain(other.values.keys());
        let differs = |tag: &&u16| self.values.get(tag) != other.values.get(tag);
        tags.filter(|tag| !ignored.contains(tag)).find(differs).copied()
    }

    /// The last of a tag's SHORTs.
    pub fn last_short(&self, tag: u16) -> Option<u16> {
        let value = self.values.get(&tag).filter(|value| value.kind == kind::SHORT)?;
        value.bytes.last_chunk::<2>().map(|bytes| self.order.uint(bytes) as u16)
    }

    /// How many numbers a tag has.
    pub fn count(&self, tag: u16) -> usize {
        self.values.get(&tag).map_or(0, |value| value.count as usize)
    }

    /// Leaves a tag out.
    pub fn remove(&mut self, tag: u16) {
        self.values.remove(&tag);
    }

    /// Where the tiles are.
    pub fn set_striles(&mut self, striles: Vec<Strile>) {
        self.striles = striles;
    }

    fn place_tags(&self) -> (u16, u16) {
        match self.tiled {
            true => (tag::TILE_OFFSETS, tag::TILE_BYTE_COUNTS),
            false => (tag::STRIP_OFFSETS, tag::STRIP_BYTE_COUNTS),
        }
    }

    /// All values, those that say where tiles are included.
    fn complete(&self, big: bool) -> Result<BTreeMap<u16, Value>> {
        let (width, offset_kind) = if big { (8, kind::LONG8) } else { (4, kind::LONG) };
        let mut offsets = memory::room(self.striles.len() * width, ARRAYS)?;
        let mut counts = memory::room(self.striles.len() * 4, ARRAYS)?;
        for strile in &self.striles {
            offsets.extend_from_slice(put(self.order, strile.offset, width).as_ref());
            counts.extend_from_slice(put(self.order, u64::from(strile.len), 4).as_ref());
        }
        let count = self.striles.len() as u64;
        let (offset_tag, count_tag) = self.place_tags();
        let mut values = BTreeMap::new();
        for (&tag, value) in &self.values {
            let bytes = memory::copied(&value.bytes, ARRAYS)?;
            values.insert(tag, Value { kind: value.kind, count: value.count, bytes });
        }
        values.insert(offset_tag, Value { kind: offset_kind, count, bytes: offsets });
        values.insert(count_tag, Value { kind: kind::LONG, count, bytes: counts });
        Ok(values)
    }
}

/// Lays the directories out for the even offset `at`, as a classic TIFF if everything in them
/// can be pointed to with 32 bits and `big` is not asked for.
pub fn lay_out(directories: &[Directory], at: u64, big: bool) -> Result<Laid> {
    let far = |directory: &Directory| directory.striles.iter().any(|s| s.offset > MOST_CLASSIC);
    if !big && !directories.iter().any(far) {
        let laid = lay_out_as(directories, at, false)?;
        if at + laid.bytes.len() as u64 <= MOST_CLASSIC {
            return Ok(laid);
        }
    }
    lay_out_as(directories, at, true)
}

/// The last offset that a classic TIFF can hold.
pub const MOST_CLASSIC: u64 = u32::MAX as u64;

fn lay_out_as(directories: &[Directory], at: u64, big: bool) -> Result<Laid> {
    let order = directories.first().map_or(ByteOrder::NATIVE, |d| d.order);
    let format = Header { byte_order: order, big, first_ifd: 0 };
    let (slot, count_size) = (format.offset_size() as usize, format.count_size() as usize);
    let mut bytes = Vec::new();
    let mut first = 0;
    // Where the pointer to the next directory is; the first one's is in the header.
    let mut link: Option<usize> = None;
    for directory in directories {
        let mut entries = Vec::new();
        let values = directory.complete(big)?;
        for (tag, value) in &values {
            memory::grow(&mut entries, 4 + 2 * slot, ARRAYS)?;
            entries.extend_from_slice(put(order, u64::from(*tag), 2).as_ref());
            entries.extend_from_slice(put(order, u64::from(value.kind), 2).as_ref());
            entries.extend_from_slice(put(order, value.count, slot).as_ref());
            let filled = entries.len() + slot;
            if value.bytes.len() > slot {
                memory::grow(&mut bytes, value.bytes.len() + 8, ARRAYS)?;
                align(&mut bytes);
                entries.extend_from_slice(put(order, at + bytes.len() as u64, slot).as_ref());
                bytes.extend_from_slice(&value.bytes);
            } else {
                entries.extend_from_slice(&value.bytes);
            }
            entries.resize(filled, 0);
        }
        memory::grow(&mut bytes, 8 + count_size + entries.len() + slot, ARRAYS)?;
        align(&mut bytes);
        let here = at + bytes.len() as u64;
        match link {
            Some(link) => bytes[link..link + slot].copy_from_slice(put(order, here, slot).as_ref()),
            None => first = here,
        }
        bytes.extend_from_slice(put(order, values.len() as u64, count_size).as_ref());
        bytes.extend_from_slice(&entries);
        link = Some(bytes.len());
        bytes.extend_from_slice(put(order, 0, slot).as_ref());
    }
    Ok(Laid { bytes, header: header(&format, first) })
}

fn header(format: &Header, first: u64) -> [u8; RESERVED as usize] {
    let order = format.byte_order;
    let mut bytes = if order == ByteOrder::Little { b"II".to_vec() } else { b"MM".to_vec() };
    bytes.extend(put(order, if format.big { 43 } else { 42 }, 2).as_ref());
    if format.big {
        bytes.extend(put(order, 8, 2).as_ref());
        bytes.extend(put(order, 0, 2).as_ref());
    }
    bytes.extend(put(order, first, format.offset_size() as usize).as_ref());
    bytes.resize(RESERVED as usize, 0);
    bytes.try_into().unwrap_or_default()
}

/// Values begin at multiples of eight, so that a reader may map them.
fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

/// The last `width` bytes of a number.
struct Number {
    bytes: [u8; 8],
    width: usize,
}

impl AsRef<[u8]> for Number {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.width]
    }
}

/// The last `width` bytes of `number`, in the file's order.
fn put(order: ByteOrder, number: u64, width: usize) -> Number {
    let bytes = match order {
        ByteOrder::Little => number.to_le_bytes(),
        ByteOrder::Big => (number << (64 - 8 * width)).to_be_bytes(),
    };
    Number { bytes, width }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, VARIANTS};
    use super::super::{Layout, Striles};
    use super::*;
    use crate::io::Memory;

    /// A file of 16 reserved bytes, some data, and the directories.
    fn build(directories: &[Directory], at: usize, big: bool) -> Memory {
        let laid = lay_out(directories, at as u64, big).unwrap();
        let mut file = laid.header.to_vec();
        file.resize(at, 0xEE);
        file.extend_from_slice(&laid.bytes);
        Memory(file)
    }

    #[test]
    fn tags_are_taken_over_and_tiles_found() {
        for variant in VARIANTS {
            let (file, at) = Fixture::new(variant)
                .tag(tag::IMAGE_WIDTH, kind::SHORT, &[100])
                .tag(tag::IMAGE_LENGTH, kind::SHORT, &[16])
                .tag(tag::BITS_PER_SAMPLE, kind::SHORT, &[8, 8, 8])
                .tag(tag::SAMPLES_PER_PIXEL, kind::SHORT, &[3])
                .tag(tag::TILE_WIDTH, kind::SHORT, &[64])
                .tag(tag::TILE_LENGTH, kind::SHORT, &[16])
                .tag(tag::TILE_OFFSETS, kind::LONG, &[7, 7])
                .tag(tag::TILE_BYTE_COUNTS, kind::LONG, &[7, 7])
                .build();
            let header = Header::read(&file).unwrap();
            let ifd = Ifd::read(&file, &header, at).unwrap();
            let mut directory = Directory::take_over(&file, &header, &ifd).unwrap();
            directory.set_height(33);
            let at = |i: u64| Strile { offset: 1000 + i * 10, len: 5 + i as u32 };
            directory.set_striles((0..6).map(at).collect());
            for big in [false, true] {
                let out = build(&[directory.clone(), directory.clone()], 2000, big);
                let header = Header::read(&out).unwrap();
                assert_eq!(header.big, big);
                let first = Ifd::read(&out, &header, header.first_ifd).unwrap();
                let second = Ifd::read(&out, &header, first.next).unwrap();
                assert_eq!(second.next, 0);
                for ifd in [first, second] {
                    let layout = Layout::new(&header, &ifd).unwrap();
                    assert_eq!((layout.width, layout.height), (100, 33));
                    assert_eq!((layout.samples_per_pixel, layout.bits_per_sample), (3, 8));
                    let striles = Striles::new(&header, &ifd, &layout).unwrap();
                    for i in 0..6 {
                        let range = striles.range(&out, i).unwrap().unwrap();
                        assert_eq!((range.offset, range.len), (1000 + i * 10, 5 + i));
                    }
                }
            }
        }
    }

    #[test]
    fn far_tiles_make_it_big() {
        let (file, at) = Fixture::new(VARIANTS[0]).tag(tag::IMAGE_WIDTH, kind::SHORT, &[9]).build();
        let header = Header::read(&file).unwrap();
        let ifd = Ifd::read(&file, &header, at).unwrap();
        let mut directory = Directory::take_over(&file, &header, &ifd).unwrap();
        for (offset, big) in [(MOST_CLASSIC, false), (MOST_CLASSIC + 1, true)] {
            directory.set_striles(vec![Strile { offset, len: 1 }]);
            let laid = lay_out(std::slice::from_ref(&directory), 16, false).unwrap();
            assert_eq!(laid.header[2] == 43, big, "{offset}");
        }
        let laid = lay_out(std::slice::from_ref(&directory), MOST_CLASSIC - 20, false).unwrap();
        assert_eq!(laid.header[2], 43);
    }
}
