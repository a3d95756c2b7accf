//! Owners of memory that work in flight uses.

use cachette_hal::owned::{OwnedMemory, OwnedPinned};
use cachette_hal::{Call, ErrorKind};

use crate::rig::{MIB, rig, threaded};

/// Failures of a wait after which work may still run.
const PASSING: [ErrorKind; 3] = [ErrorKind::CaptureForbids, ErrorKind::Refused, ErrorKind::Other];

#[test]
fn a_close_that_fails_gives_the_owner_back() {
    for kind in PASSING {
        let device = rig(threaded());
        let memory = OwnedMemory::allocate(&*device, MIB).unwrap();
        device.fail_next(Call::SynchronizeDevice, 1, kind);
        let kept = memory.close().unwrap_err();
        assert_eq!(kept.error.kind(), kind);
        device.fail_next(Call::Free, 1, ErrorKind::Refused);
        let kept = kept.owner.close().unwrap_err();
        assert_eq!(kept.error.kind(), ErrorKind::Refused);
        assert_eq!(device.physical_bytes(), MIB);
        kept.owner.close().unwrap();
        assert_eq!(device.physical_bytes(), 0);
    }
}

#[test]
fn a_lost_device_gets_its_memory_back() {
    for kind in [ErrorKind::Fault, ErrorKind::DeviceLost, ErrorKind::ShuttingDown] {
        let device = rig(threaded());
        let memory = OwnedMemory::allocate(&*device, MIB).unwrap();
        device.fail_next(Call::SynchronizeDevice, 1, kind);
        let closed = memory.close().unwrap_err();
        assert_eq!(closed.error.kind(), kind);
        assert_eq!(device.physical_bytes(), 0);
        drop(closed);
        assert_eq!(device.calls(Call::Free), 1);
        let pinned = OwnedPinned::allocate(&*device, 64).unwrap();
        device.fail_next(Call::SynchronizeDevice, 1, kind);
        drop(pinned);
        assert_eq!(device.calls(Call::FreePinned), 1);
    }
}
