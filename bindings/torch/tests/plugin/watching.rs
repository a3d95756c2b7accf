//! What is known of all devices: histories, and the last request that ran out of memory.

use std::ptr;
use std::sync::{Arc, Mutex};

use cachette::history::{HistoryOptions, Level};
use cachette_process::{last_out_of_memory, record_history, records_history};
use cachette_torch::adapter::{Figures, User, cachette_adapter_on_rejection, cachette_adapter_stats};

use crate::Case;
use crate::bed::{self, CAPACITY, DEFAULT, MIB, call};

pub(crate) const CASES: &[Case] = &[
    ("h3_a_history_is_of_every_device_whenever_that_is_first_used", histories),
    ("m18_observers_find_the_report_of_the_request_they_are_told_of", reports),
    ("m21_observers_of_rejections_are_told_what_is_reserved", rejections),
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
    cachette_process::on_out_of_memory(move |report| {
        let last = last_out_of_memory().expect("it is stored before the callbacks run");
        assert_eq!(*last, *report);
        of_observer.lock().unwrap().push((last.device.0, last.requested));
    });
    for device in [0, 1] {
        assert!(bed::allocate(2 * CAPACITY, device, DEFAULT).is_null());
    }
    let told = seen.lock().unwrap().clone();
    assert_eq!(told, [(0, 2 * CAPACITY), (1, 2 * CAPACITY)]);
    assert_eq!(last_out_of_memory().expect("one failed").device.0, 1);
}

/// What the observer of rejections was told last.
static REJECTED: Mutex<Option<(i64, u64, u64, u64)>> = Mutex::new(None);

unsafe extern "C" fn rejected(_: User, device: i64, asked: u64, reserved: u64, total: u64) {
    *REJECTED.lock().unwrap() = Some((device, asked, reserved, total));
}

fn rejections() {
    bed::start("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5");
    call!(cachette_adapter_on_rejection(rejected, User(ptr::null_mut())));
    bed::allocate(100 * MIB, 0, DEFAULT);
    assert_eq!(*REJECTED.lock().unwrap(), None);
    assert!(bed::allocate(60 * MIB, 0, DEFAULT).is_null());
    let told = REJECTED.lock().unwrap().expect("it was rejected");
    assert_eq!(told, (0, 60 * MIB, 100 * MIB, CAPACITY));
    let mut figures = Figures::default();
    call!(cachette_adapter_stats(0, &raw mut figures));
    assert_eq!(figures.counts[6], 1);
}
