//! JPEG 2000 by OpenJPEG itself, where the system has that library, for codestreams whose components
//! differ in size: GDAL's driver takes none of these but one kind, and converts that in its own way.
//!
//! Loaded by name when first used. Warnings are failures.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::OnceLock;

/// `opj_image_comp_t`, the same since version 2.1.
#[repr(C)]
struct Component {
    steps: [u32; 2],
    width: u32,
    height: u32,
    origin: [u32; 2],
    bits: u32,
    _obsolete: u32,
    signed: u32,
    resolutions: u32,
    factor: u32,
    data: *const i32,
    alpha: u16,
}

/// The beginning of `opj_image_t`.
#[repr(C)]
struct RawImage {
    corners: [u32; 4],
    count: u32,
    colour_space: c_int,
    components: *const Component,
}

/// Room for `opj_dparameters_t`, of which 2.5 uses 8252 bytes.
const PARAMETERS_WORDS: usize = (16 << 10) / 8;
/// A codestream without a file around it.
const J2K: c_int = 0;
/// Bytes that OpenJPEG asks for at once.
const BUFFER: usize = 1 << 20;

type Handler = unsafe extern "C" fn(*const c_char, *mut c_void);
type SetHandler = unsafe extern "C" fn(*mut c_void, Handler, *mut c_void) -> c_int;
type OnBoth = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

macro_rules! library {
    ($($field:ident: $symbol:literal, $kind:ty;)*) => {
        struct Library { $($field: $kind,)* }

        fn load() -> Option<Library> {
            // SAFETY: a library by its soname, which stands for this interface, is kept for the
            // life of the process; the functions have these types in its header.
            unsafe {
                let name = c"libopenjp2.so.7".as_ptr();
                let handle = libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL);
                if handle.is_null() {
                    return None;
                }
                Some(Library { $($field: {
                    let found = libc::dlsym(handle, $symbol.as_ptr());
                    if found.is_null() {
                        return None;
                    }
                    std::mem::transmute::<*mut c_void, $kind>(found)
                },)* })
            }
        }
    };
}

library! {
    create: c"opj_create_decompress", unsafe extern "C" fn(c_int) -> *mut c_void;
    destroy: c"opj_destroy_codec", unsafe extern "C" fn(*mut c_void);
    defaults: c"opj_set_default_decoder_parameters", unsafe extern "C" fn(*mut c_void);
    set_up: c"opj_setup_decoder", OnBoth;
    on_warning: c"opj_set_warning_handler", SetHandler;
    on_error: c"opj_set_error_handler", SetHandler;
    stream: c"opj_stream_create", unsafe extern "C" fn(usize, c_int) -> *mut c_void;
    stream_destroy: c"opj_stream_destroy", unsafe extern "C" fn(*mut c_void);
    stream_data: c"opj_stream_set_user_data",
        unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void);
    stream_length: c"opj_stream_set_user_data_length", unsafe extern "C" fn(*mut c_void, u64);
    stream_read: c"opj_stream_set_read_function", unsafe extern "C" fn(*mut c_void,
        unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> usize);
    stream_skip: c"opj_stream_set_skip_function", unsafe extern "C" fn(*mut c_void,
        unsafe extern "C" fn(i64, *mut c_void) -> i64);
    stream_seek: c"opj_stream_set_seek_function", unsafe extern "C" fn(*mut c_void,
        unsafe extern "C" fn(i64, *mut c_void) -> c_int);
    read_header: c"opj_read_header",
        unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut RawImage) -> c_int;
    decode: c"opj_decode",
        unsafe extern "C" fn(*mut c_void, *mut c_void, *mut RawImage) -> c_int;
    image_destroy: c"opj_image_destroy", unsafe extern "C" fn(*mut RawImage);
}

fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref()
}

/// The codestream, and where OpenJPEG is in it.
struct Source<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Source<'_> {
    /// Goes to a place in the stream, if it is in there.
    fn go(&mut self, to: i64) -> bool {
        let to = usize::try_from(to).ok().filter(|to| *to <= self.bytes.len());
        self.at = to.unwrap_or(self.at);
        to.is_some()
    }
}

