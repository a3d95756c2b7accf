//! Memory that a compiled class lets other processes open, and what it says the program is doing.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Barrier;
use std::{ptr, thread};

use cachette_torch::adapter::{
    Text, User, cachette_adapter_close_shared, cachette_adapter_enter_context, cachette_adapter_free,
    cachette_adapter_leave_context, cachette_adapter_metadata, cachette_adapter_open_shared,
    cachette_adapter_set_metadata, cachette_adapter_share,
};

use super::Case;
use super::bed::{self, DEFAULT, MIB, allocate, call, free};

pub(crate) const CASES: &[Case] = &[
    ("i1_what_is_shared_is_opened_until_it_is_freed", opened),
    ("i1_a_free_of_the_plug_in_ends_the_offer_too", freed_plainly),
    ("i1_threads_that_share_one_allocation_get_one_handle", shared_at_once),
    ("i4_what_nobody_shared_is_not_opened", refused),
    ("h7_words_are_of_the_thread_that_says_them", words),
];

thread_local! {
    static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C-unwind" fn write(_: User, start: *const u8, bytes: usize) {
    // SAFETY: they are as many.
    let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
    WRITTEN.set(bytes.to_vec());
}

const NO_USER: User = User(ptr::null_mut());

fn share(memory: *mut c_void) -> Vec<u8> {
    call!(cachette_adapter_share(memory, write, NO_USER));
    WRITTEN.take()
}

/// Opens memory, closes it, and says where it was; null if it could not be opened.
fn open(handle: &[u8]) -> *mut c_void {
    let mut at = ptr::null_mut();
    let opened = call!(cachette_adapter_open_shared(0, handle.as_ptr(), handle.len(), &raw mut at));
    assert_eq!(opened.is_null(), at.is_null());
    call!(cachette_adapter_close_shared(opened));
    at
}

fn opened() {
    bed::start_over("", false);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    let handle = share(memory);
    assert_eq!(share(memory), handle, "it is offered once");
    assert_eq!(open(&handle), memory, "one process sees it where it is");
    call!(cachette_adapter_free(memory));
    assert!(open(&handle).is_null(), "the offer ended with the memory");
    let again = allocate(30 * MIB, 0, DEFAULT);
    assert_eq!(again, memory, "no process keeps it");
    assert_ne!(share(again), handle);
}

fn freed_plainly() {
    bed::start_over("", false);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    let handle = share(memory);
    free(memory, 0);
    assert!(open(&handle).is_null(), "the offer ended with the memory");
}

fn shared_at_once() {
    bed::start_over("", false);
    for _ in 0..200 {
        let memory = allocate(MIB, 0, DEFAULT);
        let (address, barrier) = (memory.expose_provenance(), Barrier::new(2));
        let ask = || {
            barrier.wait();
            share(ptr::with_exposed_provenance_mut(address))
        };
        let [one, other] = thread::scope(|scope| [scope.spawn(ask), scope.spawn(ask)].map(|it| it.join().unwrap()));
        assert_eq!(one, other);
        assert!(!open(&one).is_null());
        call!(cachette_adapter_free(memory));
    }
}

fn refused() {
    bed::start("");
    assert_eq!(share(ptr::without_provenance_mut(512)), b"");
    assert!(open(b"").is_null());
    assert!(open(&[7; 108]).is_null());
}

fn text(words: &str) -> Text {
    Text { start: words.as_ptr(), bytes: words.len() }
}

fn said() -> String {
    call!(cachette_adapter_metadata(write, NO_USER));
    String::from_utf8(WRITTEN.take()).unwrap()
}

fn words() {
    call!(cachette_adapter_set_metadata(text("forward")));
    assert_eq!(said(), "forward");
    assert_eq!(thread::spawn(said).join().unwrap(), "");
    call!(cachette_adapter_enter_context(text("graph 1")));
    // Once more than it was entered: nothing happens.
    for _ in 0..2 {
        cachette_adapter_leave_context();
    }
    call!(cachette_adapter_set_metadata(text("")));
    assert_eq!(said(), "");
}
