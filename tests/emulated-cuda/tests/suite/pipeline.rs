//! A pipeline of three streams as an engine would build it, and the mistakes one makes
//! there. Without a mistake its results are right in every order; each mistake is caught.

use emulated_cuda::api::copy::{cuMemcpyDtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};
use emulated_cuda::api::event::{cuEventRecord, cuEventSynchronize};
use emulated_cuda::api::memory::{cuMemAllocAsync, cuMemFreeAsync};
use emulated_cuda::api::stream::{cuStreamSynchronize, cuStreamWaitEvent};

use crate::case::{allocate, ask, event, isolated, pattern, pinned, start, stream};

/// Something to get wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// The compute stream does not wait for the copy in.
    MissingWait,
    /// The host reads the output without waiting for the copy out.
    EarlyRead,
    /// The host refills the input staging before its copy ran.
    InputReuse,
    /// A copy out goes to staging whose last content nobody has read.
    OutputReuse,
    /// Memory is freed on a stream that does not wait for its user.
    CrossStreamFree,
    /// A copy's stride is that of another buffer.
    WrongStride,
    /// The copy in does not wait until the last content was used.
    DeviceReuse,
}

const BYTES: usize = 1000;
const BATCHES: usize = 5;

/// The one way in; the events mark its last batch.
struct Inlet {
    staging: &'static mut [u8],
    memory: u64,
    copied: u64,
    computed: u64,
}

/// One of the two alternating ways out.
struct Outlet {
    staging: &'static mut [u8],
    memory: u64,
    copied: u64,
}

struct Pipeline {
    mistake: Mistake,
    copy_in: u64,
    compute: u64,
    copy_out: u64,
    inlet: Inlet,
    outlets: [Outlet; 2],
}

fn check(code: u32) -> Result<(), u32> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Pipeline {
    fn new(mistake: Mistake) -> Self {
        let outlet = || Outlet { staging: pinned(BYTES), memory: allocate(BYTES), copied: event() };
        Pipeline {
            mistake,
            copy_in: stream(),
            compute: stream(),
            copy_out: stream(),
            inlet: Inlet {
                staging: pinned(BYTES),
                memory: allocate(BYTES),
                copied: event(),
                computed: event(),
            },
            outlets: [outlet(), outlet()],
        }
    }

    /// Sends batches through copy in, compute and copy out; what came out, or a code.
    fn run(&mut self) -> Result<Vec<Vec<u8>>, u32> {
        let mut results = Vec::new();
        let late = if self.mistake == Mistake::OutputReuse { 2 } else { 1 };
        for batch in 0..BATCHES + late {
            if batch < BATCHES {
                self.bring_in(batch)?;
                self.take_out(batch)?;
            }
            if let Some(done) = batch.checked_sub(late) {
                let outlet = &self.outlets[done % 2];
                if self.mistake != Mistake::EarlyRead {
                    check(cuEventSynchronize(outlet.copied))?;
                }
                results.push(outlet.staging.to_vec());
            }
        }
        for stream in [self.copy_in, self.compute, self.copy_out] {
            check(cuStreamSynchronize(stream))?;
        }
        Ok(results)
    }

    /// Fills the staging and copies it to the device.
    fn bring_in(&mut self, batch: usize) -> Result<(), u32> {
        let (inlet, mistake, copy_in) = (&mut self.inlet, self.mistake, self.copy_in);
        if mistake != Mistake::InputReuse {
            check(cuEventSynchronize(inlet.copied))?;
        }
        inlet.staging.copy_from_slice(&pattern(batch as u8, BYTES));
        if mistake != Mistake::DeviceReuse {
            check(cuStreamWaitEvent(copy_in, inlet.computed, 0))?;
        }
        if mistake == Mistake::CrossStreamFree {
            inlet.memory = ask(|place| cuMemAllocAsync(place, BYTES, copy_in))?;
        }
        let stride = if mistake == Mistake::WrongStride { BYTES + 24 } else { BYTES };
        for row in 0..2 {
            let (at, half) = (row * stride / 2, BYTES / 2);
            let source = inlet.staging[row * half..].as_ptr().cast();
            let target = inlet.memory + at as u64;
            // SAFETY: half of the pinned staging, which lives as long as the process.
            check(unsafe { cuMemcpyHtoDAsync_v2(target, source, half, copy_in) })?;
        }
        check(cuEventRecord(inlet.copied, copy_in))
    }

    /// Computes, which is a copy here, and copies to the host.
    fn take_out(&mut self, batch: usize) -> Result<(), u32> {
        let (inlet, outlet) = (&self.inlet, &mut self.outlets[batch % 2]);
        let (compute, copy_out) = (self.compute, self.copy_out);
        if self.mistake != Mistake::MissingWait {
            check(cuStreamWaitEvent(compute, inlet.copied, 0))?;
        }
        check(cuStreamWaitEvent(compute, outlet.copied, 0))?;
        check(cuMemcpyDtoDAsync_v2(outlet.memory, inlet.memory, BYTES, compute))?;
        check(cuEventRecord(inlet.computed, compute))?;
        if self.mistake == Mistake::CrossStreamFree {
            check(cuMemFreeAsync(inlet.memory, self.copy_in))?;
            check(cuStreamSynchronize(self.copy_in))?;
        }
        check(cuStreamWaitEvent(copy_out, inlet.computed, 0))?;
        let target = outlet.staging.as_mut_ptr().cast();
        // SAFETY: pinned staging, which lives as long as the process.
        check(unsafe { cuMemcpyDtoHAsync_v2(target, outlet.memory, BYTES, copy_out) })?;
        check(cuEventRecord(outlet.copied, copy_out))
    }
}

