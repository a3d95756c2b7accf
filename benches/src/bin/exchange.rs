//! How much memory threads hold that allocate, use across streams and free at random.
//!
//! Each thread has several streams and many slots. A step fills an empty slot with a block of random size, or checks
//! and frees the block of a full one. Half of the blocks are read on another stream of the thread, which waits for the
//! block's own stream, and are freed at once after `record_stream`. Chunks therefore move between streams all the time.
//! A block is filled with one byte at its start, its middle and its end, and read there before it is freed. With
//! `--whole` it is filled and read everywhere.
//!
//! With `--moving` each thread also has memory whose chunks leave it: a growable allocation, parts of which are committed
//! and decommitted, evictable pools, and a pool that sleeps with its contents in a file. A registered pool beside them
//! refuses to sleep. All of them are filled and read everywhere.
//!
//! The ratio is the peak of reserved bytes over the peak of bytes that the threads held. A block that other streams
//! still use after its free does not count as held, so the second ratio is over the peak of active bytes.

use std::env;
use std::error::Error;
use std::thread;
use std::time::Instant;

use cachette::evict::Priority;
use cachette::hal::DevicePtr;
use cachette::sleep::Contents;
use cachette::{Allocation, Allocator, Backends, Config, Growable, PinnedAllocation, Pool, PoolOptions, Stream};
use cachette_benches::random::{LogUniform, SplitMix64};
use cachette_hal::owned::OwnedEvent;
use cachette_hal::{AnyDevice, Device, Ordinal};
use cachette_hal_host::HostConfig;
use cachette_replay::target::{HOST, Target};
use clap::Parser;

/// Blocks that are checked between two waits for the device.
const BATCH: usize = 64;
/// Where a block is filled and read.
const PLACES: usize = 3;
/// Parts of a growable allocation, and evictable pools, of each thread.
const PARTS: u64 = 8;
/// Their bytes, which are no whole pages.
const PART_BYTES: u64 = 5 << 20;
/// The host device's memory. It is real, because its contents are checked.
const HOST_CAPACITY: u64 = 64 << 30;

/// Measures the memory that threads hold while chunks move between their streams
///
/// Exit code 1 if a byte is wrong, a request fails or a ratio exceeds --most.
#[derive(Debug, Parser)]
struct Options {
    /// The backend: cuda, hip or host
    #[arg(long, default_value = HOST)]
    backend: String,
    /// Threads
    #[arg(long, default_value_t = 6)]
    threads: usize,
    /// Streams of each thread
    #[arg(long, default_value_t = 3)]
    streams: usize,
    /// Blocks that a thread can hold
    #[arg(long, default_value_t = 64)]
    slots: usize,
    /// Steps of each thread
    #[arg(long, default_value_t = 2000)]
    steps: usize,
    /// log2 of the largest block in bytes
    #[arg(long, default_value_t = 28.0)]
    largest: f64,
    /// Bytes that are filled at each place of a block; more keep the streams busy for longer
    #[arg(long, default_value_t = 4096)]
    touch: u64,
    /// Fills and checks every byte of a block
    #[arg(long)]
    whole: bool,
    /// Also uses growable memory, and pools that are evicted, sleep, or are registered
    #[arg(long, requires = "whole")]
    moving: bool,
    /// The seed of all draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On the host device, every Nth backing cannot be mapped twice
    #[arg(long, value_name = "N")]
    refuse: Option<usize>,
    /// A configuration; without this option the elastic settings
    #[arg(long, value_name = "TEXT")]
    config: Vec<String>,
    /// The highest ratio that is accepted
    #[arg(long, value_name = "RATIO")]
    most: Option<f64>,
}

