//! Lines on stderr about what an allocator does seldom, if the variable `CACHETTE_LOG` asks for them.

use std::env;
use std::sync::OnceLock;
use std::time::Duration;

use cachette::human::Bytes;
use cachette::{Allocator, Notice, OutOfMemory, TraceAction, TraceEvent};

use crate::stderr::write_line;

const VARIABLE: &str = "CACHETTE_LOG";
/// Shorter waits have no line.
const LONG: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Long waits, out of memory, direct segments in place of elastic ones, and no way to meet other processes.
    Warn,
    /// Also memory that comes from the device or goes back to it.
    Info,
}

/// The level of the process; `None` if the variable is not set, or wrong.
fn level() -> Option<Level> {
    static LEVEL: OnceLock<Option<Level>> = OnceLock::new();
    *LEVEL.get_or_init(|| match env::var_os(VARIABLE)?.to_str() {
        Some("warn") => Some(Level::Warn),
        Some("info") => Some(Level::Info),
        Some("") => None,
        other => {
            let found = other.unwrap_or("no text");
            write_line(format_args!("{VARIABLE} is '{found}', so there is no log; use warn or info"));
            None
        }
    })
}

/// Writes the log of an allocator from now on, if the variable `CACHETTE_LOG` is `warn` or `info`.
///
/// The frequent events of blocks are not logged, so requests stay as fast as they are. The allocators of
/// [`allocator`](crate::allocator) have a log already.
pub fn log(allocator: &Allocator) {
    let Some(level) = level() else { return };
    let metrics = allocator.metrics();
    let device = format!("{}:{}", metrics.backend, metrics.device);
    if allocator.config().expandable_segments()
        && let Err(why) = allocator.device().virtual_memory()
    {
        write_line(format_args!("warn: {device}: segments are direct and not elastic: {why}"));
    }
    let name = device.clone();
    allocator.on_out_of_memory(move |report: &OutOfMemory| write_line(format_args!("warn: {name}: {report}")));
    let name = device.clone();
    allocator.on_notice(move |notice| match notice {
        Notice::Waited { time } if *time >= LONG => {
            write_line(format_args!("warn: {name}: waited {} ms for work of the device", time.as_millis()));
        }
        Notice::Alone { kind } => write_line(format_args!(
            "warn: {name}: other processes are not asked for memory: {kind}; reclaim needs /proc, or a short path to a \
             folder in CACHETTE_RECLAIM_DIR that this user can write"
        )),
        Notice::DirectSegment { bytes } => write_line(format_args!(
            "warn: {name}: a direct segment of {} instead of an elastic one: mapping was refused or would wait",
            Bytes(*bytes)
        )),
        _ => {}
    });
    if level == Level::Info {
        let actions =
            [TraceAction::SegmentAlloc, TraceAction::SegmentFree, TraceAction::SegmentMap, TraceAction::SegmentUnmap];
        allocator.track_actions(&actions, move |event| write_line(format_args!("info: {device}: {}", Line(event))));
    }
}

/// An event of a segment as a line.
struct Line<'a>(&'a TraceEvent);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TraceEvent { action, address, bytes, stream, pool, .. } = self.0;
        let what = match action {
            TraceAction::SegmentAlloc => "segment allocated",
            TraceAction::SegmentFree => "segment freed",
            TraceAction::SegmentMap => "chunk mapped",
            _ => "chunk unmapped",
        };
        write!(f, "{what}: {} at {address:#x}, stream {:#x}, pool {pool}", Bytes(*bytes), stream.raw())
    }
}
