//! Facts about a device, and opening one.

use std::sync::Arc;

use cachette_hal::{Device, Feature, Ordinal};

use crate::case::{Case, case};
use crate::failure::{Stop, Verdict, ensure, ensure_eq};
use crate::rig::{Event, KIB, Memory, Place, Stream, Subject};

pub(super) const CASES: &[Case] = &[
    case!(device::facts_name_the_ordinal_that_was_opened, [], "A device knows its position in the driver's list."),
    case!(
        device::facts_agree_with_memory_info,
        [],
        "The total of a device's facts and of its memory information is one number."
    ),
    case!(device::base_alignment_is_a_power_of_two, [], "The alignment that a device states is a power of two."),
    case!(device::its_vendor_is_that_of_its_backend, [], "A backend opens devices of its vendor."),
    case!(device::every_device_that_is_counted_opens, [], "Each ordinal below the count opens, and knows itself."),
    case!(device::identities_differ, [], "Two devices that state an identity state different ones.").on_devices(2),
    case!(device::missing_features_name_themselves, [], "What is said about an absent feature is about that feature."),
    case!(
        device::opened_twice_it_shares_its_memory,
        [Transfer],
        "Memory of one object is valid with another object for the same device."
    ),
    case!(
        device::opened_twice_it_shares_streams_and_events,
        [HostCalls],
        "Streams and events of one object are valid with another object for the same device."
    ),
    case!(device::it_outlives_its_backend, [], "An open device works after its backend was dropped."),
];

fn facts_name_the_ordinal_that_was_opened(on: &Subject) -> Verdict {
    ensure_eq!(on.device().info().ordinal, on.ordinal(), "the ordinal");
    Ok(())
}

fn facts_agree_with_memory_info(on: &Subject) -> Verdict {
    let memory = on.device().memory_info()?;
    ensure_eq!(memory.total, on.device().info().total_memory, "the total");
    ensure!(memory.free <= memory.total, "more is free than there is: {memory:?}");
    Ok(())
}

fn base_alignment_is_a_power_of_two(on: &Subject) -> Verdict {
    let alignment = on.device().info().base_alignment;
    ensure!(alignment.is_power_of_two(), "{alignment} is none");
    Ok(())
}

fn its_vendor_is_that_of_its_backend(on: &Subject) -> Verdict {
    let vendor = on.device().info().vendor;
    ensure_eq!(vendor, on.backend().info().vendor, "the vendor");
    Ok(())
}

fn every_device_that_is_counted_opens(on: &Subject) -> Verdict {
    for position in 0..on.backend().device_count()? {
        let device = on.backend().open(Ordinal(position))?;
        ensure_eq!(device.info().ordinal, Ordinal(position), "the ordinal");
    }
    Ok(())
}

fn identities_differ(on: &Subject) -> Verdict {
    let one = on.device().info().uuid;
    let other = on.other_device()?.info().uuid;
    ensure!(one != other || one == [0; 16], "both are {one:02x?}");
    Ok(())
}

fn missing_features_name_themselves(on: &Subject) -> Verdict {
    for feature in Feature::ALL {
        if let Some(missing) = on.device().missing(feature) {
            ensure_eq!(missing.feature, feature, "the absent feature");
        }
    }
    Ok(())
}

fn opened_twice_it_shares_its_memory(on: &Subject) -> Verdict {
    let again = on.backend().open(on.ordinal())?;
    let memory = Memory::allocate(again, 64 * KIB)?;
    on.put_pattern(memory.span(), 1)?;
    on.expect_pattern(memory.span(), 1, "memory of the other object")
}

fn opened_twice_it_shares_streams_and_events(on: &Subject) -> Verdict {
    let again = on.backend().open(on.ordinal())?;
    let stream = Stream::create(Arc::clone(&again))?;
    let event = Event::create(again)?;
    let gate = on.hold(&stream)?;
    on.record(&event, &stream)?;
    // SAFETY: 1. the event's owner lives.
    let held = unsafe { on.device().poll(event.get()) }?;
    ensure!(!held.is_done(), "an event of the other object is done while its stream is held");
    gate.release();
    // SAFETY: 1. the event's owner lives.
    unsafe { on.device().wait(event.get()) }?;
    Ok(())
}

fn it_outlives_its_backend(on: &Subject) -> Verdict {
    let backend = on.fixture().open().map_err(Stop::failed)?;
    let device = backend.open(on.ordinal())?;
    drop(backend);
    let memory = Memory::allocate(Arc::clone(&device), 4 * KIB)?;
    device.synchronize_device()?;
    memory.close()?;
    Ok(())
}
