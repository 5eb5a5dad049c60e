//! The report: one JSON object with what the ledger holds and what is still there.
//!
//! Refuses to judge: whether a count is right is the business of the test that reads it.

use crate::clock::Interval;
use crate::cufile;
use crate::driver::Driver;
use crate::json::Json;
use crate::ledger::{AllocationRecord, Ledger, OperationRecord};
use crate::nvjpeg2k;

/// A report as it was written, and where.
pub(crate) struct Written {
    path: String,
    text: String,
}

/// Writes the report where the settings say, if they do and that works. `%p` in the path
/// stands for the process.
pub(crate) fn write(driver: &Driver) -> Option<Written> {
    let path = driver.settings.report.as_ref()?;
    let path = path.replace("%p", &std::process::id().to_string());
    let written = Written { path, text: text(driver) };
    written.save(&written.text).then_some(written)
}

impl Written {
    fn save(&self, text: &str) -> bool {
        let part = format!("{}.{}.part", self.path, std::process::id());
        // Renamed into place, so that nobody reads half of one.
        std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &self.path)).is_ok()
    }

    /// Writes it again with the number of calls that came too late.
    pub(crate) fn amend(&self, late: u64) {
        let amended = format!("\"calls_after_exit\":{late},");
        self.save(&self.text.replacen("\"calls_after_exit\":0,", &amended, 1));
    }
}

fn text(driver: &Driver) -> String {
    let ledger = &driver.ledger;
    let times = driver.clock.times(ledger);
    let mut json = Json::default();
    json.object(|json| {
        json.key("process").number(std::process::id());
        json.key("initialized").boolean(driver.initialized);
        json.key("total_calls").number(ledger.calls);
        // Amended by those that come.
        json.key("calls_after_exit").number(0u64);
        counts(json, "calls", ledger.symbols.iter());
        counts(json, "calls_after_fault", ledger.calls_after_fault.iter());
        json.line();
        injected(json, ledger);
        streams(json, driver);
        timeline(json, ledger, &times);
        syncs(json, ledger);
        allocations(json, ledger);
        let devices = 0..driver.devices.len();
        json.key("peak_device_bytes")
            .array(devices, |json, device| json.number(driver.memory.usage(device).peak));
        launches(json, ledger);
        kernels(json, ledger);
        nvcomp(json, ledger);
        cufile::report::write(json, ledger, &driver.settings.cufile);
        nvjpeg2k::report::write(json, &ledger.nvjpeg2k);
        faults(json, ledger);
        leaks(json, driver);
    });
    json.into_text()
}

fn counts<'a>(
    json: &mut Json,
    name: &str,
    counts: impl Iterator<Item = (&'a &'static str, &'a u64)>,
) {
    json.key(name).object(|json| {
        for (symbol, count) in counts {
            json.key(symbol).number(*count);
        }
    });
}

fn injected(json: &mut Json, ledger: &Ledger) {
    json.key("injected").array(&ledger.injected, |json, (symbol, code, call)| {
        json.object(|json| {
            json.key("symbol").string(symbol);
            json.key("code").number(*code);
            json.key("call").number(*call);
        });
    });
}

fn streams(json: &mut Json, driver: &Driver) {
    json.key("streams").array(driver.work.streams.values(), |json, stream| {
        json.object(|json| {
            json.key("id").number(stream.number);
            json.key("kind").string(stream.kind.name());
            let context = driver.contexts.get(&stream.context);
            json.key("device").maybe(context.map(|context| context.device as u64));
        });
    });
    json.line();
}

fn timeline(json: &mut Json, ledger: &Ledger, times: &[Interval]) {
    let operations = ledger.operations.iter().enumerate();
    json.key("timeline").array(operations, |json, (index, operation)| {
        json.line();
        let time = times.get(index).copied().unwrap_or_default();
        json.object(|json| operation_line(json, operation, time));
    });
    json.line();
}

fn operation_line(json: &mut Json, operation: &OperationRecord, time: Interval) {
    json.key("id").number(operation.id);
    json.key("device").number(operation.device as u64);
    json.key("stream").maybe(operation.stream);
    json.key("kind").string(operation.kind.name());
    json.key("name").string(&operation.name);
    json.key("bytes").number(operation.bytes);
    json.key("thread").number(operation.thread);
    json.key("call").number(operation.call);
    json.key("executed").maybe(operation.executed);
    json.key("abandoned").boolean(operation.abandoned);
    json.key("start_ns").number(time.start);
    json.key("end_ns").number(time.end);
    json.key("after_sync").maybe(operation.after);
    json.key("dependencies").array(&operation.dependencies, |json, id| json.number(*id));
}

fn syncs(json: &mut Json, ledger: &Ledger) {
    json.key("syncs").array(ledger.syncs.iter().enumerate(), |json, (index, sync)| {
        json.line();
        json.object(|json| {
            json.key("id").number(index as u64);
            json.key("symbol").string(sync.symbol);
            json.key("explicit").boolean(sync.explicit);
            json.key("call").number(sync.call);
            json.key("thread").number(sync.thread);
            json.key("after_sync").maybe(sync.after);
            json.key("targets").array(&sync.targets, |json, id| json.number(*id));
        });
    });
    json.line();
}

