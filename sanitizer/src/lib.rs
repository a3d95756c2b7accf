//! Finds memory that is reused while another stream may still use it.
//!
//! A caching allocator hands freed memory to the next request of the same stream at once. If another stream still uses
//! the memory, and nothing told the allocator, its contents change silently. [`Sanitizer`] knows the order of all work
//! as vector clocks, and the uses of all memory. It finds each pair of uses in two lives of the same bytes of which one
//! is a write and nothing orders them.
//!
//! [`Sanitizer`] takes values and returns findings. [`Sanitized`] is a device around a device that reports to it.
//! `docs/sanitizer.md` says what is proven, what cannot be seen, and what it costs.
//!
//! | file | contents |
//! |---|---|
//! | `sanitizer.rs` | the events that a caller reports |
//! | `options.rs` | its options, and the counts of what was not followed |
//! | `clock.rs`, `order.rs` | what precedes what |
//! | `memory.rs` | the uses of memory, by address and life |
//! | `finding.rs`, `report.rs` | findings with source lines and advice |
//! | `marks.rs` | findings as annotations of histories, which the viewer shows |
//! | `device.rs` | a device around a device |

mod clock;
mod device;
mod finding;
mod marks;
mod memory;
mod options;
mod order;
mod report;
mod sanitizer;

pub use device::{DeviceSanitizer, Sanitized};
pub use finding::{Finding, FindingKind, SourceLine, Step};
pub use marks::Marks;
pub use memory::{Site, Text};
pub use options::{AllocatorWaits, Language, Options, Unfollowed};
pub use order::{EventId, StreamId};
pub use sanitizer::{GraphUses, Sanitizer};
