//! A run of batches of one kind through the arena: who has which lane, and what waits for what.
//!
//! The n-th batch of a run uses input region n mod 2 of the device and output region n mod 2, so its
//! upload waits until batch n−2 was computed, and computing it until n−2 was downloaded: on the
//! device, by events, and never on the host. Encoded batches, whose last download the host asks
//! for, use the output region of their lane.
//!
//! Pixels that stay on the device are put in their place by a fourth stream, which may be behind one of the
//! caller's: n waits for that of n−2 as well, and nobody on the host does. So a run may end before its last
//! batch; the arena knows, and the next run looks whether that is over before it begins.
//!
//! What a file is read to past the host is its lane's, too: cuFile knows of no stream, and a lane is
//! given back when the host has waited for its batch.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::arena::{Arena, LANES, Marks, Place, Sizes};
use super::cufile::{File, Read, Reads, Trouble, Unread};
use super::driver::{Answer, Current, Event};
use super::probe::Gpu;

/// Batches after which others have their turn.
const TURN: u64 = 16;

/// The arena, lent to batches of one kind until the last of them is gone.
pub(super) struct Run {
    /// The device.
    pub(super) gpu: Arc<Gpu>,
    /// How the arena is divided.
    pub(super) sizes: Sizes,
    /// Host memory is page-locked.
    pub(super) pinned: bool,
    /// Why cuFile does not take the memory that files are read to, if so.
    unregistered: Option<Trouble>,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    arena: Option<Box<Arena>>,
    free: Vec<usize>,
    /// Lanes of those who wait for another one.
    parked: usize,
    next: u64,
    /// The last batch whose pixels stay on the device: the host does not wait for its end.
    unfinished: Option<u64>,
    /// Somebody may still write to the device memory.
    tainted: bool,
}

/// A lane of host memory, for one batch.
pub(super) struct Lane {
    run: Arc<Run>,
    lane: usize,
    /// The batch was submitted, wholly or in part, and nobody has waited for it yet.
    flying: bool,
    n: u64,
    /// Reads to its memory may still be under way: it is not given back.
    retired: bool,
}

/// What a batch is submitted with: nobody else submits meanwhile.
pub(super) struct Submission<'a> {
    arena: &'a Arena,
    /// Where its memory is.
    pub(super) place: Place,
    n: u64,
    /// Bytes of the lane's input.
    input: usize,
    /// Computing has begun.
    begun: bool,
    /// The run has had batches that were not over when the host heard of them,
    lingering: bool,
    /// and this is one.
    lingers: bool,
}

