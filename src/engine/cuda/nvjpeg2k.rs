//! nvJPEG2000: codestreams, parsed on the host and decoded on a stream, one state and one parsed stream
//! for each tile that is on its way.
//!
//! Loaded when the first tile of JPEG 2000 is to be decoded. A state, and what was parsed, may be used
//! again when the host has waited for what it was used for: whoever takes [`Slot`]s has them until then.
//! What the library says of a tile is the tile's affair: the CPU decodes it. Absent: tiles and batches.

mod memory;
mod trial;

use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::memory::{Allocator, Memory};
use super::driver::{Device, Stream};
use super::library::{self, Library};
use crate::engine::jpeg2000::{Codestream, Sampling};

const NAME: &str = "libnvjpeg2k.so.0";
/// Below site-packages.
const DIRECTORIES: [&str; 1] = ["nvidia/nvjpeg2k/lib"];

/// NVJPEG2K_FORMAT_PLANAR and _INTERLEAVED.
const FORMATS: [u32; 2] = [0, 1];
/// NVJPEG2K_UINT8.
const U8: u32 = 0;
/// NVJPEG2K_UINT16.
const U16: u32 = 1;
/// NVJPEG2K_INT16.
const I16: u32 = 2;

type Status = u32;
type Raw = *mut c_void;
type Make = unsafe extern "C" fn(*mut Raw) -> Status;
type Destroy = unsafe extern "C" fn(Raw) -> Status;

/// `nvjpeg2kImage_t`.
#[repr(C)]
struct Image {
    data: *const u64,
    pitches: *const usize,
    kind: u32,
    components: u32,
}

/// `nvjpeg2kImageInfo_t`.
#[repr(C)]
#[derive(Default)]
struct ImageInfo {
    width: u32,
    height: u32,
    _tiles: [u32; 4],
    components: u32,
}

/// `nvjpeg2kImageComponentInfo_t`.
#[repr(C)]
#[derive(Default)]
struct ComponentInfo {
    size: [u32; 2],
    bits: u8,
    signed: u8,
}

const _: () = assert!(size_of::<Image>() == 24 && size_of::<Allocator>() == 24);
const _: () = assert!(size_of::<ImageInfo>() == 28 && size_of::<ComponentInfo>() == 12);

struct Functions {
    create: unsafe extern "C" fn(u32, *const Allocator, *const Allocator, *mut Raw) -> Status,
    state: unsafe extern "C" fn(Raw, *mut Raw) -> Status,
    state_destroy: Destroy,
    stream: Make,
    stream_destroy: Destroy,
    parse: unsafe extern "C" fn(Raw, *const u8, usize, i32, i32, Raw) -> Status,
    image_info: unsafe extern "C" fn(Raw, *mut ImageInfo) -> Status,
    component_info: unsafe extern "C" fn(Raw, *mut ComponentInfo, u32) -> Status,
    params: Make,
    output_format: unsafe extern "C" fn(Raw, u32) -> Status,
    decode: unsafe extern "C" fn(Raw, Raw, Raw, Raw, *const Image, Raw) -> Status,
}

impl Functions {
    fn of(library: Library) -> Option<Functions> {
        // SAFETY: the types as in nvjpeg2k.h.
        unsafe {
            Some(Functions {
                create: library.function("nvjpeg2kCreateV2")?,
                state: library.function("nvjpeg2kDecodeStateCreate")?,
                state_destroy: library.function("nvjpeg2kDecodeStateDestroy")?,
                stream: library.function("nvjpeg2kStreamCreate")?,
                stream_destroy: library.function("nvjpeg2kStreamDestroy")?,
                parse: library.function("nvjpeg2kStreamParse")?,
                image_info: library.function("nvjpeg2kStreamGetImageInfo")?,
                component_info: library.function("nvjpeg2kStreamGetImageComponentInfo")?,
                params: library.function("nvjpeg2kDecodeParamsCreate")?,
                output_format: library.function("nvjpeg2kDecodeParamsSetOutputFormat")?,
                decode: library.function("nvjpeg2kDecodeImage")?,
            })
        }
    }
}

/// A state and a parsed stream.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    state: Raw,
    stream: Raw,
}

// SAFETY: handles that one thread uses at a time.
unsafe impl Send for Slot {}
// SAFETY: nothing is done with one that is only looked at.
unsafe impl Sync for Slot {}

/// Slots that nobody has, of the run under way.
#[derive(Default)]
struct Slots {
    free: Vec<Slot>,
    /// Counts runs; 0 while there is none.
    run: u64,
    runs: u64,
    /// The library kept memory that was lent to it.
    hoards: bool,
}

