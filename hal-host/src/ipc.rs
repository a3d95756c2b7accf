//! Memory shared with another process by a token.

use cachette_hal::{Call, DevicePtr, ErrorKind, Ipc, IpcToken, Result};

use crate::checks::{error, fail};
use crate::defect::Defect;
use crate::device::{HostDevice, device_ptr};
use crate::extent::Extent;
use crate::mapping::Writes;
use crate::space::{Kind, Range};
use crate::token::{Named, Process, TokenKey};

impl Ipc for HostDevice {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let call = self.enter(Call::ExportToken)?;
        let space = self.machine().read_space();
        let range = space.ranges.get(&base.address());
        let range = range.filter(|range| range.owner == self.index).ok_or(error(call, ErrorKind::InvalidValue))?;
        let Kind::Direct(extent) = &range.kind else { return fail(call, ErrorKind::InvalidValue) };
        let key =
            TokenKey::of(extent.memory.as_ref(), range.bytes, extent.bytes).ok_or(error(call, ErrorKind::Refused))?;
        Ok(IpcToken(key.encode(Named::Allocation)))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = self.enter(Call::OpenToken)?;
        let invalid = error(call, ErrorKind::InvalidValue);
        let key = TokenKey::decode(&token.0, Named::Allocation).ok_or(invalid)?;
        if Process::own() == Some(key.process) {
            return Err(invalid);
        }
        let memory = key.reach(Named::Allocation).ok_or(invalid)?;
        let mut space = self.machine().write_space();
        let open = space.ranges().find(|(_, range)| self.has_open(range, &key));
        if let Some(at) = open.map(|(at, _)| at) {
            if let Some(range) = space.ranges.get_mut(&at)
                && let Kind::Opened { count, .. } = &mut range.kind
            {
                *count += 1;
            }
            return device_ptr(call, at);
        }
        let writes = if self.lies(Defect::TokenIsCopy) { Writes::Private } else { Writes::Shared };
        let extent = Extent::open(memory, key.memory_bytes, writes).map_err(|kind| self.no_memory(call, kind))?;
        let at = extent.start;
        let range = Range { bytes: key.bytes, owner: self.index, kind: Kind::Opened { extent, key, count: 1 } };
        space.ranges.insert(at, range);
        device_ptr(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        let call = self.enter(Call::CloseToken)?;
        let mut space = self.machine().write_space();
        let range = space.ranges.get_mut(&base.address());
        let own = |range: &&mut Range| range.owner == self.index;
        match range.filter(own).map(|range| &mut range.kind) {
            Some(Kind::Opened { count, .. }) if *count > 1 => *count -= 1,
            Some(Kind::Opened { .. }) => {
                space.remove(base.address(), self.index, |_| true);
            }
            _ => return fail(call, ErrorKind::InvalidValue),
        }
        Ok(())
    }
}

impl HostDevice {
    /// Whether the range is this allocation, opened by this device.
    fn has_open(&self, range: &Range, wanted: &TokenKey) -> bool {
        range.owner == self.index && matches!(&range.kind, Kind::Opened { key, .. } if key == wanted)
    }
}
