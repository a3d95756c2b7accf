//! Defects of drivers are avoided, reported or repaired.
//!
//! The emulated library reads its environment once, so every case is a child process of this program.

#[path = "shared/child.rs"]
#[expect(dead_code, reason = "part of it serves other tests")]
mod child;

use std::env;
use std::error::Error;
use std::ffi::c_int;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use cachette_conformance::{Fixture, Opened, Options, run};
use cachette_emulated_hip::{Personality, install};
use cachette_hal::load::{Candidate, Library};
use cachette_hal::{
    self as hal, Access, AnyDevice, Backend, Backing, CaptureMode, Device, DevicePtr, Feature, Ordinal, Sharing,
    VirtualMemory,
};
use cachette_hal_hip::HipBackend;
use libtest_mimic::{Completion, Failed};

use child::{LIBRARY, PART, Said, child, expect, expect_part, said_by, seven};

fn main() -> ExitCode {
    child::main(
        &[
            ("list what is missing", list_missing),
            ("exhaust descriptors", exhaust),
            ("grant both", grant_both),
            ("grant the other", grant_other),
            ("grant two mappings", grant_two_mappings),
            ("end a mapping", end_a_mapping),
            ("keep a right", keep_a_right),
            ("count memory", count_memory),
            ("lose a mapping", lose_a_mapping),
            ("map over another", map_over_another),
            ("end twice", end_twice),
            ("run a case", run_case),
            ("list sharing", list_sharing),
            ("list promises", list_promises),
        ],
        &[
            ("without_descriptors_the_system_is_blamed", no_descriptors),
            ("a_right_that_is_refused_leaves_the_mapping", refused_right),
            ("a_right_that_is_refused_to_another_device_gives_none_to_its_own", || {
                everywhere("grant the other", &[APART], |_| "granted: false, written: false")
            }),
            ("where_the_kernel_refuses_rights_no_backing_shows_through", refused_by_the_kernel),
            ("where_maps_fail_without_a_word_no_backing_shows_through", failing_maps),
            ("a_map_that_fails_without_a_word_costs_no_memory", memory_of_failed_maps),
            ("where_the_driver_does_not_tell_what_is_mapped_no_backing_shows_through", untold_ranges),
            ("a_mapping_that_is_gone_or_not_of_the_backend_is_not_unmapped", lost_mapping),
            ("a_range_of_which_the_driver_does_not_tell_is_used_only_once_it_does", untold_range),
            ("a_right_that_is_refused_takes_back_those_before_it", taken_back),
            ("a_mapping_stays_until_its_unmap_succeeds", refused_unmap),
            ("a_mapping_whose_unmap_was_refused_keeps_its_rights", kept_right),
            ("what_the_kernel_refuses_to_map_or_grant_is_out_of_memory", refused_map),
            ("only_what_a_version_keeps_is_promised_of_its_mappings", promised),
            ("bad_architectures_are_held_back", guarded),
            ("versions_that_were_never_run_are_held_back", unknown_versions),
            ("descriptors_that_leak_are_bounded", leaking_descriptors),
            ("a_bad_pool_is_not_offered", bad_pool),
            ("a_second_end_does_not_reach_the_driver", second_end),
        ],
    )
}

/// The first device of the library under test.
fn first_device() -> Result<AnyDevice, Box<dyn Error>> {
    Ok(HipBackend::load()?.open(Ordinal(0))?)
}

/// Addresses and a backing for them, which is mapped there or not.
struct Place {
    device: AnyDevice,
    bytes: u64,
    at: DevicePtr,
    backing: Backing,
}

impl Place {
    fn new() -> Result<Self, Box<dyn Error>> {
        let device = first_device()?;
        let memory = device.virtual_memory()?;
        let bytes = memory.granularity().minimum;
        let (at, backing) = (memory.reserve(bytes, None)?, memory.create_backing(bytes, Sharing::Private, false)?);
        Ok(Self { device, bytes, at, backing })
    }

    fn mapped() -> Result<Self, Box<dyn Error>> {
        let place = Self::new()?;
        place.map()?;
        Ok(place)
    }

    fn memory(&self) -> &dyn VirtualMemory {
        self.device.virtual_memory().expect("its memory came from there")
    }

    fn map(&self) -> hal::Result<()> {
        // SAFETY: 1. the backing lives as long as the place.
        unsafe { self.memory().map(self.at, &self.backing) }
    }

