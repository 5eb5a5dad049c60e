//! An emulated CUDA driver, nvCOMP, cuFile and nvJPEG2000 in one library, for tests on machines without a GPU.
//!
//! Calls come in through [`api`] and the rooms of the other libraries, pass the `door` (counting, injected
//! failures, forked children) and change the one `driver` state: `memory` with fake
//! addresses, `pinned` host memory, `work` with streams and events. Nothing runs when it
//! is submitted: a `task` runs when somebody waits for it, in an order that dependencies
//! allow and a seed decides. Kernels are PTX, run by the crate `ptx`; none is known by name.
//! What happened goes to the `ledger` and from there to the `report`.

pub mod api;
mod backing;
mod clock;
mod codec;
pub mod cufile;
mod door;
mod driver;
mod json;
mod ledger;
mod memory;
pub mod nvcomp;
pub mod nvjpeg2k;
mod pinned;
mod random;
mod report;
mod settings;
mod status;
mod task;
mod work;

pub use door::Place;
pub use status::Code;
