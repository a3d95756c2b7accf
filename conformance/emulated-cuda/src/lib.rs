//! A library with libcuda's C interface over any device of the contract.
//!
//! With it the real loader, the real calls and the real statuses of `hal-cuda` run where there is no GPU.
//! What it drives are devices made of host memory. It refuses what the driver refuses, and exports
//! `cachette_emulated_library`, so that its results are not taken for NVIDIA's.
//!
//! | variable | meaning |
//! |---|---|
//! | `CACHETTE_EMULATED_DEVICES` | how many devices there are (2) |
//! | `CACHETTE_EMULATED_CAPACITY` | bytes of each (256 MiB) |
//! | `CACHETTE_EMULATED_VERSION` | what `cuDriverGetVersion` answers (12080) |
//! | `CACHETTE_EMULATED_LOST_AFTER` | calls until every device vanishes (never) |
//! | `CACHETTE_EMULATED_SHARED` | a file by which processes share the devices (none) |
//! | `CACHETTE_EMULATED_INTEGRATED` | 1: the devices share their memory with the host |
//! | `CACHETTE_EMULATED_RDMA` | 1: network cards reach memory made for them, and no other can be made |
//! | `CACHETTE_EMULATED_COPIES_WAIT` | 1: copies from and to host memory have ended when they return |
//! | `CACHETTE_EMULATED_FABRIC` | `0`: the devices have no fabric; `closed`: the process may not use it (there is one) |
//! | `CACHETTE_EMULATED_PITCH` | of what the distance between rows of memory is a multiple (512) |
//! | `CACHETTE_EMULATED_PAGES` | `0`: the devices do not page managed memory (they do) |
//! | `CUDA_VISIBLE_DEVICES` | which devices are shown, by number, up to the first that is wrong |
//!
//! Variables are read once, by the first call. The functions are named and typed as in `cuda.h`; each file
//! holds those of one group of the contract.

mod abi;
mod capture;
mod context;
mod device;
mod driver;
mod entry_points;
mod facts;
mod host_calls;
mod host_memory;
mod ipc;
mod ledger;
mod linked;
mod peer_access;
mod per_thread;
mod pools;
mod prelude;
mod settings;
mod sharing;
mod status;
mod stream_ordered;
mod streams;
mod transfer;
mod types;
mod virtual_memory;

use crate::status::Status;

/// Says that this library imitates the driver.
#[unsafe(no_mangle)]
extern "C" fn cachette_emulated_library() -> Status {
    1
}
