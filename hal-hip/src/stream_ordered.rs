//! AMD's own stream-ordered pool, given out only where it has passed a test.

use std::ffi::c_void;

use cachette_hal::owned::{OwnedStream, RelaxedCapture};
use cachette_hal::{DevicePtr, Error, ErrorKind, Reason, Result, StreamOrdered, StreamRef, Transfer};

use crate::device::{HipDevice, address, check_size, handle};
use crate::probe;
use crate::types::{MEMORY_TYPE_DEVICE, PointerAttribute, PoolHandle};

/// Bytes of each of the test's allocations.
const TEST_BYTES: usize = 1 << 20;

impl HipDevice {
    /// Whether the pool works, tested once in a process.
    pub(crate) fn tested_pool(&self) -> Result<(), Reason> {
        self.unit.pool?;
        if let Some(known) = self.unit.pool_test.get() {
            return *known;
        }
        let outcome = if probe::is_pool_forced() {
            Ok(())
        } else {
            match self.test_pool() {
                // A capture is in the way, which says nothing of the pool: the next to ask tests again.
                Err(Trouble::Call(error)) if is_about_capture(error) => {
                    return Err(Reason::SelfTestFailed("a stream is being captured"));
                }
                outcome => outcome.map_err(Trouble::reason),
            }
        };
        *self.unit.pool_test.get_or_init(|| outcome)
    }

    /// Allocates twice, writes both differently, reads both back and frees them.
    fn test_pool(&self) -> Result<(), Trouble> {
        let _relaxed = match self.driver.symbols.capture {
            Ok(_) => Some(RelaxedCapture::enter(self)?),
            Err(_) => None,
        };
        let stream = OwnedStream::create(self)?;
        let (mut blocks, mut outcome) = (Vec::new(), Ok(()));
        for byte in [0xa5, 0x5a] {
            // SAFETY: 1. the stream's owner lives.
            let block = unsafe { self.allocate_on(TEST_BYTES as u64, stream.get()) }?;
            if !self.knows(block) {
                // It was never mapped, and freeing it would crash: it is left behind.
                outcome = Err(Trouble::Unknown);
                break;
            }
            blocks.push((block, byte));
        }
        for (block, byte) in &blocks {
            outcome = outcome.and_then(|()| self.test_block(*block, *byte, &stream));
        }
        for (block, _) in blocks {
            // SAFETY: 1. it was allocated above. 2. It was used in this stream alone.
            let freed = unsafe { self.free_on(block, stream.get()) };
            outcome = outcome.and(freed.map_err(Trouble::Call));
        }
        stream.synchronize()?;
        outcome
    }

    /// Writes one block and reads it back.
    fn test_block(&self, block: DevicePtr, byte: u8, stream: &OwnedStream<&Self>) -> Result<(), Trouble> {
        let mut found = vec![!byte; TEST_BYTES];
        // SAFETY: 1. the stream's owner lives. 3. So does the block until it is freed in this stream.
        unsafe { self.fill(block, byte, TEST_BYTES as u64, stream.get()) }?;
        // SAFETY: 1 and 3, as above. 4. The buffer is read only after the stream was synchronised with.
        let queued = unsafe { self.download(found.as_mut_ptr(), block, TEST_BYTES, stream.get()) };
        // Before anything returns, for the buffer goes with this function.
        stream.synchronize()?;
        queued?;
        if found.iter().all(|found| *found == byte) { Ok(()) } else { Err(Trouble::Content) }
    }

    /// The device's default pool, whichever pool somebody may have made current.
    fn default_pool(&self) -> Result<PoolHandle> {
        if let Some(known) = self.unit.default_pool.get() {
            return Ok(*known);
        }
        let (group, mut pool) = (&self.driver.symbols.stream_ordered, 0);
        // SAFETY: the out-parameter outlives the call.
        self.call_in(group, "hipDeviceGetDefaultMemPool", |hip| unsafe {
            (hip.hipDeviceGetDefaultMemPool)(&raw mut pool, self.unit.device)
        })?;
        Ok(*self.unit.default_pool.get_or_init(|| pool))
    }

    /// Whether the driver knows an address as memory of this device.
    fn knows(&self, at: DevicePtr) -> bool {
        let mut found = PointerAttribute {
            kind: -1,
            device: -1,
            device_pointer: 0,
            host_pointer: std::ptr::null_mut::<c_void>(),
            is_managed: 0,
            allocation_flags: 0,
        };
        let call = "hipPointerGetAttributes";
        // SAFETY: the out-parameter outlives the call, and any address may be asked about.
        let asked = self.call_in(&self.driver.symbols.stream_ordered, call, |hip| unsafe {
            (hip.hipPointerGetAttributes)(&raw mut found, at.address())
        });
        asked.is_ok() && found.kind == MEMORY_TYPE_DEVICE && found.device == self.unit.device
    }
}

/// How the test of the pool failed.
#[derive(Debug)]
enum Trouble {
    /// A call failed.
    Call(Error),
    /// It gave out an address that the driver does not know.
    Unknown,
    /// What was written was not read.
    Content,
}

impl Trouble {
    fn reason(self) -> Reason {
        Reason::SelfTestFailed(match self {
            Self::Call(_) => "a call failed; set CACHETTE_HIP_FORCE_STREAM_ORDERED=1 to use it all the same",
            Self::Unknown => {
                "it gave out an address where nothing is mapped; DEBUG_HIP_MEM_POOL_VMHEAP=0 may help, and \
                 CACHETTE_HIP_FORCE_STREAM_ORDERED=1 uses it all the same"
            }
            Self::Content => {
                "what was written was not read; set CACHETTE_HIP_FORCE_STREAM_ORDERED=1 to use it all the \
                 same"
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

impl StreamOrdered for HipDevice {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let call = "hipMallocFromPoolAsync";
        check_size(call, bytes)?;
        let (pool, mut at) = (self.default_pool()?, 0);
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call, and the pool is the
        // device's own and lives as long as the driver.
        self.call_in(&self.driver.symbols.stream_ordered, call, |hip| unsafe {
            (hip.hipMallocFromPoolAsync)(&raw mut at, bytes, pool, handle(stream))
        })?;
        address(call, at)
    }

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.call_in(&self.driver.symbols.stream_ordered, "hipFreeAsync", |hip| unsafe {
            (hip.hipFreeAsync)(ptr.address(), handle(stream))
        })
    }

    fn trim(&self, keep: u64) -> Result<()> {
        let (group, pool) = (&self.driver.symbols.stream_ordered, self.default_pool()?);
        // SAFETY: the pool is the device's own and lives as long as the driver.
        self.call_in(group, "hipMemPoolTrimTo", |hip| unsafe { (hip.hipMemPoolTrimTo)(pool, keep) })
    }
}
