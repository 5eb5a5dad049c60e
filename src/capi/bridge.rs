//! The shapes that cross between Rust and the shim. `src/shim/bridge.h` says the
//! same in C; both are plain data.

use std::ffi::{c_char, c_int, c_void};

use super::handles::{File, Image};

/// A block of GDAL's cache, locked.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// The GDALRasterBlock.
    pub handle: *mut c_void,
    /// Its pixels.
    pub data: *mut c_void,
}

/// What Rust may ask of GDAL during a request, on the calling thread only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Callbacks {
    /// First argument of the rest.
    pub context: *mut c_void,
    /// Locks a block that is in GDAL's cache; 0 if it is not.
    pub find: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut Block) -> c_int,
    /// Makes a block in GDAL's cache and locks it; 0 if that failed.
    pub make: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut Block) -> c_int,
    /// Unlocks; a block that is not kept is dropped from the cache.
    pub release: unsafe extern "C" fn(*mut c_void, *const Block, c_int),
    /// Writes the sample that stands for missing data, 16 bytes at most.
    pub fill: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void),
    /// Asks GTiff; 0 on success, else its message is in the buffer.
    pub redo: unsafe extern "C" fn(*mut c_void, *const Redo) -> c_int,
    /// Tells how much of the request is done; 0 if the user wants to stop.
    pub progress: unsafe extern "C" fn(*mut c_void, f64) -> c_int,
}

/// A part of a request that GTiff shall serve.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Redo {
    /// Left column.
    pub x: c_int,
    /// Top row.
    pub y: c_int,
    /// Columns.
    pub width: c_int,
    /// Rows.
    pub height: c_int,
    /// Bands, from 1.
    pub bands: *const c_int,
    /// How many.
    pub band_count: c_int,
    /// Where the first pixel of the first band goes.
    pub data: *mut c_void,
    /// Receives GTiff's message.
    pub message: *mut c_char,
    /// Size of that buffer.
    pub message_size: usize,
}

/// Pixels wanted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Left column.
    pub x: c_int,
    /// Top row.
    pub y: c_int,
    /// Columns.
    pub width: c_int,
    /// Rows.
    pub height: c_int,
    /// Bands, from 1.
    pub bands: *const c_int,
    /// How many.
    pub band_count: c_int,
    /// GDAL type of the buffer.
    pub kind: c_int,
    /// The buffer.
    pub data: *mut c_void,
    /// Bytes from a pixel to the next.
    pub pixel_space: i64,
    /// Bytes from a line to the next.
    pub line_space: i64,
    /// Bytes from a band to the next.
    pub band_space: i64,
    /// The buffer is one whole block of GDAL's, padding included.
    pub whole_block: c_int,
    /// Bytes that GDAL's cache may hold.
    pub cache_max: i64,
    /// GDAL.
    pub callbacks: Callbacks,
}

/// What GDAL says of an image.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ImageFacts {
    /// Where its directory is; 0 for the first.
    pub ifd_offset: u64,
    /// Raster width.
    pub width: c_int,
    /// Raster height.
    pub height: c_int,
    /// Bands.
    pub bands: c_int,
    /// GDAL type.
    pub kind: c_int,
    /// Bytes of that type.
    pub sample_bytes: c_int,
    /// Block width.
    pub block_width: c_int,
    /// Block height.
    pub block_height: c_int,
    /// 0, or what a set bit of a mask becomes.
    pub bit: c_int,
    /// Where GTiff says the first tile is, or 0.
    pub first_tile: u64,
    /// GTiff shows other colours than the file has samples.
    pub converted: c_int,
}

/// Takes a name and a value.
pub type Emit = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// What the shim may call.
#[repr(C)]
pub struct Api {
    /// Options as XML, without the list around them; static.
    pub options_xml: extern "C" fn() -> *const c_char,
    /// Whether a plain open should be taken.
    pub gpu_looks_usable: extern "C" fn() -> c_int,
    /// A file with its options and, if it is open already, its VSI handle, which is not
    /// kept; NULL after an error was raised.
    pub file_open:
        unsafe extern "C" fn(*const c_char, *const *const c_char, *mut c_void) -> *mut File,
    /// Another file that belongs to the same dataset (an external overview).
    pub file_beside: unsafe extern "C" fn(*const File, *const c_char) -> *mut File,
    /// Frees it. Images keep what they need.
    pub file_free: unsafe extern "C" fn(*mut File),
    /// Threads for the inner dataset.
    pub file_threads: unsafe extern "C" fn(*const File) -> c_int,
    /// Counters and facts for the metadata domain.
    pub file_describe: unsafe extern "C" fn(*const File, *mut c_void, Emit),
    /// Counts what is passed to GTiff: 0 a request, 1 a block.
    pub file_count_gtiff: unsafe extern "C" fn(*const File, c_int),
    /// An image that our engines decode, or NULL without an error.
    pub image_open: unsafe extern "C" fn(*const File, *const ImageFacts) -> *mut Image,
    /// Frees it.
    pub image_free: unsafe extern "C" fn(*mut Image),
    /// Reads; 0 on success, 1 after an error was raised, 2 if GTiff must be asked
    /// for everything after all.
    pub image_read: unsafe extern "C" fn(*const Image, *const Request) -> c_int,
}
