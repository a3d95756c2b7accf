//! Mapping memory in an elastic heap for a request that finds no free block.
//!
//! 1. Plan, under the heap's lock: see `elastic::policy`. The thread then holds every block and chunk of the plan, so
//!    that no other request gets them.
//! 2. Carry the plan out on the device, without the lock of any heap: see `elastic::map`.
//! 3. Commit the plan, or undo it, under the lock again.
//!
//! A chunk of another heap moves only after that heap's stream has finished its last use: see `elastic::donors`.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::{mem, ptr};

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::address_index::SegmentRef;
use crate::blocks::{BlockId, Chunk, FreeRange, ReservedBlock};
use crate::elastic::donors::{DonorOffer, HeldChunks, borrow};
use crate::elastic::map::{self, Filled, Leftover, PendingUnmap, Unfilled};
use crate::elastic::policy::{self, Facts, Obstacle, Plan};
use crate::elastic::{self, ChunkDonors, Tuning};
use crate::fence::Fence;
use crate::heap::{Allocated, Heap, HeapState, Request};
use crate::heap_policy::HeapPolicy;
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::stats::{Counted, HighestAllocated};

/// How often the driver may refuse to move chunks. After that, none moves.
const PATIENCE: usize = 3;
/// How often a plan is made again after addresses were reserved or other heaps were asked.
const TRIES: usize = 4;

/// A plan whose blocks and chunks are held. A drop undoes it.
struct HeldPlan<'a, D: Device> {
    heap: &'a Heap<D>,
    plan: Plan,
    place: Vec<ReservedBlock>,
    /// The chunks that move: of other heaps first, and of the heap itself last.
    moved: Vec<HeldChunks<'a, D>>,
}

impl<D: Device> Drop for HeldPlan<'_, D> {
    fn drop(&mut self) {
        self.moved.clear();
        if !self.place.is_empty() {
            self.heap.state.lock().blocks.put_back(mem::take(&mut self.place));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) request: Request,
    /// The position of the block, if the caller decided it; its bytes are exactly those of the request then.
    pub(crate) place: Option<u64>,
}

/// What one attempt to serve a request may use.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// Whether memory is short, so that every idle chunk must be used.
    pressed: bool,
    /// Whether the events of other heaps were processed before the turn.
    asked: bool,
    /// Whether the request tries again if further events have passed.
    patient: bool,
}

/// The result of one attempt to serve a request.
enum Tried {
    Served(Allocated),
    /// Events have passed that must be processed before the turn, or those of other heaps are needed, too.
    TooEarly,
    /// The driver refused to map an idle chunk a second time, and it could not be unmapped first.
    Refused,
    NoMemory,
}

impl Wanted {
    pub(crate) fn block_bytes(&self, policy: &HeapPolicy) -> u64 {
        let requested = self.request.requested;
        if self.place.is_some() { requested } else { policy.round(requested) }
    }
}

impl<D: Device> Heap<D> {
    /// Allocates a block that needs no more memory, after it frees the pending blocks whose events have passed.
    pub(crate) fn search_for(self: &Arc<Self>, wanted: Wanted) -> hal::Result<Option<Allocated>> {
        self.after_events(|| self.search_locked(wanted))
    }

    /// Allocates a block that needs no more memory.
    fn search_locked(self: &Arc<Self>, Wanted { request, place }: Wanted) -> Option<Allocated> {
        match place {
            None => self.allocate_slow_locked(self.state.lock(), request),
            Some(place) => self.allocate_block(self.state.lock(), request, |blocks, _| {
                blocks.allocate_placed(place, request.requested)
            }),
        }
    }

