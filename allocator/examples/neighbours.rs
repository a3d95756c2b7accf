//! Processes that share one card, and how fast memory changes hands between them.
//!
//! | arguments | what it does |
//! |---|---|
//! | `exchange cuda:0 10G` | times a request that needs so much idle memory of another process, and then an evictable pool |
//! | `crowd cuda:0 8 300` | 8 processes fill, check and free memory for 300 seconds, and would keep 1.3 times the card |
//!
//! `cargo run --release -p cachette --features cuda --example neighbours -- exchange cuda:0 10G`. On host memory, processes
//! share a device by a file: `CACHETTE_HOST_SHARED=/tmp/card CACHETTE_HOST_CAPACITY=1GiB`, and the target `host`.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cachette::config::parse_size;
use cachette::evict::Priority;
use cachette::hal::Device;
use cachette::human::Bytes;
use cachette::{Allocator, Backends, Buffer, Config, PoolOptions, Stream};

type Done<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Done {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["exchange", target, size] => ["idle", "evictable"].iter().try_for_each(|kind| exchange(target, size, kind)),
        ["hold", target, size, kind] => hold(target, size, kind),
        ["crowd", target, count, seconds] => crowd(target, count.parse()?, seconds.parse()?),
        ["load", target, count] => load(target, count.parse()?),
        _ => Err("use: exchange TARGET SIZE, or crowd TARGET PROCESSES SECONDS".into()),
    }
}

fn open(target: &str) -> Done<(Allocator, Stream)> {
    let config = Config::builder().reclaim(true).reclaim_wait(30.0).build()?;
    let allocator = Allocator::with_config(Backends::open(target)?, &config);
    let stream = allocator.create_stream()?;
    Ok((allocator, stream))
}

fn start(words: &[&str]) -> Done<Child> {
    let program = env::current_exe()?;
    Ok(Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Times a request that another process must release memory for.
fn exchange(target: &str, size: &str, kind: &str) -> Done {
    let bytes = parse_size(size).ok_or("the size is a number with a unit, such as 10G")?;
    let mut holder = start(&["hold", target, size, kind])?;
    let mut said = BufReader::new(holder.stdout.take().ok_or("a pipe")?).lines();
    let copy = said.next().ok_or("the other process has ended")??;
    let (allocator, stream) = open(target)?;
    let free = allocator.device().memory_info()?.free;
    // The rest of the card, except for what the driver may keep.
    let _rest = allocator.allocate(free.saturating_sub(bytes / 16), &stream)?;
    let begun = Instant::now();
    let memory = allocator.allocate(bytes, &stream)?;
    let time = begun.elapsed();
    let received = Bytes(allocator.stats().reclaimed_bytes);
    println!("{kind}: {} in {time:.2?}, {received} from the other process{copy}", Bytes(memory.bytes()));
    drop(holder.stdin.take());
    holder.wait()?;
    Ok(())
}

/// Holds memory that others may have, until the input ends.
fn hold(target: &str, size: &str, kind: &str) -> Done {
    let bytes = parse_size(size).ok_or("a size")?;
    let (allocator, stream) = open(target)?;
    let pool = allocator.create_pool_with(PoolOptions::new().evictable(Priority::default()))?;
    let mut copy = String::new();
    let _kept = if kind == "idle" {
        drop(allocator.allocate(bytes, &stream)?);
        None
    } else {
        allocator.prepare_contents(bytes)?;
        let memory = pool.allocate(bytes, &stream)?;
        let begun = Instant::now();
        pool.sleep(cachette::sleep::Contents::Keep)?;
        copy = format!("; its eviction alone takes {:.2?}", begun.elapsed());
        pool.wake()?;
        Some(memory)
    };
    println!("{copy}");
    std::io::stdout().flush()?;
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// Runs processes with random loads, of which some work at a time and the others hold idle memory. Fails if one does.
///
/// Each may hold 1.3 times its part of the card. So many work that their live memory is at most 0.95 of the card.
fn crowd(target: &str, count: usize, seconds: u64) -> Done {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut process = start(&["load", target, &count.to_string()])?;
        let (input, output) = (process.stdin.take().ok_or("a pipe")?, process.stdout.take().ok_or("a pipe")?);
        all.push((process, input, BufReader::new(output).lines()));
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        fastrand::shuffle(&mut all);
        let busy = &mut all[..(count * 95 / 130).max(1)];
        busy.iter_mut().try_for_each(|(_, input, _)| writeln!(input, "go"))?;
        for (_, _, output) in busy {
            output.next().ok_or("a process has failed")??;
        }
    }
    for (mut process, input, output) in all {
        drop(input);
        output.map_while(Result::ok).for_each(|line| println!("{line}"));
        if !process.wait()?.success() {
            return Err("a process has failed".into());
        }
    }
    println!("no process has failed");
    Ok(())
}

/// At each line of the input, allocates random sizes for a second, and checks every byte before it frees them.
fn load(target: &str, count: u64) -> Done {
    let (allocator, stream) = open(target)?;
    let part = allocator.device_info().total_memory / 100 * 130 / count;
    let largest = (part / 4).min(256 << 20);
    let mut random = fastrand::Rng::with_seed(u64::from(std::process::id()));
    let mut requests = 0_u64;
    for _ in std::io::stdin().lines() {
        let (begun, mut held, mut live) = (Instant::now(), 0, Vec::<(Buffer<u8>, u8)>::new());
        while begun.elapsed() < Duration::from_secs(1) || !live.is_empty() {
            let bytes = random.u64(1..=largest).next_multiple_of(2 << 20);
            if begun.elapsed() < Duration::from_secs(1) && held + bytes <= part {
                let mut buffer = allocator.allocate_buffer(usize::try_from(bytes)?, &stream)?;
                let byte = random.u8(..);
                buffer.fill(byte)?;
                live.push((buffer, byte));
                (held, requests) = (held + bytes, requests + 1);
                continue;
            }
            let (buffer, byte) = live.swap_remove(random.usize(..live.len()));
            held -= buffer.len() as u64;
            if buffer.read()?.iter().any(|found| *found != byte) {
                return Err("a byte was lost".into());
            }
        }
        println!("done");
    }
    let stats = allocator.stats();
    println!(
        "process {}: {requests} requests, {} held, at most {}, asked {} times, received {}, gave {}, {} out of memory",
        std::process::id(),
        Bytes(stats.reserved_bytes.all.current),
        Bytes(stats.reserved_bytes.all.peak),
        stats.num_reclaims,
        Bytes(stats.reclaimed_bytes),
        Bytes(stats.given_bytes),
        stats.num_ooms,
    );
    Ok(())
}
