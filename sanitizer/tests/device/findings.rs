//! Equal findings are one, with a count; and each is an annotation in the history of its allocator.

use cachette::Allocator;
use cachette::history::{HistoryOptions, Stage};
use cachette_hal::Use;
use cachette_sanitizer::{DeviceSanitizer, Options};

use crate::bed::sanitized;

#[test]
fn findings_with_the_same_lines_are_one_annotation_with_its_address() {
    let sanitizer = DeviceSanitizer::new(Options::default());
    let allocator = Allocator::new(sanitized(&sanitizer));
    sanitizer.track(&allocator);
    allocator.record_history(HistoryOptions::new());
    let (main, side) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let mut address = 0;
    // The first request takes another path in the allocator than the later ones.
    for _ in 0..4 {
        let memory = allocator.allocate(1 << 20, &main).unwrap();
        main.uses(&memory, Use::Write);
        main.synchronize().unwrap();
        side.uses(&memory, Use::Read);
        address = memory.ptr().unwrap().address();
    }
    let found = sanitizer.findings();
    assert_eq!(found.iter().map(|finding| finding.count).collect::<Vec<_>>(), [3], "{found:?}");

    let snapshot = allocator.snapshot();
    // All histories of the process have the annotations of other tests, too.
    let here = snapshot.annotations.iter().filter(|found| found.name.ends_with(&format!("{address:#x}")));
    let found: Vec<_> = here.map(|found| (found.name.as_str(), found.stage)).collect();
    let name = format!("sanitizer: memory was reused while another stream could still use it, at {address:#x}");
    assert_eq!(found, [(name.as_str(), Stage::Start), (name.as_str(), Stage::End)], "once, though found thrice");
}
