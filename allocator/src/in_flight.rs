//! Memory on its way to or from the device: a request waits for it before it fails.
//!
//! While one thread returns a segment, other threads find it neither in the heap nor on the device. While one thread
//! allocates a segment, other threads cannot use the room that it reserved, although the device may fail. So a request
//! that finds no memory checks here for such an operation, waits for its end, and tries again.
//!
//! A thread waits without a heap lock, and outside its own allocations and releases. So no two wait for each other.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;

thread_local! {
    /// The number of segments that this thread allocates or releases now. More than one if a source requests memory.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether the thread's last attempt failed for room that a reservation of another thread may return.
    static LIMITED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    state: Mutex<InFlightState>,
    changed: Condvar,
    /// Bytes of the open reservations; changed under the lock.
    undecided: AtomicU64,
}

#[derive(Debug, Default)]
struct InFlightState {
    /// The number of releases in progress.
    releases: u32,
    ended: Ended,
}

impl InFlightState {
    /// Returns whether memory or room became available that this thread's attempt lacked.
    fn has_changed(&self, since: Ended) -> bool {
        let room = LIMITED.get() && self.ended.reservations != since.reservations;
        room || self.ended.releases != since.releases
    }
}

/// The number of operations that had ended at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// Releases that may have returned memory.
    releases: u64,
    /// Reservations that were cancelled.
    reservations: u64,
}

impl InFlight {
    /// Begins an attempt to get memory. Returns the operations that have ended before it.
    pub(crate) fn begin_attempt(&self) -> Ended {
        LIMITED.set(false);
        self.state.lock().ended
    }

    /// Returns whether a failed attempt may succeed: memory or room came back since it began, or may still come back.
    pub(crate) fn may_change(&self, since: Ended) -> bool {
        let state = self.state.lock();
        // A nonzero depth means that the thread is inside a callback of the program.
        DEPTH.get() == 0 && (state.has_changed(since) || self.is_open(&state))
    }

    /// Waits until an operation has ended since the attempt began, or until no operation is in progress.
    pub(crate) fn wait(&self, since: Ended) {
        let mut state = self.state.lock();
        while !state.has_changed(since) && self.is_open(&state) {
            state = Mutex::wait(&self.changed, state);
        }
    }

    pub(crate) fn release(&self) -> Release<'_> {
        self.state.lock().releases += 1;
        DEPTH.set(DEPTH.get() + 1);
        Release { in_flight: self, useful: true, _thread: PhantomData }
    }

    /// Reserves room for `bytes`, and adds them to `held`. Returns `None` if `held` would exceed `limit`, or if all
    /// reservations that are not decided would exceed `budget`.
    pub(crate) fn reserve<'a>(
        &'a self,
        bytes: u64,
        held: &'a AtomicU64,
        limit: u64,
        budget: u64,
    ) -> Option<Reservation<'a>> {
        let _state = self.state.lock();
        let undecided = self.undecided();
        let is_affordable = undecided.saturating_add(bytes) <= budget;
        let within = |held: u64| held.checked_add(bytes).filter(|sum| is_affordable && *sum <= limit);
        let reserved = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        if let Err(held) = reserved
            && bytes > 0
        {
            let decided = held.saturating_sub(undecided);
            LIMITED.set(undecided > 0 && bytes <= budget && decided.saturating_add(bytes) <= limit);
            return None;
        }
        self.undecided.fetch_add(bytes, Ordering::Relaxed);
        DEPTH.set(DEPTH.get() + 1);
        Some(Reservation { in_flight: self, held, bytes, kept: 0, _thread: PhantomData })
    }

    /// Returns the room below `limit`, for an attempt that needs at most `wanted`.
    pub(crate) fn room(&self, wanted: u64, held: &AtomicU64, limit: u64) -> u64 {
        // Read first: a reservation that no longer counts here has left `held` before.
        let undecided = self.undecided();
        let room = limit.saturating_sub(held.load(Ordering::Relaxed));
        if room < wanted {
            LIMITED.set(undecided > 0);
        }
        room
    }

    /// Returns whether an operation is in progress that this thread's attempt can wait for.
    fn is_open(&self, state: &InFlightState) -> bool {
        state.releases > 0 || LIMITED.get() && self.undecided() > 0
    }

    fn undecided(&self) -> u64 {
        // Pairs with the subtraction in `Reservation::drop`.
        self.undecided.load(Ordering::Acquire)
    }
}

