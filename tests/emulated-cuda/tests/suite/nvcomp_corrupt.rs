//! What nvCOMP does to chunks that can't be decompressed: anything but a clear answer.

use crate::case::{isolated, start};
use crate::nvcomp::{Codec, Decompressed, chunks, decompress};

/// Streams that zlib-rs would not make are not needed here: stored blocks will do.
fn stored(chunk: &[u8]) -> Vec<u8> {
    let length = chunk.len() as u16;
    let mut stream = vec![1];
    stream.extend(length.to_le_bytes());
    stream.extend((!length).to_le_bytes());
    stream.extend(chunk);
    stream
}

/// A frame of one raw block, with its content size or with a window instead.
fn frame(chunk: &[u8], sized: bool) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    if sized {
        frame.push(0xa0);
        frame.extend((chunk.len() as u32).to_le_bytes());
    } else {
        frame.extend([0x00, 0x58]);
    }
    let header = 1 | (chunk.len() as u32) << 3;
    frame.extend(&header.to_le_bytes()[..3]);
    frame.extend(chunk);
    frame
}

const SENTINEL: u32 = 0xeeee_eeee;

/// Decompresses four chunks of which the second is damaged.
fn damaged(codec: Codec) -> Result<Decompressed, u32> {
    let mut streams: Vec<Vec<u8>> = chunks()
        .iter()
        .map(|chunk| match codec {
            Codec::Deflate(_) => stored(chunk),
            Codec::Zstd => frame(chunk, true),
        })
        .collect();
    // The block's length no longer fits, or its kind is the reserved one.
    match codec {
        Codec::Deflate(_) => streams[1][1] ^= 1,
        Codec::Zstd => streams[1][9] |= 6,
    }
    decompress(codec, &streams, 20_000, 0)
}

fn case(name: &str, corrupt: &str, body: impl Fn(Result<Decompressed, u32>)) {
    // The setting tells the two cases apart; the mode does not depend on the seed.
    for (codec, codec_name, seed) in
        [(Codec::Deflate(1), "deflate", "0"), (Codec::Zstd, "zstd", "1")]
    {
        let finished = isolated(name, &[("CORRUPT", corrupt), ("SEED", seed)], || {
            start(0);
            body(damaged(codec));
        });
        if finished.ran {
            assert_eq!(finished.report.number(&format!("nvcomp.{codec_name}.corrupt")), 1);
        }
    }
}

/// Whether chunk `index` came out right.
fn is_right(result: &Decompressed, index: usize) -> bool {
    let chunk = &chunks()[index];
    result.statuses[index] == 0
        && result.actual[index] == chunk.len() as u64
        && result.buffers[index][..chunk.len()] == *chunk
}

#[test]
fn a_status_is_left_unwritten() {
    case("nvcomp_corrupt::a_status_is_left_unwritten", "unwritten", |result| {
        let result = result.unwrap();
        assert_eq!(result.statuses, [0, SENTINEL, 0, 0]);
        assert_eq!(result.actual[1], 77);
        assert!([0, 2, 3].iter().all(|index| is_right(&result, *index)));
    });
}

#[test]
fn garbage_is_called_success() {
    case("nvcomp_corrupt::garbage_is_called_success", "garbage", |result| {
        let result = result.unwrap();
        assert_eq!(result.statuses, [0; 4]);
        assert_eq!(result.actual[1], 20_000);
        assert!(!is_right(&result, 1));
        assert!([0, 2, 3].iter().all(|index| is_right(&result, *index)));
    });
}

#[test]
fn a_neighbour_is_damaged() {
    case("nvcomp_corrupt::a_neighbour_is_damaged", "neighbour", |result| {
        let result = result.unwrap();
        assert_eq!(result.statuses, [0, 12, 0, 0]);
        assert!(is_right(&result, 0) && is_right(&result, 3));
        assert!(!is_right(&result, 2));
    });
}

#[test]
fn the_device_is_lost() {
    case("nvcomp_corrupt::the_device_is_lost", "fault", |result| {
        assert_eq!(result, Err(719));
        assert_eq!(emulated_cuda::api::context::cuCtxSynchronize(), 719);
    });
}

#[test]
fn a_frame_without_its_size_is_garbage_unless_told_otherwise() {
    let name = "nvcomp_corrupt::a_frame_without_its_size_is_garbage_unless_told_otherwise";
    for unsized_frames in ["garbage", "decode"] {
        isolated(name, &[("UNSIZED", unsized_frames)], || {
            start(0);
            let decoded = unsized_frames == "decode";
            let frames: Vec<_> =
                chunks().iter().enumerate().map(|(n, chunk)| frame(chunk, n != 2)).collect();
            let result = decompress(Codec::Zstd, &frames, 20_000, 0).unwrap();
            assert_eq!(result.statuses, [0; 4]);
            assert!([0, 1, 3].iter().all(|index| is_right(&result, *index)));
            assert_eq!(is_right(&result, 2), decoded);
        });
    }
}

#[test]
fn a_stream_longer_than_its_buffer_is_corrupt_and_a_shorter_one_tells_its_size() {
    let name = "nvcomp_corrupt::a_stream_longer_than_its_buffer_is_corrupt_and_a_shorter_one_tells_its_size";
    isolated(name, &[("CORRUPT", "unwritten")], || {
        start(0);
        let streams = [stored(&[5; 100]), stored(&[6; 101]), stored(&[7; 99])];
        let result = decompress(Codec::Deflate(1), &streams, 100, 0).unwrap();
        assert_eq!(result.statuses, [0, SENTINEL, 0]);
        assert_eq!(result.actual, [100, 77, 99]);
    });
}
