//! What a test may choose: EMUCUDA_* in the environment, read once, or set while running.
//!
//! Refuses to know what a setting does. Invariant: a value that can't be read panics at
//! load, so that a test with a misspelt value does not pass for another reason.

use std::time::Duration;

use crate::cufile::CufileSettings;
use crate::nvjpeg2k::Nvjpeg2kSettings;
use crate::status::Code;

/// How the operations of streams are ordered where nothing orders them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// At a synchronisation only what it waits for, in a random order that dependencies allow.
    Lazy,
    /// At a synchronisation anything that may run, at random, until what it waits for has.
    Mixed,
    /// The same, but always what was submitted last: copies overtake those who read.
    Contrary,
}

/// What becomes of a chunk that nvCOMP can't decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Corrupt {
    /// Its status and size are not written.
    Unwritten,
    /// Success, the size that was asked for, and noise.
    Garbage,
    /// Its status says so, but the chunk next to it is damaged as well.
    Neighbour,
    /// A sticky fault of the device.
    Fault,
}

/// A compute mode of no device: it can't be had, and does not say why.
pub(crate) const BUSY: u32 = 256;

/// The call that fails, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) call: Which,
    pub(crate) code: Code,
}

/// Which call it is.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The n-th of all.
    Nth(u64),
    /// The next one of this symbol.
    Next(String),
}

/// All settings; see the table in [`Settings::set`] for their names.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) report: Option<String>,
    pub(crate) seed: u64,
    pub(crate) adversarial: bool,
    pub(crate) races: bool,
    pub(crate) budget: u64,
    pub(crate) order: Order,
    pub(crate) devices: u32,
    pub(crate) driver: u32,
    pub(crate) memory: u64,
    /// By device; the last one goes for those that follow.
    pub(crate) free: Vec<u64>,
    pub(crate) capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) name: String,
    pub(crate) compute_mode: u32,
    pub(crate) init: u32,
    /// How long starting takes, in real time.
    pub(crate) init_time: Duration,
    pub(crate) fail: Option<Failure>,
    pub(crate) nvcomp: u32,
    pub(crate) nvcomp_cudart: u32,
    pub(crate) corrupt: Option<Corrupt>,
    pub(crate) unsized_decoded: bool,
    pub(crate) expand: u64,
    /// How many of 1000 intact chunks are decompressed wrongly, and called all right.
    pub(crate) wrong: u64,
    /// How many of 1000 chunks are compressed as if a byte were another, and called all right.
    pub(crate) wrong_pack: u64,
    pub(crate) chunk_limit: Option<u64>,
    pub(crate) deflate_temp: u64,
    pub(crate) pinned_refused: bool,
    pub(crate) cufile: CufileSettings,
    pub(crate) nvjpeg2k: Nvjpeg2kSettings,
}

const NAMES: &[&str] = &[
    "REPORT",
    "SEED",
    "SCHEDULE",
    "RACES",
    "BUDGET",
    "ORDER",
    "DEVICES",
    "DRIVER",
    "MEMORY_MB",
    "FREE_MB",
    "CAPABILITY",
    "SMS",
    "NAME",
    "COMPUTE_MODE",
    "CUINIT",
    "CUINIT_MS",
    "FAIL",
    "NVCOMP",
    "NVCOMP_CUDART",
    "CORRUPT",
    "UNSIZED",
    "EXPAND",
    "WRONG",
    "WRONG_PACK",
    "CHUNK_LIMIT",
    "DEFLATE_TEMP",
    "PINNED",
    "CUFILE",
    "CUFILE_FILES",
    "CUFILE_LIMIT_KB",
    "CUFILE_BATCH",
    "CUFILE_PINNED_MB",
    "CUFILE_READ",
    "CUFILE_HALF",
    "CUFILE_LAND",
    "CUFILE_LATENCY_US",
    "CUFILE_WORKERS",
    "CUFILE_SLEEP_US",
    "NVJPEG2K",
    "J2K_CORRUPT",
    "J2K_HOARD",
];

impl Default for Settings {
    fn default() -> Self {
        Settings {
            report: None,
            seed: 0,
            adversarial: false,
            races: false,
            budget: 20_000_000_000,
            order: Order::Lazy,
            devices: 1,
            driver: 12020,
            memory: 8192 << 20,
            free: Vec::new(),
            capability: (8, 6),
            multiprocessors: 80,
            name: "Emulated GPU".into(),
            compute_mode: 0,
            init: 0,
            init_time: Duration::ZERO,
            fail: None,
            nvcomp: 6000,
            nvcomp_cudart: 12090,
            corrupt: None,
            unsized_decoded: false,
            expand: 16,
            wrong: 0,
            wrong_pack: 0,
            chunk_limit: None,
            deflate_temp: 0,
            pinned_refused: false,
            cufile: CufileSettings::default(),
            nvjpeg2k: Nvjpeg2kSettings::default(),
        }
    }
}

