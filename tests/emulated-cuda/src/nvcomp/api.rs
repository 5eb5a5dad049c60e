//! The exported functions of nvCOMP, with the signatures of 5.x and 6.x. A function that the
//! version in the settings does not have answers "not supported", although it is exported.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and arguments are nvCOMP's"
)]

use std::ffi::c_char;

use super::options::Options;
pub use super::options::{
    DeflateCompressOptions, DeflateDecompressOptions, Properties, ZstdCompressOptions,
    ZstdDecompressOptions,
};
use super::sizes::{
    Alignments, Codec, Direction, alignments, compress_temp, decompress_temp, max_output, supported,
};
use super::status::{
    ALIGNMENT, CHUNK_SIZE_TOO_LARGE, CUDA_ERROR, INVALID_VALUE, NOT_SUPPORTED, known, words,
};
use super::{Batch, BatchWork, Chunks, extra_temp};
use crate::door::{self, Place};
use crate::driver::Driver;
use crate::task::Task;

/// Success, or a status of nvCOMP's and the reason.
pub(super) type Outcome<T = ()> = Result<T, (u32, String)>;

/// Which versions have a function.
#[derive(Clone, Copy)]
enum Since {
    Always,
    FiveAndSix,
    OnlyFive,
    Six,
}

fn call(symbol: &'static str, since: Since, body: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    door::nvcomp(symbol, CUDA_ERROR, known, |driver| {
        let version = driver.settings.nvcomp;
        let has = match since {
            Since::Always => true,
            Since::FiveAndSix => version >= 5000,
            Since::OnlyFive => (5000..6000).contains(&version),
            Since::Six => version >= 6000,
        };
        if !has {
            return Err((NOT_SUPPORTED, format!("nvCOMP {version} has no such function")));
        }
        body(driver)
    })
}

