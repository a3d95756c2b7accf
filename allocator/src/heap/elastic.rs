//! How an elastic heap gets memory where a request needs it.
//!
//! 1. Plan, under the heap's lock: see `elastic::policy`. Everything the plan touches is held from then on, so
//!    that nobody else gets it.
//! 2. Carry the plan out on the device, with no lock of a heap held.
//! 3. Commit it, or put everything back, under the lock again.
//!
//! Chunks of other heaps are taken only when their stream is past its last use of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind};

use super::stale::Elastic;
use super::{Ask, Heap, State, Taken};
use crate::core::{Chunk, Held, Run, Spare};
use crate::elastic::filling::{self, Unfilled};
use crate::elastic::policy::{self, Decision, Facts, Plan};
use crate::elastic::{self, Tuning, chunks::memory_of};
use crate::fence::Fence;
use crate::index::Home;
use crate::observe::Action;
use crate::size::Kind;
use crate::stats::Counted;

/// How often a plan is made anew because others were faster, or because it lacked something.
const TRIES: usize = 6;

/// A plan with everything it touches in its own heap held.
#[derive(Debug)]
struct Begun {
    plan: Plan,
    place: Vec<Held>,
    /// The heap's own spare chunks that move, and the addresses they leave.
    moved: Vec<(Chunk, Held)>,
}

/// Chunks that another heap could do without.
#[derive(Debug)]
struct Offer<D: Device> {
    heap: Arc<Heap<D>>,
    chunks: Vec<Chunk>,
}

/// Chunks that another heap gives up.
#[derive(Debug)]
struct Lent<D: Device> {
    heap: Arc<Heap<D>>,
    moved: Vec<(Chunk, Held)>,
    /// What stood before their next use there.
    guards: Vec<Arc<Fence<D>>>,
}

/// What came of planning.
#[derive(Debug)]
enum Begin {
    Begun(Begun),
    NoPlace(u64),
    AskOthers,
    NoMemory,
}

impl<D: Device> Heap<D> {
    /// What makes the heap elastic; `None` if its segments are the device's own.
    pub(crate) const fn elastic(&self) -> Option<&Elastic<D>> {
        self.elastic.as_ref()
    }

    /// What chunks are multiples of; `None` if the heap is not elastic.
    pub(crate) fn page(&self) -> Option<u64> {
        self.elastic.as_ref()?;
        memory_of(&self.shared.device).ok().map(elastic::page)
    }