    fn grant(&self, rights: &[Access]) -> hal::Result<()> {
        // SAFETY: 2. no work uses the range.
        unsafe { self.memory().set_access(self.at, self.bytes, rights) }
    }

    fn unmap(&self) -> hal::Result<()> {
        // SAFETY: 2. no work uses the range.
        unsafe { self.memory().unmap(self.at, self.bytes) }
    }

    fn release(&self) -> hal::Result<()> {
        // SAFETY: 1. the range was reserved for the place.
        unsafe { self.memory().release(self.at, self.bytes) }
    }
}

/// What the first device may read and write.
const OWN: [Access; 1] = [Access::ReadWrite(Ordinal(0))];
/// The same of both devices.
const BOTH: [Access; 2] = [Access::ReadWrite(Ordinal(0)), Access::ReadWrite(Ordinal(1))];

/// A function of the library under test, past the backend.
///
/// # Safety
///
/// `F` is the type of the function.
unsafe fn function<F: Copy>(name: &'static str) -> Result<F, Box<dyn Error>> {
    let names = [Candidate::Path(env::var_os(LIBRARY).ok_or("no library")?.into())];
    // SAFETY: the emulated library keeps to AMD's C interface.
    let library = unsafe { Library::open_first(&names) }?;
    // SAFETY: the caller's promise.
    unsafe { library.find::<F>(name) }.ok_or_else(|| name.into())
}

/// Lists the features that the first device lacks.
fn list_missing() -> Said {
    let device = first_device()?;
    let missing = Feature::ALL.iter().filter_map(|feature| device.missing(*feature));
    Ok(missing.map(|missing| missing.to_string()).collect::<Vec<_>>().join("\n"))
}

/// Makes backings until there is no descriptor left, and says what is said then.
fn exhaust() -> Said {
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    for _ in 0..200 {
        // They go with the process.
        let _backing = memory.create_backing(memory.granularity().minimum, Sharing::Private, false)?;
    }
    Ok("there was no end".to_owned())
}

/// Maps a backing for two devices, and undoes everything whether or not they may have it.
fn grant_both() -> Said {
    let place = Place::mapped()?;
    let refused = place.grant(&BOTH);
    place.unmap()?;
    let device = Arc::clone(&place.device);
    place.release()?;
    // SAFETY: 1. the backing is mapped no more.
    unsafe { device.virtual_memory()?.destroy_backing(place.backing) }?;
    Ok(refused.map_or_else(|error| error.to_string(), |()| "both were granted".to_owned()))
}

/// Maps two backings, of which the first device may read the first. Asks for both on both devices, and says what the
/// first device may do with each then.
fn grant_two_mappings() -> Said {
    /// Where the rights are asked for: the kind of the place, and the number of the device.
    type GetAccess = unsafe extern "C" fn(*mut u64, *const [c_int; 2], u64) -> c_int;
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().minimum;
    let start = memory.reserve(2 * bytes, None)?;
    let places = [start, start.add(bytes)];
    for at in places {
        let backing = memory.create_backing(bytes, Sharing::Private, false)?;
        // SAFETY: 1. the backing was created just now.
        unsafe { memory.map(at, &backing) }?;
    }
    for right in [Access::ReadWrite(Ordinal(0)), Access::Read(Ordinal(0))] {
        // SAFETY: 2. nothing uses the memory.
        unsafe { memory.set_access(start, bytes, &[right]) }?;
    }
    // SAFETY: 2. as above.
    let granted = unsafe { memory.set_access(start, 2 * bytes, &BOTH) }.is_ok();
    // SAFETY: the type is that of the function.
    let get = unsafe { function::<GetAccess>("hipMemGetAccess") }?;
    let rights = places.map(|at| {
        let mut flags = 0;
        // SAFETY: the library reads a place and writes the flags.
        let status = unsafe { get(&raw mut flags, &[1, 0], at.address()) };
        (status, flags)
    });
    Ok(format!("{granted} {rights:?}"))
}

