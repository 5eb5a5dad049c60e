//! nvJPEG2000's part of the report.

use super::Nvjpeg2k;
use crate::json::Json;

/// What happened.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Nvjpeg2kRecord {
    pub(super) handles: u64,
    pub(super) states: u64,
    pub(super) streams: u64,
    pub(super) params: u64,
    pub(super) parsed: u64,
    pub(super) parse_refused: u64,
    /// Decodes that were submitted.
    pub(super) decodes: u64,
    /// Those that ran and wrote the right samples.
    pub(super) decoded: u64,
    pub(super) corrupt: u64,
    pub(super) misuse: u64,
    pub(super) bytes: u64,
    pub(super) input_bytes: u64,
    pub(super) device_allocations: u64,
    pub(super) device_bytes: u64,
    pub(super) pinned_allocations: u64,
    pub(super) pinned_bytes: u64,
}

/// Writes what happened.
pub(crate) fn write(json: &mut Json, record: &Nvjpeg2kRecord) {
    json.line();
    json.key("nvjpeg2k").object(|json| {
        json.key("handles").number(record.handles);
        json.key("states").number(record.states);
        json.key("streams").number(record.streams);
        json.key("params").number(record.params);
        json.key("parsed").number(record.parsed);
        json.key("parse_refused").number(record.parse_refused);
        json.key("decodes").number(record.decodes);
        json.key("decoded").number(record.decoded);
        json.key("corrupt").number(record.corrupt);
        json.key("misuse").number(record.misuse);
        json.key("bytes").number(record.bytes);
        json.key("input_bytes").number(record.input_bytes);
        json.key("device_allocations").number(record.device_allocations);
        json.key("device_bytes").number(record.device_bytes);
        json.key("pinned_allocations").number(record.pinned_allocations);
        json.key("pinned_bytes").number(record.pinned_bytes);
    });
}

/// Writes how many handles nobody gave back so far.
pub(crate) fn leaks(json: &mut Json, nvjpeg2k: &Nvjpeg2k) {
    json.key("nvjpeg2k").number(nvjpeg2k.live());
}
