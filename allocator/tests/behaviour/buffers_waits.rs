//! Waits of buffers that fail: host memory stays valid while the device may use it, and no order is lost.

use cachette::Error;
use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette_hal_host::HostDevice;

use crate::buffers::answer;
use crate::fixture::TestAllocator;
use crate::fixture::threads::{is_waiting, start};

/// Lets the `nth` wait of every kind fail.
fn fail_waits(device: &HostDevice, nth: u64, kind: ErrorKind) {
    for call in [Call::Synchronize, Call::SynchronizeDevice] {
        device.fail_next(call, nth, kind);
    }
}

#[test]
fn a_read_that_no_wait_ends_leaves_its_memory_to_the_device() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let buffer = test.buffer(&stream, &vec![0x49_u8; 64 << 10]);
    let hold = test.hold(&stream);
    fail_waits(&test.device, 1, ErrorKind::Other);
    assert!(buffer.read().is_err());
    let mine = [(); 16].map(|()| vec![0_u8; 64 << 10]);
    hold.release();
    stream.synchronize().unwrap();
    let written = |mine: &Vec<u8>| mine.iter().any(|byte| std::hint::black_box(*byte) != 0);
    assert!(!mine.iter().any(written), "the device wrote freed memory");
}

/// Lets waits of a device fail.
type Fault = fn(&HostDevice);

#[test]
fn a_write_returns_once_the_device_has_read() {
    let refused = |device: &HostDevice| device.fail_next(Call::Synchronize, 1, ErrorKind::Refused);
    let failed = |device: &HostDevice| (1..=3).for_each(|nth| fail_waits(device, nth, ErrorKind::Other));
    let cases: [(Fault, ErrorKind); 2] = [(refused, ErrorKind::Refused), (failed, ErrorKind::Other)];
    for (fail, kind) in cases {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let mut buffer = test.buffer(&stream, &[1_u8; 700]);
        let hold = test.hold(&stream);
        fail(&test.device);
        let writing = start(move || {
            let failed = buffer.write(&[2; 700]);
            (buffer, failed)
        });
        assert!(is_waiting(&writing), "the host memory is still in use");
        hold.release();
        let (buffer, failed) = answer(&writing);
        assert!(matches!(failed, Err(Error::Device(e)) if e.kind() == kind));
        assert_eq!(buffer.read().unwrap(), [2; 700]);
    }
}

#[test]
fn a_write_to_a_lost_device_returns_at_once() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut buffer = test.buffer(&stream, &[1_u8; 700]);
    fail_waits(&test.device, 1, ErrorKind::DeviceLost);
    let writing = start(move || buffer.write(&[2; 700]));
    assert!(matches!(answer(&writing), Err(Error::Device(e)) if e.kind() == ErrorKind::DeviceLost));
}

#[test]
fn a_wait_breaks_a_capture_and_queues_nothing() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut buffer = test.buffer(&stream, &[1_u8; 700]);
    let pool = test.allocator.create_capture_pool();
    let capture = pool.begin_capture(&stream, CaptureMode::Relaxed).unwrap();
    assert!(buffer.write(&[2; 700]).is_err());
    assert!(buffer.read().is_err());
    assert!(capture.end().is_err(), "its graph would lack the work");
    assert_eq!(buffer.read().unwrap(), [1; 700]);
}

#[test]
fn a_write_into_the_source_comes_after_the_copy() {
    for failing in [None, Some(Call::Record), Some(Call::StreamWait)] {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let mut from = test.buffer(&stream, &[1_u8; 5000]);
        let mut to = test.buffer(&side, &[2_u8; 5000]);
        let hold = test.hold(&side);
        to.copy_from(&from).unwrap();
        // The copy only reads `from`, so another read does not wait.
        assert_eq!(from.read().unwrap(), [1; 5000]);
        // A wait that fails forgets no reader.
        if let Some(call) = failing {
            test.device.fail_next(call, 1, ErrorKind::Other);
            assert!(from.fill(3).is_err());
        }
        from.fill(3).unwrap();
        let reading = start(move || from.read());
        assert!(is_waiting(&reading), "the fill did not wait for the copy");
        hold.release();
        assert_eq!(answer(&reading).unwrap(), [3; 5000]);
        assert_eq!(to.read().unwrap(), [1; 5000]);
    }
}
