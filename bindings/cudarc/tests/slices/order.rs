//! The order of uses in several streams. Each test stops one stream, and so makes every missing wait visible.

use std::thread::sleep;
use std::time::Duration;

use cudarc::driver::CudaStream;

use crate::Setting;
use crate::hold::Hold;

const LEN: usize = 4096;
const OLD: [u8; LEN] = [7; LEN];

/// Whether the stream does not reach this point for a while, in which it could finish all its work.
fn is_stopped(stream: &CudaStream) -> bool {
    let reached = stream.record_event(None).unwrap();
    sleep(Duration::from_millis(50));
    !reached.is_complete()
}

pub(crate) fn read_after_write() {
    let setting = Setting::new();
    let Setting { cache, stream, .. } = &setting;
    let reader = setting.acquaintance();
    let old = cache.clone_htod(&OLD).unwrap();
    let mut slice = cache.alloc_zeros::<u8>(LEN).unwrap();
    let mut copy = reader.alloc_zeros::<u8>(LEN).unwrap();
    setting.context.synchronize().unwrap();
    let hold = Hold::new(stream);
    stream.memcpy_dtod(&old, &mut slice).unwrap();
    reader.stream().memcpy_dtod(&slice, &mut copy).unwrap();
    assert!(is_stopped(reader.stream()));
    drop(hold);
    assert_eq!(reader.stream().clone_dtoh(&copy).unwrap(), OLD);
}

/// A write in another stream comes after the work of the slice's own stream.
pub(crate) fn write_after_own_work() {
    let setting = Setting::new();
    let Setting { cache, stream, .. } = &setting;
    let writer = setting.acquaintance();
    let mut slice = cache.clone_htod(&OLD).unwrap();
    let mut copy = cache.alloc_zeros::<u8>(LEN).unwrap();
    setting.context.synchronize().unwrap();
    let hold = Hold::new(stream);
    stream.memcpy_dtod(&slice, &mut copy).unwrap();
    writer.stream().memset_zeros(&mut slice).unwrap();
    assert!(is_stopped(writer.stream()));
    drop(hold);
    assert_eq!(stream.clone_dtoh(&copy).unwrap(), OLD);
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), [0; LEN]);
}

pub(crate) fn write_after_reads() {
    let setting = Setting::new();
    let Setting { cache, stream, .. } = &setting;
    let readers = [setting.acquaintance(), setting.acquaintance()];
    let mut slice = cache.clone_htod(&OLD).unwrap();
    let mut copies = readers.each_ref().map(|reader| reader.alloc_zeros::<u8>(LEN).unwrap());
    setting.context.synchronize().unwrap();
    // The first reader is stopped, and the second one records its use later.
    let hold = Hold::new(readers[0].stream());
    for (reader, copy) in readers.iter().zip(&mut copies) {
        reader.stream().memcpy_dtod(&slice, copy).unwrap();
    }
    readers[1].stream().synchronize().unwrap();
    stream.memset_zeros(&mut slice).unwrap();
    assert!(is_stopped(stream));
    drop(hold);
    for (reader, copy) in readers.iter().zip(&copies) {
        assert_eq!(reader.stream().clone_dtoh(copy).unwrap(), OLD);
    }
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), [0; LEN]);
}

pub(crate) fn read_after_foreign_write() {
    let setting = Setting::new();
    let Setting { cache, stream, stranger, .. } = &setting;
    let third = setting.acquaintance();
    let (old, mut slice) = (cache.clone_htod(&OLD).unwrap(), cache.alloc_zeros::<u8>(LEN).unwrap());
    let mut copy = third.alloc_zeros::<u8>(LEN).unwrap();
    setting.context.synchronize().unwrap();
    let hold = Hold::new(stranger);
    stranger.memcpy_dtod(&old, &mut slice).unwrap();
    third.stream().memcpy_dtod(&slice, &mut copy).unwrap();
    assert!(is_stopped(third.stream()));
    drop(hold);
    assert_eq!(third.stream().clone_dtoh(&copy).unwrap(), OLD);
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), OLD);
}

/// The memory waits for the known stream, and the slice's own stream does not.
pub(crate) fn drop_with_known_stream() {
    let setting = Setting::new();
    let Setting { cache, stream, .. } = &setting;
    let reader = setting.acquaintance();
    let slice = cache.clone_htod(&OLD).unwrap();
    let mut copy = reader.alloc_zeros::<u8>(LEN).unwrap();
    setting.context.synchronize().unwrap();
    let (address, hold) = (slice.address(), Hold::new(reader.stream()));
    reader.stream().memcpy_dtod(&slice, &mut copy).unwrap();
    drop(slice);
    let next = cache.alloc_zeros::<u8>(LEN).unwrap();
    assert_ne!(next.address(), address);
    stream.synchronize().unwrap();
    drop(hold);
    assert_eq!(reader.stream().clone_dtoh(&copy).unwrap(), OLD);
    drop(next);
    let freed: Vec<_> = (0..2).map(|_| cache.alloc::<u8>(LEN).unwrap()).collect();
    assert!(freed.iter().any(|slice| slice.address() == address), "the memory is free after the use");
}

/// The slice's own stream waits on the device before it uses the memory again.
pub(crate) fn drop_with_stranger() {
    let Setting { cache, context, stream, stranger, .. } = Setting::new();
    let slice = cache.clone_htod(&OLD).unwrap();
    let mut copy = cache.alloc_zeros::<u8>(LEN).unwrap();
    context.synchronize().unwrap();
    let (address, hold) = (slice.address(), Hold::new(&stranger));
    stranger.memcpy_dtod(&slice, &mut copy).unwrap();
    drop(slice);
    let next = cache.alloc_zeros::<u8>(LEN).unwrap();
    assert_eq!(next.address(), address);
    assert!(is_stopped(&stream));
    drop(hold);
    assert_eq!(stranger.clone_dtoh(&copy).unwrap(), OLD);
}

/// A stranger's stream is destroyed while its work is queued; the free comes after the work all the same.
pub(crate) fn stream_ends_first() {
    let Setting { cache, context, stranger, .. } = Setting::new();
    let slice = cache.clone_htod(&OLD).unwrap();
    let mut copy = cache.alloc_zeros::<u8>(LEN).unwrap();
    context.synchronize().unwrap();
    stranger.memcpy_dtod(&slice, &mut copy).unwrap();
    drop(stranger);
    let address = slice.address();
    drop(slice);
    let next = cache.alloc_zeros::<u8>(LEN).unwrap();
    assert_eq!(next.address(), address);
    assert_eq!(cache.stream().clone_dtoh(&copy).unwrap(), OLD);
}
