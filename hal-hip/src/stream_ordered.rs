//! AMD's stream-ordered pool, which is offered only after it has passed a test.

use std::ptr;
use std::sync::{Arc, OnceLock};

use cachette_hal::owned::{OwnedStream, RelaxedCapture};
use cachette_hal::{
    Device, DevicePtr, Error, ErrorKind, Reason, Result, StreamOrdered, StreamRef, Transfer, sized_call,
};

use crate::context::{Context, handle};
use crate::device::{HipDevice, device_ptr};
use crate::probe::{self, Property};
use crate::symbols::StreamOrderedCalls;
use crate::types::{MEMORY_TYPE_DEVICE, PointerAttribute, PoolHandle};

/// Bytes of each of the test's allocations.
const TEST_BYTES: usize = 1 << 20;

/// The device's default pool, which other users of the device in the process also use.
#[derive(Debug)]
pub(crate) struct HipStreamOrdered {
    context: Arc<Context>,
    calls: StreamOrderedCalls,
    /// Set by the first use.
    pool: OnceLock<PoolHandle>,
    /// The result of the test, after the test.
    test: OnceLock<Result<(), Reason>>,
}

impl HipStreamOrdered {
    /// Checks the requirements of the group; [`tested`](Self::tested) must also succeed.
    pub(crate) fn probe(context: &Arc<Context>, architecture: Option<&str>) -> Result<Self, Reason> {
        let calls = context.symbols().stream_ordered?;
        Property::POOLS.need(context)?;
        probe::check_pool(architecture)?;
        Ok(Self { context: Arc::clone(context), calls, pool: OnceLock::new(), test: OnceLock::new() })
    }

    /// Whether the pool works, tested once in a process.
    pub(crate) fn tested(&self, device: &HipDevice) -> Result<(), Reason> {
        if let Some(known) = self.test.get() {
            return *known;
        }
        let outcome = if probe::is_pool_forced() {
            Ok(())
        } else {
            match self.test(device) {
                // A capture prevents the test, whatever the state of the pool, so the next caller tests again.
                Err(Trouble::Call(error)) if is_about_capture(error) => {
                    return Err(Reason::SelfTestFailed("a stream is being captured"));
                }
                outcome => outcome.map_err(Trouble::reason),
            }
        };
        *self.test.get_or_init(|| outcome)
    }

    /// Allocates twice, fills both with different bytes, reads both back and frees them.
    fn test(&self, device: &HipDevice) -> Result<(), Trouble> {
        let transfer = device.transfer().map_err(Error::from)?;
        let _relaxed = match device.capture() {
            Ok(_) => Some(RelaxedCapture::enter(device)?),
            Err(_) => None,
        };
        let stream = OwnedStream::create(device)?;
        let (mut blocks, mut outcome) = (Vec::new(), Ok(()));
        for byte in [0xa5, 0x5a] {
            // SAFETY: 1. the stream's owner lives.
            let block = unsafe { self.allocate_on(TEST_BYTES as u64, stream.get()) }?;
            if !self.knows(block) {
                // It was never mapped, and freeing it would crash, so it is leaked.
                outcome = Err(Trouble::Unknown);
                break;
            }
            blocks.push((block, byte));
        }
        for (block, byte) in &blocks {
            outcome = outcome.and_then(|()| test_block(transfer, *block, *byte, &stream));
        }
        for (block, _) in blocks {
            // SAFETY: 1. it was allocated above. 2. Only this stream used it.
            let freed = unsafe { self.free_on(block, stream.get()) };
            outcome = outcome.and(freed.map_err(Trouble::Call));
        }
        stream.synchronize()?;
        outcome
    }

    /// The device's default pool, not the current one, which the caller may have changed.
    fn default_pool(&self) -> Result<PoolHandle> {
        if let Some(known) = self.pool.get() {
            return Ok(*known);
        }
        let (find, mut pool) = (self.calls.hipDeviceGetDefaultMemPool, 0);
        // SAFETY: the driver writes one handle.
        self.context.call("hipDeviceGetDefaultMemPool", || unsafe { find(&raw mut pool, self.context.device) })?;
        Ok(*self.pool.get_or_init(|| pool))
    }

