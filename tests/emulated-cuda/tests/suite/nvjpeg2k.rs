//! nvJPEG2000: what comes out of a decode, when, and with whose memory.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use emulated_cuda::api::memory::{cuMemAlloc_v2, cuMemFree_v2, cuMemsetD8Async};
use emulated_cuda::api::pinned::{cuMemFreeHost, cuMemHostAlloc};
use emulated_cuda::api::stream::cuStreamSynchronize;
use emulated_cuda::nvjpeg2k::api::{
    nvjpeg2kCreateSimple, nvjpeg2kCreateV2, nvjpeg2kDecodeParamsCreate,
    nvjpeg2kDecodeParamsDestroy, nvjpeg2kDecodeParamsSetOutputFormat, nvjpeg2kDecodeStateCreate,
    nvjpeg2kDecodeStateDestroy, nvjpeg2kDestroy, nvjpeg2kGetProperty,
    nvjpeg2kSetDeviceMemoryPadding, nvjpeg2kStreamCreate, nvjpeg2kStreamDestroy,
    nvjpeg2kStreamGetColorSpace, nvjpeg2kStreamGetImageComponentInfo, nvjpeg2kStreamGetImageInfo,
    nvjpeg2kStreamGetResolutionsInTile, nvjpeg2kStreamGetTileComponentDim,
};
use emulated_cuda::nvjpeg2k::submit::{nvjpeg2kDecodeImage, nvjpeg2kStreamParse};
use emulated_cuda::nvjpeg2k::{DeviceAllocatorV2, Image};

use crate::case::{allocate, ask, download, isolated, ok, start, stream, upload};
use crate::j2k::Picture;
use crate::json::Json;

/// A handle, a state, a bitstream, interleaved output and a CUDA stream.
#[derive(Clone, Copy)]
pub(crate) struct Decoder {
    pub(crate) library: u64,
    pub(crate) state: u64,
    pub(crate) bits: u64,
    pub(crate) parameters: u64,
    pub(crate) stream: u64,
}

impl Decoder {
    pub(crate) fn new(library: u64) -> Decoder {
        let parameters = ask(|place| nvjpeg2kDecodeParamsCreate(place)).unwrap();
        ok(nvjpeg2kDecodeParamsSetOutputFormat(parameters, 1));
        Decoder {
            library,
            state: ask(|place| nvjpeg2kDecodeStateCreate(library, place)).unwrap(),
            bits: ask(|place| nvjpeg2kStreamCreate(place)).unwrap(),
            parameters,
            stream: stream(),
        }
    }

    pub(crate) fn simple() -> Decoder {
        Decoder::new(ask(|place| nvjpeg2kCreateSimple(place)).unwrap())
    }

    pub(crate) fn parse(&self, bytes: &[u8]) -> u32 {
        // SAFETY: the slice is that long.
        unsafe { nvjpeg2kStreamParse(self.library, bytes.as_ptr(), bytes.len(), 0, 0, self.bits) }
    }

    pub(crate) fn submit(&self, planes: &[u64], pitch: usize, kind: u32, count: u32) -> u32 {
        let pitches = vec![pitch; planes.len()];
        let image = Image {
            pixel_data: planes.as_ptr(),
            pitch_in_bytes: pitches.as_ptr(),
            pixel_type: kind,
            num_components: count,
        };
        let Decoder { library, state, bits, parameters, stream } = *self;
        nvjpeg2kDecodeImage(library, state, bits, parameters, Some(&image), stream)
    }

    /// Submits the decode of a picture, interleaved and without gaps.
    pub(crate) fn decode(&self, picture: &Picture, target: u64) -> u32 {
        let count = picture.planes.len();
        let pitch = picture.width * count * picture.bytes_per_sample();
        self.submit(&[target], pitch, kind(picture), count as u32)
    }

    pub(crate) fn destroy(&self) {
        ok(nvjpeg2kDecodeStateDestroy(self.state));
        ok(nvjpeg2kStreamDestroy(self.bits));
        ok(nvjpeg2kDecodeParamsDestroy(self.parameters));
    }
}

/// The type that fits best.
pub(crate) fn kind(picture: &Picture) -> u32 {
    match (picture.is_signed, picture.precision) {
        (true, _) => 2,
        (false, ..=8) => 0,
        (false, _) => 1,
    }
}

