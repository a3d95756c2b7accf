//! The same over a vendor's library, real or emulated: what the environment names.
//!
//! ```text
//! cargo build -p cachette-emulated-cuda
//! CACHETTE_CUDA_LIBRARY=$PWD/target/debug/libcachette_emulated_cuda.so \
//!     cargo test -p cachette --features cuda --test ipc -- --ignored cuda
//! ```

#![cfg(any(feature = "cuda", feature = "hip"))]

use cachette::{Allocator, Backends};

use crate::bytes::{from_hex, holds, put};
use crate::pidfd::came_in;
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB};

/// Shares memory with a second process, both ways, and opens what that one shares.
fn assert_shares(target: &str) {
    for config in [DIRECT, ELASTIC] {
        let device = Backends::open(target).expect("the environment names a library");
        let allocator = Allocator::with_config(device, &config.parse().expect("it is right"));
        let stream = allocator.create_stream().expect("the device makes streams");
        let _before = allocator.allocate(700_000, &stream).expect("there is room");
        let memory = allocator.allocate(41 * MIB, &stream).expect("there is room");
        let (device, at, bytes) = (allocator.device(), memory.address(), memory.bytes());
        put(device, at, bytes, 1);
        let shared = allocator.share(&memory).expect("it can be shared");
        let mut second = Second::start_on(target);
        second.open("it", &shared.handle()).expect("it opens");
        assert_eq!(second.ask("holds it 1").as_deref(), Ok("true"), "{config}");
        let mut third = Second::start_by("pidfd", target);
        if came_in(third.open("it", &shared.handle())) {
            assert_eq!(third.ask("holds it 1").as_deref(), Ok("true"), "{config}");
        }
        drop(third);
        second.ask("put it 2").expect("it writes");
        assert!(holds(device, at, bytes, 2), "{config}");
        second.ask("close it").expect("it closes");
        let handle = second.ask(&format!("share {config} 41 3"));
        let handle = handle.expect("it can be shared");
        let opened = allocator.open_shared(&from_hex(&handle));
        let opened = opened.expect("it opens");
        assert!(holds(device, opened.address(), opened.bytes(), 3), "{config}");
    }
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs NVIDIA's library, or CACHETTE_CUDA_LIBRARY to name the emulated one"]
fn memory_is_shared_over_cuda() {
    assert_shares("cuda");
}

#[cfg(feature = "hip")]
#[test]
#[ignore = "needs AMD's library, or CACHETTE_HIP_LIBRARY to name the emulated one"]
fn memory_is_shared_over_hip() {
    assert_shares("hip");
}
