//! Calls preserve the caller's state: its device, its last error, and the mappings of others.

use std::os::fd::AsFd;

use cachette_emulated_hip::{Personality, install};
use cachette_hal::load::{Candidate, Library};
use cachette_hal::owned::{OwnedEvent, OwnedStream};
use cachette_hal::{Access, Backend, Device, ErrorKind, Ordinal, Progress, Sharing, StreamRef, Vendor, symbol_table};
use cachette_hal_hip::HipBackend;

symbol_table! {
    /// What a program that uses HIP itself calls.
    struct Caller {
        required {
            device as "hipGetDevice": fn(device: *mut i32) -> i32;
            set_device as "hipSetDevice": fn(device: i32) -> i32;
            peek as "hipPeekAtLastError": fn() -> i32;
            free as "hipFree": fn(address: u64) -> i32;
            create_stream as "hipStreamCreateWithFlags": fn(stream: *mut usize, flags: u32) -> i32;
            destroy_stream as "hipStreamDestroy": fn(stream: usize) -> i32;
            calls as "cachette_emulated_calls": fn() -> u64;
        }
        optional {}
    }
}

impl Caller {
    fn current(&self) -> i32 {
        let mut device = -1;
        // SAFETY: the out-parameter outlives the call.
        assert_eq!(unsafe { (self.device)(&raw mut device) }, 0);
        device
    }

    fn choose(&self, device: i32) {
        // SAFETY: it takes numbers alone.
        assert_eq!(unsafe { (self.set_device)(device) }, 0);
    }

    fn last_error(&self) -> i32 {
        // SAFETY: it takes nothing.
        unsafe { (self.peek)() }
    }

    /// Makes a call that fails, and leaves its failure as the last error.
    fn fail(&self) {
        // SAFETY: the emulated library refuses an address that it does not know.
        assert_eq!(unsafe { (self.free)(12_345) }, 1);
    }
}

impl Caller {
    /// The driver calls that `act` makes.
    fn calls_of(&self, act: impl FnOnce()) -> u64 {
        // SAFETY: it takes nothing.
        let before = unsafe { (self.calls)() };
        act();
        // SAFETY: it takes nothing.
        unsafe { (self.calls)() - before }
    }
}

/// The emulated library of a version, as a backend and as another part of the process sees it.
fn load(personality: Personality) -> (HipBackend, Caller) {
    let names = [Candidate::Path(install(personality).expect("the library was built"))];
    // SAFETY: the emulated library keeps to AMD's C interface.
    let backend = unsafe { HipBackend::load_from(&names) }.expect("it loads");
    // SAFETY: as above.
    let library = unsafe { Library::open_first(&names) }.expect("it opens");
    (backend, Caller::resolve(&library).expect("it has every function"))
}

#[test]
fn the_current_device_stays_on_every_path() {
    for personality in Personality::ALL {
        let (backend, caller) = load(personality);
        for chosen in [1, 0] {
            caller.choose(chosen);
            for ordinal in [Ordinal(0), Ordinal(1)] {
                let device = backend.open(ordinal).unwrap();
                device.allocate(u64::MAX / 2).unwrap_err();
                let ptr = device.allocate(4096).unwrap();
                // SAFETY: 1. it was allocated just now. 2. Nothing has used it.
                unsafe { device.free(ptr) }.unwrap();
                device.memory_info().unwrap();
                device.stream_ordered().unwrap();
                device.peer_access().unwrap().can_reach(Ordinal(9)).unwrap_err();
                device.synchronize_device().unwrap();
                let mut within = -1;
                device.while_current(&mut || within = caller.current()).unwrap();
                assert_eq!(within.unsigned_abs(), ordinal.0, "the device is current for the call");
                assert_eq!(caller.current(), chosen, "{personality}, after calls on {ordinal}");
            }
        }
    }
}