/// Says what comes of calls for one mapping whose unmap fails once, or whose map or rights the kernel refuses.
fn end_a_mapping() -> Said {
    let place = Place::new()?;
    let (map, unmap, release, grant) = (|| place.map(), || place.unmap(), || place.release(), || place.grant(&OWN));
    let said = |said: hal::Result<()>| said.map_or_else(|error| format!("{:?}", error.kind()), |()| "done".to_owned());
    let lines = if env::var_os(REFUSED_MAPS).is_some() {
        vec![map(), release()]
    } else if env::var_os(REFUSED_RIGHTS).is_some() {
        vec![map(), grant(), unmap(), release()]
    } else {
        map().and_then(|()| unmap()).and_then(|()| map())?;
        vec![unmap(), map(), release(), grant(), unmap(), unmap(), release(), release()]
    };
    Ok(lines.into_iter().map(said).collect::<Vec<_>>().join(", "))
}

/// Grants a right, has its unmap refused, and grants the same right and one more.
fn keep_a_right() -> Said {
    let place = Place::mapped()?;
    place.grant(&OWN)?;
    place.unmap().expect_err("the kernel refuses it");
    let more = [OWN[0], Access::ReadWrite(Ordinal(1))];
    Ok(format!("{:?}, {}", place.grant(&OWN), place.grant(&more).is_ok()))
}

/// Maps and unmaps backings, some of which fail to map, and says how much memory is gone after all of them.
fn count_memory() -> Said {
    const ROUNDS: u32 = 8;
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().minimum;
    let at = memory.reserve(bytes, None)?;
    let before = device.memory_info()?.free;
    let mut failed = 0;
    for _ in 0..ROUNDS {
        let backing = memory.create_backing(bytes, Sharing::Private, false)?;
        // SAFETY: 1. the backing was created above.
        match unsafe { memory.map(at, &backing) } {
            // SAFETY: 2. nothing uses the range.
            Ok(()) => unsafe { memory.unmap(at, bytes) }?,
            Err(_) => failed += 1,
        }
        // SAFETY: 1. the backing was created above.
        unsafe { memory.destroy_backing(backing) }?;
    }
    Ok(format!("{failed} failed, {} are gone", before - device.memory_info()?.free))
}

/// Lets the driver lose a mapping, and says what comes of a right, an unmap and a release.
fn lose_a_mapping() -> Said {
    let place = Place::mapped()?;
    // SAFETY: the type is that of the function.
    let unmap = unsafe { function::<unsafe extern "C" fn(u64, u64) -> c_int>("hipMemUnmap") }?;
    // SAFETY: nothing uses the range.
    let lost = unsafe { unmap(place.at.address(), place.bytes) };
    let results = [place.grant(&OWN), place.unmap(), place.release()];
    Ok(format!("{lost} {:?}", results.map(|result| result.err().map(|error| error.kind()))))
}

/// Maps a backing where the driver has a larger one, and says what comes of the map, a right and an unmap.
fn map_over_another() -> Said {
    type Map = unsafe extern "C" fn(u64, u64, u64, usize, u64) -> c_int;
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().minimum;
    let at = memory.reserve(2 * bytes, None)?;
    let larger = memory.create_backing(2 * bytes, Sharing::Private, false)?;
    let backing = memory.create_backing(bytes, Sharing::Private, false)?;
    // SAFETY: the type is that of the function.
    let map = unsafe { function::<Map>("hipMemMap") }?;
    // SAFETY: the range is reserved, and nothing is mapped there.
    let mapped = unsafe { map(at.address(), 2 * bytes, 0, larger.raw(), 0) };
    let place = Place { device: Arc::clone(&device), bytes, at, backing };
    let results = [place.map(), place.grant(&OWN), place.unmap()];
    Ok(format!("{mapped} {:?}", results.map(|result| result.err().map(|error| error.kind()))))
}

/// Maps a backing that its device may only read, for another device, and says whether its device may write it then.
fn grant_other() -> Said {
    let place = Place::mapped()?;
    place.grant(&[Access::Read(Ordinal(0))])?;
    let granted = place.grant(&BOTH[1..]);
    let (device, stream) = (&place.device, place.device.create_stream()?);
    // SAFETY: 1. the stream was created above. 3. The memory lives as long as the process.
    let filled = unsafe { device.transfer()?.fill(place.at, 1, place.bytes, stream.borrow()) };
    // SAFETY: 1. as above.
    let written = filled.and_then(|()| unsafe { device.synchronize(stream.borrow()) });
    Ok(format!("granted: {}, written: {}", granted.is_ok(), written.is_ok()))
}

