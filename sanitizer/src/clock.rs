//! Vector clocks over streams.

/// How much of the work of each stream is known to precede a point; by the stream's index.
///
/// The work of a stream is counted from one. A stream beyond the end has the count zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    /// Returns whether the work with this number precedes the point.
    pub(crate) fn covers(&self, stream: u32, number: u64) -> bool {
        self.0.get(stream as usize).copied().unwrap_or(0) >= number
    }

    /// Adds all work that precedes `other`. Returns whether that changed anything.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        let mut changed = false;
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            changed |= *other > *own;
            *own = (*own).max(*other);
        }
        changed
    }

    /// Counts one more piece of work of the stream, and returns its number.
    pub(crate) fn advance(&mut self, stream: u32) -> u64 {
        let stream = stream as usize;
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        self.0[stream]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_tells_whether_it_added_anything() {
        let mut clock = Clock(vec![1]);
        assert_eq!(
            [[1].as_slice(), &[], &[0, 0], &[0, 1], &[3]].map(|other| clock.join(&Clock(other.into()))),
            [false, false, false, true, true]
        );
        assert_eq!(clock, Clock(vec![3, 1]));
    }
}
