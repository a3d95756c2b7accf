//! The C library of Cachette: `libcachette.so` and `cachette.h`.
//!
//! Every function here is one of the header, and its text is the header's text. `docs/c.md` says how to build, link
//! and use the library.
//!
//! | file | what C gets from it |
//! |---|---|
//! | [`version`] | which library this is |
//! | [`status`], [`last`] | how a call went, and why not better |
//! | [`allocator`], [`device`] | opening and closing an allocator, and facts about its device |
//! | [`stream`], [`memory`], [`transfer`] | streams, memory by address, fills and copies |
//! | [`pool_id`], [`pool_options`] | names of pools, and how pools are made |
//! | [`pool`], [`routing`] | pools, and what leads requests to them |
//! | [`checkpoint`], [`capture`] | states of pools, captures and graphs |
//! | [`sleep`] | pools that give up their memory and keep their addresses |
//! | [`pinned`] | pinned host memory |
//! | [`statistics`], [`limits`], [`config`] | figures, bounds and settings |
//! | [`observers`] | who is told of what happens |
//! | [`history`], [`snapshot`] | what happened, and what is held |
//!
//! The others are how that is done: `guard` lets no panic out, `failure` gives every error its status, `given` and
//! `structure` check what C gives, `text` reads and writes strings, `convert` turns numbers into pointers and back.
//!
//! # Safety
//!
//! C cannot be made to keep these promises. To each of them a `SAFETY` comment refers by number.
//!
//! 1. **Handles.** A handle is null, or came from this library and was not given back since. No other thread gives it
//!    back during the call. The functions that give handles back are called once for each.
//! 2. **Out-pointers.** A pointer to write to is null, or is aligned and may be written for the whole of its type, its
//!    structure's size, or the count that is given beside it.
//! 3. **Texts, lists and structures.** A pointer to read from is null, or is aligned and may be read: a text up to its
//!    final zero, a list for its count, a structure for its size. Nobody writes there during the call.
//! 4. **Streams.** A stream is null, or a live stream of the allocator's device that stays so until the allocator and
//!    its memory are gone.
//! 5. **Memory.** What queued work names stays allocated, and host memory valid and untouched, until the work has
//!    finished.
//! 6. **Callbacks.** A function pointer is null, or is a function of its type that may be called from any thread, with
//!    the user pointer it came with, as long as it is said beside it. It returns.
//! 7. **Libraries.** A library that a source takes over was initialised for the allocator's device.

// Its functions are part of the library too.
#[cfg(feature = "torch")]
use cachette_torch as _;

pub mod allocator;
pub mod capture;
pub mod checkpoint;
pub mod config;
mod convert;
pub mod device;
mod failure;
mod given;
mod guard;
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
pub mod sleep;
pub mod snapshot;
pub mod statistics;
pub mod status;
pub mod stream;
mod structure;
mod text;
pub mod transfer;
pub mod version;
