//! Facts about a device, and opening one.

use std::sync::Arc;

use cachette_hal::{Device, Feature, Ordinal};

use crate::rig::prelude::*;

cases! { device:
    /// The total of a device's facts and of its memory information is one number.
    facts_agree_with_memory_info();
    /// The alignment that a device states is a power of two.
    base_alignment_is_a_power_of_two();
    /// A backend opens devices of its vendor.
    its_vendor_is_that_of_its_backend();
    /// Each ordinal below the count opens, and its facts name it.
    every_device_that_is_counted_opens();
    /// Two devices that state an identity state different ones.
    identities_differ().on_devices(2);
    /// What is said about an absent feature is about that feature.
    missing_features_name_themselves();
    /// Memory of one object is valid with another object for the same device.
    opened_twice_it_shares_its_memory(Transfer);
    /// Streams and events of one object are valid with another object for the same device.
    opened_twice_it_shares_streams_and_events(HostCalls);
    /// An open device works after its backend was dropped.
    it_outlives_its_backend();
}

fn facts_agree_with_memory_info(on: &Subject) -> Verdict {
    let memory = on.device.memory_info()?;
    ensure_eq!(memory.total, on.device.info().total_memory, "the total")?;
    ensure!(memory.free <= memory.total, "more is free than there is: {memory:?}")
}

fn base_alignment_is_a_power_of_two(on: &Subject) -> Verdict {
    let alignment = on.device.info().base_alignment;
    ensure!(alignment.is_power_of_two(), "{alignment} is none")
}

fn its_vendor_is_that_of_its_backend(on: &Subject) -> Verdict {
    let vendor = on.device.info().vendor;
    ensure_eq!(vendor, on.backend.info().vendor, "the vendor")
}

fn every_device_that_is_counted_opens(on: &Subject) -> Verdict {
    for position in 0..on.backend.device_count()? {
        let device = on.backend.open(Ordinal(position))?;
        ensure_eq!(device.info().ordinal, Ordinal(position), "the ordinal")?;
    }
    Ok(())
}

fn identities_differ(on: &Subject) -> Verdict {
    let one = on.device.info().uuid;
    let other = on.other_device()?.info().uuid;
    ensure!(one != other || one == [0; 16], "both are {one:02x?}")
}

fn missing_features_name_themselves(on: &Subject) -> Verdict {
    for feature in Feature::ALL {
        if let Some(missing) = on.device.missing(feature) {
            ensure_eq!(missing.feature, feature, "the absent feature")?;
        }
    }
    Ok(())
}

fn opened_twice_it_shares_its_memory(on: &Subject) -> Verdict {
    let again = on.backend.open(on.ordinal)?;
    let memory = Memory::allocate(again, 64 * KIB)?;
    on.round_trip(memory.span(), 1, "memory of the other object")
}

fn opened_twice_it_shares_streams_and_events(on: &Subject) -> Verdict {
    let again = on.backend.open(on.ordinal)?;
    let stream = Stream::create(Arc::clone(&again))?;
    let event = Event::create(again)?;
    let gate = on.hold(&stream)?;
    on.record(&event, &stream)?;
    // SAFETY: 1. the event's owner lives.
    let held = unsafe { on.device.poll(event.get()) }?;
    ensure!(!held.is_done(), "an event of the other object is done while its stream is held")?;
    gate.release();
    // SAFETY: 1. the event's owner lives.
    unsafe { on.device.wait(event.get()) }?;
    Ok(())
}

fn it_outlives_its_backend(on: &Subject) -> Verdict {
    let backend = on.fixture.open().map_err(Stop::failed)?;
    let device = backend.open(on.ordinal)?;
    drop(backend);
    let memory = Memory::allocate(Arc::clone(&device), 4 * KIB)?;
    device.synchronize_device()?;
    memory.close()?;
    Ok(())
}
