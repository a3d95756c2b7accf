//! A device around a device, and a thread that another watches, for tests.
//!
//! [`Checked`] tracks every live handle and rejects misuse before it reaches the driver. It implements
//! [`Device`](cachette_hal::Device), so it can be nested with [`Traced`](cachette_hal::traced::Traced).

pub mod checked;
mod watched;

pub use checked::Checked;
pub use watched::Watched;
