//! One directory: its entries as they are stored, and getters for whole numbers.
//!
//! Refuses to know what a tag means, to follow [`Ifd::next`], and to load anything but the small
//! values in [`tag::LAYOUT`]. Invariant: nothing is allocated for bytes that the file does not
//! have.
//!
//! As libtiff does, it takes unsorted tags, the first of two equal ones, any integer type, and a
//! file that ends before the offset of the next directory.

use super::header::{ByteOrder, Header};
use super::tag::{self, kind};
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// libtiff takes a directory with more entries for a wrong offset.
const MAX_ENTRIES: u64 = 4096;
/// A value with more bytes is not loaded with the directory: one LONG8 for each sample fits.
const MAX_LOADED: u64 = u16::MAX as u64 * 8;
/// What is allocated, in messages.
const VALUES: &str = "the tags of a directory";

/// Where the bytes of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the entry itself, from the first byte on; in a classic file the last four are unused.
    Inline([u8; 8]),
    /// At an offset in the file; not checked.
    At(u64),
}

/// A tag, the way it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which tag.
    pub tag: u16,
    /// The number of its field type, maybe one that nobody knows.
    pub kind: u16,
    /// How many values; not checked.
    pub count: u64,
    /// Where they are.
    pub place: Place,
    /// They themselves, for a tag that describes storage and whose value did not fit inline.
    loaded: Option<Box<[u8]>>,
}

impl Entry {
    /// Bytes of all values, or `None` where the type is unknown or the number too large to exist.
    pub fn byte_len(&self) -> Option<u64> {
        kind::size(self.kind)?.checked_mul(self.count)
    }

    fn parse(bytes: &[u8], header: &Header) -> Entry {
        let order = header.byte_order;
        let (numbers, slot) = bytes.split_at(bytes.len() - header.offset_size() as usize);
        let mut entry = Entry {
            tag: order.uint(&numbers[..2]) as u16,
            kind: order.uint(&numbers[2..4]) as u16,
            count: order.uint(&numbers[4..]),
            place: Place::At(order.uint(slot)),
            loaded: None,
        };
        if entry.byte_len().is_some_and(|len| len <= slot.len() as u64) {
            let mut value = [0; 8];
            value[..slot.len()].copy_from_slice(slot);
            entry.place = Place::Inline(value);
        }
        entry
    }

    /// The values' bytes if they are at hand.
    fn bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Inline(value) => value.get(..self.byte_len()? as usize),
            Place::At(_) => self.loaded.as_deref(),
        }
    }
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ifd {
    /// Where it is in the file.
    pub offset: u64,
    /// Where the next one is said to be, or zero; not checked.
    pub next: u64,
    byte_order: ByteOrder,
    entries: Vec<Entry>,
}

impl Ifd {
    /// Reads the directory at `offset`, and the values in [`tag::LAYOUT`].
    pub fn read(source: &dyn ByteSource, header: &Header, offset: u64) -> Result<Ifd> {
        let mut ifd = Ifd::read_entries(source, header, offset)?;
        ifd.load(source, source.len())?;
        Ok(ifd)
    }

    /// Reads the directory at `offset`, and values only where they are inline.
    pub fn read_entries(source: &dyn ByteSource, header: &Header, offset: u64) -> Result<Ifd> {
        let (order, file_len) = (header.byte_order, source.len());
        let mut count = [0; 8];
        let count = &mut count[..header.count_size() as usize];
        let start = within(offset, header.count_size(), file_len)
            .ok_or_else(|| outside("the directory", offset, header.count_size(), file_len))?;
        source.read_at(offset, count)?;
        let count = order.uint(count);
        if count == 0 || count > MAX_ENTRIES {
            return Err(Error::corrupt(format!("a directory with {count} entries"), offset));
        }
        let len = count * header.entry_size();
        let end = within(start, len, file_len)
            .ok_or_else(|| outside("the directory", offset, len, file_len))?;
        let with_next = len + header.offset_size().min(file_len - end);
        let mut bytes = memory::bytes(with_next as usize, VALUES)?;
        source.read_at(start, &mut bytes)?;
        let (entries, next) = bytes.split_at(len as usize);
        let whole = next.len() as u64 == header.offset_size();
        let entries = entries.chunks_exact(header.entry_size() as usize);
        let entries = entries.map(|bytes| Entry::parse(bytes, header));
        Ok(Ifd {
            offset,
            next: if whole { order.uint(next) } else { 0 },
            byte_order: order,
            entries: memory::collect(entries, VALUES)?,
        })
    }

