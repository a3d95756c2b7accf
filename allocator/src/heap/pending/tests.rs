use cachette_hal::Ordinal;
use cachette_hal_host::{HostBackend, HostConfig};

use super::*;
use crate::Allocator;

fn allocator() -> Allocator<cachette_hal_host::HostDevice> {
    Allocator::new(HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap())
}

/// Polls as a request does, or with `all` as a processing of events does. Returns the blocks that became free.
fn poll<D: Device>(pending: &mut PendingFrees<D>, all: bool) -> (Vec<BlockId>, usize) {
    let (mut done, mut count) = (Vec::new(), 0);
    let mut polls = if all { pending.last_polls() } else { pending.next_polls() };
    while !polls.is_empty() {
        count += polls.len();
        let mut next = Vec::new();
        for poll in &polls {
            let passed = poll.ask().unwrap();
            pending.note(poll, passed, &mut done);
            next.extend(pending.after(poll, passed).filter(|_| all));
        }
        polls = next;
    }
    (done, count)
}

#[test]
fn a_fence_covers_only_earlier_ones_even_if_it_was_listed_last() {
    let allocator = allocator();
    let stream = allocator.create_stream().unwrap();
    let user = &stream.heap.stream_state;
    // One thread records a fence. Another one queues work, and lists its own, later fence first.
    let earlier = Fence::record(user).unwrap();
    earlier.wait().unwrap();
    let hold = allocator.device().hold(user.handle).unwrap();
    let later = Fence::record(user).unwrap();
    let mut pending = PendingFrees::default();
    pending.push(BlockId(1), vec![later]);
    pending.push(BlockId(2), vec![earlier]);
    for all in [false, true] {
        for _ in 0..2 {
            assert!(!poll(&mut pending, all).0.contains(&BlockId(1)), "its fence has not passed");
        }
    }
    drop(hold);
}

#[test]
fn all_fences_that_have_passed_are_found_by_few_polls() {
    let allocator = allocator();
    let stream = allocator.create_stream().unwrap();
    let user = &stream.heap.stream_state;
    // Few for the first fences, and for the last ones.
    for (passed, most) in [(0, 2), (1, 4), (2, 4), (3, 6), (5, 6), (64, 14), (100, 14), (999, 11), (1000, 1)] {
        let mut pending = PendingFrees::default();
        let blocks: Vec<_> = (0..1000).map(BlockId).collect();
        for block in &blocks[..passed] {
            pending.push(*block, vec![Fence::record(user).unwrap()]);
        }
        stream.synchronize().unwrap();
        let hold = allocator.device().hold(user.handle).unwrap();
        for block in &blocks[passed..] {
            pending.push(*block, vec![Fence::record(user).unwrap()]);
        }
        let (done, polls) = poll(&mut pending, true);
        assert_eq!(done, blocks[..passed]);
        assert!(polls <= most, "{polls} polls found {passed}");
        drop(hold);
        stream.synchronize().unwrap();
    }
}

#[test]
fn a_request_polls_some_of_many_streams_and_all_in_turn() {
    let allocator = allocator();
    let mut pending = PendingFrees::default();
    let streams: Vec<_> = (0..40).map(|_| allocator.create_stream().unwrap()).collect();
    // The first streams are busy, and do not hide the others.
    let busy = &streams[..POLLED];
    let holds: Vec<_> = busy.iter().map(|stream| allocator.device().hold(stream.handle()).unwrap()).collect();
    for (stream, block) in streams.iter().zip(0..) {
        pending.push(BlockId(block), vec![Fence::record(&stream.heap.stream_state).unwrap()]);
    }
    for idle in &streams[POLLED..] {
        idle.synchronize().unwrap();
    }
    let mut done = Vec::new();
    for _ in 0..3 {
        let (more, polls) = poll(&mut pending, false);
        assert!(polls <= POLLED);
        done.extend(more);
    }
    assert_eq!(done.len(), 40 - POLLED);
    drop(holds);
    for stream in &streams {
        stream.synchronize().unwrap();
    }
    assert_eq!(poll(&mut pending, true).0.len(), POLLED);
    assert!(!pending.has_pending_events());
}

#[test]
fn sets_of_blocks_wait_for_their_last_fence_of_each_stream() {
    let allocator = allocator();
    let streams: Vec<_> = (0..2).map(|_| allocator.create_stream().unwrap()).collect();
    let mark = |of: usize| Fence::record(&streams[of].heap.stream_state).unwrap();
    let mut pending = PendingFrees::default();
    let blocks: Vec<_> = (0..4).map(BlockId).collect();
    let mut points = Vec::new();
    for (block, users) in blocks.iter().zip([&[0, 1][..], &[0], &[1], &[0, 1]]) {
        let fences: Vec<_> = users.iter().map(|of| mark(*of)).collect();
        points.push(fences.iter().map(Fence::order_key).collect::<Vec<_>>());
        pending.push(*block, fences);
    }
    let found = |sets: &[Vec<BlockId>]| -> Vec<Vec<_>> {
        let fences = pending.last_fences_of(sets);
        fences.iter().map(|fences| fences.iter().map(|fence| fence.order_key()).collect()).collect()
    };
    for (block, points) in blocks.iter().zip(&points) {
        assert_eq!(found(&[vec![*block]]), std::slice::from_ref(points));
    }
    let two = found(&[blocks[..2].to_vec(), blocks[2..].to_vec()]);
    assert_eq!(two, [vec![points[1][0], points[0][1]], points[3].clone()]);
    assert_eq!(pending.last_points()[&blocks[0]], points[0][1].1);
}
