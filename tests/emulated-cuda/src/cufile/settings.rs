//! The settings of cuFile.

use crate::settings::{choice, optional, some};

/// How the library finds the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// nvidia-fs is there.
    Direct,
    /// It is not: reads go through the host.
    Compatible,
    /// It is not, and the driver does not open.
    Refused,
}

/// Which files can be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    Any,
    /// Only those opened with O_DIRECT, as before cuFile 1.7.
    Direct,
    None,
}

/// When the bytes of a read land.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Landing {
    /// When it is submitted: earlier work that is pending finds them.
    Early,
    /// When it is reported as done.
    Late,
    /// The same, after all work that was submitted since has run, as far as it may.
    Contrary,
}

/// What is done to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Half of the bytes come.
    Short,
    /// None; an errno below 5000, or a code of cuFile's.
    Fails(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct CufileSettings {
    pub(crate) mode: Mode,
    pub(crate) files: Files,
    pub(crate) limit_kb: u64,
    pub(crate) batch: u32,
    /// Bytes that can be registered in all.
    pub(crate) pinned: Option<u64>,
    /// By the number of the read from 1, or for all.
    fates: Vec<(Option<u64>, Fate)>,
    /// The submission, from 1, of which half is done and all is said to have failed.
    pub(crate) half: Option<u64>,
    pub(crate) landing: Option<Landing>,
    pub(crate) latency_ns: u64,
    pub(crate) workers: usize,
    pub(crate) sleep_us: u64,
}

impl Default for CufileSettings {
    fn default() -> Self {
        CufileSettings {
            mode: Mode::Direct,
            files: Files::Any,
            limit_kb: 16 << 10,
            batch: 128,
            pinned: None,
            fates: Vec::new(),
            half: None,
            landing: None,
            latency_ns: 1_000_000,
            workers: 8,
            sleep_us: 0,
        }
    }
}

impl CufileSettings {
    /// Changes one setting; nothing where it is not understood.
    pub(crate) fn change(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "CUFILE" => {
                let modes = [
                    ("direct", Mode::Direct),
                    ("compat", Mode::Compatible),
                    ("refused", Mode::Refused),
                ];
                self.mode = choice(value, &modes)?;
            }
            "CUFILE_FILES" => {
                let files = [("any", Files::Any), ("direct", Files::Direct), ("none", Files::None)];
                self.files = choice(value, &files)?;
            }
            "CUFILE_LIMIT_KB" => self.limit_kb = value.parse().ok().filter(|kb| *kb > 0)?,
            "CUFILE_BATCH" => self.batch = value.parse().ok().filter(|entries| *entries > 0)?,
            "CUFILE_PINNED_MB" => self.pinned = optional(value)?.map(|mb| mb << 20),
            "CUFILE_READ" => self.fates = fates(value)?,
            "CUFILE_HALF" => self.half = optional(value)?,
            "CUFILE_LAND" => {
                let landings = [
                    ("", None),
                    ("early", Some(Landing::Early)),
                    ("late", Some(Landing::Late)),
                    ("contrary", Some(Landing::Contrary)),
                ];
                self.landing = choice(value, &landings)?;
            }
            "CUFILE_LATENCY_US" => self.latency_ns = value.parse::<u64>().ok()? * 1000,
            "CUFILE_WORKERS" => self.workers = value.parse().ok().filter(|n| *n > 0)?,
            "CUFILE_SLEEP_US" => self.sleep_us = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// What the n-th read meets.
    pub(crate) fn fate(&self, read: u64) -> Option<Fate> {
        let meant = |which: &Option<u64>| which.is_none_or(|number| number == read);
        self.fates.iter().find(|(which, _)| meant(which)).map(|(_, fate)| *fate)
    }
}

/// A list of `n:what`, `*` for every read.
fn fates(value: &str) -> Option<Vec<(Option<u64>, Fate)>> {
    let fate = |item: &str| {
        let (which, what) = item.split_once(':')?;
        let which = if which == "*" { None } else { Some(which.parse().ok()?) };
        let what = match what {
            "short" => Fate::Short,
            code => Fate::Fails(code.parse().ok()?),
        };
        Some((which, what))
    };
    some(value).into_iter().flat_map(|list| list.split(',')).map(fate).collect()
}
