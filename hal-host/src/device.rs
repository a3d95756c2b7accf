//! One device: memory, streams and events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cachette_hal::{
    Call, Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, Feature, MemoryInfo, Missing, Progress, Reason,
    Result, Stream, StreamRef, group_accessors,
};

use crate::backend::Owner;
use crate::checks::{check, error};
use crate::defect::Defect;
use crate::engine::machine::{Machine, Unit};
use crate::extent::Extent;
use crate::space::{Kind, Range, Space};

/// A device made of host memory; clones share the device.
#[derive(Clone, Debug)]
pub struct HostDevice {
    owner: Arc<Owner>,
    /// Position among the backend's devices.
    pub(crate) index: usize,
}

impl HostDevice {
    pub(crate) const fn new(owner: Arc<Owner>, index: usize) -> Self {
        Self { owner, index }
    }

    /// The state that all devices of the backend share.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.owner.machine
    }

    pub(crate) fn unit(&self) -> &Unit {
        &self.machine().units[self.index]
    }

    /// Begins a call of the contract, and returns it.
    pub(crate) fn enter(&self, call: Call) -> Result<Call> {
        self.machine().enter(self.index, call)?;
        Ok(call)
    }

    pub(crate) fn lies(&self, defect: Defect) -> bool {
        self.machine().lies(defect)
    }

    pub(crate) fn check_size(&self, call: Call, bytes: u64) -> Result<()> {
        check(bytes != 0 || self.lies(Defect::ZeroSizeAccepted), call, ErrorKind::InvalidValue)
    }

    /// The error of a call that got no memory.
    pub(crate) fn no_memory(&self, call: Call, kind: ErrorKind) -> Error {
        let kind = match kind {
            ErrorKind::OutOfMemory if self.lies(Defect::WrongKindOnExhaustion) => ErrorKind::InvalidValue,
            kind => kind,
        };
        error(call, kind)
    }

    /// Allocates memory and enters it in the table.
    pub(crate) fn take_memory(&self, bytes: u64, kind: impl FnOnce(Extent) -> Kind) -> Result<u64, ErrorKind> {
        let machine = self.machine();
        let off = u64::from(self.lies(Defect::MisalignedAllocation));
        let (extent, mut space) = Extent::take(
            &self.unit().physical,
            bytes.saturating_add(off),
            machine.config.alignment,
            &machine.space,
            machine.config.phantom,
        )?;
        let at = extent.start + off;
        let range = Range { bytes, owner: self.index, kind: kind(extent) };
        space.ranges.insert(at, range);
        Ok(at)
    }

    /// An address inside a live allocation with room for `bytes`; a defect.
    fn overlapping(&self, space: &Space, bytes: u64) -> Option<u64> {
        let room =
            |range: &Range| range.owner == self.index && matches!(range.kind, Kind::Direct(_)) && range.bytes >= bytes;
        space.ranges().find(|(_, range)| room(range)).map(|(at, _)| at)
    }

    /// The device itself, unless it lacks the feature.
    fn with(&self, feature: Feature) -> Result<&Self, Missing> {
        let config = &self.machine().config;
        let reason = if config.without.contains(&feature) {
            Reason::SwitchedOff("the host device's configuration")
        } else if config.phantom && feature == Feature::Ipc {
            Reason::DeviceLacks("real memory")
        } else {
            return Ok(self);
        };
        Err(Missing::new(feature, reason))
    }
}

/// The device as one of its groups.
macro_rules! with_feature {
    ($device:expr, $accessor:ident, $group:ident) => {
        $device.with(Feature::$group).map(|device| device as _)
    };
}

/// Defines methods that the engine runs for this device: `fn name(arguments) -> output: call;`.
macro_rules! engine_calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty: $call:ident;)*) => {
        $(
            unsafe fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                self.enter(Call::$call)?;
                self.machine().$name(self.index $(, $argument)*)
            }
        )*
    };
}
pub(crate) use engine_calls;

impl Device for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.unit().info
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.enter(Call::MemoryInfo)?;
        let physical = &self.unit().physical;
        let total = physical.capacity;
        let used = if self.lies(Defect::MemoryInfoFixed) { 0 } else { physical.used_by_all() };
        let free = total.saturating_sub(used);
        Ok(MemoryInfo { free, total })
    }

    fn host_available(&self) -> Option<u64> {
        let used_by_host = self.machine().config.host.as_ref()?.load(Ordering::Relaxed);
        let physical = &self.unit().physical;
        Some(physical.capacity.saturating_sub(physical.used_by_all()).saturating_sub(used_by_host))
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let call = self.enter(Call::Allocate)?;
        self.check_size(call, bytes)?;
        if self.lies(Defect::AllocationsOverlap)
            && let Some(at) = self.overlapping(&self.machine().read_space(), bytes)
        {
            return device_ptr(call, at);
        }
        let at = self.take_memory(bytes, Kind::Direct).map_err(|kind| self.no_memory(call, kind))?;
        device_ptr(call, at)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.enter(Call::Free)?;
        let direct = |range: &Range| matches!(range.kind, Kind::Direct(_));
        let own = |range: &Range| range.owner == self.index && direct(range);
        let (machine, at) = (self.machine(), ptr.address());
        let found = machine.read_space().ranges.get(&at).filter(|range| own(range)).map(|range| range.bytes);
        let bytes = found.ok_or(error(call, ErrorKind::InvalidValue))?;
        let remove = || machine.write_space().remove(at, self.index, direct);
        let removed = if machine.config.frees_at_once {
            machine.remove_at_once(at, bytes, remove)
        } else {
            machine.wait_idle(call, self.index)?;
            remove()
        };
        check(removed.is_some(), call, ErrorKind::InvalidValue)
    }

    fn create_stream(&self) -> Result<Stream> {
        self.enter(Call::CreateStream)?;
        Ok(self.machine().create_stream(self.index))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        self.enter(Call::DestroyStream)?;
        self.machine().destroy_stream(self.index, stream.borrow())
    }

    fn synchronize_device(&self) -> Result<()> {
        self.enter(Call::SynchronizeDevice)?;
        if self.lies(Defect::SynchronizeReturnsEarly) {
            return Ok(());
        }
        self.machine().wait_idle(Call::SynchronizeDevice, self.index)
    }

    fn create_event(&self) -> Result<Event> {
        self.enter(Call::CreateEvent)?;
        Ok(self.machine().create_event(self.index))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.enter(Call::DestroyEvent)?;
        self.machine().destroy_event(self.index, &event)
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        self.enter(Call::Poll)?;
        self.machine().poll(event)
    }

    engine_calls! {
        fn synchronize(stream: StreamRef) -> (): Synchronize;
        fn record(event: &Event, stream: StreamRef) -> (): Record;
        fn wait(event: &Event) -> (): Wait;
        fn stream_wait(stream: StreamRef, event: &Event) -> (): StreamWait;
    }

    group_accessors!(with_feature);
}

/// Converts a device address that is not zero.
pub(crate) fn device_ptr(call: Call, address: u64) -> Result<DevicePtr> {
    DevicePtr::new(address).ok_or(error(call, ErrorKind::Other))
}
