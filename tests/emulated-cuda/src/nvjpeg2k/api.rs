//! The exported functions of nvJPEG2000 that concern handles and what a parsed stream says; those
//! that parse and decode are in [`submit`](super::submit).

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names, arguments and contracts are nvJPEG2000's"
)]

use std::ffi::c_int;

use super::allocators::{
    Allocator, Allocators, DeviceAllocator, DeviceAllocatorV2, PinnedAllocator, PinnedAllocatorV2,
    Place as Memory, give_back,
};
use super::codestream::Header;
use super::status::{ARCH_MISMATCH, BAD_JPEG, INVALID_PARAMETER, NOT_SUPPORTED, Outcome, told};
use super::{Bitstream, Library, Parameters, State, Submitted, known, openjpeg};
use crate::door::{self, Place};
use crate::driver::Driver;

/// `nvjpeg2kImageInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageInfo {
    pub width: u32,
    pub height: u32,
    pub tile_width: u32,
    pub tile_height: u32,
    pub tiles_x: u32,
    pub tiles_y: u32,
    pub components: u32,
}

/// `nvjpeg2kImageComponentInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ComponentInfo {
    pub width: u32,
    pub height: u32,
    pub precision: u8,
    pub sgn: u8,
}

/// `nvjpeg2kNLTInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NltInfo {
    pub kind: u32,
    pub bit_depth: u8,
}

pub(super) fn call(symbol: &'static str, body: impl FnOnce(&mut Driver) -> Outcome) -> u32 {
    door::library(symbol, body).map_or_else(told, |()| 0)
}

pub(super) fn refuse<T>(status: u32, text: impl Into<String>) -> Outcome<T> {
    Err((status, text.into()))
}

fn answer<T>(place: Place<'_, T>, value: T) -> Outcome {
    match place {
        Some(place) => {
            place.write(value);
            Ok(())
        }
        None => refuse(INVALID_PARAMETER, "a null pointer for a result"),
    }
}

