//! The segments of one heap.

use crate::core::BlockId;
use crate::size::{GRAIN, Kind, SMALL_LIMIT};

/// Index of a segment in its heap; a released index is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

/// Memory obtained from the source.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Address of the first byte.
    pub(crate) base: u64,
    /// Size in bytes; a multiple of [`GRAIN`], at most 2^32 grains.
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    /// The block at offset zero.
    pub(crate) first: BlockId,
    /// Segments of one heap in the order in which they were obtained; never used twice.
    pub(crate) age: u32,
    /// For every stretch of `1 << shift` grains, the block known by its address that last began in it.
    ///
    /// Entries are hints, checked against the block: merging leaves stale ones behind.
    starts: Box<[BlockId]>,
    shift: u32,
}

impl Segment {
    pub(crate) fn new(base: u64, bytes: u64, kind: Kind, age: u32) -> Self {
        // Blocks of large segments are longer than the small limit, so no two begin in one stretch of it.
        let shift = match kind {
            Kind::Small => 0,
            Kind::Large => (SMALL_LIMIT / GRAIN).ilog2(),
        };
        let stretches = (bytes / GRAIN).div_ceil(1 << shift);
        Self {
            base,
            bytes,
            kind,
            first: BlockId::NONE,
            age,
            starts: (0..stretches).map(|_| BlockId::NONE).collect(),
            shift,
        }
    }

    /// Remembers that `id` begins at `offset` grains.
    #[inline]
    pub(crate) fn note_start(&mut self, offset: u32, id: BlockId) {
        self.starts[(offset >> self.shift) as usize] = id;
    }

    /// The block that may begin at `offset` grains.
    #[inline]
    pub(crate) fn start_hint(&self, offset: u32) -> BlockId {
        self.starts
            .get((offset >> self.shift) as usize)
            .copied()
            .unwrap_or(BlockId::NONE)
    }
}

/// The segments of one heap.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    slots: Vec<Option<Segment>>,
    vacant: Vec<SegmentId>,
    next_age: u32,
}

impl Segments {
    /// The age the next segment gets; `None` when four billion were obtained.
    pub(crate) fn next_age(&mut self) -> Option<u32> {
        let age = self.next_age;
        self.next_age = age.checked_add(1)?;
        Some(age)
    }

    pub(crate) fn add(&mut self, segment: Segment) -> Option<SegmentId> {
        if let Some(id) = self.vacant.pop() {
            self.slots[id.0 as usize] = Some(segment);
            return Some(id);
        }
        let id = SegmentId(u32::try_from(self.slots.len()).ok()?);
        self.slots.push(Some(segment));
        Some(id)
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.slots.get_mut(id.0 as usize)?.take()?;
        self.vacant.push(id);
        Some(segment)
    }

    #[inline]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Every segment, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0_u32..)
            .zip(&self.slots)
            .filter_map(|(index, slot)| slot.as_ref().map(|segment| (SegmentId(index), segment)))
    }
}
