//! What happens when no free block fits: a ladder of steps, each tried only if all before it failed.
//!
//! | step | what it does | may wait for the device |
//! |---|---|---|
//! | relieve | asks the program's own helpers to free memory | no |
//! | collect | gives back old unused segments, if the configuration says from when on | yes |
//! | borrow | takes a block that is idle on another stream, behind a wait on the device (opt-in) | no |
//! | obtain | asks the device for a segment, within the limit | only if its driver does |
//! | release enough | gives back unsplittable segments of this stream, as many as the request needs | yes |
//! | wait | waits for the cheapest set of other streams' uses that makes a block large enough | yes |
//! | release all | gives back every unused segment of every stream | yes |
//! | wait on | waits for one segment after the other to come free, the earliest first | yes |
//!
//! The heap is searched again after every step that can have freed something. With `never_block` the steps that
//! may wait are left out.

#![forbid(unsafe_code)]

mod release;
mod wait;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::error::{Error, OutOfMemory};
use crate::fence::Fence;
use crate::heap::{Ask, Heap, Segment, Taken};
use crate::heaps::Heaps;
use crate::lane::Lane;
use crate::observe::Action;
use crate::policy::Policy;
use crate::shared::Shared;
use crate::size::{self, Kind};
use crate::stats::Measure;

/// A block that was found, and the heap it is of.
#[derive(Debug)]
pub(crate) struct Found<D: Device> {
    pub(crate) heap: Arc<Heap<D>>,
    pub(crate) taken: Taken,
    /// What the next use must wait for, besides the guards of the block itself.
    pub(crate) guard: Option<Fence<D>>,
}

impl<D: Device> Found<D> {
    /// A block that was taken from its heap.
    pub(crate) fn of(heap: &Arc<Heap<D>>, taken: Taken) -> Self {
        Self {
            heap: Arc::clone(heap),
            taken,
            guard: None,
        }
    }
}

/// What a request needs from the device.
#[derive(Clone, Copy, Debug)]
struct Need {
    rounded: u64,
    /// The size of the segment that would serve it; of an elastic one, the whole pages.
    segment: u64,
    kind: Kind,
}

/// One request on its way up the ladder.
#[derive(Debug)]
pub(crate) struct Climb<'a, D: Device> {
    shared: &'a Arc<Shared<D>>,
    heaps: &'a Heaps<D>,
    heap: &'a Arc<Heap<D>>,
    policy: Policy,
    ask: Ask,
    need: Need,
}

impl<'a, D: Device> Climb<'a, D> {
    pub(crate) fn new(
        shared: &'a Arc<Shared<D>>,
        heaps: &'a Heaps<D>,
        heap: &'a Arc<Heap<D>>,
        ask: Ask,
    ) -> Self {
        let policy = heap.policy();
        let rounded = policy.round(ask.requested);
        let need = Need {
            rounded,
            segment: heap
                .page()
                .map_or(size::segment_bytes(rounded, policy.large_segment), |page| {
                    rounded.next_multiple_of(page)
                }),
            kind: Kind::of(rounded),
        };
        Self {
            shared,
            heaps,
            heap,
            policy,
            ask,
            need,
        }
    }

    /// Climbs until a step succeeds.
    #[cold]
    pub(crate) fn run(&self) -> Result<Found<D>, Error> {
        if let Some(found) = self.search()? {
            return Ok(found);
        }
        if self.shared.observers.relieve()
            && let Some(found) = self.search()?
        {
            return Ok(found);
        }
        let failed = {
            // One request at a time makes a heap larger; the next one may find what the first left over.
            let _alone = self.heap.grow_alone();
            match self.climb()? {
                Some(found) => return Ok(found),
                None => self.report(),
            }
        };
        self.shared.totals.ooms.fetch_add(1, Relaxed);
        self.shared.observers.report_oom(&failed);
        Err(failed.into())
    }

    fn climb(&self) -> Result<Option<Found<D>>, Error> {
        if let Some(found) = self.search()? {
            return Ok(Some(found));
        }
        let may_wait = self.may_wait();
        if may_wait {
            self.collect()?;
        }
        if self.shared.settings.rejects.load(Relaxed) && !self.within_limit() {
            return Ok(None);
        }
        if let Some(found) = self.borrow()? {
            return Ok(Some(found));
        }
        if let Some(found) = self.obtain()? {
            return Ok(Some(found));
        }
        if self.heap.elastic().is_some()
            && let Some(found) = self.fill(true)?
        {
            return Ok(Some(found));
        }
        if !may_wait {
            return Ok(None);
        }
        if self.release_enough()?
            && let Some(found) = self.obtain_again()?
        {
            return Ok(Some(found));
        }
        if self.wait_for_cheapest()?
            && let Some(found) = self.search()?
        {
            return Ok(Some(found));
        }
        // Uses that could not be marked before are marked now, so that the steps below see them.
        for heap in self.heaps.all() {
            heap.tend()?;
        }
        if self.release_all()? > 0
            && let Some(found) = self.obtain_again()?
        {
            return Ok(Some(found));
        }
        self.wait_on()
    }

