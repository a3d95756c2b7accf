//! The rules of placement, written as plainly as they can be: lists that are scanned.

use std::cmp::Reverse;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;

/// What an allocation is to the model: its place, as stream, segment and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) stream: usize,
    /// Counts the segments of the stream, from zero.
    pub(crate) segment: usize,
    pub(crate) offset: u64,
}

#[derive(Clone, Debug)]
struct Block {
    offset: u64,
    bytes: u64,
    /// When it became free; `None` while it is allocated.
    free_since: Option<u64>,
}

#[derive(Clone, Debug)]
struct Segment {
    number: usize,
    bytes: u64,
    small: bool,
    blocks: Vec<Block>,
}

/// Figures that the allocator reports too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) allocations: u64,
    pub(crate) allocated: u64,
    pub(crate) requested: u64,
    pub(crate) segments: u64,
    pub(crate) reserved: u64,
    pub(crate) split: u64,
    pub(crate) split_bytes: u64,
}

/// An allocator that scans.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    streams: Vec<Vec<Segment>>,
    segments_made: Vec<usize>,
    clock: u64,
    limit: u64,
    max_split: Option<u64>,
    live: HashMap<Place, (u64, u64)>,
    pub(crate) peaks: Figures,
}

impl Model {
    pub(crate) fn new(streams: usize, limit: u64, max_split: Option<u64>) -> Self {
        Self {
            streams: vec![Vec::new(); streams],
            segments_made: vec![0; streams],
            clock: 0,
            limit,
            max_split,
            live: HashMap::new(),
            peaks: Figures::default(),
        }
    }

    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Where `bytes` bytes go, and how large their block is; `None` for out of memory.
    pub(crate) fn allocate(&mut self, stream: usize, bytes: u64) -> Option<(Place, u64)> {
        let rounded = bytes.next_multiple_of(512);
        let found = self.find(stream, rounded).or_else(|| {
            if !self.grow(stream, rounded) {
                self.release_all();
                if !self.grow(stream, rounded) {
                    return None;
                }
            }
            // A new segment serves the request it was obtained for, whatever the bound on splitting says.
            Some((self.streams[stream].len() - 1, 0))
        });
        let (segment, block) = found?;
        let place = self.take(stream, segment, block, rounded);
        let size = self.block_bytes(place);
        self.live.insert(place, (bytes, size));
        self.note_peaks();
        Some((place, size))
    }

    /// The best free block: segment and block by index.
    fn find(&self, stream: usize, rounded: u64) -> Option<(usize, usize)> {
        let small = rounded <= MIB;
        let segments = self.streams[stream].iter().enumerate();
        let fitting = segments
            .filter(|(_, segment)| segment.small == small)
            .flat_map(|(s, segment)| {
                let blocks = segment.blocks.iter().enumerate();
                blocks.map(move |(b, block)| (s, b, segment, block))
            })
            .filter(|(.., block)| block.free_since.is_some() && block.bytes >= rounded);
        let best = fitting.min_by_key(|(_, _, segment, block)| {
            // Among equals: small blocks the one freed last, large ones in the youngest segment first.
            let tie = if small {
                (Reverse(block.free_since.unwrap_or(0)), 0)
            } else {
                (Reverse(segment.number as u64), block.offset)
            };
            (block.bytes, tie)
        })?;
        let (s, b, _, block) = best;
        let admitted = self
            .max_split
            .is_none_or(|bound| if rounded < bound { block.bytes < bound } else { block.bytes < rounded + 20 * MIB });
        admitted.then_some((s, b))
    }