fn version(symbol: &'static str, numbers: [c_int; 3], which: u32, place: Place<'_, c_int>) -> u32 {
    call(symbol, |_| match numbers.get(which as usize) {
        Some(number) => answer(place, *number),
        None => refuse(INVALID_PARAMETER, format!("property {which}")),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kGetProperty(which: u32, place: Place<'_, c_int>) -> u32 {
    version("nvjpeg2kGetProperty", [0, 11, 0], which, place)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kGetCudartProperty(which: u32, place: Place<'_, c_int>) -> u32 {
    version("nvjpeg2kGetCudartProperty", [12, 9, 0], which, place)
}

fn create(symbol: &'static str, allocators: Option<Allocators>, place: Place<'_, u64>) -> u32 {
    call(symbol, |driver| {
        let (Some(allocators), Some(place)) = (allocators, place) else {
            return refuse(INVALID_PARAMETER, "an allocator, a function or a place is missing");
        };
        if driver.settings.nvjpeg2k.is_refused {
            return refuse(ARCH_MISMATCH, "as set");
        }
        if !openjpeg::is_there() {
            return refuse(NOT_SUPPORTED, "libopenjp2.so.7 is not installed");
        }
        let handle = driver.handle();
        let library = Library { allocators, device_padding: 1024, pinned_padding: 1 };
        driver.nvjpeg2k.libraries.insert(handle, library);
        driver.ledger.nvjpeg2k.handles += 1;
        place.write(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kCreateSimple(handle: Place<'_, u64>) -> u32 {
    let allocators = Allocators { device: Allocator::Runtime, pinned: Allocator::Runtime };
    create("nvjpeg2kCreateSimple", Some(allocators), handle)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kCreate(
    backend: u32,
    device: Option<&DeviceAllocator>,
    pinned: Option<&PinnedAllocator>,
    handle: Place<'_, u64>,
) -> u32 {
    let device = device
        .map_or(Some(Allocator::Runtime), |one| Some(Allocator::Device(one.malloc?, one.free?)));
    let pinned = pinned
        .map_or(Some(Allocator::Runtime), |one| Some(Allocator::Pinned(one.malloc?, one.free?)));
    let both = device.zip(pinned).filter(|_| backend == 0);
    create("nvjpeg2kCreate", both.map(|(device, pinned)| Allocators { device, pinned }), handle)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kCreateV2(
    backend: u32,
    device: Option<&DeviceAllocatorV2>,
    pinned: Option<&PinnedAllocatorV2>,
    handle: Place<'_, u64>,
) -> u32 {
    let extended = |one: &DeviceAllocatorV2| {
        Some(Allocator::Extended(one.malloc?, one.free?, one.context as usize))
    };
    let both = device.and_then(extended).zip(pinned.and_then(extended)).filter(|_| backend == 0);
    create("nvjpeg2kCreateV2", both.map(|(device, pinned)| Allocators { device, pinned }), handle)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDestroy(handle: u64) -> u32 {
    call("nvjpeg2kDestroy", |driver| {
        known(&mut driver.nvjpeg2k.libraries, handle)?;
        driver.nvjpeg2k.libraries.remove(&handle);
        let states = driver.nvjpeg2k.states.values().filter(|state| state.library == handle);
        let lasts: Vec<Option<Submitted>> = states.map(|state| state.last.clone()).collect();
        if !lasts.is_empty() {
            driver.misused("a library handle is destroyed before its states");
        }
        driver.spoil(lasts.into_iter().flatten(), "a library handle is destroyed");
        Ok(())
    })
}

/// The paddings of a handle.
fn padding(symbol: &'static str, handle: u64, body: impl FnOnce(&mut Library) -> Outcome) -> u32 {
    call(symbol, |driver| body(known(&mut driver.nvjpeg2k.libraries, handle)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kSetDeviceMemoryPadding(bytes: usize, handle: u64) -> u32 {
    padding("nvjpeg2kSetDeviceMemoryPadding", handle, |library| {
        library.device_padding = bytes.max(1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kSetPinnedMemoryPadding(bytes: usize, handle: u64) -> u32 {
    padding("nvjpeg2kSetPinnedMemoryPadding", handle, |library| {
        library.pinned_padding = bytes.max(1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kGetDeviceMemoryPadding(place: Place<'_, usize>, handle: u64) -> u32 {
    padding("nvjpeg2kGetDeviceMemoryPadding", handle, |library| {
        answer(place, library.device_padding)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kGetPinnedMemoryPadding(place: Place<'_, usize>, handle: u64) -> u32 {
    padding("nvjpeg2kGetPinnedMemoryPadding", handle, |library| {
        answer(place, library.pinned_padding)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeStateCreate(handle: u64, place: Place<'_, u64>) -> u32 {
    call("nvjpeg2kDecodeStateCreate", |driver| {
        let allocators = known(&mut driver.nvjpeg2k.libraries, handle)?.allocators;
        let state = driver.handle();
        let made = State {
            library: handle,
            allocators,
            device: None,
            pinned: None,
            last: None,
            stream: 0,
        };
        answer(place, state)?;
        driver.nvjpeg2k.states.insert(state, made);
        driver.ledger.nvjpeg2k.states += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeStateDestroy(handle: u64) -> u32 {
    let symbol = "nvjpeg2kDecodeStateDestroy";
    let taken = door::library(symbol, |driver| {
        let Some(state) = driver.nvjpeg2k.states.remove(&handle) else {
            return refuse(INVALID_PARAMETER, "no such state");
        };
        driver.spoil(state.last.clone(), "a state is destroyed");
        if !driver.nvjpeg2k.libraries.contains_key(&state.library) {
            driver.misused("a state outlives its library handle");
        }
        Ok((state, driver.settings.nvjpeg2k.hoards))
    });
    let state = match taken {
        Ok((_, true)) => return 0,
        Ok((state, false)) => state,
        Err(refused) => return told(refused),
    };
    let freed = |allocator, memory, block: Option<_>| {
        block.is_none_or(|block| give_back(allocator, memory, block, state.stream, symbol))
    };
    let device = freed(state.allocators.device, Memory::Device, state.device);
    let pinned = freed(state.allocators.pinned, Memory::Pinned, state.pinned);
    if device && pinned { 0 } else { super::status::ALLOCATOR_FAILURE }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamCreate(place: Place<'_, u64>) -> u32 {
    call("nvjpeg2kStreamCreate", |driver| {
        let handle = driver.handle();
        answer(place, handle)?;
        driver.nvjpeg2k.streams.insert(handle, Bitstream::default());
        driver.ledger.nvjpeg2k.streams += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamDestroy(handle: u64) -> u32 {
    call("nvjpeg2kStreamDestroy", |driver| {
        let Some(stream) = driver.nvjpeg2k.streams.remove(&handle) else {
            return refuse(INVALID_PARAMETER, "no such bitstream");
        };
        driver.spoil(stream.decodes, "a bitstream is destroyed");
        Ok(())
    })
}

/// Asks a parsed stream.
fn parsed(symbol: &'static str, handle: u64, body: impl FnOnce(&Header) -> Outcome) -> u32 {
    call(symbol, |driver| match &known(&mut driver.nvjpeg2k.streams, handle)?.content {
        Some(content) => body(&content.header),
        None => refuse(INVALID_PARAMETER, "the bitstream is not parsed"),
    })
}

fn found<T>(value: Option<T>) -> Outcome<T> {
    value.ok_or_else(|| (INVALID_PARAMETER, "no such component, tile or resolution".into()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetImageInfo(handle: u64, place: Place<'_, ImageInfo>) -> u32 {
    parsed("nvjpeg2kStreamGetImageInfo", handle, |header| {
        let info = ImageInfo {
            width: header.width,
            height: header.height,
            tile_width: header.tile_width,
            tile_height: header.tile_height,
            tiles_x: header.tiles_x,
            tiles_y: header.tiles_y,
            components: header.components.len() as u32,
        };
        answer(place, info)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetImageComponentInfo(
    handle: u64,
    place: Place<'_, ComponentInfo>,
    component: u32,
) -> u32 {
    parsed("nvjpeg2kStreamGetImageComponentInfo", handle, |header| {
        let one = found(header.components.get(component as usize))?;
        let info = ComponentInfo {
            width: one.width,
            height: one.height,
            precision: one.precision,
            sgn: u8::from(one.is_signed),
        };
        answer(place, info)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetComponentNLTInfo(
    handle: u64,
    component: u32,
    place: Place<'_, NltInfo>,
) -> u32 {
    parsed("nvjpeg2kStreamGetComponentNLTInfo", handle, |header| {
        let Some(one) = header.components.get(component as usize) else {
            return refuse(BAD_JPEG, "no such component");
        };
        answer(place, NltInfo { kind: 0, bit_depth: one.precision })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetResolutionsInTile(
    handle: u64,
    tile: u32,
    place: Place<'_, u32>,
) -> u32 {
    parsed("nvjpeg2kStreamGetResolutionsInTile", handle, |header| {
        found(header.tile(0, tile))?;
        answer(place, header.resolutions)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetTileComponentDim(
    handle: u64,
    component: u32,
    tile: u32,
    width: Place<'_, u32>,
    height: Place<'_, u32>,
) -> u32 {
    parsed("nvjpeg2kStreamGetTileComponentDim", handle, |header| {
        let size = found(header.tile(component, tile))?;
        answer(width, size.0)?;
        answer(height, size.1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetResolutionComponentDim(
    handle: u64,
    component: u32,
    tile: u32,
    level: u32,
    width: Place<'_, u32>,
    height: Place<'_, u32>,
) -> u32 {
    parsed("nvjpeg2kStreamGetResolutionComponentDim", handle, |header| {
        let size = found(header.tile(component, tile))?;
        let halvings = found((header.resolutions - 1).checked_sub(level))?;
        let halved = |length: u32| u64::from(length).div_ceil(1 << halvings) as u32;
        answer(width, halved(size.0))?;
        answer(height, halved(size.1))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kStreamGetColorSpace(handle: u64, place: Place<'_, c_int>) -> u32 {
    parsed("nvjpeg2kStreamGetColorSpace", handle, |header| answer(place, header.color_space))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeParamsCreate(place: Place<'_, u64>) -> u32 {
    call("nvjpeg2kDecodeParamsCreate", |driver| {
        let handle = driver.handle();
        answer(place, handle)?;
        driver.nvjpeg2k.parameters.insert(handle, Parameters::default());
        driver.ledger.nvjpeg2k.params += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeParamsDestroy(handle: u64) -> u32 {
    call("nvjpeg2kDecodeParamsDestroy", |driver| {
        known(&mut driver.nvjpeg2k.parameters, handle)?;
        driver.nvjpeg2k.parameters.remove(&handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeParamsSetOutputFormat(handle: u64, format: u32) -> u32 {
    call("nvjpeg2kDecodeParamsSetOutputFormat", |driver| {
        let parameters = known(&mut driver.nvjpeg2k.parameters, handle)?;
        match format {
            0 | 1 => parameters.is_interleaved = format == 1,
            _ => return refuse(INVALID_PARAMETER, format!("output format {format}")),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeParamsSetRGBOutput(handle: u64, force: c_int) -> u32 {
    call("nvjpeg2kDecodeParamsSetRGBOutput", |driver| {
        known(&mut driver.nvjpeg2k.parameters, handle)?.is_rgb = force != 0;
        Ok(())
    })
}
