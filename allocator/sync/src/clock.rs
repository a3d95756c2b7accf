//! The time of events: cheap processor ticks, converted to times of day later.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The unit of ticks, and a reference point that relates them to time.
#[derive(Debug)]
struct Clock {
    /// Whether ticks are processor cycles; otherwise they are nanoseconds since `instant`.
    counts_cycles: bool,
    ticks: u64,
    instant: Instant,
}

static CLOCK: OnceLock<Clock> = OnceLock::new();

fn clock() -> &'static Clock {
    CLOCK.get_or_init(|| {
        let counts_cycles = has_steady_cycles();
        let (ticks, instant) = together(cycles, Instant::now);
        Clock { counts_cycles, ticks: if counts_cycles { ticks } else { 0 }, instant }
    })
}

/// The number of readings of two clocks, of which the closest is used.
const READINGS: u32 = 8;

/// Reads ticks and another clock at one moment.
///
/// If the thread is preempted between the two readings, every time would be shifted by that delay. So of several
/// readings, the one that took the fewest ticks is used.
fn together<T>(ticks: impl Fn() -> u64, clock: impl Fn() -> T) -> (u64, T) {
    let read = || {
        let before = ticks();
        let time = clock();
        (ticks().wrapping_sub(before), (before, time))
    };
    (1..READINGS).map(|_| read()).fold(read(), |best, next| if next.0 < best.0 { next } else { best }).1
}

/// Returns the current time in ticks.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    match CLOCK.get() {
        Some(clock) if clock.counts_cycles => cycles(),
        _ => now_slow(),
    }
}

/// The first time, and every time on a machine without steady cycles.
#[inline(never)]
fn now_slow() -> u64 {
    let clock = clock();
    if clock.counts_cycles {
        return cycles();
    }
    u64::try_from(clock.instant.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Converts ticks to times of day.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// A recent moment, in ticks.
    ticks: u64,
    /// The same moment, in microseconds since 1970.
    epoch_us: f64,
    us_per_tick: f64,
}

impl Scale {
    /// Computes the scale from the reference point and the current time.
    #[expect(clippy::cast_precision_loss, reason = "53 bits of microseconds last for centuries")]
    #[must_use]
    pub fn now() -> Self {
        let first = clock();
        let (ticks, (instant, time)) = together(now, || (Instant::now(), SystemTime::now()));
        let passed = instant.duration_since(first.instant).as_secs_f64() * 1e6;
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            ticks,
            epoch_us: since_epoch.as_secs_f64() * 1e6,
            us_per_tick: passed / ticks.saturating_sub(first.ticks).max(1) as f64,
        }
    }

    /// Converts ticks to microseconds since 1970.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "53 bits of microseconds last for centuries"
    )]
    #[must_use]
    pub fn epoch_us(&self, ticks: u64) -> i64 {
        let ago = self.ticks.wrapping_sub(ticks).cast_signed() as f64;
        (self.epoch_us - ago * self.us_per_tick) as i64
    }
}

/// Returns whether the cycle counter has a constant rate, synchronised over all cores. The kernel offers it as a clock
/// source only then.
fn has_steady_cycles() -> bool {
    const OFFERED: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let offered = std::fs::read_to_string(OFFERED).unwrap_or_default();
    cfg!(target_arch = "x86_64") && offered.split_whitespace().any(|name| name == "tsc")
}

#[inline(always)]
fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// H15: ticks at record, microseconds since 1970 when they are read.
    #[test]
    fn h15_ticks_become_the_time_of_day_at_which_they_were_taken() {
        let epoch_us = || {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            i64::try_from(time.as_micros()).unwrap()
        };
        let mut allocated = Vec::new();
        for _ in 0..5 {
            let before = epoch_us();
            let ticks = now();
            allocated.push((before, ticks, epoch_us()));
            thread::sleep(Duration::from_millis(10));
        }
        let scale = Scale::now();
        for (before, ticks, after) in allocated {
            let time = scale.epoch_us(ticks);
            // The clock of the day is corrected now and then, and the counter is not.
            assert!((before - 2000..=after + 2000).contains(&time), "{time} is not from {before} to {after}");
        }
    }

    #[test]
    fn ticks_do_not_go_back() {
        let mut last = now();
        for _ in 0..10_000 {
            let ticks = now();
            assert!(ticks >= last);
            last = ticks;
        }
    }
}
