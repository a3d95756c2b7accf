//! Touches the pages of memory with several threads, so that the driver does not fault them in one by one.

use std::ptr::NonNull;
use std::thread;

/// The smallest page there is: what registered memory is aligned to, since drivers lock whole pages.
pub(super) const PAGE: usize = 4096;

#[derive(Clone, Copy)]
struct PrefaultPart {
    first: NonNull<u8>,
    pages: usize,
}

// SAFETY: no two parts share a page, so a separate thread may write each.
unsafe impl Send for PrefaultPart {}

/// Touches every page, with as many threads as have at least a page each, the calling one among them.
///
/// # Safety
///
/// `bytes` bytes from the page `first` on may be written, and no other thread uses them.
pub(crate) unsafe fn touch(first: NonNull<u8>, bytes: usize, threads: usize) {
    let pages = bytes.div_ceil(PAGE);
    let threads = if pages >= threads { threads.max(1) } else { 1 };
    let share = pages.div_ceil(threads);
    let part = |begin: usize| PrefaultPart {
        // SAFETY: `begin` is less than `pages`, so the place lies in the range.
        first: unsafe { first.add(begin * PAGE) },
        pages: share.min(pages - begin),
    };
    let mut parts = (0..pages).step_by(share.max(1)).map(part);
    let own = parts.next();
    thread::scope(|scope| {
        for part in parts {
            let begun = thread::Builder::new().spawn_scoped(scope, move || part.touch());
            if begun.is_err() {
                part.touch();
            }
        }
        if let Some(own) = own {
            own.touch();
        }
    });
}

impl PrefaultPart {
    fn touch(self) {
        for page in 0..self.pages {
            // SAFETY: the pages lie in the range, by the promise to `touch`.
            let at = unsafe { self.first.add(page * PAGE) };
            // Volatile, since a zero over a zero would be left out otherwise.
            // SAFETY: the byte may be written, and no other part has it.
            unsafe { at.write_volatile(0) };
        }
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
