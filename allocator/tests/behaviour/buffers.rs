//! Typed buffers on a device in host memory: reads return what was written, in order, on every stream.

use std::fmt::Debug;

use bytemuck::Pod;
use cachette::hal::{Call, ErrorKind, Feature, Missing, Reason};
use cachette::{Buffer, Error};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, Started, is_waiting, start};
use crate::fixture::{Stream, TestAllocator, fail_call, let_pass};

impl TestAllocator {
    /// A buffer on `stream` with `content`.
    pub(crate) fn buffer<T: Pod>(&self, stream: &Stream, content: &[T]) -> Buffer<T> {
        let mut buffer = self.allocator.allocate_buffer(content.len(), stream).expect("there is memory");
        buffer.write(content).expect("the device can copy");
        buffer
    }
}

/// The answer, which comes.
pub(crate) fn answer<T>(started: &Started<T>) -> T {
    let answer = started.recv_timeout(PATIENCE);
    answer.expect("nothing is in the way")
}

#[test]
fn what_is_written_is_read() {
    fn round_trip<T: Pod + Debug + PartialEq>(content: &[T]) {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let buffer = test.buffer(&stream, content);
        assert_eq!((buffer.len(), buffer.is_empty()), (content.len(), false));
        let bytes = size_of_val(content) as u64;
        assert_eq!(buffer.allocation().requested(), bytes);
        assert_eq!(buffer.ptr(), buffer.allocation().ptr());
        assert_eq!(buffer.stream().handle(), stream.handle());
        assert_eq!(buffer.read().unwrap(), content);
        test.assert_returns_everything_after((buffer, stream));
    }
    round_trip::<u8>(b"a");
    round_trip(&[1.5_f32, -0.25, f32::MAX]);
    round_trip(&(0..300_000).map(|n| n * 0x9E37_79B9).collect::<Vec<u64>>());
    round_trip(&[[1_u16, 2, 3], [4, 5, 6]]);
}

#[test]
fn a_fill_sets_every_byte_in_stream_order() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut buffer = test.buffer(&stream, &[7_u32; 1000]);
    let hold = test.hold(&stream);
    buffer.fill(0xAB).unwrap();
    let reading = start(move || buffer.read());
    assert!(is_waiting(&reading));
    hold.release();
    assert_eq!(answer(&reading).unwrap(), [0xABAB_ABAB; 1000]);
}

#[test]
fn work_without_waiting_keeps_its_order() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut buffer = test.allocator.allocate_buffer::<u64>(2, &stream).unwrap();
    let hold = test.hold(&stream);
    let (from, mut to) = ([3, 4], [0, 0]);
    // SAFETY: 1. `from` lives, unchanged, beyond the wait below.
    unsafe { buffer.write_async(&from) }.unwrap();
    // SAFETY: 1. `to` is not touched before the wait below.
    unsafe { buffer.read_async(&mut to) }.unwrap();
    buffer.fill(0).unwrap();
    let_pass(hold, &stream);
    assert_eq!((to, buffer.read().unwrap()), (from, vec![0, 0]));
}

#[test]
fn elements_must_be_as_many_as_the_buffer_has() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let mut three = test.buffer(&stream, &[1_u8, 2, 3]);
    let two = test.buffer(&side, &[8_u8, 9]);
    let wrong = |given| Err(Error::LengthMismatch { len: 3, given });
    let calls = test.device.total_calls();
    assert_eq!(three.write(&[1, 2]), wrong(2));
    assert_eq!(three.write(&[]), wrong(0));
    assert_eq!(three.copy_from(&two), wrong(2));
    // SAFETY: 1. nothing is queued.
    assert_eq!(unsafe { three.write_async(&[0; 4]) }, wrong(4));
    // SAFETY: 1. nothing is queued.
    assert_eq!(unsafe { three.read_async(&mut [0; 4]) }, wrong(4));
    assert_eq!(test.device.total_calls(), calls);
    assert_eq!(three.read().unwrap(), [1, 2, 3]);
    let message = wrong(2).unwrap_err().to_string();
    let expected = "expected 3 elements, got 2";
    assert_eq!(message, expected);
}

#[test]
fn a_part_is_read_written_filled_and_copied() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let mut buffer = test.buffer(&stream, &[0_u32, 1, 2, 3, 4, 5]);
    buffer.write_at(4, &[40, 50]).unwrap();
    buffer.slice_mut(1..=2).unwrap().write(&[10, 20]).unwrap();
    let part = buffer.slice(1..5).unwrap();
    assert_eq!((part.len(), part.is_empty()), (4, false));
    assert_eq!(part.ptr().unwrap().address(), buffer.ptr().unwrap().address() + 4);
    assert_eq!(part.read().unwrap(), [10, 20, 3, 40]);
    let mut other = test.buffer(&side, &[7_u32; 3]);
    other.slice_mut(1..).unwrap().copy_from(&buffer.slice(..2).unwrap()).unwrap();
    buffer.slice_mut(..2).unwrap().fill(0).unwrap();
    let (mut here, mut there) = ([9; 6], [9; 3]);
    buffer.read_into(&mut here).unwrap();
    other.read_into(&mut there).unwrap();
    assert_eq!((here, there), ([0, 0, 20, 3, 40, 50], [7, 0, 10]));
}

