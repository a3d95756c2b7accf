//! A caching GPU memory allocator.
//!
//! Asking a driver for memory takes microseconds to milliseconds, and giving it back can stop the whole device.
//! An [`Allocator`] asks seldom, for large segments, and cuts them into blocks. A freed block is kept and serves
//! the next request that it fits, in tens of nanoseconds and without a driver call. It works on any
//! [`hal::Device`]: NVIDIA's, AMD's, or host memory in the place of one.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?); // or "cuda:0", or "hip:1"
//! let stream = allocator.create_stream()?;
//!
//! let mut numbers = allocator.allocate_buffer::<f32>(3, &stream)?; // typed memory
//! numbers.write(&[1.0, 2.0, 3.0])?;
//! assert_eq!(numbers.read()?, [1.0, 2.0, 3.0]);
//!
//! let memory = allocator.allocate(1 << 20, &stream)?; // bytes, for kernels
//! println!("{} bytes at {:#x}", memory.bytes(), memory.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The types
//!
//! | type | what it is |
//! |---|---|
//! | [`Backends`] | finds drivers and opens devices by name |
//! | [`Allocator`] | a cache for one device; a handle, to be cloned and shared between threads |
//! | [`Stream`] | a queue of work on the device, with a heap of free blocks of its own |
//! | [`Allocation`] | bytes of device memory; they go back when it is dropped |
//! | [`Buffer`] | elements of device memory that can be written, read and copied |
//! | [`PinnedAllocation`] | page-locked host memory, for copies that run asynchronously; see [`pinned`] |
//! | [`SharedMemory`], [`ImportedMemory`] | memory that several processes use; see [`ipc`] |
//! | [`Config`] | how an allocator behaves, as a value and as text |
//! | [`Error`], [`OutOfMemory`] | why a request failed, with the figures of that moment |
//! | [`Stats`] | what an allocator has done and holds |
//! | [`Snapshot`], [`history`] | what it holds and where it came from, what happened and where |
//! | [`Metrics`] | the same figures for monitoring |
//! | [`TraceEvent`] | one thing that happened to memory, as told to a tracker |
//!
//! Callers in other languages know memory by its address alone: [`Allocator::allocate_raw`] and
//! [`Allocator::free_raw`].
//!
//! # Memory belongs to a stream
//!
//! A stream runs its work in order. So memory that is freed serves the next request *of the same stream* at
//! once, although work that uses it may not even have begun. Between streams there is no such order, and a
//! block is never given to another stream unless something makes it safe. There are three ways.
//!
//! **Record the use.** The memory is freed late: when the other stream has passed the point where it was at
//! the drop. Nobody waits; the allocator asks when it is next used.
//!
//! ```
//! # use cachette::{Allocator, Backends};
//! # let allocator = Allocator::new(Backends::open("host")?);
//! # let (stream, copies) = (allocator.create_stream()?, allocator.create_stream()?);
//! let memory = allocator.allocate(1 << 20, &stream)?;
//! // … work that reads `memory` is queued in `copies` …
//! memory.record_stream(&copies);
//! drop(memory); // free once `copies` has come so far
//! assert_eq!(allocator.allocated_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Release it behind the use.** The memory is free at once, and its next use waits on the device.
//!
//! ```
//! # use cachette::{Allocator, Backends};
//! # let allocator = Allocator::new(Backends::open("host")?);
//! # let (stream, copies) = (allocator.create_stream()?, allocator.create_stream()?);
//! let memory = allocator.allocate(1 << 20, &stream)?;
//! let address = memory.address();
//! // … work that reads `memory` is queued in `copies` …
//! memory.release_after(&[&copies])?;
//! let next = allocator.allocate(1 << 20, &stream)?; // `stream` now waits for `copies`
//! assert_eq!(next.address(), address);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Lend.** With `lend_across_streams:True` a request that would need a new segment takes a block that is idle
//! on another stream, and waits for that stream on the device. It comes back the same way.
//!
//! ```
//! # use cachette::{Allocator, Backends};
//! let lends = "lend_across_streams:True".parse()?;
//! let allocator = Allocator::with_config(Backends::open("host")?, &lends);
//! let (lender, borrower) = (allocator.create_stream()?, allocator.create_stream()?);
//! let address = allocator.allocate(1 << 20, &lender)?.address();
//! let lent = allocator.allocate(1 << 20, &borrower)?;
//! assert_eq!((lent.address(), lent.stream()), (address, borrower.handle()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Buffer`] needs none of them for its own calls: it orders its copies itself.
//!
//! # Errors
//!
//! A request that finds no block climbs a ladder of steps, from asking the program's own helpers
//! ([`Allocator::on_pressure`]) to waiting for other streams, and fails only if all of them did. The
//! [`OutOfMemory`] then says what was asked for, what is held and by whom, and what could be done; the text
//! has the same. Failures of the driver are [`Error::Device`], with the call and the one remedy. A failed
//! call loses no memory: what could not be done now is done later. In a forked child, allocators of the parent answer
//! with [`Error::Forked`]; see [`fork`].
//!
//! # Configuration
//!
//! [`config`] lists the keys. They are PyTorch's and a few more, as values ([`Config::builder`]), as text
//! (`"max_split_size_mb:64".parse()`), or from the environment ([`Config::from_env`]). Most can be changed while
//! the allocator works: [`Allocator::set_config`].
//!
//! # Cost
//!
//! * A hit takes one lock, which only users of the same stream can be holding, and makes no driver call and no
//!   heap allocation. What all streams share is touched only when a peak of the statistics is passed.
//! * Freeing costs the same, whichever thread does it.
//! * Neither grows with the number of blocks: a size finds its block through bitmaps, and among large blocks of
//!   nearly that size through a small tree. CI counts the instructions.
//! * No lock of a heap is held across a driver call that can block, so a miss delays no hit.
//!
//! # Determinism
//!
//! The same requests in the same order get the same places: the same segment, counted in the order they were
//! obtained, and the same offset in it. Addresses play no part, nor do hashes. Time does in one case: a use that
//! was recorded has ended, or has not, when the allocator asks.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `host` | a device made of host memory; on by default |
//! | `cuda`, `hip` | NVIDIA's and AMD's devices; neither needs anything of its vendor to build |
//! | `ipc` | memory that several processes use; on by default |
//! | `cudarc` | streams of the crate cudarc are accepted by NVIDIA's devices |
//! | `tracing` | what happens seldom is told to the subscriber of the crate tracing |
//! | `probes` | static probes `cachette:malloc` and `cachette:free` on Linux, for bpftrace, perf and gdb |
//!
//! # The walk of an allocation
//!
//! | file | what happens there |
//! |---|---|
//! | `allocator.rs`, `raw.rs`, `buffer.rs` | the front doors; the stream names its heap |
//! | `heap/take.rs` | takes the heap's lock, rounds the size, counts |
//! | `core/blocks.rs` | finds the block that fits best, splits it, merges what is freed |
//! | | *a hit ends here* |
//! | `ladder/` | what is tried when no block fits, step by step |
//! | `heap/growth.rs` | takes a segment from the device into the heap, or gives one back |
//! | [`hal::Device`] | the driver |
//!
//! Freeing walks back as far as the heap, into `heap/give.rs`. `heap/pending.rs` keeps what other streams still use,
//! `fence.rs` marks points in streams, `index.rs` leads from an address to its heap, `stats/` adds up.