    /// Serves a request by filling unmapped ranges. Returns `None` if there is not enough memory.
    ///
    /// `others` returns the heaps whose idle chunks can be moved. When `pressed`, the plan uses every idle chunk before the
    /// request fails. The caller holds `growth`, on a thread whose driver calls no capture
    /// restricts.
    pub(crate) fn fill_for(
        self: &Arc<Self>,
        wanted: Wanted,
        others: impl Fn() -> ChunkDonors<D>,
        pressed: bool,
    ) -> hal::Result<Option<Allocated>> {
        // No device has more memory.
        if wanted.block_bytes(&self.policy()) > self.shared.device.info().total_memory {
            return Ok(None);
        }
        if !self.stream_state.ask_capturing()? {
            self.unmap_pending();
        }
        let memory = self.shared.device.virtual_memory()?;
        let mut tuning = Tuning::of_setting(self.shared.settings.config().elastic_setting());
        tuning.recycles = memory.aliases().is_ok();
        tuning.whole = self.pool().is_some_and(|pool| pool.options.whole_segments);
        if memory.mixes_sizes().is_err() {
            // All chunks must have one size, and that of a page holds the least memory.
            (tuning.pages, tuning.whole) = (true, false);
        }
        let (mut early, mut refusals, mut asked) = (0, 0, pressed);
        loop {
            // This comes before the turn, so that sinks hear of every free at once.
            if let Some(allocated) = self.search_for(wanted)? {
                return Ok(Some(allocated));
            }
            if asked {
                // The memory of pending blocks is idle once their events have passed. The heap itself reports a failure.
                for heap in others().heaps {
                    let _ = heap.process_events();
                }
            }
            let attempt = Attempt { pressed, asked, patient: early < TRIES };
            let try_once = || self.search_and_fill(wanted, &others, tuning, attempt);
            let (tried, told) = map::in_turn(&self.shared, try_once);
            match tried? {
                Tried::Served(allocated) => {
                    self.put_back_after_panic(&allocated, &told);
                    return Ok(Some(allocated));
                }
                Tried::TooEarly => {
                    asked = true;
                    early += 1;
                }
                // The driver can refuse every move while memory is available.
                Tried::Refused => {
                    tuning.recycles &= refusals < PATIENCE;
                    refusals += 1;
                }
                Tried::NoMemory => return Ok(None),
            }
        }
    }

    /// Serves a request in its turn. Other threads may have freed memory, added heaps or begun a capture before.
    fn search_and_fill(
        self: &Arc<Self>,
        wanted: Wanted,
        others: &impl Fn() -> ChunkDonors<D>,
        mut tuning: Tuning,
        attempt: Attempt,
    ) -> hal::Result<Tried> {
        if let Some(allocated) = self.search_locked(wanted) {
            return Ok(Tried::Served(allocated));
        }
        let others = others();
        let donors = others.heaps.iter().filter(|_| attempt.pressed);
        if attempt.patient && donors.chain([self]).any(|heap| heap.has_passed_events().unwrap_or(false)) {
            return Ok(Tried::TooEarly);
        }
        tuning.recycles &= !self.stream_state.ask_capturing()?;
        // A chunk of this heap that must be unmapped before it moves is no use while the stream is busy.
        let single = self.shared.chunks.any_single.load(Relaxed) && self.is_idle()?;
        let mut offers: Option<Vec<DonorOffer<'_, D>>> = None;
        let mut tries = 0;
        while tries < TRIES {
            match self.plan(wanted, (offers.as_deref(), others.holders), tuning, (attempt.pressed, single))? {
                Ok(mut held) => match borrow(&held.plan, offers.as_deref().unwrap_or_default())? {
                    Ok(lent) => {
                        held.moved.splice(0..0, lent);
                        return self.carry_out(wanted, held);
                    }
                    // Every round has one donor fewer.
                    Err(late) => {
                        if let Some(offers) = &mut offers {
                            offers.retain(|offer| !ptr::eq(offer.heap, late));
                        }
                        continue;
                    }
                },
                Err(Obstacle::NoPlace(bytes)) => {
                    if !self.reserve_addresses(bytes)? {
                        break;
                    }
                }
                Err(Obstacle::AskOthers) if !attempt.asked => return Ok(Tried::TooEarly),
                Err(Obstacle::AskOthers) => offers = Some(self.offers(&others.heaps)?),
                Err(Obstacle::NoMemory) => break,
            }
            tries += 1;
        }
        Ok(Tried::NoMemory)
    }