/// The case that maps again where rights were refused.
const CASE: &str = "virtual_memory::refused_rights_leave_nothing_behind";
/// What the emulated library refuses.
const REFUSED_MAPS: &str = "CACHETTE_EMULATED_REFUSED_MAPS";
const REFUSED_RANGES: &str = "CACHETTE_EMULATED_REFUSED_RANGES";
const REFUSED_RIGHTS: &str = "CACHETTE_EMULATED_REFUSED_RIGHTS";
/// Devices that cannot reach each other.
const APART: (&str, &str) = ("CACHETTE_EMULATED_PEERS", "0");

/// Runs one case of the suite, and says what came of it.
fn run_case() -> Said {
    let open = || -> Opened { Ok(Arc::new(HipBackend::load().map_err(|error| error.to_string())?)) };
    let fixture = Arc::new(Fixture::new("emulated-hip".to_owned(), open));
    let options = Options { filter: Some(CASE.to_owned()), ..Options::default() };
    let report = run(&fixture, &options)?;
    let found = report.cases.iter().find(|found| found.name == CASE);
    Ok(found.ok_or("the case did not run")?.outcome.to_string())
}

/// Says what is promised of mappings.
fn list_promises() -> Said {
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    let promises = [
        ("frees under a reservation", memory.frees_under_reservation()),
        ("mixes sizes", memory.mixes_sizes()),
        ("maps without a wait", memory.maps_without_wait()),
        ("aliases", memory.aliases()),
        ("shares descriptors", memory.shares(Sharing::FileDescriptor)),
        ("shares by fabric", memory.shares(Sharing::Fabric)),
    ];
    let kept = promises.into_iter().filter(|(_, promise)| promise.is_ok());
    Ok(kept.map(|(name, _)| name).collect::<Vec<_>>().join(", "))
}

/// Says how many of many backings can be shared by descriptors.
fn list_sharing() -> Said {
    let device = first_device()?;
    let memory = device.virtual_memory()?;
    let bytes = memory.granularity().minimum;
    for _ in 0..200 {
        // What was never made leaks nothing.
        memory.create_backing(bytes << 24, Sharing::FileDescriptor, false).expect_err("no device has so much memory");
    }
    let mut shared = 0;
    for _ in 0..200 {
        let Ok(backing) = memory.create_backing(bytes, Sharing::FileDescriptor, false) else { continue };
        shared += 1;
        // SAFETY: 1. the backing was created above.
        unsafe { memory.destroy_backing(backing) }?;
    }
    Ok(shared.to_string())
}

/// Does a part with every version, which must say what is promised of it.
fn everywhere(
    part: &str,
    variables: &[(&str, &str)],
    promised: impl Fn(Personality) -> &'static str,
) -> Result<Completion, Failed> {
    for version in Personality::ALL {
        let said = child(part, &install(version)?, variables)?;
        expect(&said, promised(version)).map_err(|failed| format!("{version}, {variables:?}: {failed:?}"))?;
    }
    Ok(Completion::Completed)
}

/// Runs the case on every version, with every refusal at another place in its rounds.
fn run_refused<const N: usize>(refusals: &[[(&str, &str); N]]) -> Result<Completion, Failed> {
    for refused in refusals {
        everywhere("run a case", refused, |_| "passed")?;
    }
    Ok(Completion::Completed)
}

/// The backend tries three times, so more refusals in a row reach its caller.
fn refused_by_the_kernel() -> Result<Completion, Failed> {
    run_refused(&["2", "3", "25", "7:3", "9:4", "11:6"].map(|every| [(REFUSED_RIGHTS, every)]))
}

/// The backend tries twice.
fn failing_maps() -> Result<Completion, Failed> {
    run_refused(&["2", "3", "25", "5:2", "7:3", "9:5"].map(|every| [(REFUSED_MAPS, every)]))
}

/// Of two maps the second fails, and succeeds when it is tried again; or all fail.
fn memory_of_failed_maps() -> Result<Completion, Failed> {
    everywhere("count memory", &[(REFUSED_MAPS, "2")], |_| "0 failed, 0 are gone")?;
    everywhere("count memory", &[(REFUSED_MAPS, "1")], |_| "8 failed, 0 are gone")
}

/// The backend asks twice. Also of rights that the kernel refuses.
fn untold_ranges() -> Result<Completion, Failed> {
    let both = |every| [(REFUSED_RANGES, every), (REFUSED_RIGHTS, "9:4")];
    run_refused(&["3", "4", "5", "25"].map(both))
}