#[test]
fn lossless_samples_come_out_as_they_went_in() {
    let name = "nvjpeg2k::lossless_samples_come_out_as_they_went_in";
    let finished = isolated(name, &[], || {
        start(0);
        let decoder = Decoder::simple();
        for (count, precision, is_signed, tile, is_jp2) in [
            (1, 8, false, None, false),
            (3, 8, false, None, false),
            (4, 8, false, Some((32, 16)), false),
            (1, 16, false, None, true),
            (2, 12, false, None, false),
            (1, 16, true, None, false),
            (3, 8, true, None, false),
            (1, 1, false, None, false),
        ] {
            let mut picture = Picture::with_sign(77, 45, count, precision, is_signed);
            (picture.tile, picture.is_jp2) = (tile, is_jp2);
            let bytes = picture.encoded();
            assert_eq!(decoder.parse(&bytes), 0);
            let expected = picture.interleaved();
            let target = allocate(expected.len());
            ok(decoder.decode(&picture, target));
            ok(cuStreamSynchronize(decoder.stream));
            assert_eq!(download(target, expected.len()).unwrap(), expected, "{count} {precision}");
        }
        decoder.destroy();
        ok(nvjpeg2kDestroy(decoder.library));
    });
    let report = &finished.report;
    for (field, count) in [("parsed", 8), ("decodes", 8), ("decoded", 8), ("misuse", 0)] {
        assert_eq!(report.number(&format!("nvjpeg2k.{field}")), count, "{field}");
    }
    assert_eq!(report.number("leaks.nvjpeg2k"), 0);
    let on_timeline = |line: &&Json| line.text("kind") == "nvjpeg2k";
    assert_eq!(report.items("timeline").iter().filter(on_timeline).count(), 8);
    // All memory of the states went back.
    assert!(report.items("leaks.allocations").iter().all(|one| one.text("kind") == "device"));
    assert!(report.number("nvjpeg2k.device_bytes") >= 77 * 45 * 4 * 4);
}

#[test]
fn lossy_samples_are_near() {
    isolated("nvjpeg2k::lossy_samples_are_near", &[], || {
        start(0);
        let decoder = Decoder::simple();
        let mut picture = Picture::new(64, 64, 1, 16);
        for (at, sample) in picture.planes[0].iter_mut().enumerate() {
            *sample = ((at % 64) * 100 + (at / 64) * 50) as i32;
        }
        picture.is_lossy = true;
        let bytes = picture.encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        let target = allocate(64 * 64 * 2);
        ok(decoder.decode(&picture, target));
        let found = {
            ok(cuStreamSynchronize(decoder.stream));
            download(target, 64 * 64 * 2).unwrap()
        };
        for (sample, expected) in found.chunks(2).zip(&picture.planes[0]) {
            let sample = i32::from(u16::from_le_bytes([sample[0], sample[1]]));
            assert!((sample - expected).abs() < 300, "{sample} {expected}");
        }
    });
}

#[test]
fn a_parsed_stream_tells_of_itself() {
    isolated("nvjpeg2k::a_parsed_stream_tells_of_itself", &[], || {
        start(0);
        assert_eq!(ask(|place| nvjpeg2kGetProperty(1, place)), Ok(11));
        assert_eq!(ask(|place| nvjpeg2kGetProperty(3, place)), Err(2));
        let decoder = Decoder::simple();
        assert_eq!(ask(|place| nvjpeg2kStreamGetImageInfo(decoder.bits, place)), Err(2));
        let mut picture = Picture::with_sign(100, 70, 3, 12, true);
        (picture.tile, picture.is_jp2, picture.chroma_step) = (Some((64, 32)), true, 2);
        let bytes = picture.encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        let info = ask(|place| nvjpeg2kStreamGetImageInfo(decoder.bits, place)).unwrap();
        assert_eq!((info.width, info.height, info.components), (100, 70, 3));
        assert_eq!((info.tile_width, info.tile_height), (64, 32));
        assert_eq!((info.tiles_x, info.tiles_y), (2, 3));
        let component =
            |index| ask(|place| nvjpeg2kStreamGetImageComponentInfo(decoder.bits, place, index));
        let last = component(2).unwrap();
        assert_eq!((last.width, last.height, last.precision, last.sgn), (50, 35, 12, 1));
        assert_eq!(component(3), Err(2));
        let resolutions =
            ask(|place| nvjpeg2kStreamGetResolutionsInTile(decoder.bits, 5, place)).unwrap();
        assert_eq!(resolutions, 6);
        let mut height = std::mem::MaybeUninit::uninit();
        let width = ask(|place| {
            nvjpeg2kStreamGetTileComponentDim(decoder.bits, 0, 5, place, Some(&mut height))
        });
        // SAFETY: the call has stored it.
        assert_eq!((width, unsafe { height.assume_init() }), (Ok(36), 6));
        assert_eq!(ask(|place| nvjpeg2kStreamGetColorSpace(decoder.bits, place)), Ok(1));
        // Components of different sizes are not interleaved.
        assert_eq!(decoder.submit(&[allocate(1 << 20)], 600, 2, 3), 4);
    });
}

#[test]
fn a_decode_runs_in_the_order_of_its_stream() {
    isolated("nvjpeg2k::a_decode_runs_in_the_order_of_its_stream", &[], || {
        start(0);
        let decoder = Decoder::simple();
        let picture = Picture::new(40, 30, 1, 8);
        let mut bytes = picture.encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        let target = upload(&[7; 1200]);
        ok(cuMemsetD8Async(target, 9, 1200, decoder.stream));
        ok(decoder.decode(&picture, target));
        // The bytes are the library's from here on.
        bytes.fill(0);
        ok(cuStreamSynchronize(stream()));
        assert_eq!(download(target, 1200).unwrap(), [7; 1200]);
        ok(cuStreamSynchronize(decoder.stream));
        assert_eq!(download(target, 1200).unwrap(), picture.interleaved());
    });
}