    fn take(&mut self, stream: usize, s: usize, b: usize, rounded: u64) -> Place {
        self.clock += 1;
        let clock = self.clock;
        let splittable = self.max_split.is_none_or(|bound| rounded < bound);
        let segment = &mut self.streams[stream][s];
        let left = segment.blocks[b].bytes - rounded;
        let splits = if segment.small { left >= 512 } else { splittable && left > MIB };
        segment.blocks[b].free_since = None;
        let offset = segment.blocks[b].offset;
        if splits {
            segment.blocks[b].bytes = rounded;
            let rest = Block { offset: offset + rounded, bytes: left, free_since: Some(clock) };
            segment.blocks.insert(b + 1, rest);
        }
        Place { stream, segment: segment.number, offset }
    }

    fn grow(&mut self, stream: usize, rounded: u64) -> bool {
        let bytes = if rounded <= MIB {
            2 * MIB
        } else if rounded < 10 * MIB {
            20 * MIB
        } else {
            rounded.next_multiple_of(2 * MIB)
        };
        if self.figures().reserved + bytes > self.limit {
            return false;
        }
        self.clock += 1;
        let number = self.segments_made[stream];
        self.segments_made[stream] += 1;
        self.streams[stream].push(Segment {
            number,
            bytes,
            small: rounded <= MIB,
            blocks: vec![Block { offset: 0, bytes, free_since: Some(self.clock) }],
        });
        true
    }

    /// Gives every unused segment back.
    pub(crate) fn release_all(&mut self) {
        for segments in &mut self.streams {
            segments.retain(|segment| segment.blocks.len() > 1 || segment.blocks[0].free_since.is_none());
        }
    }

    pub(crate) fn free(&mut self, place: Place) {
        self.live.remove(&place);
        self.clock += 1;
        let clock = self.clock;
        let blocks = &mut self.segment_mut(place).blocks;
        let mut at = blocks
            .iter()
            .position(|block| block.offset == place.offset)
            .expect("the model knows every place it gave out");
        blocks[at].free_since = Some(clock);
        if at > 0 && blocks[at - 1].free_since.is_some() {
            blocks[at - 1].bytes += blocks[at].bytes;
            blocks[at - 1].free_since = Some(clock);
            blocks.remove(at);
            at -= 1;
        }
        if at + 1 < blocks.len() && blocks[at + 1].free_since.is_some() {
            blocks[at].bytes += blocks[at + 1].bytes;
            blocks.remove(at + 1);
        }
        self.note_peaks();
    }

    fn segment_mut(&mut self, place: Place) -> &mut Segment {
        let segments = &mut self.streams[place.stream];
        let found = segments.iter_mut().find(|s| s.number == place.segment);
        found.expect("the model knows every segment it holds")
    }

    fn block_bytes(&mut self, place: Place) -> u64 {
        let blocks = &self.segment_mut(place).blocks;
        let block = blocks.iter().find(|block| block.offset == place.offset);
        block.map_or(0, |block| block.bytes)
    }

    /// The figures now.
    pub(crate) fn figures(&self) -> Figures {
        let segments: Vec<&Segment> = self.streams.iter().flatten().collect();
        let split = segments.iter().filter(|segment| segment.blocks.len() > 1);
        let free: Vec<u64> = split
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.free_since.is_some())
            .map(|block| block.bytes)
            .collect();
        Figures {
            allocations: self.live.len() as u64,
            allocated: self.live.values().map(|(_, bytes)| bytes).sum(),
            requested: self.live.values().map(|(requested, _)| requested).sum(),
            segments: segments.len() as u64,
            reserved: segments.iter().map(|segment| segment.bytes).sum(),
            split: free.len() as u64,
            split_bytes: free.iter().sum(),
        }
    }

    fn note_peaks(&mut self) {
        let now = self.figures();
        let peaks = &mut self.peaks;
        peaks.allocations = peaks.allocations.max(now.allocations);
        peaks.allocated = peaks.allocated.max(now.allocated);
        peaks.requested = peaks.requested.max(now.requested);
        peaks.segments = peaks.segments.max(now.segments);
        peaks.reserved = peaks.reserved.max(now.reserved);
        peaks.split = peaks.split.max(now.split);
        peaks.split_bytes = peaks.split_bytes.max(now.split_bytes);
    }
}
