//! The one thing that tiles of JPEG are asked before they are cut out of their file.

/// How many samples of luma stand for one of chroma, across and down.
pub type Sampling = [u8; 2];

/// What a JPEG stream says of its chroma; `None` where it says nothing that a TIFF can say, or
/// nothing at all.
pub fn sampling(stream: &[u8]) -> Option<Sampling> {
    let mut at = 2;
    if stream.get(..2)? != [0xFF, 0xD8] {
        return None;
    }
    loop {
        let &[0xFF, marker] = stream.get(at..at + 2)? else { return None };
        at += 1;
        match marker {
            // A marker may be preceded by any number of these.
            0xFF => continue,
            // Baseline, extended, progressive, and the last two with arithmetic coding.
            0xC0..=0xC2 | 0xC9 | 0xCA => return of_frame(stream.get(at + 3..)?),
            // Image data, or the end.
            0xDA | 0xD9 => return None,
            _ => {}
        }
        at += 1;
        let len = stream.get(at..at + 2)?;
        at += usize::from(u16::from_be_bytes([len[0], len[1]])).max(2);
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
