//! The allocation sites of an out-of-memory report, which are named when they are first read.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::human::Bytes;
use crate::observe::history::{Frame, RawStack, StackSource};
use crate::sync::Mutex;

/// The maximum number of allocation sites in a report.
const MOST_SITES: usize = 5;

/// The memory in use that one site of the program allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopAllocationSite {
    /// Bytes of its blocks.
    pub bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The stack of the site, innermost frame first. A site with several stacks has the one with the most bytes.
    pub frames: Vec<Frame>,
}

/// The memory in use that was allocated with one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackUse {
    pub(crate) stack: RawStack,
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

/// The sites of a report. To name a stack can take a second, and to count many takes a millisecond, so a report keeps raw
/// stacks.
#[derive(Clone, Default)]
pub(crate) struct AllocationSites(Arc<RecordedSites>);

#[derive(Default)]
pub(crate) struct RecordedSites {
    /// The blocks in use, each with its stack.
    used: Vec<StackUse>,
    /// The stack with the most bytes is first.
    stacks: OnceLock<Vec<StackUse>>,
    /// The numbering of the source, which outlives it.
    numbering: usize,
    /// The source of the stacks, until `top` is known.
    source: Mutex<Option<Arc<dyn StackSource>>>,
    shown: OnceLock<Vec<ShownSite>>,
    top: OnceLock<Vec<TopAllocationSite>>,
}

/// A site as texts show it, with one of its stacks.
pub(super) struct ShownSite {
    frame: Option<Frame>,
    memory: StackUse,
}

impl AllocationSites {
    pub(crate) fn new(source: Arc<dyn StackSource>, used: Vec<StackUse>) -> Self {
        let (numbering, source) = (source.numbering(), Mutex::new(Some(source)));
        Self(Arc::new(RecordedSites { used, numbering, source, ..RecordedSites::default() }))
    }

    pub(crate) const fn recorded(&self) -> &Arc<RecordedSites> {
        &self.0
    }

    /// The largest sites.
    pub(super) fn shown(&self) -> &[ShownSite] {
        self.0.shown()
    }

    /// The largest sites with all frames.
    pub(super) fn top(&self) -> &[TopAllocationSite] {
        self.0.top()
    }
}

impl RecordedSites {
    /// Names the sites, and drops the source.
    pub(crate) fn resolve(&self) {
        self.top();
    }

    fn source(&self) -> Option<Arc<dyn StackSource>> {
        self.source.lock().clone()
    }

    fn stacks(&self) -> &[StackUse] {
        self.stacks.get_or_init(|| {
            let mut by_stack: HashMap<RawStack, StackUse> = HashMap::new();
            for used in &self.used {
                let none = StackUse { bytes: 0, blocks: 0, ..*used };
                let memory = by_stack.entry(used.stack).or_insert(none);
                memory.bytes += used.bytes;
                memory.blocks += used.blocks;
            }
            let mut stacks: Vec<StackUse> = by_stack.into_values().collect();
            stacks.sort_by_key(|memory| (u64::MAX - memory.bytes, memory.stack));
            stacks
        })
    }

    fn shown(&self) -> &[ShownSite] {
        self.shown.get_or_init(|| {
            let Some(source) = self.source() else { return Vec::new() };
            let stacks: Vec<RawStack> = self.stacks().iter().map(|memory| memory.stack).collect();
            let mut sites: Vec<ShownSite> = Vec::new();
            let mut places = HashMap::new();
            for (memory, frame) in self.stacks().iter().zip(source.resolve_sites(&stacks)) {
                // Native frames above a line of Python differ from call to call.
                let file = frame.as_ref().filter(|frame| frame.is_python()).map(|frame| frame.file.clone());
                let place = (file, frame.as_ref().map(ToString::to_string));
                let index = *places.entry(place).or_insert(sites.len());
                match sites.get_mut(index) {
                    Some(site) => {
                        site.memory.bytes += memory.bytes;
                        site.memory.blocks += memory.blocks;
                    }
                    None => sites.push(ShownSite { frame, memory: *memory }),
                }
            }
            sites.sort_by_key(|site| u64::MAX - site.memory.bytes);
            sites.truncate(MOST_SITES);
            sites
        })
    }

    fn top(&self) -> &[TopAllocationSite] {
        let top = self.top.get_or_init(|| {
            let sites = self.shown();
            let Some(source) = self.source() else { return Vec::new() };
            let stacks: Vec<RawStack> = sites.iter().map(|site| site.memory.stack).collect();
            let named = sites.iter().zip(source.resolve(&stacks));
            let top = named.map(|(site, stack)| {
                let StackUse { bytes, blocks, .. } = site.memory;
                TopAllocationSite { bytes, blocks, frames: stack.frames }
            });
            top.collect()
        });
        // The drop of a source may run any code, so the lock is not held.
        let source = self.source.lock().take();
        drop(source);
        top
    }
}

impl fmt::Display for ShownSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StackUse { bytes, blocks, .. } = self.memory;
        let noun = if blocks == 1 { "block" } else { "blocks" };
        write!(f, "{} in {blocks} {noun}, allocated in ", Bytes(bytes))?;
        match &self.frame {
            Some(frame) => frame.fmt(f),
            None => f.write_str("an unknown place"),
        }
    }
}

impl fmt::Debug for AllocationSites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.stacks()).finish()
    }
}

/// Compares raw stacks, so that nothing is resolved.
impl PartialEq for AllocationSites {
    fn eq(&self, other: &Self) -> bool {
        (self.0.numbering, self.0.stacks()) == (other.0.numbering, other.0.stacks())
    }
}

impl Eq for AllocationSites {}
