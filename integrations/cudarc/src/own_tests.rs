//! The choice of the allocator in cudarc's own tests, which `own-tests.patch` compiles this into.
//!
//! `CUDARC_TEST_ALLOCATOR=cachette` lets every primary context allocate from Cachette. At the end a line on stderr says
//! what Cachette served.

use std::sync::{Arc, Once};
use std::{env, eprintln};

use crate::driver::CudaContext;

#[path = "lib.rs"]
mod allocator;

/// Installs the chosen allocator in a new context.
///
/// # Panics
///
/// If the variable has another value than `cachette`, or Cachette does not open the device.
pub(crate) fn select(context: &Arc<CudaContext>) {
    match env::var("CUDARC_TEST_ALLOCATOR").as_deref() {
        Err(_) => return,
        Ok("cachette") => {}
        Ok(other) => panic!("CUDARC_TEST_ALLOCATOR is {other}; set it to `cachette`, or not at all"),
    }
    static REPORT: Once = Once::new();
    // SAFETY: the function takes nothing and does not unwind.
    REPORT.call_once(|| {
        unsafe { atexit(report) };
    });
    let device = context.ordinal().try_into().expect("a driver has few devices");
    let memory = cachette_process::allocator(device).expect("Cachette opens the device");
    allocator::install(context, memory).expect("the context is new");
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
}

extern "C" fn report() {
    for (device, allocator) in cachette_process::opened() {
        let stats = allocator.stats();
        eprintln!(
            "Cachette served {} allocations of device {device}, {} bytes at most; {} bytes are not freed",
            stats.allocation.all.allocated,
            stats.requested_bytes.all.peak,
            allocator.allocated_bytes(),
        );
    }
}
