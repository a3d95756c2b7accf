//! Memory that is offered to other processes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{Device, DevicePtr, ErrorKind, IpcToken, Sharing};

use super::desk::Desk;
use super::handle::{Handle, HandleKind, Key, Span};
use super::problem::ShareProblem;
use super::wire::{Names, Refusal, Reply};
use crate::blocks::{BlockId, Chunk};
use crate::elastic::chunk_table::{Exported, memory_of};
use crate::error::{Error, PointerProblem};
use crate::heap::{Heap, Lies, NotOffered, OfferedBlock};
use crate::pool::PoolProblem;

/// Memory that other processes may open, for as long as this lives.
///
/// Its [`handle`](Self::handle) goes to them by any means. When this is dropped nobody can open the memory any more; who
/// has opened it keeps it. The allocation may be freed at any time: its memory serves others once this is dropped and
/// every process that opened it has closed it or ended.
#[derive(Debug)]
pub struct SharedMemory<D: Device> {
    offer: Arc<Offer<D>>,
    desk: Arc<Desk<D>>,
}

impl<D: Device> SharedMemory<D> {
    pub(super) const fn new(offer: Arc<Offer<D>>, desk: Arc<Desk<D>>) -> Self {
        Self { offer, desk }
    }

    /// What another process needs to open the memory: some hundred bytes, which hold a secret.
    ///
    /// Every process of the same user that knows them can read and write the memory.
    #[must_use]
    pub fn handle(&self) -> Vec<u8> {
        let offer = &self.offer;
        let device = &offer.block.heap.shared().device;
        let secret = (offer.number, offer.key);
        let lies = (offer.parts.kind(), offer.span);
        Handle::new(device.info(), self.desk.place(), secret, lies).encode()
    }

    /// Bytes that may be used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.offer.span.bytes
    }

    /// How many chunks another process has to map; none for memory that the device made in one piece.
    #[must_use]
    pub fn chunks(&self) -> usize {
        match &self.offer.parts {
            Parts::Token(..) => 0,
            Parts::ChunkTable(chunks) => chunks.len(),
        }
    }

    /// How many have the memory open now.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.offer.leases.load(Relaxed)
    }
}

impl<D: Device> Drop for SharedMemory<D> {
    fn drop(&mut self) {
        let origin = &self.offer.block.heap.shared().origin;
        if origin.is_inherited() {
            // The offer is the parent's to end. Kept, nothing of it is taken apart here.
            origin.keep(&self.offer);
            origin.keep(&self.desk);
            return;
        }
        self.desk.withdraw(self.offer.number);
    }
}

/// Keeps a block where it is, and from others.
#[derive(Debug)]
struct OfferedOf<D: Device> {
    heap: Arc<Heap<D>>,
    block: BlockId,
}

impl<D: Device> Drop for OfferedOf<D> {
    fn drop(&mut self) {
        self.heap.end_offer(self.block);
    }
}

/// What the memory consists of.
#[derive(Debug)]
enum Parts {
    /// A segment of the device's own, with its first address.
    Token(IpcToken, u64),
    /// Chunks, in order of address.
    ChunkTable(Vec<Chunk>),
}

impl Parts {
    const fn kind(&self) -> HandleKind {
        match self {
            Self::Token(..) => HandleKind::Direct,
            Self::ChunkTable(_) => HandleKind::Elastic,
        }
    }
}

/// What is sent to whoever asked.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// What goes with it.
    pub(super) descriptors: Vec<OwnedFd>,
    /// Whether there are chunks behind those that go.
    pub(super) has_more: bool,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self { reply, descriptors: Vec::new(), has_more: false }
    }
}

/// One offer, kept by its [`SharedMemory`] and by everybody who has opened it.
#[derive(Debug)]
pub(super) struct Offer<D: Device> {
    pub(super) number: u64,
    pub(super) key: Key,
    /// Where the memory lies in its parts.
    span: Span,
    parts: Parts,
    /// How many have it open. Relaxed: a count alone.
    pub(super) leases: AtomicUsize,
    block: OfferedOf<D>,
}

