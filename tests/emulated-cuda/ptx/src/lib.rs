//! PTX without a GPU: parses what NVRTC emits for CUDA C++ kernels and executes it, so that
//! tests can run device code anywhere and see what hardware hides.
//!
//! | room | holds |
//! |---|---|
//! | `lexer`, `syntax` | the text: tokens, statements |
//! | `module` | kernels and variables of a module |
//! | `decode` | statements to code: names to indices, opcodes to functions |
//! | `code`, `registers` | what is executed, and on what |
//! | `launch` | execution: blocks, warps, fragments, memory, checks |
//!
//! Calls go from the top down. Nothing here knows the CUDA driver: memory is a trait, a launch
//! is a struct. Threads follow Volta's rules: lanes of a warp that diverge go on independently,
//! and only what the program synchronises is in order. Not modelled: weak memory (an access takes
//! effect at once), timing, device functions, textures, half precision.

mod code;
mod decode;
mod launch;
mod lexer;
mod module;
mod registers;
mod syntax;

pub use launch::{Fault, FaultKind, GlobalMemory, Launch, Options, Schedule, Span, Stats, run};
pub use module::{Entry, Module, Param, ParseError};
