//! The kernel's table of this process's descriptors, which is slow to grow.
//!
//! The table holds 64 descriptors, then 128, 256 and so on. If threads share it, the kernel waits for an RCU grace
//! period before it grows: 6 ms and more, longer than the rest of an import. A process that uses CUDA has about 40
//! descriptors open, so one for each of 33 chunks at once is too many.

#![forbid(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::process::{Resource, getrlimit};

const SMALLEST: u32 = 64;
/// Numbers left for other threads that open descriptors at the same time.
const SPARE: u32 = 4;
/// The smallest batch. A smaller one is not worth a message, even if the table must grow.
const FEWEST: u32 = 4;
/// The largest batch. With a larger one, the importer cannot map while the exporter exports the next.
const MOST: u8 = 16;
/// A number that the exporter's table must have room for; those below are enough for many importers at once.
const AMPLE: RawFd = 128;
/// Descriptors that importers cannot take, so that the exporter can still open files.
const RESERVE: u64 = 64;

/// How many descriptors one message may carry to a process whose newest descriptor is `newest`.
///
/// New descriptors get the lowest free numbers, so the room behind `newest` is the estimate. The table is assumed to be
/// the smallest that holds `newest`. A wrong estimate costs time and nothing else.
pub(crate) fn room_behind(newest: RawFd) -> u8 {
    let newest = u32::try_from(newest).unwrap_or(0);
    let table = (newest + 1).next_power_of_two().max(SMALLEST);
    let room = (table - newest).saturating_sub(SPARE).max(FEWEST);
    u8::try_from(room).map_or(MOST, |room| room.min(MOST))
}

/// Whether a process whose newest descriptor is `newest` has none left for importers.
///
/// New descriptors get the lowest free numbers, so few are free if the newest is near the limit. Of a low limit, a
/// quarter is reserved.
pub(crate) fn are_scarce(newest: RawFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    let newest = u64::try_from(newest).unwrap_or(0);
    newest >= limit - (limit / 4).min(RESERVE)
}

/// A descriptor that can be closed when no other is left.
pub(crate) fn spare(any: BorrowedFd<'_>) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(any, 0).ok()
}

/// Makes the table grow now. It fails if the limit is lower, which only costs time later.
pub(crate) fn grow(any: BorrowedFd<'_>) {
    // A copy with a high number makes the table grow, and the table never shrinks.
    drop(rustix::io::fcntl_dupfd_cloexec(any, AMPLE));
}

#[cfg(test)]
mod tests {
    use std::fs::{File, read_to_string};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_carries_what_the_table_has_room_for() {
        for (newest, room) in [
            (0, 16),
            (3, 16),
            (44, 16),
            (45, 15),
            (55, 5),
            (56, 4),
            (63, 4),
            (64, 16),
            (108, 16),
            (109, 15),
            (127, 4),
            (128, 16),
            (1 << 20, 16),
        ] {
            assert_eq!(room_behind(newest), room, "behind {newest}");
        }
    }

    #[test]
    fn every_number_gives_a_valid_batch_size() {
        for newest in (-1..5000).chain([RawFd::MIN, RawFd::MAX - 1, RawFd::MAX]) {
            let room = usize::from(room_behind(newest));
            assert!((1..=crate::message::BATCH).contains(&room));
        }
    }

    #[test]
    fn the_table_grows() {
        let file = File::open("/dev/null").unwrap();
        grow(file.as_fd());
        let status = read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: RawFd = size.unwrap().trim().parse().unwrap();
        assert!(size > AMPLE);
    }
}
