//! The page in a real browser: what it shows is what the snapshot says.
//!
//! Needs Chromium on the path; without it every test is reported as ignored, and the reason is printed.

use libtest_mimic::{Arguments, Trial};

mod arena;
mod chromium;
mod expected;
mod figures;
mod pictures;
mod shown;
mod training;
mod words;

fn main() {
    let mut arguments = Arguments::from_args();
    // Times mean nothing beside other browsers.
    arguments.test_threads = Some(1);
    let is_missing = chromium::installed().is_none();
    if is_missing {
        eprintln!("ignored: no chromium on the path; the Debian package chromium has it");
    }
    let promises = [figures::PROMISES, pictures::PROMISES, words::PROMISES].concat();
    let trials = promises.into_iter().map(|(name, promise)| {
        let run = move || {
            promise();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(is_missing)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
