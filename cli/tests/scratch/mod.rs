//! Files that a test makes.

use std::fs;
use std::path::PathBuf;

use tempfile::{TempDir, tempdir};

/// A path that nothing else uses, and its folder; what is there goes when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf, #[expect(dead_code, reason = "its drop removes the folder")] TempDir);

impl Scratch {
    /// A path with nothing there.
    pub(crate) fn new(ending: &str) -> Self {
        let folder = tempdir().expect("there is room for a folder");
        Self(folder.path().join(format!("cachette-cli-file{ending}")), folder)
    }

    /// A file that holds `content`.
    pub(crate) fn holding(content: impl AsRef<[u8]>, ending: &str) -> Self {
        let scratch = Self::new(ending);
        fs::write(&scratch.0, content).expect("the file is written");
        scratch
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }

    /// The JSON that is there now.
    pub(crate) fn json(&self) -> serde_json::Value {
        let text = fs::read_to_string(&self.0).expect("the file is there");
        serde_json::from_str(&text).expect("the file is JSON")
    }
}
