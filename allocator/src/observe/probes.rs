//! Static probes (USDT) for tools that observe a running program, with the feature `probes`.
//!
//! A tool that attaches to a probe raises its semaphore. While it is zero, no argument is computed.
//!
//! Each probe is one place in the program, in a function that is not generic. A probe that is inlined into several
//! callers leaves notes of callers that the linker drops, and some tools then refuse all probes.

use cachette_hal::{Device, StreamRef};

cfg_if::cfg_if! {
    if #[cfg(feature = "probes")] {
        use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

        /// How many tools listen to `malloc`.
        #[unsafe(link_section = ".probes")]
        static MALLOC: AtomicU16 = AtomicU16::new(0);
        /// How many tools listen to `free`.
        #[unsafe(link_section = ".probes")]
        static FREE: AtomicU16 = AtomicU16::new(0);

        /// A caller gets memory.
        #[inline(always)]
        pub(crate) fn malloc<D: Device>(device: &D, address: u64, bytes: u64, stream: StreamRef) {
            if MALLOC.load(Relaxed) != 0 {
                tell_malloc(address, device.info().ordinal.0, bytes, stream.raw());
            }
        }

        /// A caller frees memory, before another request can get it.
        #[inline(always)]
        pub(crate) fn free(address: impl FnOnce() -> u64) {
            if FREE.load(Relaxed) != 0 {
                tell_free(address());
            }
        }

        #[cold]
        #[inline(never)]
        fn tell_malloc(address: u64, device: u32, bytes: u64, stream: usize) {
            probe::sdt!([sym "{}" MALLOC], cachette, malloc, address, device, bytes, stream,);
        }

        #[cold]
        #[inline(never)]
        fn tell_free(address: u64) {
            probe::sdt!([sym "{}" FREE], cachette, free, address,);
        }
    } else {
        #[inline(always)]
        pub(crate) const fn malloc<D: Device>(_device: &D, _address: u64, _bytes: u64, _stream: StreamRef) {}

        #[inline(always)]
        pub(crate) fn free(_address: impl FnOnce() -> u64) {}
    }
}
