//! Snapshots, entry by entry.

use cachette::PoolId;
use cachette::snapshot::{BlockState, Event, Segment, SegmentKind, Snapshot, SnapshotOptions};
use cachette_process as process;

use super::contexts::{by_number, number_of};
use crate::arguments::User;
use crate::entry::or_raise;
use crate::hooks::MempoolId;

/// A text, valid during the call that it is passed to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Text {
    /// Its start; not a C string.
    pub start: *const u8,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Text {
    const fn new(text: &str) -> Self {
        Self { start: text.as_ptr(), bytes: text.len() }
    }
}

/// A segment, or a fully mapped part of one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SegmentEntry {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The bytes that callers requested from it.
    pub requested: u64,
    /// Bytes of allocated blocks.
    pub allocated: u64,
    /// Bytes of blocks that are allocated or used by other streams.
    pub active: u64,
    /// Its stream.
    pub stream: u64,
    /// The number of segments that the device's allocator obtained before it.
    pub order: u64,
    /// Its pool.
    pub pool: MempoolId,
    /// Its device.
    pub device: i32,
    /// The stack of its allocation; zero if it has no context.
    pub stack: u32,
    /// Whether it is for requests of more than 1 MiB.
    pub large: bool,
    /// Whether it is elastic.
    pub elastic: bool,
}

/// A block of the last segment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BlockEntry {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The requested bytes; if it is free, those of its last request.
    pub requested: u64,
    /// The stack of its allocation; zero if it has no context.
    pub stack: u32,
    /// Whether it is allocated.
    pub allocated: bool,
    /// Whether it is allocated or used by other streams.
    pub active: bool,
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventEntry {
    /// The number of the [`cachette::TraceAction`], the same as PyTorch's.
    pub action: i32,
    /// The device.
    pub device: i32,
    /// The address; for an out-of-memory, the free bytes of the device.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The stream.
    pub stream: u64,
    /// The pool.
    pub pool: MempoolId,
    /// The time in microseconds since 1970; zero for now.
    pub time_us: i64,
    /// The compile context.
    pub context: Text,
    /// The user's metadata.
    pub metadata: Text,
    /// Its stack; zero if it has no context.
    pub stack: u32,
}

/// The callbacks of a snapshot. Each may throw.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Visitor {
    /// Called for each segment.
    pub segment: unsafe extern "C-unwind" fn(user: User, segment: *const SegmentEntry),
    /// Called for each block of the last segment.
    pub block: unsafe extern "C-unwind" fn(user: User, block: *const BlockEntry),
    /// Called for each event, device by device, oldest first.
    pub event: unsafe extern "C-unwind" fn(user: User, event: *const EventEntry),
    /// Their first argument.
    pub user: User,
}

/// Passes a snapshot of all devices, or of one pool unless `pool` is the default, to `visitor`; with `traces` also the
/// events.
///
/// # Safety
///
/// 1. The functions of `visitor` may be called with its user.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_snapshot(pool: MempoolId, traces: bool, visitor: *const Visitor) {
    let mut options = SnapshotOptions::new().traces(traces);
    if pool != MempoolId::DEFAULT {
        options = options.pool(PoolId::from(pool));
    }
    let taken = or_raise(|| Ok(by_number(|| process::snapshot(None, options))));
    // SAFETY: 1. is the caller's promise.
    let visitor = unsafe { &*visitor };
    for segment in &taken.segments {
        let entry = segment_entry(&taken, segment);
        // SAFETY: 1. is the caller's promise.
        unsafe { (visitor.segment)(visitor.user, &raw const entry) };
        for block in &segment.blocks {
            let entry = BlockEntry {
                address: block.address,
                bytes: block.bytes,
                requested: block.requested,
                stack: number_of(&taken, block.stack),
                allocated: block.state == BlockState::Allocated,
                active: block.state != BlockState::Free,
            };
            // SAFETY: 1. is the caller's promise.
            unsafe { (visitor.block)(visitor.user, &raw const entry) };
        }
    }
    for trace in &taken.traces {
        for event in &trace.events {
            let entry = event_entry(&taken, trace.device, event);
            // SAFETY: 1. is the caller's promise.
            unsafe { (visitor.event)(visitor.user, &raw const entry) };
        }
    }
}

fn segment_entry(taken: &Snapshot, segment: &Segment) -> SegmentEntry {
    let allocated = segment.bytes_in(BlockState::Allocated);
    SegmentEntry {
        address: segment.address,
        bytes: segment.bytes,
        requested: segment.requested(),
        allocated,
        active: allocated.saturating_add(segment.bytes_in(BlockState::Pending)),
        stream: segment.stream,
        order: segment.order,
        pool: pool_of(taken, segment.pool),
        device: segment.device.cast_signed(),
        stack: number_of(taken, segment.stack),
        large: segment.kind == SegmentKind::Large,
        elastic: segment.elastic,
    }
}

fn event_entry(taken: &Snapshot, device: u32, event: &Event) -> EventEntry {
    EventEntry {
        action: event.action as i32,
        device: device.cast_signed(),
        address: event.address,
        bytes: event.bytes,
        stream: event.stream,
        pool: pool_of(taken, event.pool),
        time_us: event.time_us,
        context: Text::new(taken.texts.get(event.context)),
        metadata: Text::new(taken.texts.get(event.metadata)),
        stack: number_of(taken, event.stack),
    }
}

fn pool_of(taken: &Snapshot, place: u32) -> MempoolId {
    let found = taken.pools.get(place as usize);
    found.map_or(MempoolId::DEFAULT, |id| MempoolId { first: id.0, second: id.1 })
}

/// An event as it happens. Of the thread's annotations it has the metadata alone.
pub(super) fn event_now(device: u32, event: &cachette::TraceEvent, metadata: &str) -> EventEntry {
    EventEntry {
        action: event.action as i32,
        device: device.cast_signed(),
        address: event.address,
        bytes: event.bytes,
        stream: event.stream.raw() as u64,
        pool: MempoolId { first: event.pool.capture, second: event.pool.user },
        time_us: 0,
        context: Text::new(""),
        metadata: Text::new(metadata),
        stack: 0,
    }
}
