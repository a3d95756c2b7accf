//! Memory over the course of a replay.

use cachette::Config;
use cachette_hal::AnyDevice;

use super::allocator;
use super::player::Player;
use crate::trace::{Operation, Trace};

/// More moments than a picture has columns.
const MOMENTS: usize = 2000;

/// Memory over the course of one pass, in moments of `step` operations each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Operations in a moment; the last may have fewer.
    pub step: usize,
    /// The most bytes held from the device in each moment, up to one in which an operation failed.
    pub reserved: Vec<u64>,
    /// The most bytes live in each moment, before rounding; of the whole trace.
    pub requested: Vec<u64>,
    /// The operation that failed, counted from 1.
    pub failed: Option<usize>,
}

/// Runs `trace` once with a new allocator, and records the memory it holds.
///
/// The clock of [`replay`](super::replay) would count the looking, so this is a separate pass.
pub fn timeline(trace: &Trace, device: &AnyDevice, config: &Config, limit: Option<u64>) -> Timeline {
    let (allocator, _) = allocator(device, config, limit);
    let step = trace.operations.len().div_ceil(MOMENTS).max(1);
    let mut reserved = Moments::new(step);
    let ended =
        Player::new(&allocator, trace).and_then(|player| player.watch(|| reserved.note(allocator.reserved_bytes())));
    Timeline {
        step,
        reserved: reserved.most,
        requested: requested(trace, step),
        failed: ended.err().map(|failure| failure.operation),
    }
}

/// The most bytes live in each moment.
fn requested(trace: &Trace, step: usize) -> Vec<u64> {
    let mut moments = Moments::new(step);
    let (mut live, mut sum) = (vec![0; trace.slots], 0);
    for operation in &trace.operations {
        match *operation {
            Operation::Allocate { slot, bytes, .. } => {
                live[slot as usize] = bytes;
                sum += bytes;
            }
            Operation::Free { slot } => sum -= live[slot as usize],
        }
        moments.note(sum);
    }
    moments.most
}

/// The most of a figure in each moment.
struct Moments {
    step: usize,
    count: usize,
    most: Vec<u64>,
}

impl Moments {
    const fn new(step: usize) -> Self {
        Self { step, count: 0, most: Vec::new() }
    }

    /// Notes the figure after one more operation.
    fn note(&mut self, figure: u64) {
        match self.most.last_mut() {
            Some(most) if !self.count.is_multiple_of(self.step) => *most = figure.max(*most),
            _ => self.most.push(figure),
        }
        self.count += 1;
    }
}
