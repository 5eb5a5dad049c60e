//! Pixels as DLPack tensors: shape (bands, height, width), in C order.
//!
//! A tensor owns its memory and knows nothing of the raster it came from: its deleter works on
//! any thread, whatever was freed before. The structs are those of dlpack.h 1.0, which does not
//! change them within a major version.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;

use super::device::{engine, failed};
use super::held::Held;
use super::kind::Kind;
use super::raster::{Raster, out};
use super::request::{Chosen, Device, Place, Selection, Window};
use super::result::{
    GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_OUT_OF_MEMORY, GPUGTIFF_UNSUPPORTED, Outcome, fail,
    gpugtiff_result, guard, guard_quietly,
};
use crate::engine::cuda;

/// What frameworks expect of an allocation.
const ALIGNMENT: usize = 256;
/// kDLCPU.
const CPU: i32 = 1;
/// kDLCUDA.
const CUDA: i32 = 2;
/// The version of dlpack.h that the structs are of.
const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// As in dlpack.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLPackVersion {
    /// Structs are the same within one.
    pub major: u32,
    /// Numbers may have been added.
    pub minor: u32,
}

/// As in dlpack.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLDevice {
    /// kDLCPU …
    pub device_type: i32,
    /// Which of them.
    pub device_id: i32,
}

/// As in dlpack.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLDataType {
    /// kDLInt …
    pub code: u8,
    /// Of one lane.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
}

/// As in dlpack.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Whose it is.
    pub device: DLDevice,
    /// Dimensions.
    pub ndim: i32,
    /// Type of the samples.
    pub dtype: DLDataType,
    /// Extents.
    pub shape: *mut i64,
    /// In samples.
    pub strides: *mut i64,
    /// Of the first sample.
    pub byte_offset: u64,
}

/// As in dlpack.h, before 1.0.
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Ours.
    pub manager_ctx: *mut c_void,
    /// Frees it.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// As in dlpack.h, since 1.0.
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// Of dlpack.h.
    pub version: DLPackVersion,
    /// Ours.
    pub manager_ctx: *mut c_void,
    /// Frees it.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// None.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Memory of one tensor, which frees itself: the host's, or a device's whatever became of that.
enum Memory {
    Host(Allocation),
    Device(cuda::Allocation, u32),
}

impl Memory {
    fn data(&self) -> *mut c_void {
        match self {
            Memory::Host(memory) => memory.data.cast(),
            Memory::Device(memory, _) => {
                std::ptr::without_provenance_mut(memory.address() as usize)
            }
        }
    }

    fn device(&self) -> DLDevice {
        match self {
            Memory::Host(_) => DLDevice { device_type: CPU, device_id: 0 },
            Memory::Device(_, number) => DLDevice { device_type: CUDA, device_id: *number as i32 },
        }
    }
}

/// Memory of the host's.
struct Allocation {
    data: *mut u8,
    layout: Layout,
}

impl Allocation {
    fn new(bytes: usize) -> Outcome<Allocation> {
        let refused = || fail(GPUGTIFF_OUT_OF_MEMORY, format!("no {bytes} bytes for a tensor"));
        let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGNMENT) else {
            return refused();
        };
        // SAFETY: at least one byte.
        let data = unsafe { alloc(layout) };
        if data.is_null() { refused() } else { Ok(Allocation { data, layout }) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.data, self.layout) };
    }
}

/// A tensor of one of the two kinds, with all that it points to.
struct Owned<T> {
    managed: T,
    shape: [i64; 3],
    strides: [i64; 3],
    _memory: Memory,
}

/// What both kinds have.
trait Managed: Sized {
    fn new(tensor: DLTensor) -> Self;
    fn tensor(&mut self) -> &mut DLTensor;
    fn context(&mut self) -> &mut *mut c_void;
}

impl Managed for DLManagedTensor {
    fn new(dl_tensor: DLTensor) -> Self {
        let deleter = Some(delete_unversioned as unsafe extern "C" fn(*mut Self));
        DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter }
    }

    fn tensor(&mut self) -> &mut DLTensor {
        &mut self.dl_tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.manager_ctx
    }
}

impl Managed for DLManagedTensorVersioned {
    fn new(dl_tensor: DLTensor) -> Self {
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut Self));
        let manager_ctx = std::ptr::null_mut();
        DLManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags: 0, dl_tensor }
    }

    fn tensor(&mut self) -> &mut DLTensor {
        &mut self.dl_tensor
    }

    fn context(&mut self) -> &mut *mut c_void {
        &mut self.manager_ctx
    }
}

unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: DLPack's contract: one of ours, once.
    unsafe { delete(tensor) };
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: as above.
    unsafe { delete(tensor) };
}

/// # Safety
/// `tensor` must be NULL or one of ours that was not deleted.
unsafe fn delete<T: Managed>(tensor: *mut T) {
    guard_quietly(|| {
        // SAFETY: the caller's promise.
        if let Some(tensor) = unsafe { tensor.as_mut() } {
            let owned = tensor.context().cast::<Owned<T>>();
            // SAFETY: made by Box::into_raw in `hand_out`; the struct that we came by is in it.
            drop(unsafe { Box::from_raw(owned) });
        }
    });
}

