//! Typed buffers on a device in host memory: reads return what was written, in order, on every stream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../behaviour/bed.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod bed;
mod waits;

use std::fmt::Debug;

use bytemuck::Pod;
use cachette::hal::{Call, ErrorKind, Feature, Missing, Ordinal, Reason};
use cachette::{Allocator, Buffer, Config, Error};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice, Live};

use bed::{PATIENCE, Started, is_waiting, start};

type Lane = cachette::Stream<HostDevice>;

fn open(host: HostConfig) -> (HostDevice, Allocator<HostDevice>) {
    let backend = HostBackend::new(host).expect("such a device can be made");
    let device = backend.device(Ordinal(0)).expect("there is a first device");
    (device.clone(), Allocator::new(device))
}

fn bed() -> (HostDevice, Allocator<HostDevice>) {
    open(HostConfig::default())
}

fn streams(allocator: &Allocator<HostDevice>) -> (Lane, Lane) {
    let make = || allocator.create_stream().expect("the device makes streams");
    (make(), make())
}

/// A buffer on `stream` with `content`.
fn buffer<T: Pod>(allocator: &Allocator<HostDevice>, stream: &Lane, content: &[T]) -> Buffer<T, HostDevice> {
    let mut buffer = allocator.allocate_buffer(content.len(), stream).unwrap();
    buffer.write(content).unwrap();
    buffer
}

/// The answer, which comes.
fn answer<T>(started: &Started<T>) -> T {
    let answer = started.recv_timeout(PATIENCE);
    answer.expect("nothing is in the way")
}

