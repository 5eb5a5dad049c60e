//! The whole state of the driver: devices, contexts, modules, memory and work.
//!
//! Refuses to know C signatures. Invariants: a handle belongs to one context and is looked
//! up, never dereferenced (no handle is an address); a device that faulted answers its code
//! for good and runs nothing any more.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::cufile::Cufile;
use crate::ledger::{FaultRecord, Ledger, OperationRecord};
use crate::memory::Memory;
use crate::nvjpeg2k::Nvjpeg2k;
use crate::pinned::Pinned;
use crate::random::Random;
use crate::settings::Settings;
use crate::status::{Answer, Code};
use crate::task::{Bench, Task};
use crate::work::{Operation, Stream, StreamKind, Work};

/// A device a process sees.
#[derive(Debug)]
pub(crate) struct Device {
    /// Its number among all emulated devices, whatever CUDA_VISIBLE_DEVICES hides.
    pub(crate) number: u32,
    pub(crate) primary: Option<u64>,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
    pub(crate) fault: Option<Code>,
}

/// A context of a device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) legacy: u64,
    pub(crate) per_thread: BTreeMap<u64, u64>,
}

/// A loaded module.
pub(crate) struct LoadedModule {
    pub(crate) context: u64,
    pub(crate) module: Arc<ptx::Module>,
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) context: u64,
    pub(crate) entry: String,
    /// What cuFuncSetAttribute allowed beyond 48 KiB.
    pub(crate) dynamic_shared_limit: u32,
}

/// Everything there is.
pub(crate) struct Driver {
    pub(crate) settings: Settings,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) initialized: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) memory: Memory,
    pub(crate) pinned: Pinned,
    pub(crate) work: Work,
    pub(crate) modules: BTreeMap<u64, LoadedModule>,
    pub(crate) functions: BTreeMap<u64, Function>,
    pub(crate) cufile: Cufile,
    pub(crate) nvjpeg2k: Nvjpeg2k,
    pub(crate) random: Random,
    /// The call that is running.
    pub(crate) symbol: &'static str,
    next_handle: u64,
    next_stream: u64,
}

