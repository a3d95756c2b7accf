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
        let quiet = &self.quiet[kind as usize];
        if split.blocks > quiet.blocks || split.bytes > quiet.bytes {
            let high = &mut self.high[kind as usize];
            high.blocks = high.blocks.max(split.blocks);
            high.bytes = high.bytes.max(split.bytes);
            self.loud = true;
        }
    }

    /// Returns whether the free parts of segments may have exceeded a peak.
    #[inline]
    pub(crate) const fn is_above_watermark(&self) -> bool {
        self.loud
    }

    /// Returns the free parts of segments, by kind: the current value, and the highest since the last call.
    pub(crate) fn take_split(&mut self) -> [(Split, Split); 2] {
        self.loud = false;
        let high = std::mem::take(&mut self.high);
        std::array::from_fn(|kind| {
            let now = self.split[kind];
            let blocks = high[kind].blocks.max(now.blocks);
            let bytes = high[kind].bytes.max(now.bytes);
            (now, Split { blocks, bytes })
        })
    }

    /// Sets the value up to which the free parts of segments exceed no peak.
    pub(crate) const fn set_watermark(&mut self, quiet: [Split; 2]) {
        self.quiet = quiet;
    }
}
