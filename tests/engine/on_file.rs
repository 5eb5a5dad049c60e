//! The CUDA engine, given real files: whatever a test has in memory is written to one first, so that
//! everything is read past the host.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpugtiff::engine::cuda::CudaEngine;
use gpugtiff::engine::{
    Batch, Engine, EngineReport, Packed, PixelBatch, PixelSource, Staged, TileSpec,
};
use gpugtiff::error::{Cause, Error, Result};
use gpugtiff::io::ByteSource;

/// A local file.
pub(crate) struct Local(File);

impl Local {
    /// With these bytes; gone when it is closed.
    pub(crate) fn new(bytes: &[u8]) -> Local {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpugtiff-on-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Local(file)
    }
}

impl ByteSource for Local {
    fn len(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_exact_at(buf, offset).map_err(|error| {
            let source = Cause(error.to_string());
            Error::Io { offset, len: buf.len() as u64, source }
        })
    }

    fn concurrent(&self) -> bool {
        true
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        self.0.as_fd().try_clone_to_owned().ok()
    }
}

/// The engine.
pub(crate) struct OnFile(pub(crate) CudaEngine);

impl Engine for OnFile {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn appetite(&self, spec: &TileSpec, limit: usize) -> usize {
        self.0.appetite(spec, limit)
    }

    fn stage(&self, mut batch: Batch) -> Result<Box<dyn Staged>> {
        let mut bytes = vec![0; batch.source.len().min(1 << 30) as usize];
        // What cannot be read stays as it is.
        if batch.source.read_at(0, &mut bytes).is_ok() {
            batch.source = Arc::new(Local::new(&bytes));
        }
        self.0.stage(batch)
    }

    fn encode(
        &self,
        batch: &PixelBatch,
        source: &dyn PixelSource,
        packed: &mut Packed,
    ) -> Result<()> {
        self.0.encode(batch, source, packed)
    }

    fn report(&self) -> EngineReport {
        self.0.report()
    }

    fn notices(&self) -> Vec<String> {
        self.0.notices()
    }
}