    /// Serves a request by filling holes; `None` if there is no memory for it.
    ///
    /// `others` are the heaps whose spare chunks may serve. When `pressed` nothing that is spare stays so while
    /// memory is wanting. The caller holds [`grow_alone`](Self::grow_alone), on a thread that no capture binds.
    pub(crate) fn fill_for(
        self: &Arc<Self>,
        ask: Ask,
        others: &[Arc<Self>],
        pressed: bool,
    ) -> hal::Result<Option<Taken>> {
        // No device has more.
        if self.policy().round(ask.requested) > self.shared.device.info().total_memory {
            return Ok(None);
        }
        let capturing = self.lane.is_capturing();
        if !capturing {
            self.unmap_stale();
        }
        let tuning = self.shared.settings.tuning();
        let pinned = self.pool().is_some_and(|pool| pool.is_pinned());
        let stays = capturing || pinned || memory_of(&self.shared.device)?.aliases().is_err();
        let tuning = if stays {
            tuning.without_recycling()
        } else {
            tuning
        };
        let mut offers = None;
        for _ in 0..TRIES {
            match self.begin(ask, offers.as_deref(), tuning, pressed)? {
                Begin::Begun(begun) => {
                    match borrow(&begun.plan, offers.as_deref().unwrap_or(&[])) {
                        Ok(Some(lent)) => return self.carry_out(ask, begun, lent),
                        Ok(None) => offers = None,
                        Err(error) => {
                            self.give_up(begun, Vec::new(), &[]);
                            return Err(error);
                        }
                    }
                    self.give_up(begun, Vec::new(), &[]);
                }
                Begin::NoPlace(bytes) => {
                    if !self.reserve_addresses(bytes)? {
                        return Ok(None);
                    }
                }
                Begin::AskOthers => offers = Some(self.offers(others)?),
                Begin::NoMemory => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Plans how to serve a request, and holds everything of this heap that the plan touches.
    fn begin(
        &self,
        ask: Ask,
        offers: Option<&[Offer<D>]>,
        tuning: Tuning,
        pressed: bool,
    ) -> hal::Result<Begin> {
        let page = elastic::page(memory_of(&self.shared.device)?);
        let offered: Option<Vec<Chunk>> = offers.map(|offers| {
            offers
                .iter()
                .flat_map(|offer| offer.chunks.clone())
                .collect()
        });
        let ledger = &self.shared.ledger;
        let requests = ledger.allocations();
        let crest = self
            .shared
            .chunks
            .crest(ledger.highest_allocated(), requests);
        let mut state = self.state.lock();
        let (runs, spares) = (state.shelf.runs(), state.shelf.spares());
        let decision = policy::decide(&Facts {
            page,
            request: state.policy.round(ask.requested),
            runs: &runs,
            spares: &spares,
            offered: offered.as_deref(),
            held: self.shared.chunks.bytes(),
            requests,
            until_most: crest.requests,
            held_then: crest.held,
            spent: self.shared.chunks.spent.load(Relaxed),
            used: crest.used,
            room: self.room(),
            pressed,
            tuning,
        });
        self.publish(&mut state);
        Ok(match decision {
            Decision::Fill(plan) => {
                hold(&mut state, plan, &runs, &spares).map_or(Begin::NoMemory, Begin::Begun)
            }
            Decision::NoPlace(bytes) => Begin::NoPlace(bytes),
            Decision::AskOthers => Begin::AskOthers,
            Decision::NoMemory => Begin::NoMemory,
        })
    }

    /// Bytes that may be asked of the device yet.
    fn room(&self) -> u64 {
        let limit = self.shared.settings.limit.load(Relaxed);
        limit.saturating_sub(self.shared.totals.reserved.load(Relaxed))
    }

    /// What other elastic heaps could do without, of those whose stream is idle.
    fn offers(&self, others: &[Arc<Self>]) -> hal::Result<Vec<Offer<D>>> {
        let mut offers = Vec::new();
        for heap in others {
            if std::ptr::eq(&raw const **heap, self) || heap.elastic.is_none() {
                continue;
            }
            let spares = heap.state.lock().shelf.spares();
            if spares.is_empty() || heap.lane.is_capturing() || !heap.is_idle()? {
                continue;
            }
            let chunks = spares.iter().map(|spare| spare.chunk).collect();
            offers.push(Offer {
                heap: Arc::clone(heap),
                chunks,
            });
        }
        Ok(offers)
    }

    /// Carries out a plan; `None` if the device or the limit says that there is no memory.
    fn carry_out(
        self: &Arc<Self>,
        ask: Ask,
        begun: Begun,
        lent: Vec<Lent<D>>,
    ) -> hal::Result<Option<Taken>> {
        let new = begun.plan.new_bytes();
        let totals = &self.shared.totals;
        let before = totals.reserved.fetch_add(new, Relaxed);
        let allowed = before.saturating_add(new) <= self.shared.settings.limit.load(Relaxed);
        if !allowed && new > 0 {
            totals.reserved.fetch_sub(new, Relaxed);
            self.give_up(begun, lent, &[]);
            return Ok(None);
        }
        let filled = self
            .fence_for(&begun)
            .map_err(Unfilled::from)
            .and_then(|fence| Ok((fence, filling::fill(&self.shared, &begun.plan.fills)?)));
        match filled {
            Ok((fence, chunks)) => {
                let made = begun
                    .plan
                    .fills
                    .iter()
                    .filter(|fill| fill.spare.is_none())
                    .count();
                totals.device_allocs.fetch_add(made as u64, Relaxed);
                self.shared
                    .chunks
                    .spent
                    .fetch_add(begun.plan.fills.len() as u64, Relaxed);
                Ok(Some(self.commit(ask, begun, lent, &chunks, fence.as_ref())))
            }
            Err(Unfilled { error, left }) => {
                let kept = || left.iter().filter(|left| left.chunk.is_some());
                let bytes: u64 = kept().map(|left| left.bytes).sum();
                // What could not be given back counts as got, so that giving it back later adds up.
                totals
                    .device_allocs
                    .fetch_add(kept().count() as u64, Relaxed);
                totals.reserved.fetch_sub(new - bytes, Relaxed);
                self.give_up(begun, lent, &left);
                match error.kind() {
                    ErrorKind::OutOfMemory => Ok(None),
                    _ => Err(error),
                }
            }
        }
    }

    /// The point after which nobody uses the old addresses of chunks that move within the heap.
    fn fence_for(&self, begun: &Begun) -> hal::Result<Option<Arc<Fence<D>>>> {
        if begun.moved.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Fence::record(&self.lane)?)))
    }

