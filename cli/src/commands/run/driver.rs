//! The drivers of this machine, by their files.

use std::path::{Path, PathBuf};
use std::{env, fs};

use cachette::hal::LoadError;
use cachette::hal::load::{Candidate, Library, loaded_file};

use super::{elf, front};
use crate::error::CliError;

/// A driver's library.
#[derive(Debug)]
pub(super) struct Driver {
    vendor: &'static Vendor,
    /// Its full path.
    pub(super) file: PathBuf,
    /// The names by which programs know it, its own first.
    pub(super) names: Vec<String>,
    /// The versions of its symbols.
    pub(super) versions: Vec<String>,
}

/// How a vendor's library is found and named.
#[derive(Debug)]
struct Vendor {
    /// The variable by which a user names the file.
    variable: &'static str,
    /// The variables that tell the front.
    told: &'static [&'static str],
    stem: &'static str,
    /// The names of a library that has no soname.
    usual: &'static [&'static str],
    candidates: fn() -> Vec<Candidate>,
}

const VENDORS: [Vendor; 2] = [
    Vendor {
        variable: "CACHETTE_CUDA_LIBRARY",
        // There is one libcuda on a machine. So other users of Cachette in the process find it behind the front.
        told: &["CACHETTE_RUN_CUDA", "CACHETTE_CUDA_LIBRARY"],
        stem: "libcuda.so",
        usual: &["libcuda.so.1"],
        candidates: cachette_hal_cuda::candidates,
    },
    Vendor {
        variable: "CACHETTE_HIP_LIBRARY",
        // A program may bring another libamdhip64, which counts.
        told: &["CACHETTE_RUN_HIP"],
        stem: "libamdhip64",
        usual: &["libamdhip64.so.7", "libamdhip64.so.6"],
        candidates: cachette_hal_hip::candidates,
    },
];

impl Driver {
    /// The variables by which the front finds the library.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.vendor.told.iter().map(|name| (*name, self.file.as_path()))
    }
}

/// Every driver there is. The error if there is none has the names of the libraries, or all that was tried.
pub(super) fn find_all(verbose: bool) -> Result<Vec<Driver>, CliError> {
    let (mut drivers, mut why) = (Vec::new(), Vec::new());
    for vendor in &VENDORS {
        match find(vendor) {
            Ok(driver) => drivers.push(driver),
            Err(error) => why.push(error),
        }
    }
    if !drivers.is_empty() {
        return Ok(drivers);
    }
    if verbose {
        return Err(CliError::NoDriver { tried: why.join("; "), more: "" });
    }
    let names =
        VENDORS.iter().map(|vendor| named(vendor).map_or(vendor.usual[0].into(), |path| path.display().to_string()));
    Err(CliError::NoDriver { tried: names.collect::<Vec<_>>().join(", "), more: "; --verbose says why" })
}

/// The library that the user names.
fn named(vendor: &Vendor) -> Option<PathBuf> {
    env::var_os(vendor.variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn find(vendor: &'static Vendor) -> Result<Driver, String> {
    let named = named(vendor);
    let is_named = named.is_some();
    let candidates = named.clone().map_or_else(vendor.candidates, |path| vec![Candidate::Path(path)]);
    // SAFETY: the names are the driver's, and the user who sets the variable promises the same of the file.
    let opened = unsafe { Library::open_first(&candidates) };
    opened.map_err(|error: LoadError| error.to_string())?;
    let file = if is_named { named } else { loaded_file(vendor.stem) };
    let file = file.and_then(|path| fs::canonicalize(path).ok());
    let file =
        file.ok_or_else(|| format!("the file of {} was not found; name it by {}", vendor.stem, vendor.variable))?;
    let library = fs::read(&file).ok().and_then(|bytes| elf::describe(&bytes)).unwrap_or_default();
    if library.names(front::MARK) {
        return Err(format!("{} is the front and no driver", file.display()));
    }
    let own = library.soname.filter(|name| name.starts_with(vendor.stem));
    let usual = || vendor.usual.iter().map(|name| (*name).to_owned()).collect();
    Ok(Driver { vendor, file, names: own.map_or_else(usual, |name| vec![name]), versions: library.versions })
}

/// The name of a library without its version, by which programs open it too.
pub(super) fn plain(name: &str) -> &str {
    name.find(".so").map_or(name, |at| &name[..at + ".so".len()])
}
