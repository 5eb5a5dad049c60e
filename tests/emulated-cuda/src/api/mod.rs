//! The exported functions of the driver API, one file a subject.
//!
//! They turn C arguments into calls of the driver's own rooms, and hold no state. Their
//! contracts are those of NVIDIA's documentation: pointers are valid or null, as there.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names, arguments and contracts are the CUDA driver API's"
)]

pub mod context;
pub mod copy;
pub mod device;
pub mod entry;
pub mod event;
pub mod launch;
pub mod memory;
pub mod module;
pub mod pinned;
pub mod settings;
pub mod stream;
