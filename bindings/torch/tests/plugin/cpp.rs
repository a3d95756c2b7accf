//! Libraries in C++, built for a case: PyTorch's place is taken by them.

use std::env;
use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use cachette_torch::{MempoolId, StdFunction};
use tempfile::TempDir;

/// How the output of a case begins that could not be run.
pub(crate) const SKIPPED: &str = "skipped: ";

/// Names the folder of what stands for PyTorch, which is built once for all cases.
pub(crate) const FOLDER: &str = "CACHETTE_TORCH_FOLDER";

static PYTORCH: Mutex<Option<Folder>> = Mutex::new(None);

/// Builds what stands for PyTorch, once; the folder it is in, if there is a compiler.
pub(crate) fn pytorch() -> Option<PathBuf> {
    let mut built = PYTORCH.lock().expect("no build has panicked");
    if built.is_none() {
        let folder = Folder::new()?;
        let c10 = folder.build_own("libc10.so", "c10.cpp", &[]);
        folder.build_own("libc10_cuda.so", "c10_cuda.cpp", &[&c10]);
        folder.build_own("libcaller.so", "caller.cpp", &[&c10]);
        let c10 = folder.build_own("libc10.so.2.12", "c10.cpp", &[]);
        folder.build_own("libc10_cuda.so.2.12", "c10_cuda.cpp", &[&c10]);
        folder.build_own("libcaller.so.2.12", "caller.cpp", &[&c10]);
        // All in one library, whose name says nothing.
        let c10 = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/c10.cpp");
        folder.build_own("libalone.so", "caller.cpp", &[&c10]);
        *built = Some(folder);
    }
    built.as_ref().map(|folder| folder.0.path().to_owned())
}

/// Removes what was built.
pub(crate) fn clear() {
    *PYTORCH.lock().expect("no build has panicked") = None;
}

/// A folder for libraries, which goes with its guard.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// `None`, after saying so, where no C++ compiler is installed.
    pub(crate) fn new() -> Option<Self> {
        let asked = Command::new("c++").arg("--version").stdout(Stdio::null()).status();
        if !asked.is_ok_and(|status| status.success()) {
            eprintln!("{SKIPPED}there is no C++ compiler");
            return None;
        }
        Some(Self(tempfile::tempdir().expect("the system has room for a folder")))
    }

    /// Builds a shared library of a text.
    pub(crate) fn build(&self, name: &str, text: &str, links: &[&Path]) -> PathBuf {
        let source = self.0.path().join(format!("{name}.cpp"));
        fs::write(&source, text).expect("the folder can be written");
        self.build_file(name, &source, links)
    }

    /// Builds a shared library of a file beside the tests.
    pub(crate) fn build_own(&self, name: &str, file: &str, links: &[&Path]) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp");
        self.build_file(name, &folder.join(file), links)
    }

    fn build_file(&self, name: &str, source: &Path, links: &[&Path]) -> PathBuf {
        let built = self.0.path().join(name);
        let mut soname = OsString::from("-Wl,-soname,");
        soname.push(name);
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]);
        command.arg(soname).arg("-o").arg(&built).arg(source).args(links);
        let output = command.output().expect("the compiler can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} cannot be built:\n{said}");
        built
    }
}

/// Loads a library as Python loads a module: not visible to other libraries.
pub(crate) fn load(path: &Path) -> *mut c_void {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero");
    // SAFETY: its initialisers make a few objects.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{path:?} cannot be loaded");
    handle
}

/// A function of a library.
///
/// # Safety
///
/// 1. `F` is the type of a pointer to that very function.
unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    let name = CString::new(name).expect("a name has no zero");
    // SAFETY: the handle is open, and the name ends with a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "there is no {name:?}");
    // SAFETY: 1. is the caller's promise.
    unsafe { std::mem::transmute_copy(&found) }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Returned,
    OutOfMemory(String),
    Error(String),
    Foreign(String),
}

type Allocate = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void) -> *mut c_void;
type Begin = unsafe extern "C-unwind" fn(c_int, MempoolId, *const StdFunction);
type End = unsafe extern "C-unwind" fn(c_int, MempoolId);
type CallAllocate =
    unsafe extern "C" fn(Allocate, usize, c_int, *mut c_void, *mut *mut c_void, *mut bool, *mut c_char, usize) -> c_int;
type CallBegin = unsafe extern "C" fn(Begin, c_int, u64, u64, *mut c_void, *mut c_char, usize) -> c_int;
type CallEnd = unsafe extern "C" fn(End, c_int, u64, u64, *mut c_char, usize) -> c_int;