#[test]
fn each_device_takes_its_own_memory() {
    const LARGE: u64 = 64 << 20;
    for personality in Personality::ALL {
        let (backend, caller) = load(personality);
        let devices = [0, 1].map(|ordinal| backend.device(Ordinal(ordinal)).unwrap());
        let free = || devices.each_ref().map(|device| device.memory_info().unwrap().free);
        for (chosen, other) in [(0, 1), (1, 0)] {
            caller.choose(other);
            let (device, before) = (&devices[chosen], free());
            let memory = device.virtual_memory().unwrap();
            let ptr = device.allocate(LARGE).unwrap();
            let backing = memory.create_backing(LARGE, Sharing::Private, false).unwrap();
            let after = free();
            // SAFETY: 1. it was allocated just now. 2. Nothing has used it.
            unsafe { device.free(ptr) }.unwrap();
            // SAFETY: 1. it was created just now.
            unsafe { memory.destroy_backing(backing) }.unwrap();
            // Others of these tests take memory meanwhile, but not that much.
            let taken = [0, 1].map(|at| before[at].saturating_sub(after[at]) / LARGE);
            let promised = [2 * u64::from(chosen == 0), 2 * u64::from(chosen == 1)];
            assert_eq!(taken, promised, "{personality}, device {chosen}");
        }
    }
}

#[test]
fn failures_leave_no_last_error() {
    for personality in Personality::ALL {
        let (backend, caller) = load(personality);
        let device = backend.open(Ordinal(0)).unwrap();
        device.allocate(u64::MAX / 2).unwrap_err();
        assert_eq!(caller.last_error(), 0, "{personality}");
    }
}

#[test]
fn a_pending_poll_leaves_the_last_error_alone() {
    for personality in Personality::ALL {
        let (backend, caller) = load(personality);
        let device = backend.open(Ordinal(0)).unwrap();
        let event = OwnedEvent::create(&device).unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let wait = Box::new(move || assert!(held.recv().is_err(), "the sender only goes"));
        let stream = device.create_stream().unwrap();
        let calls = device.host_calls().unwrap();
        // SAFETY: 1. the stream was created above.
        unsafe { calls.call_host(stream.borrow(), wait) }.unwrap();
        // SAFETY: 1. both live.
        unsafe { device.record(event.get(), stream.borrow()) }.unwrap();
        assert_eq!(event.poll(), Ok(Progress::Pending));
        assert_eq!(caller.last_error(), 0, "{personality}");
        // Since 7.0 "not ready" is not an error, so the caller's last error must not be cleared.
        if personality > Personality::V6_4 {
            caller.fail();
            assert_eq!(event.poll(), Ok(Progress::Pending));
            assert_eq!(caller.last_error(), 1, "{personality}");
        }
        drop(release);
        event.wait().unwrap();
        // SAFETY: 1. the stream was created above.
        unsafe { device.destroy_stream(stream) }.unwrap();
    }
}

#[test]
fn the_legacy_stream_is_the_default_one() {
    for personality in Personality::ALL {
        let device = load(personality).0.open(Ordinal(0)).unwrap();
        // SAFETY: 1. the default stream always lives, by either name.
        unsafe { device.synchronize(StreamRef::from_raw(1)) }.unwrap();
    }
}