/// The library, started on a device.
pub(super) struct NvJpeg2k {
    device: Arc<Device>,
    functions: Functions,
    handle: Raw,
    /// For planes, and for samples side by side.
    params: [Raw; 2],
    memory: &'static Memory,
    slots: Mutex<Slots>,
    /// Whether it decodes the known tile.
    right: Mutex<Option<bool>>,
}

// SAFETY: handles that may be used from any thread; states and streams are used by whoever has them.
unsafe impl Send for NvJpeg2k {}
// SAFETY: as above.
unsafe impl Sync for NvJpeg2k {}

/// Why the library is not to be had.
#[derive(Debug, Clone)]
pub(super) struct NoStart {
    pub(super) reason: String,
    /// It will be the same next time.
    pub(super) lasting: bool,
}

fn lasting(reason: String) -> NoStart {
    NoStart { reason, lasting: true }
}

/// What memory a run lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loan {
    /// Device address.
    pub(super) start: u64,
    /// Bytes there.
    pub(super) bytes: usize,
    /// Page-locked bytes.
    pub(super) host: usize,
}

/// One codestream to be decoded.
pub(super) struct Order<'a> {
    /// What it holds.
    pub(super) header: &'a Codestream,
    /// It itself; read until the call returns.
    pub(super) stream: &'a [u8],
    /// Device address of the pixels, side by side, or of the planes of a subsampled image.
    pub(super) to: u64,
    /// Columns and rows that there is room for.
    pub(super) room: [usize; 2],
}

impl NvJpeg2k {
    /// Finds the library and starts it on a device, or the reason why not.
    pub(super) fn start(
        device: &Arc<Device>,
        given: Option<&Path>,
    ) -> std::result::Result<NvJpeg2k, NoStart> {
        let open = |path: &Path| Functions::of(Library::open(path)?);
        let functions = match given {
            Some(path) => {
                open(path).ok_or_else(|| lasting(format!("{} is not nvJPEG2000", path.display())))?
            }
            None => library::places(&[NAME], &DIRECTORIES).iter().find_map(|p| open(p)).ok_or_else(|| {
                let what = "nvJPEG2000 was not found: install nvidia-nvjpeg2k-cu12 with pip or conda, \
                            or set GPUGTIFF_NVJPEG2K to libnvjpeg2k.so.0";
                lasting(what.into())
            })?,
        };
        let _current = device
            .enter()
            .map_err(|fault| NoStart { reason: fault.to_string(), lasting: false })?;
        // Kept, as the library is, for the life of the process.
        let memory: &'static Memory = Box::leak(Box::new(Memory::new(device)));
        let [on_device, on_host] = Allocator::both(memory);
        let mut handle = std::ptr::null_mut();
        // SAFETY: allocators that stay valid as long as the library uses what they point to.
        let status = unsafe { (functions.create)(0, &on_device, &on_host, &mut handle) };
        if status != 0 || handle.is_null() {
            let reason = format!("nvJPEG2000 does not start (status {status})");
            return Err(NoStart { reason, lasting: !memory.ran_short() });
        }
        let params = FORMATS.map(|format| {
            let mut params = std::ptr::null_mut();
            // SAFETY: a pointer to fill, then what it was filled with.
            let made = unsafe {
                (functions.params)(&mut params) == 0
                    && (functions.output_format)(params, format) == 0
            };
            made.then_some(params)
        });
        let [Some(planar), Some(interleaved)] = params else {
            return Err(lasting("nvJPEG2000 does not start (no parameters)".into()));
        };
        let (device, params) = (Arc::clone(device), [planar, interleaved]);
        let (slots, right) = Default::default();
        Ok(NvJpeg2k { device, functions, handle, params, memory, slots, right })
    }