impl<D: Device> Offer<D> {
    /// Offers an allocated block.
    pub(super) fn new(heap: &Arc<Heap<D>>, id: BlockId, number: u64, key: Key) -> Result<Self, Error> {
        let found = heap.begin_offer(id).map_err(|why| refused(heap, id, why))?;
        // From here on every way out ends the offer.
        let block = OfferedOf { heap: Arc::clone(heap), block: id };
        let OfferedBlock { address, bytes, lies } = found;
        let (parts, start, extent) = match lies {
            Lies::Segment(base, extent) => {
                let token = token_of(heap, base)?;
                (Parts::Token(token, base), base, extent)
            }
            Lies::ChunkTable(chunks) => {
                let start = chunks.first().map_or(address, |chunk| chunk.at);
                let extent = chunks.iter().map(|chunk| chunk.bytes).sum();
                check_sharing(heap, &chunks)?;
                (Parts::ChunkTable(chunks), start, extent)
            }
        };
        Ok(Self {
            number,
            key,
            span: Span { bytes, offset: address - start, extent },
            parts,
            leases: AtomicUsize::new(0),
            block,
        })
    }

    /// What whoever opens it is told first.
    pub(super) fn greeting(&self, same_process: bool) -> Reply {
        match &self.parts {
            // Not every driver opens a token of its own process.
            Parts::Token(..) if same_process => Reply::Local(self.span),
            Parts::Token(token, _) => Reply::Token(*token, self.span),
            Parts::ChunkTable(chunks) => {
                let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
                Reply::ChunkTable(count, self.span)
            }
        }
    }

    /// The address of the segment, if the memory lies in one.
    pub(super) const fn base(&self) -> Option<u64> {
        match self.parts {
            Parts::Token(_, base) => Some(base),
            Parts::ChunkTable(_) => None,
        }
    }

    /// Chunks from one on, `most` at most.
    pub(super) fn batch(&self, first: u32, most: u8) -> Result<Answer, Refusal> {
        let Parts::ChunkTable(chunks) = &self.parts else {
            return Err(Refusal::Withdrawn);
        };
        let shared = self.block.heap.shared();
        // A capture may be under way in another thread, which must not be broken.
        let _relaxed = RelaxedCapture::enter(&shared.device).ok();
        let (mut sizes, mut names, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
        let left = chunks.get(first as usize..).unwrap_or_default();
        for chunk in left.iter().take(usize::from(most)) {
            let memory = memory_of(&shared.device);
            let exported = memory.and_then(|memory| shared.chunks.export(memory, chunk.id));
            // Chunks of one kind a message; the importer asks for the rest.
            match exported.map_err(|error| Refusal::Driver(error.to_string()))? {
                Exported::Descriptor(descriptor) if names.is_empty() => {
                    descriptors.push(descriptor);
                }
                Exported::Fabric(name) if descriptors.is_empty() => names.push(name),
                _ => break,
            }
            sizes.push(chunk.bytes);
        }
        if sizes.is_empty() {
            return Err(Refusal::Withdrawn);
        }
        let has_more = sizes.len() < left.len();
        let names = if names.is_empty() { Names::Descriptors } else { Names::Fabric(names) };
        Ok(Answer { reply: Reply::Batch { sizes, names }, descriptors, has_more })
    }
}

fn refused<D: Device>(heap: &Heap<D>, id: BlockId, why: NotOffered) -> Error {
    match (why, heap.pool()) {
        (NotOffered::Asleep, Some(pool)) => PoolProblem::Asleep.of(pool.id),
        _ => Error::InvalidPointer { address: heap.address_of(id), why: PointerProblem::Free },
    }
}

/// The token of a segment.
fn token_of<D: Device>(heap: &Heap<D>, base: u64) -> Result<IpcToken, Error> {
    let device = &heap.shared().device;
    let ipc = device.ipc()?;
    let base = DevicePtr::new(base).ok_or(ShareProblem::Empty)?;
    let _relaxed = RelaxedCapture::enter(device).ok();
    // SAFETY: 1. a block of the segment is offered, so the heap keeps it.
    let token = unsafe { ipc.export_token(base) };
    token.map_err(|error| match error.kind() {
        ErrorKind::InvalidValue => ShareProblem::NoToken(error).into(),
        _ => error.into(),
    })
}

/// Whether all chunks may leave the process.
fn check_sharing<D: Device>(heap: &Heap<D>, chunks: &[Chunk]) -> Result<(), Error> {
    let shared = &heap.shared().chunks;
    let may_leave = |chunk: &Chunk| {
        let sharing = shared.sharing(chunk.id);
        sharing.is_some_and(|sharing| sharing != Sharing::Private)
    };
    if chunks.iter().all(may_leave) { Ok(()) } else { Err(ShareProblem::PrivateChunks.into()) }
}