#[test]
fn rows_have_a_pitch_and_planes_are_apart() {
    isolated("nvjpeg2k::rows_have_a_pitch_and_planes_are_apart", &[], || {
        start(0);
        let decoder = Decoder::simple();
        let picture = Picture::new(33, 20, 3, 16);
        let bytes = picture.encoded();
        assert_eq!(decoder.parse(&bytes), 0);
        ok(nvjpeg2kDecodeParamsSetOutputFormat(decoder.parameters, 0));
        // The last row ends where the memory does.
        let length = 19 * 70 + 66;
        let planes: Vec<u64> = (0..3).map(|_| upload(&vec![7; length])).collect();
        assert_eq!(decoder.submit(&planes, 65, 1, 3), 2);
        ok(decoder.submit(&planes, 70, 1, 3));
        ok(cuStreamSynchronize(decoder.stream));
        for (plane, samples) in planes.iter().zip(&picture.planes) {
            let found = download(*plane, length).unwrap();
            for (at, byte) in found.iter().enumerate() {
                let (row, column) = (at / 70, at % 70);
                let expected = match column {
                    66.. => 7,
                    _ => samples[row * 33 + column / 2].to_le_bytes()[column % 2],
                };
                assert_eq!(*byte, expected);
            }
        }
    });
}

static CALLS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn note(which: usize) {
    CALLS[which].fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn device_malloc(
    context: *mut c_void,
    place: *mut *mut c_void,
    bytes: usize,
    _: u64,
) -> c_int {
    note(0);
    if context as usize == 2 {
        return 1;
    }
    // It may call the driver.
    let made = ask(|place| cuMemAlloc_v2(place, bytes)).unwrap();
    // SAFETY: the library's place.
    unsafe { place.write(made as *mut c_void) };
    0
}

unsafe extern "C" fn device_free(_: *mut c_void, pointer: *mut c_void, _: usize, _: u64) -> c_int {
    note(1);
    cuMemFree_v2(pointer as u64) as c_int
}

unsafe extern "C" fn pinned_malloc(
    _: *mut c_void,
    place: *mut *mut c_void,
    bytes: usize,
    _: u64,
) -> c_int {
    note(2);
    let made = ask(|place| cuMemHostAlloc(place, bytes, 0)).unwrap();
    // SAFETY: the library's place.
    unsafe { place.write(made as *mut c_void) };
    0
}

unsafe extern "C" fn pinned_free(_: *mut c_void, pointer: *mut c_void, _: usize, _: u64) -> c_int {
    note(3);
    cuMemFreeHost(pointer) as c_int
}

#[test]
fn memory_comes_from_the_callers_functions() {
    let name = "nvjpeg2k::memory_comes_from_the_callers_functions";
    let finished = isolated(name, &[], || {
        start(0);
        let create = |context: usize| {
            let context = context as *mut c_void;
            let device =
                DeviceAllocatorV2 { malloc: Some(device_malloc), free: Some(device_free), context };
            let pinned =
                DeviceAllocatorV2 { malloc: Some(pinned_malloc), free: Some(pinned_free), context };
            ask(|place| nvjpeg2kCreateV2(0, Some(&device), Some(&pinned), place)).unwrap()
        };
        assert_eq!(ask(|place| nvjpeg2kCreateV2(0, None, None, place)), Err(2));
        let decoder = Decoder::new(create(1));
        ok(nvjpeg2kSetDeviceMemoryPadding(1 << 20, decoder.library));
        let picture = Picture::new(64, 64, 1, 8);
        let bytes = picture.encoded();
        let target = allocate(64 * 64);
        for _ in 0..3 {
            assert_eq!(decoder.parse(&bytes), 0);
            ok(decoder.decode(&picture, target));
            ok(cuStreamSynchronize(decoder.stream));
            assert_eq!(download(target, 64 * 64).unwrap(), picture.interleaved());
        }
        decoder.destroy();
        // Once, since a state keeps what it has.
        let calls = CALLS.each_ref().map(|count| count.load(Ordering::SeqCst));
        assert_eq!(calls, [1, 1, 1, 1]);
        // One that fails.
        let decoder = Decoder::new(create(2));
        assert_eq!(decoder.parse(&bytes), 0);
        assert_eq!(decoder.decode(&picture, target), 5);
    });
    assert_eq!(finished.report.number("nvjpeg2k.device_bytes"), 1 << 20);
    assert_eq!(finished.report.number("nvjpeg2k.device_allocations"), 1);
    assert_eq!(finished.report.number("nvjpeg2k.pinned_allocations"), 1);
}
