//! What stands before the next use of a free block.

/// Something that must have passed before a free block is used again.
pub(crate) trait ReuseGuard: Clone {
    /// Whether waiting for this one makes waiting for `other` needless.
    fn covers(&self, other: &Self) -> bool;
}

/// Adds guards to a list that keeps only those that are needed.
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