/// Drops the allocator, and checks that the device has everything back.
fn assert_returns_everything(device: &HostDevice, allocator: Allocator<HostDevice>) {
    allocator.check().expect("every invariant holds");
    drop(allocator);
    assert_eq!(device.live(), Live::default());
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn what_is_written_is_read() {
    fn round_trip<T: Pod + Debug + PartialEq>(content: &[T]) {
        let (device, allocator) = bed();
        let stream = allocator.create_stream().unwrap();
        let buffer = buffer(&allocator, &stream, content);
        assert_eq!((buffer.len(), buffer.is_empty()), (content.len(), false));
        let bytes = size_of_val(content) as u64;
        assert_eq!(buffer.allocation().requested(), bytes);
        assert_eq!(buffer.ptr(), buffer.allocation().ptr());
        assert_eq!(buffer.stream().handle(), stream.handle());
        assert_eq!(buffer.read().unwrap(), content);
        drop((buffer, stream));
        assert_returns_everything(&device, allocator);
    }
    round_trip::<u8>(b"a");
    round_trip(&[1.5_f32, -0.25, f32::MAX]);
    round_trip(&(0..300_000).map(|n| n * 0x9E37_79B9).collect::<Vec<u64>>());
    round_trip(&[[1_u16, 2, 3], [4, 5, 6]]);
}

#[test]
fn a_fill_sets_every_byte_in_stream_order() {
    let (device, allocator) = bed();
    let stream = allocator.create_stream().unwrap();
    let mut buffer = buffer(&allocator, &stream, &[7_u32; 1000]);
    let hold = device.hold(stream.handle()).unwrap();
    buffer.fill(0xAB).unwrap();
    let reading = start(move || buffer.read());
    assert!(is_waiting(&reading));
    hold.release();
    assert_eq!(answer(&reading).unwrap(), [0xABAB_ABAB; 1000]);
}

#[test]
fn work_without_waiting_keeps_its_order() {
    let (device, allocator) = bed();
    let stream = allocator.create_stream().unwrap();
    let mut buffer = allocator.allocate_buffer::<u64>(2, &stream).unwrap();
    let hold = device.hold(stream.handle()).unwrap();
    let (from, mut to) = ([3, 4], [0, 0]);
    // SAFETY: 1. `from` lives, unchanged, beyond the wait below.
    unsafe { buffer.write_async(&from) }.unwrap();
    // SAFETY: 1. `to` is not touched before the wait below.
    unsafe { buffer.read_async(&mut to) }.unwrap();
    buffer.fill(0).unwrap();
    hold.release();
    stream.synchronize().unwrap();
    assert_eq!((to, buffer.read().unwrap()), (from, vec![0, 0]));
}

#[test]
fn elements_must_be_as_many_as_the_buffer_has() {
    let (device, allocator) = bed();
    let (stream, side) = streams(&allocator);
    let mut three = buffer(&allocator, &stream, &[1_u8, 2, 3]);
    let two = buffer(&allocator, &side, &[8_u8, 9]);
    let wrong = |given| Err(Error::LengthMismatch { len: 3, given });
    let calls = device.total_calls();
    assert_eq!(three.write(&[1, 2]), wrong(2));
    assert_eq!(three.write(&[]), wrong(0));
    assert_eq!(three.copy_from(&two), wrong(2));
    // SAFETY: 1. nothing is queued.
    assert_eq!(unsafe { three.write_async(&[0; 4]) }, wrong(4));
    // SAFETY: 1. nothing is queued.
    assert_eq!(unsafe { three.read_async(&mut [0; 4]) }, wrong(4));
    assert_eq!(device.total_calls(), calls);
    assert_eq!(three.read().unwrap(), [1, 2, 3]);
    let text = wrong(2).unwrap_err().to_string();
    let expected = "the buffer has 3 elements and 2 were given; give as many as it has";
    assert_eq!(text, expected);
}

#[test]
fn lengths_beyond_any_device_are_refused() {
    let (device, allocator) = bed();
    let stream = allocator.create_stream().unwrap();
    let calls = device.total_calls();
    let error = allocator.allocate_buffer::<u64>(usize::MAX / 4, &stream);
    let error = error.unwrap_err();
    let (len, element_bytes) = (usize::MAX / 4, 8);
    assert_eq!(error, Error::TooManyElements { len, element_bytes });
    assert!(error.to_string().contains("elements of 8 bytes"), "{error}");
    let error = allocator.allocate_buffer::<u64>(1 << 57, &stream);
    assert_eq!(error.unwrap_err(), Error::TooLarge { bytes: 1 << 60 });
    assert_eq!(device.total_calls(), calls);
}

#[test]
fn a_buffer_without_bytes_queues_nothing() {
    fn of<T: Pod + Debug + PartialEq>(content: &[T]) {
        let (device, allocator) = open(HostConfig::default().without(Feature::Transfer));
        let (stream, side) = streams(&allocator);
        let calls = device.total_calls();
        let mut empty = buffer(&allocator, &stream, content);
        let other = buffer(&allocator, &side, content);
        assert_eq!((empty.len(), empty.ptr()), (content.len(), None));
        empty.fill(1).unwrap();
        empty.copy_from(&other).unwrap();
        assert_eq!(empty.read().unwrap(), content);
        assert_eq!(device.total_calls(), calls);
    }
    of::<f32>(&[]);
    of(&[(), ()]);
}

#[test]
fn a_device_that_cannot_transfer_says_why() {
    let (device, allocator) = open(HostConfig::default().without(Feature::Transfer));
    let (stream, side) = streams(&allocator);
    let mut buffer = allocator.allocate_buffer::<f32>(4, &stream).unwrap();
    let other = allocator.allocate_buffer::<f32>(4, &side).unwrap();
    let by = Reason::SwitchedOff("the host device's configuration");
    let missing = Missing::new(Feature::Transfer, by);
    let calls = device.total_calls();
    let why = Error::Missing(missing);
    assert_eq!(buffer.write(&[0.0; 4]), Err(why.clone()));
    assert_eq!(buffer.read(), Err(why.clone()));
    assert_eq!(buffer.fill(0), Err(why.clone()));
    assert_eq!(buffer.copy_from(&other), Err(why));
    assert_eq!(device.total_calls(), calls);
}

#[test]
fn a_copy_comes_after_what_the_sources_stream_had_to_write() {
    let (device, allocator) = bed();
    let (stream, side) = streams(&allocator);
    let mut from = buffer(&allocator, &stream, &[1_u8; 5000]);
    let mut to = buffer(&allocator, &side, &[2_u8; 5000]);
    let hold = device.hold(stream.handle()).unwrap();
    from.fill(3).unwrap();
    to.copy_from(&from).unwrap();
    let reading = start(move || to.read());
    assert!(is_waiting(&reading), "the copy did not wait for the fill");
    hold.release();
    assert_eq!(answer(&reading).unwrap(), [3; 5000]);
}

#[test]
fn a_write_into_the_source_comes_after_the_copy() {
    let (device, allocator) = bed();
    let (stream, side) = streams(&allocator);
    let mut from = buffer(&allocator, &stream, &[1_u8; 5000]);
    let mut to = buffer(&allocator, &side, &[2_u8; 5000]);
    let hold = device.hold(side.handle()).unwrap();
    to.copy_from(&from).unwrap();
    // The copy only reads `from`, so another read does not wait.
    assert_eq!(from.read().unwrap(), [1; 5000]);
    from.fill(3).unwrap();
    let reading = start(move || from.read());
    assert!(is_waiting(&reading), "the fill did not wait for the copy");
    hold.release();
    assert_eq!(answer(&reading).unwrap(), [3; 5000]);
    assert_eq!(to.read().unwrap(), [1; 5000]);
}

#[test]
fn a_copy_to_and_fro_waits_only_where_it_must() {
    let (device, allocator) = bed();
    let (stream, side) = streams(&allocator);
    let from = buffer(&allocator, &stream, &[1_u8; 64]);
    let mut near = buffer(&allocator, &stream, &[2_u8; 64]);
    let calls = device.calls(Call::StreamWait);
    near.copy_from(&from).unwrap();
    assert_eq!(device.calls(Call::StreamWait), calls);
    let mut far = buffer(&allocator, &side, &[3_u8; 64]);
    far.copy_from(&from).unwrap();
    far.copy_from(&near).unwrap();
    assert_eq!(device.calls(Call::StreamWait), calls + 2);
    near.fill(4).unwrap();
    near.fill(5).unwrap();
    assert_eq!(device.calls(Call::StreamWait), calls + 3);
    assert_eq!(far.read().unwrap(), [1; 64]);
}

#[test]
fn a_source_that_is_dropped_keeps_its_memory_until_the_copy_is_done() {
    let (device, allocator) = bed();
    let (stream, side) = streams(&allocator);
    let from = buffer(&allocator, &stream, &[1_u8; 5000]);
    let mut to = buffer(&allocator, &side, &[2_u8; 5000]);
    let address = from.ptr();
    let hold = device.hold(side.handle()).unwrap();
    to.copy_from(&from).unwrap();
    drop(from);
    let next = buffer(&allocator, &stream, &[9_u8; 5000]);
    assert_ne!(next.ptr(), address);
    hold.release();
    assert_eq!(to.read().unwrap(), [1; 5000]);
    let again = buffer(&allocator, &stream, &[8_u8; 5000]);
    assert_eq!(again.ptr(), address);
}

#[test]
fn buffers_of_two_allocators_are_not_copied() {
    let (device, allocator) = bed();
    let other = Allocator::new(device.clone());
    let here = allocator.create_stream().unwrap();
    let there = other.create_stream().unwrap();
    let mut to = buffer(&allocator, &here, &[1_u8]);
    let from = buffer(&other, &there, &[2_u8]);
    let calls = device.total_calls();
    assert_eq!(to.copy_from(&from), Err(Error::ForeignBuffer));
    assert_eq!(device.total_calls(), calls);
    let foreign = allocator.allocate_buffer::<u8>(1, &there);
    assert_eq!(foreign.unwrap_err(), Error::ForeignStream);
}

#[test]
fn lent_memory_is_copied_in_order_too() {
    let (device, allocator) = bed();
    let lends: Config = "lend_across_streams:True".parse().unwrap();
    allocator.set_config(&lends);
    let (owner, borrower) = streams(&allocator);
    let address = buffer(&allocator, &owner, &[1_u8; 5000]).ptr();
    let from = buffer(&allocator, &borrower, &[2_u8; 5000]);
    assert_eq!(from.ptr(), address);
    let hold = device.hold(owner.handle()).unwrap();
    let mut to = allocator.allocate_buffer::<u8>(5000, &owner).unwrap();
    to.copy_from(&from).unwrap();
    drop(from);
    let mut next = allocator.allocate_buffer::<u8>(5000, &owner).unwrap();
    next.fill(3).unwrap();
    hold.release();
    assert_eq!(to.read().unwrap(), [2; 5000]);
}

#[test]
fn memory_past_the_cache_serves_as_well() {
    let (device, allocator) = bed();
    allocator.set_config(&"caching:False".parse().unwrap());
    let (stream, side) = streams(&allocator);
    let from = buffer(&allocator, &stream, &[1_u64, 2, 3]);
    let mut to = buffer(&allocator, &side, &[0_u64; 3]);
    to.copy_from(&from).unwrap();
    drop(from);
    assert_eq!(to.read().unwrap(), [1, 2, 3]);
    drop((to, stream, side));
    assert_returns_everything(&device, allocator);
}

#[test]
fn t7_the_gauges_follow_a_buffer() {
    let (_device, allocator) = bed();
    let stream = allocator.create_stream().unwrap();
    assert_eq!(allocator.allocated_bytes(), 0);
    assert_eq!(allocator.reserved_bytes(), 0);
    let buffer = allocator.allocate_buffer::<f32>(200, &stream).unwrap();
    assert_eq!(allocator.allocated_bytes(), 1024);
    assert_eq!(allocator.reserved_bytes(), 2 << 20);
    drop(buffer);
    assert_eq!(allocator.allocated_bytes(), 0);
    assert_eq!(allocator.reserved_bytes(), 2 << 20);
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.reserved_bytes(), 0);
}

