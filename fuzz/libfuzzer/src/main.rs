//! The fuzz targets under libFuzzer; GPUGTIFF_FUZZ_TARGET names the one to run.
#![no_main]

use std::sync::OnceLock;

use gpugtiff_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<&Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let chosen = TARGET.get_or_init(|| {
        let name = std::env::var("GPUGTIFF_FUZZ_TARGET").unwrap_or_default();
        target(&name).expect("GPUGTIFF_FUZZ_TARGET names a target")
    });
    (chosen.run)(data);
});