/// A release of memory to the device; it ends with the drop.
pub(crate) struct Release<'a> {
    in_flight: &'a InFlight,
    useful: bool,
    /// It ends on the thread whose [`DEPTH`] counts it.
    _thread: PhantomData<*const ()>,
}

impl Release<'_> {
    /// Ends the release without returned memory, so that no request retries.
    pub(crate) fn cancel(mut self) {
        self.useful = false;
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        let mut state = self.in_flight.state.lock();
        state.releases -= 1;
        state.ended.releases += u64::from(self.useful);
        self.in_flight.changed.notify_all();
    }
}

/// Room under the limit for bytes requested from the device. A drop cancels it, even during a panic.
pub(crate) struct Reservation<'a> {
    in_flight: &'a InFlight,
    held: &'a AtomicU64,
    bytes: u64,
    kept: u64,
    /// It ends on the thread whose [`DEPTH`] counts it.
    _thread: PhantomData<*const ()>,
}

impl Reservation<'_> {
    /// Keeps `bytes` of the reservation as held, and cancels the rest.
    pub(crate) fn keep(mut self, bytes: u64) {
        self.kept = bytes;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if self.bytes == 0 {
            return;
        }
        let given_up = self.bytes - self.kept;
        let mut state = self.in_flight.state.lock();
        self.held.fetch_sub(given_up, Ordering::Relaxed);
        // Pairs with the load in `undecided`.
        self.in_flight.undecided.fetch_sub(self.bytes, Ordering::Release);
        if given_up > 0 {
            state.ended.reservations += 1;
            // The device refused, not the limit.
            LIMITED.set(false);
        }
        self.in_flight.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_cancelled_reservation_is_a_reason_to_try_again() {
        let (in_flight, held) = (InFlight::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (end, ends) = mpsc::channel();
            let (in_flight, held) = (&in_flight, &held);
            scope.spawn(move || {
                let reservation = in_flight.reserve(10, held, 10, u64::MAX).expect("there is room");
                tell.send(()).unwrap();
                ends.recv().unwrap();
                drop(reservation);
                tell.send(()).unwrap();
            });
            told.recv().unwrap();
            let since = in_flight.begin_attempt();
            assert!(in_flight.reserve(1, held, 10, u64::MAX).is_none());
            assert!(in_flight.may_change(since), "the reservation is open");
            end.send(()).unwrap();
            told.recv().unwrap();
            assert!(in_flight.may_change(since), "its room came back since");
            in_flight.wait(since);
            assert!(in_flight.reserve(1, held, 10, u64::MAX).is_some());
        });
    }

    #[test]
    fn a_thread_inside_a_call_of_the_program_does_not_wait_for_itself() {
        let (in_flight, held) = (InFlight::default(), AtomicU64::new(0));
        let since = in_flight.begin_attempt();
        let release = in_flight.release();
        assert!(!in_flight.may_change(since), "only this thread releases memory");
        drop(release);
        assert!(in_flight.may_change(since), "memory came back");
        let since = in_flight.begin_attempt();
        let reservation = in_flight.reserve(10, &held, 10, u64::MAX);
        assert!(in_flight.reserve(1, &held, 10, u64::MAX).is_none());
        assert!(!in_flight.may_change(since), "only this thread has reserved room");
        drop(reservation);
    }

    /// Runs `act` while another thread has reserved `bytes` below a limit of 10.
    fn beside_a_reservation(bytes: u64, act: impl FnOnce(&InFlight, &AtomicU64)) {
        let (in_flight, held) = (InFlight::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (end, ends) = mpsc::channel::<()>();
            let (in_flight, held) = (&in_flight, &held);
            scope.spawn(move || {
                let reservation = in_flight.reserve(bytes, held, 10, u64::MAX);
                tell.send(()).unwrap();
                // An error: the end was dropped.
                ends.recv().unwrap_err();
                drop(reservation);
            });
            told.recv().unwrap();
            act(in_flight, held);
            drop(end);
        });
    }

    #[test]
    fn room_that_would_be_just_enough_is_waited_for() {
        for (bytes, waits) in [(10, true), (11, false)] {
            beside_a_reservation(10, |in_flight, held| {
                let since = in_flight.begin_attempt();
                assert!(in_flight.reserve(bytes, held, 10, u64::MAX).is_none());
                assert_eq!(in_flight.may_change(since), waits, "{bytes}");
            });
        }
    }

    #[test]
    fn what_a_former_attempt_lacked_is_not_waited_for() {
        beside_a_reservation(10, |in_flight, held| {
            in_flight.begin_attempt();
            assert!(in_flight.reserve(1, held, 10, u64::MAX).is_none());
            let since = in_flight.begin_attempt();
            assert!(!in_flight.may_change(since), "this attempt had room");
        });
    }

    #[test]
    fn no_room_is_needed_for_no_bytes() {
        let (in_flight, held) = (InFlight::default(), AtomicU64::new(20));
        assert!(in_flight.reserve(0, &held, 10, u64::MAX).is_some());
        assert!(in_flight.reserve(1, &held, 10, u64::MAX).is_none());
    }

    #[test]
    fn an_attempt_with_room_enough_waits_for_no_other() {
        for (wanted, waits) in [(4, false), (5, true)] {
            beside_a_reservation(6, |in_flight, held| {
                let since = in_flight.begin_attempt();
                assert_eq!(in_flight.room(wanted, held, 10), 4);
                assert_eq!(in_flight.may_change(since), waits, "{wanted}");
            });
        }
    }

    #[test]
    fn a_request_beyond_the_budget_waits_for_no_other() {
        for (bytes, waits) in [(7, true), (8, false)] {
            beside_a_reservation(5, |in_flight, held| {
                let since = in_flight.begin_attempt();
                assert!(in_flight.reserve(bytes, held, 100, 7).is_none());
                assert_eq!(in_flight.may_change(since), waits, "{bytes}");
            });
        }
    }

    #[test]
    fn room_is_not_waited_for_if_the_device_refused() {
        beside_a_reservation(6, |in_flight, held| {
            let since = in_flight.begin_attempt();
            assert_eq!(in_flight.room(5, held, 10), 4);
            drop(in_flight.reserve(4, held, 10, u64::MAX));
            assert!(!in_flight.may_change(since), "the device refused the room that there was");
        });
    }

    #[test]
    fn room_that_another_has_used_is_no_reason_to_try_again() {
        let (in_flight, held) = (InFlight::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (end, ends) = mpsc::channel::<()>();
            let (in_flight, held) = (&in_flight, &held);
            let other = scope.spawn(move || {
                let reservation = in_flight.reserve(6, held, 10, u64::MAX).unwrap();
                tell.send(()).unwrap();
                // An error: the end was dropped.
                ends.recv().unwrap_err();
                reservation.keep(6);
            });
            told.recv().unwrap();
            let since = in_flight.begin_attempt();
            assert!(in_flight.reserve(5, held, 10, u64::MAX).is_none());
            assert!(in_flight.may_change(since), "the reservation is open");
            drop(end);
            other.join().unwrap();
            assert!(!in_flight.may_change(since), "all of it was kept");
            let since = in_flight.begin_attempt();
            assert_eq!(in_flight.room(5, held, 10), 4);
            scope.spawn(|| drop(in_flight.reserve(1, held, 10, u64::MAX))).join().unwrap();
            assert!(!in_flight.may_change(since), "no reservation was open");
        });
    }
}
