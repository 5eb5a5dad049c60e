//! nvCOMP's batched Deflate and ZSTD, of the 5.x and the 6.x kind.
//!
//! The two differ in the names and arguments of the functions that tell temporary sizes, so the
//! version decides, never the presence of a symbol: 4.x has one of the names with other arguments.

use std::ffi::c_void;

use super::driver::{Answer, Device, Fault, Stream};
use super::library::Library;
use crate::engine::Codec;

/// Options of any call: 64 bytes by value, what is reserved is zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Options {
    words: [i32; 16],
}

impl Options {
    fn first(word: i32) -> Options {
        let mut words = [0; 16];
        words[0] = word;
        Options { words }
    }
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Properties {
    version: u32,
    cudart: u32,
}

/// What a library demands of addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Alignments {
    /// Of input chunks.
    pub(super) input: usize,
    /// Of output chunks.
    pub(super) output: usize,
    /// Of temporary memory.
    pub(super) temporary: usize,
}

type Status = i32;
type Pointers = u64;
type TempSize5 = unsafe extern "C" fn(usize, usize, Options, *mut usize, usize) -> Status;
type TempSize6 =
    unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, *mut c_void) -> Status;
type MaxOutput = unsafe extern "C" fn(usize, Options, *mut usize) -> Status;
type Require = unsafe extern "C" fn(Options, *mut Alignments) -> Status;
type Compress = unsafe extern "C" fn(
    Pointers,
    Pointers,
    usize,
    usize,
    u64,
    usize,
    Pointers,
    Pointers,
    Options,
    Pointers,
    *mut c_void,
) -> Status;
type Decompress = unsafe extern "C" fn(
    Pointers,
    Pointers,
    Pointers,
    Pointers,
    usize,
    u64,
    usize,
    Pointers,
    Options,
    Pointers,
    *mut c_void,
) -> Status;

#[derive(Clone, Copy)]
enum TempSize {
    Five(TempSize5),
    Six(TempSize6),
}

/// One codec of the library.
#[derive(Clone, Copy)]
struct Format {
    compress_temp: TempSize,
    decompress_temp: TempSize,
    max_output: MaxOutput,
    compress_needs: Require,
    decompress_needs: Require,
    compress: Compress,
    decompress: Decompress,
}

/// The library.
pub(super) struct NvComp {
    /// As it says: 6000 is 6.0.0.
    pub(super) version: u32,
    deflate: Format,
    zstd: Format,
}

/// Why a library that was found is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Not nvCOMP, or symbols are missing.
    Incomplete,
    /// Another version than 5.x or 6.x.
    Version(u32),
    /// Made for a later CUDA than the driver knows.
    Cuda(u32),
}

/// Device tables of a batch: addresses of arrays in device memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    /// Addresses of the input chunks.
    pub(super) inputs: u64,
    /// Their sizes.
    pub(super) input_bytes: u64,
    /// Addresses of the output chunks.
    pub(super) outputs: u64,
    /// Decompressing: room for each. Compressing: not used.
    pub(super) room: u64,
    /// Sizes that came out.
    pub(super) output_bytes: u64,
    /// A status for each, set to something else than success before.
    pub(super) statuses: u64,
    /// Chunks.
    pub(super) count: usize,
    /// Bytes of the largest chunk, raw.
    pub(super) largest: usize,
    /// Temporary memory.
    pub(super) temporary: u64,
    /// Its size.
    pub(super) temporary_bytes: usize,
}

fn check(call: &'static str, status: Status) -> Answer<()> {
    match status {
        0 => Ok(()),
        code => Err(Fault { call, code, nvcomp: true }),
    }
}

impl NvComp {
    /// Takes what a library offers. `cuda_major` is the driver's.
    pub(super) fn new(library: Library, cuda_major: u32) -> Result<NvComp, Unfit> {
        type Get = unsafe extern "C" fn(*mut Properties) -> Status;
        // SAFETY: the type as in nvcomp.h, the same in all versions.
        let get = unsafe { library.function::<Get>("nvcompGetProperties") };
        let mut properties = Properties::default();
        // SAFETY: fills the struct.
        let known = get.is_some_and(|get| unsafe { get(&mut properties) } == 0);
        if !known {
            return Err(Unfit::Incomplete);
        }
        let six = match properties.version / 1000 {
            5 => false,
            6 => true,
            _ => return Err(Unfit::Version(properties.version)),
        };
        if properties.cudart / 1000 > cuda_major {
            return Err(Unfit::Cuda(properties.cudart));
        }
        // SAFETY: the version was read.
        let format = |name| unsafe { Format::new(library, name, six) }.ok_or(Unfit::Incomplete);
        Ok(NvComp {
            version: properties.version,
            deflate: format("Deflate")?,
            zstd: format("Zstd")?,
        })
    }

    fn format(&self, codec: Codec) -> &Format {
        match codec {
            Codec::Zstd => &self.zstd,
            _ => &self.deflate,
        }
    }