mod address_index;
mod allocation;
mod allocator;
pub mod backends;
mod blocks;
mod buffer;
pub mod config;
mod device_state;
mod elastic;
mod error;
mod fence;
pub mod fork;
mod heap;
mod heaps;
pub mod human;
mod in_flight;
#[cfg(feature = "ipc")]
pub mod ipc;
mod observe;
mod out_of_memory;
mod peers;
pub mod pinned;
mod policy;
pub mod pool;
mod retry;
mod size;
pub mod sleep;
pub mod source;
mod state;
mod stats;
mod stream;
mod stream_state;
mod sync;
mod uncached;

pub use allocation::Allocation;
pub use allocator::Allocator;
pub use backends::Backends;
pub use buffer::Buffer;
pub use cachette_hal as hal;
pub use config::Config;
pub use elastic::ElasticSegment;
pub use error::{Error, PointerProblem};
#[cfg(feature = "ipc")]
pub use ipc::{ImportedMemory, IpcError, SharedMemory};
pub use observe::{LeakedAllocation, Metrics, TraceAction, TraceEvent, history, snapshot};
pub use out_of_memory::{OomHint, OutOfMemory, PoolFigures, TopAllocationSite};
pub use pinned::{Pinned, PinnedAllocation, PinnedStats};
pub use pool::{Pool, PoolId, PoolOptions};
pub use size::SegmentKind;
pub use snapshot::Snapshot;
pub use source::{Source, SourceError};
pub use stats::{Stat, StatArray, Stats};
pub use stream::Stream;
