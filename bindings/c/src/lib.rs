//! The C library of Cachette: `libcachette.so` and `cachette.h`.
//!
//! Each public function is declared in the header, with the same documentation. `docs/c.md` explains how to build, link
//! and use the library.
//!
//! | file | what it declares |
//! |---|---|
//! | [`version`] | the versions of library and header |
//! | [`status`], [`last`] | status codes, and the last error of a thread |
//! | [`allocator`], [`device`] | opening and closing an allocator; device properties |
//! | [`shared`] | the allocators that all libraries of a process share |
//! | [`stream`], [`memory`], [`transfer`] | streams, device memory, fills and copies |
//! | [`dlpack`] | tensors of DLPack |
//! | [`pool_id`], [`pool_options`] | identifiers and options of pools |
//! | [`pool`], [`routing`] | pools, and which requests they serve |
//! | [`checkpoint`], [`capture`] | pool checkpoints; stream capture and graphs |
//! | [`sleep`] | pools that release their memory and keep their addresses |
//! | [`pinned`] | pinned host memory |
//! | [`statistics`], [`limits`], [`config`] | statistics, memory limits and configuration |
//! | [`observers`] | callbacks |
//! | [`history`], [`snapshot`] | recorded history and memory snapshots |
//!
//! The private modules: `guard` has the macro for function bodies and catches panics, `failure` maps errors to
//! statuses, `given`, `structure` and `text` check arguments, `convert` converts addresses and streams.
//!
//! # Safety
//!
//! The compiler cannot check these promises of the C caller. Each function lists the numbers of those it needs.
//!
//! 1. **Handles.** A handle is null, or is from this library and not yet destroyed. No other thread destroys it during
//!    the call, and it is destroyed once.
//! 2. **Out-pointers.** An out-pointer is null, or is aligned and writable for its type, or for the size or count that
//!    is passed with it.
//! 3. **Texts, lists and structures.** An in-pointer is null, or is aligned and readable: a text up to its final zero,
//!    a list for its count, a structure for its size. No thread writes there during the call.
//! 4. **Streams.** A stream is null, or a live stream of the allocator's device that stays so until the allocator and
//!    its memory are gone.
//! 5. **Memory.** Memory that queued work uses stays allocated until the work has finished. Host memory also stays
//!    unchanged until then.
//! 6. **Callbacks.** A function pointer is null, or may be called from any thread with its user pointer, for as long as
//!    its documentation says. It returns normally.
//! 7. **Libraries.** A library that a source adopts was initialised for the allocator's device.

// Its functions are part of the library too.
#[cfg(feature = "torch")]
use cachette_torch as _;

pub mod addresses;
pub mod allocator;
pub mod capture;
pub mod checkpoint;
pub mod config;
mod convert;
pub mod device;
pub mod dlpack;
pub mod evict;
mod failure;
pub mod growable;
mod guard;
mod handle;
pub mod history;
pub mod last;
pub mod limits;
pub mod memory;
pub mod observers;
pub mod pinned;
pub mod pool;
pub mod pool_id;
pub mod pool_options;
pub mod routing;
pub mod shared;
pub mod sleep;
pub mod snapshot;
pub mod statistics;
pub mod status;
pub mod stream;
mod structure;
mod text;
pub mod transfer;
pub mod version;
