//! The commands in the pages of `docs` print what the pages show.
//!
//! In a fenced block of a page, a line `$ cachette …` is a command, and the lines below it, up to the next such line or the
//! end of the block, are its whole standard output. The command runs in the root of the repository, without a driver.
//! With the variable `UPDATE_DOCS` the pages get the output of the program.

#[expect(dead_code, reason = "part of it serves other tests")]
mod program;

use std::path::{Path, PathBuf};
use std::{env, fs};

const PROMPT: &str = "$ cachette ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a command prints.
fn output_of(command: &str) -> String {
    assert!(!command.contains(['|', '>', '<', '\'', '"', '\\', '*']), "no shell runs `{command}`; write plain words");
    let words: Vec<_> = command.split_whitespace().collect();
    let output = program::cachette(&words).current_dir(root()).output();
    program::Ran::of(&output.expect("the program starts")).stdout
}

/// The page as it should be, and how many commands it has.
fn updated(page: &str) -> (String, usize) {
    let (mut text, mut count) = (String::new(), 0);
    let (mut is_block, mut is_output) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_block = !is_block;
            is_output = false;
        }
        let command = line.strip_prefix(PROMPT).filter(|_| is_block);
        if command.is_some() || !is_output {
            text += line;
            text.push('\n');
        }
        if let Some(command) = command {
            text += &output_of(command);
            count += 1;
            is_output = true;
        }
    }
    (text, count)
}

#[test]
fn every_command_of_a_page_prints_what_the_page_shows() {
    let mut commands = 0;
    for entry in fs::read_dir(root().join("docs")).expect("the test has it") {
        let path = entry.expect("the test has it").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("the test has it");
        let (expected, count) = updated(&page);
        commands += count;
        if page != expected && env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &expected).expect("the test has it");
        } else {
            assert_eq!(page, expected, "{} is old; run this test with UPDATE_DOCS=1", path.display());
        }
    }
    assert!(commands > 1, "the pages have commands");
}
