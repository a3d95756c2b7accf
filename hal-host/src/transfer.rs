//! Fills and copies in stream order.

use cachette_hal::{Call, DevicePtr, Result, StreamRef, Transfer};

use crate::defect::Defect;
use crate::device::HostDevice;
use crate::engine::Task;

impl HostDevice {
    fn queue(&self, call: Call, stream: StreamRef, bytes: u64, task: Task) -> Result<()> {
        self.enter(call)?;
        self.check_size(call, bytes)?;
        self.machine().submit(call, self.index, stream, task)
    }
}

impl Transfer for HostDevice {
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let at = at.address();
        self.queue(Call::Fill, stream, bytes, Task::Fill { at, byte, bytes })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let (to, from) = (to.address(), from.address());
        self.queue(Call::Copy, stream, bytes, Task::Copy { to, from, bytes })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let (from, bytes) = (from.expose_provenance() as u64, bytes as u64);
        let to = to.address();
        self.queue(Call::Upload, stream, bytes, Task::Upload { to, from, bytes })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let (to, bytes) = (to.expose_provenance() as u64, bytes as u64);
        let from = from.address();
        let task = Task::Download { to, from, bytes };
        if self.lies(Defect::DownloadEager) && bytes > 0 {
            self.enter(Call::Download)?;
            self.machine().run(self.index, &task);
            return Ok(());
        }
        self.queue(Call::Download, stream, bytes, task)
    }
}
