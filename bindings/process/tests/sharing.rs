//! Several libraries of one process have one cache, one limit and one snapshot.
//!
//! The state belongs to the process, so the promises are kept in one test.

use std::panic::panic_any;

use cachette::hal::StreamRef;
use cachette::snapshot::{BlockState, SnapshotOptions};
use cachette::{Allocator, Error, Label};
use cachette_process::{self as process, Panicked};

const MIB: u64 = 1 << 20;

fn allocate(label: Label, bytes: u64) -> Result<u64, Error> {
    let shared = process::allocator(0).expect("it was started");
    // SAFETY: the default stream always exists.
    unsafe { shared.allocate_raw_as(bytes, StreamRef::DEFAULT, label) }
}

fn free(address: u64) {
    process::allocator(0).expect("it was started").free_raw(address).expect("it is allocated");
}

#[test]
fn libraries_of_a_process_share_cache_limit_and_snapshot() {
    let config = cachette::Config::default();
    assert!(process::start("no such backend", &config).is_err());
    process::start("host", &config).unwrap();
    let (one, two) = (Label::new("one"), Label::new("two"));
    let memory = allocate(one, 24 * MIB).unwrap();
    let reserved = process::find(0).map(Allocator::reserved_bytes);
    free(memory);
    assert_eq!(allocate(two, 24 * MIB).unwrap(), memory, "what one frees serves the other");
    assert_eq!(process::find(0).map(Allocator::reserved_bytes), reserved);

    let small = allocate(one, 512).unwrap();
    let snapshot = process::snapshot(None, SnapshotOptions::default());
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let used = blocks.filter(|block| block.state == BlockState::Allocated);
    let mut labels: Vec<_> = used.map(|block| (block.address, snapshot.texts.get(block.label))).collect();
    labels.sort_unstable();
    let mut wanted = vec![(memory, "two"), (small, "one")];
    wanted.sort_unstable();
    assert_eq!(labels, wanted, "one snapshot says who asked");

    let total = process::find(0).unwrap().device_info().total_memory;
    #[expect(clippy::cast_precision_loss, reason = "the sizes are small")]
    process::find(0).unwrap().set_memory_fraction((48 * MIB) as f64 / total as f64).unwrap();
    let refused = allocate(one, 30 * MIB).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "one limit covers both: {refused}");
    free(memory);
    free(small);
    allocate(one, 30 * MIB).map(free).unwrap();
}

#[test]
fn a_panic_is_an_error_with_its_text() {
    let panics: [fn(); 3] = [|| panic!("fixed"), || panic_any("made".to_owned()), || panic_any(7)];
    let texts = panics.map(|panics| {
        let said = process::guarded(|| {
            panics();
            Ok::<_, Panicked>(())
        });
        said.unwrap_err().0
    });
    assert_eq!(texts, ["fixed", "made", "a panic"]);
}
