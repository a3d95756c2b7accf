//! `cachette top`: who holds the memory of each device, process by process.

mod amd;
mod card;
mod nvidia;
mod page;
mod sample;
mod text;

use std::io::{IsTerminal, stdin, stdout as standard};
use std::time::Duration;

use cachette_ipc::reclaim::Place;
use clap::Args;

use self::page::TopPage;
use self::sample::Sampler;
use crate::error::CliError;
use crate::json::write_to;
use crate::stdout;

/// The time between the two looks of `--once`, by which requests a second are known.
const MOMENT: Duration = Duration::from_millis(200);

/// Shows who holds the memory of each device
///
/// Processes of this user with Cachette tell what they hold, use and could give back. NVML and the kernel's driver of AMD
/// tell what all others have. No device is opened, so looking costs no memory. Keys: q quits, arrows select a process, s
/// sorts, g asks it to give back idle memory, e also to evict pools, h shows by whom its memory is held, w makes it
/// write a snapshot. Without a terminal it is `--once`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Prints one table and ends
    #[arg(long)]
    once: bool,
    /// Prints one sample as JSON and ends
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
}

impl Top {
    pub(super) fn run(self) -> Result<(), CliError> {
        let mut sampler = Sampler::new(&Place::of_environment()).map_err(CliError::Neighbours)?;
        if !(self.once || self.json) && standard().is_terminal() && stdin().is_terminal() {
            return Ok(TopPage::new(sampler).run(Duration::from_secs_f64(self.interval))?);
        }
        sampler.look().map_err(CliError::Neighbours)?;
        std::thread::sleep(MOMENT);
        let mut sample = sampler.look().map_err(CliError::Neighbours)?;
        if self.json {
            sampler.add_holders(&mut sample).map_err(CliError::Neighbours)?;
        }
        stdout::print(|out| if self.json { write_to(out, &sample) } else { text::write(out, &sample) })?;
        Ok(())
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    found.ok_or_else(|| "a number of seconds from 0.1 to 3600".to_owned())
}
