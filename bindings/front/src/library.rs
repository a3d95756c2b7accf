//! The driver's library behind the front.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{env, fs};

use cachette::Config;
use cachette_hal::load::{Candidate, Library};
use cachette_hal::{Backend, LoadError};
use cachette_process::{self as process, write_line};

use crate::status::{Refusal, step_aside};
use crate::summary::{self, RUN_FOLDER};

type LoadResult = Result<Arc<dyn Backend>, LoadError>;

/// A driver's library, opened at the first call, and how it is found.
#[derive(Debug)]
pub(crate) struct Behind<C> {
    pub(crate) loaded: OnceLock<Option<Loaded<C>>>,
    pub(crate) vendor: Vendor<C>,
}

/// What differs between the vendors.
#[derive(Debug)]
pub(crate) struct Vendor<C> {
    /// The name of the backend.
    pub(crate) backend: &'static str,
    /// How the names of the library's files begin.
    pub(crate) stem: &'static str,
    /// The variable by which a user names the library's file.
    pub(crate) variable: &'static str,
    /// The variable by which `cachette run` does.
    pub(crate) run_variable: &'static str,
    /// Where the backend searches.
    pub(crate) candidates: fn() -> Vec<Candidate>,
    /// # Safety
    ///
    /// Each candidate is the driver's library, or one with the same C interface.
    pub(crate) load: unsafe fn(&[Candidate]) -> LoadResult,
    pub(crate) resolve: fn(&Library) -> C,
    /// A function that the front has too, by name.
    pub(crate) answered: &'static str,
    pub(crate) own: fn(&str) -> Option<*const ()>,
}

#[derive(Debug)]
pub(crate) struct Loaded<C> {
    calls: C,
    /// What was opened, so that the backend opens the same.
    from: Vec<Candidate>,
}

impl<C> Behind<C> {
    pub(crate) const fn new(vendor: Vendor<C>) -> Self {
        Self { loaded: OnceLock::new(), vendor }
    }

    /// The driver's functions; `None` if there is no driver.
    #[inline]
    pub(crate) fn calls(&'static self) -> Option<&'static C> {
        match self.loaded.get() {
            Some(loaded) => loaded.as_ref().map(|loaded| &loaded.calls),
            None => self.open().map(|loaded| &loaded.calls),
        }
    }

    #[cold]
    fn open(&'static self) -> Option<&'static Loaded<C>> {
        let open = || {
            let vendor = &self.vendor;
            let from = vendor.search();
            // SAFETY: the names are the driver's, and the user who sets a variable promises the same of the file.
            let opened = unsafe { Library::open_first(&from) };
            let library = opened.map_err(write_line).ok()?;
            // SAFETY: it is a function, and is only compared.
            let found = unsafe { library.find::<unsafe extern "C" fn()>(vendor.answered) };
            if found.map(|function| function as *const ()) == (vendor.own)(vendor.answered) {
                let (name, variable) = (library.name(), vendor.variable);
                write_line(format_args!("{name} is the front itself; name the driver's file by {variable}"));
                return None;
            }
            Some(Loaded { calls: (vendor.resolve)(&library), from })
        };
        self.loaded.get_or_init(open).as_ref()
    }

    /// Starts the process's allocators on this driver, unless they have started; an error if they use another.
    pub(crate) fn start(&'static self) -> Result<(), Refusal> {
        if !process::is_started() {
            let loaded = self.open().ok_or(Refusal::Driver)?;
            // `cuCtxEnablePeerAccess` and `cuIpcGetMemHandle` of the program do not reach elastic segments.
            let mut config = Config::builder().expandable_segments(false).build().map_err(refuse)?;
            config.update_from_env_known().map_err(refuse)?;
            // SAFETY: it is the library that `open` has opened.
            let backend = unsafe { (self.vendor.load)(&loaded.from) }.map_err(refuse)?;
            summary::record();
            // If another thread was faster, its start counts.
            let _ = process::start_on(backend, &config);
        }
        if process::backend() == Some(self.vendor.backend) { Ok(()) } else { Err(Refusal::Driver) }
    }
}

impl<C> Vendor<C> {
    /// Where the driver is searched. A copy that the process has loaded comes before that of `cachette run`, which may
    /// be another one: wheels bring their own.
    fn search(&self) -> Vec<Candidate> {
        let file = |variable: &str| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = file(self.variable) {
            return vec![Candidate::Path(path)];
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let loaded = loaded(&maps, self.stem, file(RUN_FOLDER).as_deref());
        match loaded.or_else(|| file(self.run_variable)) {
            Some(path) => vec![Candidate::Path(path)],
            None => (self.candidates)(),
        }
    }
}

fn refuse(why: impl Display) -> Refusal {
    step_aside(why);
    Refusal::Driver
}

/// The first file among a process's mappings whose name begins with `stem`, outside the folder of `cachette run`.
pub(crate) fn loaded(maps: &str, stem: &str, except: Option<&Path>) -> Option<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let has_stem =
        |path: &&Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(stem.as_bytes()));
    let is_other = |path: &&Path| path.parent() != except;
    paths.filter(has_stem).find(is_other).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_found_behind_the_files_of_cachette_run() {
        let maps = "\
7f00-7f10 rw-p 00000000 fd:01 42                         /home/u/.cache/cachette/1a/libcuda.so.1
7f10-7f20 r-xp 00000000 fd:01 43                         /usr/lib/libcuda.so.580.82
";
        let folder = Path::new("/home/u/.cache/cachette/1a");
        assert_eq!(loaded(maps, "libcuda.so", Some(folder)), Some("/usr/lib/libcuda.so.580.82".into()));
        assert_eq!(loaded(maps, "libcuda.so", None), Some(folder.join("libcuda.so.1")));
        assert_eq!(loaded(maps, "libamdhip64", None), None);
    }
}