    fn may_wait(&self) -> bool {
        !self.shared.settings.never_block.load(Relaxed)
    }

    /// Searches the heap.
    fn search(&self) -> hal::Result<Option<Found<D>>> {
        let taken = self.heap.take_tended(self.ask)?;
        Ok(taken.map(|taken| self.found(taken)))
    }

    fn found(&self, taken: Taken) -> Found<D> {
        Found::of(self.heap, taken)
    }

    /// Whether another segment would stay within the limit.
    fn within_limit(&self) -> bool {
        let reserved = self.shared.totals.reserved.load(Relaxed);
        reserved.saturating_add(self.need.segment) <= self.shared.settings.limit.load(Relaxed)
    }

    /// Takes a block that is idle on another stream, and makes this one wait for that.
    fn borrow(&self) -> hal::Result<Option<Found<D>>> {
        if !self.shared.settings.lends.load(Relaxed) {
            return Ok(None);
        }
        for other in self.heaps.all() {
            // What is elastic serves nobody once that is off.
            let off = other.elastic().is_some() && other.is_retired();
            if Arc::ptr_eq(&other, self.heap) || off {
                continue;
            }
            let Some(taken) = other.take_tended(self.ask)? else {
                continue;
            };
            match Fence::record(other.lane()) {
                Ok(fence) => {
                    other.lend(taken.id, self.heap.lane());
                    return Ok(Some(Found {
                        heap: other,
                        taken,
                        guard: Some(fence),
                    }));
                }
                Err(error) => {
                    let guards = other.guards_of(&taken, self.heap.lane());
                    other.put_back(taken, guards);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Asks the device for a segment; `None` if the limit or the device says no.
    fn obtain(&self) -> Result<Option<Found<D>>, Error> {
        if self.heap.elastic().is_some() {
            return self.fill(false);
        }
        let (totals, bytes) = (&self.shared.totals, self.need.segment);
        let before = totals.reserved.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > self.shared.settings.limit.load(Relaxed) {
            totals.reserved.fetch_sub(bytes, Relaxed);
            return Ok(None);
        }
        let base = match self.shared.device.allocate(bytes) {
            Ok(base) => base,
            Err(error) => {
                totals.reserved.fetch_sub(bytes, Relaxed);
                return match error.kind() {
                    ErrorKind::OutOfMemory => Ok(None),
                    _ => Err(error.into()),
                };
            }
        };
        totals.device_allocs.fetch_add(1, Relaxed);
        let segment = Segment {
            base,
            bytes,
            kind: self.need.kind,
        };
        Ok(self
            .heap
            .grow(segment, self.ask)?
            .map(|taken| self.found(taken)))
    }

    /// Fills holes of an elastic heap; when `pressed`, with every chunk that nobody uses.
    fn fill(&self, pressed: bool) -> Result<Option<Found<D>>, Error> {
        let others = self.heaps.all();
        let taken = self.heap.fill_for(self.ask, &others, pressed)?;
        Ok(taken.map(|taken| self.found(taken)))
    }

    /// Asks the device again, after memory was given back to it.
    fn obtain_again(&self) -> Result<Option<Found<D>>, Error> {
        self.shared.totals.retries.fetch_add(1, Relaxed);
        if self.heap.elastic().is_some() {
            return self.fill(true);
        }
        self.obtain()
    }

    /// The figures of this moment.
    fn report(&self) -> OutOfMemory {
        let shared = self.shared;
        let now = |measure| shared.ledger.now(measure);
        let allocated = now(Measure::AllocatedBytes);
        let pending = now(Measure::ActiveBytes).saturating_sub(allocated);
        let reserved = now(Measure::ReservedBytes);
        let memory = shared.device.memory_info().ok();
        let rejected = shared.settings.rejects.load(Relaxed) && !self.within_limit();
        if rejected {
            shared.totals.rejections.fetch_add(1, Relaxed);
        }
        let free = memory.map(|memory| memory.free);
        let (stream, need) = (self.heap.lane().stream(), self.need);
        shared
            .observers
            .event(Action::OutOfMemory, free.unwrap_or(0), need.rounded, stream);
        OutOfMemory {
            device: shared.device.info().ordinal,
            requested: self.ask.requested,
            segment: need.segment,
            total: memory.map(|memory| memory.total),
            free,
            limit: shared.settings.limit(),
            allocated,
            reserved,
            pending,
            largest_free: self
                .heaps
                .all()
                .iter()
                .map(|heap| heap.largest_free())
                .max()
                .unwrap_or(0),
            rejected,
            never_block: !self.may_wait(),
        }
    }
}

/// Makes later work in `lane` wait for what stands before the block. On failure the block is put back.
#[cold]
pub(crate) fn pass_guards<D: Device>(found: &mut Found<D>, lane: &Lane<D>) -> hal::Result<()> {
    let mut guards = found.heap.guards_of(&found.taken, lane);
    guards.extend(found.guard.take().map(Arc::new));
    for guard in &guards {
        if let Err(error) = guard.hold_back(lane) {
            found.heap.put_back(found.taken, guards);
            return Err(error);
        }
    }
    found.heap.note_waits(&guards, lane);
    Ok(())
}
