//! Mapping memory in an elastic heap for a request that finds no free block.
//!
//! 1. Plan, under the heap's lock: see `elastic::policy`. The thread then holds every block and chunk of the plan, so
//!    that no other request gets them.
//! 2. Carry the plan out on the device, without the lock of any heap: see `elastic::commit`.
//! 3. Commit the plan, or undo it, under the lock again.
//!
//! A chunk of another heap moves only after that heap's stream has finished its last use: see `elastic::donors`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use crate::blocks::{Chunk, FreeRange, IdleChunk, ReservedBlock};
use crate::elastic::chunk_table::memory_of;
use crate::elastic::donors::{DonorOffer, borrow};
use crate::elastic::moves::Moved;
use crate::elastic::policy::{self, Decision, Facts, Plan};
use crate::elastic::state::ElasticState;
use crate::elastic::{self, Tuning};
use crate::heap::{Allocated, Heap, HeapState, Request};

/// How often a plan may fail because of its idle chunks. After that, other heaps are not asked.
const PATIENCE: usize = 3;
/// How often a plan is repeated because addresses or the offers of other heaps were missing.
const TRIES: usize = 4;

/// A plan whose blocks and chunks in its own heap are held.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) plan: Plan,
    pub(crate) place: Vec<ReservedBlock>,
    /// The heap's own idle chunks that move, and their old addresses.
    pub(crate) moved: Moved,
}

/// The result of planning.
#[derive(Debug)]
enum Begin {
    Begun(Begun),
    NoPlace(u64),
    AskOthers,
    NoMemory,
}

/// The result of one attempt to serve a request.
#[derive(Debug)]
pub(crate) enum Tried {
    Served(Allocated),
    /// Another thread took chunks that the plan needed, or their stream is busy again.
    Beaten,
    /// The driver refused to map an idle chunk a second time. The chunk is now pinned.
    Refused,
    NoMemory,
}

impl<D: Device> Heap<D> {
    /// The elastic state; `None` if the segments come from the device.
    pub(crate) const fn elastic(&self) -> Option<&ElasticState<D>> {
        self.elastic.as_ref()
    }

    /// The unit of chunk sizes; `None` if the heap is not elastic.
    pub(crate) fn page(&self) -> Option<u64> {
        self.elastic.as_ref()?;
        memory_of(&self.shared.device).ok().map(elastic::page)
    }

    /// Serves a request by filling unmapped ranges. Returns `None` if there is not enough memory.
    ///
    /// `others` are the heaps whose idle chunks can be moved. When `pressed`, the plan uses every idle chunk before the
    /// request fails. The caller holds [`lock_growth`](Self::lock_growth), on a thread whose driver calls no capture
    /// restricts.
    pub(crate) fn fill_for(
        self: &Arc<Self>,
        request: Request,
        others: &[Arc<Self>],
        pressed: bool,
    ) -> hal::Result<Option<Allocated>> {
        // No device has more memory.
        if self.policy().round(request.requested) > self.shared.device.info().total_memory {
            return Ok(None);
        }
        let capturing = self.stream_state.ask_capturing()?;
        if !capturing {
            self.unmap_pending();
        }
        let mut tuning = self.shared.settings.tuning();
        if capturing || memory_of(&self.shared.device)?.aliases().is_err() {
            tuning = tuning.without_recycling();
        }
        tuning.whole = self.pool().is_some_and(|pool| pool.whole_segments);
        for tries in 0.. {
            // Other threads can win every race, and the driver can refuse every move, while memory is available. The
            // last attempts therefore ask no other heap and move no chunk.
            let others = if tries < PATIENCE { others } else { &[] };
            match self.try_to_fill(request, others, tuning, pressed)? {
                Tried::Served(allocated) => return Ok(Some(allocated)),
                Tried::Refused if tries >= PATIENCE => tuning = tuning.without_recycling(),
                Tried::Beaten | Tried::Refused => {}
                Tried::NoMemory => break,
            }
        }
        Ok(None)
    }

