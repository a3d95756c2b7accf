//! What is known of all devices: histories, and the last request that ran out of memory.

use std::sync::{Arc, Mutex};

use cachette::history::{HistoryOptions, Level};
use cachette_torch::{last_out_of_memory, record_history, records_history};

use crate::Case;
use crate::bed::{self, CAPACITY, DEFAULT, MIB};

pub(crate) const CASES: &[Case] = &[
    (
        "h3_a_history_is_of_every_device_whenever_that_is_first_used",
        histories,
    ),
    (
        "m18_observers_find_the_report_of_the_request_they_are_told_of",
        reports,
    ),
];

/// How many events a device has recorded.
fn events(device: u32) -> usize {
    let snapshot = bed::allocator(device).snapshot();
    snapshot.traces.iter().map(|trace| trace.events.len()).sum()
}

fn histories() {
    bed::start("");
    bed::allocate(MIB, 0, DEFAULT);
    record_history(Some(HistoryOptions::new().level(Level::None)));
    assert!(records_history());
    bed::allocate(MIB, 0, DEFAULT);
    bed::allocate(MIB, 1, DEFAULT);
    // An allocation; on the second device a segment too.
    assert_eq!((events(0), events(1)), (1, 2));
    record_history(None);
    assert!(!records_history());
    assert_eq!((events(0), events(1)), (0, 0));
}

fn reports() {
    bed::start("");
    assert_eq!(last_out_of_memory(), None);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let of_observer = Arc::clone(&seen);
    cachette_torch::on_out_of_memory(move |report| {
        let last = last_out_of_memory().expect("it is kept before anybody is told");
        assert_eq!(*last, *report);
        of_observer
            .lock()
            .unwrap()
            .push((last.device.0, last.requested));
    });
    for device in [0, 1] {
        assert!(bed::allocate(2 * CAPACITY, device, DEFAULT).is_null());
    }
    let told = seen.lock().unwrap().clone();
    assert_eq!(told, [(0, 2 * CAPACITY), (1, 2 * CAPACITY)]);
    assert_eq!(last_out_of_memory().expect("one failed").device.0, 1);
}
