//! Slices in the hands of cudarc, on the library that imitates NVIDIA's driver.
//!
//! With `CACHETTE_CUDA_LIBRARY=libcuda.so.1` the same tests run on a GPU.

#![expect(clippy::unwrap_used, reason = "these are tests, which the lint does not see without Rust's own harness")]

mod hold;
mod order;
mod refusals;
mod stand_in;
mod uses;

use std::process::ExitCode;
use std::sync::Arc;

use cachette::{Allocator, Backends};
use cachette_cudarc::StreamAllocator;
use cudarc::driver::{CudaContext, CudaStream};
use libtest_mimic::{Arguments, Trial};

/// An allocator, and two streams of its device that it knows.
struct Setting {
    allocator: Allocator,
    context: Arc<CudaContext>,
    cache: StreamAllocator,
    stream: Arc<CudaStream>,
    /// A stream of the same device that the cache does not know.
    stranger: Arc<CudaStream>,
}

impl Setting {
    fn new() -> Self {
        let allocator = Allocator::new(Backends::open("cuda:0").unwrap());
        let context = CudaContext::new(0).unwrap();
        let (stream, stranger) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let cache = StreamAllocator::new(&allocator, &stream).unwrap();
        Self { allocator, context, cache, stream, stranger }
    }

    /// Another stream, which the cache knows.
    fn acquaintance(&self) -> StreamAllocator {
        StreamAllocator::new(&self.allocator, &self.context.new_stream().unwrap()).unwrap()
    }
}

fn main() -> ExitCode {
    stand_in::substitute_driver();
    let cases: &[(&str, fn())] = &[
        ("copies_and_fills_of_cudarc_take_slices", uses::copies_and_fills),
        ("a_part_of_a_slice_is_copied_alone", uses::parts),
        ("a_part_behind_the_end_is_refused", uses::part_behind_the_end),
        ("slices_without_elements_are_slices", uses::no_elements),
        ("freed_memory_serves_the_next_slice", uses::reuse),
        ("slices_are_shared_between_threads", uses::threads),
        ("a_read_in_another_stream_comes_after_the_write", order::read_after_write),
        ("a_write_in_another_stream_comes_after_the_slice_s_own_work", order::write_after_own_work),
        ("a_write_comes_after_the_reads_of_every_stream", order::write_after_reads),
        ("a_read_comes_after_a_write_in_another_stream", order::read_after_foreign_write),
        ("a_drop_holds_memory_that_a_known_stream_uses", order::drop_with_known_stream),
        ("a_drop_orders_reuse_after_a_stranger_s_use", order::drop_with_stranger),
        ("a_stream_may_end_before_the_slice", order::stream_ends_first),
        ("a_stream_of_another_device_is_refused", refusals::other_device),
        ("a_host_allocator_is_refused", refusals::host_allocator),
        ("the_per_thread_stream_is_refused", refusals::per_thread_stream),
        ("out_of_memory_has_the_report", refusals::out_of_memory),
        ("more_bytes_than_numbers_are_refused", refusals::too_many_elements),
    ];
    let run = |case: fn()| {
        move || {
            case();
            Ok(())
        }
    };
    let trials = cases.iter().map(|(name, case)| Trial::test(*name, run(*case))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
