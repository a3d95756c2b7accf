//! How an elastic heap gets memory where a request needs it.
//!
//! 1. Plan, under the heap's lock: see `elastic::policy`. Everything the plan touches is held from then on, so
//!    that nobody else gets it.
//! 2. Carry the plan out on the device, with no lock of a heap held: see `carry_out`.
//! 3. Commit it, or put everything back, under the lock again.
//!
//! Chunks of other heaps are taken only when their stream is past its last use of them: see `lent`.

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

/// How often a plan may fail for the sake of the spare chunks in it, before others are not asked for theirs any more.
const PATIENCE: usize = 3;
/// How often a plan is made anew because it lacked something: addresses, or the offers of others.
const TRIES: usize = 4;

/// A plan with everything it touches in its own heap held.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) plan: Plan,
    pub(crate) place: Vec<ReservedBlock>,
    /// The heap's own spare chunks that move, and the addresses they leave.
    pub(crate) moved: Moved,
}

/// What came of planning.
#[derive(Debug)]
enum Begin {
    Begun(Begun),
    NoPlace(u64),
    AskOthers,
    NoMemory,
}

/// What came of a try to serve a request.
#[derive(Debug)]
pub(crate) enum Tried {
    Served(Allocated),
    /// Chunks of another heap that the plan counted on were gone, or their stream at work again.
    Beaten,
    /// The driver would not map a spare chunk a second time; it is fastened now.
    Refused,
    NoMemory,
}

impl<D: Device> Heap<D> {
    /// What makes the heap elastic; `None` if its segments are the device's own.
    pub(crate) const fn elastic(&self) -> Option<&ElasticState<D>> {
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
    /// memory is wanting. The caller holds [`lock_growth`](Self::lock_growth), on a thread that no capture binds.
    pub(crate) fn fill_for(
        self: &Arc<Self>,
        request: Request,
        others: &[Arc<Self>],
        pressed: bool,
    ) -> hal::Result<Option<Allocated>> {
        // No device has more.
        if self.policy().round(request.requested) > self.shared.device.info().total_memory {
            return Ok(None);
        }
        let capturing = self.stream_state.ask_capturing()?;
        if !capturing {
            self.unmap_pending();
        }
        let mut tuning = self.shared.settings.tuning();
        let pinned = self.pool().is_some_and(|pool| pool.is_pinned());
        let stays = capturing || pinned || memory_of(&self.shared.device)?.aliases().is_err();
        if stays {
            tuning = tuning.without_recycling();
        }
        tuning.whole = self.pool().is_some_and(|pool| pool.whole_segments);
        for tries in 0.. {
            // Others may be faster every time, or the driver refuse, and that is no want of memory: at last nobody is
            // asked, and nothing is moved.
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

    /// Serves a request by one plan; without `others` nobody can be faster.
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

    /// Plans how to serve a request, and holds everything of this heap that the plan touches.
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
        let peaks = &self.shared.peaks;
        let requests = peaks.allocations();
        let use_peak = self.shared.chunks.use_peak(peaks.highest_allocated(), requests);
        let mut state = self.state.lock();
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
        self.flush_stats(&mut state);
        Ok(match decision {
            Decision::Fill(plan) => hold(&mut state, plan, &runs, &idle_chunks).map_or(Begin::NoMemory, Begin::Begun),
            Decision::NoPlace(bytes) => Begin::NoPlace(bytes),
            Decision::AskOthers => Begin::AskOthers,
            Decision::NoMemory => Begin::NoMemory,
        })
    }
}

/// Holds the place of a plan, and the chunks of the heap itself that it moves; `None` when the tables are full.
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
