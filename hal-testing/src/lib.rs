//! Wrappers around a device, for tests and measurements.
//!
//! [`Checked`] tracks every live handle and rejects misuse before it reaches the driver. [`Traced`] reports every call
//! to an observer. Both implement [`Device`](cachette_hal::Device), so they can be nested.

pub mod checked;
mod forward;
pub mod traced;

pub use checked::Checked;
pub use traced::Traced;
