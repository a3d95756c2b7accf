//! The report of a request that failed for lack of memory: the figures at that moment, and hints for the caller.

#![forbid(unsafe_code)]

mod sites;

use std::fmt;

use cachette_hal::Ordinal;

use crate::human::Bytes;
use crate::pool::PoolId;

pub use sites::TopAllocationSite;
pub(crate) use sites::{AllocationSites, RecordedSites, StackUse};

/// A request that failed for lack of memory, with the figures at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The device.
    pub device: Ordinal,
    /// The pool of the request.
    pub pool: PoolId,
    /// The bytes that the caller requested.
    pub requested: u64,
    /// The bytes that the device was asked for.
    pub segment: u64,
    /// The device's total memory; `None` if the driver query failed.
    pub total: Option<u64>,
    /// The device's free memory; `None` if the driver query failed.
    pub free: Option<u64>,
    /// Memory in use outside this allocator, by other processes or by this one. `None` if the driver query failed.
    pub elsewhere: Option<u64>,
    /// Bytes of `elsewhere` that were taken [past the cache](crate::Allocator::take_outside). They count for the limit.
    pub outside: u64,
    /// The memory limit of this allocator, if there is one.
    pub limit: Option<u64>,
    /// The memory of the host, if the device shares it.
    pub host: Option<HostFigures>,
    /// Bytes of allocated blocks, without those of pools that sleep.
    pub allocated: u64,
    /// Bytes of the blocks of pools that sleep, which are not on the device.
    pub asleep: u64,
    /// Bytes of evictable pools that a guard keeps on the device.
    pub guarded: u64,
    /// Bytes reserved from the device.
    pub reserved: u64,
    /// Bytes that callers have freed, but other streams still use.
    pub pending: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// Bytes of free blocks that are individually too small for the request.
    pub fragmented: u64,
    /// The figures of every pool with memory, the default pool first.
    pub pools: Vec<PoolFigures>,
    /// Bytes of allocated blocks by the [label](crate::Label) of their library or component, the largest first. Memory
    /// without a label has the empty one.
    pub by_label: Vec<(&'static str, u64)>,
    /// Whether the request failed because of the limit, without a call to the device.
    pub rejected: bool,
    /// Whether the configuration or a capture forbids waiting for the device.
    pub never_block: bool,
    /// Whether the stream is being captured.
    pub capturing: bool,
    /// Whether segments are elastic; `None` if the device or the pool's source does not support that.
    pub elastic: Option<bool>,
    /// The other processes that answered for the device, if the request asked them for memory.
    pub neighbours: Vec<NeighbourFigures>,
    pub(crate) sites: AllocationSites,
}

/// The memory of a host that shares it with the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFigures {
    /// Bytes that programs can still use.
    pub available: u64,
    /// Bytes of these that stay for the host (`host_reserve`).
    pub reserve: u64,
}

/// The figures of another process on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NeighbourFigures {
    /// The process, by its number in its own namespace.
    pub pid: u32,
    /// The program and its first argument.
    pub program: String,
    /// Bytes that it holds from the device.
    pub reserved: u64,
    /// Bytes of these that it can release.
    pub idle: u64,
}

/// The figures of one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolFigures {
    /// The id of the pool.
    pub id: PoolId,
    /// Bytes of allocated blocks.
    pub allocated: u64,
    /// Bytes that callers have freed, but other streams still use.
    pub pending: u64,
    /// Bytes held from the device, or from its source.
    pub reserved: u64,
    /// Its largest free block.
    pub largest_free: u64,
    /// Whether its free blocks serve other requests before those fail.
    pub use_on_oom: bool,
}

impl PoolFigures {
    /// Reserved bytes that no caller uses.
    #[must_use]
    pub const fn unallocated(&self) -> u64 {
        self.reserved.saturating_sub(self.allocated).saturating_sub(self.pending)
    }
}

/// A remedy for a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OomHint {
    /// The limit prevents further growth.
    Limit,
    /// Freed memory waits for other streams.
    Pending,
    /// Steps that wait were skipped, although some memory was pending.
    NeverBlock,
    /// Enough memory is free, but every free block is too small.
    Fragmented,
    /// Elastic segments would merge the free blocks.
    Elastic,
    /// Another pool holds enough unused memory.
    OtherPool,
    /// Guards keep evictable pools on the device.
    Guarded,
    /// The host shares its memory with the device, and needs what is left.
    Host,
    /// Other users of the device hold enough memory.
    Elsewhere,
    /// The request is larger than the memory that can become available.
    AskForLess,
}

impl fmt::Display for OomHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Limit => "the memory limit was reached: raise it or free memory",
            Self::Pending => {
                "freed memory is still used by recorded streams: synchronize them first, or free it with \
                 `release_after`"
            }
            Self::NeverBlock => {
                "never_block:True prevents waiting for freed memory: unset it, or call empty_cache first"
            }
            Self::Fragmented => "enough memory is free but fragmented: free the blocks in between",
            Self::Elastic => "expandable_segments:True would combine the free blocks",
            Self::OtherPool => {
                "another pool holds enough unused memory: empty its cache, or create it with `use_on_oom`"
            }
            Self::Guarded => "guards of make_resident keep pools on the device: drop one, and its pool can be evicted",
            Self::Host => {
                "the device shares the memory of the host, which needs the rest: end other programs, or lower host_reserve"
            }
            Self::Elsewhere => {
                "other processes or libraries use enough of this device: stop them, or use another device"
            }
            Self::AskForLess => "free memory, or allocate less",
        })
    }
}

