//! Memory shared with a second process, both ways, and how long it takes to open; `share [BACKEND] [MIB]`.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cachette::hal::{AnyDevice, Device, DevicePtr, StreamRef};
use cachette::{Allocator, Backends};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Names the device to the second process, and says that it is one.
const SECOND: &str = "CACHETTE_SHARE_SECOND";
/// What its answers begin with; drivers may write lines of their own.
const ANSWER: &str = "second: ";
/// How often memory is opened, to see what that takes.
const ROUNDS: u32 = 10;
/// Bytes that are looked at in one piece.
const PIECE: usize = 64 << 20;

fn main() -> ExitCode {
    let result = match std::env::var(SECOND) {
        Ok(backend) => be_second(&backend),
        Err(_) => be_first(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("share: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Allocates memory, shares it, and lets the second process look at it and change it.
fn be_first() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let backend = arguments.next().unwrap_or_else(|| "host".to_owned());
    let mib: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    println!("{mib} MiB on {}", Backends::open(&backend)?.info().name);
    share(&backend, mib << 20, "in one piece", "expandable_segments:False")?;
    share(&backend, mib << 20, "in chunks", "expandable_segments:True")
}

fn share(backend: &str, bytes: u64, what: &str, config: &str) -> Result<()> {
    let allocator = Allocator::with_config(Backends::open(backend)?, &config.parse()?);
    let stream = allocator.create_stream()?;
    // A neighbour, so that the shared memory need not begin where its segment does.
    let _neighbour = allocator.allocate(3 << 20, &stream)?;
    let memory = allocator.allocate(bytes, &stream)?;
    put(allocator.device(), memory.address(), bytes, 1)?;
    let began = Instant::now();
    let shared = allocator.share(&memory)?;
    let sharing = began.elapsed();
    let mut second = Second::start(backend)?;
    let times = second.ask(&to_hex(&shared.handle()))?;
    let times: Vec<u64> = times.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let [first, best, close] = times[..] else {
        return Err("the second process answered something else".into());
    };
    check(allocator.device(), memory.address(), bytes, 2)?;
    let time = |nanos| Duration::from_nanos(nanos);
    println!(
        "{what}: {} chunks, handle of {} bytes; shared in {sharing:.1?}; opened at first in {:.2?}, then in {:.2?} \
         at best of {ROUNDS}, closed in {:.2?}; both processes saw what the other wrote",
        shared.chunks(),
        shared.handle().len(),
        time(first),
        time(best),
        time(close),
    );
    Ok(())
}

/// Opens what it is told of, checks what is in it and writes something else; says how long opening took.
fn be_second(backend: &str) -> Result<()> {
    let allocator = Allocator::new(Backends::open(backend)?);
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    let handle = from_hex(line.trim())?;
    let mut opening = Vec::new();
    let mut closing = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let imported = allocator.open_shared(&handle)?;
        opening.push(began.elapsed());
        let began = Instant::now();
        drop(imported);
        closing = closing.min(began.elapsed());
    }
    let imported = allocator.open_shared(&handle)?;
    check(allocator.device(), imported.address(), imported.bytes(), 1)?;
    put(allocator.device(), imported.address(), imported.bytes(), 2)?;
    drop(imported);
    let best = opening.iter().min().copied().unwrap_or_default();
    let first = opening.first().copied().unwrap_or_default();
    println!("\n{ANSWER}{} {} {}", first.as_nanos(), best.as_nanos(), closing.as_nanos());
    Ok(())
}

/// The second process, and what it is told and says.
struct Second {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Second {
    fn start(backend: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(SECOND, backend)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self { child, input: input.ok_or("no input")?, output: BufReader::new(output.ok_or("no output")?) })
    }

    /// Tells it one line; its answer, once it has ended well.
    fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.input, "{line}")?;
        let lines = self.output.by_ref().lines();
        let lines: Vec<String> = lines.collect::<std::io::Result<_>>()?;
        if !self.child.wait()?.success() {
            return Err("the second process failed".into());
        }
        let answer = lines.iter().find_map(|line| line.strip_prefix(ANSWER));
        Ok(answer.ok_or("the second process said nothing")?.to_owned())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It has ended, unless something went wrong here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that show where in the memory they lie, and who wrote them.
fn pattern(seed: u64, at: u64, length: usize) -> Vec<u8> {
    let words = (at / 8..).take(length.div_ceil(8));
    let mut bytes: Vec<u8> = words
        .flat_map(|word| (word.wrapping_add(seed << 48)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect();
    bytes.truncate(length);
    bytes
}

/// Offsets and lengths of the pieces of `bytes`.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let piece = PIECE as u64;
    (0..bytes.div_ceil(piece)).map(move |index| {
        let left = usize::try_from(bytes - index * piece).unwrap_or(PIECE);
        (index * piece, left.min(PIECE))
    })
}

fn put(device: &AnyDevice, address: u64, bytes: u64, seed: u64) -> Result<()> {
    let transfer = device.transfer()?;
    for (offset, length) in pieces(bytes) {
        let content = pattern(seed, offset, length);
        let at = DevicePtr::new(address + offset).ok_or("no memory")?;
        // SAFETY: 1. the default stream is always there. 3. the memory is live. 4. `content` stays until the device
        // has been waited for.
        unsafe { transfer.upload(at, content.as_ptr(), length, StreamRef::DEFAULT) }?;
        device.synchronize_device()?;
    }
    Ok(())
}

fn check(device: &AnyDevice, address: u64, bytes: u64, seed: u64) -> Result<()> {
    let transfer = device.transfer()?;
    for (offset, length) in pieces(bytes) {
        let mut read = vec![0; length];
        let from = DevicePtr::new(address + offset).ok_or("no memory")?;
        // SAFETY: 1. the default stream is always there. 3. the memory is live. 4. `read` is touched after the device
        // has been waited for.
        unsafe { transfer.download(read.as_mut_ptr(), from, length, StreamRef::DEFAULT) }?;
        device.synchronize_device()?;
        if read != pattern(seed, offset, length) {
            return Err(format!("the bytes from {offset} on are not what was written").into());
        }
    }
    Ok(())
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let bytes = text.as_bytes().chunks(2).map(|digits| {
        let digits = std::str::from_utf8(digits)?;
        Ok(u8::from_str_radix(digits, 16)?)
    });
    bytes.collect()
}
