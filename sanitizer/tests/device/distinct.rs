//! Findings that a reader could not tell apart are one, with a count.

use cachette::Allocator;
use cachette_hal::Use;
use cachette_sanitizer::{DeviceSanitizer, Options};

use crate::bed::sanitized;

#[test]
fn findings_with_the_same_lines_are_one() {
    let sanitizer = DeviceSanitizer::new(Options::default());
    let allocator = Allocator::new(sanitized(&sanitizer));
    sanitizer.track(&allocator);
    let (main, side) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    // The first request takes another path in the allocator than the later ones.
    for _ in 0..4 {
        let memory = allocator.allocate(1 << 20, &main).unwrap();
        main.uses(&memory, Use::Write);
        main.synchronize().unwrap();
        side.uses(&memory, Use::Read);
    }
    let found = sanitizer.findings();
    assert_eq!(found.iter().map(|finding| finding.count).collect::<Vec<_>>(), [3], "{found:?}");
}
