//! Counting the free parts of segments, and detecting that a peak may be exceeded.

use crate::blocks::HeapBlocks;
use crate::size::SegmentKind;

/// Free blocks that are only a part of their segment: memory that cannot be released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl<G> HeapBlocks<G> {
    /// Counts new free parts of segments.
    #[inline]
    pub(crate) fn split_grows(&mut self, kind: SegmentKind, blocks: u64, bytes: u64) {
        let split = &mut self.split[kind as usize];
        split.blocks += blocks;
        split.bytes += bytes;
        let watermark = &self.watermark[kind as usize];
        if split.blocks > watermark.blocks || split.bytes > watermark.bytes {
            let peak_since_flush = &mut self.peak_since_flush[kind as usize];
            peak_since_flush.blocks = peak_since_flush.blocks.max(split.blocks);
            peak_since_flush.bytes = peak_since_flush.bytes.max(split.bytes);
            self.above_watermark = true;
        }
    }

    /// Returns whether the free parts of segments may have exceeded a peak.
    #[inline]
    pub(crate) const fn is_above_watermark(&self) -> bool {
        self.above_watermark
    }

    /// Returns the free parts of segments, by kind: the current value, and the highest since the last call.
    pub(crate) fn take_split(&mut self) -> [(Split, Split); 2] {
        self.above_watermark = false;
        let peak_since_flush = std::mem::take(&mut self.peak_since_flush);
        std::array::from_fn(|kind| {
            let now = self.split[kind];
            let blocks = peak_since_flush[kind].blocks.max(now.blocks);
            let bytes = peak_since_flush[kind].bytes.max(now.bytes);
            (now, Split { blocks, bytes })
        })
    }

    /// Sets the value up to which the free parts of segments exceed no peak.
    pub(crate) const fn set_watermark(&mut self, watermark: [Split; 2]) {
        self.watermark = watermark;
    }
}
