//! One device: memory, streams, events, and accessors of the optional groups.

use std::fmt::Debug;
use std::fs;
use std::sync::Arc;

use crate::{
    Capture, DeviceInfo, DevicePtr, Event, Feature, HostCalls, HostMemory, Ipc, MemoryInfo, Missing, PeerAccess,
    Progress, Result, Stream, StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

/// How work uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Use {
    /// It only reads.
    Read,
    /// It writes, and may read too.
    Write,
}

/// Any device, chosen at run time.
pub type AnyDevice = Arc<dyn Device>;

/// What the system says of its memory: `MemAvailable` of `/proc/meminfo`, which counts caches that it can drop.
fn available_host_memory() -> Option<u64> {
    kibibytes_available(&fs::read_to_string("/proc/meminfo").ok()?)?.checked_mul(1024)
}

fn kibibytes_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Declares the accessors of the groups, which a device lacks by default.
macro_rules! groups {
    ($($(#[$doc:meta])* $accessor:ident: $group:ident;)*) => {
        $(
            $(#[$doc])*
            fn $accessor(&self) -> Result<&dyn $group, Missing> {
                Err(Missing::unimplemented(Feature::$group))
            }
        )*

        /// Returns why `feature` is absent; `None` if it is present.
        fn missing(&self, feature: Feature) -> Option<Missing> {
            match feature {
                $(Feature::$group => self.$accessor().err(),)*
            }
        }
    };
}

/// One device.
///
/// The crate's documentation states the safety contract and the guarantees of every call.
pub trait Device: Debug + Send + Sync {
    /// The facts, without a driver call.
    fn info(&self) -> &DeviceInfo;

    /// Free and total memory now, over all processes.
    #[doc(alias = "cuMemGetInfo_v2")]
    #[doc(alias = "hipMemGetInfo")]
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Bytes that programs of the host can still use, if the device shares its memory with the host. No driver call.
    ///
    /// `None` for a device with memory of its own, or if the system does not say.
    fn host_available(&self) -> Option<u64> {
        self.info().integrated.then(available_host_memory)?
    }

    /// Calls `act` once, with the device current on this thread. Then the one that was current before is so again.
    ///
    /// Libraries of the vendor such as NCCL work on the current device. A device without such a notion only calls `act`.
    fn while_current(&self, act: &mut dyn FnMut()) -> Result<()> {
        act();
        Ok(())
    }

    /// Allocates memory; may wait for the whole device.
    ///
    /// The address is a multiple of [`DeviceInfo::base_alignment`], and the range overlaps no live one.
    #[doc(alias = "cuMemAlloc_v2")]
    #[doc(alias = "hipMalloc")]
    fn allocate(&self, bytes: u64) -> Result<DevicePtr>;

    /// Frees memory; may wait for the whole device.
    ///
    /// # Safety
    ///
    /// Promises 1 and 2; `ptr` is what [`allocate`](Self::allocate) returned.
    #[doc(alias = "cuMemFree_v2")]
    #[doc(alias = "hipFree")]
    unsafe fn free(&self, ptr: DevicePtr) -> Result<()>;

    /// Creates a stream that does not wait for the default one.
    #[doc(alias = "cuStreamCreate")]
    #[doc(alias = "hipStreamCreateWithFlags")]
    fn create_stream(&self) -> Result<Stream>;

    /// Destroys a stream. Work already queued in it still completes, and the call may wait for it.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamDestroy_v2")]
    #[doc(alias = "hipStreamDestroy")]
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()>;

    /// Blocks the host until all work queued in the stream so far has finished.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamSynchronize")]
    #[doc(alias = "hipStreamSynchronize")]
    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()>;

    /// Blocks the host until all work queued in any stream of the device so far has finished.
    #[doc(alias = "cuCtxSynchronize")]
    #[doc(alias = "hipDeviceSynchronize")]
    fn synchronize_device(&self) -> Result<()>;

    /// Creates an event without timing. Until it is recorded it counts as done.
    #[doc(alias = "cuEventCreate")]
    #[doc(alias = "hipEventCreateWithFlags")]
    fn create_event(&self) -> Result<Event>;

    /// Destroys an event. Streams that wait for it still wait for its last record.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventDestroy_v2")]
    #[doc(alias = "hipEventDestroy")]
    unsafe fn destroy_event(&self, event: Event) -> Result<()>;

    /// Records the current end of the stream; a later record replaces an earlier one.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventRecord")]
    #[doc(alias = "hipEventRecord")]
    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()>;

    /// Returns whether the work before the last record has finished; does not block.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventQuery")]
    #[doc(alias = "hipEventQuery")]
    unsafe fn poll(&self, event: &Event) -> Result<Progress>;

    /// Blocks the host until the work before the last record has finished.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventSynchronize")]
    unsafe fn wait(&self, event: &Event) -> Result<()>;

    /// Makes later work in `stream` wait for the last record of `event`; later records have no effect.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamWaitEvent")]
    #[doc(alias = "hipStreamWaitEvent")]
    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()>;

    /// Reports that work which the caller queues in `stream` now uses memory, such as a kernel.
    ///
    /// A device that runs work ignores it. A device around a device can use it to check the order of uses.
    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        let _ = (stream, at, bytes, access);
    }

    groups! {
        /// Virtual memory: addresses and physical memory are separate.
        virtual_memory: VirtualMemory;
        /// The vendor's stream-ordered pool.
        stream_ordered: StreamOrdered;
        /// Page-locked host memory.
        host_memory: HostMemory;
        /// Memory shared with another process by a token.
        ipc: Ipc;
        /// Streams captured into graphs.
        capture: Capture;
        /// Access to another device's memory.
        peer_access: PeerAccess;
        /// Fills and copies in stream order.
        transfer: Transfer;
        /// Host functions in stream order.
        host_calls: HostCalls;
    }
}

/// Implements the accessors of the groups in an `impl Device`, each as `$get!(self, accessor, Group)`.
///
/// Without a list it implements all of them.
#[macro_export]
macro_rules! group_accessors {
    ($get:ident) => {
        $crate::group_accessors! {
            $get:
            virtual_memory VirtualMemory, stream_ordered StreamOrdered, host_memory HostMemory, ipc Ipc,
            capture Capture, peer_access PeerAccess, transfer Transfer, host_calls HostCalls,
        }
    };
    ($get:ident: $($accessor:ident $group:ident,)+) => {
        $(
            fn $accessor(&self) -> $crate::Result<&dyn $crate::$group, $crate::Missing> {
                $get!(self, $accessor, $group)
            }
        )+
    };
}

/// The accessor of a group for [`group_accessors`]: the field of its name in the device's `parts`, which has the group or
/// the reason why it is absent.
#[doc(hidden)]
#[macro_export]
macro_rules! probed_group {
    ($device:expr, $accessor:ident, $group:ident) => {
        match &$device.parts.$accessor {
            Ok(group) => Ok(group),
            Err(reason) => Err($crate::Missing::new($crate::Feature::$group, *reason)),
        }
    };
}

/// Calls the accessor of a group on the device behind a pointer.
macro_rules! pointee {
    ($pointer:expr, $accessor:ident, $group:ident) => {
        (**$pointer).$accessor()
    };
}

/// Implements [`Device`] for a pointer by forwarding every call.
macro_rules! pass_through {
    (unsafe $($name:ident($($argument:ident: $type:ty),*) -> $output:ty,)+) => {
        $(
            unsafe fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).$name($($argument),*) }
            }
        )+
    };
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty,)+) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                (**self).$name($($argument),*)
            }
        )+
    };
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn info(&self) -> &DeviceInfo {
                (**self).info()
            }
            fn host_available(&self) -> Option<u64> {
                (**self).host_available()
            }
            fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
                (**self).uses(stream, at, bytes, access);
            }

            pass_through! {
                while_current(act: &mut dyn FnMut()) -> (), memory_info() -> MemoryInfo, allocate(bytes: u64) -> DevicePtr, create_stream() -> Stream,
                synchronize_device() -> (), create_event() -> Event,
            }
            pass_through! {
                unsafe free(ptr: DevicePtr) -> (), destroy_stream(stream: Stream) -> (),
                synchronize(stream: StreamRef) -> (), destroy_event(event: Event) -> (),
                record(event: &Event, stream: StreamRef) -> (), poll(event: &Event) -> Progress,
                wait(event: &Event) -> (), stream_wait(stream: StreamRef, event: &Event) -> (),
            }
            group_accessors!(pointee);
        }
    };
}

// Generic code can take `AnyDevice`, and an owner can borrow its device.
pass_through!(Arc<D>);
pass_through!(&D);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_of_the_host_is_read_and_other_texts_are_not_guessed() {
        let text = "MemTotal:       24601512 kB\nMemFree:          812340 kB\nMemAvailable:   20310020 kB\n";
        assert_eq!(kibibytes_available(text), Some(20_310_020));
        for unknown in ["", "MemFree: 1 kB", "MemAvailable: 1", "MemAvailable: x kB", "MemAvailable: -1 kB"] {
            assert_eq!(kibibytes_available(unknown), None, "{unknown}");
        }
        assert!(available_host_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
