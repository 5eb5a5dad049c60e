//! Zstandard: ruzstd decodes, and encodes some blocks; the frames are put together here,
//! with their content size, without a checksum, often as raw and repeated blocks.

use ruzstd::decoding::FrameDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::random::{Random, digest};

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The content size that a frame's header states.
pub(crate) fn content_size(frame: &[u8]) -> Option<u64> {
    let rest = frame.strip_prefix(&MAGIC)?;
    let (descriptor, rest) = rest.split_first()?;
    let single = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let field = rest.get(usize::from(!single) + dictionary..)?;
    let bytes = match (descriptor >> 6, single) {
        (0, false) => return None,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(field.get(..bytes)?);
    let size = u64::from_le_bytes(number);
    Some(if bytes == 2 { size + 256 } else { size })
}

/// Decodes frames of at most `most` bytes; none where they are corrupt or longer.
pub(crate) fn decode(input: &[u8], most: usize) -> Option<Vec<u8>> {
    let input = input.to_vec();
    // A decoder that panics on damaged input has refused it.
    let outcome = std::panic::catch_unwind(move || {
        let mut output = vec![0; most + 1];
        let length = FrameDecoder::new().decode_all(&input, &mut output).ok()?;
        output.truncate(length);
        (length <= most).then_some(output)
    });
    outcome.ok().flatten()
}

/// Encodes to one frame of at most `bound` bytes.
pub(crate) fn encode(data: &[u8], seed: u64, bound: usize) -> Vec<u8> {
    let mut random = Random::new(seed ^ digest(data));
    if random.below(8) != 0
        && let Some(frame) = packed(data).filter(|frame| frame.len() <= bound)
    {
        return frame;
    }
    plain(data, &mut random)
}

/// The header of a frame in a single segment that states its content size.
fn header(bytes: usize) -> Vec<u8> {
    let mut frame = MAGIC.to_vec();
    match bytes {
        0..256 => frame.extend([0x20, bytes as u8]),
        256..65792 => {
            frame.push(0x60);
            frame.extend(((bytes - 256) as u16).to_le_bytes());
        }
        _ => {
            frame.push(0xa0);
            frame.extend((bytes as u32).to_le_bytes());
        }
    }
    frame
}

/// The blocks of ruzstd's encoder under a header with the content size. The window stays: in a
/// single segment it would be the content, and a block that grew a little is longer than that,
/// which ruzstd takes and libzstd does not.
fn packed(data: &[u8]) -> Option<Vec<u8>> {
    let made = compress_to_vec(data, CompressionLevel::Fastest);
    // Magic number, a descriptor without anything optional, one byte for the window.
    let (window, blocks) = made.strip_prefix(&MAGIC)?.strip_prefix(&[0])?.split_first()?;
    let mut frame = MAGIC.to_vec();
    frame.extend([0x80, *window]);
    frame.extend((data.len() as u32).to_le_bytes());
    frame.extend_from_slice(blocks);
    Some(frame)
}

/// Raw and repeated blocks of 64 KiB, the first one shorter by chance.
fn plain(data: &[u8], random: &mut Random) -> Vec<u8> {
    let mut frame = header(data.len());
    // No more blocks than whole ones would take: the bound counts on that.
    let spare = data.len().next_multiple_of(65536) - data.len();
    let mut size = 65536 - spare.min(random.below(64) as usize);
    let mut rest = data;
    loop {
        let (block, after) = rest.split_at(rest.len().min(size));
        size = 65536;
        let repeated = block.len() > 1 && block.iter().all(|byte| *byte == block[0]);
        let kind = u32::from(repeated) << 1;
        let word = u32::from(after.is_empty()) | kind | (block.len() as u32) << 3;
        frame.extend(&word.to_le_bytes()[..3]);
        frame.extend_from_slice(if repeated { &block[..1] } else { block });
        rest = after;
        if rest.is_empty() {
            return frame;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{content_size, decode, encode};
    use crate::nvcomp::sizes::{Codec, max_output};
    use crate::random::Random;

    #[test]
    fn frames_decode_to_what_went_in() {
        let mut noise = vec![0; 200_001];
        Random::new(9).fill(&mut noise);
        let gradient: Vec<u8> = (0..300_000u32).map(|n| (n / 300 + n % 7) as u8).collect();
        let samples =
            [vec![], vec![1], vec![3; 255], vec![4; 256], noise, vec![0; 131_072], gradient];
        for data in samples {
            for seed in 0..16 {
                let bound = max_output(Codec::Zstd, data.len() as u64) as usize;
                let frame = encode(&data, seed, bound);
                assert!(frame.len() <= bound, "{} > {bound}", frame.len());
                assert_eq!(content_size(&frame), Some(data.len() as u64));
                assert_eq!(decode(&frame, data.len()).as_deref(), Some(data.as_slice()));
            }
        }
    }

    #[test]
    fn a_header_without_the_size_is_seen() {
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 1, 0, 0];
        assert_eq!(content_size(&frame), None);
        assert_eq!(decode(&frame, 0).as_deref(), Some([].as_slice()));
    }
}
