//! OpenJPEG, loaded by its name when it is first needed: what decodes the samples.
//!
//! Refuses to know CUDA. Invariant: an image that comes out has the components, sizes and
//! depths that the header says, or there is none.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;

use super::codestream::Header;

type Codec = *mut c_void;
type Stream = *mut c_void;
type Message = unsafe extern "C" fn(*const c_char, *mut c_void);

/// The beginning of OpenJPEG's image, as far as it is read.
#[repr(C)]
struct RawImage {
    corners: [u32; 4],
    count: u32,
    color_space: c_int,
    components: *const RawComponent,
}

/// OpenJPEG's component.
#[repr(C)]
struct RawComponent {
    step: [u32; 2],
    width: u32,
    height: u32,
    origin: [u32; 2],
    precision: u32,
    bits: u32,
    is_signed: u32,
    resolutions: u32,
    factor: u32,
    samples: *const i32,
    alpha: u16,
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            /// The handle must be OpenJPEG's.
            unsafe fn find(library: *mut c_void) -> Option<Functions> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: a handle of a loaded library and a C string.
                    let $name = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                    if $name.is_null() {
                        return None;
                    }
                )*
                // SAFETY: these are the signatures of its header.
                Some(unsafe {
                    Functions {
                        $($name: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >($name),)*
                    }
                })
            }
        }
    };
}

functions! {
    opj_create_decompress: fn(c_int) -> Codec;
    opj_set_default_decoder_parameters: fn(*mut c_void);
    opj_setup_decoder: fn(Codec, *mut c_void) -> c_int;
    opj_set_error_handler: fn(Codec, Message, *mut c_void) -> c_int;
    opj_decoder_set_strict_mode: fn(Codec, c_int) -> c_int;
    opj_stream_create: fn(usize, c_int) -> Stream;
    opj_stream_set_user_data: fn(Stream, *mut c_void, *const c_void);
    opj_stream_set_user_data_length: fn(Stream, u64);
    opj_stream_set_read_function: fn(Stream, unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> usize);
    opj_stream_set_skip_function: fn(Stream, unsafe extern "C" fn(i64, *mut c_void) -> i64);
    opj_stream_set_seek_function: fn(Stream, unsafe extern "C" fn(i64, *mut c_void) -> c_int);
    opj_read_header: fn(Stream, Codec, *mut *mut RawImage) -> c_int;
    opj_decode: fn(Codec, Stream, *mut RawImage) -> c_int;
    opj_end_decompress: fn(Codec, Stream) -> c_int;
    opj_image_destroy: fn(*mut RawImage);
    opj_stream_destroy: fn(Stream);
    opj_destroy_codec: fn(Codec);
}

static LIBRARY: LazyLock<Option<Functions>> = LazyLock::new(|| {
    const NAME: &CStr = c"libopenjp2.so.7";
    // SAFETY: a C string; the library stays loaded.
    let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the name is OpenJPEG's.
    unsafe { Functions::find(library) }
});

/// Whether OpenJPEG is installed.
pub(super) fn is_there() -> bool {
    LIBRARY.is_some()
}

/// The samples of an image, by component, without gaps.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) planes: Vec<Vec<i32>>,
}

/// A stream in memory and where its reader is.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

unsafe extern "C" fn read(buffer: *mut c_void, bytes: usize, reader: *mut c_void) -> usize {
    // SAFETY: the reader that was set, which lives as long as the stream.
    let reader = unsafe { &mut *reader.cast::<Reader<'_>>() };
    let left = &reader.bytes[reader.at..];
    let bytes = bytes.min(left.len());
    if bytes == 0 {
        return usize::MAX;
    }
    // SAFETY: the buffer is as long as was asked for.
    unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), buffer.cast(), bytes) };
    reader.at += bytes;
    bytes
}