fn allocations(json: &mut Json, ledger: &Ledger) {
    json.key("allocations").array(ledger.allocations.values(), |json, record| {
        json.line();
        json.object(|json| allocation_line(json, record));
    });
    json.line();
}

fn allocation_line(json: &mut Json, record: &AllocationRecord) {
    json.key("kind").string(record.kind);
    json.key("device").number(record.device as u64);
    json.key("bytes").number(record.bytes);
    json.key("address").number(record.address);
    json.key("call").number(record.call);
    json.key("freed").maybe(record.freed);
    json.key("abandoned").boolean(record.abandoned);
}

fn stats(json: &mut Json, stats: &ptx::Stats) {
    json.key("threads").number(stats.threads);
    json.key("instructions").number(stats.instructions);
    json.key("longest_thread").number(stats.longest_thread);
    json.key("sectors_loaded").number(stats.sectors_loaded);
    json.key("sectors_stored").number(stats.sectors_stored);
    json.key("bytes_loaded").number(stats.bytes_loaded);
    json.key("bytes_stored").number(stats.bytes_stored);
}

fn launches(json: &mut Json, ledger: &Ledger) {
    json.line();
    json.key("launches").array(&ledger.launches, |json, launch| {
        json.line();
        json.object(|json| {
            json.key("operation").number(launch.operation);
            json.key("kernel").string(&launch.kernel);
            json.key("grid").array(launch.grid, Json::number);
            json.key("block").array(launch.block, Json::number);
            json.key("static_shared").number(launch.static_shared);
            json.key("dynamic_shared").number(launch.dynamic_shared);
            stats(json, &launch.stats);
        });
    });
    json.line();
}

/// The launches summed by kernel; the longest thread is the longest of all.
fn kernels(json: &mut Json, ledger: &Ledger) {
    let mut sums = std::collections::BTreeMap::<&str, (u64, ptx::Stats)>::new();
    for launch in &ledger.launches {
        let (count, sum) = sums.entry(&launch.kernel).or_default();
        *count += 1;
        sum.threads += launch.stats.threads;
        sum.instructions += launch.stats.instructions;
        sum.longest_thread = sum.longest_thread.max(launch.stats.longest_thread);
        sum.sectors_loaded += launch.stats.sectors_loaded;
        sum.sectors_stored += launch.stats.sectors_stored;
        sum.bytes_loaded += launch.stats.bytes_loaded;
        sum.bytes_stored += launch.stats.bytes_stored;
    }
    json.key("kernels").object(|json| {
        for (name, (count, sum)) in &sums {
            json.key(name).object(|json| {
                json.key("launches").number(*count);
                stats(json, sum);
            });
        }
    });
}

fn nvcomp(json: &mut Json, ledger: &Ledger) {
    json.line();
    json.key("nvcomp").object(|json| {
        json.key("calls_without_context").number(ledger.nvcomp_without_context);
        for (codec, counts) in &ledger.chunks {
            json.key(codec).object(|json| {
                json.key("decompressed").number(counts.decompressed);
                json.key("decompressed_bytes").number(counts.decompressed_bytes);
                json.key("corrupt").number(counts.corrupt);
                json.key("compressed").number(counts.compressed);
                json.key("compressed_bytes").number(counts.compressed_bytes);
            });
        }
    });
}

fn faults(json: &mut Json, ledger: &Ledger) {
    json.line();
    json.key("faults").array(&ledger.faults, |json, fault| {
        json.object(|json| {
            json.key("code").number(fault.code.0);
            json.key("device").number(fault.device as u64);
            json.key("operation").maybe(fault.operation);
            json.key("call").number(fault.call);
            json.key("message").string(&fault.message);
        });
    });
    json.line();
    json.key("errors").array(&ledger.errors, |json, error| {
        json.line();
        json.object(|json| {
            json.key("call").number(error.call);
            json.key("symbol").string(error.symbol);
            json.key("code").number(error.code);
            json.key("message").string(&error.message);
        });
    });
}

/// What nobody gave back so far; at exit these are the leaks.
fn leaks(json: &mut Json, driver: &Driver) {
    json.line();
    let live = || driver.ledger.allocations.values().filter(|record| record.freed.is_none());
    json.key("leaks").object(|json| {
        json.key("allocations").array(live(), |json, record| {
            json.object(|json| allocation_line(json, record));
        });
        let own = driver.work.streams.values().filter(|stream| stream.kind.owned());
        json.key("streams").number(own.count() as u64);
        json.key("events").number(driver.work.events.len() as u64);
        json.key("modules").number(driver.modules.len() as u64);
        let retained = driver.devices.iter().map(|device| u64::from(device.retained));
        json.key("primary_contexts").number(retained.sum::<u64>());
        json.key("pending_operations").number(driver.work.pending.len() as u64);
        cufile::report::leaks(json, &driver.ledger, driver.cufile.uses());
        nvjpeg2k::report::leaks(json, &driver.nvjpeg2k);
    });
}
