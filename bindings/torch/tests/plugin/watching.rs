//! What is known of all devices: histories, and the last request that ran out of memory.

use std::ptr;
use std::sync::Mutex;

use cachette_torch::adapter::{Figures, User, cachette_adapter_on_rejection, cachette_adapter_stats};

use crate::Case;
use crate::bed::{self, CAPACITY, DEFAULT, MIB, call};

pub(crate) const CASES: &[Case] = &[("m21_observers_of_rejections_are_told_what_is_reserved", rejections)];

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