#[test]
fn a_part_that_is_not_inside_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut buffer = test.buffer(&stream, &[1_u64, 2, 3]);
    let calls = test.device.total_calls();
    let outside = |first, end| Error::RangeOutside { first, end, len: 3 };
    assert_eq!(buffer.slice(1..4).unwrap_err(), outside(1, 4));
    #[expect(clippy::reversed_empty_ranges, reason = "it is refused")]
    let reversed = 2..1;
    assert_eq!(buffer.slice(reversed).unwrap_err(), outside(2, 1));
    assert_eq!(buffer.slice_mut(..=usize::MAX).unwrap_err(), outside(0, usize::MAX));
    assert_eq!(buffer.write_at(usize::MAX, &[1, 2]), Err(outside(usize::MAX, usize::MAX)));
    assert_eq!(buffer.write_at(2, &[1, 2]).unwrap_err().to_string(), "elements 2 to 4 are not inside a buffer of 3");
    let wrong = Error::LengthMismatch { len: 2, given: 3 };
    assert_eq!(buffer.slice(1..).unwrap().read_into(&mut [0; 3]), Err(wrong.clone()));
    assert_eq!(buffer.slice_mut(1..).unwrap().write(&[0; 3]), Err(wrong));
    buffer.slice_mut(3..).unwrap().fill(1).unwrap();
    assert_eq!(test.device.total_calls(), calls, "nothing was queued");
    assert!(buffer.slice(3..).unwrap().read().unwrap().is_empty());
    assert_eq!(buffer.read().unwrap(), [1, 2, 3]);
}

#[test]
fn a_zeroed_buffer_has_zeros_also_in_memory_that_was_used() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let used = test.buffer(&stream, &[7_u8; 700]);
    let address = used.ptr();
    drop(used);
    let zeroed = test.allocator.allocate_zeroed::<u8>(700, &stream).unwrap();
    assert_eq!((zeroed.ptr(), zeroed.read().unwrap()), (address, vec![0; 700]));
}

#[test]
fn lengths_beyond_any_device_are_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let calls = test.device.total_calls();
    let error = test.allocator.allocate_buffer::<u64>(usize::MAX / 4, &stream);
    let error = error.unwrap_err();
    let (len, element_bytes) = (usize::MAX / 4, 8);
    assert_eq!(error, Error::TooManyElements { len, element_bytes });
    assert!(error.to_string().contains("elements of 8 bytes"), "{error}");
    let error = test.allocator.allocate_buffer::<u64>(1 << 57, &stream);
    assert_eq!(error.unwrap_err(), Error::TooLarge { bytes: 1 << 60 });
    assert_eq!(test.device.total_calls(), calls);
}

#[test]
fn a_buffer_without_bytes_queues_nothing() {
    fn of<T: Pod + Debug + PartialEq>(content: &[T]) {
        let (test, [stream, side]) =
            TestAllocator::on(HostConfig::default().without(Feature::Transfer), "").with_streams();
        let calls = test.device.total_calls();
        let mut empty = test.buffer(&stream, content);
        let other = test.buffer(&side, content);
        assert_eq!((empty.len(), empty.ptr()), (content.len(), None));
        empty.fill(1).unwrap();
        empty.copy_from(&other).unwrap();
        assert_eq!(empty.read().unwrap(), content);
        assert_eq!(test.device.total_calls(), calls);
    }
    of::<f32>(&[]);
    of(&[(), ()]);
}

#[test]
fn a_device_that_cannot_transfer_says_why() {
    let (test, [stream, side]) = TestAllocator::on(HostConfig::default().without(Feature::Transfer), "").with_streams();
    let mut buffer = test.allocator.allocate_buffer::<f32>(4, &stream).unwrap();
    let other = test.allocator.allocate_buffer::<f32>(4, &side).unwrap();
    let by = Reason::SwitchedOff("the host device's configuration");
    let missing = Missing::new(Feature::Transfer, by);
    let calls = test.device.total_calls();
    let why = Error::Missing(missing);
    assert_eq!(buffer.write(&[0.0; 4]), Err(why.clone()));
    assert_eq!(buffer.read(), Err(why.clone()));
    assert_eq!(buffer.fill(0), Err(why.clone()));
    assert_eq!(buffer.copy_from(&other), Err(why));
    assert_eq!(test.device.total_calls(), calls);
}

