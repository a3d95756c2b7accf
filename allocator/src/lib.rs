//! A caching GPU memory allocator.
//!
//! An allocation by a driver takes microseconds to milliseconds, and a free can stop the whole device. An [`Allocator`]
//! allocates few, large segments from the driver and splits them into blocks. It keeps a freed block for the next
//! request that it fits, which then takes tens of nanoseconds and no driver call. It works on any [`hal::Device`]:
//! a device of NVIDIA or AMD, or host memory in place of one.
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
//! | [`Stream`], [`Event`] | a queue of work on the device, with a separate heap of free blocks; a point in its work |
//! | [`Allocation`] | bytes of device memory; a drop frees them |
//! | [`Buffer`], [`BufferSlice`] | elements of device memory that can be written, read and copied |
//! | [`PinnedAllocation`] | page-locked host memory, for copies that run asynchronously; see [`pinned`] |
//! | [`SharedMemory`], [`ImportedMemory`] | memory that several processes use; see [`ipc`] |
//! | [`Config`] | the settings of an allocator, as a value and as text |
//! | [`Error`], [`OutOfMemory`] | why a request failed, with the figures of that moment |
//! | [`Stats`] | the statistics of an allocator |
//! | [`Snapshot`], [`history`] | the blocks it holds with their call stacks, and the recorded events |
//! | [`Metrics`] | the same figures for monitoring |
//! | [`TraceEvent`] | one event, as a tracker receives it |
//!
//! Callers in other languages identify memory by its address: [`Allocator::allocate_raw`] and
//! [`Allocator::free_raw`].
//!
//! # Memory belongs to a stream
//!
//! A stream runs its work in order. So freed memory serves the next request *of the same stream* at once, although work
//! that uses it may not have begun. Between streams there is no such order. A block serves another stream only if one
//! of three ways makes that safe.
//!
//! **Record the use.** The memory becomes free when the other stream has finished the work that was queued at the drop.
//! No thread waits; a later call of the allocator checks.
//!
//! ```
//! # use cachette::{Allocator, Backends};
//! # let allocator = Allocator::new(Backends::open("host")?);
//! # let (stream, copies) = (allocator.create_stream()?, allocator.create_stream()?);
//! let memory = allocator.allocate(1 << 20, &stream)?;
//! // … work that reads `memory` is queued in `copies` …
//! memory.record_stream(&copies);
//! drop(memory); // free once `copies` has finished that work
//! assert_eq!(allocator.allocated_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Release it after the use.** The memory is free at once, and its next use waits on the device.
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
//! A [`Buffer`] needs none of them for its own calls: it orders its copies itself.
//!
//! # Errors
//!
//! A request that finds no block runs the retry steps, from callbacks of the program ([`Allocator::on_pressure`]) to
//! waits for other streams. It fails only if all steps fail. The [`OutOfMemory`] then contains the request, the memory
//! that each pool holds, and hints; its text contains the same. Failures of the driver are [`Error::Device`], with the
//! call and the remedy. A failed call loses no memory: a later call finishes the work. In a forked child, allocators of
//! the parent return [`Error::Forked`]; see [`fork`].
//!
//! # Configuration
//!
//! [`config`] lists the keys: those of PyTorch and a few more. They can be set as values ([`Config::builder`]), as text
//! (`"max_split_size_mb:64".parse()`), or from the environment ([`Config::from_env`]). [`Allocator::new`] reads no
//! variable: it has the defaults. Most settings can be changed at run time: [`Allocator::set_config`].
//!
//! ```
//! use cachette::{Allocator, Backends, Config};
//!
//! let limited = Allocator::with_config(Backends::open("host")?, &"memory_limit:8GiB".parse()?);
//! let as_the_user_says = Allocator::with_config(Backends::open("host")?, &Config::from_env()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Cost
//!
//! * A hit takes one lock, which only users of the same stream can hold. It makes no driver call and no heap
//!   allocation. It accesses state that all streams share only when a value of the statistics passes its peak.
//! * A free costs the same on every thread.
//! * Neither cost grows with the number of blocks. Bitmaps find a block by its size, and a small tree finds it among
//!   large blocks of similar size. CI counts the instructions.
//! * No lock of a heap is held across a driver call that can block, so a miss delays no hit.
//!
//! # Determinism
//!
//! The same requests in the same order get the same places: the same segment, counted in the order of allocation, and
//! the same offset in it. Placement depends on neither addresses nor hashes. It depends on time in one case: whether a
//! recorded use has ended when the allocator checks.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `host` | a device made of host memory; on by default |
//! | `cuda`, `hip` | devices of NVIDIA and AMD; the build needs no files of either vendor |
//! | `history` | stacks of native callers in histories, and snapshots as files; on by default |
//! | `cudarc` | streams of the crate cudarc are accepted by NVIDIA's devices |
//!
//! `ARCHITECTURE.md` lists the functions that an allocation and a free pass through, under "The walk of an allocation".

mod address_index;
pub mod addresses;
mod allocation;
mod allocator;
pub mod backends;
mod blocks;
mod buffer;
mod device_state;
mod elastic;
mod error;
pub mod evict;
mod fence;
pub mod fork;
pub mod growable;
mod heap;
mod heap_policy;
pub mod human;
mod in_flight;
mod integrated;
pub mod ipc;
mod label;
mod observe;
mod out_of_memory;
mod peers;
pub mod pinned;
pub mod pool;
mod reclaim;
mod retry;
mod size;
pub mod sleep;
pub mod source;
mod stats;
mod stream;
mod stream_state;
mod uncached;

pub use addresses::{Addresses, AddressesProblem};
pub use allocation::Allocation;
pub use allocator::{Allocator, ElasticSegment};
pub use backends::Backends;
pub use buffer::{Buffer, BufferSlice, BufferSliceMut};
pub use bytemuck;
pub use cachette_config as config;
pub use cachette_hal as hal;
use cachette_sync as sync;
pub use config::Config;
pub use error::{AddressProblem, Error, PointerProblem};
pub use growable::Growable;
pub use ipc::{ImportedMemory, IpcError, SharedMemory};
pub use label::{Label, LabelScope};
pub use observe::{MemoryHolders, Metrics, Notice, TraceAction, TraceEvent, history, snapshot};
pub use out_of_memory::{HostFigures, NeighbourFigures, OomHint, OutOfMemory, PoolFigures, TopAllocationSite};
pub use pinned::{Pinned, PinnedAllocation, PinnedStats};
pub use pool::{Pool, PoolId, PoolOptions};
pub use size::SegmentKind;
pub use snapshot::Snapshot;
pub use source::{Source, SourceError};
pub use stats::{OutsideKind, OutsideStats, Stat, StatArray, Stats};
pub use stream::{Event, Stream};