type Stopped = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options::parse();
    if options.config.is_empty() {
        let settings = ["default", "compact"].map(|name| format!("expandable_segments:True,elastic_setting:{name}"));
        options.config = settings.to_vec();
    }
    let mut failed = false;
    for text in &options.config {
        let config: Config = text.parse()?;
        let allocator = Allocator::with_config(open(&options)?, &config);
        let start = Instant::now();
        let steps = run(&allocator, &options).map_err(|error| error.to_string())?;
        let took = start.elapsed();
        let stats = allocator.stats();
        let [reserved, held, active] =
            [&stats.reserved_bytes, &stats.allocated_bytes, &stats.active_bytes].map(|stat| stat.all.peak);
        let ratio = of(reserved, held);
        if options.moving && stats.num_evictions == 0 {
            return Err("no pool was evicted; raise --steps".into());
        }
        failed |= options.most.is_some_and(|most| ratio > most);
        println!(
            "{text}: {ratio:.3} of the held peak, {:.3} of the active peak; {} MiB reserved, {} chunks created, {} \
             retries, {:.1} us a step",
            of(reserved, active),
            reserved >> 20,
            stats.num_device_alloc,
            stats.num_alloc_retries,
            took.as_secs_f64() * 1e6 / steps,
        );
    }
    if failed { Err("a ratio is too high".into()) } else { Ok(()) }
}

