//! The processes that use the memory of a device, from NVML.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use cachette::hal::load::{Candidate, Library};
use cachette::hal::symbol_table;

/// A process that uses the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Process {
    /// Its number.
    pub id: c_uint,
    /// The bytes it uses; all ones if the driver does not report it.
    bytes: u64,
}

impl Process {
    /// The bytes it uses; `None` if the driver does not report it.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        Some(self.bytes).filter(|bytes| *bytes != u64::MAX)
    }
}

symbol_table! {
    /// The functions of NVML.
    struct Nvml {
        required {
            init as "nvmlInit_v2": fn() -> c_int;
            find as "nvmlDeviceGetHandleByUUID":
                fn(uuid: *const c_char, device: *mut *mut c_void) -> c_int;
            processes as "nvmlDeviceGetComputeRunningProcesses":
                fn(device: *mut c_void, count: *mut c_uint, room: *mut Process) -> c_int;
        }
        optional {}
    }
}

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
/// The initial room for processes.
const FEW: usize = 16;

/// Returns the processes that use the memory of the device with this UUID; none if NVML is missing or does not list it.
#[cold]
pub(crate) fn of(uuid: [u8; 16]) -> Vec<Process> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    let nvml = NVML.get_or_init(load).as_ref();
    nvml.and_then(|nvml| ask(nvml, uuid)).unwrap_or_default()
}

fn load() -> Option<Nvml> {
    let name = "libnvidia-ml.so.1";
    let candidates = [Candidate::Loaded(name.into()), Candidate::Name(name.into())];
    // SAFETY: the driver installs the library of this name, and any process may load it.
    let library = unsafe { Library::open_first(&candidates) }.ok()?;
    let nvml = Nvml::resolve(&library).ok()?;
    // SAFETY: it may be called at any time, and repeatedly.
    (unsafe { (nvml.init)() } == SUCCESS).then_some(nvml)
}

fn ask(nvml: &Nvml, uuid: [u8; 16]) -> Option<Vec<Process>> {
    let name = CString::new(name_of(uuid)).ok()?;
    let mut device = ptr::null_mut();
    // SAFETY: the name ends with a zero, and the handle can be written.
    if unsafe { (nvml.find)(name.as_ptr(), &raw mut device) } != SUCCESS {
        return None;
    }
    let mut processes = Vec::new();
    let mut count = FEW;
    // Processes may start between two calls, so the number of attempts is limited.
    for _ in 0..4 {
        processes.resize(count, Process { id: 0, bytes: 0 });
        let mut told = c_uint::try_from(count).ok()?;
        // SAFETY: NVML returned the device, and there is room for `told` processes.
        let status = unsafe { (nvml.processes)(device, &raw mut told, processes.as_mut_ptr()) };
        count = usize::try_from(told).ok()?;
        match status {
            SUCCESS => {
                processes.truncate(count);
                return Some(processes);
            }
            INSUFFICIENT_SIZE => {}
            _ => return None,
        }
    }
    None
}

/// The UUID in NVML's format.
fn name_of(uuid: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid));
    let part = |range: Range<usize>| &digits[range];
    format!("GPU-{}-{}-{}-{}-{}", part(0..8), part(8..12), part(12..16), part(16..20), part(20..32))
}
