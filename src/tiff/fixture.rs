//! Tiny TIFFs built in memory for the tests of this room, and random numbers for hostile ones.

use super::header::{ByteOrder, Header};
use super::tag::{self, kind};
use crate::error::Result;
use crate::io::{ByteSource, Memory};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory to be: entries in the order given, nothing sorted, nothing checked.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) byte_order: ByteOrder,
    pub(crate) big: bool,
    pub(crate) entries: Vec<(u16, u16, Vec<u64>)>,
    pub(crate) next: u64,
    /// Bytes after the directory and its values, where pixels would be.
    pub(crate) tail: usize,
}

pub(crate) const VARIANTS: [(ByteOrder, bool); 4] = [
    (ByteOrder::Little, false),
    (ByteOrder::Big, false),
    (ByteOrder::Little, true),
    (ByteOrder::Big, true),
];

impl Fixture {
    pub(crate) fn new((byte_order, big): (ByteOrder, bool)) -> Fixture {
        Fixture { byte_order, big, entries: Vec::new(), next: 0, tail: 0 }
    }

    pub(crate) fn tag(mut self, tag: u16, kind: u16, values: &[u64]) -> Fixture {
        self.entries.push((tag, kind, values.to_vec()));
        self
    }

    /// Replaces a tag that is there already.
    pub(crate) fn with(mut self, tag: u16, kind: u16, values: &[u64]) -> Fixture {
        self.entries.retain(|entry| entry.0 != tag);
        self.tag(tag, kind, values)
    }

    pub(crate) fn without(mut self, tag: u16) -> Fixture {
        self.entries.retain(|entry| entry.0 != tag);
        self
    }

    pub(crate) fn tail(mut self, bytes: usize) -> Fixture {
        self.tail = bytes;
        self
    }

    /// 70 x 50 pixels of 3 x 16 bits in tiles of 32 x 16, DEFLATE, predictor 2.
    pub(crate) fn tiled(variant: (ByteOrder, bool)) -> Fixture {
        let offsets: Vec<u64> = (0..12).map(|i| 1000 + 100 * i).collect();
        Fixture::new(variant)
            .tag(tag::IMAGE_WIDTH, kind::SHORT, &[70])
            .tag(tag::IMAGE_LENGTH, kind::LONG, &[50])
            .tag(tag::BITS_PER_SAMPLE, kind::SHORT, &[16, 16, 16])
            .tag(tag::COMPRESSION, kind::SHORT, &[8])
            .tag(tag::PHOTOMETRIC, kind::SHORT, &[2])
            .tag(tag::SAMPLES_PER_PIXEL, kind::SHORT, &[3])
            .tag(tag::PLANAR_CONFIGURATION, kind::SHORT, &[1])
            .tag(tag::PREDICTOR, kind::SHORT, &[2])
            .tag(tag::TILE_WIDTH, kind::SHORT, &[32])
            .tag(tag::TILE_LENGTH, kind::SHORT, &[16])
            .tag(tag::TILE_OFFSETS, kind::LONG, &offsets)
            .tag(tag::TILE_BYTE_COUNTS, kind::SHORT, &[100; 12])
            .tag(tag::SAMPLE_FORMAT, kind::SHORT, &[1, 1, 1])
            .tail(4000)
    }

    /// 10 x 7 pixels of 8 bits, uncompressed, in strips of `rows`.
    pub(crate) fn strips(variant: (ByteOrder, bool), rows: u64) -> Fixture {
        let count = 7_u64.div_ceil(rows);
        let offsets: Vec<u64> = (0..count).map(|i| 600 + i * rows * 10).collect();
        let counts: Vec<u64> = (0..count).map(|i| 10 * rows.min(7 - i * rows)).collect();
        Fixture::new(variant)
            .tag(tag::IMAGE_WIDTH, kind::SHORT, &[10])
            .tag(tag::IMAGE_LENGTH, kind::SHORT, &[7])
            .tag(tag::BITS_PER_SAMPLE, kind::SHORT, &[8])
            .tag(tag::STRIP_OFFSETS, kind::LONG, &offsets)
            .tag(tag::ROWS_PER_STRIP, kind::SHORT, &[rows])
            .tag(tag::STRIP_BYTE_COUNTS, kind::LONG, &counts)
            .tail(1000)
    }

    /// The file, and where its directory is.
    pub(crate) fn build(&self) -> (Memory, u64) {
        let mut file = self.header();
        let at = file.len() as u64;
        let shape = Header { byte_order: self.byte_order, big: self.big, first_ifd: 0 };
        let (slot, count) = (shape.offset_size(), self.entries.len() as u64);
        let mut heap = at + shape.count_size() + count * shape.entry_size() + slot;
        let mut values = Vec::new();
        self.put(&mut file, count, shape.count_size());
        for (tag, kind, list) in &self.entries {
            let mut value = Vec::new();
            let size = kind::size(*kind).unwrap_or(1);
            list.iter().for_each(|number| self.put(&mut value, *number, size));
            self.put(&mut file, u64::from(*tag), 2);
            self.put(&mut file, u64::from(*kind), 2);
            self.put(&mut file, list.len() as u64, slot);
            if value.len() as u64 <= slot {
                value.resize(slot as usize, 0);
                file.extend(value);
            } else {
                self.put(&mut file, heap, slot);
                heap += value.len() as u64;
                values.extend(value);
            }
        }
        self.put(&mut file, self.next, slot);
        file.extend(values);
        file.resize(file.len() + self.tail, 0xA5);
        (Memory(file), at)
    }

    fn header(&self) -> Vec<u8> {
        let mut file = match self.byte_order {
            ByteOrder::Little => b"II".to_vec(),
            ByteOrder::Big => b"MM".to_vec(),
        };
        self.put(&mut file, if self.big { 43 } else { 42 }, 2);
        if self.big {
            self.put(&mut file, 8, 2);
            self.put(&mut file, 0, 2);
            self.put(&mut file, 16, 8);
        } else {
            self.put(&mut file, 8, 4);
        }
        file
    }

    fn put(&self, out: &mut Vec<u8>, number: u64, size: u64) {
        let size = size as usize;
        match self.byte_order {
            ByteOrder::Little => out.extend(&number.to_le_bytes()[..size]),
            ByteOrder::Big => out.extend(&number.to_be_bytes()[8 - size..]),
        }
    }
}

/// Counts what is read through it.
pub(crate) struct Counted<'a> {
    pub(crate) inner: &'a Memory,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(inner: &'a Memory) -> Counted<'a> {
        Counted { inner, requests: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Requests and bytes since the last call.
    pub(crate) fn take(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

impl ByteSource for Counted<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let bytes: usize = ranges.iter().map(|range| range.1.len()).sum();
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.inner.read_ranges(ranges)
    }
}

/// xorshift64*: the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
