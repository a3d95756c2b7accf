//! A finding is an annotation in the history of its allocator.

use cachette::history::{HistoryOptions, Stage};
use cachette::{Allocator, Stream};
use cachette_hal::Use;
use cachette_sanitizer::{DeviceSanitizer, Options};

use crate::bed::sanitized;

#[test]
fn a_finding_is_an_annotation_with_its_address() {
    let sanitizer = DeviceSanitizer::new(Options::default());
    let allocator = Allocator::new(sanitized(&sanitizer));
    sanitizer.track(&allocator);
    allocator.record_history(HistoryOptions::new());
    let (main, side) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let address = reused_by_a_loop(&allocator, &main, &side);

    let snapshot = allocator.snapshot();
    // All histories of the process have the annotations of other tests, too.
    let here = snapshot.annotations.iter().filter(|found| found.name.ends_with(&format!("{address:#x}")));
    let found: Vec<_> = here.map(|found| (found.name.as_str(), found.stage)).collect();
    let name = format!("sanitizer: memory was reused while another stream could still use it, at {address:#x}");
    assert_eq!(found, [(name.as_str(), Stage::Start), (name.as_str(), Stage::End)], "once, though found twice");
}

/// Reuses memory twice while another stream may read it. Returns the address.
fn reused_by_a_loop(allocator: &Allocator, main: &Stream, side: &Stream) -> u64 {
    let mut address = 0;
    for _ in 0..3 {
        let memory = allocator.allocate(1 << 20, main).unwrap();
        main.uses(&memory, Use::Write);
        main.synchronize().unwrap();
        side.uses(&memory, Use::Read);
        address = memory.ptr().unwrap().address();
    }
    address
}