thread_local! {
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The number of the calling thread, counted by first calls.
pub(crate) fn thread() -> u64 {
    THREAD.with(|number| *number)
}

/// The calling thread's stack of contexts.
pub(crate) fn with_stack<T>(body: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CURRENT.with_borrow_mut(body)
}

impl Driver {
    pub(crate) fn new() -> Self {
        let settings = Settings::from_environment();
        Driver {
            random: Random::new(settings.seed),
            settings,
            ledger: Ledger::default(),
            clock: Clock::default(),
            initialized: false,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            memory: Memory::default(),
            pinned: Pinned::default(),
            work: Work::default(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            cufile: Cufile::default(),
            nvjpeg2k: Nvjpeg2k::default(),
            symbol: "",
            next_handle: 0,
            next_stream: 0,
        }
    }

    /// A new handle: unique, and an address that nobody can read.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        0x00e0_0000_0000_0000 + self.next_handle * 16
    }

    /// The calling thread's context.
    pub(crate) fn current(&self) -> Answer<u64> {
        match with_stack(|stack| stack.last().copied()) {
            Some(context) if self.contexts.contains_key(&context) => Ok(context),
            Some(0) | None => Err(Code::INVALID_CONTEXT.because("no context is current")),
            Some(_) => Err(Code::INVALID_CONTEXT.because("the current context is destroyed")),
        }
    }

    /// The fault of the device whose context is current.
    pub(crate) fn current_fault(&self) -> Option<Code> {
        self.current().ok().and_then(|context| self.fault_of(context))
    }

    pub(crate) fn fault_of(&self, context: u64) -> Option<Code> {
        self.devices[self.contexts.get(&context)?.device].fault
    }

    pub(crate) fn device_of(&self, context: u64) -> usize {
        self.contexts[&context].device
    }

    pub(crate) fn device(&mut self, ordinal: i32) -> Answer<&mut Device> {
        let count = self.devices.len();
        let index = usize::try_from(ordinal).ok().filter(|index| *index < count);
        match index {
            Some(index) => Ok(&mut self.devices[index]),
            None => {
                Err(Code::INVALID_DEVICE
                    .because(format!("device {ordinal} of {}", self.devices.len())))
            }
        }
    }

    /// A new context with its legacy stream.
    pub(crate) fn create_context(&mut self, device: usize) -> u64 {
        let context = self.handle();
        let legacy = self.create_stream(context, StreamKind::Legacy, 0);
        self.contexts.insert(context, Context { device, legacy, per_thread: BTreeMap::new() });
        context
    }

    /// Retains a device's primary context.
    pub(crate) fn retain_primary(&mut self, index: usize) -> Answer<u64> {
        if self.settings.compute_mode != 0 {
            return Err(Code::DEVICE_UNAVAILABLE.because("the device's compute mode forbids it"));
        }
        let context = match self.devices[index].primary {
            Some(context) => context,
            None => self.create_context(index),
        };
        let device = &mut self.devices[index];
        device.primary = Some(context);
        device.retained += 1;
        Ok(context)
    }

    /// The context in which the CUDA runtime inside a library works: the current one, or else
    /// device 0's primary, which becomes current.
    pub(crate) fn runtime_context(&mut self) -> Result<u64, String> {
        if !self.initialized {
            return Err("the driver is not initialized".into());
        }
        let context = match self.current() {
            Ok(context) => context,
            Err(_) => {
                let context = match self.devices[0].primary {
                    Some(context) => context,
                    None => self.retain_primary(0).map_err(|_| "no primary context")?,
                };
                with_stack(|stack| {
                    stack.clear();
                    stack.push(context);
                });
                context
            }
        };
        match self.fault_of(context) {
            Some(_) => Err("the device is lost".into()),
            None => Ok(context),
        }
    }

    /// Takes a context away with all it owns.
    pub(crate) fn destroy_context(&mut self, context: u64) {
        self.abandon(&self.work.of_context(context));
        for base in self.memory.of_context(context) {
            if let Some(line) = self.memory.release(base) {
                self.ledger.freed(line, true);
            }
        }
        for start in self.pinned.of_context(context) {
            if let Some(line) = self.pinned.forget(start) {
                self.ledger.freed(line, true);
            }
        }
        self.modules.retain(|_, module| module.context != context);
        self.functions.retain(|_, function| function.context != context);
        self.work.streams.retain(|_, stream| stream.context != context);
        self.work.events.retain(|_, event| event.context != context);
        self.contexts.remove(&context);
    }

    pub(crate) fn create_stream(&mut self, context: u64, kind: StreamKind, priority: i32) -> u64 {
        let stream = self.handle();
        let number = self.next_stream;
        self.next_stream += 1;
        let made =
            Stream { number, context, kind, priority, last: None, queries: 0, capturing: false };
        self.work.streams.insert(stream, made);
        stream
    }

    /// The stream a caller means: 0 and 1 the legacy one, 2 the thread's own.
    pub(crate) fn stream(&mut self, context: u64, given: u64) -> Answer<u64> {
        match given {
            0 | 1 => Ok(self.contexts[&context].legacy),
            2 => {
                let thread = thread();
                if let Some(stream) = self.contexts[&context].per_thread.get(&thread) {
                    return Ok(*stream);
                }
                let stream = self.create_stream(context, StreamKind::PerThread, 0);
                let found = self.contexts.get_mut(&context).expect("current");
                found.per_thread.insert(thread, stream);
                Ok(stream)
            }
            handle => match self.work.streams.get(&handle) {
                Some(stream) if stream.context == context => Ok(handle),
                Some(_) => Err(Code::INVALID_HANDLE.because("a stream of another context")),
                None => Err(Code::INVALID_HANDLE.because("no such stream")),
            },
        }
    }

    /// Queues a task on a stream, after `also` besides the stream's own order; its number.
    pub(crate) fn submit(&mut self, stream: u64, task: Task, also: Option<u64>) -> u64 {
        let mut dependencies = self.work.predecessors(stream);
        if let Some(id) = also.filter(|id| !dependencies.contains(id)) {
            dependencies.push(id);
        }
        let (context, number) = {
            let stream = &self.work.streams[&stream];
            (stream.context, stream.number)
        };
        let device = self.device_of(context);
        let thread = thread();
        let (kind, name, bytes) = (task.kind(), task.name(), task.bytes());
        let operation = Operation { context, device, dependencies: dependencies.clone(), task };
        let id = self.work.push(stream, operation);
        self.ledger.operations.push(OperationRecord {
            id,
            device,
            stream: Some(number),
            kind,
            name,
            bytes,
            thread,
            call: self.ledger.calls,
            after: self.ledger.last_sync(thread),
            dependencies,
            executed: None,
            abandoned: false,
            duration: 0,
            fixed: None,
        });
        id
    }

    /// Waits for operations: runs what they depend on and notes the synchronisation.
    pub(crate) fn wait(&mut self, targets: Vec<u64>, explicit: bool) -> Answer {
        let result = self.run(&targets);
        self.ledger.sync(self.symbol, explicit, thread(), targets);
        result
    }

    /// Runs what the operations depend on.
    pub(crate) fn run(&mut self, targets: &[u64]) -> Answer {
        let plan = self.work.plan(targets, self.settings.order, &mut self.random);
        for id in plan {
            let Some(operation) = self.work.pending.remove(&id) else { continue };
            let device = operation.device;
            let mut bench = Bench {
                memory: &mut self.memory,
                settings: &self.settings,
                ledger: &mut self.ledger,
                device,
                operation: id,
            };
            let outcome = operation.task.run(&mut bench);
            let order = self.ledger.executed;
            self.ledger.executed += 1;
            if let Some(record) = self.ledger.operation(id) {
                record.executed = Some(order);
                record.duration = *outcome.as_ref().unwrap_or(&0);
            }
            if let Err(fault) = outcome {
                self.fault(device, fault.code, Some(id), fault.message.clone());
                return Err(fault.code.because(fault.message));
            }
        }
        Ok(())
    }

    /// Whether operations have run. Asking makes nothing run, or a missing wait would go
    /// unseen; `progress` does, so that a poller comes to an end.
    pub(crate) fn poll(&mut self, targets: &[u64], progress: bool) -> Answer {
        if !targets.iter().any(|id| self.work.pending.contains_key(id)) {
            return Ok(());
        }
        if progress {
            return self.run(targets);
        }
        Err(Code::NOT_READY.into())
    }

    /// When an operation that has run ended on the modelled clock.
    pub(crate) fn modelled_end(&mut self, id: u64) -> u64 {
        self.clock.settle(&self.ledger);
        let first = self.ledger.operations.first().map_or(0, |operation| operation.id);
        let index = id.checked_sub(first).map(|index| index as usize);
        index.map_or(0, |index| self.clock.end_at(&self.ledger, index))
    }

    /// Loses a device: nothing runs on it any more.
    pub(crate) fn fault(
        &mut self,
        device: usize,
        code: Code,
        operation: Option<u64>,
        message: String,
    ) {
        let call = self.ledger.calls;
        self.ledger.faults.push(FaultRecord { code, device, operation, call, message });
        if let Some(found) = self.devices.get_mut(device) {
            found.fault.get_or_insert(code);
        }
        self.abandon(&self.work.of_device(device));
    }

    fn abandon(&mut self, operations: &[u64]) {
        for id in operations {
            self.work.pending.remove(id);
            if let Some(record) = self.ledger.operation(*id) {
                record.abandoned = true;
            }
        }
    }

    /// What a device may give out: its memory without what others are said to hold.
    pub(crate) fn room(&self, device: usize) -> u64 {
        let free = self.settings.free.get(device).or(self.settings.free.last());
        self.settings.memory.min(free.copied().unwrap_or(u64::MAX))
    }
}
