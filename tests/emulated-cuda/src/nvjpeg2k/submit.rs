//! Parsing a codestream and submitting its decode.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names, arguments and contracts are nvJPEG2000's"
)]

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::allocators::{Block, Place, renew};
use super::api::{call, refuse};
use super::codestream::{Header, header};
use super::decode::{Decode, Plane, Sample};
use super::settings::Corrupt;
use super::status::{
    BAD_JPEG, EXECUTION_FAILED, INVALID_PARAMETER, JPEG_NOT_SUPPORTED, Outcome, told,
};
use super::{Content, Parameters, Submitted, known, openjpeg};
use crate::door::{self, Refused};
use crate::driver::Driver;
use crate::random::{Random, digest};
use crate::task::Task;

/// `nvjpeg2kImage_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Device memory, one pointer a component.
    pub pixel_data: *const u64,
    pub pitch_in_bytes: *const usize,
    /// 0 u8, 1 u16, 2 i16.
    pub pixel_type: u32,
    pub num_components: u32,
}

/// What a corrupt stream leads to.
fn corruption(driver: &Driver, digest: u64) -> Corrupt {
    driver.settings.nvjpeg2k.corrupt.unwrap_or_else(|| {
        match Random::new(driver.settings.seed ^ digest).below(4) {
            0 => Corrupt::Parse,
            1 => Corrupt::Decode,
            2 => Corrupt::Garbage,
            _ => Corrupt::Unwritten,
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvjpeg2kStreamParse(
    library: u64,
    data: *const u8,
    length: usize,
    _save_metadata: c_int,
    _save_stream: c_int,
    stream: u64,
) -> u32 {
    call("nvjpeg2kStreamParse", |driver| {
        known(&mut driver.nvjpeg2k.libraries, library)?;
        let found = known(&mut driver.nvjpeg2k.streams, stream)?;
        if let Some(old) = &mut found.content {
            old.source = None;
        }
        let decodes = std::mem::take(&mut found.decodes);
        driver.spoil(decodes, "a bitstream is parsed again");
        if data.is_null() || length == 0 {
            return refuse(INVALID_PARAMETER, "no bytes");
        }
        // SAFETY: readable bytes, says the contract.
        let bytes = unsafe { std::slice::from_raw_parts(data, length) };
        let parsed = parse(driver, bytes);
        let record = &mut driver.ledger.nvjpeg2k;
        match &parsed {
            Ok(_) => {
                record.parsed += 1;
                record.input_bytes += length as u64;
            }
            Err(_) => record.parse_refused += 1,
        }
        // What a stream held before stays where the new one can't be parsed.
        known(&mut driver.nvjpeg2k.streams, stream)?.content = Some(parsed?);
        Ok(())
    })
}

fn parse(driver: &Driver, bytes: &[u8]) -> Outcome<Content> {
    let Some(header) = header(bytes) else {
        return refuse(BAD_JPEG, "there is no main header");
    };
    if !header.is_supported() {
        return refuse(JPEG_NOT_SUPPORTED, "such components are not supported");
    }
    let image = openjpeg::decode(bytes, &header).map(Arc::new);
    if image.is_none() && corruption(driver, digest(bytes)) == Corrupt::Parse {
        return refuse(BAD_JPEG, "the codestream can't be parsed");
    }
    Ok(Content { header, source: Some(bytes.as_ptr() as usize), codestream: bytes.to_vec(), image })
}

/// A decode that was checked and lacks its memory.
struct Plan {
    /// The CUDA stream, as the caller and as the driver calls it.
    streams: (u64, u64),
    device_bytes: usize,
    pinned_bytes: usize,
    planes: Vec<Plane>,
    sample: Sample,
    image: Option<Arc<openjpeg::Image>>,
    corrupt: Corrupt,
    codestream: Vec<u8>,
    /// The state is another decode's.
    is_spoiled: bool,
}

/// The handles of a decode.
#[derive(Clone, Copy)]
struct Handles {
    library: u64,
    state: u64,
    stream: u64,
    parameters: u64,
}

impl Handles {
    fn plan(self, driver: &mut Driver, output: Option<&Image>, cuda: u64) -> Outcome<Plan> {
        let library = *known(&mut driver.nvjpeg2k.libraries, self.library)?;
        if known(&mut driver.nvjpeg2k.states, self.state)?.library != self.library {
            return refuse(INVALID_PARAMETER, "a state of another library handle");
        }
        let parameters = match self.parameters {
            0 => Parameters::default(),
            handle => *known(&mut driver.nvjpeg2k.parameters, handle)?,
        };
        let failed = |text: String| (EXECUTION_FAILED, text);
        let context = driver.runtime_context().map_err(failed)?;
        let resolved = driver.stream(context, cuda).map_err(|refusal| failed(refusal.message))?;
        let Some(content) = &known(&mut driver.nvjpeg2k.streams, self.stream)?.content else {
            return refuse(INVALID_PARAMETER, "the bitstream is not parsed");
        };
        let header = &content.header;
        if parameters.is_rgb && header.color_space == 3 {
            return refuse(JPEG_NOT_SUPPORTED, "sYCC is not converted here");
        }
        let Some(output) = output else { return refuse(INVALID_PARAMETER, "no output") };
        let (planes, sample) = output.planes(header, parameters.is_interleaved)?;
        let length = content.codestream.len();
        let codestream = match content.source {
            // SAFETY: the library was told not to save the stream, so that the caller keeps it.
            Some(start) => unsafe { std::slice::from_raw_parts(start as *const u8, length) },
            None => &content.codestream,
        };
        let image = match codestream == content.codestream {
            true => content.image.clone(),
            false => openjpeg::decode(codestream, header).map(Arc::new),
        };
        let codestream = codestream.to_vec();
        let padded = |bytes: u64, padding: usize| (bytes as usize).next_multiple_of(padding);
        let device_bytes = padded(header.samples() * 4 + length as u64, library.device_padding);
        let pinned_bytes = padded(length as u64, library.pinned_padding);
        let corrupt = corruption(driver, digest(&codestream));
        if image.is_none() && matches!(corrupt, Corrupt::Parse | Corrupt::Decode) {
            driver.ledger.nvjpeg2k.corrupt += 1;
            return refuse(BAD_JPEG, "the codestream can't be decoded");
        }
        let last = known(&mut driver.nvjpeg2k.states, self.state)?.last.clone();
        let is_spoiled = driver.spoil(last, "a state is used again");
        let streams = (cuda, resolved);
        Ok(Plan {
            streams,
            device_bytes,
            pinned_bytes,
            planes,
            sample,
            image,
            corrupt,
            codestream,
            is_spoiled,
        })
    }

    /// The state's memory of a kind, got or grown.
    fn hold(
        self,
        symbol: &'static str,
        place: Place,
        bytes: usize,
        stream: u64,
    ) -> Result<Block, Refused<u32>> {
        let (allocator, old) = door::resumed(symbol, |driver| {
            let state = known(&mut driver.nvjpeg2k.states, self.state)?;
            let (allocator, block) = match place {
                Place::Device => (state.allocators.device, &mut state.device),
                Place::Pinned => (state.allocators.pinned, &mut state.pinned),
            };
            Ok((allocator, block.take()))
        })?;
        let is_enough = |block: &Block| block.bytes >= bytes;
        let made = match old.filter(is_enough) {
            Some(block) => block,
            None => renew(allocator, place, old, bytes, stream, symbol)?,
        };
        door::resumed(symbol, |driver| {
            let state = known(&mut driver.nvjpeg2k.states, self.state)?;
            let record = &mut driver.ledger.nvjpeg2k;
            let (block, count, sum) = match place {
                Place::Device => {
                    (&mut state.device, &mut record.device_allocations, &mut record.device_bytes)
                }
                Place::Pinned => {
                    (&mut state.pinned, &mut record.pinned_allocations, &mut record.pinned_bytes)
                }
            };
            *block = Some(made);
            if old.filter(is_enough).is_none() {
                *count += 1;
                *sum += bytes as u64;
            }
            Ok(made)
        })
    }

    fn submit(self, driver: &mut Driver, plan: Plan, work: Block, pinned: Block) -> Outcome {
        let digest = digest(&plan.codestream);
        let input = Block { bytes: plan.codestream.len(), ..pinned };
        // SAFETY: the allocator gave at least that many bytes of host memory.
        unsafe {
            let target = input.address as *mut u8;
            std::ptr::copy_nonoverlapping(plan.codestream.as_ptr(), target, input.bytes);
        }
        let is_spoiled = Arc::new(AtomicBool::new(plan.is_spoiled));
        let decode = Decode {
            symbol: driver.symbol,
            planes: plan.planes,
            sample: plan.sample,
            image: plan.image,
            corrupt: plan.corrupt,
            input,
            digest,
            work,
            is_spoiled: is_spoiled.clone(),
        };
        let operation = driver.submit(plan.streams.1, Task::Nvjpeg2k(Box::new(decode)), None);
        let submitted = Submitted { operation, is_spoiled };
        let state = known(&mut driver.nvjpeg2k.states, self.state)?;
        state.last = Some(submitted.clone());
        state.stream = plan.streams.0;
        let pending = &driver.work.pending;
        let decodes = &mut known(&mut driver.nvjpeg2k.streams, self.stream)?.decodes;
        decodes.retain(|decode| pending.contains_key(&decode.operation));
        decodes.push(submitted);
        driver.ledger.nvjpeg2k.decodes += 1;
        Ok(())
    }

    fn decode(self, symbol: &'static str, output: Option<&Image>, cuda: u64) -> u32 {
        let done =
            door::library(symbol, |driver| self.plan(driver, output, cuda)).and_then(|plan| {
                let device = self.hold(symbol, Place::Device, plan.device_bytes, cuda)?;
                let pinned = self.hold(symbol, Place::Pinned, plan.pinned_bytes, cuda)?;
                door::resumed(symbol, |driver| self.submit(driver, plan, device, pinned))
            });
        done.map_or_else(told, |()| 0)
    }
}

impl Image {
    /// Where the samples go, and as what.
    fn planes(&self, header: &Header, is_interleaved: bool) -> Outcome<(Vec<Plane>, Sample)> {
        let components = &header.components;
        let sample = match self.pixel_type {
            0 => Sample::U8,
            1 => Sample::U16,
            2 => Sample::I16,
            other => return refuse(INVALID_PARAMETER, format!("pixel type {other}")),
        };
        let fits = components.iter().all(|one| sample.fits(one.precision, one.is_signed));
        if self.num_components as usize != components.len() || !fits {
            let text = format!("{} components as {sample:?}", self.num_components);
            return refuse(INVALID_PARAMETER, text);
        }
        if self.pixel_data.is_null() || self.pitch_in_bytes.is_null() {
            return refuse(INVALID_PARAMETER, "no pointers or no pitches");
        }
        let size = |index: usize| (components[index].width, components[index].height);
        let groups: Vec<_> = match is_interleaved {
            true if (1..components.len()).any(|index| size(index) != size(0)) => {
                return refuse(JPEG_NOT_SUPPORTED, "interleaved components of different sizes");
            }
            true => std::iter::once(0..components.len()).collect(),
            false => (0..components.len()).map(|index| index..index + 1).collect(),
        };
        let plane = |(index, group): (usize, std::ops::Range<usize>)| {
            // SAFETY: as many as there are components, or one where they are interleaved.
            let (address, pitch) =
                unsafe { (*self.pixel_data.add(index), *self.pitch_in_bytes.add(index)) };
            let (width, height) = size(group.start);
            let (width, height) = (width as usize, height as usize);
            if address == 0 || pitch < width * group.len() * sample.bytes() {
                return refuse(INVALID_PARAMETER, format!("{address:#x} with a pitch of {pitch}"));
            }
            Ok(Plane { address, pitch: pitch as u64, width, height, components: group })
        };
        let planes = groups.into_iter().enumerate().map(plane).collect::<Outcome<Vec<_>>>()?;
        Ok((planes, sample))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecode(
    library: u64,
    state: u64,
    stream: u64,
    output: Option<&Image>,
    cuda: u64,
) -> u32 {
    Handles { library, state, stream, parameters: 0 }.decode("nvjpeg2kDecode", output, cuda)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvjpeg2kDecodeImage(
    library: u64,
    state: u64,
    stream: u64,
    parameters: u64,
    output: Option<&Image>,
    cuda: u64,
) -> u32 {
    Handles { library, state, stream, parameters }.decode("nvjpeg2kDecodeImage", output, cuda)
}
