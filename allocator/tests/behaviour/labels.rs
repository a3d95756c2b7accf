//! Labels: who holds memory, by library and by component.

use cachette::{Error, Label, PoolId, PoolOptions};

use crate::fixture::{MIB, Stream, TestAllocator};

/// Raw memory of a library.
fn raw(test: &TestAllocator, bytes: u64, stream: &Stream) -> u64 {
    // SAFETY: the caller keeps the stream.
    unsafe { test.allocator.allocate_raw_as(bytes, stream.handle(), Label::new("cupy")) }.expect("there is room")
}

fn free(test: &TestAllocator, held: &[u64]) {
    for address in held {
        test.allocator.free_raw(*address).expect("it is allocated");
    }
}

#[test]
fn a_thread_that_has_entered_a_label_gives_it_to_raw_memory() {
    let (test, [stream]) = TestAllocator::of(200 * MIB, "").with_streams();
    let mut held = vec![raw(&test, 10 * MIB, &stream)];
    {
        let _cache = Label::new("kv_cache").enter();
        held.push(raw(&test, 20 * MIB, &stream));
        {
            let _weights = Label::new("weights").enter();
            held.push(raw(&test, 30 * MIB, &stream));
        }
        held.push(raw(&test, 40 * MIB, &stream));
    }
    held.push(raw(&test, 12 * MIB, &stream));
    let by_label = test.allocator.memory_holders().by_label;
    assert_eq!(by_label, [("kv_cache", 60 * MIB), ("weights", 30 * MIB), ("cupy", 22 * MIB)]);
    free(&test, &held);
    assert_eq!(test.allocator.memory_holders().by_label, []);
}

#[test]
fn a_label_is_of_one_thread_and_leaves_entered_pools_alone() {
    let (test, [stream]) = TestAllocator::of(200 * MIB, "").with_streams();
    let pool = test.allocator.create_pool_with(PoolOptions::new().tag("weights")).expect("the tag is free");
    let label = Label::new("component").enter();
    let inside = pool.enter(&stream).expect("it is awake");
    let first = raw(&test, 2 * MIB, &stream);
    drop(label);
    // The pool is still entered.
    let second = raw(&test, 4 * MIB, &stream);
    drop(inside);
    let _label = Label::new("component").enter();
    let third = std::thread::scope(|scope| scope.spawn(|| raw(&test, 8 * MIB, &stream)).join()).expect("no panic");
    let held = test.allocator.memory_holders();
    assert_eq!(held.by_label, [("cupy", 12 * MIB), ("component", 2 * MIB)]);
    let [(default, none, _), (of_pool, tag, _)] = &*held.by_pool else { panic!("{held:?}") };
    assert_eq!((*default, &**none), (PoolId::DEFAULT, ""));
    assert_eq!((*of_pool, &**tag), (pool.id(), "weights"));
    free(&test, &[first, second, third]);
}

#[test]
fn errors_and_metrics_have_the_bytes_of_each_label() {
    let (test, [stream, side]) = TestAllocator::of(200 * MIB, "memory_limit:100MiB,never_block:True").with_streams();
    let owned = test.allocate(20 * MIB, &stream);
    let library = raw(&test, 10 * MIB, &stream);
    // Memory that waits for another stream counts, too.
    let hold = test.hold(&side);
    // SAFETY: the stream lives.
    unsafe { test.allocator.record_stream_raw(library, side.handle()) }.expect("the memory is allocated");
    free(&test, &[library]);
    let cache = {
        let _cache = Label::new("kv_cache").enter();
        raw(&test, 40 * MIB, &stream)
    };
    let Err(Error::OutOfMemory(report)) = test.allocator.allocate(80 * MIB, &stream) else { panic!("it is full") };
    assert_eq!(report.by_label, [("kv_cache", 40 * MIB), ("", 20 * MIB), ("cupy", 10 * MIB)]);
    assert_eq!(report.by_label, test.allocator.memory_holders().by_label);
    let named = "; in use by kv_cache 40.00 MiB, others 20.00 MiB, cupy 10.00 MiB";
    assert!(report.to_string().contains(named), "{report}");
    let mut page = String::new();
    test.allocator.metrics().write_prometheus(&mut page, &[]).expect("a string takes all");
    let line = format!("cachette_labelled_bytes{{device=\"0\",backend=\"host\",label=\"kv_cache\"}} {}\n", 40 * MIB);
    assert!(page.contains(&line), "{page}");
    drop((owned, hold));
    free(&test, &[cache]);
}