/// The library that calls the plug-in.
pub(crate) struct Caller {
    library: *mut c_void,
}

impl Caller {
    /// Loads what stands for PyTorch; `with_device` says whether its library for devices is there.
    pub(crate) fn new(with_device: bool) -> Option<Self> {
        let device = with_device.then_some("libc10_cuda.so");
        Self::of(["libc10.so"].into_iter().chain(device), "libcaller.so")
    }

    /// Loads PyTorch as distributions have it.
    pub(crate) fn of_distribution() -> Option<Self> {
        let libraries = ["libc10.so.2.12", "libc10_cuda.so.2.12"];
        Self::of(libraries, "libcaller.so.2.12")
    }

    /// Loads a caller without PyTorch's libraries.
    pub(crate) fn alone() -> Option<Self> {
        Self::of([], "libalone.so")
    }

    fn of<'a>(libraries: impl IntoIterator<Item = &'a str>, caller: &str) -> Option<Self> {
        let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
            eprintln!("{SKIPPED}there is no C++ compiler");
            return None;
        };
        for name in libraries {
            load(&folder.join(name));
        }
        let library = load(&folder.join(caller));
        Some(Self { library })
    }

    /// Allocates as PyTorch does; the memory, or what was thrown.
    pub(crate) fn allocate(
        &self,
        function: Allocate,
        bytes: usize,
        device: c_int,
        stream: *mut c_void,
    ) -> Result<*mut c_void, Outcome> {
        // SAFETY: 1. is what the library exports.
        let call: CallAllocate = unsafe { self::function(self.library, "call_allocate") };
        let (mut memory, mut passed) = (std::ptr::null_mut(), false);
        let outcome = told(|text, room| {
            let (memory, passed) = (&raw mut memory, &raw mut passed);
            // SAFETY: the stream lives as long as the case, and all else during the call.
            unsafe { call(function, bytes, device, stream, memory, passed, text, room) }
        });
        assert!(passed, "the caller's destructors ran");
        match outcome {
            Outcome::Returned => Ok(memory),
            thrown => Err(thrown),
        }
    }

    /// Leads the requests for a stream to a pool; `small` says whether the filter fits into its function object.
    pub(crate) fn begin(&self, device: c_int, id: MempoolId, stream: *mut c_void, small: bool) -> Outcome {
        let name = if small { "call_begin_small" } else { "call_begin" };
        // SAFETY: 1. is what the library exports.
        let call: CallBegin = unsafe { function(self.library, name) };
        let begin = cachette_torch::cachette_torch_begin_allocate_to_pool;
        told(|text, room| {
            // SAFETY: all lives during the call.
            unsafe { call(begin, device, id.first, id.second, stream, text, room) }
        })
    }

    pub(crate) fn end(&self, device: c_int, id: MempoolId) -> Outcome {
        // SAFETY: 1. is what the library exports.
        let call: CallEnd = unsafe { function(self.library, "call_end") };
        let end = cachette_torch::cachette_torch_end_allocate_to_pool;
        told(|text, room| {
            // SAFETY: all lives during the call.
            unsafe { call(end, device, id.first, id.second, text, room) }
        })
    }

    /// How many exceptions live.
    pub(crate) fn live_errors(&self) -> c_int {
        // SAFETY: 1. is what the library exports.
        let count: unsafe extern "C" fn() -> c_int = unsafe { function(self.library, "live_errors") };
        // SAFETY: it reads a number.
        unsafe { count() }
    }

    /// How many copies of large filters live.
    pub(crate) fn filters_held(&self) -> i64 {
        // SAFETY: 1. is what the library exports.
        let count: unsafe extern "C" fn() -> i64 = unsafe { function(self.library, "filters_held") };
        // SAFETY: it reads a number.
        unsafe { count() }
    }
}

/// What came of a call that writes a text.
fn told(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Outcome {
    let mut room = vec![0_u8; 4096];
    let outcome = call(room.as_mut_ptr().cast(), room.len());
    room.truncate(room.iter().position(|byte| *byte == 0).expect("it ends with a zero"));
    let text = String::from_utf8(room).expect("texts are UTF-8");
    match outcome {
        0 => Outcome::Returned,
        1 => Outcome::OutOfMemory(text),
        2 => Outcome::Error(text),
        _ => Outcome::Foreign(text),
    }
}
