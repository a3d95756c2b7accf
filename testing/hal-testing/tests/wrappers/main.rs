//! Tests over a fake device: the wrappers of this crate, and the owners of `cachette-hal`.

#![expect(clippy::unwrap_used, reason = "functions shared by tests are not marked as tests")]

mod checked;
mod fake;
mod owned;
mod traced;
