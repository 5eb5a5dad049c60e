//! What cuFile says of itself, and what a caller may set before it opens the driver.

use super::opened;
use super::settings::{CufileSettings, Mode};
use super::status::{DRIVER_ALREADY_OPEN, INVALID_VALUE, Outcome, refuse};
use crate::driver::Driver;

/// The properties of the open driver.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CUfileDrvProps {
    /// Of nvidia-fs; 0.0 where it is not loaded.
    pub major: u32,
    /// See `major`.
    pub minor: u32,
    /// KiB.
    pub poll_threshold: usize,
    /// KiB that one read may have.
    pub max_direct_io_size: usize,
    /// Bit 4: NVMe is read directly.
    pub status_flags: u32,
    /// Bit 1: compatibility mode is allowed.
    pub control_flags: u32,
    /// Dynamic routing, batches, streams, parallel reads.
    pub features: u32,
    /// KiB.
    pub max_device_cache_size: u32,
    /// KiB.
    pub per_buffer_cache_size: u32,
    /// KiB that can be registered.
    pub max_device_pinned_mem_size: u32,
    /// Entries of a batch.
    pub max_batch_io_size: u32,
    /// 0 is for ever.
    pub max_batch_io_timeout_msecs: u32,
}

const NVME: u32 = 1 << 4;
const ALLOW_COMPATIBLE: u32 = 1 << 1;

/// What a caller has set.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Staged {
    limit_kb: Option<u64>,
    batch: Option<u32>,
    is_forced_compatible: Option<bool>,
}

impl Staged {
    pub(super) fn limit_kb(&self, settings: &CufileSettings) -> u64 {
        self.limit_kb.unwrap_or(settings.limit_kb)
    }

    pub(super) fn batch(&self, settings: &CufileSettings) -> u32 {
        self.batch.unwrap_or(settings.batch)
    }

    fn is_forced_compatible(&self) -> bool {
        self.is_forced_compatible.unwrap_or_else(|| {
            let value = std::env::var("CUFILE_FORCE_COMPAT_MODE");
            value.is_ok_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
        })
    }
}

fn pinned_kb(settings: &CufileSettings) -> u64 {
    settings.pinned.map_or(32 << 20, |bytes| bytes >> 10)
}

pub(super) fn properties(driver: &Driver) -> Outcome<CUfileDrvProps> {
    opened(driver)?;
    let (settings, staged) = (&driver.settings.cufile, &driver.cufile.staged);
    let is_direct = settings.mode == Mode::Direct && !staged.is_forced_compatible();
    Ok(CUfileDrvProps {
        major: if is_direct { 2 } else { 0 },
        minor: if is_direct { 22 } else { 0 },
        poll_threshold: 4,
        max_direct_io_size: staged.limit_kb(settings) as usize,
        status_flags: if is_direct { NVME } else { 0 },
        control_flags: ALLOW_COMPATIBLE,
        features: 0b1111,
        max_device_cache_size: 128 << 10,
        per_buffer_cache_size: 1 << 10,
        max_device_pinned_mem_size: u32::try_from(pinned_kb(settings)).unwrap_or(u32::MAX),
        max_batch_io_size: staged.batch(settings),
        max_batch_io_timeout_msecs: 0,
    })
}

/// The parameters with sizes that matter here; others are 0, as the library answers them
/// before its driver is open.
pub(super) fn size(driver: &Driver, parameter: u32) -> Outcome<usize> {
    let (settings, staged) = (&driver.settings.cufile, &driver.cufile.staged);
    match parameter {
        5 => Ok(staged.limit_kb(settings) as usize),
        8 => Ok(pinned_kb(settings) as usize),
        9 => Ok(staged.batch(settings) as usize),
        0..=11 => Ok(0),
        _ => Err(refuse(INVALID_VALUE, format!("parameter {parameter}"))),
    }
}

pub(super) fn boolean(driver: &Driver, parameter: u32) -> Outcome<bool> {
    match parameter {
        1 => Ok(true),
        2 => Ok(driver.cufile.staged.is_forced_compatible()),
        0..=11 => Ok(false),
        _ => Err(refuse(INVALID_VALUE, format!("parameter {parameter}"))),
    }
}

fn stage(driver: &mut Driver) -> Outcome<&mut Staged> {
    match driver.cufile.uses {
        0 => Ok(&mut driver.cufile.staged),
        _ => Err(refuse(DRIVER_ALREADY_OPEN, "parameters are set before the driver is open")),
    }
}

pub(super) fn set_size(driver: &mut Driver, parameter: u32, value: usize) -> Outcome {
    let most = driver.settings.cufile.batch;
    let staged = stage(driver)?;
    match parameter {
        5 if value > 0 => staged.limit_kb = Some(value as u64),
        9 if value > 0 && value <= most as usize => staged.batch = Some(value as u32),
        0..=4 | 6..=8 | 10..=11 => (),
        _ => return Err(refuse(INVALID_VALUE, format!("parameter {parameter} = {value}"))),
    }
    Ok(())
}

pub(super) fn set_boolean(driver: &mut Driver, parameter: u32, value: bool) -> Outcome {
    let staged = stage(driver)?;
    match parameter {
        2 => staged.is_forced_compatible = Some(value),
        0..=11 => (),
        _ => return Err(refuse(INVALID_VALUE, format!("parameter {parameter}"))),
    }
    Ok(())
}