    /// What compressing or decompressing demands.
    pub(super) fn alignments(&self, codec: Codec, effort: Option<i32>) -> Answer<Alignments> {
        let format = self.format(codec);
        let mut found = Alignments::default();
        let (ask, options) = match effort {
            Some(effort) => (format.compress_needs, compress_options(codec, effort)),
            None => (format.decompress_needs, Options::first(0)),
        };
        // SAFETY: fills the struct.
        check("nvcompGetRequiredAlignments", unsafe { ask(options, &mut found) })?;
        Ok(found)
    }

    /// Temporary bytes to decompress `count` chunks of `bytes`.
    pub(super) fn decompress_temp(
        &self,
        codec: Codec,
        count: usize,
        bytes: usize,
    ) -> Answer<usize> {
        self.format(codec).decompress_temp.ask(Options::first(0), count, bytes)
    }

    /// Temporary bytes to compress `count` chunks of `bytes`.
    pub(super) fn compress_temp(
        &self,
        codec: Codec,
        effort: i32,
        count: usize,
        bytes: usize,
    ) -> Answer<usize> {
        self.format(codec).compress_temp.ask(compress_options(codec, effort), count, bytes)
    }

    /// The most that a chunk of `bytes` may become.
    pub(super) fn max_output(&self, codec: Codec, effort: i32, bytes: usize) -> Answer<usize> {
        let mut most = 0;
        let options = compress_options(codec, effort);
        // SAFETY: fills the number.
        let status = unsafe { (self.format(codec).max_output)(bytes, options, &mut most) };
        check("nvcompCompressGetMaxOutputChunkSize", status)?;
        Ok(most)
    }

    /// Decompresses on a stream.
    ///
    /// # Safety
    /// The tables must be device memory of ours, with what they point to, and nobody else's until
    /// the stream has come past this.
    pub(super) unsafe fn decompress(
        &self,
        codec: Codec,
        tables: &Tables,
        stream: &Stream,
        device: &Device,
    ) -> Answer<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe {
            (self.format(codec).decompress)(
                tables.inputs,
                tables.input_bytes,
                tables.room,
                tables.output_bytes,
                tables.count,
                tables.temporary,
                tables.temporary_bytes,
                tables.outputs,
                Options::first(0),
                tables.statuses,
                stream.raw(),
            )
        };
        run("nvcompDecompressAsync", device, call)
    }

    /// Compresses on a stream.
    ///
    /// # Safety
    /// As for `decompress`.
    pub(super) unsafe fn compress(
        &self,
        codec: Codec,
        effort: i32,
        tables: &Tables,
        stream: &Stream,
        device: &Device,
    ) -> Answer<()> {
        // SAFETY: the caller's promise.
        let call = || unsafe {
            (self.format(codec).compress)(
                tables.inputs,
                tables.input_bytes,
                tables.largest,
                tables.count,
                tables.temporary,
                tables.temporary_bytes,
                tables.outputs,
                tables.output_bytes,
                compress_options(codec, effort),
                tables.statuses,
                stream.raw(),
            )
        };
        run("nvcompCompressAsync", device, call)
    }
}

/// Calls nvCOMP unless the device must be left alone.
fn run(call: &'static str, device: &Device, question: impl FnOnce() -> Status) -> Answer<()> {
    device.ask(call, || Ok(question())).and_then(|status| check(call, status))
}

/// ZSTD has no levels here.
fn compress_options(codec: Codec, effort: i32) -> Options {
    Options::first(if codec == Codec::Zstd { 0 } else { effort })
}

impl TempSize {
    fn ask(self, options: Options, count: usize, bytes: usize) -> Answer<usize> {
        let (mut size, total) = (0, count.saturating_mul(bytes));
        // SAFETY: both fill the number; host-side questions on the default stream.
        let status = unsafe {
            match self {
                TempSize::Five(ask) => ask(count, bytes, options, &mut size, total),
                TempSize::Six(ask) => {
                    ask(count, bytes, options, &mut size, total, std::ptr::null_mut())
                }
            }
        };
        check("nvcompGetTempSize", status)?;
        Ok(size)
    }
}

impl Format {
    /// # Safety
    /// The library must be nvCOMP 5.x, or 6.x if `six`.
    unsafe fn new(library: Library, name: &str, six: bool) -> Option<Format> {
        let batched = |what: &str| format!("nvcompBatched{name}{what}");
        // SAFETY: the caller's promise: the types are those of that version's headers.
        unsafe {
            let temp = |direction: &str| match six {
                true => {
                    let name = batched(&format!("{direction}GetTempSize"));
                    library.function(&name).map(TempSize::Six)
                }
                false => {
                    let name = batched(&format!("{direction}GetTempSizeAsync"));
                    library.function(&name).map(TempSize::Five)
                }
            };
            Some(Format {
                compress_temp: temp("Compress")?,
                decompress_temp: temp("Decompress")?,
                max_output: library.function(&batched("CompressGetMaxOutputChunkSize"))?,
                compress_needs: library.function(&batched("CompressGetRequiredAlignments"))?,
                decompress_needs: library.function(&batched("DecompressGetRequiredAlignments"))?,
                compress: library.function(&batched("CompressAsync"))?,
                decompress: library.function(&batched("DecompressAsync"))?,
            })
        }
    }
}
