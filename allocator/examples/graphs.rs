//! A captured graph on memory of a pool, launched with new input each time.
//!
//! `cargo run -p cachette --example graphs` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example graphs -- cuda:0`.

use std::error::Error;

use cachette::hal::CaptureMode;
use cachette::{Allocator, Backends};

const LEN: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    let allocator = Allocator::new(Backends::open(&target)?);
    let stream = allocator.create_stream()?;

    // Input and output exist before the capture, so the program can use them between launches.
    let mut input = allocator.allocate_buffer::<f32>(LEN, &stream)?;
    let mut output = allocator.allocate_buffer::<f32>(LEN, &stream)?;

    // Until the capture ends, every allocation on `stream` comes from the pool.
    let pool = allocator.create_capture_pool();
    let capture = pool.begin_capture(&stream, CaptureMode::Global)?;
    let mut scratch = allocator.allocate_buffer(LEN, &stream)?;
    scratch.copy_from(&input)?;
    output.copy_from(&scratch)?;
    drop(scratch); // Later allocations in this pool can reuse the memory; it is not returned to the device.
    let graph = capture.end()?;
    println!("pool {} reserves {} bytes for the graph", pool.id(), pool.stats().reserved_bytes);

    for value in [1.0, 2.0, 3.0] {
        input.write(&vec![value; LEN])?;
        // SAFETY: 1. `input` and `output` are live until the read below has finished. 2. The pool has one graph.
        // 3. The stream belongs to this allocator.
        unsafe { graph.launch(&stream) }?;
        assert_eq!(output.read()?, vec![value; LEN]);
    }
    println!("three launches copied their input");

    // The graph is the last user of its pool, which then returns its memory to the device.
    drop(pool);
    let before = allocator.reserved_bytes();
    drop(graph);
    println!("dropping the graph returned {} bytes", before - allocator.reserved_bytes());
    Ok(())
}
