//! Questions between the processes of one user on one device: who holds memory, and who gives some back.
//!
//! A process [registers](register) an allocator under a socket name that contains the user, the device and the process.
//! Others find it by that name, and send datagrams of one size. There is no daemon, no shared table and no file that
//! outlives a process.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | the questions and answers, as values and as bytes |
//! | `place` | names of sockets, and the list of the processes that have one |
//! | `datagram` | sockets, and the credentials of the sender |
//! | `answer` | the one thread of a process that answers |
//! | `ask` | questions to several processes at once |
//!
//! # What is promised
//!
//! * Each message carries the credentials of its sender, from the kernel. Those of other users are dropped.
//! * A message of another size, version or kind is dropped, and so is an answer that was not asked for.
//! * No send blocks. A process that is stopped or slow delays the asker by its window, and no other process.
//! * The sockets of a process close with it, even by a crash. A forked child closes its copies.

mod answer;
mod ask;
mod datagram;
pub mod message;
mod place;

pub use answer::{MOST_REGISTRATIONS, Neighbour, Registration, register};
pub use ask::{Asker, Gained, WINDOW};
pub use message::{Figures, Give, Holder};
pub use place::{Device, NeighbourAddress, Place};
