//! A stream of cudarc's works with a device of ours, where there is a driver.

use cachette_hal::{Device, ErrorKind, LoadError, Ordinal, Transfer};
use cachette_hal_cuda::{CudaBackend, stream_ref};
use cudarc::driver::CudaContext;

const BYTES: usize = 4096;

#[test]
fn a_stream_of_the_primary_context_is_accepted_and_no_other() {
    let backend = match CudaBackend::load() {
        Ok(backend) => backend,
        // cudarc's own loader panics here, so there is no more to test.
        Err(error) => {
            let absent = matches!(error, LoadError::LibraryMissing { .. } | LoadError::NoDevice { .. });
            assert!(absent, "{error}");
            return;
        }
    };
    let device = backend.device(Ordinal(0)).unwrap();
    let context = CudaContext::new(0).unwrap();
    assert!(device.shares(&context));
    let theirs = context.new_stream().unwrap();
    let stream = device.accept(&theirs).unwrap();
    assert_eq!(stream, stream_ref(&theirs));
    if let Ok(other) = CudaContext::new(1) {
        assert!(!device.shares(&other));
        let foreign = other.new_stream().unwrap();
        let refused = device.accept(&foreign).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidHandle);
    }
    let ptr = device.allocate(BYTES as u64).unwrap();
    let transfer: &dyn Transfer = device.transfer().unwrap();
    // SAFETY: 1. and 3. the stream and the memory live until the stream was synchronised with.
    unsafe { transfer.fill(ptr, 7, BYTES as u64, stream) }.unwrap();
    let mut bytes = vec![0; BYTES];
    // SAFETY: 1., 3. and 4. as above.
    unsafe { transfer.download(bytes.as_mut_ptr(), ptr, BYTES, stream) }.unwrap();
    theirs.synchronize().unwrap();
    assert_eq!(bytes, [7; BYTES]);
    // SAFETY: 1. it was allocated above. 2. The stream was synchronised with.
    unsafe { device.free(ptr) }.unwrap();
}
