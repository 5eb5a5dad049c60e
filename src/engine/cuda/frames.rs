//! What must be known of a compressed tile before it is sent to the device: nvCOMP decodes bare
//! Deflate and ZSTD frames that say their size, and calls corrupt input undefined.
//!
//! Everything here looks at bytes of a file, and refuses rather than guesses: what is refused is
//! decoded on the CPU. Absent: the device.
#![forbid(unsafe_code)]

/// Bytes around the Deflate stream inside a zlib stream.
pub(super) const ZLIB_HEADER: usize = 2;
/// Bytes of the Adler-32 after it.
pub(super) const ZLIB_TRAILER: usize = 4;

const ZSTD_MAGIC: [u8; 4] = 0xFD2F_B528u32.to_le_bytes();
/// The largest block that the format allows.
const ZSTD_BLOCK: usize = 128 << 10;

/// The Adler-32 that a zlib stream ends in, if its header is one that the device may skip:
/// method 8, no dictionary, check bits right.
pub(super) fn zlib_adler(tile: &[u8]) -> Option<u32> {
    let (&[method, flags, ..], Some(&trailer)) = (tile, tile.last_chunk::<ZLIB_TRAILER>()) else {
        return None;
    };
    let header = u16::from_be_bytes([method, flags]);
    let known = method & 0x0F == 8 && flags & 0x20 == 0 && header % 31 == 0;
    let long_enough = tile.len() > ZLIB_HEADER + ZLIB_TRAILER;
    (known && long_enough).then_some(u32::from_be_bytes(trailer))
}

/// What is to be done with a ZSTD tile before it goes to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// It says its content size: send it as it is.
    Whole,
    /// These bytes take the place of its header, which is as long.
    Patched([u8; ZSTD_PATCH]),
}

/// Magic, descriptor, window: a header without content size. With the size in place of the window
/// it is three bytes longer, which the staging slot leaves room for.
pub(super) const ZSTD_PLAIN: usize = 6;
/// Magic, descriptor, content size of four bytes.
pub(super) const ZSTD_PATCH: usize = 9;
/// How much longer a patched tile is.
pub(super) const ZSTD_GROWTH: usize = ZSTD_PATCH - ZSTD_PLAIN;

/// Follows the frame's chain of blocks to its end. `None` if anything does not add up, if there
/// is more than one frame, a dictionary, or another size than `bytes`.
pub(super) fn zstd_frame(tile: &[u8], bytes: usize) -> Option<Frame> {
    let descriptor = *tile.get(4).filter(|_| tile.starts_with(&ZSTD_MAGIC))?;
    let (single, checksum) = (descriptor & 0x20 != 0, descriptor & 0x04 != 0);
    // A reserved bit, or a dictionary.
    if descriptor & 0x0B != 0 {
        return None;
    }
    let size_bytes = match (descriptor >> 6, single) {
        (0, false) => 0,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    let mut at = 5 + usize::from(!single);
    let field = tile.get(at..at + size_bytes)?;
    let value = field.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    let stated = value + if size_bytes == 2 { 256 } else { 0 };
    if size_bytes > 0 && stated != bytes as u64 {
        return None;
    }
    at += size_bytes;
    let mut most = 0usize;
    loop {
        let header = tile.get(at..at + 3)?;
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let (last, kind, size) = (header & 1 != 0, header >> 1 & 3, (header >> 3) as usize);
        if size > ZSTD_BLOCK || kind == 3 {
            return None;
        }
        at += 3 + if kind == 1 { 1 } else { size };
        most = most.saturating_add(if kind == 2 { ZSTD_BLOCK } else { size });
        if last {
            break;
        }
    }
    let end = at + if checksum { 4 } else { 0 };
    if end != tile.len() || most < bytes {
        return None;
    }
    if size_bytes > 0 {
        return Some(Frame::Whole);
    }
    if checksum {
        return None;
    }
    // One segment, content size of four bytes: no window to state.
    let mut header = [0; ZSTD_PATCH];
    header[..4].copy_from_slice(&ZSTD_MAGIC);
    header[4] = 0xA0;
    header[5..].copy_from_slice(&u32::try_from(bytes).ok()?.to_le_bytes());
    Some(Frame::Patched(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zlib_headers() {
        let good = [0x78, 0x9C, 3, 0, 0, 0, 0, 1];
        assert_eq!(zlib_adler(&good), Some(1));
        for (at, byte) in [(0, 0x79), (0, 0x77), (1, 0x9D), (1, 0xBC)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(zlib_adler(&bad), None, "{bad:x?}");
        }
        assert_eq!(zlib_adler(&good[..6]), None);
        assert_eq!(zlib_adler(&[]), None);
    }

    fn packed(data: &[u8], content_size: bool) -> Vec<u8> {
        let mut coder = zstd::bulk::Compressor::new(3).unwrap();
        coder.include_contentsize(content_size).unwrap();
        coder.compress(data).unwrap()
    }

    #[test]
    fn zstd_frames_with_their_size_go_as_they_are() {
        for len in [1usize, 255, 256, 257, 65_792, 300_000] {
            let data: Vec<u8> = (0..len).map(|i| ((i * i) >> 7) as u8).collect();
            let frame = packed(&data, true);
            assert_eq!(zstd_frame(&frame, len), Some(Frame::Whole), "{len}");
            assert_eq!(zstd_frame(&frame, len + 1), None);
        }
    }

    #[test]
    fn zstd_frames_without_it_are_patched_and_decode_the_same() {
        for len in [10usize, 70_000, 300_000] {
            let data: Vec<u8> = (0..len).map(|i| ((i * 31) >> 4) as u8).collect();
            let frame = streamed(&data);
            let Some(Frame::Patched(header)) = zstd_frame(&frame, len) else { panic!("{len}") };
            let patched = [&header[..], &frame[ZSTD_PLAIN..]].concat();
            assert_eq!(zstd::bulk::decompress(&patched, len).unwrap(), data);
            assert_eq!(patched.len(), frame.len() + ZSTD_GROWTH);
        }
    }

    /// As libtiff writes it: a window, no content size.
    fn streamed(data: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut coder = zstd::Encoder::new(Vec::new(), 3).unwrap();
        coder.include_contentsize(false).unwrap();
        for part in data.chunks(1000) {
            coder.write_all(part).unwrap();
        }
        coder.finish().unwrap()
    }

    #[test]
    fn anything_that_does_not_add_up_is_refused() {
        let data: Vec<u8> = (0..5000usize).map(|i| (i / 3) as u8).collect();
        let frame = streamed(&data);
        assert!(zstd_frame(&frame, 5000).is_some());
        for cut in 0..frame.len() {
            assert_eq!(zstd_frame(&frame[..cut], 5000), None, "cut at {cut}");
        }
        let longer = [&frame[..], &[0]].concat();
        assert_eq!(zstd_frame(&longer, 5000), None);
        let two = [&frame[..], &frame[..]].concat();
        assert_eq!(zstd_frame(&two, 5000), None);
        let mut dictionary = frame.clone();
        dictionary[4] |= 1;
        assert_eq!(zstd_frame(&dictionary, 5000), None);
        // A hundred blocks of nothing cannot hold it.
        let mut hollow = frame[..6].to_vec();
        (0..100).for_each(|_| hollow.extend([0, 0, 0]));
        hollow.extend([1, 0, 0]);
        assert_eq!(zstd_frame(&hollow, 5000), None);
    }
}
