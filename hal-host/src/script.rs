//! Counting calls, and failing them on demand.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cachette_hal::{Call, ErrorKind, Guarded};

/// The calls of a device so far, and the planned failures.
#[derive(Debug)]
pub(crate) struct Script {
    counts: Vec<AtomicU64>,
    /// Whether `planned` has entries, so that the usual call takes no lock.
    armed: AtomicBool,
    planned: Guarded<Vec<Planned>>,
}

#[derive(Debug)]
struct Planned {
    /// The kind of call that counts; `None` for every kind.
    call: Option<Call>,
    /// Calls until it happens; 1 is the next.
    left: u64,
    kind: ErrorKind,
}

impl Planned {
    fn counts(&self, call: Call) -> bool {
        self.call.is_none_or(|wanted| wanted == call)
    }
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            counts: Call::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            armed: AtomicBool::new(false),
            planned: Guarded::default(),
        }
    }

    /// Counts one call, and returns its planned failure.
    pub(crate) fn count(&self, call: Call) -> Option<ErrorKind> {
        // Relaxed: the count is independent of other data.
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed);
        // Acquire: pairs with the release in `plan`.
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut planned = self.planned.lock();
        for plan in planned.iter_mut().filter(|plan| plan.counts(call)) {
            plan.left = plan.left.saturating_sub(1);
        }
        // Two may be due at once; the second then applies to the next matching call.
        let due = |plan: &Planned| plan.counts(call) && plan.left == 0;
        let due = planned.iter().position(due)?;
        Some(planned.remove(due).kind)
    }

    /// Makes the `nth` call from now fail: of one kind, or of any if `call` is `None`.
    pub(crate) fn plan(&self, call: Option<Call>, nth: u64, kind: ErrorKind) {
        let mut planned = self.planned.lock();
        planned.push(Planned { call, left: nth.max(1), kind });
        // Release: pairs with the acquire in `count`.
        self.armed.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.planned.lock().clear();
        // Release: pairs with the acquire in `count`.
        self.armed.store(false, Ordering::Release);
    }

    /// Calls of one kind so far, including failed ones.
    pub(crate) fn calls(&self, call: Call) -> u64 {
        // Relaxed: the count is independent of other data.
        self.counts[call as usize].load(Ordering::Relaxed)
    }

    /// Calls of all kinds so far.
    pub(crate) fn total(&self) -> u64 {
        Call::ALL.iter().map(|call| self.calls(*call)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_kind_fails_once() {
        let script = Script::new();
        script.plan(Some(Call::Map), 2, ErrorKind::OutOfMemory);
        assert_eq!(script.count(Call::Map), None);
        assert_eq!(script.count(Call::Unmap), None);
        assert_eq!(script.count(Call::Map), Some(ErrorKind::OutOfMemory));
        assert_eq!(script.count(Call::Map), None);
        assert_eq!((script.calls(Call::Map), script.total()), (3, 4));
    }

    #[test]
    fn two_failures_due_at_once_come_one_after_the_other() {
        let script = Script::new();
        script.plan(None, 1, ErrorKind::Refused);
        script.plan(Some(Call::Poll), 1, ErrorKind::Other);
        assert_eq!(script.count(Call::Poll), Some(ErrorKind::Refused));
        assert_eq!(script.count(Call::Map), None);
        assert_eq!(script.count(Call::Poll), Some(ErrorKind::Other));
        assert_eq!(script.count(Call::Poll), None);
    }

    #[test]
    fn cleared_failures_never_come() {
        let script = Script::new();
        script.plan(None, 1, ErrorKind::Refused);
        script.clear();
        assert_eq!(script.count(Call::Poll), None);
    }
}
