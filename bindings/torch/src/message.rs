//! PyTorch's text for an out-of-memory error.
//!
//! Programs parse these sentences, so they are PyTorch's, and the figures have the same meaning. Two sentences are
//! omitted: its advice, since the allocator adds its own, and the use of processes that the driver does not report.

use std::fmt;

use cachette::hal::Vendor;
use cachette::{OutOfMemory, PoolId};

use crate::processes::Process;

/// A number of bytes in the form of PyTorch's `format_size`, in which a unit reaches up to one of the next.
struct Size(u64);

impl fmt::Display for Size {
    #[expect(clippy::cast_precision_loss, reason = "two decimals need far fewer digits than are kept")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            bytes @ 0..=0x400 => return write!(f, "{bytes} bytes"),
            0x401..=0x10_0000 => (1_u64 << 10, "KiB"),
            0x10_0001..=0x4000_0000 => (1 << 20, "MiB"),
            _ => (1 << 30, "GiB"),
        };
        write!(f, "{:.2} {name}", self.0 as f64 / unit as f64)
    }
}

/// PyTorch's text for an allocator's error, if there is one, followed by a space.
pub(crate) struct Sentences<'a> {
    pub(crate) error: &'a cachette::Error,
    pub(crate) vendor: Vendor,
    pub(crate) processes: &'a [Process],
}

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = match self.vendor {
            Vendor::Nvidia => "CUDA",
            Vendor::Amd => "HIP",
            _ => "Host",
        };
        let head = format_args!("{library} out of memory. Tried to allocate");
        match self.error {
            cachette::Error::OutOfMemory(figures) => {
                write!(f, "{head} {}. ", Size(figures.segment))?;
                self.write_device(f, figures)?;
                write_use(f, figures)?;
            }
            cachette::Error::TooLarge { .. } => write!(f, "{head} more than 1EB memory. ")?,
            _ => return Ok(()),
        }
        f.write_str("Cachette: ")
    }
}

impl Sentences<'_> {
    fn write_device(&self, f: &mut fmt::Formatter<'_>, figures: &OutOfMemory) -> fmt::Result {
        if let (Some(total), Some(free)) = (figures.total, figures.free) {
            let (device, total, free) = (figures.device.0, Size(total), Size(free));
            write!(f, "GPU {device} has a total capacity of {total} of which {free} is free. ")?;
        }
        for process in self.processes {
            let Some(bytes) = process.bytes() else { continue };
            if process.id == std::process::id() {
                f.write_str("Including non-PyTorch memory, this process")?;
            } else {
                write!(f, "Process {}", process.id)?;
            }
            write!(f, " has {} memory in use. ", Size(bytes))?;
        }
        match figures.limit {
            Some(limit) => write!(f, "{} allowed; ", Size(limit)),
            None => Ok(()),
        }
    }
}

/// Writes the allocated and the reserved bytes. Unused memory of private pools counts as allocated: their graphs use
/// it.
fn write_use(f: &mut fmt::Formatter<'_>, figures: &OutOfMemory) -> fmt::Result {
    let pools = figures.pools.iter();
    let private = pools.filter(|pool| pool.id != PoolId::DEFAULT);
    let private: u64 = private.map(cachette::PoolFigures::unallocated).sum();
    let allocated = figures.allocated.saturating_add(private);
    write!(f, "Of the allocated memory {} is allocated by PyTorch, ", Size(allocated))?;
    if private > 0 {
        write!(f, "with {} allocated in private pools (e.g., CUDA Graphs), ", Size(private))?;
    }
    write!(f, "and {} is reserved by PyTorch but unallocated. ", Size(figures.reserved.saturating_sub(allocated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m20_sizes_have_the_form_of_pytorch() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1 << 10, "1024 bytes"),
            ((1 << 10) + 1, "1.00 KiB"),
            (1 << 20, "1024.00 KiB"),
            ((1 << 20) + 1, "1.00 MiB"),
            (1 << 30, "1024.00 MiB"),
            ((1 << 30) + 1, "1.00 GiB"),
            (3 << 29, "1.50 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