fn right() -> Result<Vec<Vec<u8>>, u32> {
    Ok((0..BATCHES).map(|batch| pattern(batch as u8, BYTES)).collect())
}

#[test]
fn a_correct_pipeline_is_right_in_every_order() {
    for order in ["lazy", "mixed", "contrary"] {
        for seed in ["0", "1", "2", "3"] {
            let settings = [("ORDER", order), ("SEED", seed)];
            let name = "pipeline::a_correct_pipeline_is_right_in_every_order";
            isolated(name, &settings, || {
                start(0);
                assert!(Pipeline::new(Mistake::None).run() == right());
            });
        }
    }
}

/// That a mistake gives a wrong result or an error.
fn caught(name: &str, settings: &[(&str, &str)], mistake: Mistake) {
    isolated(name, settings, || {
        start(0);
        assert!(Pipeline::new(mistake).run() != right(), "{mistake:?} went unseen");
    });
}

#[test]
fn a_missing_stream_wait_is_caught() {
    caught("pipeline::a_missing_stream_wait_is_caught", &[], Mistake::MissingWait);
}

#[test]
fn an_early_read_of_pinned_output_is_caught() {
    caught("pipeline::an_early_read_of_pinned_output_is_caught", &[], Mistake::EarlyRead);
}

#[test]
fn reuse_of_input_staging_is_caught() {
    caught("pipeline::reuse_of_input_staging_is_caught", &[], Mistake::InputReuse);
}

#[test]
fn reuse_of_output_staging_is_caught() {
    caught("pipeline::reuse_of_output_staging_is_caught", &[], Mistake::OutputReuse);
}

#[test]
fn a_cross_stream_free_is_caught() {
    caught("pipeline::a_cross_stream_free_is_caught", &[], Mistake::CrossStreamFree);
}

#[test]
fn a_wrong_stride_is_caught() {
    caught("pipeline::a_wrong_stride_is_caught", &[], Mistake::WrongStride);
}

#[test]
fn reuse_of_device_memory_is_caught_in_contrary_order() {
    let name = "pipeline::reuse_of_device_memory_is_caught_in_contrary_order";
    caught(name, &[("ORDER", "contrary")], Mistake::DeviceReuse);
}
