//! Each observation of AMD's libraries as a test of the library that imitates them.

mod calls;
mod captures;
mod crashes;
mod descriptors;
mod hip;
mod virtual_memory;

use std::process::ExitCode;
use std::sync::Arc;

use cachette_emulated_hip::Personality;
use libtest_mimic::{Arguments, Trial};

use hip::Hip;

/// An observation: its name, and a test of it that panics where it does not hold.
type Row = (&'static str, fn(&Hip));

fn main() -> ExitCode {
    if let Some(code) = crashes::play_if_child() {
        return code;
    }
    let mut trials = Vec::new();
    for personality in Personality::ALL {
        let hip = Arc::new(Hip::load(personality));
        for rows in [virtual_memory::ROWS, descriptors::ROWS, calls::ROWS, captures::ROWS] {
            for (name, row) in rows {
                let hip = Arc::clone(&hip);
                let name = format!("{personality}::{name}");
                trials.push(Trial::test(name, move || {
                    row(&hip);
                    Ok(())
                }));
            }
        }
        trials.extend(crashes::trials(personality));
    }
    let mut arguments = Arguments::from_args();
    // A capture binds the threads of other rows too.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
