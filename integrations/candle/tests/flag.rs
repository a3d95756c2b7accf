//! The same program with and without the feature flag, on the library that imitates NVIDIA's driver.
//!
//! `integrations/test` builds and runs it where the linker and the loader find that library.

use cachette_candle::Device;
use cudarc::driver::DriverError;

const LEN: u32 = 10_000;
const ROUNDS: usize = 300;

/// Tensors that are dropped while later ones are computed from them.
fn rotate(device: &Device) -> Result<(), DriverError> {
    let mut expected: Vec<u32> = (0..LEN).collect();
    let mut tensor = device.tensor(&expected)?;
    for _ in 0..ROUNDS {
        tensor = tensor.rotated(device)?;
    }
    expected.rotate_right(ROUNDS);
    assert_eq!(tensor.to_vec(device)?, expected);
    assert_eq!(device.zeros(LEN as usize)?.to_vec(device)?, vec![0; LEN as usize]);
    Ok(())
}

#[cfg(not(feature = "cachette"))]
#[test]
fn without_the_flag_the_driver_serves_every_tensor() {
    let device = Device::new(0).unwrap();
    rotate(&device).unwrap();
    assert_eq!(cachette_process::opened().count(), 0);
}

#[cfg(feature = "cachette")]
#[test]
fn with_the_flag_cachette_serves_every_tensor() {
    let device = Device::new(0).unwrap();
    rotate(&device).unwrap();
    let (number, allocator) = cachette_process::opened().next().expect("the first tensor opened the cache");
    assert_eq!(number, 0);
    let stats = allocator.stats();
    // The first tensor, one a round, and the zeros.
    assert_eq!(stats.allocation.all.allocated, ROUNDS as u64 + 2);
    assert!(stats.num_device_alloc <= 2, "{} requests reached the driver", stats.num_device_alloc);
    assert_eq!(allocator.allocated_bytes(), 0);
    allocator.check().unwrap();
}

/// Out of memory is the driver's error, as candle expects it.
#[test]
fn a_tensor_larger_than_the_device_is_out_of_memory() {
    let device = Device::new(1).unwrap();
    let refused = device.zeros(1 << 40).unwrap_err();
    assert!(format!("{refused:?}").contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused:?}");
    device.zeros(1 << 10).unwrap();
}
