//! The registry from vendors to sources; each test has a vendor of its own, for it is one for the process.

use std::sync::{Arc, Barrier};
use std::thread;

use cachette::hal::Vendor;
use cachette::source::{FunctionSource, RegistryError, Source, SourceError, registry};

fn source(name: &str) -> Arc<dyn Source> {
    let none = || SourceError::out_of_memory("none");
    // SAFETY: 1. 2. 3. it never makes memory.
    Arc::new(unsafe { FunctionSource::new(name, move |_, _| Err(none()), |_, _, _| Ok(())) })
}

#[test]
fn a_vendor_has_the_source_that_was_registered_until_it_is_taken_out() {
    let vendor = Vendor::Nvidia;
    let missing = registry::find(vendor).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "no source is registered for NVIDIA devices; register one, such as source::Nvshmem"
    );
    let symmetric = source("symmetric");
    registry::register(vendor, Arc::clone(&symmetric)).unwrap();
    let found = registry::find(vendor).unwrap();
    assert!(Arc::ptr_eq(&found, &symmetric));
    let listed = registry::list();
    assert!(listed.iter().any(|(known, source)| *known == vendor && source.name() == "symmetric"));

    let taken = registry::unregister(vendor).unwrap();
    assert!(Arc::ptr_eq(&taken, &symmetric));
    assert_eq!(registry::find(vendor).unwrap_err(), missing);
    assert_eq!(registry::unregister(vendor).unwrap_err(), missing);
    assert!(registry::list().iter().all(|(known, _)| *known != vendor));
    // Whoever found it keeps it.
    assert_eq!(found.name(), "symmetric");
}

#[test]
fn a_second_source_is_refused_and_the_first_stays() {
    registry::register(Vendor::Host, source("first")).unwrap();
    let error = registry::register(Vendor::Host, source("second")).unwrap_err();
    assert_eq!(error.to_string(), "second cannot be the source for host devices: first is; unregister that one first");
    assert!(matches!(error, RegistryError::Taken { .. }));
    assert_eq!(registry::find(Vendor::Host).unwrap().name(), "first");
    registry::unregister(Vendor::Host).unwrap();
    registry::register(Vendor::Host, source("second")).unwrap();
    assert_eq!(registry::find(Vendor::Host).unwrap().name(), "second");
}

#[test]
fn of_many_threads_one_registers() {
    let start = Arc::new(Barrier::new(8));
    let threads = (0..8).map(|number| {
        let start = Arc::clone(&start);
        thread::spawn(move || {
            start.wait();
            registry::register(Vendor::Amd, source(&number.to_string())).is_ok()
        })
    });
    let threads: Vec<_> = threads.collect();
    let won = threads.into_iter().map(|thread| thread.join().unwrap());
    assert_eq!(won.filter(|won| *won).count(), 1);
}
