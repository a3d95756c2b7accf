//! Sources of Rust functions.

use std::sync::{Arc, Mutex};

use cachette::hal::{DevicePtr, Ordinal, StreamRef};
use cachette::source::{AllocContext, FunctionSource, Source, SourceError, SourceErrorKind};

/// The default stream of the first device.
const HERE: AllocContext = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);

/// The calls, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, line: String) {
    log.lock().expect("no test panics under it").push(line);
}

/// A source that returns `address` and logs its calls.
fn logged(log: &Log, address: u64) -> FunctionSource {
    let (allocations, frees) = (Arc::clone(log), Arc::clone(log));
    let allocate = move |bytes: u64, context: &AllocContext| {
        let line = format!("allocate {bytes} on {}", context.device);
        note(&allocations, line);
        DevicePtr::new(address).ok_or_else(|| SourceError::out_of_memory("nothing is left"))
    };
    let free = move |ptr: DevicePtr, bytes: u64, context: &AllocContext| {
        let line = format!("free {ptr} of {bytes} on {}", context.device);
        note(&frees, line);
        Ok(())
    };
    // SAFETY: 1. 2. 3. no test uses the address.
    unsafe { FunctionSource::new("logged", allocate, free) }
}

fn allocate(source: &dyn Source, bytes: u64) -> Result<DevicePtr, SourceError> {
    // SAFETY: 1. the default stream.
    unsafe { source.allocate(bytes, &HERE) }
}

#[test]
fn an_unaligned_address_that_cannot_be_freed_is_leaked() {
    let at = DevicePtr::new(0x4001).unwrap();
    let stuck = || SourceError::other("it is stuck", "restart");
    // SAFETY: 1. 2. 3. the address is not used.
    let source = unsafe { FunctionSource::new("stuck", move |_, _| Ok(at), move |_, _, _| Err(stuck())) };
    let error = allocate(&source, 1).unwrap_err().to_string();
    assert!(error.contains("so it is leaked: it is stuck; restart"), "{error}");
}

#[test]
fn errors_of_the_functions_are_returned() {
    let log = Log::default();
    let source = logged(&log, 0);
    let error = allocate(&source, 4096).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "nothing is left; free memory and try again");

    let at = DevicePtr::new(0x4000).unwrap();
    let busy = || SourceError::other("the memory is registered", "deregister it");
    // SAFETY: 1. 2. 3. the address is not used.
    let source = unsafe { FunctionSource::new("busy", move |_, _| Ok(at), move |_, _, _| Err(busy())) };
    let ptr = allocate(&source, 512).unwrap();
    // SAFETY: 1. it came from there. 2. no work uses it.
    let error = unsafe { source.free(ptr, 512, &HERE) }.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Other);
    assert_eq!(error.to_string(), "the memory is registered; deregister it");
}

#[test]
fn impossible_sizes_do_not_reach_the_functions() {
    let log = Log::default();
    let source = logged(&log, 0x4000);
    let none = allocate(&source, 0).unwrap_err();
    assert_eq!(none.kind(), SourceErrorKind::Other);
    assert_eq!(none.text(), "logged was asked for zero bytes");
    let huge = allocate(&source, u64::MAX).unwrap_err();
    assert_eq!(huge.kind(), SourceErrorKind::OutOfMemory);
    assert!(log.lock().unwrap().is_empty());
}
