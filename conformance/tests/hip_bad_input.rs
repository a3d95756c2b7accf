//! A library that cannot be used gives a clear message.
//!
//! The emulated library reads its environment once, so every case is a child process of this program.

#[path = "shared/child.rs"]
mod child;
#[path = "shared/emulated.rs"]
mod emulated;

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use cachette_emulated_hip::{Personality, install};
use cachette_hal::load::Library;
use cachette_hal::{Backend, Device, Ordinal};
use cachette_hal_cuda::CudaBackend;
use cachette_hal_hip::{Candidate, HipBackend};
use libtest_mimic::{Completion, Failed};

use child::{LIBRARY, PART, Said, child, expect, lost_after, missing_or_text, none_shown, said_by, seven};

fn main() -> ExitCode {
    let leave = || child::leave(|| Ok(HipBackend::load()?.open(Ordinal(0))?));
    child::main(
        &[("open", open), ("open after 6", after_six), ("open both", both), ("leave", leave)],
        &[
            ("a_named_library_that_is_missing_or_a_text_is_named", || missing_or_text("libamdhip64.so.7")),
            ("a_library_of_something_else_lacks_symbols", other_library),
            ("an_old_library_says_what_to_install", old_library),
            ("debians_library_is_too_old", debians_library),
            ("a_library_without_devices_says_what_to_check", no_device),
            ("devices_can_be_hidden", hidden_devices),
            ("the_newest_library_is_found_by_its_name", found_by_name),
            ("a_library_that_is_loaded_comes_first", loaded_first),
            ("both_vendors_work_in_one_process", both_vendors),
            ("the_emulated_library_has_every_feature", || {
                expect(&child("open", &seven()?, &[])?, "2 devices of 7.2, emulated: true")
            }),
            ("a_device_that_vanishes_is_lost", || lost_after(&seven()?, 100, ["12", "50", "100"])),
            ("a_leaving_process_is_told_so", leaving),
        ],
    )
}

fn open() -> Said {
    let backend = HipBackend::load()?;
    child::open_all(&backend, &format!(" of {}", backend.info().version))
}

/// Loads 6.4 first, as another part of the process might.
fn after_six() -> Said {
    let six = Candidate::Name("libamdhip64.so.6".into());
    // SAFETY: it is the emulated library, found where the parent has put it.
    let _library = unsafe { Library::open_first(&[six]) }?;
    open()
}

/// Opens a device of each vendor.
fn both() -> Said {
    let (one, two) = (CudaBackend::load()?.open(Ordinal(0))?, HipBackend::load()?.open(Ordinal(0))?);
    one.allocate(4096)?;
    two.allocate(4096)?;
    Ok(format!("{} and {}", one.info().vendor, two.info().vendor))
}

fn other_library() -> Result<Completion, Failed> {
    let said = child("open", Path::new("libm.so.6"), &[])?;
    expect(&said, "libm.so.6 is not a usable driver: it lacks hipRuntimeGetVersion")
}

fn old_library() -> Result<Completion, Failed> {
    let library = seven()?;
    let said = child("open", &library, &[("CACHETTE_EMULATED_VERSION", "50221153")])?;
    let library = library.display();
    let promised = format!("{library} is version 5.2, which is too old; install 6.0 or newer");
    expect(&said, &promised)
}

/// AMD's own library, where Debian's package is installed.
fn debians_library() -> Result<Completion, Failed> {
    let said = child("open", Path::new("libamdhip64.so.5"), &[])?;
    if said.contains("cannot open shared object") || said.contains("No such file") {
        return Ok(Completion::ignored_with("libamdhip64-5 is not installed"));
    }
    expect(&said, "libamdhip64.so.5 is version 5.2, which is too old; install 6.0 or newer")
}

fn no_device() -> Result<Completion, Failed> {
    let library = seven()?;
    let said = child("open", &library, &[("CACHETTE_EMULATED_DEVICES", "0")])?;
    expect(&said, &none_shown(&library))
}

fn hidden_devices() -> Result<Completion, Failed> {
    let library = seven()?;
    let hiding = [
        ("ROCR_VISIBLE_DEVICES", ""),
        ("ROCR_VISIBLE_DEVICES", "7"),
        ("HIP_VISIBLE_DEVICES", "-1"),
        ("HIP_VISIBLE_DEVICES", "none"),
        ("CUDA_VISIBLE_DEVICES", "-1"),
    ];
    for variable in hiding {
        let said = child("open", &library, &[variable])?;
        expect(&said, &none_shown(&library))?;
    }
    let (one, all) = ("1 devices of 7.2, emulated: true", "2 devices of 7.2, emulated: true");
    expect(&child("open", &library, &[("HIP_VISIBLE_DEVICES", "1,7,0")])?, one)?;
    // Empty is as good as not set; HIP's own comes before CUDA's.
    expect(&child("open", &library, &[("HIP_VISIBLE_DEVICES", "")])?, all)?;
    let both = [("HIP_VISIBLE_DEVICES", "0,1"), ("CUDA_VISIBLE_DEVICES", "-1")];
    expect(&child("open", &library, &both)?, all)
}

/// A child that finds libraries by name in the folders of these versions.
fn searching(part: &str, versions: &[Personality]) -> Result<String, Failed> {
    let mut folders = Vec::new();
    for version in versions {
        folders.extend(install(*version)?.parent().map(Path::to_owned));
    }
    let mut child = Command::new(env::current_exe()?);
    child.env(PART, part).env_remove(LIBRARY);
    child.env("LD_LIBRARY_PATH", env::join_paths(folders)?);
    said_by(child)
}

fn found_by_name() -> Result<Completion, Failed> {
    let both = searching("open", &[Personality::V6_4, Personality::V7_14])?;
    expect(&both, "2 devices of 7.14, emulated: true")?;
    let six = searching("open", &[Personality::V6_4])?;
    expect(&six, "2 devices of 6.4, emulated: true")
}

fn loaded_first() -> Result<Completion, Failed> {
    let both = searching("open after 6", &[Personality::V6_4, Personality::V7_14])?;
    expect(&both, "2 devices of 6.4, emulated: true")
}

fn both_vendors() -> Result<Completion, Failed> {
    let cuda = emulated::library("libcachette_emulated_cuda.so");
    let cuda = cuda.to_string_lossy();
    let said = child("open both", &seven()?, &[("CACHETTE_CUDA_LIBRARY", &cuda)])?;
    expect(&said, "NVIDIA and AMD")
}

fn leaving() -> Result<Completion, Failed> {
    expect(
        &child("leave", &seven()?, &[])?,
        "leaving\nhipGetDevice failed: the driver is shutting down (status 4); stop using the device",
    )
}