    /// Serves a request with one plan. Without `others`, no other thread can take a chunk of the plan.
    fn try_to_fill(
        self: &Arc<Self>,
        request: Request,
        others: &[Arc<Self>],
        tuning: Tuning,
        pressed: bool,
    ) -> hal::Result<Tried> {
        let mut offers = None;
        for _ in 0..TRIES {
            match self.begin(request, offers.as_deref(), tuning, pressed)? {
                Begin::Begun(begun) => {
                    return match borrow(&begun.plan, offers.as_deref().unwrap_or(&[])) {
                        Ok(Some(lent)) => self.carry_out(request, begun, lent),
                        missed => {
                            self.undo(begun, Vec::new(), &[]);
                            missed.map(|_| Tried::Beaten)
                        }
                    };
                }
                Begin::NoPlace(bytes) => {
                    if !self.reserve_addresses(bytes)? {
                        break;
                    }
                }
                Begin::AskOthers => offers = Some(self.offers(others)?),
                Begin::NoMemory => break,
            }
        }
        Ok(Tried::NoMemory)
    }

    /// Plans how to serve a request, and holds every block and chunk of this heap in the plan.
    fn begin(
        &self,
        request: Request,
        offers: Option<&[DonorOffer<D>]>,
        tuning: Tuning,
        pressed: bool,
    ) -> hal::Result<Begin> {
        let page = elastic::page(memory_of(&self.shared.device)?);
        let offered: Option<Vec<Chunk>> =
            offers.map(|offers| offers.iter().flat_map(|offer| offer.chunks.clone()).collect());
        let (used, then, requests) = self.shared.peaks.highest_allocated();
        let use_peak = self.shared.chunks.use_peak((used, then), requests);
        let mut state = self.state.lock();
        let pinned = self.pool().is_some_and(|pool| pool.is_pinned());
        let tuning = if pinned { tuning.without_recycling() } else { tuning };
        let (runs, mut idle_chunks) = (state.blocks.runs(), state.blocks.idle_chunks());
        self.shared.chunks.retain_movable(&mut idle_chunks, |spare| spare.chunk.id);
        let request = state.policy.round(request.requested);
        let decision = policy::decide(&Facts {
            page,
            request,
            runs: &runs,
            idle_chunks: &idle_chunks,
            offered: offered.as_deref(),
            held: self.shared.chunks.bytes(),
            requests,
            until_most: use_peak.requests,
            held_then: use_peak.held,
            spent: self.shared.chunks.spent.load(Relaxed),
            used: use_peak.used,
            room: self.shared.room(request),
            pressed,
            tuning,
        });
        self.flush_stats(&mut state.blocks);
        Ok(match decision {
            Decision::Fill(plan) => hold(&mut state, plan, &runs, &idle_chunks).map_or(Begin::NoMemory, Begin::Begun),
            Decision::NoPlace(bytes) => Begin::NoPlace(bytes),
            Decision::AskOthers => Begin::AskOthers,
            Decision::NoMemory => Begin::NoMemory,
        })
    }
}

/// Holds the place of a plan, and the heap's own chunks that it moves. Returns `None` if the tables are full.
fn hold<D: Device>(
    state: &mut HeapState<D>,
    plan: Plan,
    runs: &[FreeRange],
    idle_chunks: &[IdleChunk],
) -> Option<Begun> {
    let place = state.blocks.hold(runs[plan.run].anchor, plan.at, plan.end())?;
    let mut moved = Moved::none();
    for spare in idle_chunks {
        let chunk = spare.chunk;
        if !plan.fills.iter().any(|fill| fill.spare == Some(chunk.id)) {
            continue;
        }
        let Some(held) = state.blocks.hold(spare.block, chunk.at, chunk.end()) else {
            let held = moved.chunks.into_iter().map(|(_, held)| held);
            state.blocks.put_back(held.chain(place).collect());
            return None;
        };
        moved.chunks.extend(held.into_iter().map(|held| (chunk, held)));
    }
    Some(Begun { plan, place, moved })
}
