//! Allocators below memory pools.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::thread;

use cachette_sources::NamedSource;
use cachette_torch::{Error, Slot, SlotOptions, counters};

use super::Case;
use super::bed::{self, MIB};

pub(crate) const CASES: &[Case] = &[
    ("p8_a_slot_serves_and_takes_back", serves),
    ("m8_an_exhausted_slot_gives_null", exhausted),
    ("p8_no_split_gives_each_request_a_segment", no_split),
    ("every_slot_has_functions_of_its_own", all_slots),
    ("a_dropped_slot_serves_no_more_and_its_functions_serve_another", dropped),
    ("a_source_that_is_missing_is_told", missing_source),
    ("threads_share_a_slot", threads),
];

type Allocate = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, *mut c_void);

fn create(options: SlotOptions) -> Result<Slot, Error> {
    // SAFETY: 1. no such source is named.
    unsafe { Slot::create(options) }
}

/// The function of a slot as PyTorch knows it: by its address.
pub(crate) fn allocate_function(slot: &Slot) -> Allocate {
    // SAFETY: the address is that of such a function.
    unsafe { std::mem::transmute::<usize, Allocate>(slot.alloc_address()) }
}

fn allocate(slot: &Slot, bytes: u64, device: c_int) -> *mut c_void {
    let function = allocate_function(slot);
    let bytes = usize::try_from(bytes).unwrap();
    // SAFETY: the default stream always exists.
    unsafe { function(bytes, device, ptr::null_mut()) }
}

fn free(address: usize, memory: *mut c_void, device: c_int) {
    // SAFETY: the address is that of such a function.
    let function = unsafe { std::mem::transmute::<usize, Free>(address) };
    // SAFETY: no work uses the memory.
    unsafe { function(memory, 0, device, ptr::null_mut()) };
}

fn serves() {
    let backend = bed::start("");
    let slot = create(SlotOptions::default()).unwrap();
    assert_eq!(slot.stats(0), None);
    let memory = allocate(&slot, 20 * MIB, 0);
    assert!(!memory.is_null());
    let stats = slot.stats(0).unwrap();
    assert_eq!((stats.allocations, stats.allocated_bytes), (1, 20 * MIB));
    assert_eq!(slot.stats(1), None, "other devices are not opened");
    assert!(allocate(&slot, 0, 0).is_null());
    free(slot.free_address(), ptr::null_mut(), 0);
    let device = bed::device(&backend, 0);
    assert_eq!(device.physical_bytes(), 20 * MIB);
    free(slot.free_address(), memory, 0);
    assert_eq!(device.physical_bytes(), 0, "PyTorch caches, the slot does not");
    assert_eq!(cachette_process::opened().count(), 0, "it is apart from the plug-in's own");
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn exhausted() {
    bed::start("");
    let slot = create(SlotOptions::default()).unwrap();
    let first = allocate(&slot, 200 * MIB, 0);
    assert!(allocate(&slot, 200 * MIB, 0).is_null());
    free(slot.free_address(), first, 0);
    assert!(!allocate(&slot, 200 * MIB, 0).is_null());
    assert_eq!(counters().failed_slots, 0, "want of memory is no failure");
}

fn no_split() {
    bed::start("");
    let direct = "expandable_segments:False";
    for (config, no_split, segments) in [(direct, false, 1), (direct, true, 2), ("", true, 2)] {
        let options = SlotOptions { config: config.parse().unwrap(), no_split, ..SlotOptions::default() };
        let slot = create(options).unwrap();
        allocate(&slot, 2 * MIB, 0);
        allocate(&slot, 2 * MIB, 0);
        assert_eq!(slot.stats(0).unwrap().segments, segments);
    }
}

fn all_slots() {
    bed::start("");
    let mut slots: Vec<Slot> = (0..32).map(|_| create(SlotOptions::default()).unwrap()).collect();
    let both = |slot: &Slot| [slot.alloc_address(), slot.free_address()];
    let addresses: HashSet<usize> = slots.iter().flat_map(both).collect();
    assert_eq!(addresses.len(), 64);
    let error = create(SlotOptions::default()).unwrap_err();
    assert_eq!(error, Error::NoSlot { most: 32 });
    assert!(error.to_string().contains("drop one"), "it says what to do");
    let memory = allocate(&slots[9], 2 * MIB, 0);
    let taken: Vec<u64> = slots.iter().map(|slot| slot.stats(0).map_or(0, |stats| stats.allocations)).collect();
    assert_eq!(taken.iter().sum::<u64>(), 1);
    assert_eq!(taken[9], 1);
    free(slots[9].free_address(), memory, 0);
    let number = slots.remove(20).number();
    assert_eq!(create(SlotOptions::default()).unwrap().number(), number);
}

fn dropped() {
    bed::start("");
    let slot = create(SlotOptions::default()).unwrap();
    let (memory, number, address) = (allocate(&slot, 2 * MIB, 0), slot.number(), slot.free_address());
    let function = allocate_function(&slot);
    drop(slot);
    // SAFETY: the default stream always exists.
    assert!(unsafe { function(2 << 20, 0, ptr::null_mut()) }.is_null());
    assert_eq!(counters().failed_slots, 1);
    let other = create(SlotOptions::default()).unwrap();
    assert_ne!(other.number(), number, "what it gave out is not freed yet");
    free(address, memory, 0);
    let next = create(SlotOptions::default()).unwrap();
    assert_eq!(next.number(), number);
    assert_eq!(next.stats(0), None, "it begins anew");
    assert_eq!(counters().unknown_frees, 0);
}

/// No source has memory of host devices, and where no library is installed none is found.
fn missing_source() {
    bed::start("");
    let options = SlotOptions { source: Some(NamedSource::Rccl), ..SlotOptions::default() };
    let slot = create(options).unwrap();
    if slot.open(0).is_ok() {
        return;
    }
    let text = slot.open(0).unwrap_err().to_string();
    assert!(text.contains("RCCL"), "{text}");
    assert!(allocate(&slot, 2 * MIB, 0).is_null());
    assert_eq!(counters().failed_slots, 1);
}

fn threads() {
    bed::start("");
    let slot = create(SlotOptions::default()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let memory = allocate(&slot, 2 * MIB, 1);
                    assert!(!memory.is_null());
                    free(slot.free_address(), memory, 1);
                }
            });
        }
    });
    assert_eq!(slot.stats(1).unwrap().allocations, 0);
    assert_eq!(counters(), cachette_torch::Counters::default());
}