#[test]
fn what_is_mapped_is_known_to_every_backend_of_the_library() {
    for personality in Personality::ALL {
        let (first, second) = (load(personality).0, load(personality).0);
        let (one, two) = (first.device(Ordinal(0)).unwrap(), second.device(Ordinal(0)).unwrap());
        let (here, there) = (one.virtual_memory().unwrap(), two.virtual_memory().unwrap());
        let bytes = here.granularity().minimum;
        let at = here.reserve(bytes, None).unwrap();
        let backing = here.create_backing(bytes, Sharing::Private, false).unwrap();
        // SAFETY: 1. the backing was created above.
        unsafe { here.map(at, &backing) }.unwrap();
        // SAFETY: 2. no right is taken away.
        unsafe { there.set_access(at, bytes, &[Access::ReadWrite(Ordinal(0))]) }.unwrap();
        // SAFETY: 1. the memory lives.
        let token = unsafe { two.ipc().unwrap().export_token(at) };
        assert_eq!(token.unwrap_err().kind(), ErrorKind::InvalidValue);
        // SAFETY: 2. nothing uses the range.
        unsafe { there.unmap(at, bytes) }.unwrap();
        // SAFETY: 1. the backing was created above.
        unsafe { here.destroy_backing(backing) }.unwrap();
        // SAFETY: 1. the range was reserved above.
        unsafe { there.release(at, bytes) }.unwrap();
    }
}

#[test]
fn granularities_are_never_below_2_mib() {
    for personality in Personality::ALL {
        let device = load(personality).0.device(Ordinal(0)).unwrap();
        let granularity = device.virtual_memory().unwrap().granularity();
        assert_eq!(granularity.minimum, 2 << 20, "{personality}");
        assert_eq!(granularity.recommended, 2 << 20, "{personality}");
    }
}

#[test]
fn facts_are_amds() {
    let (backend, _) = load(Personality::V7_2);
    assert_eq!(backend.info().vendor, Vendor::Amd);
    assert!(backend.info().emulated);
    let device = backend.device(Ordinal(1)).unwrap();
    assert_eq!(device.info().architecture.as_deref(), Some("gfx942"));
}

#[test]
fn only_a_stream_of_others_costs_a_query() {
    for personality in Personality::ALL {
        let (backend, caller) = load(personality);
        let device = backend.open(Ordinal(0)).unwrap();
        let (own, event) = (OwnedStream::create(&device).unwrap(), device.create_event().unwrap());
        let mut foreign = 0;
        // SAFETY: the out-parameter outlives the call.
        assert_eq!(unsafe { (caller.create_stream)(&raw mut foreign, 1) }, 0);
        // SAFETY: 1. the streams and the event live.
        let record = |stream| caller.calls_of(|| unsafe { device.record(&event, stream) }.unwrap());
        assert_eq!(record(StreamRef::DEFAULT), 2, "hipGetDevice, hipEventRecord");
        assert_eq!(record(own.get()), 2, "the same");
        assert_eq!(record(StreamRef::from_raw(foreign)), 3, "and hipStreamGetCaptureInfo_v2");
        // SAFETY: it was created above.
        assert_eq!(unsafe { (caller.destroy_stream)(foreign) }, 0);
        // SAFETY: the contract documents the error for a destroyed stream.
        let gone = unsafe { device.record(&event, StreamRef::from_raw(foreign)) };
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::InvalidHandle);
        assert_eq!(caller.last_error(), 0, "the caller does not see it");
        // SAFETY: 1. it was created above.
        unsafe { device.destroy_event(event) }.unwrap();
    }
}

#[test]
fn more_than_a_backing_has_is_not_imported() {
    for personality in Personality::ALL {
        let (backend, _) = load(personality);
        let device = backend.open(Ordinal(0)).unwrap();
        let memory = device.virtual_memory().unwrap();
        let bytes = memory.granularity().minimum;
        let backing = memory.create_backing(bytes, Sharing::FileDescriptor, false).unwrap();
        // SAFETY: 1. it was created just now.
        let descriptor = unsafe { memory.export_backing(&backing) }.unwrap();
        for wrong in [0, bytes - 1, bytes + 1, 2 * bytes] {
            let refused = memory.import_backing(descriptor.as_fd(), wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidValue, "{personality}, {wrong} bytes");
        }
        let imported = memory.import_backing(descriptor.as_fd(), bytes).unwrap();
        for handle in [imported, backing] {
            // SAFETY: 1. both were made above.
            unsafe { memory.destroy_backing(handle) }.unwrap();
        }
    }
}