#[test]
fn a_dropped_buffer_serves_the_next_one_at_once() {
    let (device, allocator) = bed();
    let stream = allocator.create_stream().unwrap();
    let address = buffer(&allocator, &stream, &[1_u8; 100]).ptr();
    let calls = device.total_calls();
    let next = allocator.allocate_buffer::<u8>(100, &stream).unwrap();
    assert_eq!(next.ptr(), address);
    let memory = next.into_allocation();
    assert_eq!(memory.ptr(), address);
    assert_eq!(device.total_calls(), calls);
    assert_eq!(allocator.allocated_bytes(), 512);
    drop((memory, stream));
    assert_returns_everything(&device, allocator);
}

/// Writes, copies, writes again and reads, so that the source ends as 9 and the target as 1.
fn work(from: &mut Buffer<u8, HostDevice>, to: &mut Buffer<u8, HostDevice>) -> Result<(), Error> {
    from.write(&[1; 700])?;
    to.copy_from(from)?;
    from.fill(9)?;
    assert_eq!(to.read()?, [1; 700]);
    Ok(())
}

#[test]
fn a_call_that_fails_loses_nothing() {
    for nth in 1.. {
        let (device, allocator) = bed();
        let (stream, side) = streams(&allocator);
        let mut from = buffer(&allocator, &stream, &[0; 700]);
        let mut to = buffer(&allocator, &side, &[0; 700]);
        // Each has a reader on the other stream already, which its first write waits for.
        let mut more = [&side, &stream].map(|stream| buffer(&allocator, stream, &[0; 700]));
        more[0].copy_from(&from).unwrap();
        more[1].copy_from(&to).unwrap();
        let before = device.total_calls();
        device.fail_nth_call(nth, ErrorKind::Refused);
        let failed = work(&mut from, &mut to);
        device.clear_failures();
        // Not every call must succeed: whether a stream is captured, a device need not be able to say.
        let done = device.total_calls() - before < nth;
        if let Err(error) = failed {
            assert!(matches!(error, Error::Device(e) if e.kind() == ErrorKind::Refused));
            work(&mut from, &mut to).unwrap();
        }
        assert_eq!(from.read().unwrap(), [9; 700]);
        assert_eq!(to.read().unwrap(), [1; 700]);
        drop((from, to, more, stream, side));
        assert_returns_everything(&device, allocator);
        if done {
            assert!(nth > 10, "too little was made to fail");
            return;
        }
    }
}
