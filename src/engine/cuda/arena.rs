//! The memory that batches go through, one arena for each device of the process.
//!
//! An arena is lent to one run of batches at a time, grows when a run needs more than the ones
//! before, and is kept: in steady state nothing is allocated. Three lanes of host memory and two of
//! device memory let a batch be uploaded while the one before is computed and the one before that
//! is downloaded. Absent: what is in the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cufile::{CuFile, Registration, Trouble};
use super::driver::{Answer, Current, DeviceMemory, Event, Fault, Pinned, Stream};

/// Batches that may be on their way at once.
pub(super) const LANES: usize = 3;
/// Every region begins at a multiple of this.
const ALIGN: usize = 256;
/// Where files are read to begins at a multiple of this: a page of the device's.
const LANDING_ALIGN: usize = 64 << 10;

/// How long a run waits for the one before at a time, and how often it looks.
const MOMENT: Duration = Duration::from_millis(2);
const GLANCE: Duration = Duration::from_micros(20);

/// Bytes of each region for one kind of batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// What goes up: two on the device, one a lane on the host.
    pub(super) input: usize,
    /// What comes down: `output_regions` on the device, one a lane on the host.
    pub(super) output: usize,
    /// Regions that alternate, 2 or 3.
    pub(super) output_regions: usize,
    /// What is used by one batch after the other.
    pub(super) work: usize,
    /// What files are read to, past the host: one a lane on the device and, for when that fails, on the
    /// host. In whole pages; most batches have none.
    pub(super) landing: usize,
}

impl Sizes {
    fn aligned(self) -> Sizes {
        let up = |bytes: usize| bytes.next_multiple_of(ALIGN);
        Sizes { input: up(self.input), output: up(self.output), work: up(self.work), ..self }
    }

    /// Device memory in all.
    pub(super) fn device(self) -> usize {
        let sizes = self.aligned();
        let landing = if self.landing > 0 { LANES * self.landing + LANDING_ALIGN } else { 0 };
        landing + 2 * sizes.input + sizes.output_regions * sizes.output + sizes.work
    }

    /// Host memory of a lane.
    fn lane(self) -> usize {
        let sizes = self.aligned();
        sizes.input + sizes.output + sizes.landing
    }

    fn host(self) -> usize {
        LANES * self.lane()
    }
}

/// Host memory of all lanes.
enum Host {
    Pinned(Pinned),
    /// Pinning was refused.
    Pageable(Words),
}

/// Streams by role.
pub(super) struct Streams {
    /// To the device.
    pub(super) input: Stream,
    /// Kernels and nvCOMP.
    pub(super) compute: Stream,
    /// From the device.
    pub(super) output: Stream,
    /// What stays there: behind the caller's stream, which none of the others may wait for.
    pub(super) place: Stream,
}

/// Points in the life of one batch.
pub(super) struct Marks {
    /// The upload begins, has ended.
    pub(super) input: [Event; 2],
    /// Computing begins, nvCOMP is done, all that comes down is computed.
    pub(super) compute: [Event; 3],
    /// So is what stays on the device.
    pub(super) placed: Event,
    /// The download begins, has ended.
    pub(super) output: [Event; 2],
}

/// Where a batch's memory is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Host memory that goes up.
    pub(super) host_input: *mut u8,
    /// Host memory that the result comes to.
    pub(super) host_output: *mut u8,
    /// Device address of the first.
    pub(super) input: u64,
    /// Device address of the second.
    pub(super) output: u64,
    /// Device address of what is used by one after the other.
    pub(super) work: u64,
    /// Device address of what the file is read to.
    pub(super) landing: u64,
    /// Host memory for the same.
    pub(super) host_landing: *mut u8,
}

// SAFETY: addresses; whoever holds the lane uses them alone.
unsafe impl Send for Place {}

