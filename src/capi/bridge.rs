//! The shapes that cross between Rust and the shim. `src/shim/bridge.h` says the
//! same in C; both are plain data.

use std::ffi::{c_char, c_int, c_void};

use super::handles::{File, Image};
use super::output::Output;
use super::written::Unfinished;
use crate::tiff::overlay::Patch;

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
    /// The caller works on one window while it asks for the next.
    pub pipelined: c_int,
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

/// What is asked of a file to be written.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Creation {
    /// The file's name.
    pub path: *const c_char,
    /// NAME=VALUE, NULL-terminated.
    pub options: *const *const c_char,
    /// GTiff's list of creation options.
    pub gtiff_xml: *const c_char,
    /// Columns.
    pub width: c_int,
    /// Rows.
    pub height: c_int,
    /// Bytes of a sample.
    pub sample_bytes: c_int,
    /// Samples are floating-point numbers.
    pub floats: c_int,
    /// In GTiff's place.
    pub as_gtiff: c_int,
    /// The target can only be written from front to back.
    pub stream: c_int,
    /// Receives the rows of a hollow file that has a block row, if not two.
    pub hollow_rows: *mut c_int,
}

/// A file to be written.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Where it shall be.
    pub path: *const c_char,
    /// Where GTiff made the same without pixels, a block row high.
    pub hollow: *const c_char,
    /// The user's options.
    pub options: *const *const c_char,
    /// What became of them for GTiff.
    pub gtiff_options: *const *const c_char,
    /// Rows.
    pub height: c_int,
    /// GDAL type of samples.
    pub kind: c_int,
    /// Bytes of that type.
    pub sample_bytes: c_int,
    /// It gets its name when it is finished, where that can be had.
    pub unnamed: c_int,
}

/// Pixels to be filled in while an image is copied.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Swath {
    /// Left column.
    pub x: c_int,
    /// Top row.
    pub y: c_int,
    /// Columns.
    pub width: c_int,
    /// Rows.
    pub height: c_int,
    /// First band, from 1.
    pub first_band: c_int,
    /// How many.
    pub band_count: c_int,
    /// Where the first sample goes.
    pub data: *mut c_void,
    /// Bytes from a pixel to the next.
    pub pixel_space: i64,
    /// Bytes from a line to the next.
    pub line_space: i64,
    /// Bytes from a band to the next.
    pub band_space: i64,
    /// Share of the image that is done with this.
    pub done: f64,
}

