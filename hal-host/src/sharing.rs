//! Backings exported as a descriptor or by a fabric handle.

use std::os::fd::{BorrowedFd, OwnedFd};

use cachette_hal::{Backing, Call, ErrorKind, FabricHandle, Reason, Result, Sharing, VirtualMemory};

use crate::backing::{BACKING, BackingMemory};
use crate::checks::{check, error, fail};
use crate::defect::Defect;
use crate::device::HostDevice;
use crate::mapping::{Memory, kind_of};
use crate::token::{Named, TokenKey};

impl HostDevice {
    /// Returns why a backing cannot be exported in this way; `None` if it can.
    pub(crate) fn sharing_obstacle(&self, sharing: Sharing) -> Option<Reason> {
        let config = &self.machine().config;
        if sharing == Sharing::Private {
            None
        } else if config.phantom {
            Some(Reason::DeviceLacks("real memory"))
        } else if config.without_sharing.contains(&sharing) {
            Some(Reason::SwitchedOff("the host device's configuration"))
        } else {
            None
        }
    }

    /// Rejects a kind of sharing that the device lacks.
    pub(crate) fn check_sharing(&self, call: Call, sharing: Sharing) -> Result<()> {
        match (self.shares(sharing), sharing) {
            (Ok(()), _) => Ok(()),
            (Err(_), Sharing::Fabric) => fail(call, ErrorKind::NoFabric),
            (Err(_), _) => fail(call, ErrorKind::Unsupported),
        }
    }

    /// Returns another descriptor of a backing's memory.
    pub(crate) fn descriptor_of(&self, call: Call, backing: &Backing) -> Result<OwnedFd> {
        let found = self.find_backing(call, backing)?;
        let is_exportable = found.sharing == Sharing::FileDescriptor || self.lies(Defect::ExportsPrivate);
        check(is_exportable, call, ErrorKind::InvalidValue)?;
        let descriptor = found.memory.as_ref().ok_or(error(call, ErrorKind::Unsupported))?.duplicate();
        descriptor.map_err(|errno| error(call, kind_of(errno)))
    }

    /// Creates a backing from the memory behind a descriptor.
    pub(crate) fn of_descriptor(&self, call: Call, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        self.check_sharing(call, Sharing::FileDescriptor)?;
        let descriptor = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(|errno| error(call, kind_of(errno)))?;
        let memory = Memory::adopt(descriptor, BACKING, bytes).ok_or(error(call, ErrorKind::InvalidValue))?;
        Ok(self.enter_foreign(memory, bytes, Sharing::FileDescriptor))
    }

    /// Returns a backing's name among all processes of the host.
    pub(crate) fn name_of(&self, call: Call, backing: &Backing) -> Result<FabricHandle> {
        let found = self.find_backing(call, backing)?;
        let is_exportable = found.sharing == Sharing::Fabric || self.lies(Defect::ExportsFabricUnasked);
        check(is_exportable, call, ErrorKind::InvalidValue)?;
        let key =
            TokenKey::of(found.memory.as_ref(), found.bytes, found.bytes).ok_or(error(call, ErrorKind::Refused))?;
        Ok(FabricHandle(key.encode(Named::Backing)))
    }

    /// Creates a backing from the memory with this name.
    pub(crate) fn of_name(&self, call: Call, name: &FabricHandle, bytes: u64) -> Result<Backing> {
        self.check_sharing(call, Sharing::Fabric)?;
        let key = TokenKey::decode(&name.0, Named::Backing).filter(|key| key.bytes == bytes);
        let other = match key {
            Some(_) => self.lies(Defect::FabricIsOtherMemory),
            None => self.lies(Defect::FabricImportsAnything),
        };
        let memory =
            if other { Memory::create(BACKING, bytes).ok() } else { key.and_then(|key| key.reach(Named::Backing)) };
        let memory = memory.ok_or(error(call, ErrorKind::InvalidValue))?;
        Ok(self.enter_foreign(memory, bytes, Sharing::Fabric))
    }

    /// Creates a handle for memory that the exporter's device accounts for.
    fn enter_foreign(&self, memory: Memory, bytes: u64, sharing: Sharing) -> Backing {
        self.enter_backing(BackingMemory::new(bytes, sharing, Some(memory), None))
    }
}
