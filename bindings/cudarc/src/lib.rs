//! Memory of Cachette as device slices of the crate cudarc.
//!
//! cudarc's own calls (`memcpy_htod`, `memset_zeros`, `CudaBlas`, NCCL) take every type that implements its traits
//! [`DevicePtr`] and [`DevicePtrMut`]. A [`Slice`] implements both, and its memory comes from an [`Allocator`].
//!
//! ```no_run
//! use cachette::{Allocator, Backends};
//! use cachette_cudarc::StreamAllocator;
//! use cudarc::driver::CudaContext;
//!
//! let allocator = Allocator::new(Backends::open("cuda:0")?);
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let cache = StreamAllocator::new(&allocator, &stream)?; // once for each stream
//!
//! let mut numbers = cache.alloc_zeros::<f32>(1024)?; // instead of `stream.alloc_zeros`
//! stream.memcpy_htod(&[1.0; 1024], &mut numbers)?;
//! assert_eq!(stream.clone_dtoh(&numbers)?, [1.0; 1024]);
//! let address = numbers.address(); // a kernel's argument: `launch.arg(&address)`
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order between streams
//!
//! A slice belongs to the stream that it was allocated on. Uses in that stream have no cost. A use in another stream
//! waits on the device for the slice's stream and for earlier writes. A write waits for all earlier uses. cudarc's own
//! slices keep one event for all readers; a `Slice` keeps one for each stream, so no reader is lost.
//!
//! A drop frees the memory although other streams may still use it. If the cache knows such a stream, because it has a
//! [`StreamAllocator`], the use is recorded: the memory waits and no stream does. Otherwise the slice's own stream waits
//! for the use on the device, as with cudarc's slices.
//!
//! After [`CudaContext::disable_event_tracking`](cudarc::driver::CudaContext::disable_event_tracking) cudarc records no
//! events, so the order between streams is the caller's.
//!
//! # Streams stay
//!
//! The cache may use a stream as long as it lives, to wait for freed memory. So a stream with a `StreamAllocator` is
//! never destroyed. Make streams once, and not one for each piece of work.
//!
//! This is a separate crate and not a part of `cachette`, because everything here uses its public interface alone.

mod error;
mod slice;
mod stream;
mod uses;
mod view;

pub use error::Error;
pub use slice::Slice;
pub use stream::StreamAllocator;
pub use view::{View, ViewMut};

#[cfg(doc)]
use cachette::Allocator;
#[cfg(doc)]
use cudarc::driver::{DevicePtr, DevicePtrMut};
