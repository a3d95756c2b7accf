//! Finds what has the addresses that a restore needs.

use std::fs;

use cachette_hal::Device;

use super::{AddressHolder, AddressRange};
use crate::allocator::allocator_state::AllocatorState;

/// The mappings of this process, one a line.
const MAPPINGS: &str = "/proc/self/maps";

impl<D: Device> AllocatorState<D> {
    /// What has addresses of a range that the driver did not reserve. It looks at every segment, and runs only before an
    /// error.
    pub(super) fn holder_of(&self, range: AddressRange) -> AddressHolder {
        let overlaps = |base: u64, bytes: u64| base < range.end() && range.base < base + bytes;
        for heap in self.heaps.iter() {
            let state = heap.state.lock();
            let segment = state.blocks.segments().find(|segment| overlaps(segment.base, segment.bytes));
            if let Some((start, bytes)) = segment.map(|segment| (segment.base, segment.bytes)) {
                drop(state);
                return AddressHolder::Segment { pool: heap.pool_id().to_string(), start, end: start + bytes };
            }
        }
        let mappings = fs::read_to_string(MAPPINGS).unwrap_or_default();
        mapping_over(&mappings, range).map_or(AddressHolder::Driver, AddressHolder::Mapping)
    }
}

/// The first line of a list of mappings that has addresses of a range.
fn mapping_over(mappings: &str, range: AddressRange) -> Option<String> {
    let overlaps = |line: &&str| {
        let bounds = line.split(' ').next().and_then(|bounds| bounds.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let bounds = bounds.and_then(|(start, end)| Some((number(start)?, number(end)?)));
        bounds.is_some_and(|(start, end)| start < range.end() && range.base < end)
    };
    let found = mappings.lines().find(overlaps)?;
    Some(found.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_that_overlaps_is_named_whole() {
        let mappings = "\
            1000-3000 r--p 00000000 fe:00 12   /usr/lib/a.so\n\
            not a line\n\
            7f0000000000-7f0000200000 ---p 00000000 00:00 0 \n\
            7f0000400000-7f0000600000 rw-s 00000000 00:01 7    /memfd:b (deleted)\n";
        let over = |base, bytes| mapping_over(mappings, AddressRange { base, bytes });
        assert_eq!(over(0x2fff, 1).as_deref(), Some("1000-3000 r--p 00000000 fe:00 12 /usr/lib/a.so"));
        assert_eq!(over(0x3000, 0x1000), None);
        assert_eq!(over(0x7f00_0020_0000, 0x20_0000), None, "both ends are apart");
        let long = over(0x7f00_0020_0000, 0x20_0001);
        assert_eq!(long.as_deref(), Some("7f0000400000-7f0000600000 rw-s 00000000 00:01 7 /memfd:b (deleted)"));
        assert_eq!(over(u64::MAX - 1, 1), None);
    }
}
