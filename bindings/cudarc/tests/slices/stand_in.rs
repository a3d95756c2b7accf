//! The library that imitates NVIDIA's driver, in place of the driver.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

const LIBRARY: &str = "CACHETTE_CUDA_LIBRARY";

/// Starts this program again where cudarc and Cachette both find the imitation, unless the user has named a library.
///
/// cudarc asks the loader of the system for `libcuda.so`, and the loader reads its path when a program starts.
pub(crate) fn substitute_driver() {
    if env::var_os(LIBRARY).is_some() {
        return;
    }
    let library = built("libcachette_emulated_cuda.so");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    fs::create_dir_all(&folder).unwrap();
    // Another run of the tests may be using the link.
    let (link, fresh) = (folder.join("libcuda.so"), folder.join(process::id().to_string()));
    symlink(&library, &fresh).unwrap();
    fs::rename(fresh, link).unwrap();
    let program = env::current_exe().unwrap();
    let failed = Command::new(program)
        .args(env::args_os().skip(1))
        .env(LIBRARY, &library)
        .env("LD_LIBRARY_PATH", folder)
        // cudarc returns what it copied into vectors, and relies on the driver to wait.
        .env("CACHETTE_EMULATED_COPIES_WAIT", "1")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .exec();
    panic!("the program does not start again: {failed}");
}

/// A library that Cargo has built, beside the test program or one folder up.
fn built(file: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let mut files = program.ancestors().skip(1).take(2).map(|folder| folder.join(file));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("{file} was not built beside {}", program.display()))
}
