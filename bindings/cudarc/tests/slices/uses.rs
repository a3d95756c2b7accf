//! What cudarc does with slices in their own stream.

use std::panic::catch_unwind;
use std::thread;

use cudarc::driver::DeviceSlice;

use crate::Setting;

const LEN: usize = 10_000;

fn numbers(start: u32) -> Vec<u32> {
    (0..).map(|index| start + index).take(LEN).collect()
}

pub(crate) fn copies_and_fills() {
    let Setting { cache, stream, .. } = Setting::new();
    let first = cache.clone_htod(&numbers(5)).unwrap();
    assert_eq!(stream.clone_dtoh(&first).unwrap(), numbers(5));
    let mut second = cache.alloc_zeros::<u32>(LEN).unwrap();
    assert_eq!(stream.clone_dtoh(&second).unwrap(), vec![0; LEN]);
    stream.memcpy_dtod(&first, &mut second).unwrap();
    stream.memset_zeros(&mut { first }).unwrap();
    assert_eq!(stream.clone_dtoh(&second).unwrap(), numbers(5));
    let mut third = cache.alloc::<u32>(LEN).unwrap();
    stream.memcpy_htod(&numbers(9), &mut third).unwrap();
    let mut host = vec![0; LEN];
    stream.memcpy_dtoh(&third, &mut host).unwrap();
    assert_eq!(host, numbers(9));
}

pub(crate) fn parts() {
    let Setting { cache, stream, .. } = Setting::new();
    let mut slice = cache.clone_htod(&numbers(0)).unwrap();
    assert_eq!(slice.slice(100..).address(), slice.address() + 400);
    assert_eq!(stream.clone_dtoh(&slice.slice(10..=12)).unwrap(), [10, 11, 12]);
    stream.memset_zeros(&mut slice.slice_mut(3..6)).unwrap();
    assert_eq!(stream.clone_dtoh(&slice.slice(..8)).unwrap(), [0, 1, 2, 0, 0, 0, 6, 7]);
    assert_eq!((slice.slice(..).len(), slice.slice_mut(LEN..).len()), (LEN, 0));
}

pub(crate) fn part_behind_the_end() {
    let Setting { cache, .. } = Setting::new();
    let slice = cache.alloc::<u8>(4).unwrap();
    let refused = catch_unwind(std::panic::AssertUnwindSafe(|| slice.slice(3..5).len())).unwrap_err();
    assert!(refused.downcast_ref::<String>().unwrap().contains("3..5 does not lie in a slice of 4"));
}

pub(crate) fn no_elements() {
    let Setting { allocator, cache, .. } = Setting::new();
    let (zeros, copied) = (cache.alloc_zeros::<u64>(0).unwrap(), cache.clone_htod::<u64>(&[]).unwrap());
    assert_eq!((zeros.len(), zeros.address(), copied.len()), (0, 0, 0));
    assert_eq!(allocator.allocated_bytes(), 0);
}

pub(crate) fn reuse() {
    let Setting { allocator, cache, .. } = Setting::new();
    let address = cache.alloc_zeros::<f32>(LEN).unwrap().address();
    let asked = allocator.stats().num_device_alloc;
    for _ in 0..100 {
        assert_eq!(cache.alloc_zeros::<f32>(LEN).unwrap().address(), address);
    }
    assert_eq!(allocator.stats().num_device_alloc, asked, "no request reached the driver");
    assert_eq!(allocator.allocated_bytes(), 0);
}

/// Each thread has a separate stream, and all of them read one slice.
pub(crate) fn threads() {
    let setting = Setting::new();
    let common = setting.cache.clone_htod(&numbers(1)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = setting.acquaintance();
                for _ in 0..50 {
                    let mut copy = own.alloc_zeros::<u32>(LEN).unwrap();
                    own.stream().memcpy_dtod(&common, &mut copy).unwrap();
                    assert_eq!(own.stream().clone_dtoh(&copy).unwrap(), numbers(1));
                }
            });
        }
    });
    drop(common);
    setting.context.synchronize().unwrap();
    assert_eq!(setting.allocator.allocated_bytes(), 0);
    setting.allocator.check().unwrap();
}
