//! Sends rare events to the subscriber of the crate `tracing`; without that feature it does nothing.

#![forbid(unsafe_code)]

use crate::observe::callbacks::{TraceAction, TraceEvent};
use crate::out_of_memory::OutOfMemory;

cfg_if::cfg_if! {
    if #[cfg(feature = "tracing")] {
        /// Whether an action is reported.
        pub(crate) const fn tells_of(action: TraceAction) -> bool {
            !matches!(
                action,
                TraceAction::Alloc | TraceAction::FreeRequested | TraceAction::FreeCompleted
            )
        }

        /// Reports that a segment or chunk was obtained or returned, or that a snapshot was taken.
        pub(crate) fn happened(event: &TraceEvent) {
            tracing::debug!(
                target: "cachette",
                action = event.action.name(),
                address = event.address,
                bytes = event.bytes,
                stream = event.stream.raw(),
                pool = %event.pool,
            );
        }

        /// Reports a request that failed.
        pub(crate) fn exhausted(report: &OutOfMemory) {
            tracing::warn!(
                target: "cachette",
                action = TraceAction::OutOfMemory.name(),
                device = report.device.0,
                requested = report.requested,
                reserved = report.reserved,
                "{report}"
            );
        }

        /// Waits for other streams, inside a span.
        pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
            tracing::debug_span!(target: "cachette", "wait").in_scope(wait)
        }
    } else {
        /// Whether an action is reported.
        pub(crate) const fn tells_of(_action: TraceAction) -> bool {
            false
        }

        /// Does nothing.
        pub(crate) const fn happened(_event: &TraceEvent) {}

        /// Does nothing.
        pub(crate) const fn exhausted(_report: &OutOfMemory) {}

        /// Waits for other streams.
        pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
            wait()
        }
    }
}
