//! Touches the pages of memory with several threads, so that the driver does not fault them in one by one.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::{slice, thread};

/// The smallest page size. Registered memory is aligned to it, since drivers lock whole pages.
pub(super) const PAGE: usize = 4096;

/// Touches every page with `threads` threads, including the caller; with the caller only if there are fewer pages.
///
/// # Safety
///
/// `bytes` bytes from the page `first` on may be written, and no other thread uses them.
pub(crate) unsafe fn touch(first: NonNull<u8>, bytes: usize, threads: usize) {
    // SAFETY: the caller's promise.
    let memory = unsafe { slice::from_raw_parts_mut(first.cast::<MaybeUninit<u8>>().as_ptr(), bytes) };
    let pages = bytes.div_ceil(PAGE);
    let threads = if pages >= threads { threads.max(1) } else { 1 };
    let mut parts = memory.chunks_mut(pages.div_ceil(threads).max(1) * PAGE);
    let own = parts.next().unwrap_or_default();
    let all_begun = thread::scope(|scope| {
        let spawn = |part| thread::Builder::new().spawn_scoped(scope, || touch_pages(part)).is_ok();
        let all_begun = parts.all(spawn);
        touch_pages(own);
        all_begun
    });
    if !all_begun {
        touch_pages(memory);
    }
}

fn touch_pages(part: &mut [MaybeUninit<u8>]) {
    for page in part.chunks_mut(PAGE) {
        // Volatile, since the compiler could otherwise remove a zero written over a zero.
        // SAFETY: the reference shows that the byte may be written.
        unsafe { ptr::write_volatile(&raw mut page[0], MaybeUninit::new(0)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes of `pages` pages of ones are zero after they were touched.
    fn touched(pages: usize, threads: usize) -> usize {
        let mut memory = vec![1_u8; pages * PAGE];
        let first = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector is this test's own.
        unsafe { touch(first, memory.len(), threads) };
        let firsts = memory.chunks(PAGE).filter(|page| page[0] == 0).count();
        let all = memory.len() - memory.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        assert_eq!(firsts, all, "only the first byte of a page is written");
        all
    }

    #[test]
    fn n4_every_page_is_touched_whatever_the_threads() {
        for (pages, threads) in [(1, 1), (1, 128), (7, 4), (8, 4), (9, 4), (64, 128), (200, 128)] {
            assert_eq!(touched(pages, threads), pages, "{pages} by {threads}");
        }
    }
}
