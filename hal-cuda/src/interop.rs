//! Streams and contexts of the crate cudarc.

use cachette_hal::{Error, ErrorKind, Result, StreamRef};
use cudarc::driver::{CudaContext, CudaStream};

use crate::device::CudaDevice;
use crate::types::handle;

impl CudaDevice {
    /// Whether cudarc's context is the one that this device uses.
    ///
    /// This holds for `CudaContext::new` with the same device, which retains the primary context.
    #[must_use]
    pub fn shares(&self, context: &CudaContext) -> bool {
        context.cu_ctx() == self.context().raw()
    }

    /// Accepts a stream of cudarc for use with this device.
    ///
    /// [`ErrorKind::InvalidHandle`] if it belongs to another context, whose memory and events cannot be mixed with this
    /// device's. The reference is valid while `stream` lives.
    pub fn accept(&self, stream: &CudaStream) -> Result<StreamRef> {
        if !self.shares(stream.context()) {
            return Err(Error::new(ErrorKind::InvalidHandle, "accept"));
        }
        Ok(stream_ref(stream))
    }
}

/// A stream of cudarc by its handle; [`CudaDevice::accept`] also checks its context.
#[must_use]
pub fn stream_ref(stream: &CudaStream) -> StreamRef {
    StreamRef::from_raw(handle(stream.cu_stream()))
}