    /// Plans how to serve a request, and holds every block and chunk of this heap in the plan.
    fn plan(
        &self,
        wanted: Wanted,
        (offers, heaps): (Option<&[DonorOffer<'_, D>]>, usize),
        mut tuning: Tuning,
        (pressed, single): (bool, bool),
    ) -> hal::Result<Result<HeldPlan<'_, D>, Obstacle>> {
        let page = elastic::page(self.shared.device.virtual_memory()?);
        let offered: Option<Vec<Chunk>> =
            offers.map(|offers| offers.iter().flat_map(|offer| &offer.chunks).copied().collect());
        let HighestAllocated { peak, requests, bytes } = self.shared.peaks.highest_allocated();
        let mut state = self.state.lock();
        tuning.recycles &= !self.pool().is_some_and(|pool| pool.keeps() || pool.pinned.load(Relaxed));
        let request = wanted.block_bytes(&state.policy);
        let (runs, at) = match wanted.place {
            None => (state.blocks.runs(), None),
            Some(place) => match state.blocks.run_at(place, request) {
                Some((run, at)) => (vec![run], Some(at)),
                None => return Ok(Err(Obstacle::NoMemory)),
            },
        };
        let mut idle_chunks = state.blocks.idle_chunks();
        if !single {
            idle_chunks.retain(|(chunk, _)| !self.shared.chunks.is_single(chunk.id));
        }
        let plan = policy::decide(&Facts {
            page,
            heaps: heaps as u64,
            request,
            runs: &runs,
            at,
            idle_chunks: &idle_chunks,
            offered: offered.as_deref(),
            held: self.shared.chunks.bytes.load(Relaxed),
            peak: self.shared.chunks.use_peak(peak),
            spending: self.shared.chunks.spending(requests, bytes),
            room: self.shared.room(request.next_multiple_of(page)),
            total: self.shared.device.info().total_memory,
            pressed,
            tuning,
        });
        self.flush_stats(&mut state.blocks);
        Ok(plan.and_then(|plan| self.hold(&mut state, plan, &runs, &idle_chunks).ok_or(Obstacle::NoMemory)))
    }

    /// Holds the place of a plan, and the heap's own chunks that it moves. Returns `None` if the tables are full.
    fn hold(
        &self,
        state: &mut HeapState<D>,
        plan: Plan,
        runs: &[FreeRange],
        idle_chunks: &[(Chunk, BlockId)],
    ) -> Option<HeldPlan<'_, D>> {
        let place = state.blocks.hold(runs[plan.run].anchor, plan.at, plan.end())?;
        let mut chunks = Vec::new();
        for (chunk, block) in idle_chunks.iter().filter(|(chunk, _)| plan.moves(chunk)) {
            let Some(held) = state.blocks.hold(*block, chunk.at, chunk.end()) else {
                let held = chunks.into_iter().map(|(_, held)| held);
                state.blocks.put_back(held.chain(place).collect());
                return None;
            };
            chunks.extend(held.into_iter().map(|held| (*chunk, held)));
        }
        let own = (!chunks.is_empty()).then(|| HeldChunks { heap: self, chunks, _moving: None });
        Some(HeldPlan { heap: self, plan, place, moved: own.into_iter().collect() })
    }

    /// Carries out a plan. Returns [`Tried::NoMemory`] if the device or the limit refuses.
    fn carry_out(self: &Arc<Self>, wanted: Wanted, mut held: HeldPlan<'_, D>) -> hal::Result<Tried> {
        let new = held.plan.new_bytes();
        let totals = &self.shared.totals;
        let Some(reservation) = self.shared.reserve(new) else { return Ok(Tried::NoMemory) };
        // After the fence, no queued work uses the old addresses of chunks that move within the heap.
        let moves = held.moved.iter().any(|moved| ptr::eq(moved.heap, &raw const **self));
        let fence = moves.then(|| Fence::record(&self.stream_state).map(Arc::new)).transpose();
        let filled = fence.map_err(Unfilled::from).and_then(|fence| {
            let passed = OnceCell::new();
            let has_passed = |fence: &Arc<Fence<D>>| *passed.get_or_init(|| fence.passes_soon().unwrap_or(false));
            let vacate = |id| {
                held.moved.iter().find_map(|moved| {
                    // Held chunks receive no work. The stream of another heap was idle after its chunks were held.
                    let own = ptr::eq(moved.heap, &raw const **self);
                    moved.vacant_place(id, || !own || fence.as_ref().is_some_and(has_passed))
                })
            };
            let filled = map::fill(&self.shared, &held.plan.fills, held.plan.kind(), self.is_registered(), vacate)?;
            Ok((fence, filled))
        });
        match filled {
            Ok((fence, Filled { chunks, vacated })) => {
                reservation.keep(new);
                let made = held.plan.fills.iter().filter(|fill| fill.reused.is_none()).count();
                totals.device_allocs.fetch_add(made as u64, Relaxed);
                self.shared.chunks.spend(chunks.len() as u64);
                Ok(Tried::Served(self.commit(wanted, held, &chunks, &vacated, fence.as_slice())))
            }
            Err(Unfilled { error, left, refused, map_failed, lost }) => {
                if map_failed && self.shared.device.virtual_memory()?.mixes_sizes().is_err() {
                    let mut state = self.state.lock();
                    let segment = state.blocks.blocks[held.place[0].block].segment;
                    state.blocks.close_addresses(segment);
                }
                let kept = || left.iter().filter(|left| left.last);
                // Memory that the device did not take back counts as allocated, so that its later release balances.
                totals.device_allocs.fetch_add(kept().count() as u64, Relaxed);
                reservation.keep(kept().map(|left| left.chunk.bytes).sum());
                let heaps_to_clean: Vec<_> = held.moved.iter_mut().filter_map(|moved| moved.give_up(&lost)).collect();
                held.moved.clear();
                self.leave_mapped(&mut held.place, &left);
                drop(held);
                self.release_closed_addresses();
                for heap in heaps_to_clean {
                    heap.unmap_pending();
                }
                for id in &refused {
                    self.shared.chunks.set_single(*id);
                }
                match error.kind() {
                    _ if !refused.is_empty() => Ok(Tried::Refused),
                    ErrorKind::OutOfMemory => Ok(Tried::NoMemory),
                    _ => Err(error),
                }
            }
        }
    }

