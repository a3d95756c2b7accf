//! Annotations: named stages of the program, recorded for all allocators of the process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cachette_hal::Ordinal;
use cachette_snapshot::Annotation;
pub use cachette_snapshot::Stage;

use crate::sync::Mutex;
use crate::sync::clock::{self, Scale};

/// How many annotations are kept; older ones are dropped.
pub const MOST_ANNOTATIONS: usize = 1 << 16;

/// The number of recording histories. Relaxed: a history that begins now may miss a concurrent annotation.
static RECORDED: AtomicUsize = AtomicUsize::new(0);
/// The annotations, each with its time in ticks. The time of day is computed later.
static NOTED: Mutex<VecDeque<(u64, Annotation)>> = Mutex::new(VecDeque::new());

/// Records that a stage of the program begins or ends on a device. Does nothing while no history is recorded.
///
/// The process keeps the last [`MOST_ANNOTATIONS`].
pub fn annotate(name: &str, stage: Stage, device: Ordinal) {
    if RECORDED.load(Relaxed) == 0 {
        return;
    }
    let annotation = Annotation { name: name.to_owned(), stage, device: device.0, time_us: 0 };
    let ticks = clock::now();
    let mut noted = NOTED.lock();
    if noted.len() == MOST_ANNOTATIONS {
        noted.pop_front();
    }
    noted.push_back((ticks, annotation));
}

/// Returns the annotations, oldest first.
pub(crate) fn annotations(scale: &Scale) -> Vec<Annotation> {
    let noted = NOTED.lock();
    noted.iter().map(|(ticks, known)| Annotation { time_us: scale.epoch_us(*ticks), ..known.clone() }).collect()
}

/// Keeps the recording of annotations on. Without a listener none are recorded.
#[derive(Debug)]
pub(crate) struct Listener(());

impl Listener {
    pub(crate) fn new() -> Self {
        RECORDED.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if RECORDED.fetch_sub(1, Relaxed) == 1 {
            NOTED.lock().clear();
        }
    }
}
