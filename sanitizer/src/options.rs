//! The options of a sanitizer, and the counts of what it did not follow.

/// How the waits of the allocator itself become known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocatorWaits {
    /// Each of them is reported as any other event. Uses are checked when they are reported, since the allocator may
    /// make a stream wait after it reports the request.
    #[default]
    Seen,
    /// They are not reported, and the allocator keeps its promises: it waits for recorded streams before a reuse, and
    /// the stream of a request waits for the stream of the previous owner. A request is checked as if it wrote at once.
    Promised,
}

/// The language in which findings give advice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Calls of this project's crates.
    #[default]
    Rust,
    /// Calls of PyTorch.
    Python,
}

/// The options of a [`Sanitizer`](crate::Sanitizer).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How the waits of the allocator become known.
    pub waits: AllocatorWaits,
    /// Whether to find reads of memory before its first write.
    pub reads_before_writes: bool,
    /// The language of the advice.
    pub language: Language,
    /// Parts of file names, or first parts of function names, of libraries: their lines are not the program's.
    pub libraries: Vec<String>,
}

/// Counts of what was not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfollowed {
    /// Uses of memory that the allocator did not report.
    pub unknown_memory: u64,
    /// Uses on streams that were made outside.
    pub foreign_streams: u64,
    /// Uses inside captures; each launch of the graph counts as one use.
    pub captured: u64,
    /// Findings after the first thousand distinct ones.
    pub findings: u64,
}