    /// Allocates the block of a plan whose place now has memory everywhere.
    fn commit(
        self: &Arc<Self>,
        wanted: Wanted,
        mut held: HeldPlan<'_, D>,
        chunks: &[Chunk],
        vacated: &[Chunk],
        fence: &[Arc<Fence<D>>],
    ) -> Allocated {
        let (mut outcome, mut guards) = (CallbackOutcome::default(), Vec::new());
        let kind = held.plan.kind();
        let mut gained = held.plan.new_bytes();
        for moved in held.moved.drain(..) {
            // The heap already has its own chunks; from now on they count for this kind.
            let own = ptr::eq(moved.heap, &raw const **self);
            let lost = |chunk: &Chunk| !own || chunk.kind != kind;
            gained += moved.chunks.iter().map(|(chunk, _)| chunk).filter(|c| lost(c)).map(|c| c.bytes).sum::<u64>();
            let left = |chunk| Leftover { chunk, last: false, mapped: !vacated.contains(&chunk) };
            let heap = moved.heap;
            let (more, gone) = moved.abandon(if own { fence } else { &[] }, lost, left);
            guards.extend(more);
            outcome = outcome.and(heap.tell_unmapped(&gone));
        }
        let place = mem::take(&mut held.place);
        let mut state = self.state.lock();
        let home = SegmentRef { heap: self.number, segment: state.blocks.blocks[place[0].block].segment };
        for chunk in chunks {
            state.blocks.add_chunk(*chunk);
            self.shared.index.set(chunk.at, chunk.bytes, Some(home));
            state.note_gain(TraceAction::SegmentMap, chunk.at, chunk.bytes);
        }
        let bytes = wanted.block_bytes(&state.policy);
        let request = wanted.request;
        let id = state.blocks.commit(&place, bytes, guards);
        self.counters.raise(Counted::ReservedBytes, kind, gained);
        let (allocated, _) = self.mark_allocated_slow(&mut state, id, request);
        self.flush_stats(&mut state.blocks);
        drop(state);
        self.shared.peaks.note(&self.counters);
        for chunk in chunks {
            outcome = outcome.and(self.tell(TraceAction::SegmentMap, chunk.at, chunk.bytes));
        }
        self.tell_alloc(&allocated, request.requested, outcome);
        allocated
    }

    /// Turns the blocks of a place in which the driver left a mapping into pending unmaps. The other blocks remain.
    pub(crate) fn leave_mapped(&self, place: &mut Vec<ReservedBlock>, leftovers: &[Leftover]) {
        let mut state = self.state.lock();
        place.retain(|held| {
            let block = &state.blocks.blocks[held.block];
            let range = block.address..block.end();
            let left: Vec<_> = leftovers.iter().filter(|left| range.contains(&left.chunk.at)).copied().collect();
            if left.is_empty() {
                return true;
            }
            for Leftover { chunk, .. } in left.iter().filter(|left| left.last) {
                self.counters.raise(Counted::ReservedBytes, chunk.kind, chunk.bytes);
            }
            state.blocks.abandon(*held);
            self.add_pending_unmap(PendingUnmap { block: held.block, left, fences: Vec::new() });
            false
        });
    }
}