unsafe extern "C" fn read(to: *mut c_void, len: usize, source: *mut c_void) -> usize {
    // SAFETY: OpenJPEG hands back the `Source` of this call, and room for `len` bytes.
    unsafe {
        let source = &mut *source.cast::<Source<'_>>();
        let rest = &source.bytes[source.at..];
        let len = len.min(rest.len());
        std::ptr::copy_nonoverlapping(rest.as_ptr(), to.cast(), len);
        source.at += len;
        // What it takes for the end.
        if len == 0 { usize::MAX } else { len }
    }
}

unsafe extern "C" fn skip(len: i64, source: *mut c_void) -> i64 {
    // SAFETY: as above.
    let source = unsafe { &mut *source.cast::<Source<'_>>() };
    let to = i64::try_from(source.at).unwrap_or(i64::MAX).saturating_add(len);
    if source.go(to) { len } else { -1 }
}

unsafe extern "C" fn seek(to: i64, source: *mut c_void) -> c_int {
    // SAFETY: as above.
    let source = unsafe { &mut *source.cast::<Source<'_>>() };
    c_int::from(source.go(to))
}

unsafe extern "C" fn complain(_text: *const c_char, said: *mut c_void) {
    // SAFETY: the flag of this call.
    unsafe { *said.cast::<bool>() = true };
}

/// What is destroyed with a call.
struct Call {
    library: &'static Library,
    codec: *mut c_void,
    stream: *mut c_void,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once.
        unsafe {
            if !self.codec.is_null() {
                (self.library.destroy)(self.codec);
            }
            if !self.stream.is_null() {
                (self.library.stream_destroy)(self.stream);
            }
        }
    }
}

/// A decoded image.
pub(super) struct Image {
    library: &'static Library,
    raw: *mut RawImage,
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once.
        unsafe { (self.library.image_destroy)(self.raw) };
    }
}

impl Image {
    /// Samples of a component, if it has this size.
    pub(super) fn component(&self, index: usize, [width, height]: [usize; 2]) -> Option<&[i32]> {
        // SAFETY: OpenJPEG's image, whose components have samples for their size.
        unsafe {
            let raw = &*self.raw;
            if index >= raw.count as usize || raw.components.is_null() {
                return None;
            }
            let component = &*raw.components.add(index);
            let size = [component.width as usize, component.height as usize];
            if size != [width, height] || component.data.is_null() {
                return None;
            }
            Some(&*slice_from_raw_parts(component.data, width * height))
        }
    }
}

/// Decodes a codestream.
pub(super) fn decode(stream: &[u8]) -> Result<Image, String> {
    let library = library().ok_or(
        "its components differ in size, and libopenjp2.so.7, which decodes these, is not there",
    )?;
    let (mut source, mut said) = (Source { bytes: stream, at: 0 }, false);
    let mut parameters = vec![0u64; PARAMETERS_WORDS];
    let failed = "OpenJPEG does not take it";
    // SAFETY: as OpenJPEG's header says; source, flag and parameters outlive the call's codec and
    // stream, and the parameters have room for the struct.
    unsafe {
        let call = Call {
            library,
            codec: (library.create)(J2K),
            stream: (library.stream)(BUFFER.min(stream.len().max(1)), 1),
        };
        if call.codec.is_null() || call.stream.is_null() {
            return Err("no memory for OpenJPEG".into());
        }
        let said = (&raw mut said).cast();
        (library.on_warning)(call.codec, complain, said);
        (library.on_error)(call.codec, complain, said);
        (library.stream_data)(call.stream, (&raw mut source).cast(), null_mut());
        (library.stream_length)(call.stream, stream.len() as u64);
        (library.stream_read)(call.stream, read);
        (library.stream_skip)(call.stream, skip);
        (library.stream_seek)(call.stream, seek);
        (library.defaults)(parameters.as_mut_ptr().cast());
        let mut raw = null_mut();
        let ready = (library.set_up)(call.codec, parameters.as_mut_ptr().cast()) != 0
            && (library.read_header)(call.stream, call.codec, &mut raw) != 0;
        if raw.is_null() {
            return Err(failed.into());
        }
        let image = Image { library, raw };
        let decoded = ready && (library.decode)(call.codec, call.stream, raw) != 0;
        if decoded && !*said.cast::<bool>() { Ok(image) } else { Err(failed.into()) }
    }
}
