//! Writes the page of a program that trains a model, as long as wished: `demo -- out.html [events]`.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::time::Instant;

mod arena;
mod training;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("name the file to write: demo out.html [events]")?;
    let events = arguments.next().map_or(Ok(100_000), |number| number.parse())?;
    let snapshot = training::snapshot(events);
    let blocks: usize = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum();
    let begun = Instant::now();
    cachette_viewer::page(&snapshot, BufWriter::new(File::create(&path)?))?;
    let taken = begun.elapsed();
    let bytes = std::fs::metadata(&path)?.len();
    println!("{path}: {events} events, {blocks} blocks, {bytes} bytes, written in {taken:.2?}");
    Ok(())
}
