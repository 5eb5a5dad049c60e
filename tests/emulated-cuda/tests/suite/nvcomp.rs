//! nvCOMP: round trips, sizes, alignments, temporary memory, contexts, versions.

use emulated_cuda::api::context::{cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRetain};
use emulated_cuda::api::memory::{cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::nvcomp::api::*;

use crate::case::{allocate, ask, download, isolated, ok, pattern, start, stream, upload};

pub(crate) const DEFLATE: DeflateDecompressOptions =
    DeflateDecompressOptions { backend: 0, sort: 0, reserved: [0; 56] };
pub(crate) const ZSTD: ZstdDecompressOptions =
    ZstdDecompressOptions { backend: 0, reserved: [0; 60] };
const ZSTD_ENCODE: ZstdCompressOptions = ZstdCompressOptions { reserved: [0; 64] };

pub(crate) fn algorithm(algorithm: i32) -> DeflateCompressOptions {
    DeflateCompressOptions { algorithm, reserved: [0; 60] }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Deflate(i32),
    Zstd,
}

pub(crate) fn words(words: &[u64]) -> u64 {
    upload(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

pub(crate) fn read_words(pointer: u64, count: usize) -> Result<Vec<u64>, u32> {
    let bytes = download(pointer, count * 8)?;
    Ok(bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

pub(crate) fn read_statuses(pointer: u64, count: usize) -> Result<Vec<u32>, u32> {
    let bytes = download(pointer, count * 4)?;
    Ok(bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// A table of statuses that no call would write.
pub(crate) fn sentinels(count: usize) -> u64 {
    upload(&vec![0xee; count * 4])
}

/// Where the chunks of a batch are placed: one buffer, each chunk at a multiple of `stride`
/// plus `offset`.
pub(crate) fn packed(chunks: &[Vec<u8>], stride: usize, offset: usize) -> (u64, Vec<u64>) {
    let mut buffer = vec![0; stride * chunks.len() + offset];
    for (index, chunk) in chunks.iter().enumerate() {
        let at = index * stride + offset;
        buffer[at..at + chunk.len()].copy_from_slice(chunk);
    }
    let base = upload(&buffer);
    (base, (0..chunks.len()).map(|index| base + (index * stride + offset) as u64).collect())
}

fn sizes(chunks: &[Vec<u8>]) -> Vec<u64> {
    chunks.iter().map(|chunk| chunk.len() as u64).collect()
}

/// Compresses a batch whose outputs lie `stride` bytes apart; the streams, or a code.
fn compress(codec: Codec, chunks: &[Vec<u8>], stride: Option<usize>) -> Result<Vec<Vec<u8>>, u32> {
    let (count, most) = (chunks.len(), chunks.iter().map(Vec::len).max().unwrap());
    let total = count * most;
    let bound = match codec {
        Codec::Deflate(level) => ask(|place| {
            nvcompBatchedDeflateCompressGetMaxOutputChunkSize(most, algorithm(level), place)
        }),
        Codec::Zstd => {
            ask(|place| nvcompBatchedZstdCompressGetMaxOutputChunkSize(most, ZSTD_ENCODE, place))
        }
    }?;
    let temp_bytes = match codec {
        Codec::Deflate(level) => ask(|place| {
            let options = algorithm(level);
            nvcompBatchedDeflateCompressGetTempSize(count, most, options, place, total, 0)
        }),
        Codec::Zstd => ask(|place| {
            nvcompBatchedZstdCompressGetTempSize(count, most, ZSTD_ENCODE, place, total, 0)
        }),
    }?;
    let (_, pointers) = packed(chunks, most.next_multiple_of(8), 0);
    let stride = stride.unwrap_or(bound.next_multiple_of(8));
    let output = allocate(stride * count);
    let targets: Vec<u64> = (0..count).map(|index| output + (index * stride) as u64).collect();
    let (lengths, statuses) = (allocate(count * 8), sentinels(count));
    let temp = allocate(temp_bytes.max(1));
    let (pointers, sizes, table) = (words(&pointers), words(&sizes(chunks)), words(&targets));
    let code = match codec {
        Codec::Deflate(level) => nvcompBatchedDeflateCompressAsync(
            pointers,
            sizes,
            most,
            count,
            temp,
            temp_bytes,
            table,
            lengths,
            algorithm(level),
            statuses,
            0,
        ),
        Codec::Zstd => nvcompBatchedZstdCompressAsync(
            pointers,
            sizes,
            most,
            count,
            temp,
            temp_bytes,
            table,
            lengths,
            ZSTD_ENCODE,
            statuses,
            0,
        ),
    };
    assert_eq!(code, 0);
    let lengths = read_words(lengths, count)?;
    assert_eq!(read_statuses(statuses, count)?, vec![0; count]);
    targets.iter().zip(lengths).map(|(at, bytes)| download(*at, bytes as usize)).collect()
}

/// What a decompression gave: statuses, sizes, and whole output buffers.
#[derive(PartialEq, Debug)]
pub(crate) struct Decompressed {
    pub(crate) statuses: Vec<u32>,
    pub(crate) actual: Vec<u64>,
    pub(crate) buffers: Vec<Vec<u8>>,
}

/// Decompresses a batch of chunks, each to `room` bytes, with the input so far off alignment.
pub(crate) fn decompress(
    codec: Codec,
    chunks: &[Vec<u8>],
    room: usize,
    offset: usize,
) -> Result<Decompressed, u32> {
    let count = chunks.len();
    let temp_bytes = match codec {
        Codec::Deflate(_) => ask(|place| {
            nvcompBatchedDeflateDecompressGetTempSize(count, room, DEFLATE, place, room * count, 0)
        }),
        Codec::Zstd => ask(|place| {
            nvcompBatchedZstdDecompressGetTempSize(count, room, ZSTD, place, room * count, 0)
        }),
    }?;
    let longest = chunks.iter().map(Vec::len).max().unwrap();
    let (_, pointers) = packed(chunks, longest.next_multiple_of(8), offset);
    let output = allocate(room * count);
    let targets: Vec<u64> = (0..count).map(|index| output + (index * room) as u64).collect();
    let (pointers, lengths, table) = (words(&pointers), words(&sizes(chunks)), words(&targets));
    let (rooms, actual) = (words(&vec![room as u64; count]), words(&vec![77; count]));
    let statuses = sentinels(count);
    let temp = allocate(temp_bytes.max(1));
    let call = match codec {
        Codec::Deflate(_) => decompress_deflate,
        Codec::Zstd => decompress_zstd,
    };
    let code = call([pointers, lengths, rooms, actual, table, statuses], count, (temp, temp_bytes));
    if code != 0 {
        return Err(code);
    }
    Ok(Decompressed {
        statuses: read_statuses(statuses, count)?,
        actual: read_words(actual, count)?,
        buffers: targets
            .iter()
            .map(|target| download(*target, room))
            .collect::<Result<Vec<_>, u32>>()?,
    })
}

/// Tables are pointers, sizes, rooms, actual sizes, outputs, statuses.
fn decompress_deflate(tables: [u64; 6], count: usize, temp: (u64, usize)) -> u32 {
    let [pointers, sizes, rooms, actual, outputs, statuses] = tables;
    nvcompBatchedDeflateDecompressAsync(
        pointers, sizes, rooms, actual, count, temp.0, temp.1, outputs, DEFLATE, statuses, 0,
    )
}

fn decompress_zstd(tables: [u64; 6], count: usize, temp: (u64, usize)) -> u32 {
    let [pointers, sizes, rooms, actual, outputs, statuses] = tables;
    nvcompBatchedZstdDecompressAsync(
        pointers, sizes, rooms, actual, count, temp.0, temp.1, outputs, ZSTD, statuses, 0,
    )
}

pub(crate) fn chunks() -> Vec<Vec<u8>> {
    let smooth = (0..20_000u32).map(|n| (n / 97) as u8).collect();
    vec![pattern(1, 20_000), vec![9; 20_000], smooth, pattern(2, 19_999)]
}

#[test]
fn round_trips() {
    let name = "nvcomp::round_trips";
    for expand in ["0", "1000"] {
        let finished = isolated(name, &[("EXPAND", expand)], || {
            start(0);
            let codecs = (0..6).map(Codec::Deflate).chain([Codec::Zstd]);
            for codec in codecs {
                let streams = compress(codec, &chunks(), None).unwrap();
                let result = decompress(codec, &streams, 20_100, 0).unwrap();
                assert_eq!(result.statuses, [0; 4]);
                assert_eq!(result.actual, sizes(&chunks()));
                for (buffer, chunk) in result.buffers.iter().zip(chunks()) {
                    assert_eq!(buffer[..chunk.len()], chunk);
                    // What comes after is neither zero nor poison that was there.
                    assert_ne!(buffer[chunk.len()..], vec![0; buffer.len() - chunk.len()]);
                }
            }
        });
        if finished.ran {
            let report = &finished.report;
            assert_eq!(report.number("nvcomp.deflate.decompressed"), 24);
            assert_eq!(report.number("nvcomp.deflate.compressed"), 24);
            assert_eq!(report.number("nvcomp.zstd.decompressed_bytes"), 79_999);
            assert_eq!(report.number("nvcomp.zstd.corrupt"), 0);
        }
    }
}

#[test]
fn a_chunk_is_the_same_in_every_batch() {
    isolated("nvcomp::a_chunk_is_the_same_in_every_batch", &[], || {
        start(0);
        for codec in [Codec::Deflate(2), Codec::Zstd] {
            let together = compress(codec, &chunks(), None).unwrap();
            let alone = compress(codec, &chunks()[2..3], None).unwrap();
            assert_eq!(together[2], alone[0]);
        }
    });
}

#[test]
fn a_stride_below_the_bound_is_caught() {
    isolated("nvcomp::a_stride_below_the_bound_is_caught", &[], || {
        start(0);
        let right = compress(Codec::Deflate(1), &chunks(), None).unwrap();
        // Wide enough for the streams themselves, but not for what the library may touch.
        let result = compress(Codec::Deflate(1), &chunks(), Some(24_000));
        assert!(result != Ok(right));
    });
}

#[test]
fn misaligned_chunks_say_so() {
    isolated("nvcomp::misaligned_chunks_say_so", &[], || {
        start(0);
        let streams = compress(Codec::Deflate(1), &chunks(), None).unwrap();
        for (offset, status) in [(0, 0), (4, 0), (1, 17), (2, 17), (6, 17)] {
            let result = decompress(Codec::Deflate(1), &streams, 20_000, offset).unwrap();
            assert_eq!(result.statuses, [status; 4], "offset {offset}");
        }
        let frames = compress(Codec::Zstd, &chunks(), None).unwrap();
        let result = decompress(Codec::Zstd, &frames, 20_000, 1).unwrap();
        assert_eq!(result.statuses, [0; 4]);
    });
}

#[test]
fn temporary_memory_is_checked_and_used() {
    isolated("nvcomp::temporary_memory_is_checked_and_used", &[], || {
        start(0);
        let frames = compress(Codec::Zstd, &chunks()[..1], None).unwrap();
        let (_, pointers) = packed(&frames, 24_000, 0);
        let (output, statuses) = (allocate(20_000), sentinels(1));
        let tables = [
            words(&pointers),
            words(&sizes(&frames)),
            words(&[20_000]),
            words(&[0]),
            words(&[output]),
            statuses,
        ];
        let needed = 3 * 20_000 + 6936;
        let temp = upload(&vec![0; needed + 8]);
        assert_eq!(decompress_zstd(tables, 1, (temp + 4, needed)), 17);
        assert_eq!(decompress_zstd(tables, 1, (temp, 100)), 10);
        assert_eq!(decompress_zstd(tables, 1, (0, needed)), 10);
        ok(decompress_zstd(tables, 1, (temp, needed)));
        assert_eq!(read_statuses(statuses, 1), Ok(vec![0]));
        let used = download(temp, needed + 8).unwrap();
        assert_ne!(used[needed - 64..needed], [0; 64]);
        assert_eq!(used[needed..], [0; 8]);
        // Less than the chunks need: only the device sees that.
        ok(decompress_zstd(tables, 1, (temp, needed - 1)));
        assert_eq!(cuCtxSynchronize(), 700);
    });
}

#[test]
fn all_of_the_promised_output_is_the_librarys() {
    isolated("nvcomp::all_of_the_promised_output_is_the_librarys", &[], || {
        start(0);
        let bound = 148_256;
        let (input, output) = (upload(&[7; 65536]), upload(&vec![0; bound]));
        let (lengths, temp) = (words(&[0]), allocate(1 << 20));
        ok(nvcompBatchedDeflateCompressAsync(
            words(&[input]),
            words(&[65536]),
            65536,
            1,
            temp,
            1 << 20,
            words(&[output]),
            lengths,
            algorithm(1),
            sentinels(1),
            0,
        ));
        let length = read_words(lengths, 1).unwrap()[0] as usize;
        let buffer = download(output, bound).unwrap();
        assert!(length < bound / 2);
        assert_ne!(buffer[length..length + 64], [0; 64]);
        assert_ne!(buffer[bound - 64..], [0; 64]);
    });
}

#[test]
fn chunks_are_done_in_no_particular_order() {
    isolated("nvcomp::chunks_are_done_in_no_particular_order", &[("EXPAND", "0")], || {
        start(0);
        let streams = compress(Codec::Deflate(1), &[vec![1; 500], vec![2; 500]], None).unwrap();
        let (_, pointers) = packed(&streams, 1000, 0);
        let output = allocate(500);
        let tables = [
            words(&pointers),
            words(&sizes(&streams)),
            words(&[500, 500]),
            words(&[0, 0]),
            words(&[output, output]),
            sentinels(2),
        ];
        // Both chunks go to the same place: the last one wins.
        let winners: std::collections::BTreeSet<u8> = (0..16)
            .map(|_| {
                ok(decompress_deflate(tables, 2, (0, 0)));
                download(output, 500).unwrap()[0]
            })
            .collect();
        assert_eq!(winners.len(), 2);
    });
}

#[test]
fn sizes_that_tests_choose() {
    let name = "nvcomp::sizes_that_tests_choose";
    isolated(name, &[("DEFLATE_TEMP", "1000")], || {
        start(0);
        let streams = compress(Codec::Deflate(1), &chunks(), None).unwrap();
        assert_eq!(decompress(Codec::Deflate(1), &streams, 20_000, 0).unwrap().statuses, [0; 4]);
        let size = ask(|place| {
            nvcompBatchedDeflateDecompressGetTempSize(4, 20_000, DEFLATE, place, 80_000, 0)
        });
        assert_eq!(size, Ok(4000));
    });
    isolated(name, &[("CHUNK_LIMIT", "65536")], || {
        start(0);
        let call = |most| {
            let table = words(&[0]);
            let temp = (allocate(1 << 20), 1 << 20);
            nvcompBatchedDeflateCompressAsync(
                table,
                table,
                most,
                1,
                temp.0,
                temp.1,
                table,
                table,
                algorithm(1),
                sentinels(1),
                0,
            )
        };
        assert_eq!(call(65537), 18);
        assert_eq!(call(65536), 0);
    });
}

#[test]
fn a_compressor_that_is_wrong_says_nothing_of_it() {
    let name = "nvcomp::a_compressor_that_is_wrong_says_nothing_of_it";
    isolated(name, &[("WRONG_PACK", "1000")], || {
        start(0);
        for codec in [Codec::Deflate(2), Codec::Zstd] {
            let altered = || {
                let streams = compress(codec, &chunks(), None).unwrap();
                let result = decompress(codec, &streams, 20_000, 0).unwrap();
                assert_eq!((result.statuses, result.actual), (vec![0; 4], sizes(&chunks())));
                let pairs = result.buffers.into_iter().zip(chunks());
                let differences = |(buffer, chunk): (Vec<u8>, Vec<u8>)| {
                    buffer.iter().zip(&chunk).filter(|(a, b)| a != b).count()
                };
                pairs.map(differences).collect::<Vec<_>>()
            };
            // The first twenty chunks are right: those of a trial.
            (0..5).for_each(|_| assert_eq!(altered(), [0; 4]));
            assert_eq!(altered(), [1; 4]);
        }
    });
}

#[test]
fn tables_are_read_when_the_batch_runs() {
    isolated("nvcomp::tables_are_read_when_the_batch_runs", &[], || {
        start(0);
        let streams = compress(Codec::Deflate(1), &chunks()[..1], None).unwrap();
        let (input, pointers) = packed(&streams, 24_000, 0);
        let (output, statuses, actual) = (allocate(20_000), sentinels(1), words(&[0]));
        let lengths = words(&[0]);
        let tables =
            [words(&pointers), lengths, words(&[20_000]), actual, words(&[output]), statuses];
        ok(decompress_deflate(tables, 1, (0, 0)));
        // Nothing has run: the chunk has no bytes any more when it does.
        ok(cuMemsetD8Async(input, 0, 10, stream()));
        assert!(cuCtxSynchronize() == 719 || read_statuses(statuses, 1) != Ok(vec![0]));
        let _ = cuMemFree_v2(output);
    });
}

#[test]
fn signatures_go_with_the_version() {
    let name = "nvcomp::signatures_go_with_the_version";
    let five = || {
        ask(|place| nvcompBatchedZstdDecompressGetTempSizeAsync(10, 65536, ZSTD, place, 655_360))
    };
    let six =
        || ask(|place| nvcompBatchedZstdDecompressGetTempSize(10, 65536, ZSTD, place, 655_360, 0));
    for (version, answers) in [
        ("5010", [Ok(2_035_440), Err(11)]),
        ("6000", [Err(11), Ok(2_035_440)]),
        ("4020", [Err(11), Err(11)]),
    ] {
        isolated(name, &[("NVCOMP", version)], || {
            start(0);
            let properties = ask(|place| nvcompGetProperties(place)).unwrap();
            assert_eq!(properties.version.to_string(), version);
            assert_eq!(properties.cudart_version, 12090);
            assert_eq!([five(), six()], answers);
        });
    }
}

#[test]
fn options_are_checked() {
    isolated("nvcomp::options_are_checked", &[], || {
        start(0);
        let bound = |options| {
            ask(|place| nvcompBatchedDeflateCompressGetMaxOutputChunkSize(65536, options, place))
        };
        assert_eq!(bound(algorithm(1)), Ok(148_256));
        assert_eq!(bound(algorithm(6)), Err(11));
        let mut dirty = algorithm(1);
        dirty.reserved[59] = 1;
        assert_eq!(bound(dirty), Err(10));
    });
}

#[test]
fn contexts_and_devices() {
    let name = "nvcomp::contexts_and_devices";
    let finished = isolated(name, &[("DEVICES", "2")], || {
        start(0);
        let second = ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap();
        ok(cuCtxSetCurrent(second));
        let other = stream();
        let size = |stream| {
            ask(|place| nvcompBatchedZstdDecompressGetTempSize(1, 100, ZSTD, place, 100, stream))
        };
        assert_eq!(size(other), Ok(7236));
        // Without a current context it is device 0 that works: a stream of device 1 is strange.
        ok(cuCtxSetCurrent(0));
        assert_eq!(size(other), Err(1000));
        ok(cuCtxSetCurrent(0));
        assert_eq!(size(0), Ok(7236));
    });
    assert_eq!(finished.report.number("nvcomp.calls_without_context"), 2);
}