    /// Fetches what describes storage and is not inline, all in one request.
    fn load(&mut self, source: &dyn ByteSource, file_len: u64) -> Result<()> {
        let mut wanted = Vec::new();
        for tag in tag::LAYOUT {
            let Some(index) = self.entries.iter().position(|entry| entry.tag == tag) else {
                continue;
            };
            let entry = &self.entries[index];
            let Place::At(offset) = entry.place else {
                continue;
            };
            let Some(len) = entry.byte_len().filter(|len| *len <= MAX_LOADED) else {
                continue;
            };
            within(offset, len, file_len).ok_or_else(|| {
                outside(&format!("the value of tag {tag}"), offset, len, file_len)
            })?;
            wanted.push((index, offset, memory::bytes(len as usize, VALUES)?));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut ranges: Vec<(u64, &mut [u8])> =
            wanted.iter_mut().map(|(_, offset, bytes)| (*offset, bytes.as_mut_slice())).collect();
        source.read_ranges(&mut ranges)?;
        for (index, _, bytes) in wanted {
            self.entries[index].loaded = Some(bytes.into());
        }
        Ok(())
    }

    /// All entries in the file's order, later ones of the same tag included.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first entry of a tag.
    pub fn find(&self, tag: u16) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }

    /// The one number of a tag, or `None` where it is absent.
    pub fn scalar(&self, tag: u16) -> Result<Option<u64>> {
        match self.find(tag) {
            Some(entry) if entry.count == 1 => self.numbers(entry, 1).map(|n| n.first().copied()),
            Some(entry) => Err(self.odd(entry, "more or less than one value")),
            None => Ok(None),
        }
    }

    /// The one number of a tag if it fits into 32 bits.
    pub fn u32(&self, tag: u16) -> Result<Option<u32>> {
        self.narrow(tag, self.scalar(tag)?)
    }

    /// The one number of a tag if it fits into 16 bits.
    pub fn u16(&self, tag: u16) -> Result<Option<u16>> {
        self.narrow(tag, self.scalar(tag)?)
    }

    /// The number that all samples share: stored once, or once for each sample.
    pub fn shared_u16(&self, tag: u16, samples: u16) -> Result<Option<u16>> {
        let Some(entry) = self.find(tag) else {
            return Ok(None);
        };
        let count = if entry.count == 1 { 1 } else { samples };
        let numbers = self.numbers(entry, count)?;
        match numbers.split_first() {
            Some((first, rest)) if rest.iter().all(|number| number == first) => {
                self.narrow(tag, Some(*first))
            }
            _ => Err(self.odd(entry, "values that differ from sample to sample")),
        }
    }

    /// The first `count` numbers of a tag that is at hand, or `None` where it is absent.
    pub fn numbers_of(&self, tag: u16, count: u16) -> Result<Option<Vec<u64>>> {
        self.find(tag).map(|entry| self.numbers(entry, count)).transpose()
    }

