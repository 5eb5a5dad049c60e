//! Codestreams for the tests, made by OpenJPEG's encoder.

use std::ffi::{c_int, c_void};

/// An image of one size for all components, and how it is encoded.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) precision: u32,
    pub(crate) is_signed: bool,
    /// By component, row by row.
    pub(crate) planes: Vec<Vec<i32>>,
    pub(crate) tile: Option<(u32, u32)>,
    pub(crate) is_lossy: bool,
    pub(crate) is_jp2: bool,
    /// How coarse the grid of all components but the first is.
    pub(crate) chroma_step: u32,
}

impl Picture {
    /// Smooth samples with some noise, over the whole range of the depth.
    pub(crate) fn new(width: usize, height: usize, count: usize, precision: u32) -> Picture {
        Picture::with_sign(width, height, count, precision, false)
    }

    pub(crate) fn with_sign(
        width: usize,
        height: usize,
        count: usize,
        precision: u32,
        is_signed: bool,
    ) -> Picture {
        let range = 1i64 << precision;
        let lowest = if is_signed { -(range / 2) } else { 0 };
        let sample = |component: usize, x: usize, y: usize| {
            let noise = (x * 7919 + y * 104_729 + component * 31) % 13;
            let value = (x * 300 + y * 170 + component * 5000 + noise) as i64;
            (lowest + value % range) as i32
        };
        let plane = |component: usize| {
            (0..width * height).map(|at| sample(component, at % width, at / width)).collect()
        };
        Picture {
            width,
            height,
            precision,
            is_signed,
            planes: (0..count).map(plane).collect(),
            tile: None,
            is_lossy: false,
            is_jp2: false,
            chroma_step: 1,
        }
    }

    pub(crate) fn bytes_per_sample(&self) -> usize {
        if self.precision <= 8 && !self.is_signed { 1 } else { 2 }
    }

    /// The samples as a decoder's output, interleaved.
    pub(crate) fn interleaved(&self) -> Vec<u8> {
        let size = self.bytes_per_sample();
        let pixels = 0..self.width * self.height;
        let samples = pixels.flat_map(|at| self.planes.iter().map(move |plane| plane[at]));
        samples.flat_map(|sample| sample.to_le_bytes().into_iter().take(size)).collect()
    }
}

#[repr(C)]
struct ComponentParameters {
    step: [u32; 2],
    size: [u32; 2],
    origin: [u32; 2],
    precision: u32,
    bits: u32,
    is_signed: u32,
}

#[repr(C)]
struct RawImage {
    corners: [u32; 4],
    count: u32,
    color_space: c_int,
    components: *mut RawComponent,
}

#[repr(C)]
struct RawComponent {
    numbers: [u32; 11],
    samples: *mut i32,
    alpha: u16,
}

/// OpenJPEG's encoder parameters, which it fills in itself, and where some of them are.
#[repr(C, align(16))]
struct Parameters([u8; 32 << 10]);

const TILE_SIZE_ON: usize = 0;
const TILE_WIDTH: usize = 12;
const TILE_HEIGHT: usize = 16;
const DISTORTION_ALLOCATION: usize = 20;
const LAYERS: usize = 4796;
const RATES: usize = 4800;
const RESOLUTIONS: usize = 5600;
const IRREVERSIBLE: usize = 5616;
const MCT: usize = 18698;

impl Parameters {
    fn set(&mut self, at: usize, value: i32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// A function of OpenJPEG's.
fn function<T: Copy>(name: &str) -> T {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: C strings; the library stays loaded; `T` is the function's type, says the caller.
    unsafe {
        let library = libc::dlopen(c"libopenjp2.so.7".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "libopenjp2.so.7 is not installed");
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null() && size_of::<T>() == size_of::<*mut c_void>());
        std::mem::transmute_copy(&found)
    }
}

unsafe extern "C" fn write(from: *mut c_void, bytes: usize, output: *mut c_void) -> usize {
    // SAFETY: the vector that was set, and as many bytes as are said.
    unsafe {
        let output = &mut *output.cast::<(Vec<u8>, usize)>();
        let end = output.1 + bytes;
        output.0.resize(output.0.len().max(end), 0);
        std::ptr::copy_nonoverlapping(from.cast(), output.0.as_mut_ptr().add(output.1), bytes);
        output.1 = end;
    }
    bytes
}

unsafe extern "C" fn skip(bytes: i64, output: *mut c_void) -> i64 {
    // SAFETY: the vector that was set.
    let output = unsafe { &mut *output.cast::<(Vec<u8>, usize)>() };
    output.1 = (output.1 as i64 + bytes) as usize;
    output.0.resize(output.0.len().max(output.1), 0);
    bytes
}

unsafe extern "C" fn seek(target: i64, output: *mut c_void) -> c_int {
    // SAFETY: the vector that was set.
    unsafe { (*output.cast::<(Vec<u8>, usize)>()).1 = target as usize };
    1
}

impl Picture {
    fn parameters(&self) -> Box<Parameters> {
        let mut parameters = Box::new(Parameters([0; 32 << 10]));
        let defaults: unsafe extern "C" fn(*mut c_void) =
            function("opj_set_default_encoder_parameters");
        // SAFETY: the place is larger than the struct.
        unsafe { defaults((&raw mut *parameters).cast()) };
        parameters.set(LAYERS, 1);
        parameters.set(DISTORTION_ALLOCATION, 1);
        parameters.set(RATES, if self.is_lossy { 5f32.to_bits() as i32 } else { 0 });
        parameters.set(IRREVERSIBLE, i32::from(self.is_lossy));
        let (mut width, mut height) = (self.width as u32, self.height as u32);
        if let Some(tile) = self.tile {
            (width, height) = tile;
            parameters.set(TILE_SIZE_ON, 1);
            parameters.set(TILE_WIDTH, width as i32);
            parameters.set(TILE_HEIGHT, height as i32);
        }
        let most = width.min(height).ilog2() as i32 + 1;
        parameters.set(RESOLUTIONS, most.min(6));
        parameters.0[MCT] = u8::from(self.planes.len() >= 3 && self.chroma_step == 1);
        parameters
    }

