//! Kernels compiled by NVRTC and single instructions, held against Rust.

mod bugs;
mod copies;
mod device;
mod instructions;
mod numbers;
mod scans;
mod text;
