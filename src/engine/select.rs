//! Which engine works, and why: the one place that knows their names.

use std::sync::Arc;

use super::auto::AutoEngine;
use super::cpu::CpuEngine;
use super::cuda::{CudaEngine, Gds, Settings};
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

/// Chooses. `broken` puts an engine that fails on every tile in place, for tests
/// that must notice.
pub fn select(wish: Wish, settings: Settings, broken: bool) -> Result<Choice> {
    if broken {
        return Ok(Choice { engine: Arc::new(Broken), reason: "a test broke it".into() });
    }
    let demanded = settings.gds == Gds::Yes;
    Ok(match wish {
        Wish::Cpu if demanded => {
            return Err(Error::Device("GDS=YES: ENGINE=CPU reads nothing into a GPU".into()));
        }
        Wish::Auto if demanded => {
            Choice { engine: Arc::new(cuda(settings, "GDS=YES")?), reason: "GDS=YES".into() }
        }
        // It tells its reason itself.
        Wish::Auto => Choice { engine: Arc::new(AutoEngine::new(settings)), reason: String::new() },
        Wish::Cpu => Choice { engine: Arc::new(CpuEngine), reason: "ENGINE=CPU".into() },
        Wish::Cuda => {
            let option = if demanded { "GDS=YES" } else { "ENGINE=CUDA" };
            Choice { engine: Arc::new(cuda(settings, option)?), reason: "ENGINE=CUDA".into() }
        }
    })
}

/// The CUDA engine, which this option demands.
fn cuda(settings: Settings, option: &str) -> Result<CudaEngine> {
    CudaEngine::new(settings).map_err(|why| Error::Device(format!("{option}: {why}")))
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
