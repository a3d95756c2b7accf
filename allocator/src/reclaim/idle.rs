//! Memory that goes back to the device although no other process asks for it.
//!
//! A host that shares its memory with the device takes idle memory back before it runs short. With `idle_release`, memory
//! that nobody used for some time goes back:
//!
//! The hot path notes nothing. At an eighth of the time a tick lists the idle segments and chunks. What nine ticks in a row
//! have seen idle was so for the whole time at each of them, and is released. Memory in use between all nine ticks and at
//! none of them is released too: it costs a call of the driver at its next use, at most once in this time.

use std::time::Duration;

use cachette_hal::Device;

use crate::allocator::allocator_state::AllocatorState;
use crate::heap::Heap;
use crate::reclaim::state::{IdleSamples, SAMPLES};

impl<D: Device> AllocatorState<D> {
    /// Releases as much idle memory as the host lacks of its reserve.
    pub(super) fn relieve_host(&self) {
        let Some(host) = self.shared.host_figures().filter(|host| host.available < host.reserve) else { return };
        self.release_for_others(host.reserve - host.available);
    }

    /// Takes a sample if it is time, and releases what has been idle in enough of them.
    pub(super) fn release_long_idle(&self) {
        let Some(seconds) = self.shared.settings.config().idle_release() else { return };
        if !self.reclaim.begin_sample(Duration::from_secs_f64(seconds) / SAMPLES) {
            return;
        }
        let givers = self.givers();
        let (mut seen, mut due) = (IdleSamples::new(), Vec::new());
        let mut samples = self.reclaim.samples.lock();
        for heap in &givers {
            // A failure leaves blocks pending, and the next tick tries again.
            let _ = heap.process_events();
            let mut is_due = false;
            for (number, _) in heap.idle_memory() {
                let key = (heap.number, number);
                let count = samples.get(&key).map_or(0, |count| count + 1);
                seen.insert(key, count);
                is_due |= count >= SAMPLES;
            }
            if is_due {
                due.push(heap);
            }
        }
        samples.clone_from(&seen);
        drop(samples);
        let is_due = |heap: &Heap<D>, number| seen.get(&(heap.number, number)).is_some_and(|count| *count >= SAMPLES);
        for heap in due {
            // A failure leaves the memory idle, and the next tick tries again.
            let _ = heap.release_wanted(|number, _| is_due(heap, number));
        }
    }
}