impl Settings {
    /// The defaults with what the environment says.
    pub(crate) fn from_environment() -> Self {
        let mut settings = Settings::default();
        for name in NAMES {
            if let Ok(value) = std::env::var(format!("EMUCUDA_{name}")) {
                assert!(settings.set(name, &value), "EMUCUDA_{name}={value} is not understood");
            }
        }
        settings
    }

    /// Changes one setting by its name, with or without EMUCUDA_; whether it was understood.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        self.change(name.strip_prefix("EMUCUDA_").unwrap_or(name), value).is_some()
    }

    fn change(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "REPORT" => self.report = some(value).map(String::from),
            "SEED" => self.seed = value.parse().ok()?,
            "SCHEDULE" => {
                self.adversarial = choice(value, &[("converged", false), ("adversarial", true)])?;
            }
            "RACES" => self.races = choice(value, &[("0", false), ("1", true)])?,
            "BUDGET" => self.budget = value.parse().ok()?,
            "ORDER" => {
                self.order = choice(
                    value,
                    &[
                        ("lazy", Order::Lazy),
                        ("mixed", Order::Mixed),
                        ("contrary", Order::Contrary),
                    ],
                )?;
            }
            "DEVICES" => self.devices = value.parse().ok().filter(|n| *n <= 8)?,
            "DRIVER" => self.driver = value.parse().ok()?,
            "MEMORY_MB" => self.memory = value.parse::<u64>().ok()? << 20,
            "FREE_MB" => self.free = megabytes(value)?,
            "CAPABILITY" => {
                let (major, minor) = value.split_once('.')?;
                self.capability = (major.parse().ok()?, minor.parse().ok()?);
            }
            "SMS" => self.multiprocessors = value.parse().ok()?,
            "NAME" => self.name = value.into(),
            "COMPUTE_MODE" => {
                self.compute_mode = choice(
                    value,
                    &[("default", 0), ("prohibited", 2), ("exclusive", 3), ("busy", BUSY)],
                )?;
            }
            "CUINIT" => self.init = value.parse().ok()?,
            "CUINIT_MS" => self.init_time = Duration::from_millis(value.parse().ok()?),
            "FAIL" => self.fail = failure(value)?,
            _ if name.starts_with("CUFILE") => self.cufile.change(name, value)?,
            "NVJPEG2K" | "J2K_CORRUPT" | "J2K_HOARD" => self.nvjpeg2k.change(name, value)?,
            _ => self.change_nvcomp(name, value)?,
        }
        Some(())
    }

    fn change_nvcomp(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "NVCOMP" => self.nvcomp = value.parse().ok()?,
            "NVCOMP_CUDART" => self.nvcomp_cudart = value.parse().ok()?,
            "CORRUPT" => {
                self.corrupt = choice(
                    value,
                    &[
                        ("", None),
                        ("unwritten", Some(Corrupt::Unwritten)),
                        ("garbage", Some(Corrupt::Garbage)),
                        ("neighbour", Some(Corrupt::Neighbour)),
                        ("fault", Some(Corrupt::Fault)),
                    ],
                )?;
            }
            "UNSIZED" => {
                self.unsized_decoded = choice(value, &[("garbage", false), ("decode", true)])?;
            }
            "EXPAND" => self.expand = value.parse().ok().filter(|n| *n <= 1000)?,
            "WRONG" => self.wrong = value.parse().ok().filter(|n| *n <= 1000)?,
            "WRONG_PACK" => self.wrong_pack = value.parse().ok().filter(|n| *n <= 1000)?,
            "CHUNK_LIMIT" => self.chunk_limit = optional(value)?,
            "DEFLATE_TEMP" => self.deflate_temp = value.parse().ok()?,
            "PINNED" => self.pinned_refused = choice(value, &[("allow", false), ("refuse", true)])?,
            _ => return None,
        }
        Some(())
    }
}

pub(crate) fn some(value: &str) -> Option<&str> {
    (!value.is_empty()).then_some(value)
}

/// An empty value means none; the outer option is whether it was understood.
pub(crate) fn optional(value: &str) -> Option<Option<u64>> {
    match some(value) {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

/// A list of megabytes, one a device.
fn megabytes(value: &str) -> Option<Vec<u64>> {
    let items = some(value).into_iter().flat_map(|list| list.split(','));
    items.map(|item| item.parse::<u64>().ok().map(|mb| mb << 20)).collect()
}

pub(crate) fn choice<T: Copy>(value: &str, among: &[(&str, T)]) -> Option<T> {
    among.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice)
}

fn failure(value: &str) -> Option<Option<Failure>> {
    let Some(text) = some(value) else { return Some(None) };
    let (call, code) = text.split_once(':')?;
    let call = match call.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => Which::Next(call.into()),
        false => Which::Nth(call.parse().ok()?),
    };
    Some(Some(Failure { call, code: Code(code.parse().ok()?) }))
}