    /// Has a known tile decoded, once, or again where memory was wanting; or the reason why the library is
    /// not to be used.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        if right.is_none() {
            let outcome = self.try_known_tile();
            *right =
                Some(outcome.map_err(|what| format!("nvJPEG2000 does not work here ({what})"))?);
        }
        match (*right, self.slots().hoards) {
            (Some(true), false) => Ok(()),
            (_, true) => Err("nvJPEG2000 keeps memory that was lent to it".into()),
            _ => Err("nvJPEG2000 does not decode a known tile here".into()),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `count` slots of the run that lends this memory; fewer where no more can be had.
    /// Our context is current.
    pub(super) fn take(self: &Arc<Self>, count: usize, loan: Loan) -> Taken {
        let mut slots = self.slots();
        let batch = self.memory.begin_batch();
        if slots.run == 0 {
            if slots.hoards || !self.memory.open(loan.start, loan.bytes, loan.host) {
                return Taken { library: Arc::clone(self), slots: Vec::new(), run: 0, batch };
            }
            slots.runs += 1;
            slots.run = slots.runs;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match slots.free.pop().or_else(|| self.make()) {
                Some(slot) => taken.push(slot),
                None => break,
            }
        }
        Taken { library: Arc::clone(self), slots: taken, run: slots.run, batch }
    }

    fn make(&self) -> Option<Slot> {
        let (mut state, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: pointers to fill; what was made alone goes again.
        unsafe {
            if !self.device.usable() || (self.functions.state)(self.handle, &mut state) != 0 {
                return None;
            }
            if (self.functions.stream)(&mut stream) != 0 {
                (self.functions.state_destroy)(state);
                return None;
            }
        }
        Some(Slot { state, stream })
    }

    /// After a fault nothing is called: what the slots have is the driver's.
    fn destroy(&self, slots: Vec<Slot>) {
        let Ok(_current) = self.device.enter() else { return };
        for slot in slots {
            // SAFETY: made by `make`, destroyed once, and nothing of theirs is on its way.
            unsafe {
                (self.functions.stream_destroy)(slot.stream);
                (self.functions.state_destroy)(slot.state);
            }
        }
    }

    /// The run is over, and its memory goes to others; false if it must not, as the library has some of
    /// it. Then it is not used any more.
    #[must_use]
    pub(super) fn end_run(&self) -> bool {
        // After a fork the lock may be somebody's who is not here.
        if !self.device.usable() {
            return true;
        }
        let mut slots = self.slots();
        if slots.run != 0 {
            slots.run = 0;
            self.destroy(std::mem::take(&mut slots.free));
            slots.hoards |= !self.memory.close();
            return !slots.hoards;
        }
        true
    }

    /// Parses a codestream and has it decoded on a stream; false if the library refuses it, or sees
    /// something else in it than we do. Our context is current.
    ///
    /// # Safety
    /// The slot must not be used by anything that is on its way; device memory must be there for the
    /// pixels until the stream has done its work.
    pub(super) unsafe fn decode(&self, slot: Slot, order: &Order<'_>, on: &Stream) -> bool {
        if !self.device.usable() || !self.parsed(slot, order) {
            return false;
        }
        let Codestream { components, bits, signed, sampling, .. } = *order.header;
        let kind = match (bits, signed) {
            (8, false) => U8,
            (16, false) => U16,
            (16, true) => I16,
            _ => return false,
        };
        let [width, height] = order.room;
        let (params, data, pitches) = match sampling {
            Sampling::Full => {
                let row = width * components * usize::from(bits / 8);
                (self.params[1], vec![order.to], vec![row])
            }
            Sampling::Chroma(x, y) => {
                let [x, y] = [x, y].map(usize::from);
                let (row, small) = (width.div_ceil(x), width.div_ceil(x) * height.div_ceil(y));
                let first = order.to + (width * height) as u64;
                (self.params[0], vec![order.to, first, first + small as u64], vec![width, row, row])
            }
        };
        let image = Image {
            data: data.as_ptr(),
            pitches: pitches.as_ptr(),
            kind,
            components: components as u32,
        };
        // SAFETY: the caller's promise; the library reads image and codestream before it returns.
        unsafe {
            let Functions { decode, .. } = self.functions;
            decode(self.handle, slot.state, slot.stream, params, &image, on.raw()) == 0
        }
    }

    fn parsed(&self, slot: Slot, order: &Order<'_>) -> bool {
        let Order { header, stream, .. } = order;
        let (mut image, mut component) = (ImageInfo::default(), ComponentInfo::default());
        // SAFETY: a slot of ours, bytes and structs as the library's header has them.
        let found = unsafe {
            let Functions { parse, image_info, component_info, .. } = self.functions;
            parse(self.handle, stream.as_ptr(), stream.len(), 0, 0, slot.stream) == 0
                && image_info(slot.stream, &mut image) == 0
                && component_info(slot.stream, &mut component, 0) == 0
        };
        let size = [header.width as u32, header.height as u32];
        found
            && [image.width, image.height] == size
            && component.size == size
            && image.components as usize == header.components
            && (component.bits, component.signed != 0) == (header.bits, header.signed)
    }
}

/// Slots that a batch has until the host has waited for it.
pub(super) struct Taken {
    library: Arc<NvJpeg2k>,
    slots: Vec<Slot>,
    run: u64,
    batch: u64,
}

impl Taken {
    /// The n-th slot.
    pub(super) fn slot(&self, n: usize) -> Option<Slot> {
        self.slots.get(n).copied()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // After a fork the lock may be somebody's who is not here.
        if !self.library.device.usable() {
            return;
        }
        let mut slots = self.library.slots();
        self.library.memory.end_batch(self.batch);
        match self.run == slots.run {
            true => slots.free.append(&mut self.slots),
            // Its run has ended before it.
            false => self.library.destroy(std::mem::take(&mut self.slots)),
        }
    }
}