    /// Returns whether the driver recognises an address as memory of this device.
    fn knows(&self, at: DevicePtr) -> bool {
        let mut found = PointerAttribute {
            kind: -1,
            device: -1,
            device_pointer: 0,
            host_pointer: ptr::null_mut(),
            is_managed: 0,
            allocation_flags: 0,
        };
        let look_up = self.calls.hipPointerGetAttributes;
        // SAFETY: the driver writes one structure, and looks the address up without dereferencing it.
        let asked = self.context.call("hipPointerGetAttributes", || unsafe { look_up(&raw mut found, at.address()) });
        asked.is_ok() && found.kind == MEMORY_TYPE_DEVICE && found.device == self.context.device
    }
}

/// Writes one block and reads it back.
fn test_block(
    transfer: &dyn Transfer,
    block: DevicePtr,
    byte: u8,
    stream: &OwnedStream<&HipDevice>,
) -> Result<(), Trouble> {
    let mut found = vec![!byte; TEST_BYTES];
    // SAFETY: 1. the stream's owner lives. 3. The block lives until it is freed in this stream.
    unsafe { transfer.fill(block, byte, TEST_BYTES as u64, stream.get()) }?;
    // SAFETY: 1 and 3, as above. 4. The buffer is read only after the stream has finished.
    let queued = unsafe { transfer.download(found.as_mut_ptr(), block, TEST_BYTES, stream.get()) };
    // This comes before any return, because the buffer is dropped with this function.
    stream.synchronize()?;
    queued?;
    if found.iter().all(|found| *found == byte) { Ok(()) } else { Err(Trouble::Content) }
}

/// Why the test of the pool failed.
#[derive(Debug)]
enum Trouble {
    /// A call failed.
    Call(Error),
    /// The pool returned an address that the driver does not recognise.
    Unknown,
    /// The bytes read differ from the bytes written.
    Content,
}

impl Trouble {
    fn reason(self) -> Reason {
        Reason::SelfTestFailed(match self {
            Self::Call(_) => "a call failed; set CACHETTE_HIP_FORCE_STREAM_ORDERED=1 to use it all the same",
            Self::Unknown => {
                "it returned an address where nothing is mapped; DEBUG_HIP_MEM_POOL_VMHEAP=0 may help, and \
                 CACHETTE_HIP_FORCE_STREAM_ORDERED=1 uses it all the same"
            }
            Self::Content => {
                "the bytes read differ from the bytes written; set CACHETTE_HIP_FORCE_STREAM_ORDERED=1 to use it all \
                 the same"
            }
        })
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

fn is_about_capture(error: Error) -> bool {
    matches!(error.kind(), ErrorKind::CaptureForbids | ErrorKind::CaptureBroken)
}

impl StreamOrdered for HipStreamOrdered {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let call = sized_call("hipMallocFromPoolAsync", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (pool, stream) = (self.default_pool()?, handle(stream));
        let mut at = 0;
        let allocate = self.calls.hipMallocFromPoolAsync;
        // SAFETY: 1. is the caller's promise; the driver writes one address.
        self.context.check(call, unsafe { allocate(&raw mut at, bytes, pool, stream) })?;
        device_ptr(call, at)
    }

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (at, stream) = (ptr.address(), handle(stream));
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.check("hipFreeAsync", unsafe { (self.calls.hipFreeAsync)(at, stream) })
    }

    fn trim(&self, keep: u64) -> Result<()> {
        let pool = self.default_pool()?;
        // SAFETY: a default pool lives as long as its device.
        self.context.call("hipMemPoolTrimTo", || unsafe { (self.calls.hipMemPoolTrimTo)(pool, keep) })
    }
}