fn unknown_versions() -> Result<Completion, Failed> {
    let library = seven()?;
    for (number, promised) in [("60342131", "before 6.4; update ROCm"), ("80000000", "after 7.15; update Cachette")] {
        let said = child("list what is missing", &library, &[("CACHETTE_EMULATED_VERSION", number)])?;
        let promised = format!(
            "no virtual memory: held back: virtual memory was never run on HIP {promised}, or set \
             CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1"
        );
        expect(&said, &promised)?;
    }
    Ok(Completion::Completed)
}

/// Each that can be shared costs a descriptor for good, so a quarter of the limit of 256 are.
fn leaking_descriptors() -> Result<Completion, Failed> {
    for (version, shared) in [(Personality::V7_14, "64"), (Personality::V10, "200")] {
        let mut child = Command::new("sh");
        child.arg("-c").arg("ulimit -n 256 && exec \"$0\"").arg(env::current_exe()?);
        child.env(PART, "list sharing").env(LIBRARY, install(version)?);
        expect(&said_by(child)?, shared)?;
    }
    Ok(Completion::Completed)
}

/// Ends a broken capture three times, and says what is said of the last two and of a begin.
fn end_twice() -> Said {
    let device = first_device()?;
    let (capture, stream) = (device.capture()?, device.create_stream()?);
    // SAFETY: 1. the stream was created above.
    unsafe { capture.begin_capture(stream.borrow(), CaptureMode::Relaxed) }?;
    // SAFETY: 1. as above.
    let broken = unsafe { device.synchronize(stream.borrow()) };
    broken.expect_err("a captured stream cannot be waited for");
    let end = || {
        // SAFETY: 1. as above.
        let ended = unsafe { capture.end_capture(stream.borrow()) };
        ended.expect_err("it is broken").to_string()
    };
    // SAFETY: 1. as above.
    let begin = || unsafe { capture.begin_capture(stream.borrow(), CaptureMode::Relaxed) };
    let said = [end(), end(), begin().map_or_else(|error| error.to_string(), |()| "begun".to_owned())];
    Ok(said.join("\n"))
}

/// Whether or not the driver lets its streams go.
fn second_end() -> Result<Completion, Failed> {
    const FIRST: &str = "hipStreamEndCapture failed: the capture was broken (status 901); end the capture or use relaxed \
        capture mode, then try again";
    const WRONG: &str = "failed: invalid value (status 401); the call was wrong; change the caller";
    for version in Personality::ALL {
        let said = child("end twice", &install(version)?, &[])?;
        expect(&said, &format!("{FIRST}\nhipStreamEndCapture {WRONG}\nbegun"))?;
        let said = child("end twice", &install(version)?, &[("CACHETTE_EMULATED_CAPTURES_STAY", "1")])?;
        expect(&said, &format!("{FIRST}\nhipStreamBeginCapture {WRONG}\nhipStreamBeginCapture {WRONG}"))?;
    }
    Ok(Completion::Completed)
}

fn no_descriptors() -> Result<Completion, Failed> {
    let mut child = Command::new("sh");
    child.arg("-c").arg("ulimit -n 64 && exec \"$0\"").arg(env::current_exe()?);
    child.env(PART, "exhaust descriptors").env(LIBRARY, seven()?);
    expect(
        &said_by(child)?,
        "hipMemCreate failed: refused by the operating system (status 2); raise the limit or grant the \
         right it needs",
    )
}

fn refused_right() -> Result<Completion, Failed> {
    everywhere("grant both", &[], |_| "both were granted")?;
    everywhere(
        "grant both",
        &[APART],
        |_| "hipMemSetAccess failed: invalid value (status 1); the call was wrong; change the caller",
    )
}

fn taken_back() -> Result<Completion, Failed> {
    everywhere("grant two mappings", &[], |_| "true [(0, 3), (0, 3)]")?;
    everywhere("grant two mappings", &[APART], |_| "false [(0, 1), (0, 0)]")
}