fn answer<T>(place: Place<'_, T>, value: T) -> Outcome {
    match place {
        Some(place) => {
            place.write(value);
            Ok(())
        }
        None => Err((INVALID_VALUE, "a null pointer for a result".into())),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvcompGetProperties(properties: Place<'_, Properties>) -> u32 {
    call("nvcompGetProperties", Since::Always, |driver| {
        let (version, cudart_version) = (driver.settings.nvcomp, driver.settings.nvcomp_cudart);
        answer(properties, Properties { version, cudart_version })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvcompGetStatusString(status: u32) -> *const c_char {
    words(status).as_ptr()
}

/// The context a call works in. The stream must be of that context.
fn place(driver: &mut Driver, stream: u64) -> Outcome<(u64, u64)> {
    let refused = |text: String| (CUDA_ERROR, text);
    if driver.initialized && driver.current().is_err() {
        driver.ledger.nvcomp_without_context += 1;
    }
    let context = driver.runtime_context().map_err(refused)?;
    let stream = driver.stream(context, stream).map_err(|refusal| refused(refusal.message))?;
    Ok((context, stream))
}

/// Queues a batch after the checks that need no device memory.
fn submit(driver: &mut Driver, batch: Batch, needed: u64, stream: u64) -> Outcome {
    let (_, stream) = place(driver, stream)?;
    let alignment = alignments(batch.codec, batch.direction()).temp as u64;
    if !batch.temp.is_multiple_of(alignment) {
        return Err((ALIGNMENT, format!("temporary memory at {:#x}", batch.temp)));
    }
    if needed > batch.temp_bytes || (needed > 0 && batch.temp == 0) {
        let text = format!("{} bytes of temporary memory, {needed} needed", batch.temp_bytes);
        return Err((INVALID_VALUE, text));
    }
    if batch.input.pointers == 0 || batch.input.sizes == 0 {
        return Err((INVALID_VALUE, "a null table".into()));
    }
    if batch.chunks > 0 {
        driver.submit(stream, Task::Nvcomp(Box::new(batch)), None);
    }
    Ok(())
}

fn bound<O: Options>(codec: Codec, most: usize, options: &O, bytes: Place<'_, usize>) -> Outcome {
    options.checked()?;
    sized(most)?;
    answer(bytes, max_output(codec, most as u64) as usize)
}

/// Chunks have at most 2 GiB.
fn sized(most: usize) -> Outcome {
    match most <= 1 << 31 {
        true => Ok(()),
        false => Err((CHUNK_SIZE_TOO_LARGE, format!("chunks of {most} bytes"))),
    }
}

fn batch_sized(algorithm: i32, chunks: usize, most: usize) -> Outcome {
    sized(most)?;
    match supported(algorithm, chunks as u64, most as u64) {
        true => Ok(()),
        false => Err((NOT_SUPPORTED, format!("{chunks} chunks of {most} bytes"))),
    }
}

fn temp_to_compress<O: Options>(
    codec: Codec,
    (chunks, most): (usize, usize),
    options: &O,
    bytes: Place<'_, usize>,
) -> Outcome {
    let algorithm = options.checked()?;
    batch_sized(algorithm, chunks, most)?;
    answer(bytes, compress_temp(codec, algorithm, chunks as u64, most as u64) as usize)
}

fn temp_to_decompress<O: Options>(
    driver: &Driver,
    codec: Codec,
    (chunks, total): (usize, usize),
    options: &O,
    bytes: Place<'_, usize>,
) -> Outcome {
    options.checked()?;
    let more = extra_temp(&driver.settings, codec, chunks as u64);
    answer(bytes, (decompress_temp(codec, chunks as u64, total as u64) + more) as usize)
}

/// The arguments of a compression.
struct Compression<'a, O: Options> {
    codec: Codec,
    input: Chunks,
    most: usize,
    chunks: usize,
    temp: u64,
    temp_bytes: usize,
    output: Chunks,
    options: &'a O,
    statuses: u64,
}

impl<O: Options> Compression<'_, O> {
    fn submit(self, driver: &mut Driver, stream: u64) -> Outcome {
        let algorithm = self.options.checked()?;
        batch_sized(algorithm, self.chunks, self.most)?;
        let most = self.most as u64;
        if driver.settings.chunk_limit.is_some_and(|limit| most > limit) {
            return Err((CHUNK_SIZE_TOO_LARGE, "EMUCUDA_CHUNK_LIMIT".into()));
        }
        if self.output.pointers == 0 || self.output.sizes == 0 {
            return Err((INVALID_VALUE, "a null table".into()));
        }
        required(driver, self.statuses)?;
        let needed = compress_temp(self.codec, algorithm, self.chunks as u64, most);
        let batch = Batch {
            codec: self.codec,
            chunks: self.chunks as u64,
            temp: self.temp,
            temp_bytes: self.temp_bytes as u64,
            input: self.input,
            statuses: self.statuses,
            work: BatchWork::Compress { output: self.output, most, algorithm },
        };
        submit(driver, batch, needed, stream)
    }
}

/// Tables that may be null in 5.x, but no more in 6.x.
fn required(driver: &Driver, table: u64) -> Outcome {
    match table == 0 && driver.settings.nvcomp >= 6000 {
        true => Err((INVALID_VALUE, "a null table".into())),
        false => Ok(()),
    }
}

/// The arguments of a decompression.
struct Decompression<'a, O: Options> {
    codec: Codec,
    input: Chunks,
    output: Chunks,
    actual: u64,
    chunks: usize,
    temp: u64,
    temp_bytes: usize,
    options: &'a O,
    statuses: u64,
}

impl<O: Options> Decompression<'_, O> {
    fn submit(self, driver: &mut Driver, stream: u64) -> Outcome {
        self.options.checked()?;
        if self.output.pointers == 0 || self.output.sizes == 0 {
            return Err((INVALID_VALUE, "a null table".into()));
        }
        required(driver, self.statuses)?;
        required(driver, self.actual)?;
        let chunks = self.chunks as u64;
        let needed = decompress_temp(self.codec, chunks, 0)
            + extra_temp(&driver.settings, self.codec, chunks);
        let batch = Batch {
            codec: self.codec,
            chunks,
            temp: self.temp,
            temp_bytes: self.temp_bytes as u64,
            input: self.input,
            statuses: self.statuses,
            work: BatchWork::Decompress { output: self.output, actual: self.actual },
        };
        submit(driver, batch, needed, stream)
    }
}

fn measure(
    driver: &mut Driver,
    codec: Codec,
    input: Chunks,
    sizes: u64,
    chunks: usize,
    stream: u64,
) -> Outcome {
    let work = BatchWork::Measure { sizes };
    let chunks = chunks as u64;
    let batch = Batch { codec, chunks, temp: 0, temp_bytes: 0, input, statuses: 0, work };
    submit(driver, batch, 0, stream)
}

/// The functions of one codec, under the names given. The sizes of temporary memory need no
/// driver, but for compressing with Zstandard: that is how the real library is.
macro_rules! codec_functions {
    ($codec:expr, $compress_options:ty, $decompress_options:ty,
     $compress_alignments:ident, $compress_temp_5:ident, $compress_temp_6:ident,
     $max_output:ident, $compress:ident, $decompress_alignments:ident,
     $decompress_temp_5:ident, $decompress_temp_6:ident, $measure:ident, $decompress:ident) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $compress_alignments(
            options: $compress_options,
            place: Place<'_, Alignments>,
        ) -> u32 {
            call(stringify!($compress_alignments), Since::FiveAndSix, |_| {
                options.checked()?;
                answer(place, alignments($codec, Direction::Compress))
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $compress_temp_5(
            chunks: usize,
            most: usize,
            options: $compress_options,
            bytes: Place<'_, usize>,
            _total: usize,
        ) -> u32 {
            call(stringify!($compress_temp_5), Since::OnlyFive, |_| {
                temp_to_compress($codec, (chunks, most), &options, bytes)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $compress_temp_6(
            chunks: usize,
            most: usize,
            options: $compress_options,
            bytes: Place<'_, usize>,
            _total: usize,
            stream: u64,
        ) -> u32 {
            call(stringify!($compress_temp_6), Since::Six, |driver| {
                if driver.initialized || $codec == Codec::Zstd {
                    place(driver, stream)?;
                }
                temp_to_compress($codec, (chunks, most), &options, bytes)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $max_output(
            most: usize,
            options: $compress_options,
            bytes: Place<'_, usize>,
        ) -> u32 {
            call(stringify!($max_output), Since::FiveAndSix, |_| {
                bound($codec, most, &options, bytes)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $compress(
            pointers: u64,
            sizes: u64,
            most: usize,
            chunks: usize,
            temp: u64,
            temp_bytes: usize,
            output_pointers: u64,
            output_sizes: u64,
            options: $compress_options,
            statuses: u64,
            stream: u64,
        ) -> u32 {
            call(stringify!($compress), Since::FiveAndSix, |driver| {
                let input = Chunks { pointers, sizes };
                let output = Chunks { pointers: output_pointers, sizes: output_sizes };
                let (codec, options) = ($codec, &options);
                Compression {
                    codec,
                    input,
                    most,
                    chunks,
                    temp,
                    temp_bytes,
                    output,
                    options,
                    statuses,
                }
                .submit(driver, stream)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $decompress_alignments(
            options: $decompress_options,
            place: Place<'_, Alignments>,
        ) -> u32 {
            call(stringify!($decompress_alignments), Since::FiveAndSix, |_| {
                options.checked()?;
                answer(place, alignments($codec, Direction::Decompress))
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $decompress_temp_5(
            chunks: usize,
            _most: usize,
            options: $decompress_options,
            bytes: Place<'_, usize>,
            total: usize,
        ) -> u32 {
            call(stringify!($decompress_temp_5), Since::OnlyFive, |driver| {
                temp_to_decompress(driver, $codec, (chunks, total), &options, bytes)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $decompress_temp_6(
            chunks: usize,
            _most: usize,
            options: $decompress_options,
            bytes: Place<'_, usize>,
            total: usize,
            stream: u64,
        ) -> u32 {
            call(stringify!($decompress_temp_6), Since::Six, |driver| {
                if driver.initialized {
                    place(driver, stream)?;
                }
                temp_to_decompress(driver, $codec, (chunks, total), &options, bytes)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $measure(
            pointers: u64,
            sizes: u64,
            output_sizes: u64,
            chunks: usize,
            stream: u64,
        ) -> u32 {
            call(stringify!($measure), Since::FiveAndSix, |driver| {
                let input = Chunks { pointers, sizes };
                measure(driver, $codec, input, output_sizes, chunks, stream)
            })
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $decompress(
            pointers: u64,
            sizes: u64,
            buffer_sizes: u64,
            actual: u64,
            chunks: usize,
            temp: u64,
            temp_bytes: usize,
            output_pointers: u64,
            options: $decompress_options,
            statuses: u64,
            stream: u64,
        ) -> u32 {
            call(stringify!($decompress), Since::FiveAndSix, |driver| {
                let input = Chunks { pointers, sizes };
                let output = Chunks { pointers: output_pointers, sizes: buffer_sizes };
                let (codec, options) = ($codec, &options);
                Decompression {
                    codec,
                    input,
                    output,
                    actual,
                    chunks,
                    temp,
                    temp_bytes,
                    options,
                    statuses,
                }
                .submit(driver, stream)
            })
        }
    };
}

codec_functions!(
    Codec::Deflate,
    DeflateCompressOptions,
    DeflateDecompressOptions,
    nvcompBatchedDeflateCompressGetRequiredAlignments,
    nvcompBatchedDeflateCompressGetTempSizeAsync,
    nvcompBatchedDeflateCompressGetTempSize,
    nvcompBatchedDeflateCompressGetMaxOutputChunkSize,
    nvcompBatchedDeflateCompressAsync,
    nvcompBatchedDeflateDecompressGetRequiredAlignments,
    nvcompBatchedDeflateDecompressGetTempSizeAsync,
    nvcompBatchedDeflateDecompressGetTempSize,
    nvcompBatchedDeflateGetDecompressSizeAsync,
    nvcompBatchedDeflateDecompressAsync
);

codec_functions!(
    Codec::Zstd,
    ZstdCompressOptions,
    ZstdDecompressOptions,
    nvcompBatchedZstdCompressGetRequiredAlignments,
    nvcompBatchedZstdCompressGetTempSizeAsync,
    nvcompBatchedZstdCompressGetTempSize,
    nvcompBatchedZstdCompressGetMaxOutputChunkSize,
    nvcompBatchedZstdCompressAsync,
    nvcompBatchedZstdDecompressGetRequiredAlignments,
    nvcompBatchedZstdDecompressGetTempSizeAsync,
    nvcompBatchedZstdDecompressGetTempSize,
    nvcompBatchedZstdGetDecompressSizeAsync,
    nvcompBatchedZstdDecompressAsync
);
