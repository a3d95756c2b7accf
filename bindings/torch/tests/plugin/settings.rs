//! Settings that are changed while the plug-in works, as PyTorch's functions hand them on.

use cachette_process::{Error, update_config};
use cachette_torch::cachette_torch_memory_fraction;

use super::Case;
use super::bed::{self, CAPACITY, DEFAULT, MIB, allocate, free};

pub(crate) const CASES: &[Case] = &[
    ("settings_reach_devices_opened_before_and_after", reach),
    ("keys_that_a_later_text_leaves_out_do_as_pytorchs_do", left_out),
    ("a_key_that_pytorch_alone_has_is_returned_and_changes_nothing", unsupported),
    ("a_mistake_leaves_every_setting_as_it_was", mistaken),
    ("m15_a_memory_fraction_holds_once_a_text_names_it", fraction),
    ("m23_other_settings_leave_caching_as_it_was_switched", caching),
    ("x8_elastic_segments_come_and_go_within_a_limit", elastic),
];

fn update(text: &str) {
    let left_out = update_config(text).expect("the text is right");
    assert_eq!(left_out, []);
}

/// The bytes of a block for a request.
fn block(bytes: u64, device: i32) -> u64 {
    let allocator = bed::allocator(u32::try_from(device).unwrap());
    let before = allocator.allocated_bytes();
    let memory = allocate(bytes, device, DEFAULT);
    let taken = allocator.allocated_bytes() - before;
    free(memory, device);
    allocator.empty_cache().unwrap();
    taken
}

fn reach() {
    bed::start("");
    assert_eq!(block(42 * MIB, 0), 42 * MIB);
    update("roundup_power2_divisions:4");
    assert_eq!([0, 1].map(|device| block(42 * MIB, device)), [48 * MIB; 2]);
    let config = cachette_process::config().unwrap();
    assert!(config.to_string().starts_with("roundup_power2_divisions:"));
}

/// `test_allocator_settings`: rounding, splitting and collection return to their defaults, and the others stay.
fn left_out() {
    bed::start("roundup_power2_divisions:4,expandable_segments:False");
    assert_eq!(block(42 * MIB, 0), 48 * MIB);
    update("garbage_collection_threshold:0.5,max_split_size_mb:40");
    assert_eq!(block(42 * MIB, 0), 42 * MIB);
    let text = cachette_process::config().unwrap().to_string();
    assert_eq!(text, "max_split_size_mb:40,garbage_collection_threshold:0.5,expandable_segments:False");
    update("");
    let text = cachette_process::config().unwrap().to_string();
    assert_eq!(text, "expandable_segments:False");
}

fn unsupported() {
    bed::start("");
    let text = "future_key:[a:1G],expandable_segments_reserve_by_class:[a:1G],roundup_power2_divisions:4";
    let left_out = update_config(text).unwrap();
    let [only] = &*left_out else {
        panic!("{left_out:?}");
    };
    assert!(only.to_string().contains("there is no key 'future_key'"), "{only}");
    assert_eq!(block(42 * MIB, 0), 48 * MIB, "the rest holds");
}

fn mistaken() {
    bed::start("");
    update("roundup_power2_divisions:4");
    let error = update_config("expandable_segments:True,max_split_size_mb:2").unwrap_err();
    assert!(matches!(error, Error::Start(_)), "{error:?}");
    assert!(error.to_string().contains("use a whole number of MiB"));
    assert_eq!(block(42 * MIB, 0), 48 * MIB);
    assert!(!cachette_process::config().unwrap().expandable_segments());
}

fn fraction() {
    let limits = || [0, 1].map(|device| bed::allocator(device).memory_limit());
    bed::start("");
    bed::allocator(0);
    update("per_process_memory_fraction:0.5");
    assert_eq!(limits(), [Some(CAPACITY / 2); 2]);
    cachette_torch_memory_fraction(0.25, 0);
    update("expandable_segments:True");
    assert_eq!(limits(), [Some(CAPACITY / 4), Some(CAPACITY / 2)]);
    update("per_process_memory_fraction:1.0");
    assert_eq!(limits(), [None; 2]);
}

fn caching() {
    bed::start("");
    cachette_process::set_caching(false).unwrap();
    update("expandable_segments:True");
    assert!(!cachette_process::caches());
    free(allocate(30 * MIB, 0, DEFAULT), 0);
    assert_eq!(bed::allocator(0).reserved_bytes(), 0);
    cachette_process::set_caching(true).unwrap();
    assert!(cachette_process::config().unwrap().expandable_segments());
}

/// `test_max_split_expandable` and `test_garbage_collect_expandable`.
fn elastic() {
    let (on, off) = ("expandable_segments:True", "expandable_segments:False");
    bed::start("memory_limit:120M");
    for (rest, whole) in [("max_split_size_mb:40", 120 * MIB), ("garbage_collection_threshold:0.5", 80 * MIB)] {
        let set = |switch| update(&format!("{switch},{rest}"));
        set(off);
        let first = allocate(40 * MIB, 0, DEFAULT);
        set(on);
        let second = allocate(40 * MIB, 0, DEFAULT);
        set(off);
        let third = allocate(40 * MIB, 0, DEFAULT);
        assert!(![first, second, third].contains(&std::ptr::null_mut()));
        assert!(allocate(40 * MIB, 0, DEFAULT).is_null());
        for memory in [first, second, third] {
            free(memory, 0);
        }
        let all = allocate(whole, 0, DEFAULT);
        assert!(!all.is_null(), "{rest}");
        free(all, 0);
        bed::allocator(0).empty_cache().unwrap();
    }
}
