//! Page-locked host memory: what cuMemHostAlloc gave out and cuMemHostRegister was told.
//!
//! Refuses to know copies. Invariant: whether a copy is asynchronous follows from these
//! ranges alone; a range that is pinned only in part is an error, never a guess.

use std::collections::BTreeMap;

use crate::backing::Backing;
use crate::status::{Answer, Code};

/// A range of page-locked memory.
pub(crate) struct Block {
    pub(crate) bytes: usize,
    pub(crate) context: u64,
    pub(crate) record: usize,
    pub(crate) flags: u32,
    /// None where the memory is the caller's and was only registered.
    backing: Option<Backing>,
}

/// What the memory of a copy's host side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostKind {
    Pinned,
    Pageable,
}

/// All page-locked ranges.
#[derive(Default)]
pub(crate) struct Pinned {
    blocks: BTreeMap<usize, Block>,
}

impl Pinned {
    /// New page-locked memory, poisoned.
    pub(crate) fn allocate(
        &mut self,
        bytes: usize,
        context: u64,
        flags: u32,
        record: usize,
    ) -> Answer<usize> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE.because("no bytes of pinned memory"));
        }
        let Some(backing) = Backing::new(bytes) else {
            return Err(Code::OUT_OF_MEMORY.because(format!("{bytes} bytes of pinned memory")));
        };
        let start = backing.start() as usize;
        let block = Block { bytes, context, record, flags, backing: Some(backing) };
        self.blocks.insert(start, block);
        Ok(start)
    }

    /// Locks memory of the caller's.
    pub(crate) fn register(
        &mut self,
        start: usize,
        bytes: usize,
        context: u64,
        flags: u32,
        record: usize,
    ) -> Answer {
        if start == 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE.because("no bytes to register"));
        }
        if self.overlapping(start, bytes).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED.into());
        }
        self.blocks.insert(start, Block { bytes, context, record, flags, backing: None });
        Ok(())
    }

    /// Takes away what [`Pinned::allocate`] gave out; its line in the report.
    pub(crate) fn free(&mut self, start: usize) -> Answer<usize> {
        match self.blocks.get(&start) {
            Some(block) if block.backing.is_some() => {
                Ok(self.blocks.remove(&start).expect("looked up above").record)
            }
            _ => Err(Code::INVALID_VALUE.because(format!("{start:#x} is not pinned memory"))),
        }
    }

    /// Takes away what [`Pinned::register`] was told; its line in the report.
    pub(crate) fn unregister(&mut self, start: usize) -> Answer<usize> {
        match self.blocks.get(&start) {
            Some(block) if block.backing.is_none() => {
                Ok(self.blocks.remove(&start).expect("looked up above").record)
            }
            _ => Err(Code::HOST_MEMORY_NOT_REGISTERED.into()),
        }
    }

    fn overlapping(&self, start: usize, bytes: usize) -> Option<(usize, &Block)> {
        let (base, block) = self.blocks.range(..start.saturating_add(bytes)).next_back()?;
        (start < base + block.bytes).then_some((*base, block))
    }

    /// The block that holds an address.
    pub(crate) fn holding(&self, address: usize) -> Option<(usize, &Block)> {
        self.overlapping(address, 1)
    }

    /// What a range of host memory is.
    pub(crate) fn kind(&self, start: usize, bytes: usize) -> Answer<HostKind> {
        match self.overlapping(start, bytes) {
            None => Ok(HostKind::Pageable),
            Some((base, block)) if start >= base && start - base + bytes <= block.bytes => {
                Ok(HostKind::Pinned)
            }
            Some((base, block)) => Err(Code::INVALID_VALUE.because(format!(
                "{bytes} bytes of host memory at {start:#x} reach over the pinned {} at {base:#x}",
                block.bytes
            ))),
        }
    }

    /// The starts of a context's blocks.
    pub(crate) fn of_context(&self, context: u64) -> Vec<usize> {
        let of = self.blocks.iter().filter(|(_, block)| block.context == context);
        of.map(|(start, _)| *start).collect()
    }

    /// Forgets a block, whatever it is; its line in the report.
    pub(crate) fn forget(&mut self, start: usize) -> Option<usize> {
        self.blocks.remove(&start).map(|block| block.record)
    }
}
