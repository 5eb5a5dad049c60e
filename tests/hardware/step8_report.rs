//! The last step: everything that was found, to be pasted into an issue.

use crate::{machine, report};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn to_paste_into_an_issue() {
    let on = match machine::emulator() {
        Some(_) => "EMULATED driver: this says nothing about hardware",
        None => "hardware",
    };
    let size = if machine::small() { ", small sizes" } else { "" };
    let version = env!("CARGO_PKG_VERSION");
    let (text, passed) = report::render(&format!("GPUGTiff {version} on {on}{size}"));
    println!("\n\n<!-- paste from here -->\n{text}<!-- to here -->\n");
    assert!(passed, "some checks failed: the report above says which");
}
