//! Files that a test makes.

use std::env::temp_dir;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A path that nothing else uses; what is there goes when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A path with nothing there.
    pub(crate) fn new(ending: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cachette-cli-{}-{number}{ending}", process::id());
        Self(temp_dir().join(name))
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

impl Drop for Scratch {
    fn drop(&mut self) {
        // Where nothing was made there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}