/// The arena.
pub(super) struct Arena {
    /// Part of the memory: given up before it.
    registration: Option<Registration>,
    memory: Option<DeviceMemory>,
    host: Option<(Host, usize)>,
    /// The four streams.
    pub(super) streams: Streams,
    marks: Vec<Marks>,
    /// The batch that may still use it: the last whose pixels stay on the device, which nobody on the
    /// host has waited for.
    unfinished: Option<u64>,
}

impl Arena {
    /// Streams and events; memory comes with `fit`.
    pub(super) fn new(current: &Current) -> Answer<Arena> {
        let mark = |_| {
            let event = || current.event();
            Ok(Marks {
                input: [event()?, event()?],
                compute: [event()?, event()?, event()?],
                placed: event()?,
                output: [event()?, event()?],
            })
        };
        Ok(Arena {
            registration: None,
            memory: None,
            host: None,
            streams: Streams {
                input: current.stream()?,
                compute: current.stream()?,
                output: current.stream()?,
                place: current.stream()?,
            },
            marks: (0..=LANES).map(mark).collect::<Answer<_>>()?,
            unfinished: None,
        })
    }

    /// Events of the n-th batch of a run.
    pub(super) fn marks(&self, n: u64) -> &Marks {
        &self.marks[(n % self.marks.len() as u64) as usize]
    }

    /// Device memory that it has.
    pub(super) fn device_bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, DeviceMemory::bytes)
    }

    /// The n-th batch of a run that ends may still use the arena.
    pub(super) fn leave(&mut self, n: u64) {
        self.unfinished = Some(n);
    }

    /// Waits a moment until the run before is done with the memory; false if it is not. That is up to
    /// a stream of somebody's, so nobody waits for it without end.
    pub(super) fn is_free(&mut self) -> Answer<bool> {
        let Some(n) = self.unfinished else { return Ok(true) };
        let until = Instant::now() + MOMENT;
        while !self.marks(n).placed.is_past()? {
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(GLANCE);
        }
        self.unfinished = None;
        Ok(true)
    }

    /// Makes room for batches of these sizes; nothing is on its way. Says whether host memory is
    /// pinned. Guards against taking more than nine tenths of what is free.
    pub(super) fn fit(&mut self, current: &Current, sizes: Sizes) -> Answer<bool> {
        let need = sizes.device();
        if self.device_bytes() < need {
            let (free, _) = current.memory()?;
            if need > (free + self.device_bytes()) / 10 * 9 {
                return Err(Fault { call: "cuMemGetInfo", code: 2, nvcomp: false });
            }
            self.registration = None;
            self.memory = None;
            self.memory = Some(current.allocate(need)?);
        }
        let need = sizes.host();
        if self.host.as_ref().is_none_or(|(_, bytes)| *bytes < need) {
            self.host = None;
            let host = match current.pin(need) {
                Ok(pinned) => Host::Pinned(pinned),
                Err(fault) if !current.device().usable() => return Err(fault),
                Err(_) => Host::Pageable(Words::new(need)?),
            };
            self.host = Some((host, need));
        }
        Ok(matches!(self.host, Some((Host::Pinned(_), _))))
    }

    /// Has cuFile know what files are read to, all lanes' as one buffer; once for as long as it is the
    /// same memory.
    pub(super) fn register(
        &mut self,
        cufile: &Arc<CuFile>,
        current: &Current,
        sizes: Sizes,
    ) -> Result<(), Trouble> {
        let (address, bytes) = (self.landings(), LANES * sizes.landing);
        let same = |known: &Registration| (known.address, known.bytes) == (address, bytes);
        if !self.registration.as_ref().is_some_and(same) {
            self.registration = None;
            self.registration = Some(Registration::new(cufile, current, address, bytes)?);
        }
        Ok(())
    }

    /// What cuFile knows.
    pub(super) fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    /// The device memory is left to whoever may still write to it.
    pub(super) fn forsake(&mut self) {
        std::mem::forget(self.registration.take());
        std::mem::forget(self.memory.take());
    }

    /// Where the landings of all lanes begin.
    fn landings(&self) -> u64 {
        let address = self.memory.as_ref().map_or(0, DeviceMemory::address);
        address.next_multiple_of(LANDING_ALIGN as u64)
    }

    /// Where the n-th batch of a run finds its memory, with the host memory of this lane. With as
    /// many output regions as lanes each lane has its own: lanes are not given back in order.
    pub(super) fn place(&self, sizes: Sizes, n: u64, lane: usize) -> Option<Place> {
        let sizes = sizes.aligned();
        let memory = self.memory.as_ref()?.address();
        let device = match sizes.landing {
            0 => memory,
            landing => self.landings() + (LANES * landing) as u64,
        };
        let host = match &self.host.as_ref()?.0 {
            Host::Pinned(pinned) => pinned.data(),
            Host::Pageable(words) => words.0.cast(),
        };
        let outputs = device + 2 * sizes.input as u64;
        let region = match sizes.output_regions {
            LANES => lane as u64,
            regions => n % regions as u64,
        };
        let landing = self.landings() + (lane * sizes.landing) as u64;
        let lane = host.wrapping_add(lane * sizes.lane());
        Some(Place {
            host_input: lane,
            host_output: lane.wrapping_add(sizes.input),
            host_landing: lane.wrapping_add(sizes.input + sizes.output),
            landing,
            input: device + (n % 2) * sizes.input as u64,
            output: outputs + region * sizes.output as u64,
            work: outputs + (sizes.output_regions * sizes.output) as u64,
        })
    }

    /// Waits until nothing of ours is on its way.
    pub(super) fn quiesce(&self) -> Answer<()> {
        let Streams { input, compute, output, place } = &self.streams;
        let streams = [input, compute, output, place];
        streams.map(Stream::synchronize).into_iter().collect()
    }
}

