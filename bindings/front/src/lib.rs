//! The driver's own allocation calls, answered by Cachette.
//!
//! A program that allocates with `cuMemAllocAsync`, `cuMemAlloc`, `hipMalloc` and so on uses Cachette without a change:
//!
//! * At link time: `use cachette_front as _;` in a program that links libcuda or libamdhip64. The linker takes the
//!   functions of this crate before those of the driver.
//! * As a library in front: `cachette run -- PROGRAM`, for programs that cannot be built anew.
//!
//! All memory comes from the allocators of [`cachette_process`], one for each device of the process. The variable
//! `CACHETTE_ALLOC_CONF` sets their configuration. `docs/front.md` lists what is answered and what is not.
//!
//! | file | contents |
//! |---|---|
//! | `entry.rs` | the way into a call: what comes from inside Cachette goes to the driver |
//! | `driver.rs` | what the front does for the calls of either driver |
//! | `cuda.rs`, `hip.rs` | the functions of each driver, and the table of the driver's own |
//! | `last_error.rs` | the last error of a thread, for HIP |
//! | `library.rs` | the driver's library behind the front |
//! | `served.rs` | the devices that Cachette serves |
//! | `memory.rs` | allocations, frees and questions about addresses |
//! | `outside.rs` | memory that the driver serves and the front counts |
//! | `captures.rs` | a pool for each captured graph |
//! | `driver_pools.rs` | which of the driver's pools are served |
//! | `streams.rs` | streams that the program destroyed, kept for their memory |
//! | `status.rs` | errors as the driver's statuses |
//! | `summary.rs` | the report at the end of a program behind `cachette run` |
//! | `signals.rs` | signals of such a program, and the thread that reports while it runs |

mod captures;
#[cfg(feature = "cuda")]
mod cuda;
mod driver;
mod driver_pools;
mod entry;
#[cfg(feature = "hip")]
mod hip;
#[cfg(feature = "hip")]
mod last_error;
mod library;
mod memory;
mod outside;
mod served;
mod signals;
mod status;
mod streams;
mod summary;

/// Says that this library is the front; `cachette run` looks for the name.
#[unsafe(no_mangle)]
extern "C" fn cachette_front_library() -> std::ffi::c_int {
    1
}
