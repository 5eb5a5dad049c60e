//! cuFile, the library of GPUDirect Storage: reads from a file straight into device memory.
//!
//! Three layers: `sys`, what cufile.h declares; [`CuFile`], its functions, of which a status that is not
//! success becomes [`Trouble`]; and what gives itself back, a [`Registration`] of device memory, a
//! [`File`] and the [`Reads`] that are under way. Nothing is called after a fault that sticks, in a forked
//! child and while the process exits. Absent: tiles, and which bytes of a file are wanted.

mod reads;
mod sys;

pub(super) use self::reads::{Read, Reads, Unread};

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{Current, Device, Fault};
use super::library::{self, Library};
use crate::process::PerProcess;

/// CU_FILE_CUDA_DRIVER_ERROR: the code beside it is CUDA's.
const CUDA_ERROR: i32 = 5011;
/// CU_FILE_DRIVER_ALREADY_OPEN: by somebody else in this process.
const ALREADY_OPEN: i32 = 5026;

/// What cuFile answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trouble {
    call: &'static str,
    code: i64,
}

impl Trouble {
    /// The memory is not known.
    pub(super) const UNREGISTERED: Trouble = Trouble { call: "cuFileBufRegister", code: 5024 };

    /// It will be the same next time.
    pub(super) fn is_lasting(self) -> bool {
        self.call == Trouble::UNREGISTERED.call
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { call, code } = *self;
        let meaning = match code {
            5001 => ": the driver nvidia-fs is not loaded",
            5007 => ": not supported on this platform",
            5008 => ": not supported on this file",
            5009 => ": not supported on this GPU",
            5018 => ": not a regular file",
            5019 | 5020 => ": the file is not open for direct access",
            5025 => ": no access to the driver or the file",
            5033 => ": nvidia-fs does not start",
            5034 => ": disabled for this file by configuration",
            5036 => ": GPU memory cannot be pinned",
            _ => "",
        };
        match code {
            0.. if call == READ => write!(f, "a read ended after {code} bytes"),
            _ if call == READ => write!(f, "a read failed with error {}", -code),
            _ => write!(f, "{call}: error {code}{meaning}"),
        }
    }
}

/// The outcome of one read.
const READ: &str = "read";

/// The library, with its driver open; never closed.
pub(super) struct CuFile {
    get_properties: sys::GetProperties,
    register: sys::Register,
    deregister: sys::Deregister,
    buf_register: sys::BufRegister,
    buf_deregister: sys::BufDeregister,
    set_up: sys::SetUp,
    submit: sys::Submit,
    get_status: sys::GetStatus,
    cancel: sys::Cancel,
    destroy: sys::Destroy,
    /// Files are not read through host memory behind our back.
    pub(super) direct: bool,
    /// The most that one read may have.
    pub(super) largest: usize,
    /// The most reads that are submitted in one call.
    entries: usize,
}

/// What was found in one place, or why nothing was.
type Found = Result<Arc<CuFile>, String>;

static FOUND: PerProcess<Mutex<HashMap<Option<PathBuf>, Found>>> = PerProcess::new();

/// Looks for the library and opens its driver, once in a process for the same question. `given` is a
/// path of the user's.
pub(super) fn find(given: Option<&Path>, current: &Current) -> Found {
    let found = FOUND.get_or_init(Mutex::default);
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = found.entry(given.map(Path::to_path_buf));
    answer.or_insert_with(|| look(given, current)).clone()
}

fn look(given: Option<&Path>, current: &Current) -> Found {
    const NAME: &str = "libcufile.so.0";
    let places = match given {
        Some(path) => vec![path.to_path_buf()],
        None => library::places(&[NAME], &["nvidia/cufile/lib"]),
    };
    quieten();
    let Some(library) = places.iter().find_map(|place| Library::open(place)) else {
        return Err(format!("cuFile was not found ({NAME})"));
    };
    CuFile::new(library, current)
}

/// Where the user has not said where cuFile's log goes, it goes nowhere, rather than into whatever
/// directory is the current one.
fn quieten() {
    const PATH: &str = "CUFILE_LOGFILE_PATH";
    if std::env::var_os(PATH).is_none() {
        // SAFETY: once in a process, before the library is loaded. Whoever reads the environment without
        // its lock meanwhile is as safe as when any other library sets a variable.
        unsafe { std::env::set_var(PATH, "/dev/null") };
    }
}

/// Calls cuFile unless the device must be left alone; remembers if it was lost meanwhile.
fn ask(
    device: &Device,
    call: &'static str,
    f: impl FnOnce() -> sys::Status,
) -> Result<(), Trouble> {
    let trouble = |code: i32| Trouble { call, code: code.into() };
    let status = device.ask(call, || Ok(f())).map_err(|fault| trouble(fault.code))?;
    if status.code == CUDA_ERROR {
        device.note(Fault { call, code: status.cuda, nvcomp: false });
    }
    if status.code == 0 { Ok(()) } else { Err(trouble(status.code)) }
}

