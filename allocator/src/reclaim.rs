//! Reclaim: processes of one user on one device give each other memory that they do not use.
//!
//! A process that runs short asks the others before a request fails. Each releases idle memory to the device, and evicts
//! pools if it may. Nothing is handed over: what counts is the free memory of the device. `docs/sharing-a-card.md` is the
//! page for operators, and [`cachette_ipc::reclaim`] has the protocol.
//!
//! | module | holds |
//! |---|---|
//! | `ask` | whom a request asks, in which order, and how long it waits |
//! | `answer` | what this process answers |
//! | `release` | releases a part of the idle memory |
//! | `state` | the registration |
//! | `idle` | `idle_release`: memory that goes back without being asked for |
//!
//! # No deadlock
//!
//! A thread asks without the locks of heaps, turns and pools, and this process answers on another thread. So two processes
//! that ask each other both progress. An answer takes the same locks as `empty_cache` and an eviction do.

#![forbid(unsafe_code)]

#[cfg(feature = "ipc")]
mod answer;
#[cfg(feature = "ipc")]
mod ask;
#[cfg(feature = "ipc")]
mod idle;
mod release;
#[cfg(feature = "ipc")]
mod state;

#[cfg(feature = "ipc")]
pub(crate) use ask::Reclaim;
#[cfg(feature = "ipc")]
pub(crate) use state::ReclaimState;
#[cfg(not(feature = "ipc"))]
pub(crate) use without_ipc::{Reclaim, ReclaimState};

/// Without the feature `ipc` there are no other processes.
#[cfg(not(feature = "ipc"))]
#[expect(clippy::unused_self, reason = "the same signatures with and without the feature")]
mod without_ipc {
    use std::marker::PhantomData;
    use std::sync::Weak;

    use cachette_hal::Device;

    use crate::allocator::allocator_state::AllocatorState;
    use crate::evict::Priority;
    use crate::out_of_memory::NeighbourFigures;

    pub(crate) struct ReclaimState;

    impl ReclaimState {
        pub(crate) fn new<T>(_: Weak<T>) -> Self {
            Self
        }

        pub(crate) fn leave(&self) {}

        pub(crate) fn set_on_by_default(&self) {}
    }

    pub(crate) struct Reclaim<'a, D: Device>(PhantomData<&'a AllocatorState<D>>);

    impl<'a, D: Device> Reclaim<'a, D> {
        pub(crate) fn new(_: &'a AllocatorState<D>, _: u64, _: Option<Priority>) -> Self {
            Self(PhantomData)
        }

        pub(crate) fn idle(&self) -> bool {
            false
        }

        pub(crate) fn last(&self, _evict: bool) -> bool {
            false
        }

        pub(crate) fn wait(&self) -> bool {
            false
        }

        pub(crate) fn neighbours(&self) -> Vec<NeighbourFigures> {
            Vec::new()
        }
    }

    impl<D: Device> AllocatorState<D> {
        pub(crate) fn join_neighbours(&self) {}
    }
}