    /// The bytes of any value as they are in the file, at most `limit` of them.
    pub fn value(&self, source: &dyn ByteSource, entry: &Entry, limit: u64) -> Result<Vec<u8>> {
        if let Some(bytes) = entry.bytes() {
            return memory::copied(bytes, VALUES);
        }
        let Place::At(offset) = entry.place else {
            return Err(self.odd(entry, "no value"));
        };
        let len = entry
            .byte_len()
            .filter(|len| *len <= limit)
            .ok_or_else(|| self.odd(entry, "an unknown type or too many values"))?;
        let file_len = source.len();
        within(offset, len, file_len).ok_or_else(|| {
            outside(&format!("the value of tag {}", entry.tag), offset, len, file_len)
        })?;
        let mut bytes = memory::bytes(len as usize, VALUES)?;
        source.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The quotients of a tag's RATIONALs, at most `limit` of them; `None` where it is absent.
    pub fn rationals(
        &self,
        source: &dyn ByteSource,
        tag: u16,
        limit: u64,
    ) -> Result<Option<Vec<f64>>> {
        let Some(entry) = self.find(tag) else { return Ok(None) };
        if entry.kind != kind::RATIONAL {
            return Err(self.odd(entry, "a type that is no RATIONAL"));
        }
        let bytes = self.value(source, entry, 8 * limit)?;
        let number = |bytes: &[u8]| self.byte_order.uint(bytes) as f64;
        Ok(Some(bytes.chunks_exact(8).map(|r| number(&r[..4]) / number(&r[4..])).collect()))
    }

    /// The first `count` numbers of a value that is at hand.
    fn numbers(&self, entry: &Entry, count: u16) -> Result<Vec<u64>> {
        let signed = kind::integer(entry.kind)
            .ok_or_else(|| self.odd(entry, "a type that is no whole number"))?;
        let size = kind::size(entry.kind).unwrap_or(1) as usize;
        let bytes = entry
            .bytes()
            .and_then(|bytes| bytes.get(..usize::from(count) * size))
            .ok_or_else(|| self.odd(entry, "too few or too many values"))?;
        let numbers = bytes.chunks_exact(size).map(|bytes| self.byte_order.uint(bytes));
        let numbers = memory::collect(numbers, VALUES)?;
        if signed && numbers.iter().any(|number| number >> (size * 8 - 1) != 0) {
            return Err(self.odd(entry, "a negative value"));
        }
        Ok(numbers)
    }

    fn narrow<T: TryFrom<u64>>(&self, tag: u16, number: Option<u64>) -> Result<Option<T>> {
        let narrow = |number| {
            T::try_from(number)
                .map_err(|_| Error::Unsupported(format!("tag {tag} with the value {number}")))
        };
        number.map(narrow).transpose()
    }

    fn odd(&self, entry: &Entry, what: &str) -> Error {
        let Entry { tag, kind, count, .. } = entry;
        Error::Unsupported(format!("tag {tag} (type {kind}, count {count}) with {what}"))
    }
}

/// Where a range ends if it lies within the file.
pub(super) fn within(offset: u64, len: u64, file_len: u64) -> Option<u64> {
    offset.checked_add(len).filter(|end| *end <= file_len)
}

/// The error for a range that does not.
pub(super) fn outside(what: &str, offset: u64, len: u64, file_len: u64) -> Error {
    Error::corrupt(
        format!("{what} of {len} bytes at {offset} is not within the file's {file_len} bytes"),
        offset,
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Counted, Fixture, Random, VARIANTS};
    use super::*;
    use crate::io::Memory;

    fn read(fixture: &Fixture) -> Result<Ifd> {
        let (file, at) = fixture.build();
        Ifd::read(&file, &Header::read(&file)?, at)
    }

    #[test]
    fn every_integer_type_inline_and_not() {
        use kind::*;
        for variant in VARIANTS {
            for kind in [BYTE, SBYTE, SHORT, SSHORT, LONG, SLONG, LONG8, SLONG8] {
                let fixture = Fixture::new(variant).tag(tag::BITS_PER_SAMPLE, kind, &[77; 9]).tag(
                    tag::IMAGE_WIDTH,
                    kind,
                    &[101],
                );
                let ifd = read(&fixture).unwrap();
                assert_eq!(ifd.u32(tag::IMAGE_WIDTH).unwrap(), Some(101), "{kind}");
                assert_eq!(ifd.shared_u16(tag::BITS_PER_SAMPLE, 9).unwrap(), Some(77));
                assert_eq!(ifd.shared_u16(tag::BITS_PER_SAMPLE, 5).unwrap(), Some(77));
                assert_eq!(ifd.scalar(tag::IMAGE_LENGTH).unwrap(), None);
            }
        }
    }

    #[test]
    fn odd_values_are_unsupported() {
        let fixture = Fixture::new(VARIANTS[0])
            .tag(tag::IMAGE_WIDTH, kind::SLONG, &[u64::from(u32::MAX)])
            .tag(tag::IMAGE_LENGTH, kind::FLOAT, &[1])
            .tag(tag::COMPRESSION, kind::LONG, &[65_536])
            .tag(tag::PREDICTOR, kind::SHORT, &[1, 1])
            .tag(tag::FILL_ORDER, kind::SHORT, &[])
            .tag(tag::TILE_WIDTH, 99, &[1])
            .tag(tag::ROWS_PER_STRIP, kind::LONG8, &[1 << 40])
            .tag(tag::BITS_PER_SAMPLE, kind::SHORT, &[8, 8, 16])
            .tag(tag::SAMPLE_FORMAT, kind::SHORT, &[1, 1]);
        let ifd = read(&fixture).unwrap();
        for tag in [256, 257, 317, 266, 322] {
            assert!(matches!(ifd.scalar(tag), Err(Error::Unsupported(_))), "{tag}");
        }
        assert!(matches!(ifd.u16(tag::COMPRESSION), Err(Error::Unsupported(_))));
        assert!(matches!(ifd.u32(tag::ROWS_PER_STRIP), Err(Error::Unsupported(_))));
        assert_eq!(ifd.scalar(tag::ROWS_PER_STRIP).unwrap(), Some(1 << 40));
        assert_eq!(ifd.shared_u16(tag::BITS_PER_SAMPLE, 2).unwrap(), Some(8));
        for (tag, samples) in [(tag::BITS_PER_SAMPLE, 3), (tag::SAMPLE_FORMAT, 3)] {
            assert!(matches!(ifd.shared_u16(tag, samples), Err(Error::Unsupported(_))), "{tag}");
        }
    }

    #[test]
    fn unsorted_tags_and_the_first_of_two() {
        let fixture = Fixture::new(VARIANTS[1])
            .tag(tag::PREDICTOR, kind::SHORT, &[2])
            .tag(tag::IMAGE_WIDTH, kind::SHORT, &[10])
            .tag(tag::PREDICTOR, kind::SHORT, &[3]);
        let ifd = read(&fixture).unwrap();
        assert_eq!(ifd.u16(tag::PREDICTOR).unwrap(), Some(2));
        assert_eq!(ifd.u16(tag::IMAGE_WIDTH).unwrap(), Some(10));
        assert_eq!(ifd.entries().len(), 3);
    }

    #[test]
    fn next_directory_and_a_file_that_ends_before_it() {
        for variant in VARIANTS {
            let mut fixture = Fixture::new(variant).tag(tag::IMAGE_WIDTH, kind::SHORT, &[10]);
            fixture.next = 0x1234;
            let (file, at) = fixture.build();
            let header = Header::read(&file).unwrap();
            assert_eq!(Ifd::read(&file, &header, at).unwrap().next, 0x1234);
            let cut = Memory(file.0[..file.0.len() - 1].to_vec());
            let ifd = Ifd::read(&cut, &header, at).unwrap();
            assert_eq!((ifd.next, ifd.u16(tag::IMAGE_WIDTH).unwrap()), (0, Some(10)));
            let cut = Memory(file.0[..file.0.len() - header.offset_size() as usize - 1].to_vec());
            assert!(matches!(Ifd::read(&cut, &header, at), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn directories_that_cannot_be() {
        for variant in VARIANTS {
            let (file, at) = Fixture::tiled(variant).build();
            let header = Header::read(&file).unwrap();
            for offset in [file.len() - 1, file.len(), u64::MAX] {
                assert!(matches!(Ifd::read(&file, &header, offset), Err(Error::Corrupt { .. })));
            }
            let mut many = file.clone();
            many.0[at as usize..][..header.count_size() as usize].fill(0x7F);
            assert!(matches!(Ifd::read(&many, &header, at), Err(Error::Corrupt { .. })));
            many.0[at as usize..][..header.count_size() as usize].fill(0);
            assert!(matches!(Ifd::read(&many, &header, at), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn raw_values_keep_to_file_and_limit() {
        let (file, at) = Fixture::tiled(VARIANTS[3]).build();
        let ifd = Ifd::read(&file, &Header::read(&file).unwrap(), at).unwrap();
        let mut entry = ifd.find(tag::TILE_OFFSETS).unwrap().clone();
        let value = ifd.value(&file, &entry, 48).unwrap();
        assert_eq!((value.len(), &value[..4]), (48, &[0, 0, 3, 232][..]));
        assert!(matches!(ifd.value(&file, &entry, 47), Err(Error::Unsupported(_))));
        entry.count = u64::MAX / 8;
        assert!(matches!(ifd.value(&file, &entry, u64::MAX), Err(Error::Corrupt { .. })));
        let inline = ifd.find(tag::TILE_WIDTH).unwrap();
        assert_eq!(ifd.value(&file, inline, 0).unwrap(), [0, 32]);
    }

    #[test]
    fn a_value_of_a_megabyte_is_not_loaded() {
        let samples = vec![1; 1 << 20];
        let fixture = Fixture::new(VARIANTS[0]).tag(tag::SAMPLE_FORMAT, kind::BYTE, &samples);
        let (file, at) = fixture.build();
        let source = Counted::new(&file);
        let ifd = Ifd::read(&source, &Header::read(&file).unwrap(), at).unwrap();
        assert_eq!(source.take().1, 2 + 12 + 4);
        let shared = ifd.shared_u16(tag::SAMPLE_FORMAT, 3);
        assert!(matches!(shared, Err(Error::Unsupported(_))));
    }

    #[test]
    fn hostile_bytes_never_panic_nor_read_more_than_the_file() {
        for seed in 1..3000_u64 {
            let mut random = Random(seed);
            let (mut file, at) = Fixture::tiled(VARIANTS[random.below(4)]).tail(0).build();
            for _ in 0..random.below(12) {
                let index = random.below(file.0.len() - at as usize) + at as usize;
                file.0[index] = [0, 0xFF, random.next() as u8][random.below(3)];
            }
            file.0.truncate(file.0.len().saturating_sub(random.below(3) * random.below(200)));
            let source = Counted::new(&file);
            let Ok(header) = Header::read(&source) else {
                continue;
            };
            let _ = Ifd::read(&source, &header, at);
            let limit = (tag::LAYOUT.len() as u64 + 2) * file.len();
            let (_, bytes) = source.take();
            assert!(bytes <= limit, "seed {seed}: {bytes} bytes read of {}", file.len());
        }
    }
}
