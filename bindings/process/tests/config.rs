//! A changed configuration holds for every device of the process.
//!
//! The state belongs to the process, so the promises are kept in one test.

use std::sync::Arc;

use cachette::{Allocator, Config};
use cachette_hal_host::{HostBackend, HostConfig};
use cachette_process as process;

const DEVICES: u32 = 2;

fn fraction(device: u32) -> f64 {
    process::allocator(device).expect("there are two").memory_fraction()
}

#[test]
fn a_changed_configuration_holds_for_every_device_and_keeps_what_it_does_not_name() {
    let backend = HostBackend::new(HostConfig::default().devices(DEVICES)).unwrap();
    process::start_on(Arc::new(backend), &Config::default()).unwrap();
    process::allocator(0).unwrap().set_memory_fraction(0.5).unwrap();
    process::update_config("max_split_size_mb:64").unwrap();
    assert_eq!(fraction(0).to_bits(), 0.5_f64.to_bits(), "the text does not name the fraction");

    let splits = |allocator: &Allocator| allocator.config().max_split_bytes();
    assert!(process::find(1).is_none(), "it is opened later");
    assert_eq!(splits(process::allocator(1).unwrap()), splits(process::allocator(0).unwrap()));
    assert_eq!(process::config().map(|config| config.max_split_bytes()), Some(splits(process::allocator(1).unwrap())));
    assert_ne!(splits(process::allocator(1).unwrap()), Config::default().max_split_bytes());

    process::update_config("per_process_memory_fraction:0.25").unwrap();
    assert_eq!([0, 1].map(|device| fraction(device).to_bits()), [0.25_f64.to_bits(); 2], "a change counts for all");
}