impl CuFile {
    fn new(library: Library, current: &Current) -> Found {
        // SAFETY: the types as in cufile.h, the same since 1.6.
        let symbols = unsafe {
            let function = |name| library.function(name);
            let open = library.function::<sys::Open>("cuFileDriverOpen");
            open.and_then(|open| {
                let cufile = CuFile {
                    get_properties: library.function("cuFileDriverGetProperties")?,
                    register: library.function("cuFileHandleRegister")?,
                    deregister: library.function("cuFileHandleDeregister")?,
                    buf_register: library.function("cuFileBufRegister")?,
                    buf_deregister: library.function("cuFileBufDeregister")?,
                    set_up: library.function("cuFileBatchIOSetUp")?,
                    submit: library.function("cuFileBatchIOSubmit")?,
                    get_status: library.function("cuFileBatchIOGetStatus")?,
                    cancel: library.function("cuFileBatchIOCancel")?,
                    destroy: function("cuFileBatchIODestroy")?,
                    direct: false,
                    largest: 0,
                    entries: 0,
                };
                Some((open, cufile))
            })
        };
        let (open, mut cufile) = symbols.ok_or("cuFile is older than 1.6")?;
        // SAFETY: no arguments; CUDA runs, and a context of ours is current.
        match ask(current.device(), "cuFileDriverOpen", || unsafe { open() }) {
            Err(trouble) if trouble.code != i64::from(ALREADY_OPEN) => {
                return Err(trouble.to_string());
            }
            _ => {}
        }
        let mut properties = sys::Properties::default();
        // SAFETY: fills the struct, which has room for more than any version has.
        let get = || unsafe { (cufile.get_properties)(&mut properties) };
        let asked = ask(current.device(), "cuFileDriverGetProperties", get);
        asked.map_err(|trouble| trouble.to_string())?;
        // In compatibility mode there is no nvidia-fs and no file system that it supports.
        cufile.direct = (properties.major, properties.minor, properties.status_flags) != (0, 0, 0);
        cufile.largest = (properties.max_direct_io << 10).max(PAGE) / PAGE * PAGE;
        cufile.entries = properties.max_batch.max(1) as usize;
        Ok(Arc::new(cufile))
    }
}

/// Reads that begin and end at multiples of this, in the file and in device memory, need no buffer in
/// between.
pub(super) const PAGE: usize = 4096;

/// Device memory that cuFile knows.
pub(super) struct Registration {
    cufile: Arc<CuFile>,
    device: Arc<Device>,
    /// Where it begins.
    pub(super) address: u64,
    /// How much it is.
    pub(super) bytes: usize,
}

impl Registration {
    /// Registers memory of ours.
    pub(super) fn new(
        cufile: &Arc<CuFile>,
        current: &Current,
        address: u64,
        bytes: usize,
    ) -> Result<Registration, Trouble> {
        let device = Arc::clone(current.device());
        // SAFETY: device memory that stays ours until it was deregistered.
        ask(&device, "cuFileBufRegister", || unsafe { (cufile.buf_register)(address, bytes, 0) })?;
        Ok(Registration { cufile: Arc::clone(cufile), device, address, bytes })
    }
}

impl Drop for Registration {
    /// In the context of whoever frees the memory next.
    fn drop(&mut self) {
        // SAFETY: registered by `new`; no read is under way any more.
        let deregister = || unsafe { (self.cufile.buf_deregister)(self.address) };
        let _ = ask(&self.device, "cuFileBufDeregister", deregister);
    }
}

/// A file that cuFile knows, by a descriptor of our own.
pub(super) struct File {
    /// The library.
    pub(super) cufile: Arc<CuFile>,
    device: Arc<Device>,
    handle: *mut c_void,
    _descriptor: OwnedFd,
}

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for File {}
// SAFETY: as above, by several at once.
unsafe impl Sync for File {}

impl File {
    /// Registers a file that somebody has open.
    pub(super) fn new(
        cufile: &Arc<CuFile>,
        device: &Arc<Device>,
        open: BorrowedFd<'_>,
    ) -> Result<File, String> {
        let _current = device.enter().map_err(|fault| fault.to_string())?;
        let descriptor = own(open).map_err(|error| error.to_string())?;
        let mut description = sys::Description {
            kind: sys::OPAQUE_FD,
            handle: sys::Handle { descriptor: descriptor.as_raw_fd() },
            operations: std::ptr::null(),
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: fills the handle; the descriptor is closed after it was deregistered.
        let register = || unsafe { (cufile.register)(&mut handle, &mut description) };
        let registered = ask(device, "cuFileHandleRegister", register);
        registered.map_err(|trouble| trouble.to_string())?;
        let (cufile, device) = (Arc::clone(cufile), Arc::clone(device));
        Ok(File { cufile, device, handle, _descriptor: descriptor })
    }
}

/// The same file, past the page cache where the file system can; else by the same description.
fn own(open: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", open.as_raw_fd());
    let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    direct.map(OwnedFd::from).or_else(|_| open.try_clone_to_owned())
}

impl Drop for File {
    fn drop(&mut self) {
        let Ok(_current) = self.device.enter() else { return };
        // SAFETY: registered by `new`, deregistered once; reads that are under way hold it.
        let _ = self.device.ask("cuFileHandleDeregister", || unsafe {
            (self.cufile.deregister)(self.handle);
            Ok(())
        });
    }
}
