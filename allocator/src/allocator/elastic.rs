//! What the elastic segments of each stream hold.

use cachette_hal::{Device, StreamRef};

use super::Allocator;

/// The elastic segments of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElasticSegment {
    /// The stream.
    pub stream: StreamRef,
    /// Bytes of reserved addresses.
    pub addresses: u64,
    /// Bytes of mapped memory, in use or not.
    pub mapped: u64,
}

impl<D: Device> Allocator<D> {
    /// Returns the elastic segments of every stream, in the order in which the streams were first used. Streams without
    /// elastic segments are omitted.
    #[must_use]
    pub fn elastic_segments(&self) -> Vec<ElasticSegment> {
        let heaps = self.inner().heaps.all();
        let segments = heaps.iter().map(|heap| ElasticSegment {
            stream: heap.stream_state.handle(),
            addresses: heap.address_ranges().iter().map(|(_, bytes)| bytes).sum(),
            mapped: heap.reserved(),
        });
        segments.filter(|segment| segment.addresses > 0).collect()
    }
}
