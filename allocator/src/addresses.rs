//! The addresses of a pool's memory, saved in a file, and restored in another process.
//!
//! A captured graph contains the addresses of its memory. A process that builds the graph again without a capture needs
//! memory at exactly these addresses. The file has the layout of the memory, not its contents: the new process writes
//! them.
//!
//! ```
//! use cachette::addresses::Addresses;
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let pool = allocator.create_pool();
//! let memory = pool.allocate(1 << 20, &stream)?;
//! let address = memory.address();
//! let saved: Addresses = pool.save_addresses()?.to_string().parse()?;
//! drop((memory, pool)); // in practice the process ends here, and another one goes on
//!
//! let (pool, blocks) = allocator.restore_addresses(&saved, &stream)?;
//! assert_eq!(blocks[0].address(), address);
//! # drop(pool);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Only elastic segments have such addresses. `docs/pools.md` says what a restore needs, and what it costs.

#![forbid(unsafe_code)]

mod holder;
pub(crate) mod problem;
mod restore;
mod text;

use std::collections::HashMap;

use cachette_hal::{Device, DeviceInfo};

use crate::elastic;
use crate::error::Error;
use crate::heap::Heap;
use crate::pool::{Pool, PoolProblem, SavedBlock, settled};
use crate::stats::{Counted, Row};

pub use problem::{AddressHolder, AddressesProblem};

/// The addresses of a pool's memory at one moment. Its text is that of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    card: SavedCard,
    /// In order of address. None overlaps the next.
    segments: Vec<AddressRange>,
    /// In order of address. None overlaps the next, and each lies in one segment.
    blocks: Vec<SavedPlace>,
}

/// Addresses with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first address.
    pub base: u64,
    /// The bytes from there on, in whole pages.
    pub bytes: u64,
}

impl AddressRange {
    /// The address after the last.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }
}

/// An allocation, as it was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPlace {
    /// The first address.
    pub address: u64,
    /// The bytes of the block.
    pub bytes: u64,
    /// The requested bytes.
    pub requested: u64,
    /// The stream of the allocation: the streams of the pool are numbered from zero in order of their first use.
    pub stream: u32,
}

impl SavedPlace {
    const fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// What must be equal where the addresses are restored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SavedCard {
    vendor: String,
    /// The marketing name: another card of the same model serves too.
    name: String,
    architecture: String,
    driver: String,
    /// The granularity of chunks and of their addresses.
    page: u64,
}

/// The text of a fact that the device lacks.
const NONE: &str = "none";

impl SavedCard {
    fn of(info: &DeviceInfo, page: u64) -> Self {
        // Each fact is one line of the file.
        let line = |text: &str| text.replace(char::is_control, " ").trim().to_owned();
        Self {
            vendor: info.vendor.to_string(),
            name: line(&info.name),
            architecture: line(info.architecture.as_deref().unwrap_or(NONE)),
            driver: info.driver.map_or(NONE.to_owned(), |version| version.to_string()),
            page,
        }
    }

    /// Checks that a restore `here` can have the saved addresses, and that kernels for the saved card run.
    fn check(&self, here: &Self) -> Result<(), AddressesProblem> {
        let facts = [
            ("vendor", &self.vendor, &here.vendor),
            ("card", &self.name, &here.name),
            ("architecture", &self.architecture, &here.architecture),
            ("driver", &self.driver, &here.driver),
            ("page size", &self.page.to_string(), &here.page.to_string()),
        ];
        let other = facts.into_iter().find(|(_, saved, here)| saved != here);
        other.map_or(Ok(()), |(fact, saved, here)| {
            Err(AddressesProblem::OtherDevice { fact, saved: saved.clone(), here: here.clone() })
        })
    }
}

impl Addresses {
    /// The segments, in order of address.
    #[must_use]
    pub fn segments(&self) -> &[AddressRange] {
        &self.segments
    }

    /// The allocations, in order of address.
    #[must_use]
    pub fn blocks(&self) -> &[SavedPlace] {
        &self.blocks
    }

    /// The bytes of memory that a restore needs.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

impl<D: Device> Pool<D> {
    /// Saves the addresses of the pool's memory: of its allocations, and of what is free between them, which graphs use
    /// too.
    ///
    /// Fails while a block is pending, while the pool sleeps, and if it has direct segments.
    pub fn save_addresses(&self) -> Result<Addresses, Error> {
        let inner = self.allocator().inner();
        inner.shared.origin.check()?;
        self.state.check_awake()?;
        let page = elastic::page(inner.shared.device.virtual_memory()?);
        let (mut segments, mut blocks, mut streams) = (Vec::new(), Vec::new(), HashMap::new());
        for heap in inner.heaps_of(&self.state) {
            heap.process_events()?;
            if !heap.is_elastic() && heap.counters.now(Row::All, Counted::ReservedBytes) > 0 {
                return Err(PoolProblem::NotElastic.of(self.id()));
            }
            let next = u32::try_from(streams.len()).unwrap_or(u32::MAX);
            let stream = *streams.entry(heap.stream_state.number).or_insert(next);
            heap.save_places(stream, &mut segments, &mut blocks).map_err(|why| why.of(self.id()))?;
        }
        segments.sort_unstable_by_key(|segment| segment.base);
        blocks.sort_unstable_by_key(|block| block.address);
        Ok(Addresses { card: SavedCard::of(inner.shared.device.info(), page), segments: joined(segments), blocks })
    }
}

impl<D: Device> Heap<D> {
    /// Adds the chunks and the allocations of the heap.
    fn save_places(
        &self,
        stream: u32,
        segments: &mut Vec<AddressRange>,
        blocks: &mut Vec<SavedPlace>,
    ) -> Result<(), PoolProblem> {
        let state = self.lock_coalesced();
        if state.asleep {
            return Err(PoolProblem::Asleep);
        }
        let place = |SavedBlock { address, bytes, requested, .. }| SavedPlace { address, bytes, requested, stream };
        blocks.extend(settled(&state)?.into_iter().map(place));
        segments.extend(state.blocks.chunks().iter().map(|chunk| AddressRange { base: chunk.at, bytes: chunk.bytes }));
        Ok(())
    }
}

/// Joins adjacent ranges, which are in order of address.
fn joined(ranges: impl IntoIterator<Item = AddressRange>) -> Vec<AddressRange> {
    let mut joined: Vec<AddressRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end() == range.base => last.bytes += range.bytes,
            _ => joined.push(range),
        }
    }
    joined
}
