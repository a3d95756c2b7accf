//! Host functions in stream order.

use cachette_hal::{Call, HostCalls, HostFunction, Result, StreamRef};

use crate::device::HostDevice;
use crate::engine::Work;

impl HostCalls for HostDevice {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        let call = self.enter(Call::CallHost)?;
        let work = Work::HostCall(function);
        self.machine().submit_uncaptured(call, self.index, stream, work)
    }
}
