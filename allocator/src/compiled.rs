//! The allocator of [`AnyDevice`], compiled in this crate.
//!
//! A program without optimization links what a crate below it has compiled. So the programs and tests that choose their
//! device at run time do not compile the allocator again.

use std::hint::black_box;

use cachette_hal::AnyDevice;

use crate::pool::{Capture, Graph};
use crate::{Allocation, Allocator, Pinned, PinnedAllocation, Pool, Stream};

/// Makes the compiler keep [`methods`], which nothing calls.
#[used]
static METHODS: fn() = methods;

/// Names the functions that others call; each brings those that it calls itself.
fn methods() {
    macro_rules! compile {
        ($($type:ident: $($name:ident)*;)*) => {
            $($(black_box($type::<AnyDevice>::$name as *const ());)*)*
        };
    }
    compile! {
        Allocator: new with_config allocate stats check empty_cache set_memory_fraction set_config raw_allocations
            largest_available create_stream default_stream adopt_stream allocate_raw allocate_raw_last_freed free_raw
            free_raw_after record_stream_raw base_allocation create_pool create_pool_with open_pool
            begin_allocate_to_pool end_allocate_to_pool create_capture_pool record_history stop_history snapshot
            snapshot_with metrics sleep_tagged wake_tagged prepare_contents;
        Pool: allocate enter enter_all empty_cache stats check_live_allocations begin_capture checkpoint restore
            snapshot sleep wake;
        Allocation: record_stream release_after into_raw;
        Pinned: allocate empty_cache stats allocate_raw free_raw record_stream_raw;
        PinnedAllocation: record_stream into_raw;
        Capture: end;
        Graph: launch;
        Stream: synchronize;
    }
    #[cfg(feature = "ipc")]
    {
        black_box(Allocator::<AnyDevice>::share as *const ());
        black_box(Allocator::<AnyDevice>::open_shared as *const ());
    }
}
