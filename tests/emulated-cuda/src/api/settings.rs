//! What the emulator exports besides CUDA's names, for tests.

use std::ffi::{CStr, c_char};

use crate::clock::Clock;
use crate::door;
use crate::random::Random;
use crate::report;

/// Writes the report now; 0 where that worked.
#[unsafe(no_mangle)]
pub extern "C" fn emucudaReport() -> u32 {
    u32::from(report::write(&door::state()).is_none())
}

/// Clears counters and the timeline; memory, streams and faults stay.
#[unsafe(no_mangle)]
pub extern "C" fn emucudaReset() -> u32 {
    let mut driver = door::state();
    driver.ledger.reopen();
    driver.clock = Clock::default();
    driver.memory.forget_peaks();
    driver.cufile.forget_time();
    0
}

/// Calls so far, those that failed too.
#[unsafe(no_mangle)]
pub extern "C" fn emucudaCalls() -> u64 {
    door::state().ledger.calls
}

/// Changes a setting; 0 where it was understood.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emucudaSet(name: *const c_char, value: *const c_char) -> u32 {
    // SAFETY: both are C strings, says the contract.
    let (name, value) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(value)) };
    let (Ok(name), Ok(value)) = (name.to_str(), value.to_str()) else { return 1 };
    let mut driver = door::state();
    let understood = driver.settings.set(name, value);
    if name.ends_with("SEED") {
        driver.random = Random::new(driver.settings.seed);
    }
    u32::from(!understood)
}
