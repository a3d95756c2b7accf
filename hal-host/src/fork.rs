//! Detection of a forked child, which has the memory but not the worker threads.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, madvise};
use rustix::process::{Pid, getpid};

use crate::mapping::{Region, host_len, page_bytes};

/// Records the process in which it was created.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    pid: Pid,
    /// One page that contains [`HERE`], and that the kernel clears in a forked child.
    ///
    /// A read is cheap, while a query of the process id is a system call. `None` if the kernel cannot clear it.
    page: Option<Region>,
}

/// The page's content in the process that created it.
const HERE: u32 = 1;

impl ForkGuard {
    /// Records this process.
    pub(crate) fn new() -> Self {
        Self { pid: getpid(), page: Region::anonymous(page_bytes()).ok().and_then(mark) }
    }

    /// Returns whether this is a child of the process that created the guard.
    pub(crate) fn is_child(&self) -> bool {
        match &self.page {
            // Relaxed: the value never changes within a process.
            Some(page) => cell(page).load(Ordering::Relaxed) != HERE,
            None => getpid() != self.pid,
        }
    }
}

/// Makes the kernel clear the page on fork, and writes [`HERE`] into it.
fn mark(page: Region) -> Option<Region> {
    let address = ptr::with_exposed_provenance_mut(host_len(page.start()));
    let bytes = host_len(page_bytes());
    // SAFETY: the page is whole, mapped, and still unused.
    unsafe { madvise(address, bytes, Advice::LinuxWipeOnFork) }.ok()?;
    // Relaxed: a thread gets the guard only after this store.
    cell(&page).store(HERE, Ordering::Relaxed);
    Some(page)
}

fn cell(page: &Region) -> &AtomicU32 {
    let address = ptr::with_exposed_provenance_mut(host_len(page.start()));
    // SAFETY: the page is mapped and writable as long as `page` lives, begins aligned, and is accessed
    // only through this function.
    unsafe { AtomicU32::from_ptr(address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_itself_is_no_child() {
        let guard = ForkGuard::new();
        assert!(!guard.is_child());
        let by_number = ForkGuard { pid: getpid(), page: None };
        assert!(!by_number.is_child());
    }

    #[test]
    fn a_wiped_page_means_a_child() {
        let guard = ForkGuard::new();
        if let Some(page) = &guard.page {
            cell(page).store(0, Ordering::Relaxed);
            assert!(guard.is_child());
        }
    }
}