#[test]
fn a_copy_comes_after_what_the_sources_stream_had_to_write() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let mut from = test.buffer(&stream, &[1_u8; 5000]);
    let mut to = test.buffer(&side, &[2_u8; 5000]);
    let hold = test.hold(&stream);
    from.fill(3).unwrap();
    to.copy_from(&from).unwrap();
    let reading = start(move || to.read());
    assert!(is_waiting(&reading), "the copy did not wait for the fill");
    hold.release();
    assert_eq!(answer(&reading).unwrap(), [3; 5000]);
}

#[test]
fn a_copy_to_and_fro_waits_only_where_it_must() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let from = test.buffer(&stream, &[1_u8; 64]);
    let mut near = test.buffer(&stream, &[2_u8; 64]);
    let calls = test.device.calls(Call::StreamWait);
    near.copy_from(&from).unwrap();
    assert_eq!(test.device.calls(Call::StreamWait), calls);
    let mut far = test.buffer(&side, &[3_u8; 64]);
    far.copy_from(&from).unwrap();
    far.copy_from(&near).unwrap();
    assert_eq!(test.device.calls(Call::StreamWait), calls + 2);
    near.fill(4).unwrap();
    near.fill(5).unwrap();
    assert_eq!(test.device.calls(Call::StreamWait), calls + 3);
    assert_eq!(far.read().unwrap(), [1; 64]);
}

#[test]
fn a_dropped_source_keeps_its_memory_until_the_copy_is_done() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let from = test.buffer(&stream, &[1_u8; 5000]);
    let mut to = test.buffer(&side, &[2_u8; 5000]);
    let address = from.ptr();
    let hold = test.hold(&side);
    to.copy_from(&from).unwrap();
    drop(from);
    let next = test.buffer(&stream, &[9_u8; 5000]);
    assert_ne!(next.ptr(), address);
    hold.release();
    assert_eq!(to.read().unwrap(), [1; 5000]);
    let again = test.buffer(&stream, &[8_u8; 5000]);
    assert_eq!(again.ptr(), address);
}

#[test]
fn buffers_of_two_allocators_are_not_copied() {
    let test = TestAllocator::new();
    let other = test.beside("");
    let here = test.stream();
    let there = other.stream();
    let mut to = test.buffer(&here, &[1_u8]);
    let from = other.buffer(&there, &[2_u8]);
    let calls = test.device.total_calls();
    assert_eq!(to.copy_from(&from), Err(Error::ForeignBuffer));
    assert_eq!(test.device.total_calls(), calls);
    let foreign = test.allocator.allocate_buffer::<u8>(1, &there);
    assert_eq!(foreign.unwrap_err(), Error::ForeignStream);
}

#[test]
fn t7_the_gauges_follow_a_buffer() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    assert_eq!(test.allocator.allocated_bytes(), 0);
    assert_eq!(test.allocator.reserved_bytes(), 0);
    let buffer = test.allocator.allocate_buffer::<f32>(200, &stream).unwrap();
    assert_eq!(test.allocator.allocated_bytes(), 1024);
    assert_eq!(test.allocator.reserved_bytes(), 2 << 20);
    drop(buffer);
    assert_eq!(test.allocator.allocated_bytes(), 0);
    assert_eq!(test.allocator.reserved_bytes(), 2 << 20);
    test.allocator.empty_cache().unwrap();
    assert_eq!(test.allocator.reserved_bytes(), 0);
}

/// Writes, copies, writes again and reads, so that the source ends as 9 and the target as 1.
fn work(from: &mut Buffer<u8>, to: &mut Buffer<u8>) -> Result<(), Error> {
    from.write(&[1; 700])?;
    to.copy_from(from)?;
    from.fill(9)?;
    assert_eq!(to.read()?, [1; 700]);
    Ok(())
}

#[test]
fn a_call_that_fails_loses_nothing() {
    for nth in 1.. {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let mut from = test.buffer(&stream, &[0; 700]);
        let mut to = test.buffer(&side, &[0; 700]);
        // Each has a reader on the other stream already, which its first write waits for.
        let mut more = [&side, &stream].map(|stream| test.buffer(stream, &[0; 700]));
        more[0].copy_from(&from).unwrap();
        more[1].copy_from(&to).unwrap();
        // Not every call must succeed: whether a stream is captured, a device need not be able to say.
        let (failed, reached) = fail_call(&test.device, nth, ErrorKind::Refused, || work(&mut from, &mut to));
        if let Err(error) = failed {
            assert!(matches!(error, Error::Device(e) if e.kind() == ErrorKind::Refused));
            work(&mut from, &mut to).unwrap();
        }
        assert_eq!(from.read().unwrap(), [9; 700]);
        assert_eq!(to.read().unwrap(), [1; 700]);
        test.assert_returns_everything_after((from, to, more, stream, side));
        if !reached {
            assert!(nth > 10, "too little was made to fail");
            return;
        }
    }
}
