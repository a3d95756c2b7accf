//! The allocator's promises, each as a test that carries the id of the behaviour it pins.
//!
//! Everything is observed from outside: addresses, statistics, driver calls, and what the memory holds. The
//! themes share one program, so that they share one [`bed`].

mod bed;
mod captures;
mod captures_failures;
mod captures_reuse;
mod captures_uses;
mod checkpoints;
mod defects;
mod determinism;
mod drops;
mod elastic;
mod elastic_addresses;
mod elastic_capture;
mod elastic_failures;
mod elastic_limits;
mod elastic_pointers;
mod elastic_recycling;
mod elastic_switching;
mod events;
mod exhaustion;
mod failures;
mod garbage;
mod hints;
mod history;
mod history_stacks;
mod history_threads;
mod ladder;
mod lending;
mod lifetimes;
mod limits;
mod metrics;
mod observers;
mod oversize;
mod pinned;
mod pinned_failures;
mod pinned_graphs;
mod pinned_model;
mod pinned_settings;
mod pinned_uses;
mod pointers;
mod pools_memory;
mod pools_names;
mod pools_release;
mod pools_routes;
mod pools_sources;
mod release_after;
mod reports;
mod settings;
mod sizes;
mod sleeping;
mod snapshots;
mod snapshots_pools;
mod statistics;
mod streams;
mod threads;
mod totals;
#[cfg(feature = "tracing")]
mod tracing_events;
mod uncached;
