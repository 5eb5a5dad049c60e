//! cuFile's part of the report.

use super::CufileSettings;
use super::record::{ReadRecord, SpanRecord, Standing};
use crate::json::Json;
use crate::ledger::Ledger;

/// Writes what happened.
pub(crate) fn write(json: &mut Json, ledger: &Ledger, settings: &CufileSettings) {
    let record = &ledger.cufile;
    json.line();
    json.key("cufile").object(|json| {
        json.key("opened").number(record.opened);
        json.key("closed").number(record.closed);
        json.key("log").string(&record.log);
        json.key("handles").array(&record.files.lines, |json, line| {
            json.object(|json| {
                json.key("fd").number(line.what);
                json.key("direct").boolean(line.more != 0);
                ends(json, line, "deregistered");
            });
        });
        json.key("buffers").array(&record.buffers.lines, |json, line| {
            json.object(|json| {
                json.key("address").number(line.what);
                json.key("bytes").number(line.more);
                ends(json, line, "deregistered");
            });
        });
        json.key("batches").array(&record.batches.lines, |json, line| {
            json.object(|json| {
                json.key("entries").number(line.what);
                ends(json, line, "destroyed");
            });
        });
        json.key("submissions").number(record.submissions);
        json.key("reads").array(&record.reads, |json, (id, read)| {
            json.line();
            json.object(|json| read_line(json, *id, read));
        });
        let reads = || record.reads.values();
        json.key("bytes").number(reads().map(|read| read.bytes).sum::<u64>());
        let unregistered = reads().filter(|read| !read.is_registered);
        json.key("unregistered").number(unregistered.count() as u64);
        json.key("in_flight_peak").number(record.in_flight_peak);
        let begin = reads().map(|read| read.time.start).min().unwrap_or(0);
        let end = reads().map(|read| read.time.end).max().unwrap_or(0);
        json.key("simulated_ns").number(end - begin);
        json.key("rounds").number((end - begin).checked_div(settings.latency_ns).unwrap_or(0));
    });
}

fn ends(json: &mut Json, line: &SpanRecord, end: &str) {
    json.key("call").number(line.call);
    json.key(end).maybe(line.ended);
}

fn read_line(json: &mut Json, id: u64, read: &ReadRecord) {
    json.key("id").number(id);
    json.key("symbol").string(read.symbol);
    json.key("batch").maybe(read.batch);
    json.key("offset").number(read.offset);
    json.key("size").number(read.size);
    json.key("address").number(read.address);
    json.key("registered").boolean(read.is_registered);
    json.key("aligned").boolean(read.is_aligned);
    json.key("thread").number(read.thread);
    json.key("submitted").number(read.submitted);
    json.key("asked").maybe(read.asked);
    json.key("completed").maybe(read.completed);
    json.key("status").string(read.standing.name());
    json.key("bytes").number(read.bytes);
    json.key("code").number(if read.standing == Standing::Failed { read.code } else { 0 });
    json.key("start_ns").number(read.time.start);
    json.key("end_ns").number(read.time.end);
}

/// Writes what nobody gave back so far.
pub(crate) fn leaks(json: &mut Json, ledger: &Ledger, uses: u64) {
    let record = &ledger.cufile;
    json.key("cufile_open").number(uses);
    json.key("cufile_handles").number(record.files.live());
    json.key("cufile_buffers").number(record.buffers.live());
    json.key("cufile_batches").number(record.batches.live());
}
