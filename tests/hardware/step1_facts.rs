//! What is here: device, driver, nvCOMP, and what that asks for; and what starting CUDA costs.

use std::fmt::Write;
use std::time::Instant;

use gpugtiff::engine::cuda::Verify;

use crate::{child, machine, report};

/// What `CudaEngine::facts` must tell besides sizes.
const TOLD: [&str; 5] =
    ["device", "compute capability", "memory", "Deflate alignments", "Zstd alignments"];

/// In a child, as CUDA starts once in a process.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_start_up_cost() {
    if child::role().is_some() {
        let begun = Instant::now();
        let _engine = machine::engine(Verify::First);
        let first = begun.elapsed();
        let begun = Instant::now();
        let _engine = machine::engine(Verify::First);
        child::say(&format!("{} {}", first.as_micros(), begun.elapsed().as_micros()));
        return;
    }
    report::chapter("Start-up", |text| {
        report::head(text, &["process", "first engine, ms", "second engine, ms"]);
        // The first one may find the kernels not compiled for this device yet.
        for process in 1..=machine::sized(4, 2) {
            let said = child::run("step1_facts::a_start_up_cost", "start");
            let times: Vec<f64> =
                said[0].split(' ').map(|us| us.parse::<f64>().unwrap() / 1000.0).collect();
            let [first, second] = times[..] else { panic!("{said:?}") };
            let [first, second] = [first, second].map(|ms| format!("{ms:.1}"));
            report::row(text, &[&process, &first, &second]);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn b_facts() {
    report::chapter("Facts", |text| {
        let facts = machine::engine(Verify::First).facts();
        text.push_str("| what | value |\n|---|---|\n");
        // The kernel module's line, where there is one.
        if let Ok(version) = std::fs::read_to_string("/proc/driver/nvidia/version") {
            let line = version.lines().next().unwrap_or_default();
            writeln!(text, "| Driver | {line} |").unwrap();
        }
        for (name, value) in &facts {
            writeln!(text, "| {name} | {value} |").unwrap();
        }
        writeln!(text, "| CPU threads | {} |", machine::threads()).unwrap();
        for wanted in TOLD {
            assert!(facts.iter().any(|(name, _)| name.starts_with(wanted)), "no fact: {wanted}");
        }
        for codec in ["Deflate", "Zstd"] {
            for kib in ["64 KiB", "256 KiB", "1024 KiB", "16384 KiB"] {
                for way in ["unpack", "pack"] {
                    let about = [codec, &format!(" {kib}"), &format!("to {way}")];
                    let told = |name: &str| about.iter().all(|word| name.contains(word));
                    assert!(facts.iter().any(|(name, _)| told(name)), "no fact: {about:?}");
                }
            }
        }
    });
}