unsafe extern "C" fn skip(bytes: i64, reader: *mut c_void) -> i64 {
    // SAFETY: the reader that was set, which lives as long as the stream.
    let reader = unsafe { &mut *reader.cast::<Reader<'_>>() };
    let target = (reader.at as i64).saturating_add(bytes);
    if target < 0 || target > reader.bytes.len() as i64 {
        return -1;
    }
    reader.at = target as usize;
    bytes
}

unsafe extern "C" fn seek(target: i64, reader: *mut c_void) -> c_int {
    // SAFETY: the reader that was set, which lives as long as the stream.
    let reader = unsafe { &mut *reader.cast::<Reader<'_>>() };
    match usize::try_from(target) {
        Ok(target) if target <= reader.bytes.len() => {
            reader.at = target;
            1
        }
        _ => 0,
    }
}

unsafe extern "C" fn silence(_: *const c_char, _: *mut c_void) {}

/// More than OpenJPEG's decoder parameters, which it fills in itself.
#[repr(C, align(16))]
struct Parameters([u8; 32 << 10]);

/// Samples of an image that is decoded at all: a header of a few bytes may promise more.
const MOST: u64 = 1 << 28;

/// The image of a whole and sound stream.
pub(super) fn decode(bytes: &[u8], header: &Header) -> Option<Image> {
    let library = LIBRARY.as_ref()?;
    if header.samples() > MOST {
        return None;
    }
    let format = if header.is_jp2 { 2 } else { 0 };
    let mut parameters = Box::new(Parameters([0; 32 << 10]));
    let parameters = (&raw mut *parameters).cast::<c_void>();
    let mut reader = Reader { bytes, at: 0 };
    let mut image = null_mut();
    // SAFETY: the calls are in the order that OpenJPEG's documentation asks for, with handles
    // that are checked; the reader outlives the stream.
    unsafe {
        let codec = (library.opj_create_decompress)(format);
        let stream = (library.opj_stream_create)(1 << 16, 1);
        let mut planes = None;
        if !codec.is_null() && !stream.is_null() {
            (library.opj_set_error_handler)(codec, silence, null_mut());
            (library.opj_set_default_decoder_parameters)(parameters);
            (library.opj_stream_set_user_data)(stream, (&raw mut reader).cast(), null());
            (library.opj_stream_set_user_data_length)(stream, bytes.len() as u64);
            (library.opj_stream_set_read_function)(stream, read);
            (library.opj_stream_set_skip_function)(stream, skip);
            (library.opj_stream_set_seek_function)(stream, seek);
            let is_decoded = (library.opj_setup_decoder)(codec, parameters) != 0
                && (library.opj_decoder_set_strict_mode)(codec, 1) != 0
                && (library.opj_read_header)(stream, codec, &raw mut image) != 0
                && (library.opj_decode)(codec, stream, image) != 0
                && (library.opj_end_decompress)(codec, stream) != 0;
            if is_decoded {
                planes = copied(&*image, header);
            }
        }
        if !image.is_null() {
            (library.opj_image_destroy)(image);
        }
        if !stream.is_null() {
            (library.opj_stream_destroy)(stream);
        }
        if !codec.is_null() {
            (library.opj_destroy_codec)(codec);
        }
        planes.map(|planes| Image { planes })
    }
}

/// # Safety
/// The image must be one that OpenJPEG has decoded.
unsafe fn copied(image: &RawImage, header: &Header) -> Option<Vec<Vec<i32>>> {
    if image.count as usize != header.components.len() || image.components.is_null() {
        return None;
    }
    // SAFETY: so many components, says the image.
    let found = unsafe { std::slice::from_raw_parts(image.components, image.count as usize) };
    let plane = |(raw, told): (&RawComponent, &super::codestream::Component)| {
        let is_told = (raw.width, raw.height) == (told.width, told.height)
            && raw.precision == u32::from(told.precision)
            && (raw.is_signed != 0) == told.is_signed;
        if !is_told || raw.samples.is_null() {
            return None;
        }
        let count = raw.width as usize * raw.height as usize;
        // SAFETY: a decoded component has that many samples.
        Some(unsafe { std::slice::from_raw_parts(raw.samples, count) }.to_vec())
    };
    found.iter().zip(&header.components).map(plane).collect()
}
