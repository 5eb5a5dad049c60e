//! cuGetProcAddress: names without their version suffixes, answered by version.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{context, copy, device, event, launch, memory, module, pinned, stream};
use crate::door::{self, Place, put};
use crate::status::Code;

/// A name, the version that brought this form of it, and where it is.
type Entry = (&'static str, u32, *const c_void);

macro_rules! entries {
    ($($name:ident since $version:literal is $room:ident :: $function:ident),* $(,)?) => {
        vec![$((stringify!($name), $version, $room::$function as *const c_void)),*]
    };
}

/// Newer forms of a name come after older ones.
fn entries() -> Vec<Entry> {
    entries![
        cuInit since 2000 is device::cuInit,
        cuDriverGetVersion since 2020 is device::cuDriverGetVersion,
        cuGetErrorName since 6000 is device::cuGetErrorName,
        cuGetErrorString since 6000 is device::cuGetErrorString,
        cuGetProcAddress since 12000 is entry_itself::cuGetProcAddress_v2,
        cuDeviceGet since 2000 is device::cuDeviceGet,
        cuDeviceGetCount since 2000 is device::cuDeviceGetCount,
        cuDeviceGetName since 2000 is device::cuDeviceGetName,
        cuDeviceGetUuid since 9020 is device::cuDeviceGetUuid,
        cuDeviceGetUuid since 11040 is device::cuDeviceGetUuid_v2,
        cuDeviceGetPCIBusId since 4010 is device::cuDeviceGetPCIBusId,
        cuDeviceGetAttribute since 2000 is device::cuDeviceGetAttribute,
        cuDeviceTotalMem since 3020 is device::cuDeviceTotalMem_v2,
        cuDevicePrimaryCtxRetain since 7000 is context::cuDevicePrimaryCtxRetain,
        cuDevicePrimaryCtxRelease since 11000 is context::cuDevicePrimaryCtxRelease_v2,
        cuDevicePrimaryCtxGetState since 7000 is context::cuDevicePrimaryCtxGetState,
        cuCtxCreate since 3020 is context::cuCtxCreate_v2,
        cuCtxCreate since 11040 is context::cuCtxCreate_v3,
        cuCtxDestroy since 4000 is context::cuCtxDestroy_v2,
        cuCtxGetCurrent since 4000 is context::cuCtxGetCurrent,
        cuCtxSetCurrent since 4000 is context::cuCtxSetCurrent,
        cuCtxPushCurrent since 4000 is context::cuCtxPushCurrent_v2,
        cuCtxPopCurrent since 4000 is context::cuCtxPopCurrent_v2,
        cuCtxGetDevice since 2000 is context::cuCtxGetDevice,
        cuCtxSynchronize since 2000 is context::cuCtxSynchronize,
        cuMemGetInfo since 3020 is memory::cuMemGetInfo_v2,
        cuMemAlloc since 3020 is memory::cuMemAlloc_v2,
        cuMemFree since 3020 is memory::cuMemFree_v2,
        cuMemAllocAsync since 11020 is memory::cuMemAllocAsync,
        cuMemFreeAsync since 11020 is memory::cuMemFreeAsync,
        cuMemHostAlloc since 2020 is pinned::cuMemHostAlloc,
        cuMemAllocHost since 3020 is pinned::cuMemAllocHost_v2,
        cuMemFreeHost since 2000 is pinned::cuMemFreeHost,
        cuMemHostRegister since 6050 is pinned::cuMemHostRegister_v2,
        cuMemHostUnregister since 4000 is pinned::cuMemHostUnregister,
        cuPointerGetAttribute since 4000 is memory::cuPointerGetAttribute,
        cuPointerGetAttributes since 7000 is memory::cuPointerGetAttributes,
        cuMemcpyHtoD since 3020 is copy::cuMemcpyHtoD_v2,
        cuMemcpyDtoH since 3020 is copy::cuMemcpyDtoH_v2,
        cuMemcpyHtoDAsync since 3020 is copy::cuMemcpyHtoDAsync_v2,
        cuMemcpyDtoHAsync since 3020 is copy::cuMemcpyDtoHAsync_v2,
        cuMemcpyDtoDAsync since 3020 is copy::cuMemcpyDtoDAsync_v2,
        cuMemsetD8Async since 3020 is memory::cuMemsetD8Async,
        cuMemsetD32Async since 3020 is memory::cuMemsetD32Async,
        cuStreamCreate since 2000 is stream::cuStreamCreate,
        cuStreamCreateWithPriority since 5050 is stream::cuStreamCreateWithPriority,
        cuStreamDestroy since 4000 is stream::cuStreamDestroy_v2,
        cuStreamSynchronize since 2000 is stream::cuStreamSynchronize,
        cuStreamQuery since 2000 is stream::cuStreamQuery,
        cuStreamGetCtx since 9020 is stream::cuStreamGetCtx,
        cuStreamWaitEvent since 3020 is stream::cuStreamWaitEvent,
        cuLaunchHostFunc since 10000 is stream::cuLaunchHostFunc,
        cuEventCreate since 2000 is event::cuEventCreate,
        cuEventDestroy since 4000 is event::cuEventDestroy_v2,
        cuEventRecord since 2000 is event::cuEventRecord,
        cuEventQuery since 2000 is event::cuEventQuery,
        cuEventSynchronize since 2000 is event::cuEventSynchronize,
        cuEventElapsedTime since 2000 is event::cuEventElapsedTime,
        cuModuleLoadData since 2000 is module::cuModuleLoadData,
        cuModuleLoadDataEx since 2010 is module::cuModuleLoadDataEx,
        cuModuleUnload since 2000 is module::cuModuleUnload,
        cuModuleGetFunction since 2000 is module::cuModuleGetFunction,
        cuFuncGetAttribute since 2020 is module::cuFuncGetAttribute,
        cuFuncSetAttribute since 9000 is module::cuFuncSetAttribute,
        cuLaunchKernel since 4000 is launch::cuLaunchKernel,
    ]
}

/// So that the table can name this file's own function like the others.
mod entry_itself {
    pub(super) use super::cuGetProcAddress_v2;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: Place<'_, *const c_void>,
    version: c_int,
    _flags: u64,
    status: Place<'_, c_uint>,
) -> u32 {
    door::free("cuGetProcAddress_v2", |driver| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE.because("no name"));
        }
        // SAFETY: a C string, says the contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let newest = driver.settings.driver.min(u32::try_from(version).unwrap_or(0));
        let all = entries();
        let named = || all.iter().filter(|(known, ..)| *known == name);
        let found = named().rfind(|(_, since, _)| *since <= newest);
        if let Some(place) = status {
            // Found; no such name; a name of a newer version.
            place.write(match (found, named().next()) {
                (Some(_), _) => 0,
                (None, None) => 1,
                (None, Some(_)) => 2,
            });
        }
        put(function, found.map_or(std::ptr::null(), |(.., address)| *address))?;
        found.map(|_| ()).ok_or(Code::NOT_FOUND.because(name))
    })
}
