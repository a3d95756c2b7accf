//! The guards of a free block: its next user must wait for them.

/// A condition that must hold before a free block is used again.
pub(crate) trait ReuseGuard: Clone {
    /// Returns whether a wait for this guard makes a wait for `other` unnecessary.
    fn covers(&self, other: &Self) -> bool;
}

/// Adds guards to a list, which keeps only the necessary ones.
pub(crate) fn add_guards<G: ReuseGuard>(list: &mut Vec<G>, more: impl IntoIterator<Item = G>) {
    for guard in more {
        if !list.iter().any(|other| other.covers(&guard)) {
            list.retain(|other| !guard.covers(other));
            list.push(guard);
        }
    }
}

#[cfg(test)]
impl ReuseGuard for () {
    fn covers(&self, (): &Self) -> bool {
        true
    }
}
