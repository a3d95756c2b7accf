//! Allocates and frees slices of mixed sizes on three streams, checks contents, and prints times and the peak of memory.
//!
//! usage: `cachette-cudarc-allocator driver|cachette`

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

/// Operations of each measured part.
const ROUNDS: usize = 20_000;
/// Slices that live at the same time.
const LIVE: usize = 96;
const SMALLEST: u64 = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let memory = env::args().nth(1).unwrap_or_default();
    match memory.as_str() {
        "driver" => {}
        "cachette" => cachette_cudarc_allocator::install(&context, cachette_process::allocator(0)?)?,
        _ => return Err("name where memory comes from: driver or cachette".into()),
    }
    let (before, total) = context.mem_get_info()?;
    let streams = [context.new_stream()?, context.new_stream()?, context.new_stream()?];
    // The emulated device is small. On a GPU the largest slice has 64 MiB.
    let largest = (total as u64 / 256).min(64 << 20);
    let mut program = Program { streams, largest, random: 1, low: before };

    program.check_contents()?;
    println!("events_pair_ns {}", program.pairs(&context)?);
    // SAFETY: each slice of `pairs` is used in one stream.
    unsafe { context.disable_event_tracking() };
    println!("pair_ns {}", program.pairs(&context)?);
    println!("peak_mib {}", (before - program.low) >> 20);
    context.check_err()?;
    if memory == "cachette" {
        let stats = cachette_process::allocator(0)?.stats();
        println!("served {}", stats.allocation.all.allocated);
        println!("device_calls {}", stats.num_device_alloc);
    }
    Ok(())
}

struct Program {
    streams: [Arc<CudaStream>; 3],
    largest: u64,
    /// The state of a congruential generator: all runs make the same requests.
    random: u64,
    /// The least free memory so far.
    low: usize,
}

impl Program {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// From the smallest to the largest size, each doubling as likely as another.
    fn bytes(&mut self) -> usize {
        let doublings = u64::from((self.largest / SMALLEST).ilog2());
        let bytes = SMALLEST << self.random(doublings);
        usize::try_from(bytes + self.random(bytes)).expect("memory has fewer bytes than there are addresses")
    }

    /// Slices that another stream reads are freed and reused, and all contents are right.
    fn check_contents(&mut self) -> Result<(), Box<dyn Error>> {
        let mut live: Vec<(u8, CudaSlice<u8>)> = Vec::new();
        for round in 0..600_u32 {
            let (tag, len) = (round.to_le_bytes()[0], self.bytes().min(1 << 20));
            let (own, other) = (round as usize % 3, (round as usize + 1) % 3);
            let slice = self.streams[own].clone_htod(&vec![tag; len])?;
            // SAFETY: the copy writes all bytes.
            let mut copy = unsafe { self.streams[other].alloc::<u8>(len) }?;
            self.streams[other].memcpy_dtod(&slice, &mut copy)?;
            drop(slice);
            live.push((tag, copy));
            if live.len() > LIVE / 2 {
                let place = usize::try_from(self.random(live.len() as u64))?;
                let (tag, slice) = live.swap_remove(place);
                if slice.stream().clone_dtoh(&slice)? != vec![tag; slice.len()] {
                    return Err("a slice has the bytes of another".into());
                }
            }
        }
        Ok(())
    }

    /// The mean time of an allocation and a free, in nanoseconds.
    fn pairs(&mut self, context: &CudaContext) -> Result<u128, DriverError> {
        let mut live: Vec<Option<CudaSlice<u8>>> = (0..LIVE).map(|_| None).collect();
        let mut nanoseconds = 0;
        for _ in 0..ROUNDS / 200 {
            let requests: Vec<_> = (0..200).map(|_| (self.random(LIVE as u64), self.random(3), self.bytes())).collect();
            let begun = Instant::now();
            for (place, stream, bytes) in requests {
                let place = &mut live[usize::try_from(place).unwrap_or(0)];
                *place = None;
                // SAFETY: nothing reads the bytes.
                *place = Some(unsafe { self.streams[usize::try_from(stream).unwrap_or(0)].alloc(bytes) }?);
            }
            nanoseconds += begun.elapsed().as_nanos();
            self.low = self.low.min(context.mem_get_info()?.0);
        }
        drop(live);
        context.synchronize()?;
        Ok(nanoseconds / ROUNDS as u128)
    }
}
