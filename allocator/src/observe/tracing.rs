//! Sends rare events to the subscriber of the crate `tracing`. Does nothing without that feature.

#![forbid(unsafe_code)]

use crate::observe::callbacks::Callbacks;

/// Returns the callbacks of a new allocator, which report to the subscriber.
pub(crate) fn callbacks() -> Callbacks {
    let callbacks = Callbacks::default();
    #[cfg(feature = "tracing")]
    {
        use crate::observe::callbacks::{TraceAction, TraceEvent, bit};
        use crate::out_of_memory::OutOfMemory;
        use std::sync::Arc;

        let frequent = bit(TraceAction::Alloc) | bit(TraceAction::FreeRequested) | bit(TraceAction::FreeCompleted);
        let event = |event: &TraceEvent| {
            tracing::debug!(
                target: "cachette",
                action = event.action.name(),
                address = event.address,
                bytes = event.bytes,
                stream = event.stream.raw(),
                pool = %event.pool,
            );
        };
        let out_of_memory = |report: &OutOfMemory| {
            tracing::warn!(
                target: "cachette",
                action = TraceAction::OutOfMemory.name(),
                device = report.device.0,
                requested = report.requested,
                reserved = report.reserved,
                "{report}"
            );
        };
        callbacks.add_sink(!(frequent | bit(TraceAction::OutOfMemory)), Arc::new(event));
        callbacks.oom.write().push(Arc::new(out_of_memory));
    }
    callbacks
}

/// Waits for other streams, inside a span.
pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let _span = tracing::debug_span!(target: "cachette", "wait").entered();
    wait()
}
