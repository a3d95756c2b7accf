//! The driver calls of a restore are linear in its segments. `growth` in `/benches` counts the instructions.

use cachette::addresses::AddressRange;
use cachette::hal::Call;
use cachette_hal_host::HostConfig;

use crate::{Bed, PAGE};

/// The driver calls of a restore with so many segments.
fn calls(count: u64) -> u64 {
    let bed = Bed::on(HostConfig::default().capacity(64 << 30).phantom(true));
    let stream = bed.stream();
    let place = bed.allocator.allocate_growable(3 * count * PAGE, &stream).unwrap();
    let base = place.address();
    drop(place);
    let segments: Vec<_> = (0..count).map(|nth| AddressRange { base: base + 3 * nth * PAGE, bytes: PAGE }).collect();
    let pool = bed.allocator.create_pool();
    let before = bed.device.total_calls();
    pool.restore_segments(&segments, &stream).unwrap();
    assert_eq!(bed.device.calls(Call::Map), count);
    bed.device.total_calls() - before
}

#[test]
fn a_further_segment_costs_four_driver_calls() {
    assert_eq!(calls(400) - calls(200), 200 * 4, "it is reserved, made, mapped and granted");
}