fn open(options: &Options) -> Result<AnyDevice, Box<dyn Error>> {
    if options.backend != HOST {
        return Ok(Target::open(Some(&options.backend), Ordinal(0), 0)?.device);
    }
    let mut host = HostConfig::default().capacity(HOST_CAPACITY);
    if let Some(every) = options.refuse {
        host = host.refusing_aliases(every);
    }
    Ok(Backends::open_on(&*Backends::host(host)?, Ordinal(0))?)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs far fewer digits than are kept")]
fn of(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Runs every thread to its end. Returns the number of steps of all threads.
#[expect(clippy::cast_precision_loss, reason = "a mean needs far fewer digits than are kept")]
fn run(allocator: &Allocator, options: &Options) -> Result<f64, Stopped> {
    thread::scope(|scope| {
        let start = |thread| scope.spawn(move || Worker::new(allocator, options, thread)?.run(options));
        let running: Vec<_> = (0..options.threads).map(start).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok((options.threads * options.steps) as f64)
}

/// The bytes of the largest block that can be drawn.
fn largest(options: &Options) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive and below 2^52")]
    let bytes = options.largest.exp2().ceil() as u64;
    bytes
}

/// A block, its stream by number, and the byte that it is filled with.
struct Filled {
    memory: Allocation,
    stream: usize,
    byte: u8,
}

/// The offsets at which a block is filled and read.
fn places(memory: &Allocation) -> [u64; PLACES] {
    [0, memory.requested() / 2, memory.requested() - 1]
}

/// Memory of one thread whose chunks leave it.
struct Moving {
    growable: Growable,
    /// The byte that each committed part is filled with.
    parts: Vec<Option<u8>>,
    /// Evictable pools.
    layers: Vec<Layer>,
    /// A pool that sleeps between turns, and one that must not sleep.
    sleeping: Layer,
    registered: Layer,
}

/// A pool with one block, and the byte that it is filled with.
struct Layer {
    pool: Pool,
    memory: Allocation,
    byte: Option<u8>,
}

impl Layer {
    fn new(allocator: &Allocator, options: PoolOptions, stream: &Stream) -> Result<Self, cachette::Error> {
        let pool = allocator.create_pool_with(options)?;
        let memory = pool.allocate(PART_BYTES, stream)?;
        Ok(Self { pool, memory, byte: None })
    }
}

impl Moving {
    fn new(allocator: &Allocator, stream: &Stream) -> Result<Self, Stopped> {
        let layer = |options| Layer::new(allocator, options, stream);
        let evictable = (0..4).map(|number| layer(PoolOptions::new().evictable(Priority(number % 2))));
        Ok(Self {
            growable: allocator.allocate_growable(PARTS * PART_BYTES, stream)?,
            parts: (0..PARTS).map(|_| None).collect(),
            layers: evictable.collect::<Result<_, _>>()?,
            sleeping: layer(PoolOptions::new())?,
            registered: layer(PoolOptions::new().registered(true))?,
        })
    }
}

/// One thread.
struct Worker<'a> {
    allocator: &'a Allocator,
    streams: Vec<Stream>,
    event: OwnedEvent<AnyDevice>,
    sizes: LogUniform,
    touch: u64,
    whole: bool,
    random: SplitMix64,
    slots: Vec<Option<Filled>>,
    moving: Option<Moving>,
    /// What was read, and the bytes that were expected.
    read: PinnedAllocation,
    expected: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(allocator: &'a Allocator, options: &Options, thread: usize) -> Result<Self, Stopped> {
        Ok(Self {
            allocator,
            streams: (0..options.streams).map(|_| allocator.create_stream()).collect::<Result<_, _>>()?,
            event: OwnedEvent::create(allocator.device().clone())?,
            sizes: LogUniform { low: 16.0, high: options.largest },
            touch: if options.whole { u64::MAX } else { options.touch },
            whole: options.whole,
            random: SplitMix64::new(options.seed.wrapping_add(thread as u64 * 1_000_003)),
            slots: (0..options.slots).map(|_| None).collect(),
            moving: None,
            read: allocator.pinned().allocate(if options.whole {
                largest(options).max(PART_BYTES)
            } else {
                (BATCH * PLACES) as u64
            })?,
            expected: Vec::new(),
        })
    }

    fn run(mut self, options: &Options) -> Result<(), Stopped> {
        if options.moving {
            self.moving = Some(Moving::new(self.allocator, &self.streams[0])?);
        }
        for step in 0..options.steps {
            if self.moving.is_some() && step % 8 == 0 {
                self.turn(step)?;
            }
            let slot = self.random.below(self.slots.len());
            match self.slots[slot].take() {
                None => self.slots[slot] = Some(self.fill(step)?),
                Some(filled) => self.free(filled)?,
            }
        }
        for filled in std::mem::take(&mut self.slots).into_iter().flatten() {
            self.free(filled)?;
        }
        self.check()
    }

    /// Changes a part of the growable allocation, and every kind of pool.
    fn turn(&mut self, step: usize) -> Result<(), Stopped> {
        let Some(mut moving) = self.moving.take() else { return Ok(()) };
        let (byte, part) = (u8::try_from(step % 251)?, self.random.below(moving.parts.len()));
        let start = part as u64 * PART_BYTES;
        let at = DevicePtr::new(moving.growable.address() + start).ok_or("it has addresses")?;
        moving.parts[part] = if let Some(expected) = moving.parts[part] {
            self.read_whole(at, expected)?;
            moving.growable.decommit(start..start + PART_BYTES)?;
            None
        } else {
            moving.growable.commit(start..start + PART_BYTES)?;
            self.fill_whole(at, byte)?;
            Some(byte)
        };
        let layer = self.random.below(moving.layers.len());
        let here = moving.layers[layer].pool.make_resident()?;
        self.refill(&mut moving.layers[layer], byte)?;
        // The work is queued, and has not ended.
        drop(here);
        self.refill(&mut moving.registered, byte)?;
        if !self.allocator.is_stable(moving.registered.memory.address())
            || moving.registered.pool.sleep(Contents::Keep).is_ok()
        {
            return Err("registered memory may move".into());
        }
        moving.sleeping.pool.wake()?;
        self.refill(&mut moving.sleeping, byte)?;
        match moving.sleeping.pool.sleep(Contents::Keep) {
            Ok(_) => drop(moving.sleeping.pool.spill_contents(&env::temp_dir())?),
            // The driver refuses a call. That is undone, and no byte is lost.
            Err(cachette::Error::Device(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if step.is_multiple_of(32) {
            self.allocator.evict(2 * PART_BYTES)?;
        }
        self.moving = Some(moving);
        Ok(())
    }

    /// Checks what a pool that is awake holds, and queues other contents.
    fn refill(&mut self, layer: &mut Layer, byte: u8) -> Result<(), Stopped> {
        let at = layer.memory.ptr().ok_or("it has an address")?;
        if let Some(expected) = layer.byte {
            self.read_whole(at, expected)?;
        }
        self.fill_whole(at, byte)?;
        layer.byte = Some(byte);
        Ok(())
    }

    fn fill_whole(&self, at: DevicePtr, byte: u8) -> Result<(), Stopped> {
        // SAFETY: 1. the stream is live. 3. the memory is committed or resident, and is of this stream.
        unsafe { self.allocator.device().transfer()?.fill(at, byte, PART_BYTES, self.streams[0].handle()) }?;
        Ok(())
    }

    fn read_whole(&mut self, at: DevicePtr, byte: u8) -> Result<(), Stopped> {
        let (to, bytes) = (self.read.ptr().as_ptr(), usize::try_from(PART_BYTES)?);
        // SAFETY: 1. the stream is live. 3. the memory is committed or resident. 4. the pinned memory has room for a
        // part, and is not touched before the stream was waited for.
        unsafe { self.allocator.device().transfer()?.download(to, at, bytes, self.streams[0].handle()) }?;
        self.expected.resize(bytes, byte);
        self.check()
    }

    /// Allocates a block and fills it.
    fn fill(&mut self, step: usize) -> Result<Filled, Stopped> {
        let (stream, bytes) = (self.random.below(self.streams.len()), self.sizes.draw(&mut self.random));
        let memory = self.allocator.allocate(bytes, &self.streams[stream])?;
        let byte = u8::try_from(step % 251)?;
        for place in places(&memory) {
            let at = memory.ptr().ok_or("the block has no address")?.add(place);
            let (transfer, length) = (self.allocator.device().transfer()?, self.touch.min(bytes - place));
            // SAFETY: 1. the stream is live. 3. the memory is allocated for this stream.
            unsafe { transfer.fill(at, byte, length, self.streams[stream].handle()) }?;
        }
        Ok(Filled { memory, stream, byte })
    }

    /// Reads a block on its own stream or on another one, and frees it.
    fn free(&mut self, Filled { memory, stream, byte }: Filled) -> Result<(), Stopped> {
        let device = self.allocator.device();
        let reader = self.random.below(2 * self.streams.len()).checked_sub(self.streams.len()).unwrap_or(stream);
        let user = &self.streams[reader];
        if reader != stream {
            // SAFETY: 1. the worker keeps the stream alive.
            unsafe { self.event.record_raw(self.streams[stream].handle()) }?;
            // SAFETY: 1. the worker keeps the stream and the event alive.
            unsafe { device.stream_wait(user.handle(), self.event.get()) }?;
            memory.record_stream(user);
        }
        let at = memory.ptr().ok_or("the block has no address")?;
        if self.whole {
            let (to, bytes) = (self.read.ptr().as_ptr(), usize::try_from(memory.requested())?);
            // SAFETY: 1. the stream is live. 3. the memory is allocated, and the stream was recorded. 4. the pinned
            // memory has room for the largest block, and is not touched before the streams were waited for.
            unsafe { device.transfer()?.download(to, at, bytes, user.handle()) }?;
            self.expected.resize(bytes, byte);
            drop(memory);
            return self.check();
        }
        for place in places(&memory) {
            let to = self.read.ptr().as_ptr().wrapping_add(self.expected.len());
            // SAFETY: 1. the stream is live. 3. the memory is allocated, and the stream was recorded. 4. the pinned
            // memory has room for every read of a batch, and is not touched before the streams were waited for.
            unsafe { device.transfer()?.download(to, at.add(place), 1, user.handle()) }?;
            self.expected.push(byte);
        }
        if self.expected.len() == BATCH * PLACES { self.check() } else { Ok(()) }
    }

    /// Waits for all reads, and compares them.
    fn check(&mut self) -> Result<(), Stopped> {
        self.streams.iter().try_for_each(Stream::synchronize)?;
        // SAFETY: 1. all reads have ended, because their streams were waited for.
        let read = unsafe { self.read.as_slice() };
        if read[..self.expected.len()] != self.expected[..] {
            return Err("a byte is wrong".into());
        }
        self.expected.clear();
        Ok(())
    }
}
