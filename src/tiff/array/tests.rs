use super::*;
use crate::io::Memory;

/// Keeps what is read through it.
struct Reads(Memory, Mutex<Vec<(u64, u64)>>);

impl ByteSource for Reads {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.lock().unwrap().push((offset, buf.len() as u64));
        self.0.read_at(offset, buf)
    }
}

const TILES: u64 = 3000;

/// An array of 3 i + 1 at `base`.
fn array(base: u64, width: u64) -> (Array, Reads) {
    let mut bytes = vec![0xEE; base as usize];
    for i in 0..TILES {
        bytes.extend(&(3 * i + 1).to_le_bytes()[..width as usize]);
    }
    let array = Array::at(Place::At(base), width, ByteOrder::Little, TILES);
    (array, Reads(Memory(bytes), Mutex::default()))
}

#[test]
fn no_page_reaches_into_another_block_of_the_file() {
    for width in [2, 4, 8] {
        let block = PAGE * width;
        for base in (0..12).chain(block - 9..block + 9) {
            let (array, file) = array(base, width);
            for index in (0..TILES).rev() {
                let found = array.get(&file, &[index], file.len()).unwrap();
                assert_eq!(found, [3 * index + 1], "{width} {base}");
            }
            let reads = file.1.into_inner().unwrap();
            for (offset, len) in &reads {
                let one = offset / block == (offset + len - 1) / block;
                assert!(one || *len == width, "{width} {base}: {len} bytes at {offset}");
            }
            let entries: u64 = reads.iter().map(|(_, len)| len / width).sum();
            assert_eq!(entries, TILES, "read once");
        }
    }
}

#[test]
fn neighbours_are_one_read_wherever_the_array_is() {
    for (width, base) in [(4, 8), (4, 10), (8, 12), (8, 4096), (2, 1023)] {
        let (array, file) = array(base, width);
        let every: Vec<u64> = (0..TILES).step_by(7).collect();
        let expected: Vec<u64> = every.iter().map(|i| 3 * i + 1).collect();
        assert_eq!(array.get(&file, &every, file.len()).unwrap(), expected);
        assert_eq!(file.1.into_inner().unwrap().len(), 1, "{width} {base}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let tiles = 1_200_000;
    let file = Memory(vec![1; 2 * tiles as usize + 1]);
    for base in [0, 1] {
        let array = Array::at(Place::At(base), 2, ByteOrder::Big, tiles);
        let all: Vec<u64> = (0..tiles).collect();
        assert!(array.get(&file, &all, file.len()).unwrap().iter().all(|&n| n == 0x101));
        let cache = array.cache();
        assert_eq!((cache.pages.len(), cache.age.len()), (MAX_KEPT, MAX_KEPT));
    }
}
