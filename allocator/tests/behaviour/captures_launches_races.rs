//! Graphs that are launched while two threads wait for earlier ones.

use cachette::hal::{Call, CaptureMode, Device, DevicePtr};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{ELASTIC, MIB, TestAllocator, launch};

#[test]
fn p12_a_graph_launched_amid_a_wait_for_earlier_graphs_keeps_its_memory() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let [stream, other] = test.streams();
    let pool = test.allocator.create_capture_pool();
    let id = pool.id();
    let _alive = pool.allocate(MIB, &stream).unwrap();
    let (graph, memory) = test.filling(&pool, &stream, 1);
    launch(&graph, &stream);
    drop((memory, graph));
    let hold = test.hold(&other);
    let (allocator, streams) = (test.allocator.clone(), [stream.clone(), other.clone()]);
    // While the last user leaves and waits for the graph, another thread does so too, and launches another graph.
    let amid = hook.start(Call::Wait, None, move || {
        allocator.empty_cache().unwrap();
        let pool = allocator.open_pool(id).expect("some of its memory is allocated");
        let capture = pool.begin_capture(&streams[0], CaptureMode::Relaxed).unwrap();
        let memory = allocator.allocate(32 * MIB, &streams[0]).unwrap();
        let transfer = allocator.device().transfer().unwrap();
        let at = DevicePtr::new(memory.address()).unwrap();
        // SAFETY: 1. the stream is live. 3. the memory belongs to the graph.
        unsafe { transfer.fill(at, 7, 32 * MIB, streams[0].handle()) }.unwrap();
        drop(memory);
        let graph = capture.end().unwrap();
        launch(&graph, &streams[1]);
        (graph, pool)
    });
    drop(pool);
    let users = amid.result();
    let dropped = start(move || drop(users));
    let waits = is_waiting(&dropped);
    drop(hold);
    let ran = other.synchronize();
    assert!(waits && ran.is_ok(), "the memory of a running graph was released: {waits} {ran:?}");
}
