//! The segments of one heap.

use crate::blocks::BlockId;
use crate::blocks::start_index::StartIndex;
use crate::size::SegmentKind;

/// Index of a segment in its heap. Released indices are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

impl SegmentId {
    pub(crate) const FIRST: Self = Self(0);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Address of the first byte.
    pub(crate) base: u64,
    /// Size in bytes: whole units, at most 2^32 of them. For an elastic segment, the address range, mapped or not.
    pub(crate) bytes: u64,
    /// The kind of requests that it serves. An elastic segment serves both kinds and ignores this field.
    pub(crate) kind: SegmentKind,
    /// The block at offset zero.
    pub(crate) first: BlockId,
    /// Position among the segments of its heap in order of creation; never reused.
    pub(crate) age: u32,
    /// How many segments the allocator had obtained before this one.
    pub(crate) order: u64,
}

#[derive(Default)]
pub(crate) struct Segments {
    /// Each with its blocks that are known by their address.
    pub(crate) slots: Vec<Option<(Segment, StartIndex)>>,
    vacant: Vec<SegmentId>,
    next_age: u32,
}

impl Segments {
    /// Returns the age of the next segment, or `None` after four billion segments.
    pub(crate) fn next_age(&mut self) -> Option<u32> {
        let age = self.next_age;
        self.next_age = age.checked_add(1)?;
        Some(age)
    }

    pub(crate) fn add(&mut self, segment: Segment, starts: StartIndex) -> Option<SegmentId> {
        if let Some(id) = self.vacant.pop() {
            self.slots[id.0 as usize] = Some((segment, starts));
            return Some(id);
        }
        let id = SegmentId(u32::try_from(self.slots.len()).ok()?);
        self.slots.push(Some((segment, starts)));
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let (segment, _) = self.slots.get_mut(id.0 as usize)?.take()?;
        self.vacant.push(id);
        Some(segment)
    }

    #[inline]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        Some(&self.slots.get(id.0 as usize)?.as_ref()?.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0_u32..).zip(&self.slots).filter_map(|(index, slot)| Some((SegmentId(index), &slot.as_ref()?.0)))
    }
}
