//! One source a vendor, for the whole process: "symmetric memory of NVIDIA's devices is NVSHMEM".
//!
//! ```
//! use std::sync::Arc;
//! use cachette::hal::{DevicePtr, Vendor};
//! use cachette::source::{FunctionSource, Source, SourceError, registry};
//!
//! let none = || SourceError::out_of_memory("none");
//! // SAFETY: 1. 2. 3. it never makes memory.
//! let source = unsafe { FunctionSource::new("mine", move |_, _| Err(none()), |_, _, _| Ok(())) };
//! registry::register(Vendor::Amd, Arc::new(source))?;
//! assert_eq!(registry::find(Vendor::Amd)?.name(), "mine");
//! registry::unregister(Vendor::Amd)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cachette_hal::Vendor;

use super::Source;

/// A vendor with its source.
type Entry = (Vendor, Arc<dyn Source>);

/// No vendor is here twice.
static ENTRIES: RwLock<Vec<Entry>> = RwLock::new(Vec::new());

/// Why the registry refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The vendor has a source already.
    #[error("{offered} cannot be the source for {vendor} devices: {present} is; unregister that one first")]
    Taken {
        /// The vendor.
        vendor: Vendor,
        /// The source it has.
        present: String,
        /// The source that was offered.
        offered: String,
    },
    /// The vendor has none.
    #[error("no source is registered for {vendor} devices; register one, such as {example}")]
    Missing {
        /// The vendor.
        vendor: Vendor,
        /// What could be registered.
        example: &'static str,
    },
}

/// Makes `source` the one for devices of `vendor`.
///
/// A second one is refused, for pools that were made before it came would go on with the first.
pub fn register(vendor: Vendor, source: Arc<dyn Source>) -> Result<(), RegistryError> {
    let mut entries = write();
    if let Some((_, present)) = entries.iter().find(|(known, _)| *known == vendor) {
        return Err(RegistryError::Taken {
            vendor,
            present: present.name().to_owned(),
            offered: source.name().to_owned(),
        });
    }
    entries.push((vendor, source));
    Ok(())
}

/// The source for devices of `vendor`.
pub fn find(vendor: Vendor) -> Result<Arc<dyn Source>, RegistryError> {
    let entries = read();
    let found = entries.iter().find(|(known, _)| *known == vendor);
    found.map_or_else(|| Err(missing(vendor)), |(_, source)| Ok(Arc::clone(source)))
}

/// Every vendor with its source, in the order they were registered.
#[must_use]
pub fn list() -> Vec<(Vendor, Arc<dyn Source>)> {
    read().clone()
}

/// Takes the source of `vendor` out and returns it; pools that use it keep it.
pub fn unregister(vendor: Vendor) -> Result<Arc<dyn Source>, RegistryError> {
    let mut entries = write();
    let at = entries.iter().position(|(known, _)| *known == vendor);
    at.map_or_else(|| Err(missing(vendor)), |at| Ok(entries.remove(at).1))
}

fn missing(vendor: Vendor) -> RegistryError {
    let example = match vendor {
        Vendor::Nvidia => "source::Nvshmem",
        Vendor::Amd => "source::Rocshmem",
        _ => "source::FunctionSource",
    };
    RegistryError::Missing { vendor, example }
}

/// A panic under the lock leaves the list whole: each change of it is one step.
fn read() -> RwLockReadGuard<'static, Vec<Entry>> {
    ENTRIES.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Vec<Entry>> {
    ENTRIES.write().unwrap_or_else(PoisonError::into_inner)
}