/// Before 7.14 such an unmap reports success, and a second would take a reference that the backing still needs. A second
/// release of the addresses would crash.
fn refused_unmap() -> Result<Completion, Failed> {
    everywhere("end a mapping", &[("CACHETTE_EMULATED_REFUSED_ENDS", "2")], |version| match version {
        Personality::V6_4 | Personality::V7_2 => {
            "Other, InvalidValue, InvalidValue, OutOfMemory, Other, Other, InvalidValue, InvalidValue"
        }
        _ => "Other, InvalidValue, InvalidValue, done, done, InvalidValue, Other, Other",
    })
}

/// Before 7.14 nothing is known of rights that it did not have.
fn kept_right() -> Result<Completion, Failed> {
    everywhere("keep a right", &[("CACHETTE_EMULATED_REFUSED_ENDS", "1")], |version| match version {
        Personality::V6_4 | Personality::V7_2 => "Ok(()), false",
        _ => "Ok(()), true",
    })
}

fn lost_mapping() -> Result<Completion, Failed> {
    for version in [Personality::V6_4, Personality::V7_2] {
        expect(&child("lose a mapping", &install(version)?, &[])?, "0 [Some(OutOfMemory), None, None]")?;
        expect(&child("map over another", &install(version)?, &[])?, "0 [None, Some(OutOfMemory), Some(Other)]")?;
    }
    Ok(Completion::Completed)
}

/// The driver does not tell of the range after the second map, or after the second unmap.
fn untold_range() -> Result<Completion, Failed> {
    everywhere("end a mapping", &[(REFUSED_RANGES, "4:2")], |version| match version {
        Personality::V6_4 | Personality::V7_2 => {
            "done, done, InvalidValue, OutOfMemory, done, InvalidValue, done, InvalidValue"
        }
        _ => "done, done, InvalidValue, done, done, InvalidValue, done, InvalidValue",
    })?;
    everywhere("end a mapping", &[(REFUSED_RANGES, "5:2")], |version| match version {
        Personality::V6_4 | Personality::V7_2 => {
            "Other, InvalidValue, InvalidValue, OutOfMemory, done, InvalidValue, done, InvalidValue"
        }
        _ => "done, done, InvalidValue, done, done, InvalidValue, done, InvalidValue",
    })
}

fn refused_map() -> Result<Completion, Failed> {
    everywhere("end a mapping", &[(REFUSED_MAPS, "1")], |_| "OutOfMemory, done")?;
    everywhere("end a mapping", &[(REFUSED_RIGHTS, "1")], |_| "done, OutOfMemory, done, done")
}

fn promised() -> Result<Completion, Failed> {
    let rdna = [("CACHETTE_EMULATED_ARCHITECTURE", "gfx1100"), ("CACHETTE_HIP_FORCE_VIRTUAL_MEMORY", "1")];
    for version in Personality::ALL {
        let kept = match version {
            Personality::V6_4 => "mixes sizes, ",
            Personality::V7_2 => "",
            _ => "frees under a reservation, mixes sizes, maps without a wait, ",
        };
        let library = install(version)?;
        expect(&child("list promises", &library, &[])?, &format!("{kept}aliases, shares descriptors"))?;
        expect(&child("list promises", &library, &rdna)?, &format!("{kept}shares descriptors"))?;
    }
    Ok(Completion::Completed)
}

fn guarded() -> Result<Completion, Failed> {
    let (library, bad) = (seven()?, ("CACHETTE_EMULATED_ARCHITECTURE", "gfx1201"));
    let said = child("list what is missing", &library, &[bad])?;
    for promised in [
        "no virtual memory: held back: stores to freshly mapped memory are lost on gfx1201; set \
         CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1",
        "no stream-ordered memory: held back: hipMallocAsync hangs, crashes or corrupts memory on gfx90c, \
         gfx1100, gfx1101 and gfx1201; set CACHETTE_HIP_FORCE_STREAM_ORDERED=1",
    ] {
        expect_part(&said, promised)?;
    }
    let force = [bad, ("CACHETTE_HIP_FORCE_VIRTUAL_MEMORY", "1"), ("CACHETTE_HIP_FORCE_STREAM_ORDERED", "1")];
    expect(&child("list what is missing", &library, &force)?, "")
}

fn bad_pool() -> Result<Completion, Failed> {
    let said = child("list what is missing", &seven()?, &[("CACHETTE_EMULATED_BAD_POOL", "1")])?;
    let promised = "no stream-ordered memory: it failed its self-test: it returned an address where nothing \
                    is mapped";
    expect_part(&said, promised)
}
