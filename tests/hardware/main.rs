//! For the first person with a GPU:
//!
//! ```text
//! cargo test --release --test hardware -- --ignored --nocapture --test-threads=1
//! ```
//!
//! Everything else about the CUDA engine is tested on an emulated driver. This is what only
//! hardware can tell: facts about device and libraries, the engine suite, checks of what nvCOMP's
//! documents leave open, times. It ends in a report to paste into an issue.
//!
//! The steps run in the order of their names; the report is the last one. To prove that the tests
//! themselves work, they run without a GPU too, on small sizes: `GPUGTIFF_HARDWARE_SMALL=1` and
//! `GPUGTIFF_EMULATED_CUDA=<the emulator>`; the report then says that it is none of hardware.

#[path = "../engine/encode.rs"]
mod encode;
#[path = "../engine/naive.rs"]
mod naive;
#[path = "../engine/on_file.rs"]
mod on_file;
#[path = "../engine/suite.rs"]
mod suite;
#[path = "../engine/tiles.rs"]
mod tiles;

mod child;
mod machine;
mod raster;
mod report;

mod step1_facts;
mod step2_suite;
mod step3_frames;
mod step4_sizes;
mod step5_corrupt;
mod step6_overlap;
mod step7_throughput;
mod step8_report;
