//! Findings as annotations of histories, which the viewer shows.

use cachette::history::{Stage, annotate};
use cachette_hal::Ordinal;

use crate::sanitizer::Sanitizer;

/// Annotates the history of a device with each new finding: `sanitizer: WHAT, at ADDRESS`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    device: Option<Ordinal>,
    /// How many findings have a mark.
    marked: usize,
}

impl Marks {
    /// Sets the device whose history is annotated. Without one it is the first device.
    pub const fn set_device(&mut self, device: Ordinal) {
        self.device = Some(device);
    }

    /// Annotates the history with the findings since the last call, at the present time. Without a history it does
    /// nothing.
    pub fn add(&mut self, sanitizer: &Sanitizer) {
        for (kind, address) in sanitizer.marks_since(self.marked) {
            let name = format!("sanitizer: {}, at {address:#x}", kind.headline());
            for stage in [Stage::Start, Stage::End] {
                annotate(&name, stage, self.device.unwrap_or(Ordinal(0)));
            }
        }
        self.marked = sanitizer.count();
    }
}
