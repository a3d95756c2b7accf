//! Streams and contexts of the crate cudarc, accepted as ours.

use cachette_hal::{Error, ErrorKind, Result, StreamRef};
use cudarc::driver::{CudaContext, CudaStream};

use crate::device::CudaDevice;
use crate::types::handle;

impl CudaDevice {
    /// Whether cudarc's context is the one that this device works in.
    ///
    /// It is where cudarc made it by `CudaContext::new` for the same device, for that is the primary one.
    #[must_use]
    pub fn shares(&self, context: &CudaContext) -> bool {
        context.cu_ctx() == self.context().raw()
    }

    /// Accepts a stream of cudarc's for use with this device.
    ///
    /// [`ErrorKind::InvalidHandle`] where it belongs to another context, whose memory and events do not go
    /// with this device's. The reference is good for as long as `stream` lives.
    pub fn accept(&self, stream: &CudaStream) -> Result<StreamRef> {
        if !self.shares(stream.context()) {
            return Err(Error::new(ErrorKind::InvalidHandle, "accept"));
        }
        Ok(stream_ref(stream))
    }
}

/// A stream of cudarc's by its handle; [`CudaDevice::accept`] also checks whose it is.
#[must_use]
pub fn stream_ref(stream: &CudaStream) -> StreamRef {
    StreamRef::from_raw(handle(stream.cu_stream()))
}