/// Zeroed memory that is written through pointers.
struct Words(*mut u64, usize);

// SAFETY: plain memory.
unsafe impl Send for Words {}

impl Words {
    fn new(bytes: usize) -> Answer<Words> {
        let mut words = Vec::new();
        let short = Fault { call: "malloc", code: 2, nvcomp: false };
        words.try_reserve_exact(bytes.div_ceil(8)).map_err(|_| short)?;
        words.resize(bytes.div_ceil(8), 0u64);
        let words = Box::into_raw(words.into_boxed_slice());
        Ok(Words(words.cast(), words.len()))
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once; nothing is copied to or from it any more.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.0, self.1)) });
    }
}

/// Lends the arena to one at a time.
#[derive(Default)]
pub(super) struct Lender {
    state: Mutex<State>,
    returned: Condvar,
    /// How many wait for it.
    waiting: AtomicUsize,
}

#[derive(Default)]
enum State {
    /// Nobody has made it yet.
    #[default]
    None,
    Here(Box<Arena>),
    Lent,
}

impl Lender {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody gives it back, at most so long.
    pub(super) fn wait(&self, patience: Duration) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let lent = |state: &mut State| matches!(state, State::Lent);
        drop(self.returned.wait_timeout_while(self.lock(), patience, lent));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The arena, unless somebody has it.
    pub(super) fn borrow(&self, current: &Current) -> Answer<Option<Box<Arena>>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Lent) {
            State::Lent => Ok(None),
            State::Here(arena) => Ok(Some(arena)),
            State::None => match Arena::new(current) {
                Ok(arena) => Ok(Some(Box::new(arena))),
                Err(fault) => {
                    *state = State::None;
                    Err(fault)
                }
            },
        }
    }

    /// Whether somebody waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Takes it back; nothing is on its way.
    pub(super) fn give_back(&self, arena: Box<Arena>) {
        *self.lock() = State::Here(arena);
        // One of them alone might not come for it after all.
        self.returned.notify_all();
    }
}
