//! Memory and streams that are not ours: whose they are, and when they are ready.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::{result, sys};

use super::{Answer, Current, Event, Fault};

/// CUDA_ERROR_INVALID_VALUE: an address that the driver does not know.
const INVALID_VALUE: i32 = 1;

/// Whose memory an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine::cuda) enum Owner {
    /// This device's, in the context that we use.
    Here,
    /// Another device's, or another context's of this one.
    Elsewhere,
    /// The host's, or nobody's that the driver knows.
    Host,
}

/// Streams that are names for the current context's own: the default, the legacy default, the
/// thread's default.
const NAMED_STREAMS: u64 = 2;

impl Current {
    /// Whose memory this is.
    pub(in crate::engine::cuda) fn owner(&self, address: u64) -> Answer<Owner> {
        use sys::CUpointer_attribute_enum as Attribute;
        let memory: c_uint =
            match self.attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) {
                Err(Fault { code: INVALID_VALUE, nvcomp: false, .. }) => return Ok(Owner::Host),
                answer => answer?,
            };
        if memory != sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as c_uint {
            return Ok(Owner::Host);
        }
        let ordinal: c_int =
            self.attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)?;
        // Memory of a pool has none.
        let context: usize = self.attribute(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, address)?;
        let ours = context == 0 || context == self.device.context.addr();
        Ok(if ordinal == self.device.ordinal && ours { Owner::Here } else { Owner::Elsewhere })
    }

    fn attribute<T: Copy + Default>(
        &self,
        which: sys::CUpointer_attribute,
        address: u64,
    ) -> Answer<T> {
        let mut value = [T::default(); 2];
        // SAFETY: room for more than the attribute, which is as large as T.
        let ask = || unsafe {
            sys::cuPointerGetAttribute(value.as_mut_ptr().cast(), which, address).result()
        };
        self.device.ask("cuPointerGetAttribute", ask)?;
        Ok(value[0])
    }

    /// Whether a stream of the caller's belongs to the context that we use.
    ///
    /// # Safety
    /// It must be a stream, or one of the names of a context's own.
    pub(in crate::engine::cuda) unsafe fn is_ours(&self, stream: *mut c_void) -> Answer<bool> {
        if stream.addr() as u64 <= NAMED_STREAMS {
            return Ok(self.before.is_none_or(|before| before == self.device.context));
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let ask = || unsafe { sys::cuStreamGetCtx(stream.cast(), &mut context).result() };
        self.device.ask("cuStreamGetCtx", ask)?;
        Ok(context == self.device.context)
    }

    /// Whether what is submitted to a stream of the caller's is recorded for later instead of done.
    ///
    /// # Safety
    /// As for `mark`.
    pub(in crate::engine::cuda) unsafe fn is_capturing(&self, stream: *mut c_void) -> Answer<bool> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the caller's promise.
        let ask = || unsafe { sys::cuStreamIsCapturing(stream.cast(), &mut status).result() };
        self.device.ask("cuStreamIsCapturing", ask)?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// An event behind what was submitted to a stream of the caller's.
    ///
    /// # Safety
    /// As for `is_ours`, of the context that we use.
    pub(in crate::engine::cuda) unsafe fn mark(&self, stream: *mut c_void) -> Answer<Event> {
        let event = self.event()?;
        // SAFETY: the caller's promise.
        let record = || unsafe { result::event::record(event.event, stream.cast()) };
        self.device.ask("cuEventRecord", record)?;
        Ok(event)
    }

    /// What is submitted to a stream of the caller's from now on waits for the event's last record.
    ///
    /// # Safety
    /// As for `mark`.
    pub(in crate::engine::cuda) unsafe fn hold(
        &self,
        stream: *mut c_void,
        event: &Event,
    ) -> Answer<()> {
        let flags = sys::CUevent_wait_flags_enum::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the caller's promise.
        let wait = || unsafe { result::stream::wait_event(stream.cast(), event.event, flags) };
        self.device.ask("cuStreamWaitEvent", wait)
    }
}