impl OutOfMemory {
    /// Reserved bytes that no caller uses.
    #[must_use]
    pub const fn unallocated(&self) -> u64 {
        self.reserved.saturating_sub(self.allocated).saturating_sub(self.pending)
    }

    /// Returns the sites that allocated most of the memory in use, as far as the history recorded them; the largest
    /// first.
    ///
    /// The first call names their stacks, which can take seconds.
    #[must_use]
    pub fn holders(&self) -> &[TopAllocationSite] {
        self.sites.top()
    }

    /// Returns the remedies that apply.
    #[must_use]
    pub fn hints(&self) -> Vec<OomHint> {
        let over_limit =
            self.limit.is_some_and(|limit| (self.reserved + self.outside).saturating_add(self.segment) > limit);
        let in_pieces = self.fragmented >= self.requested && self.largest_free < self.requested;
        let forbidden = self.never_block && !self.capturing;
        let others_have = self
            .elsewhere
            .zip(self.free)
            .is_some_and(|(used, free)| used > 0 && free < self.segment && used.saturating_add(free) >= self.segment);
        let other_pool = self.pools.iter().any(|pool| {
            let serves = pool.use_on_oom && self.pool == PoolId::DEFAULT;
            pool.id != self.pool && !serves && pool.unallocated() >= self.requested
        });
        let host_needs_it = self.host.is_some_and(|host| host.available.saturating_sub(host.reserve) < self.segment);
        let all = [
            (OomHint::Limit, over_limit),
            (OomHint::Pending, self.pending > 0),
            (OomHint::NeverBlock, forbidden && (self.pending > 0 || self.unallocated() > 0)),
            (OomHint::Fragmented, in_pieces),
            (OomHint::Elastic, in_pieces && self.elastic == Some(false)),
            (OomHint::OtherPool, other_pool),
            (OomHint::Guarded, self.guarded > 0),
            (OomHint::Host, host_needs_it && !over_limit),
            (OomHint::Elsewhere, others_have && !over_limit),
        ];
        let applies = all.into_iter().filter(|(_, applies)| *applies);
        let mut hints: Vec<OomHint> = applies.map(|(hint, _)| hint).collect();
        if hints.is_empty() {
            hints.push(OomHint::AskForLess);
        }
        hints
    }
}

/// The figures in one line, then a line for each allocation site and for each remedy.
///
/// The first text names the stacks of the sites.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, requested, segment) = (self.device, Bytes(self.requested), Bytes(self.segment));
        write!(f, "out of memory on device {device}: tried to allocate {requested} (a segment of {segment})")?;
        match (self.total, self.free) {
            (Some(total), Some(free)) => write!(f, "; of its {} {} are free", Bytes(total), Bytes(free))?,
            _ => f.write_str("; the driver does not say how much it has free")?,
        }
        if let Some(elsewhere) = self.elsewhere.filter(|bytes| *bytes > 0) {
            write!(f, " and {} are used outside this allocator", Bytes(elsewhere))?;
        }
        if let Some(HostFigures { available, reserve }) = self.host {
            write!(f, "; the host has {} available and keeps {}", Bytes(available), Bytes(reserve))?;
        }
        if let Some(limit) = self.limit {
            write!(f, "; this allocator may hold {}", Bytes(limit))?;
            if self.outside > 0 {
                write!(f, ", less {} that the program took past it", Bytes(self.outside))?;
            }
        }
        write!(
            f,
            "; it holds {}: {} allocated, {} waiting for other streams, {} unused, the largest piece {}",
            Bytes(self.reserved),
            Bytes(self.allocated),
            Bytes(self.pending),
            Bytes(self.unallocated()),
            Bytes(self.largest_free),
        )?;
        if self.asleep > 0 {
            write!(f, "; pools that sleep have {} more, which are not on the device", Bytes(self.asleep))?;
        }
        if self.pools.iter().any(|pool| pool.id != PoolId::DEFAULT) {
            for pool in &self.pools {
                let (reserved, unused) = (Bytes(pool.reserved), Bytes(pool.unallocated()));
                match pool.id {
                    PoolId::DEFAULT => f.write_str("; of that the default pool")?,
                    id => write!(f, "; of that pool {id}")?,
                }
                write!(f, " holds {reserved}, {unused} of them unused")?;
            }
        }
        for NeighbourFigures { pid, program, reserved, idle } in &self.neighbours {
            write!(f, "\nprocess {pid} ({program}) holds {}, {} of them idle", Bytes(*reserved), Bytes(*idle))?;
        }
        if self.by_label.len() > 1 {
            f.write_str("; in use by")?;
            for (number, (label, bytes)) in self.by_label.iter().enumerate() {
                let (comma, label) =
                    (if number == 0 { "" } else { "," }, if label.is_empty() { "others" } else { label });
                write!(f, "{comma} {label} {}", Bytes(*bytes))?;
            }
        }
        self.sites.shown().iter().try_for_each(|site| write!(f, "\n{site}"))?;
        self.hints().iter().try_for_each(|hint| write!(f, "\n{hint}"))
    }
}

impl std::error::Error for OutOfMemory {}
