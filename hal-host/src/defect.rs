//! Defects that can be planted in a device, to prove that a suite notices them.

#![cfg_attr(not(feature = "defects"), expect(unreachable_pub, reason = "public only where the feature is on"))]

/// Declares [`Defect`] from the list of its variants.
macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident,)*) => {
        /// One way in which the device breaks its contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Defect {
            $($(#[$doc])* $variant,)*
        }

        #[cfg(feature = "defects")]
        impl Defect {
            /// Every defect, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The variant's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }
    };
}

defects! {
    /// `poll` reports done at once.
    EventDoneTooEarly,
    /// `stream_wait` does nothing.
    WaitIgnored,
    /// `wait` returns at once.
    HostWaitReturnsEarly,
    /// `synchronize` and `synchronize_device` return at once.
    SynchronizeReturnsEarly,
    /// `synchronize_device` does not wait for the default stream.
    SynchronizeSkipsDefault,
    /// `synchronize_device` does not wait for destroyed streams.
    SynchronizeSkipsDestroyed,
    /// A destroyed stream still takes work.
    DestroyedStreamLives,
    /// An allocation lies inside a live one.
    AllocationsOverlap,
    /// Freed memory still counts as used.
    CapacityNeverReturned,
    /// More memory is allocated than there is.
    CapacityNotEnforced,
    /// The second mapping of a backing is a private copy.
    MapIsCopy,
    /// `unmap` succeeds and leaves the mapping.
    UnmapDoesNothing,
    /// Exhaustion is reported as an invalid value.
    WrongKindOnExhaustion,
    /// Captured work also runs at once.
    CaptureExecutesEagerly,
    /// A copy runs before fills that were queued earlier.
    CopiesOutOfOrder,
    /// `create_event` returns a handle that is already live.
    HandlesReused,
    /// Allocations are not aligned.
    MisalignedAllocation,
    /// A second record of an event is ignored.
    FirstRecordSticks,
    /// A stream waits for the newest record of an event instead of the one at the call.
    StreamWaitFollowsLaterRecords,
    /// Destroying a backing's handle removes the memory from its mappings.
    DestroyedBackingLosesMapping,
    /// A bad access is dropped without a fault.
    AccessNotEnforced,
    /// A reservation with mappings can be released.
    ReleaseWithMappings,
    /// `device_address` accepts any pointer.
    DeviceAddressOfAnything,
    /// A graph runs only the first time.
    GraphRunsOnce,
    /// All captures have the same number.
    CaptureIdReused,
    /// A new capture already has nodes.
    FreshCaptureHasNodes,
    /// The frontier of a capture never changes.
    FrontierStaysBehind,
    /// Every stream of a capture has the frontiers of all of them.
    FrontierOfAllStreams,
    /// A stream that is not captured has a frontier.
    IdleStreamHasFrontier,
    /// A stream whose capture is broken keeps its frontier.
    BrokenCaptureHasFrontier,
    /// A query of the frontier breaks the capture.
    FrontierBreaksCapture,
    /// No node depends on another.
    DependenciesForgotten,
    /// Every node depends on all nodes captured before it.
    DependenciesOnEverything,
    /// A captured wait waits for all work captured so far.
    CapturedWaitTakesAll,
    /// A thread in relaxed mode is restricted like any other.
    RelaxedModeIgnored,
    /// Enabling a peer twice is an error.
    EnableTwiceFails,
    /// A token opens a private copy.
    TokenIsCopy,
    /// `trim` does nothing.
    TrimDoesNothing,
    /// Memory freed in stream order is reused before the stream reaches the free.
    StreamOrderedFreeEarly,
    /// `memory_info` always returns the same values.
    MemoryInfoFixed,
    /// A fill misses its last byte.
    FillShort,
    /// A download reads when it is queued.
    DownloadEager,
    /// Private backing can be exported.
    ExportsPrivate,
    /// Destroying a stream drops the work queued in it.
    DestroyStreamDropsWork,
    /// Opening a device that does not exist opens the first.
    WrongErrorForBadOrdinal,
    /// A size of zero is accepted.
    ZeroSizeAccepted,
    /// A backing that was not created for the fabric gets a fabric handle.
    ExportsFabricUnasked,
    /// A fabric handle imports other memory.
    FabricIsOtherMemory,
    /// A forged fabric handle is imported as new memory.
    FabricImportsAnything,
    /// Calls of virtual memory wait for the whole device.
    VirtualMemoryWaits,
    /// `unmap` also removes the mapping after it.
    UnmapTakesNeighbour,
    /// Addresses that are mapped again show the first mapping.
    RemapShowsOldContent,
    /// Rights are set for the first of several mappings only.
    AccessStopsAtFirstMapping,
    /// Setting the rights of a range removes those of the mapping after it.
    AccessTakesFromNeighbour,
    /// The memory of a destroyed backing counts as free from its first unmap on.
    AliasedMemoryFreedEarly,
    /// A backing cannot be mapped while another mapping of it is being unmapped.
    MapFailsBesideUnmap,
    /// Only a few reservations can exist.
    ReservationsRunOut,
    /// No more addresses can be reserved than the device has memory.
    ReservationBoundByMemory,
}

#[cfg(all(test, feature = "defects"))]
mod tests {
    use super::*;

    #[test]
    fn every_defect_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Defect::ALL.iter().map(|defect| defect.name()).collect();
        assert_eq!(names.len(), Defect::ALL.len());
        assert!(names.contains("FillShort"));
    }
}
