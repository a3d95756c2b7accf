//! libamdhip64: its candidates and its functions.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::{OsString, c_int};
use std::path::PathBuf;
use std::sync::Arc;

use cachette_hal::load::{Candidate, Library, loaded_file};
use cachette_hal::{BackendInfo, Error, Guarded, LoadError, Result, Vendor, Version};

use crate::last_error;
use crate::ledger::Ledger;
use crate::status::{DEINITIALIZED, SUCCESS, is_no_device, kind_of};
use crate::symbols::{Symbols, VersionCalls};
use crate::types::{EventHandle, Status, StreamHandle};

/// Names the one library to use, by path.
pub const LIBRARY_VARIABLE: &str = "CACHETTE_HIP_LIBRARY";
/// The oldest version whose structures are laid out as this crate expects.
pub const OLDEST: Version = Version::new(6, 0);

/// Sonames by HIP's major version, newest first. The last one is too old, and is opened only to report that.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5"];
/// The prefix of the file name of every copy.
const STEM: &str = "libamdhip64";
/// Exported by a library that emulates the driver.
const EMULATED: &str = "cachette_emulated_library";

/// The candidates for the driver, best first.
///
/// If [`LIBRARY_VARIABLE`] names a file, that is the only candidate. A copy that the process has loaded already comes
/// before the others, because two HIP runtimes in one process conflict. Its file may be renamed, as in wheels of
/// PyTorch.
#[must_use]
pub fn candidates() -> Vec<Candidate> {
    list(env::var_os(LIBRARY_VARIABLE), env::var_os("ROCM_PATH"), loaded_file(STEM))
}

/// The candidates, given the two variables and the loaded file.
fn list(library: Option<OsString>, rocm: Option<OsString>, packed: Option<PathBuf>) -> Vec<Candidate> {
    if let Some(path) = library.filter(|path| !path.is_empty()) {
        return vec![Candidate::Path(path.into())];
    }
    let loaded = NAMES.iter().map(|name| Candidate::Loaded((*name).into())).chain(packed.map(Candidate::Path));
    let [newest @ .., old] = NAMES;
    let named = newest.map(|name| Candidate::Name(name.into()));
    let folders = rocm.map(PathBuf::from).into_iter().chain([PathBuf::from("/opt/rocm")]);
    let files = folders.map(|folder| Candidate::Path(folder.join("lib").join("libamdhip64.so")));
    let last = [Candidate::Name(old.into())];
    loaded.chain(named).chain(files).chain(last).collect()
}

/// The driver: its functions, resolved once, and the state that must be common to all its users.
///
/// The process has one for each library, because the ledger must contain every mapping.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) info: BackendInfo,
    pub(crate) symbols: Symbols,
    pub(crate) ledger: Ledger,
    /// Streams on which the driver has left an ended capture: a second end of it crashes the process.
    pub(crate) left: Guarded<HashSet<StreamHandle>>,
    /// Streams that this crate created and has not destroyed. Only it destroys them, so they are live.
    pub(crate) own: Guarded<HashSet<StreamHandle>>,
    /// For each event the stream of its last record, unless that is a default one, which is never captured.
    ///
    /// Before a query of the event, the driver looks at the stream. If that is captured now, some versions take the event
    /// for a captured one, and break the capture.
    pub(crate) recorded: Guarded<HashMap<EventHandle, StreamHandle>>,
}

impl Driver {
    /// Opens the first candidate that can be opened, and starts it.
    ///
    /// # Safety
    ///
    /// Each candidate is the driver's library, or one with the same C interface.
    pub(crate) unsafe fn load(candidates: &[Candidate]) -> Result<Arc<Self>, LoadError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open_first(candidates) }?;
        let version = version(&library)?;
        let symbols = Symbols::resolve(&library)?;
        start(&library, &symbols)?;
        // SAFETY: it is a function, and is not called.
        let emulated = unsafe { library.find::<unsafe extern "C" fn()>(EMULATED) }.is_some();
        let name = library.name().to_owned();
        let info = BackendInfo::new("hip", Vendor::Amd, version, name, emulated);
        Ok(Self::shared(&symbols, info))
    }

    /// The process's driver for this library.
    fn shared(symbols: &Symbols, info: BackendInfo) -> Arc<Self> {
        static DRIVERS: Guarded<Vec<Arc<Driver>>> = Guarded::new(Vec::new());
        let mut drivers = DRIVERS.lock();
        let same = |driver: &&Arc<Self>| std::ptr::fn_addr_eq(driver.symbols.core.hipInit, symbols.core.hipInit);
        if let Some(driver) = drivers.iter().find(same) {
            return Arc::clone(driver);
        }
        let driver = Arc::new(Self {
            info,
            symbols: *symbols,
            ledger: Ledger::default(),
            left: Guarded::default(),
            own: Guarded::default(),
            recorded: Guarded::default(),
        });
        drivers.push(Arc::clone(&driver));
        driver
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { (self.symbols.core.hipGetDeviceCount)(&raw mut count) };
        if is_no_device(status) {
            self.clear_error();
            return Ok(0);
        }
        self.check("hipGetDeviceCount", status)?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Turns the status of `call` into a result, and clears the thread's last error.
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // A driver that has shut down must not be called again.
        if status != DEINITIALIZED {
            self.clear_error();
        }
        Err(Error::from_status(kind_of(status), call, status))
    }

    /// Notes the thread's last error before a call. Before 7.0 it is the status of the last call, which no call keeps.
    pub(crate) fn begin_call(&self) {
        if !self.last_error_is_last_status() {
            // SAFETY: it takes nothing.
            last_error::begin(|| unsafe { (self.symbols.core.hipPeekAtLastError)() });
        }
    }

    /// Clears the thread's last error, which the caller would otherwise attribute to one of its calls.
    fn clear_error(&self) {
        // The status is known already.
        // SAFETY: it takes nothing.
        let _ = unsafe { (self.symbols.core.hipGetLastError)() };
        last_error::fail(true);
    }

    /// Clears the last error after "not ready", which versions before 7.0 store there.
    pub(crate) fn clear_not_ready(&self) {
        if self.last_error_is_last_status() {
            self.clear_error();
        } else {
            last_error::fail(false);
        }
    }

    fn last_error_is_last_status(&self) -> bool {
        self.info.version < Version::new(7, 0)
    }
}