/// Makes the tensor its own owner.
fn hand_out<T: Managed>(memory: Memory, shape: [i64; 3], dtype: DLDataType) -> *mut T {
    let strides = [shape[1] * shape[2], shape[2], 1];
    let tensor = DLTensor {
        data: memory.data(),
        device: memory.device(),
        ndim: 3,
        dtype,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let owned = Box::new(Owned { managed: T::new(tensor), shape, strides, _memory: memory });
    let owned = Box::into_raw(owned);
    // SAFETY: just made, and nobody else knows of it.
    unsafe {
        let (shape, strides) =
            ((&raw mut (*owned).shape).cast(), (&raw mut (*owned).strides).cast());
        let managed = &raw mut (*owned).managed;
        (*managed).tensor().shape = shape;
        (*managed).tensor().strides = strides;
        *(*managed).context() = owned.cast();
        managed
    }
}

/// What DLPack calls a type; it has no complex integers.
fn data_type(kind: Kind) -> Outcome<DLDataType> {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const COMPLEX: u8 = 5;
    let code = match kind.gdal {
        1 | 2 | 4 | 12 => UINT,
        3 | 5 | 13 | 14 => INT,
        6 | 7 | 15 => FLOAT,
        10 | 11 | 16 => COMPLEX,
        _ => {
            let text = "DLPack has no complex integers: expected another type in the selection, \
                        such as GPUGTIFF_TYPE_CF32";
            return fail(GPUGTIFF_UNSUPPORTED, text);
        }
    };
    Ok(DLDataType { code, bits: (kind.bytes * 8) as u8, lanes: 1 })
}

impl Raster {
    /// # Safety
    /// As for gpugtiff_raster_read_tensor().
    unsafe fn read_tensor<T: Managed>(
        &self,
        window: *const Window,
        selection: *const Selection,
        device: i32,
    ) -> Outcome<*mut T> {
        let device = whose(device)?;
        // SAFETY: the caller's promise.
        let (chosen, window) = unsafe { self.choose(window, selection) }?;
        let dtype = data_type(chosen.kind)?;
        let memory = self.allocate(device, bytes(&window, &chosen))?;
        let (pixel, data) = (chosen.kind.bytes as i64, memory.data());
        let (line, band) = (pixel * window.width, pixel * window.width * window.height);
        let device = match &memory {
            Memory::Host(_) => None,
            Memory::Device(_, number) => Some(Device { number: *number, stream: None }),
        };
        let place = Place { data, pixel, line, band, device };
        // SAFETY: memory of our own that holds the window; every sample of it is written.
        unsafe { self.read(&window, &chosen, &place)? };
        let shape = [chosen.bands.len() as i64, window.height, window.width];
        Ok(hand_out(memory, shape, dtype))
    }
}

impl Raster {
    /// Memory where the tensor shall be.
    fn allocate(&self, device: Option<u32>, bytes: usize) -> Outcome<Memory> {
        match device {
            Some(number) => {
                let memory = engine(&self.shared, number)?.allocate(bytes).or_else(failed)?;
                Ok(Memory::Device(memory, number))
            }
            None => Allocation::new(bytes).map(Memory::Host),
        }
    }
}

/// The number of a device; none is the host.
fn whose(device: i32) -> Outcome<Option<u32>> {
    match u32::try_from(device) {
        Ok(number) => Ok(Some(number)),
        Err(_) if device == -1 => Ok(None),
        Err(_) => {
            let text = format!("the device is {device}: expected -1 or more");
            fail(GPUGTIFF_BAD_ARGUMENT, text)
        }
    }
}

/// Bytes of a window, or more than there can be.
fn bytes(window: &Window, chosen: &Chosen) -> usize {
    let sizes = [window.width as usize, window.height as usize, chosen.bands.len()];
    let bytes = sizes.iter().try_fold(chosen.kind.bytes, |bytes, &n| bytes.checked_mul(n));
    bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).unwrap_or(usize::MAX)
}

/// Reads a window, as gpugtiff_raster_read() does, into a tensor of shape (bands, height, width)
/// with memory of its own, aligned to 256 bytes. `device` is -1 for the host's memory, or the
/// number of a GPU. Whoever gets the tensor calls its deleter once, on any thread, before or after
/// the raster is freed. Thread-safe.
///
/// # Safety
/// `window` and `selection` must be NULL or what they say, `out_tensor` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_read_tensor(
    raster: *const Raster,
    window: *const Window,
    selection: *const Selection,
    device: i32,
    out_tensor: *mut *mut DLManagedTensorVersioned,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_tensor, "out_tensor")?;
        // SAFETY: the caller's promise.
        unsafe { *out_tensor = raster.read_tensor(window, selection, device)? };
        Ok(())
    })
}

/// The same for those who know DLPack from before its 1.0. Thread-safe.
///
/// # Safety
/// As for gpugtiff_raster_read_tensor().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_raster_read_tensor_unversioned(
    raster: *const Raster,
    window: *const Window,
    selection: *const Selection,
    device: i32,
    out_tensor: *mut *mut DLManagedTensor,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_tensor, "out_tensor")?;
        // SAFETY: the caller's promise.
        unsafe { *out_tensor = raster.read_tensor(window, selection, device)? };
        Ok(())
    })
}