/// What the shim may call.
#[repr(C)]
pub struct Api {
    /// Options as XML, without the list around them; static. 0: for opening, 1: for creating.
    pub options_xml: extern "C" fn(c_int) -> *const c_char,
    /// Whether a plain open should be taken.
    pub gpu_looks_usable: extern "C" fn() -> c_int,
    /// A file with its options and, if it is open already, its VSI handle, which is not
    /// kept; NULL after an error was raised. For a claimed file (1) no error is raised: GTiff
    /// opens it instead.
    pub file_open:
        unsafe extern "C" fn(*const c_char, *const *const c_char, *mut c_void, c_int) -> *mut File,
    /// Another file that belongs to the same dataset (an external overview).
    pub file_beside: unsafe extern "C" fn(*const File, *const c_char) -> *mut File,
    /// Frees it. Images keep what they need.
    pub file_free: unsafe extern "C" fn(*mut File),
    /// What to change so that GTiff can open the file, although it has no codec for its tiles; to
    /// only one directory if one is named as GTIFF_DIR has it ("3", "off:1000"). NULL if what is
    /// asked for is absent or not ours alone. Stays while the file does; offsets grow.
    pub file_overlay: unsafe extern "C" fn(*mut File, *const c_char, *mut usize) -> *const Patch,
    /// Whether GTiff has no codec for the tiles of the directory at this offset (0: the first).
    pub file_is_overlaid: unsafe extern "C" fn(*const File, u64) -> c_int,
    /// Raises the error for pixels of that directory that neither we nor GTiff can read.
    pub file_refuse: unsafe extern "C" fn(*const File, u64, *const c_char),
    /// Threads for the inner dataset.
    pub file_threads: unsafe extern "C" fn(*const File) -> c_int,
    /// Whether the file system is not one of GDAL's own: there may be one handle of a file only.
    pub file_is_foreign: unsafe extern "C" fn(*const File) -> c_int,
    /// GDAL has the file open that it was opened by, until it is freed.
    pub file_rely_on_gdal: unsafe extern "C" fn(*const File),
    /// Counters and facts for the metadata domain.
    pub file_describe: unsafe extern "C" fn(*const File, *mut c_void, Emit),
    /// Counts what is passed to GTiff: 0 a request, 1 a block, 2 a file to be written.
    pub file_count_gtiff: unsafe extern "C" fn(*const File, c_int),
    /// An image that our engines decode, or NULL without an error.
    pub image_open: unsafe extern "C" fn(*const File, *const ImageFacts) -> *mut Image,
    /// Frees it.
    pub image_free: unsafe extern "C" fn(*mut Image),
    /// Reads; 0 on success, 1 after an error was raised, 2 if GTiff must be asked
    /// for everything after all.
    pub image_read: unsafe extern "C" fn(*const Image, *const Request) -> c_int,
    /// Whether GTiff is to serve what is not asked for pixel by pixel.
    pub image_leaves_resampling: unsafe extern "C" fn(*const Image) -> c_int,
    /// Checks creation options and emits those for GTiff; 0 after an error was raised, 1 if
    /// the file may be ours, 2 if GTiff shall write it.
    pub creation_prepare: unsafe extern "C" fn(*const Creation, *mut c_void, Emit) -> c_int,
    /// Makes the target; NULL after an error was raised or, with the flag set, if GTiff shall
    /// write the file.
    pub output_create: unsafe extern "C" fn(*const File, *const Target, *mut c_int) -> *mut Output,
    /// Adds the mask that the hollow file has now; its image number, or -1.
    pub output_add_mask: unsafe extern "C" fn(*mut Output, *const c_char, c_int) -> c_int,
    /// Says what stands where nothing was written: one sample; NULL if bands differ in it, so that no
    /// tile is left out.
    pub output_set_fill: unsafe extern "C" fn(*mut Output, *const c_void),
    /// Writes a window; 0 on success.
    pub output_write: unsafe extern "C" fn(*mut Output, c_int, *const Request) -> c_int,
    /// Reads a block back: image, band from 1, column, row; 0 on success.
    pub output_read:
        unsafe extern "C" fn(*mut Output, c_int, c_int, c_int, c_int, *mut c_void) -> c_int,
    /// How many pixels of a window (x, y, width, height) of a band were written; -1 after an
    /// error was raised.
    pub output_written: unsafe extern "C" fn(*mut Output, c_int, c_int, *const c_int) -> i64,
    /// Begins to copy an image: rows of the source's blocks, whether it gives all bands at once more
    /// cheaply, and its tiles or NULL.
    pub output_copy: unsafe extern "C" fn(*mut Output, c_int, c_int, c_int, *const Image),
    /// What is to be filled in next: 1; nothing, for now: 2; 0 when all is done, -1 after an error was
    /// raised.
    pub output_swath: unsafe extern "C" fn(*mut Output, *mut Swath) -> c_int,
    /// It was filled in; 0 on success.
    pub output_take: unsafe extern "C" fn(*mut Output) -> c_int,
    /// Copies the tiles of an image as they are: 1 done, 0 source and target do not agree,
    /// -1 after an error was raised. The flag says that the same stands for missing data in
    /// all bands; the callback is told the share that is done.
    pub output_copy_tiles: unsafe extern "C" fn(
        *mut Output,
        *const Image,
        c_int,
        *mut c_void,
        unsafe extern "C" fn(*mut c_void, f64) -> c_int,
    ) -> c_int,
    /// The first pixel comes: the hollow file has the tags now that tiles are encoded for. 0 on success.
    pub output_settle: unsafe extern "C" fn(*mut Output, *const c_char) -> c_int,
    /// Makes what was written readable; tags come from the hollow file. 0 on success.
    pub output_flush: unsafe extern "C" fn(*mut Output, *const c_char) -> c_int,
    /// The target's name where files that GDAL makes beside it have no name either before the copy is
    /// finished; NULL where there is nothing like that. Stays while the output does.
    pub output_beside: unsafe extern "C" fn(*const Output) -> *const c_char,
    /// Finishes the file and closes it; 0 on success.
    pub output_finish: unsafe extern "C" fn(*mut Output, *const c_char) -> c_int,
    /// Finishes a copy: the callback puts what belongs beside the file there, right before the file
    /// opens under its name; 0 on success.
    pub output_finish_copy: unsafe extern "C" fn(
        *mut Output,
        *const c_char,
        *mut c_void,
        unsafe extern "C" fn(*mut c_void) -> c_int,
    ) -> c_int,
    /// Frees it; with the flag set the file is removed.
    pub output_free: unsafe extern "C" fn(*mut Output, c_int),
    /// The number of directories of a file; -1 if it cannot be read.
    pub written_count: unsafe extern "C" fn(*const c_char) -> i64,
    /// Checks that a file which GTiff wrote has its tiles: its name, the name for messages, how many
    /// directories were there before, and which of the others have all tiles (0 none, 1 images, 2
    /// overviews and masks too). 0 if they are there, or if the file cannot be read back.
    pub written_check: unsafe extern "C" fn(*const c_char, *const c_char, i64, c_int) -> c_int,
    /// Begins a copy that GTiff writes and that has no name until it is finished; NULL where that cannot
    /// be had, or where the disk has no room for so many bytes, which GTiff shall say.
    pub unfinished_begin: unsafe extern "C" fn(*const c_char, i64) -> *mut Unfinished,
    /// The name that GTiff is told. Stays while the handle does.
    pub unfinished_name: unsafe extern "C" fn(*const Unfinished) -> *const c_char,
    /// Gives the copy its name, after what GTiff wrote beside it; 0 on success.
    pub unfinished_publish: unsafe extern "C" fn(*mut Unfinished) -> c_int,
    /// Frees it; what was not published leaves nothing.
    pub unfinished_free: unsafe extern "C" fn(*mut Unfinished),
}