/// The library's version; fails if it is too old.
fn version(library: &Library) -> Result<Version, LoadError> {
    let calls = VersionCalls::resolve(library)?;
    let mut number = 0;
    // SAFETY: the driver writes one number, also without a device.
    let status = unsafe { (calls.hipRuntimeGetVersion)(&raw mut number) };
    if status != SUCCESS {
        return Err(did_not_start(library, "hipRuntimeGetVersion", status));
    }
    let found = version_of(number);
    if found < OLDEST {
        return Err(LoadError::TooOld { library: library.name().to_owned(), needs: OLDEST, found });
    }
    Ok(found)
}

const fn version_of(number: c_int) -> Version {
    let number = number.unsigned_abs();
    Version::new(number / 10_000_000, number / 100_000 % 100)
}

/// Starts the driver, and checks that it has a device.
fn start(library: &Library, symbols: &Symbols) -> Result<(), LoadError> {
    let no_device = || LoadError::NoDevice { library: library.name().to_owned() };
    // SAFETY: there are no flags.
    match unsafe { (symbols.core.hipInit)(0) } {
        SUCCESS => {}
        status if is_no_device(status) => return Err(no_device()),
        status => return Err(did_not_start(library, "hipInit", status)),
    }
    let mut count = 0;
    // SAFETY: the driver writes one number.
    match unsafe { (symbols.core.hipGetDeviceCount)(&raw mut count) } {
        SUCCESS if count > 0 => Ok(()),
        SUCCESS => Err(no_device()),
        status if is_no_device(status) => Err(no_device()),
        status => Err(did_not_start(library, "hipGetDeviceCount", status)),
    }
}

fn did_not_start(library: &Library, call: &'static str, status: Status) -> LoadError {
    LoadError::Start { library: library.name().to_owned(), error: Error::from_status(kind_of(status), call, status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_real_libraries_are_read() {
        assert_eq!(version_of(50_221_153), Version::new(5, 2));
        assert_eq!(version_of(60_443_484), Version::new(6, 4));
        assert_eq!(version_of(70_253_211), Version::new(7, 2));
        assert_eq!(version_of(71_460_850), Version::new(7, 14));
    }

    #[test]
    fn what_is_loaded_comes_before_what_could_be() {
        let packed = "/wheel/libamdhip64-1a2b.so.7";
        let all = list(None, Some("/rocm".into()), Some(packed.into()));
        let position = |wanted: &Candidate| all.iter().position(|found| found == wanted);
        let loaded = position(&Candidate::Loaded("libamdhip64.so.6".into()));
        let packed = position(&Candidate::Path(packed.into()));
        let seven = position(&Candidate::Name("libamdhip64.so.7".into()));
        let six = position(&Candidate::Name("libamdhip64.so.6".into()));
        let plain = position(&Candidate::Name("libamdhip64.so".into()));
        let own = position(&Candidate::Path("/rocm/lib/libamdhip64.so".into()));
        let rocm = position(&Candidate::Path("/opt/rocm/lib/libamdhip64.so".into()));
        let old = position(&Candidate::Name("libamdhip64.so.5".into()));
        let order = [loaded, packed, seven, six, plain, own, rocm, old];
        assert!(order.iter().all(Option::is_some), "{all:?}");
        assert!(order.is_sorted(), "{all:?}");
    }

    #[test]
    fn a_path_given_is_the_only_one_tried() {
        let all = list(Some("/mine/libamdhip64.so".into()), None, None);
        assert_eq!(all, [Candidate::Path("/mine/libamdhip64.so".into())]);
        assert!(list(Some("".into()), None, None).len() > 1);
    }
}
