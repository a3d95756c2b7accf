//! Static probes (USDT), for tools that look at a running program from outside; without that feature, and where there
//! is no Linux, none.
//!
//! A tool that attaches to a probe raises its semaphore. While that is zero nothing is worked out for the probe.
//!
//! Each probe is one place in the program, in a function that is not generic. A probe that is copied into its callers
//! leaves notes behind of those that the linker drops, which lead nowhere, and some tools then refuse all of them.

use std::sync::Arc;

use cachette_hal::{Device, StreamRef};

use crate::device_state::DeviceState;

cfg_if::cfg_if! {
    if #[cfg(all(feature = "probes", target_os = "linux"))] {
        use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

        /// How many tools listen to `malloc`.
        #[unsafe(link_section = ".probes")]
        static MALLOC: AtomicU16 = AtomicU16::new(0);
        /// How many tools listen to `free`.
        #[unsafe(link_section = ".probes")]
        static FREE: AtomicU16 = AtomicU16::new(0);

        /// Memory goes to its caller.
        #[inline(always)]
        pub(crate) fn malloc<D: Device>(
            shared: &Arc<DeviceState<D>>,
            address: u64,
            bytes: u64,
            stream: StreamRef,
        ) {
            if MALLOC.load(Relaxed) != 0 {
                tell_malloc(shared, address, bytes, stream);
            }
        }

        /// A caller gives memory back, and nobody else can have it yet.
        #[inline(always)]
        pub(crate) fn free(address: impl FnOnce() -> u64) {
            if FREE.load(Relaxed) != 0 {
                tell_free(address());
            }
        }

        #[cold]
        #[inline(never)]
        fn tell_malloc<D: Device>(
            shared: &Arc<DeviceState<D>>,
            address: u64,
            bytes: u64,
            stream: StreamRef,
        ) {
            let device = shared.device.info().ordinal.0;
            malloc_here(address, device, bytes, stream.raw());
        }

        #[inline(never)]
        fn malloc_here(address: u64, device: u32, bytes: u64, stream: usize) {
            probe::sdt!([sym "{}" MALLOC], cachette, malloc, address, device, bytes, stream,);
        }

        #[cold]
        #[inline(never)]
        fn tell_free(address: u64) {
            probe::sdt!([sym "{}" FREE], cachette, free, address,);
        }
    } else {
        /// Tells nobody.
        #[inline(always)]
        pub(crate) const fn malloc<D: Device>(
            _shared: &Arc<DeviceState<D>>,
            _address: u64,
            _bytes: u64,
            _stream: StreamRef,
        ) {
        }

        /// Tells nobody.
        #[inline(always)]
        pub(crate) fn free(_address: impl FnOnce() -> u64) {}
    }
}
