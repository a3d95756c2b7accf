//! Owners give memory back only where no work can use it any more.

use std::fmt::Debug;

use cachette_hal::owned::{NotClosed, OpenedToken, OwnedBacking, OwnedMemory, OwnedPinned, OwnedReservation};
use cachette_hal::{Call, Error, ErrorKind, IpcToken, Sharing};

use crate::fake::{Fake, STRIDE};

/// What each owner calls to give its memory back, and its close as a function.
fn each_owner(test: impl Fn(&Fake, Call, &mut dyn FnMut() -> Result<(), Error>)) {
    fn closing<O: Debug>(
        mut owner: Option<O>,
        close: impl Fn(O) -> Result<(), NotClosed<O>>,
    ) -> impl FnMut() -> Result<(), Error> {
        move || match owner.take().map(&close) {
            Some(Err(kept)) => {
                owner = Some(kept.owner);
                Err(kept.error)
            }
            _ => Ok(()),
        }
    }
    let device = Fake::new();
    let memory = OwnedMemory::allocate(&device, 64).unwrap();
    test(&device, Call::Free, &mut closing(Some(memory), OwnedMemory::close));
    let device = Fake::new();
    let pinned = OwnedPinned::allocate(&device, 64).unwrap();
    let mut close = closing(Some(pinned), OwnedPinned::close);
    test(&device, Call::FreePinned, &mut close);
    let device = Fake::new();
    let token = OpenedToken::open(&device, &IpcToken([1; 64])).unwrap();
    let mut close = closing(Some(token), OpenedToken::close);
    test(&device, Call::CloseToken, &mut close);
    let device = Fake::new();
    let reservation = OwnedReservation::reserve(&device, STRIDE).unwrap();
    let backing = OwnedBacking::create(&device, STRIDE, Sharing::Private).unwrap();
    let mapping = reservation.map(0, &backing).unwrap();
    let mut close = closing(Some(mapping), cachette_hal::owned::OwnedMapping::close);
    test(&device, Call::Unmap, &mut close);
}

#[test]
fn a_close_whose_wait_fails_gives_nothing_back() {
    each_owner(|device, end, close| {
        device.fail_next();
        let error = close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert!(!device.calls().contains(&end), "{end:?} after a failed wait");
        close().unwrap();
        assert!(device.calls().contains(&end), "{end:?} when closed again");
    });
}

#[test]
fn an_owner_dropped_while_waits_fail_keeps_its_memory() {
    let device = Fake::new();
    let memory = OwnedMemory::allocate(&device, 64).unwrap();
    device.fail_next();
    drop(memory);
    assert_eq!(device.calls(), [Call::Allocate, Call::SynchronizeDevice]);
}

#[test]
fn what_is_closed_is_given_back_once() {
    each_owner(|device, end, close| {
        close().unwrap();
        close().unwrap();
        let ends = device.calls().iter().filter(|call| **call == end).count();
        assert_eq!(ends, 1, "{end:?}");
    });
}
