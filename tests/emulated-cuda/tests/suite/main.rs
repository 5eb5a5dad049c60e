//! Tests of the emulator: what it must catch, and that it catches it.
//!
//! Each case runs in a process of its own, since the driver's state, its settings and its
//! faults belong to a process.

mod case;
mod contexts;
mod cudarc;
mod cufile;
mod cufile_hazards;
mod cufile_refusals;
mod faults;
mod j2k;
mod json;
mod kernels;
mod memory;
mod nvcomp;
mod nvcomp_corrupt;
mod nvjpeg2k;
mod nvjpeg2k_misuse;
mod pipeline;
mod process;
mod report;
mod streams;
