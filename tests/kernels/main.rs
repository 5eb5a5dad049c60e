//! The committed PTX, run kernel by kernel on the interpreter of the emulated driver and held
//! against loops written from the TIFF specification.
//!
//! No driver, no host code of the engine: a test says what is in device memory, launches, and
//! looks at every byte afterwards, those that must not change included. Device memory has exact
//! bounds. `mutation` asks whether these tests would notice a wrong instruction.

mod apply;
mod cases;
mod device;
mod far;
mod finish;
#[path = "../../src/engine/cuda/frames.rs"]
mod frames;
mod mutation;
mod packed;
mod place;
mod reference;
mod stow;
mod streams;
mod structure;
mod undo;
mod unpack;

use std::sync::OnceLock;

/// What is shipped.
const PTX: &str = include_str!("../../src/engine/cuda/kernels.ptx");

fn kernels() -> &'static ptx::Module {
    static MODULE: OnceLock<ptx::Module> = OnceLock::new();
    MODULE.get_or_init(|| ptx::Module::parse(PTX).unwrap())
}

/// All accesses name their memory, so that none pays for finding out; nothing is kept in local
/// memory.
#[test]
fn no_access_is_generic_or_local() {
    for (number, line) in PTX.lines().enumerate() {
        let line = line.trim();
        let opcode = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("");
        let mut parts = opcode.split('.');
        if matches!(parts.next(), Some("ld" | "st")) {
            let space = parts.next().unwrap_or("");
            assert!(matches!(space, "global" | "shared" | "param"), "{}: {line}", number + 1);
        }
        assert!(!line.starts_with(".local"), "{}: {line}", number + 1);
    }
}
