//! The kernel's table of this process's descriptors, which is slow to grow.
//!
//! It has room for 64 of them, then for 128, for 256 and so on. When one that threads share must grow, the kernel waits
//! until every core has passed a point of rest: 6 ms and more, longer than all the rest of opening memory takes. A
//! process that uses CUDA has about 40 descriptors open, so one for each of 33 chunks at once is too many.

#![forbid(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::process::{Resource, getrlimit};

/// The smallest table.
const SMALLEST: u32 = 64;
/// Numbers that are left to others, who open descriptors at the same time.
const SPARE: u32 = 4;
/// Fewer at once are not worth a message, even where the table has to grow for them.
const FEWEST: u32 = 4;
/// More at once would make one side wait: it maps some while the other exports the next.
const MOST: u8 = 16;
/// A number for which the exporter's table has to have room; those below are enough for many importers at once.
const AMPLE: RawFd = 128;

/// How many descriptors one message may bring to a process that got the number `newest` for its newest one.
///
/// As many as there is room for behind it: new descriptors get the lowest free numbers, and where one came last is near
/// the lowest. The table is taken to be the smallest that holds `newest`. If it is larger, the messages are smaller than
/// they could be; if there is less room, it grows, and that takes its time and nothing else.
pub(super) fn room_behind(newest: RawFd) -> u8 {
    let newest = u32::try_from(newest).unwrap_or(0);
    let table = (newest + 1).next_power_of_two().max(SMALLEST);
    let room = (table - newest).saturating_sub(SPARE).max(FEWEST);
    u8::try_from(room).map_or(MOST, |room| room.min(MOST))
}

/// Descriptors of a process that no reader gets, so that it can still open files.
const RESERVE: u64 = 64;

/// Whether a process that got the number `newest` for its newest descriptor has no more to give away.
///
/// New descriptors get the lowest free numbers, so few are free where the lowest is near the limit. Of a low limit a
/// quarter is kept.
pub(super) fn are_scarce(newest: RawFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return false;
    };
    let newest = u64::try_from(newest).unwrap_or(0);
    newest >= limit - (limit / 4).min(RESERVE)
}

/// A descriptor that is kept to be given up when there is no other.
pub(super) fn spare(any: BorrowedFd<'_>) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(any, 0).ok()
}

/// Lets the table grow now, so that nobody has to wait for it later.
///
/// A process that may not have so many descriptors goes without; it only is slower then.
pub(super) fn make_room(any: BorrowedFd<'_>) {
    // A copy under a high number makes the table grow, which then stays so.
    drop(rustix::io::fcntl_dupfd_cloexec(any, AMPLE));
}

#[cfg(test)]
mod tests {
    use std::fs::{File, read_to_string};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_brings_what_the_table_has_room_for() {
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
    fn any_number_has_an_answer_that_can_be_asked_for() {
        for newest in (-1..5000).chain([RawFd::MIN, RawFd::MAX - 1, RawFd::MAX]) {
            let room = usize::from(room_behind(newest));
            assert!((1..=super::super::wire::BATCH).contains(&room));
        }
    }

    #[test]
    fn the_table_has_room_once_it_was_made() {
        let file = File::open("/dev/null").unwrap();
        make_room(file.as_fd());
        let status = read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: RawFd = size.unwrap().trim().parse().unwrap();
        assert!(size > AMPLE);
    }
}