    /// Makes a block of the place, now that there is memory under all of it.
    fn commit(
        self: &Arc<Self>,
        ask: Ask,
        begun: Begun,
        lent: Vec<Lent<D>>,
        chunks: &[Chunk],
        fence: Option<&Arc<Fence<D>>>,
    ) -> Taken {
        let Begun { plan, place, moved } = begun;
        let mut guards = Vec::new();
        let mut gained = plan.new_bytes();
        for lent in lent {
            gained += lent.moved.iter().map(|(chunk, _)| chunk.bytes).sum::<u64>();
            guards.extend(lent.guards);
            lent.heap.let_go_of(lent.moved, &[], true);
        }
        guards.extend(self.guards_of_moved(&moved));
        self.let_go_of(moved, fence.map_or(&[], std::slice::from_ref), false);
        let mut state = self.state.lock();
        for chunk in chunks {
            state.shelf.add_chunk(*chunk);
            self.index_chunk(&state, place[0], *chunk);
            state.note_gain(Action::SegmentMap, chunk.at, chunk.bytes);
        }
        let rounded = state.policy.round(ask.requested);
        let id = state.shelf.commit(&place, rounded, guards);
        self.counters
            .raise(Counted::ReservedBytes, Kind::Large, gained);
        let (taken, _) = self.hand_out_carefully(&mut state, id, ask);
        self.publish(&mut state);
        drop(state);
        self.shared.ledger.note();
        for chunk in chunks {
            self.tell(Action::SegmentMap, chunk.at, chunk.bytes);
        }
        self.tell(Action::Alloc, taken.address, ask.requested);
        taken
    }

    fn guards_of_moved(&self, moved: &[(Chunk, Held)]) -> Vec<Arc<Fence<D>>> {
        let state = self.state.lock();
        let guards = moved
            .iter()
            .flat_map(|(_, held)| state.shelf.guards_of(*held));
        guards.collect()
    }

    fn index_chunk(&self, state: &State<D>, place: Held, chunk: Chunk) {
        let home = Home {
            heap: self.number,
            segment: state.shelf.block(place.block).segment,
        };
        self.shared.index.insert(chunk.at, chunk.bytes, home);
    }

    /// Puts everything back that a plan held, but for addresses where something is left on the device.
    fn give_up(&self, begun: Begun, lent: Vec<Lent<D>>, leftovers: &[filling::Leftover]) {
        for Lent { heap, moved, .. } in lent {
            heap.put_back_chunks(moved);
        }
        self.put_back_chunks(begun.moved);
        let mut state = self.state.lock();
        for held in begun.place {
            let block = state.shelf.block(held.block);
            let range = block.address..block.address + block.bytes();
            let here: Vec<_> = leftovers
                .iter()
                .filter(|left| range.contains(&left.at))
                .copied()
                .collect();
            if here.is_empty() {
                state.shelf.put_back(vec![held]);
                continue;
            }
            let kept: u64 = here
                .iter()
                .filter(|left| left.chunk.is_some())
                .map(|left| left.bytes)
                .sum();
            self.counters
                .raise(Counted::ReservedBytes, Kind::Large, kept);
            state.shelf.abandon(held);
            self.add_stale(held.block, here, Vec::new());
        }
    }

    pub(super) fn put_back_chunks(&self, moved: Vec<(Chunk, Held)>) {
        let held = moved.into_iter().map(|(_, held)| held).collect();
        self.state.lock().shelf.put_back(held);
    }

