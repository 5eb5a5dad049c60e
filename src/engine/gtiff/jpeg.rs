//! What tiles of JPEG are asked before they are decoded.

/// How many samples of luma stand for one of chroma, across and down.
pub type Sampling = [u8; 2];

/// Markers: the beginning of image data and the end of the stream.
const START_OF_SCAN: u8 = 0xDA;
const END_OF_IMAGE: u8 = 0xD9;

/// What a JPEG stream says of its chroma; `None` where it says nothing that a TIFF can say, or
/// nothing at all.
pub fn sampling(stream: &[u8]) -> Option<Sampling> {
    let mut segments = Segments::new(stream)?;
    loop {
        match segments.marker()? {
            // Baseline, extended, progressive, and the last two with arithmetic coding.
            0xC0..=0xC2 | 0xC9 | 0xCA => return of_frame(segments.rest.get(2..)?),
            START_OF_SCAN | END_OF_IMAGE => return None,
            _ => segments.body()?,
        };
    }
}

/// The tables that a stream of one scan brings along, one bit each. A decoder keeps tables from
/// stream to stream: one that only ever saw streams with the same tables decodes the next as a new
/// decoder would. `None` where that is not certain.
pub(super) fn tables(stream: &[u8]) -> Option<u16> {
    let mut segments = Segments::new(stream)?;
    let mut found = 0;
    loop {
        match segments.marker()? {
            0xDB => found |= quantisation(segments.body()?)?,
            0xC4 => found |= huffman(segments.body()?)? << 4,
            // Tables of arithmetic coding, and frames that have it.
            0xC8..=0xCF => return None,
            START_OF_SCAN => break,
            END_OF_IMAGE => return None,
            _ => drop(segments.body()?),
        }
    }
    segments.body()?;
    // Image data has no marker in it but those of restarts, and 0xFF as two bytes.
    let is_marker = |pair: &[u8]| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD0..=0xD7 | 0xFF);
    let marker = segments.rest.windows(2).find(|pair| is_marker(pair))?[1];
    (marker == END_OF_IMAGE).then_some(found)
}

/// One bit for each of up to four tables of 64 numbers of one or two bytes.
fn quantisation(mut body: &[u8]) -> Option<u16> {
    let mut found = 0;
    while let Some((&head, rest)) = body.split_first() {
        let (wide, id) = (head >> 4, head & 15);
        if wide > 1 || id > 3 {
            return None;
        }
        found |= 1 << id;
        body = rest.get(64 * (usize::from(wide) + 1)..)?;
    }
    Some(found)
}

/// One bit for each of up to four tables of two kinds: the numbers of codes of each length, and the
/// codes.
fn huffman(mut body: &[u8]) -> Option<u16> {
    let mut found = 0;
    while let Some((&head, rest)) = body.split_first() {
        let (kind, id) = (head >> 4, head & 15);
        if kind > 1 || id > 3 {
            return None;
        }
        found |= 1 << (4 * kind + id);
        let codes: usize = rest.get(..16)?.iter().map(|&count| usize::from(count)).sum();
        body = rest.get(16 + codes..)?;
    }
    Some(found)
}

/// The segments of a stream up to its image data.
struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    fn new(stream: &'a [u8]) -> Option<Segments<'a>> {
        Some(Segments { rest: stream.strip_prefix(&[0xFF, 0xD8])? })
    }

    /// The next marker, which any number of 0xFF may precede.
    fn marker(&mut self) -> Option<u8> {
        let filled = self.rest.strip_prefix(&[0xFF])?;
        let at = filled.iter().position(|&byte| byte != 0xFF)?;
        self.rest = &filled[at + 1..];
        Some(filled[at])
    }

    /// What belongs to it.
    fn body(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16::from_be_bytes(*self.rest.first_chunk()?)).max(2);
        let (body, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(&body[2..])
    }
}

/// From precision on: height, width, number of components, then id, sampling and table of each.
fn of_frame(frame: &[u8]) -> Option<Sampling> {
    let count = usize::from(*frame.get(5)?);
    let components = frame.get(6..6 + 3 * count)?;
    let (luma, chroma) = components.split_at_checked(3)?;
    let sampling = [luma[1] >> 4, luma[1] & 15];
    let whole = chroma.chunks_exact(3).all(|component| component[1] == 0x11);
    (whole && sampling.iter().all(|n| matches!(n, 1 | 2 | 4))).then_some(sampling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(luma: u8, chroma: u8) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 4, 1, 2, 0xFF, 0xFF, 0xC0, 0, 17];
        bytes.extend([8, 0, 16, 0, 16, 3, 1, luma, 0, 2, chroma, 1, 3, chroma, 1]);
        bytes
    }

    #[test]
    fn is_found_behind_other_segments() {
        assert_eq!(sampling(&stream(0x22, 0x11)), Some([2, 2]));
        assert_eq!(sampling(&stream(0x21, 0x11)), Some([2, 1]));
        assert_eq!(sampling(&stream(0x11, 0x11)), Some([1, 1]));
    }

    /// A stream with some tables, and image data.
    fn with_tables(quantisation: &[u8], huffman: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        for &head in quantisation {
            let size = if head >> 4 == 1 { 128 } else { 64 };
            bytes.extend([0xFF, 0xDB, 0, 3 + size, head]);
            bytes.extend(vec![1; size.into()]);
        }
        for &head in huffman {
            bytes.extend([0xFF, 0xC4, 0, 19 + 2, head, 1, 1]);
            bytes.extend([0; 14]);
            bytes.extend([7, 8]);
        }
        bytes.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn tables_are_told_apart() {
        let end = [1, 0xFF, 0, 0xFF, 0xD3, 5, 0xFF, 0xFF, 0xD9];
        let tables = |q: &[u8], h: &[u8]| super::tables(&with_tables(q, h, &end));
        assert_eq!(tables(&[], &[]), Some(0));
        assert_eq!(tables(&[0, 0x11], &[]), Some(0b11));
        assert_eq!(tables(&[3], &[0, 0x10, 0x11]), Some(0b0011_0001_1000));
        assert_eq!(tables(&[4], &[]), None);
        assert_eq!(tables(&[], &[0x20]), None);
    }

    #[test]
    fn streams_that_may_change_tables_later_are_none() {
        for data in [&[1, 2][..], &[1, 0xFF, 0xC4, 0, 3, 9, 0xFF, 0xD9], &[0xFF, 0xDA, 0xFF, 0xD9]]
        {
            assert_eq!(tables(&with_tables(&[0], &[0], data)), None);
        }
        let whole = with_tables(&[0], &[0], &[1, 0xFF, 0xD9]);
        assert_eq!(tables(&whole), Some(0b1_0001));
        for len in 0..whole.len() {
            assert_eq!(tables(&whole[..len]), None, "{len}");
        }
    }

    #[test]
    fn what_no_tiff_can_say_is_none() {
        assert_eq!(sampling(&stream(0x31, 0x11)), None);
        assert_eq!(sampling(&stream(0x22, 0x21)), None);
        for len in 0..stream(0x22, 0x11).len() {
            assert_eq!(sampling(&stream(0x22, 0x11)[..len]), None, "{len}");
        }
        assert_eq!(sampling(&[0xFF, 0xD8, 0xFF, 0xDA, 0, 8, 0, 0]), None);
        assert_eq!(sampling(&[0xFF, 0xD8, 0xFF, 0xDB, 0, 0, 0xFF, 0xD9]), None);
    }
}
