//! A driver that cannot be used gives a clear message.
//!
//! The emulated driver reads its environment once, so every case is a child process of this program.

#[path = "shared/child.rs"]
#[expect(dead_code, reason = "part of it serves other tests")]
mod child;
#[path = "shared/emulated.rs"]
mod emulated;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cachette_hal::{Backend, Device, Ordinal, Sharing};
use cachette_hal_cuda::CudaBackend;
use libtest_mimic::{Completion, Failed};

use child::{Said, child, expect, lost_after, missing_or_text, none_shown};

/// A part that opens every device.
const OPEN: &str = "open";
/// A part that makes backing of every kind.
const SHARE: &str = "share";
/// A part that maps a backing a second time.
const ALIAS: &str = "alias";
/// A part that uses a device when the process leaves.
const LEAVE: &str = "leave";

fn main() -> ExitCode {
    let leave = || child::leave(|| Ok(CudaBackend::load()?.open(Ordinal(0))?));
    child::main(
        &[(OPEN, || child::open_all(&CudaBackend::load()?, "")), (SHARE, share), (ALIAS, alias), (LEAVE, leave)],
        &[
            ("no_library_names_every_candidate", no_library),
            ("a_named_library_that_is_missing_or_a_text_is_named", || missing_or_text("libcuda.so.1")),
            ("a_library_of_something_else_lacks_symbols", other_library),
            ("an_old_driver_says_what_to_install", old_driver),
            ("a_driver_without_devices_says_what_to_check", no_device),
            ("devices_can_be_hidden", hidden_devices),
            ("the_emulated_driver_has_every_feature", || {
                expect(&child(OPEN, &emulated_driver(), &[])?, "2 devices, emulated: true")
            }),
            ("a_fabric_that_is_not_there_is_told_of", no_fabric),
            ("memory_is_made_for_network_cards", network_cards),
            ("a_second_mapping_that_fails_is_refused", second_mapping),
            ("a_device_that_vanishes_is_lost", || lost_after(&emulated_driver(), 46, ["2", "8", "20"])),
            ("a_leaving_process_is_told_so", leaving),
        ],
    )
}

/// Makes backing of every kind for network cards, and says what came of it.
fn share() -> Said {
    let backend = CudaBackend::load()?;
    let device = backend.device(Ordinal(0))?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().minimum;
    let mut lines = Vec::new();
    for sharing in Sharing::ALL {
        let shares = memory.shares(sharing).map_or_else(|why| why.to_string(), |()| "yes".into());
        let made = memory.create_backing(bytes, sharing, true);
        let made = made.map_or_else(|error| error.to_string(), |_| "made".into());
        lines.push(format!("{sharing}: {shares}; {made}"));
    }
    Ok(lines.join("\n"))
}

/// Maps a backing at two addresses, and at the second once it is not at the first any more.
fn alias() -> Said {
    let device = CudaBackend::load()?.device(Ordinal(0))?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().recommended;
    let first = memory.reserve(2 * bytes, None)?;
    let second = first.add(bytes);
    let backing = memory.create_backing(bytes, Sharing::Private, false)?;
    // SAFETY: 1. the backing is live.
    unsafe { memory.map(first, &backing) }?;
    // SAFETY: 1. the backing is live.
    let Err(refused) = (unsafe { memory.map(second, &backing) }) else {
        return Ok("mapped".into());
    };
    // SAFETY: 2. no work uses the memory.
    unsafe { memory.unmap(first, bytes) }?;
    // SAFETY: 1. the backing is live.
    unsafe { memory.map(second, &backing) }?;
    Ok(format!("{refused}; mapped later"))
}

fn emulated_driver() -> PathBuf {
    emulated::library("libcachette_emulated_cuda.so")
}

fn no_library() -> Result<Completion, Failed> {
    // An empty name is none, so the system is searched; it may have a driver.
    let said = child(OPEN, Path::new(""), &[])?;
    let none = "no driver library could be opened; tried libcuda.so.1 (No such file or directory), \
                libcuda.so (No such file or directory)";
    let found = said.contains("emulated: false") || said.contains("libcuda.so");
    if said == none || found {
        return Ok(Completion::Completed);
    }
    Err(format!("said: {said}").into())
}

fn other_library() -> Result<Completion, Failed> {
    let said = child(OPEN, Path::new("libm.so.6"), &[])?;
    let promised = "libm.so.6 is not a usable driver: it lacks cuInit, cuDriverGetVersion, ";
    if said.starts_with(promised) && said.ends_with("cuEventSynchronize") {
        return Ok(Completion::Completed);
    }
    Err(format!("said: {said}").into())
}

fn old_driver() -> Result<Completion, Failed> {
    let library = emulated_driver();
    let said = child(OPEN, &library, &[("CACHETTE_EMULATED_VERSION", "11080")])?;
    let promised = format!("{} is version 11.8, which is too old; install 12.0 or newer", library.display());
    expect(&said, &promised)
}

fn no_device() -> Result<Completion, Failed> {
    let library = emulated_driver();
    let said = child(OPEN, &library, &[("CACHETTE_EMULATED_DEVICES", "0")])?;
    expect(&said, &none_shown(&library))
}

fn hidden_devices() -> Result<Completion, Failed> {
    let library = emulated_driver();
    for hidden in ["", "-1", "7", "none"] {
        let said = child(OPEN, &library, &[("CUDA_VISIBLE_DEVICES", hidden)])?;
        expect(&said, &none_shown(&library))?;
    }
    let said = child(OPEN, &library, &[("CUDA_VISIBLE_DEVICES", "1,7,0")])?;
    expect(&said, "1 devices, emulated: true")
}

fn no_fabric() -> Result<Completion, Failed> {
    let others = "private backing: yes; made\nfile descriptors: yes; made";
    let remedy = "use a file descriptor, or give the process a channel to the fabric";
    let library = emulated_driver();
    let said = child(SHARE, &library, &[])?;
    expect(&said, &format!("{others}\nfabric handles: yes; made"))?;
    let said = child(SHARE, &library, &[("CACHETTE_EMULATED_FABRIC", "closed")])?;
    let promised = format!(
        "{others}\nfabric handles: yes; cuMemCreate failed: no NVLink fabric, or this process may not use \
         it (status 800); {remedy}"
    );
    expect(&said, &promised)?;
    let said = child(SHARE, &library, &[("CACHETTE_EMULATED_FABRIC", "0")])?;
    let promised = format!(
        "{others}\nfabric handles: the device lacks CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED; \
         cuMemCreate failed: no NVLink fabric, or this process may not use it; {remedy}"
    );
    expect(&said, &promised)
}

fn network_cards() -> Result<Completion, Failed> {
    let said = child(SHARE, &emulated_driver(), &[("CACHETTE_EMULATED_RDMA", "1")])?;
    let promised = "private backing: yes; made\nfile descriptors: yes; made\nfabric handles: yes; made";
    expect(&said, promised)
}

fn second_mapping() -> Result<Completion, Failed> {
    let said = child(ALIAS, &emulated_driver(), &[])?;
    expect(&said, "mapped")?;
    let said = child(ALIAS, &emulated_driver(), &[("CACHETTE_EMULATED_ALIASES", "0")])?;
    expect(&said, "cuMemMap failed: not supported (status 999); do without it on this device; mapped later")
}

fn leaving() -> Result<Completion, Failed> {
    let said = child(LEAVE, &emulated_driver(), &[])?;
    expect(&said, "leaving\ncuCtxGetCurrent failed: the driver is shutting down (status 4); stop using the device")
}
