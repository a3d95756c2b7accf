//! Calls leave the caller's current context as they found it.

#[path = "shared/emulated.rs"]
mod emulated;
#[path = "shared/substitute.rs"]
mod substitute;

use std::ffi::{c_int, c_uint, c_void};
use std::process::ExitCode;
use std::ptr::{self, NonNull};

use cachette_hal::load::{Candidate, Library};
use cachette_hal::{
    Access, Backend, CaptureMode, Device, DevicePtr, IpcToken, LoadError, Ordinal, Result, Sharing, StreamRef,
    symbol_table,
};
use cachette_hal_cuda::{CudaBackend, CudaDevice};
use libtest_mimic::{Arguments, Trial};

symbol_table! {
    /// What the test asks the driver itself.
    struct Driver {
        required {
            current as "cuCtxGetCurrent": fn(context: *mut *mut c_void) -> c_uint;
            push as "cuCtxPushCurrent_v2": fn(context: *mut c_void) -> c_uint;
            pop as "cuCtxPopCurrent_v2": fn(context: *mut *mut c_void) -> c_uint;
            retain as "cuDevicePrimaryCtxRetain":
                fn(context: *mut *mut c_void, device: c_int) -> c_uint;
        }
        optional {}
    }
}

impl Driver {
    fn current(&self) -> *mut c_void {
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        assert_eq!(unsafe { (self.current)(&raw mut context) }, 0);
        context
    }

    fn retain(&self, device: c_int) -> *mut c_void {
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        assert_eq!(unsafe { (self.retain)(&raw mut context, device) }, 0);
        context
    }
}

/// The driver by both ways: as the backend, and as its own functions.
fn load() -> Result<(CudaBackend, Driver), LoadError> {
    let backend = CudaBackend::load()?;
    let library = Candidate::Path(backend.info().library.clone().into());
    // SAFETY: it is the driver that the backend has opened.
    let library = unsafe { Library::open_first(&[library]) }?;
    Ok((backend, Driver::resolve(&library)?))
}

/// Calls of every group, some of which succeed and some of which fail.
fn use_every_group(device: &CudaDevice) -> Result<()> {
    let nowhere = DevicePtr::new(4096).expect("it is not null");
    device.memory_info()?;
    let ptr = device.allocate(4096)?;
    assert!(device.allocate(u64::MAX).is_err());
    let (stream, event) = (device.create_stream()?, device.create_event()?);
    // SAFETY: 1. and 3. all of it was made just now, and is given back below.
    unsafe { device.transfer()?.fill(ptr, 1, 4096, stream.borrow()) }?;
    // SAFETY: 1. as above.
    unsafe { device.record(&event, stream.borrow()) }?;
    // SAFETY: 1. as above.
    unsafe { device.wait(&event) }?;
    let memory = device.virtual_memory()?;
    let backing = memory.create_backing(memory.granularity().minimum, Sharing::Private, false)?;
    assert!(memory.create_backing(1, Sharing::Private, false).is_err());
    // SAFETY: 2. nothing is mapped there, so nothing is used.
    let access = unsafe { memory.set_access(nowhere, 4096, &[Access::None(Ordinal(0))]) };
    assert!(access.is_err());
    // SAFETY: 1. it was made just now.
    unsafe { memory.destroy_backing(backing) }?;
    device.stream_ordered()?.trim(0)?;
    let mut unknown = 0_u8;
    let unknown = NonNull::from(&mut unknown);
    assert!(device.host_memory()?.device_address(unknown).is_err());
    assert!(device.ipc()?.open_token(&IpcToken([7; 64])).is_err());
    let capture = device.capture()?;
    // SAFETY: 1. the default stream always lives.
    let begun = unsafe { capture.begin_capture(StreamRef::DEFAULT, CaptureMode::Relaxed) };
    assert!(begun.is_err());
    assert!(device.peer_access()?.can_reach(Ordinal(4000)).is_err());
    // SAFETY: 1. as above.
    unsafe { device.host_calls()?.call_host(stream.borrow(), Box::new(|| ())) }?;
    // SAFETY: 1. as above.
    unsafe { device.synchronize(stream.borrow()) }?;
    // SAFETY: 1. as above.
    unsafe { device.destroy_event(event) }?;
    // SAFETY: 1. as above.
    unsafe { device.destroy_stream(stream) }?;
    // SAFETY: 1. as above. 2. The stream was synchronised with.
    unsafe { device.free(ptr) }
}

fn main() -> ExitCode {
    if CudaBackend::load().is_err() {
        let (file, variable) = ("libcachette_emulated_cuda.so", "CACHETTE_CUDA_LIBRARY");
        // SAFETY: this program has started no thread yet.
        unsafe { substitute::stand_in(file, variable, "CUDA_VISIBLE_DEVICES") };
    }
    let trial = Trial::test("what_was_current_is_current_again", || {
        what_was_current_is_current_again();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn what_was_current_is_current_again() {
    let (backend, driver) = load().expect("a driver loads");
    assert!(driver.current().is_null(), "a thread begins with none");
    let device = backend.device(Ordinal(0)).expect("the device opens");
    assert!(driver.current().is_null(), "opening a device leaves none");
    use_every_group(&device).expect("what should succeed does");
    assert!(driver.current().is_null(), "calls leave none");
    let count = backend.device_count().expect("devices are counted");
    let last = c_int::try_from(count - 1).expect("devices are few");
    for other in 0..=last {
        let context = driver.retain(other);
        // SAFETY: the context is retained.
        assert_eq!(unsafe { (driver.push)(context) }, 0);
        use_every_group(&device).expect("what should succeed does");
        let mut within = None;
        device.while_current(&mut || within = Some(driver.current())).expect("the device is entered");
        assert_eq!(within, Some(driver.retain(0)), "the device is current for the call");
        assert_eq!(driver.current(), context, "the context of device {other}");
        let mut popped = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        assert_eq!(unsafe { (driver.pop)(&raw mut popped) }, 0);
        assert_eq!(popped, context, "the context on top");
    }
    assert!(driver.current().is_null(), "none is left on the stack");
}
