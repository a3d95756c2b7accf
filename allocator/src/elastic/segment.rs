//! How much an elastic segment of a stream has.

use cachette_hal::{Device, StreamRef};

use crate::allocator::Allocator;

/// What a stream has of elastic segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElasticSegment {
    /// The stream.
    pub stream: StreamRef,
    /// Bytes of addresses that are reserved for it.
    pub addresses: u64,
    /// Bytes of memory that it holds there, unused or not.
    pub mapped: u64,
}

impl<D: Device> Allocator<D> {
    /// What every stream has of elastic segments, in the order in which the streams came; streams that never had
    /// any are left out.
    #[must_use]
    pub fn elastic_segments(&self) -> Vec<ElasticSegment> {
        let heaps = self.inner().heaps.all();
        let segments = heaps.iter().map(|heap| ElasticSegment {
            stream: heap.stream_state().handle(),
            addresses: heap.address_bytes(),
            mapped: if heap.elastic().is_some() { heap.reserved() } else { 0 },
        });
        segments.filter(|segment| segment.addresses > 0).collect()
    }
}