impl Run {
    /// Borrows the arena; `None` while somebody else has it.
    pub(super) fn begin(gpu: &Arc<Gpu>, current: &Current, sizes: Sizes) -> Answer<Option<Run>> {
        let Some(mut arena) = gpu.arena.borrow(current)? else { return Ok(None) };
        let fitted = match arena.is_free() {
            Ok(false) => {
                gpu.arena.give_back(arena);
                return Ok(None);
            }
            free => free.and_then(|_| arena.fit(current, sizes)),
        };
        match fitted {
            Ok(pinned) => {
                let cufile = gpu.cufile.get().filter(|_| sizes.landing > 0);
                let registered = cufile.map(|cufile| arena.register(cufile, current, sizes));
                let unregistered = registered.and_then(Result::err);
                let state = State {
                    arena: Some(arena),
                    free: (0..LANES).collect(),
                    parked: 0,
                    next: 0,
                    unfinished: None,
                    tainted: false,
                };
                let (state, freed) = (Mutex::new(state), Condvar::new());
                let gpu = Arc::clone(gpu);
                Ok(Some(Run { gpu, sizes, pinned, unregistered, state, freed }))
            }
            Err(fault) => {
                gpu.arena.give_back(arena);
                Err(fault)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others wait, and it is their turn.
    pub(super) fn has_had_its_turn(&self) -> bool {
        self.gpu.arena.is_wanted() && self.lock().next >= TURN
    }

    /// A lane, if one is free.
    pub(super) fn lane(self: &Arc<Self>) -> Option<Lane> {
        let lane = self.lock().free.pop()?;
        Some(self.lend(lane))
    }

    fn lend(self: &Arc<Self>, lane: usize) -> Lane {
        Lane { run: Arc::clone(self), lane, flying: false, n: 0, retired: false }
    }

    /// A lane for somebody who has `held` of them: waits for others to give one back. `None` if
    /// those wait too, so that the caller has to be done with one of its own first.
    pub(super) fn next_lane(self: &Arc<Self>, held: usize) -> Option<Lane> {
        let mut state = self.lock();
        loop {
            if let Some(lane) = state.free.pop() {
                return Some(self.lend(lane));
            }
            if held + state.parked >= LANES {
                return None;
            }
            state.parked += held;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.parked -= held;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = self.gpu.nvjpeg2k.get() {
            state.tainted |= !library.end_run();
        }
        if let Some(mut arena) = state.arena.take() {
            if let Some(n) = state.unfinished {
                arena.leave(n);
            }
            if state.tainted {
                arena.forsake();
            }
            self.gpu.arena.give_back(arena);
        }
    }
}

impl Lane {
    fn place(&self, state: &State, n: u64) -> Place {
        let arena = state.arena.as_deref();
        // The arena was fitted when the run began, and stays until it ends.
        arena.and_then(|a| a.place(self.run.sizes, n, self.lane)).expect("a fitted arena")
    }

    /// Host memory of this lane: what goes up, what comes down.
    pub(super) fn host(&mut self) -> (&mut [u8], &mut [u8]) {
        let place = self.place(&self.run.lock(), 0);
        let sizes = self.run.sizes;
        // SAFETY: the lane is this batch's alone and nothing is being copied from or to it when
        // the caller may write to it: before the submission, or after the wait.
        unsafe {
            (
                std::slice::from_raw_parts_mut(place.host_input, sizes.input),
                std::slice::from_raw_parts_mut(place.host_output, sizes.output),
            )
        }
    }

    /// The same, to be looked at: nothing is being copied to it once the batch was waited for, and
    /// what is still being copied from it may be read.
    pub(super) fn view(&self) -> (&[u8], &[u8]) {
        let place = self.place(&self.run.lock(), 0);
        let sizes = self.run.sizes;
        // SAFETY: as in `host`; nobody writes while the lane is borrowed.
        unsafe {
            (
                std::slice::from_raw_parts(place.host_input, sizes.input),
                std::slice::from_raw_parts(place.host_output, sizes.output),
            )
        }
    }

    /// Host memory of this lane for what the file is read to.
    pub(super) fn landing(&mut self) -> &mut [u8] {
        let place = self.place(&self.run.lock(), 0);
        // SAFETY: as in `host`.
        unsafe { std::slice::from_raw_parts_mut(place.host_landing, self.run.sizes.landing) }
    }

    /// The same, to be looked at.
    pub(super) fn landed(&self) -> &[u8] {
        let place = self.place(&self.run.lock(), 0);
        // SAFETY: as in `view`.
        unsafe { std::slice::from_raw_parts(place.host_landing, self.run.sizes.landing) }
    }

    /// Has cuFile read to the lane's device memory; nothing of this lane was submitted yet.
    pub(super) fn read(&mut self, file: &Arc<File>, reads: Vec<Read>) -> Result<Reads, Unread> {
        let failed = |trouble| Unread { trouble, settled: true };
        if let Some(trouble) = self.run.unregistered {
            return Err(failed(trouble));
        }
        let state = self.run.lock();
        let arena = state.arena.as_deref().expect("a fitted arena");
        let registration = arena.registration().ok_or(failed(Trouble::UNREGISTERED))?;
        let offset = self.lane * self.run.sizes.landing;
        let fit = |read: &Read| read.at + read.bytes <= self.run.sizes.landing;
        assert!(reads.iter().all(fit), "reads beyond the lane's memory");
        // SAFETY: within the lane's part of the registered memory, which is this batch's alone until it
        // gives the lane back; it does not before the reads are finished (or retires it).
        unsafe { Reads::submit(file, registration, offset, reads) }
    }

    /// Reads may be under way that nobody can wait for: nobody uses the lane's memory again.
    pub(super) fn retire(&mut self) {
        self.retired = true;
    }

    /// Brings down what the file was read to, once the batch was waited for.
    pub(super) fn recall(&mut self, range: Range<usize>) -> Answer<()> {
        assert!(range.end <= self.run.sizes.landing && range.start <= range.end);
        let state = self.run.lock();
        let place = self.place(&state, self.n);
        let arena = state.arena.as_ref().expect("a fitted arena");
        self.flying = true;
        let (from, to) = (place.landing + range.start as u64, place.host_landing);
        let marks = arena.marks(self.n);
        // SAFETY: within the lane's own memory, both of them.
        unsafe {
            let to = to.wrapping_add(range.start);
            arena.streams.output.download(from, to, range.len())?;
        }
        arena.streams.output.record(&marks.output[1])?;
        drop(state);
        self.wait()
    }

    /// Submits the batch, ordered after those before. If that fails half way, what was submitted is
    /// waited for before anybody else submits: no event of this batch would hold them back.
    pub(super) fn submit(
        &mut self,
        work: impl FnOnce(&mut Submission<'_>) -> Answer<()>,
    ) -> Answer<()> {
        self.flying = true;
        let mut state = self.run.lock();
        self.n = state.next;
        state.next += 1;
        let place = self.place(&state, self.n);
        let arena = state.arena.as_deref().expect("a fitted arena");
        let input = self.run.sizes.input;
        let lingering = state.unfinished.is_some();
        let mut submission =
            Submission { arena, place, n: self.n, input, begun: false, lingering, lingers: false };
        let outcome = work(&mut submission);
        let lingers = submission.lingers;
        match outcome {
            Ok(()) if lingers => state.unfinished = Some(self.n),
            Ok(()) => {}
            Err(_) => self.run.settle(arena),
        }
        outcome
    }

    /// Waits for one of the batch's events; others may submit meanwhile.
    fn wait_for(&self, event: impl Fn(&Marks) -> &Event) -> Answer<()> {
        let state = self.run.lock();
        let Some(arena) = state.arena.as_deref().map(std::ptr::from_ref) else { return Ok(()) };
        drop(state);
        // SAFETY: the arena is boxed and lent until the run ends, which this lane keeps alive; it
        // is only looked at, by everybody, until then.
        event(unsafe { &*arena }.marks(self.n)).synchronize()
    }

    /// Waits for the batch's last download. If that fails, for everything.
    pub(super) fn wait(&mut self) -> Answer<()> {
        if !self.flying {
            return Ok(());
        }
        let outcome = self.wait_for(|marks| &marks.output[1]);
        match outcome {
            Ok(()) => self.flying = false,
            Err(_) => self.run.lock().arena.iter().for_each(|arena| self.run.settle(arena)),
        }
        outcome
    }

    /// Waits for the reports that `Submission::report` asked for.
    pub(super) fn wait_for_report(&mut self) -> Answer<()> {
        self.wait_for(|marks| &marks.output[0])
    }

    /// Downloads of the output region what was not known before; the host has waited for it.
    ///
    /// # Safety
    /// As for `Stream::download`.
    pub(super) unsafe fn fetch(&mut self, from: u64, offset: usize, bytes: usize) -> Answer<()> {
        let state = self.run.lock();
        let place = self.place(&state, self.n);
        let arena = state.arena.as_ref().expect("a fitted arena");
        self.flying = true;
        // SAFETY: the caller's promise.
        unsafe {
            arena.streams.output.download(from, place.host_output.wrapping_add(offset), bytes)?;
        }
        arena.streams.output.record(&arena.marks(self.n).output[1])
    }

    /// The device's output region of this batch.
    pub(super) fn output(&self) -> u64 {
        self.place(&self.run.lock(), self.n).output
    }

    /// Milliseconds of upload, nvCOMP or what is in its place, kernels and download, once it was waited for.
    pub(super) fn times(&self) -> [f32; 4] {
        let state = self.run.lock();
        let Some(arena) = state.arena.as_ref() else { return [0.0; 4] };
        let marks = arena.marks(self.n);
        let [.., computed] = &marks.compute;
        let pairs = [
            (&marks.input[0], &marks.input[1]),
            (&marks.compute[0], &marks.compute[1]),
            (&marks.compute[1], computed),
            (&marks.output[0], &marks.output[1]),
        ];
        pairs.map(|(start, end)| end.since(start).unwrap_or(0.0))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut state = self.run.lock();
        if self.flying
            && let Some(arena) = &state.arena
        {
            // Abandoned, or failed half way: the memory is in use until the streams are empty.
            self.run.settle(arena);
        }
        match self.retired {
            true => state.tainted = true,
            false => state.free.push(self.lane),
        }
        self.run.freed.notify_all();
    }
}

impl Run {
    /// Waits until nothing is on its way. A device that cannot even do that is left alone, and its
    /// memory with it.
    fn settle(&self, arena: &Arena) {
        let device = &self.gpu.device;
        if !device.usable() {
            return;
        }
        if let Err(fault) = device.enter().and_then(|_current| arena.quiesce()) {
            device.abandon(fault.code);
        }
    }
}

impl Submission<'_> {
    /// The lane's input, for the tables: they hold device addresses, which are known only now.
    pub(super) fn tables(&mut self) -> &mut [u8] {
        // SAFETY: the lane is this batch's alone, and nothing of it was submitted yet.
        unsafe { std::slice::from_raw_parts_mut(self.place.host_input, self.input) }
    }

    /// Uploads a part of the lane's input, and `landed` bytes of what cuFile did not read.
    pub(super) fn upload(&self, part: Range<usize>, landed: usize) -> Answer<()> {
        let arena = self.arena;
        let (streams, marks) = (&arena.streams, arena.marks(self.n));
        if self.n >= 2 {
            let before = arena.marks(self.n - 2);
            streams.input.wait(&before.compute[2])?;
            if self.lingering {
                streams.input.wait(&before.placed)?;
            }
        }
        streams.input.record(&marks.input[0])?;
        // The lane's memory, which nobody touches until it was waited for; the region of batch n−2,
        // which was computed.
        let (from, to) = (self.place.host_input.wrapping_add(part.start), self.place.input);
        // SAFETY: so it says above.
        unsafe { streams.input.upload(from, to + part.start as u64, part.len())? };
        if landed > 0 {
            let Place { host_landing, landing, .. } = self.place;
            // SAFETY: the lane's own memory on both sides.
            unsafe { streams.input.upload(host_landing, landing, landed)? };
        }
        streams.input.record(&marks.input[1])
    }

    /// Orders what is computed behind the upload (and so behind what the upload waited for), and behind
    /// the download of whoever had the output region before.
    pub(super) fn compute(&self, regions: u64) -> Answer<&super::driver::Stream> {
        let arena = self.arena;
        let stream = &arena.streams.compute;
        stream.wait(&arena.marks(self.n).input[1])?;
        // A lane's own region: the host has waited before it gave the lane back.
        if regions < LANES as u64 && self.n >= regions {
            stream.wait(&arena.marks(self.n - regions).output[1])?;
        }
        if !self.begun {
            stream.record(&arena.marks(self.n).compute[0])?;
        }
        Ok(stream)
    }

    /// The stream of what is computed before anything was uploaded: in the work region, which is its own.
    pub(super) fn begin(&mut self) -> Answer<&super::driver::Stream> {
        let stream = &self.arena.streams.compute;
        stream.record(&self.arena.marks(self.n).compute[0])?;
        self.begun = true;
        Ok(stream)
    }

    /// Has `work` done after all that the host waits for.
    pub(super) fn linger(
        &mut self,
        work: impl FnOnce(&super::driver::Stream) -> Answer<()>,
    ) -> Answer<()> {
        self.lingers = true;
        let (stream, marks) = (&self.arena.streams.place, self.arena.marks(self.n));
        stream.wait(&marks.compute[2])?;
        work(stream)?;
        stream.record(&marks.placed)
    }

    /// Unpacking or packing is submitted.
    pub(super) fn unpacked(&self) -> Answer<()> {
        self.arena.streams.compute.record(&self.arena.marks(self.n).compute[1])
    }

    /// All that comes down is computed: the first `bytes` of the output region, what became of each tile,
    /// come down behind it. In the compute stream: the stream of downloads stays free for what the
    /// host asks for next.
    pub(super) fn report(&self, bytes: usize) -> Answer<()> {
        let (streams, marks) = (&self.arena.streams, self.arena.marks(self.n));
        streams.compute.record(&marks.compute[2])?;
        // SAFETY: the lane's memory, as above; the region was computed.
        unsafe { streams.compute.download(self.place.output, self.place.host_output, bytes)? };
        streams.compute.record(&marks.output[0])
    }

    /// All that comes down is computed: downloads the first `bytes` of the output region.
    pub(super) fn download(&self, bytes: usize) -> Answer<()> {
        let arena = self.arena;
        let (streams, marks) = (&arena.streams, arena.marks(self.n));
        streams.compute.record(&marks.compute[2])?;
        streams.output.wait(&marks.compute[2])?;
        streams.output.record(&marks.output[0])?;
        // SAFETY: the lane's memory, as above; the region was computed.
        unsafe { streams.output.download(self.place.output, self.place.host_output, bytes)? };
        streams.output.record(&marks.output[1])
    }
}
