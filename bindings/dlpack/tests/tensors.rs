//! Tensors that leave and come back, on the host device.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cachette::hal::{Device, HostCalls};
use cachette::{Allocator, Backends, Buffer};
use cachette_dlpack::abi::{CPU, CUDA, DLDevice, DLManagedTensorVersioned, DLTensor, READ_ONLY};
use cachette_dlpack::{Element, Error, Imported, IntoDlpack, Tensor, device_of, hand_over};

const HOST: DLDevice = DLDevice { device_type: CPU, device_id: 0 };

fn allocator() -> Allocator {
    Allocator::new(Backends::open("host").unwrap())
}

fn buffer(allocator: &Allocator, len: usize) -> Buffer<f32> {
    allocator.allocate_buffer(len, &allocator.create_stream().unwrap()).unwrap()
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn counted(shape: &[i64]) -> (Tensor<Counted>, Arc<AtomicU32>) {
    let drops = Arc::new(AtomicU32::new(0));
    let tensor = Tensor::new(Counted(Arc::clone(&drops)), 4096, 24, HOST, f32::DATA_TYPE, shape).unwrap();
    (tensor, drops)
}

fn import(tensor: NonNull<DLManagedTensorVersioned>) -> Result<Imported, Error> {
    // SAFETY: each tensor of these tests is whole, and has no other owner.
    unsafe { Imported::from_versioned(tensor) }
}

/// Changes a tensor as a producer of another kind would have made it, imports it and expects a failure.
fn refused(change: impl FnOnce(&mut DLManagedTensorVersioned)) -> Error {
    let (tensor, drops) = counted(&[2, 3]);
    let mut raw = tensor.into_versioned();
    // SAFETY: the tensor is whole and has no other owner.
    let managed = unsafe { raw.as_mut() };
    let before = managed.dl_tensor;
    change(managed);
    let error = import(raw).expect_err("it is refused");
    assert_eq!(drops.load(Relaxed), 0, "what is refused stays the caller's");
    managed.dl_tensor = before;
    (managed.version.major, managed.flags) = (1, 0);
    drop(import(raw).unwrap());
    assert_eq!(drops.load(Relaxed), 1);
    error
}

#[test]
fn a_buffer_becomes_a_tensor_and_the_deleter_frees_it() {
    let allocator = allocator();
    let mut memory = buffer(&allocator, 6);
    memory.write(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    let address = memory.allocation().address();
    let imported = import(memory.into_dlpack(&[2, 3]).unwrap().into_versioned()).unwrap();
    assert_eq!((imported.address(), imported.bytes()), (address, 24));
    assert_eq!((imported.device(), imported.data_type()), (HOST, f32::DATA_TYPE));
    assert_eq!(imported.shape(), [2, 3]);
    assert_eq!(allocator.stats().allocation.all.current, 1);
    drop(imported);
    assert_eq!(allocator.stats().allocation.all.current, 0);
}

#[test]
fn both_versions_run_the_deleter_once() {
    let (tensor, drops) = counted(&[6]);
    drop(import(tensor.into_versioned()).unwrap());
    assert_eq!(drops.load(Relaxed), 1);
    let (tensor, drops) = counted(&[6]);
    // SAFETY: the tensor is whole, and has no other owner.
    let imported = unsafe { Imported::from_unversioned(tensor.into_unversioned()) }.unwrap();
    assert_eq!((imported.shape(), imported.address()), (&[6][..], 4096));
    assert_eq!(drops.load(Relaxed), 0);
    drop(imported);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn a_tensor_has_its_strides() {
    let (tensor, _drops) = counted(&[2, 1, 3]);
    let raw = tensor.into_versioned();
    // SAFETY: the tensor is whole.
    let DLTensor { strides, ndim, .. } = unsafe { raw.as_ref() }.dl_tensor;
    // SAFETY: the list has as many entries as the tensor has dimensions.
    let strides = unsafe { std::slice::from_raw_parts(strides, usize::try_from(ndim).unwrap()) };
    assert_eq!(strides, [3, 3, 1]);
    drop(import(raw).unwrap());
}

#[test]
fn a_shape_that_does_not_fit_is_refused() {
    let allocator = allocator();
    for (shape, text) in [
        (&[2, 4][..], "needs 32 bytes, and the memory has 24 bytes"),
        (&[5], "needs 20 bytes"),
        (&[i64::MAX, i64::MAX], "needs more bytes than can be counted"),
        (&[-1, 6], "is no shape"),
    ] {
        let error = buffer(&allocator, 6).into_dlpack(shape).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(allocator.stats().allocation.all.current, 0);
}

#[test]
fn no_elements_are_a_tensor_too() {
    let allocator = allocator();
    let imported = import(buffer(&allocator, 0).into_dlpack(&[0, i64::MAX]).unwrap().into_versioned()).unwrap();
    assert_eq!((imported.address(), imported.bytes()), (0, 0));
}

#[test]
fn what_cannot_be_used_is_refused_and_stays_its_owners() {
    assert_eq!(refused(|tensor| tensor.version.major = 2), Error::Version { major: 2 });
    assert_eq!(refused(|tensor| tensor.flags = READ_ONLY), Error::ReadOnly);
    assert!(matches!(refused(|tensor| tensor.dl_tensor.data = ptr::null_mut()), Error::Malformed { .. }));
    assert!(matches!(refused(|tensor| tensor.dl_tensor.shape = ptr::null_mut()), Error::Malformed { .. }));
    assert!(matches!(refused(|tensor| tensor.dl_tensor.ndim = -1), Error::Malformed { .. }));
    assert!(matches!(refused(|tensor| tensor.dl_tensor.dtype.bits = 0), Error::Malformed { .. }));
    assert!(matches!(refused(|tensor| tensor.dl_tensor.dtype.lanes = 0), Error::Malformed { .. }));
    assert!(matches!(refused(|tensor| tensor.dl_tensor.byte_offset = u64::MAX), Error::Malformed { .. }));
    let mut turned = [1, 2];
    let error = refused(|tensor| tensor.dl_tensor.strides = turned.as_mut_ptr());
    assert_eq!(error, Error::NotCompact { shape: vec![2, 3], strides: vec![1, 2] });
}

#[test]
fn strides_may_be_missing_and_that_of_a_single_entry_may_be_any() {
    let (tensor, _drops) = counted(&[1, 6]);
    let mut raw = tensor.into_versioned();
    let mut strides = [77, 1];
    // SAFETY: the tensor is whole and has no other owner.
    unsafe { raw.as_mut() }.dl_tensor.strides = strides.as_mut_ptr();
    let imported = import(raw).unwrap();
    let mut raw = imported.into_raw().cast::<DLManagedTensorVersioned>();
    // SAFETY: the tensor is whole and has no other owner again.
    unsafe { raw.as_mut() }.dl_tensor.strides = ptr::null_mut();
    assert_eq!(import(raw).unwrap().bytes(), 24);
}

#[test]
fn another_device_is_told_from_ours() {
    let (tensor, _drops) = counted(&[6]);
    let imported = import(tensor.into_versioned()).unwrap();
    let ours = device_of(allocator().device_info());
    imported.check_device(ours).unwrap();
    let other = DLDevice { device_type: CUDA, device_id: 1 };
    let error = imported.check_device(other).unwrap_err();
    assert!(error.to_string().contains("copy it there first"), "{error}");
}

#[test]
fn the_consumer_waits_for_the_owner_and_the_memory_for_the_consumer() {
    let allocator = allocator();
    let consumer = allocator.create_stream().unwrap();
    let mut memory = buffer(&allocator, 6);
    memory.fill(7).unwrap();
    hand_over(&allocator, memory.allocation(), &consumer).unwrap();
    let address = memory.allocation().address();
    let own = memory.stream().clone();
    let tensor = import(memory.into_dlpack(&[6]).unwrap().into_versioned()).unwrap();

    let gate = Gate::close(&allocator, &consumer);
    drop(tensor);
    let next = allocator.allocate(24, &own).unwrap();
    assert_ne!(next.address(), address, "the consumer still has work");
    drop(next);
    gate.open();
    consumer.synchronize().unwrap();
    let third = allocator.allocate(24, &own).unwrap();
    let fourth = allocator.allocate(24, &own).unwrap();
    assert!([third.address(), fourth.address()].contains(&address), "the memory serves again");
}

/// Holds a stream until it is opened.
struct Gate(std::sync::mpsc::Sender<()>);

impl Gate {
    fn close(allocator: &Allocator, stream: &cachette::Stream) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let calls: &dyn HostCalls = allocator.device().host_calls().unwrap();
        // The sender sends nothing, and is dropped to open the gate.
        let wait = Box::new(move || receiver.iter().for_each(drop));
        // SAFETY: 1. the stream is alive.
        unsafe { calls.call_host(stream.handle(), wait) }.unwrap();
        Self(sender)
    }

    fn open(self) {
        drop(self.0);
    }
}