    fn raw(&self) -> *mut RawImage {
        let create: unsafe extern "C" fn(u32, *mut ComponentParameters, c_int) -> *mut RawImage =
            function("opj_image_create");
        let count = self.planes.len();
        let mut components: Vec<ComponentParameters> = (0..count)
            .map(|index| {
                let step = if index > 0 { self.chroma_step } else { 1 };
                ComponentParameters {
                    step: [step; 2],
                    size: [(self.width as u32).div_ceil(step), (self.height as u32).div_ceil(step)],
                    origin: [0; 2],
                    precision: self.precision,
                    bits: self.precision,
                    is_signed: u32::from(self.is_signed),
                }
            })
            .collect();
        let color_space = if count >= 3 { 1 } else { 2 };
        // SAFETY: so many components; the image that comes back has room for their samples.
        unsafe {
            let image = create(count as u32, components.as_mut_ptr(), color_space);
            (*image).corners = [0, 0, self.width as u32, self.height as u32];
            for (index, parameters) in components.iter().enumerate() {
                let samples = (*(*image).components.add(index)).samples;
                let [width, height] = parameters.size.map(|size| size as usize);
                for (at, sample) in self.planes[index].iter().take(width * height).enumerate() {
                    samples.add(at).write(*sample);
                }
            }
            image
        }
    }

    /// The picture as a codestream, or as a JP2 file.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        type Pointer = *mut c_void;
        let create: unsafe extern "C" fn(c_int) -> Pointer = function("opj_create_compress");
        let setup: unsafe extern "C" fn(Pointer, Pointer, *mut RawImage) -> c_int =
            function("opj_setup_encoder");
        let open: unsafe extern "C" fn(usize, c_int) -> Pointer = function("opj_stream_create");
        let data: unsafe extern "C" fn(Pointer, Pointer, Pointer) =
            function("opj_stream_set_user_data");
        let set: [unsafe extern "C" fn(Pointer, Pointer); 3] = [
            function("opj_stream_set_write_function"),
            function("opj_stream_set_skip_function"),
            function("opj_stream_set_seek_function"),
        ];
        let start: unsafe extern "C" fn(Pointer, *mut RawImage, Pointer) -> c_int =
            function("opj_start_compress");
        let run: [unsafe extern "C" fn(Pointer, Pointer) -> c_int; 2] =
            [function("opj_encode"), function("opj_end_compress")];
        let destroy: [unsafe extern "C" fn(Pointer); 3] = [
            function("opj_stream_destroy"),
            function("opj_destroy_codec"),
            function("opj_image_destroy"),
        ];
        let mut output = (Vec::<u8>::new(), 0usize);
        let mut parameters = self.parameters();
        // SAFETY: the order that OpenJPEG's documentation asks for; all places outlive the calls.
        unsafe {
            let (codec, image) = (create(if self.is_jp2 { 2 } else { 0 }), self.raw());
            let stream = open(1 << 16, 0);
            data(stream, (&raw mut output).cast(), std::ptr::null_mut());
            for (set, function) in
                set.into_iter().zip([write as Pointer, skip as Pointer, seek as Pointer])
            {
                set(stream, function);
            }
            assert_eq!(setup(codec, (&raw mut *parameters).cast(), image), 1);
            assert_eq!(start(codec, image, stream), 1);
            assert_eq!(run.map(|run| run(codec, stream)), [1, 1]);
            destroy[0](stream);
            destroy[1](codec);
            destroy[2](image.cast());
        }
        output.0
    }
}
