//! The suite against CUDA: NVIDIA's driver where it shows a device, else the emulated one.

#[path = "shared/emulated.rs"]
mod emulated;
#[path = "shared/substitute.rs"]
mod substitute;

use std::process::ExitCode;
use std::sync::Arc;

use cachette_conformance::{Fixture, Opened, child};
use cachette_hal::Backend;
use cachette_hal_cuda::CudaBackend;

fn open() -> Opened {
    let backend = CudaBackend::load().map_err(|error| error.to_string())?;
    Ok(Arc::new(backend))
}

/// Chooses the driver for this process and its children, and prints its name.
fn choose() {
    if CudaBackend::load().is_err() {
        let (file, variable) = ("libcachette_emulated_cuda.so", "CACHETTE_CUDA_LIBRARY");
        // SAFETY: this program has started no thread yet.
        unsafe { substitute::stand_in(file, variable, "CUDA_VISIBLE_DEVICES") };
    }
    match CudaBackend::load() {
        Ok(backend) => {
            let info = backend.info();
            let whose = if info.emulated { "emulated" } else { "NVIDIA's" };
            eprintln!("CUDA {} ({whose}), from {}", info.version, info.library);
        }
        Err(why) => eprintln!("CUDA does not load: {why}"),
    }
}

fn main() -> ExitCode {
    if child::fixture_name().is_none() {
        choose();
    }
    cachette_conformance::main(Fixture::new("cuda", open).containing_faults())
}
