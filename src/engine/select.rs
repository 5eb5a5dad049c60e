//! Which engine works, and why: the one place that knows their names.

use std::sync::Arc;

use super::cpu::CpuEngine;
use super::{Batch, Engine, Packed, PixelBatch, PixelSource, Staged, TileSpec};
use crate::error::{Error, Result};

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// The faster one.
    #[default]
    Auto,
    /// The CPU engine.
    Cpu,
    /// The CUDA engine or an error.
    Cuda,
}

/// An engine with the reason it was chosen.
#[derive(Clone)]
pub struct Choice {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// A sentence for the user.
    pub reason: String,
}

/// Why there is no GPU to use; the CUDA engine's probe will answer here.
pub fn cuda_unavailable() -> &'static str {
    "this version has no CUDA engine yet"
}

/// Chooses. `broken` puts an engine that fails on every tile in place, for tests
/// that must notice.
pub fn select(wish: Wish, broken: bool) -> Result<Choice> {
    let reason = match wish {
        Wish::Auto => format!("AUTO: {}", cuda_unavailable()),
        Wish::Cpu => "ENGINE=CPU".to_string(),
        Wish::Cuda => {
            return Err(Error::Device(format!("ENGINE=CUDA: {}", cuda_unavailable())));
        }
    };
    if broken {
        return Ok(Choice { engine: Arc::new(Broken), reason: "a test broke it".into() });
    }
    Ok(Choice { engine: Arc::new(CpuEngine), reason })
}

/// Fails on every tile.
struct Broken;

impl Engine for Broken {
    fn name(&self) -> &'static str {
        "BROKEN"
    }

    fn appetite(&self, _spec: &TileSpec, limit: usize) -> usize {
        limit
    }

    fn stage(&self, _batch: Batch) -> Result<Box<dyn Staged>> {
        Err(Error::Device("broken on purpose".into()))
    }

    fn encode(&self, _: &PixelBatch, _: &dyn PixelSource, _: &mut Packed) -> Result<()> {
        Err(Error::Device("broken on purpose".into()))
    }
}