    /// Reserves another range of addresses, with room for `bytes` at least; `false` if there are none left.
    fn reserve_addresses(&self, bytes: u64) -> hal::Result<bool> {
        let memory = memory_of(&self.shared.device)?;
        let (least, mut wish) = self.shared.range_sizes(memory, bytes);
        let start = loop {
            match memory.reserve(wish, None) {
                Ok(start) => break start,
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    if wish == least {
                        return Ok(false);
                    }
                    wish = least.max((wish / 2).next_multiple_of(elastic::page(memory)));
                }
                Err(error) => return Err(error),
            }
        };
        let added = self.add_addresses(start, wish);
        if !added {
            // SAFETY: 1. the range was just reserved and nobody knows it.
            unsafe { memory.release(start, wish) }?;
            return Ok(false);
        }
        self.note_range(start, wish);
        Ok(true)
    }

    /// Puts a range of addresses into the shelf; `false` if its tables are full.
    fn add_addresses(&self, start: DevicePtr, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let Some(id) = state.shelf.add_addresses(start.address(), bytes) else {
            return false;
        };
        let order = self.shared.totals.segments.fetch_add(1, Relaxed);
        state.shelf.set_order(id, order);
        true
    }

    /// Whether everything queued in the heap's stream so far has finished, as far as a short look tells.
    fn is_idle(&self) -> hal::Result<bool> {
        Fence::record(&self.lane)?.passes_soon()
    }

    /// Holds those chunks that are still spare.
    pub(super) fn hold_chunks(&self, wanted: &[Chunk]) -> Vec<(Chunk, Held)> {
        let mut state = self.state.lock();
        let mut moved = Vec::new();
        if state.away.asleep {
            return moved;
        }
        for spare in state.shelf.spares() {
            if !wanted.contains(&spare.chunk) {
                continue;
            }
            let Spare { chunk, block, .. } = spare;
            let held = state.shelf.hold(block, chunk.at, chunk.end());
            moved.extend(held.into_iter().flatten().map(|held| (chunk, held)));
        }
        moved
    }
}

/// Holds the place of a plan, and the chunks of the heap itself that it moves; `None` when the tables are full.
fn hold<D: Device>(
    state: &mut State<D>,
    plan: Plan,
    runs: &[Run],
    spares: &[Spare],
) -> Option<Begun> {
    let place = state
        .shelf
        .hold(runs[plan.run].anchor, plan.at, plan.end())?;
    let mut moved = Vec::new();
    for spare in spares {
        let chunk = spare.chunk;
        if !plan.fills.iter().any(|fill| fill.spare == Some(chunk.id)) {
            continue;
        }
        let Some(held) = state.shelf.hold(spare.block, chunk.at, chunk.end()) else {
            let held = moved.into_iter().map(|(_, held)| held);
            state.shelf.put_back(held.chain(place).collect());
            return None;
        };
        moved.extend(held.into_iter().map(|held| (chunk, held)));
    }
    Some(Begun { plan, place, moved })
}

/// Takes the chunks of other heaps that a plan uses; `None` if one of them is not to be had any more.
fn borrow<D: Device>(plan: &Plan, offers: &[Offer<D>]) -> hal::Result<Option<Vec<Lent<D>>>> {
    let mut lent = Vec::new();
    for offer in offers {
        let used = |chunk: &&Chunk| plan.fills.iter().any(|fill| fill.spare == Some(chunk.id));
        let wanted: Vec<Chunk> = offer.chunks.iter().filter(used).copied().collect();
        if wanted.is_empty() {
            continue;
        }
        let moved = offer.heap.hold_chunks(&wanted);
        let all = moved.len() == wanted.len();
        let guards = offer.heap.guards_of_moved(&moved);
        lent.push(Lent {
            heap: Arc::clone(&offer.heap),
            moved,
            guards,
        });
        // Held now, they can get no further work, so what is in the stream now is all that there will be.
        let idle = if all { offer.heap.is_idle() } else { Ok(false) };
        if matches!(idle, Ok(true)) {
            continue;
        }
        for Lent { heap, moved, .. } in lent {
            heap.put_back_chunks(moved);
        }
        return idle.map(|_| None);
    }
    Ok(Some(lent))
}
