//! The tests of candle-core for CUDA devices, from its release, in one program.
//!
//! With `CANDLE_TEST_ALLOCATOR=cachette` memory comes from Cachette; at the end a line on stderr says what it served.
//! `CANDLE_TESTS` names their folder when this is compiled.
#![allow(clippy::pedantic, missing_docs, reason = "it is another project's code")]

macro_rules! include_tests {
    ($($name:ident)*) => {$(
        mod $name {
            include!(concat!(env!("CANDLE_TESTS"), "/", stringify!($name), ".rs"));
        }
    )*};
}
include_tests!(bilinear_tests conv_tests custom_op_tests grad_tests indexing_tests layout_tests matmul_tests);
include_tests!(pool_tests quantized_tests tensor_tests);

#[used]
#[unsafe(link_section = ".init_array")]
static SELECT: extern "C" fn() = select;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
}

extern "C" fn select() {
    if std::env::var("CANDLE_TEST_ALLOCATOR").as_deref() == Ok("cachette") {
        assert!(candle_core::cuda::on_new_context(cachette_candle_core::install));
        // SAFETY: the function takes nothing and does not unwind.
        unsafe { atexit(report) };
    }
}

extern "C" fn report() {
    for (device, allocator) in cachette_process::opened() {
        let stats = allocator.stats();
        eprintln!("Cachette served {} allocations of device {device}", stats.allocation.all.allocated);
    }
}
