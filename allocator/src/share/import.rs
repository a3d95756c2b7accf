//! Memory of other processes, opened in this one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, DevicePtr, IpcToken};

use super::fetch::{Greeting, Link};
use super::handle::Handle;
use super::mapped::Mapped;
use super::problem::ShareProblem;
use crate::device_state::DeviceState;
use crate::error::Error;

/// Memory of another process.
///
/// It is a handle: clones name the same memory, and whoever opens it once more gets the same addresses. With the last
/// of them it is closed, for which the device is waited for; so it must not go while a stream is captured.
///
/// The memory stays as long as this does, even if its allocation is freed, and memory in chunks even if the other
/// process ends.
#[derive(Debug)]
pub struct ImportedMemory<D: Device> {
    opened: Arc<Opened<D>>,
}

impl<D: Device> ImportedMemory<D> {
    /// The address of the first byte, in this process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.opened.address
    }

    /// The first byte, in this process.
    #[must_use]
    pub fn ptr(&self) -> Option<DevicePtr> {
        DevicePtr::new(self.opened.address)
    }

    /// Bytes that may be used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.opened.bytes
    }

    /// Whether the process that shared the memory still keeps it for this one. It does not for a forked child.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let inherited = self.opened.common.origin.is_inherited();
        !inherited && self.opened.link.is_alive()
    }
}

impl<D: Device> Clone for ImportedMemory<D> {
    fn clone(&self) -> Self {
        Self { opened: Arc::clone(&self.opened) }
    }
}

/// Memory of another process, opened once.
#[derive(Debug)]
struct Opened<D: Device> {
    common: Arc<DeviceState<D>>,
    address: u64,
    bytes: u64,
    memory: Memory<D>,
    // Last, so that it is closed when nothing here can reach the memory any more: then the other process lets it go.
    link: Link,
}

impl<D: Device> Drop for Opened<D> {
    fn drop(&mut self) {
        // What a forked child drops is its parent's: it closes its copy of the connection, which nobody notices.
        if self.common.origin.is_inherited() {
            self.common.origin.keep(&self.common);
            return;
        }
        // Of a device that is lost, nothing runs any more.
        let _ = self.common.device.synchronize_device();
    }
}

/// How the memory came here.
#[derive(Debug)]
enum Memory<D: Device> {
    /// By the token of its segment.
    Based {
        #[expect(dead_code, reason = "it keeps the segment open")]
        base: Arc<Base<D>>,
    },
    /// In chunks.
    Mapped(Mapped<D>),
    /// It was here already.
    Local,
}

/// A segment of another process, opened once for all blocks in it.
#[derive(Debug)]
struct Base<D: Device> {
    common: Arc<DeviceState<D>>,
    start: DevicePtr,
}

impl<D: Device> Base<D> {
    fn open(common: &Arc<DeviceState<D>>, token: &IpcToken) -> Result<Self, Error> {
        let start = common.device.ipc()?.open_token(token)?;
        Ok(Self { common: Arc::clone(common), start })
    }

    fn close(&self) -> hal::Result<()> {
        let ipc = self.common.device.ipc()?;
        // SAFETY: 1. it was opened by this owner, which is at its end. 2. Whoever used it has waited for the device.
        unsafe { ipc.close_token(self.start) }
    }
}

impl<D: Device> Drop for Base<D> {
    fn drop(&mut self) {
        if self.common.origin.is_inherited() {
            return;
        }
        // A destructor has nobody to tell of a failure; it tries once more.
        if self.close().is_err() {
            let _ = self.close();
        }
    }
}

/// What an allocator has opened of other processes' memory.
#[derive(Debug)]
pub(crate) struct Imports<D: Device> {
    table: Mutex<Table<D>>,
}

#[derive(Debug)]
struct Table<D: Device> {
    /// By handle.
    opened: HashMap<Vec<u8>, Weak<Opened<D>>>,
    /// By token.
    bases: HashMap<IpcToken, Weak<Base<D>>>,
}

impl<D: Device> Default for Imports<D> {
    fn default() -> Self {
        Self { table: Mutex::new(Table { opened: HashMap::new(), bases: HashMap::new() }) }
    }
}

impl<D: Device> Imports<D> {
    /// Opens what a handle tells of, or finds it open.
    pub(super) fn open(&self, common: &Arc<DeviceState<D>>, bytes: &[u8]) -> Result<ImportedMemory<D>, Error> {
        let handle = Handle::decode(bytes)?;
        handle.check_device(common.device.info())?;
        if let Some(opened) = self.table().find(bytes) {
            return Ok(ImportedMemory { opened });
        }
        let (link, greeting) = Link::open(&handle)?;
        // A capture may be under way, which must not be broken.
        let _relaxed = RelaxedCapture::enter(&common.device).ok();
        let mapped = match greeting {
            Greeting::ChunkTable(count) => Some(map_all(common, &link, &handle, count)?),
            Greeting::Token(_) | Greeting::Local(_) => None,
        };
        let mut table = self.table();
        // Another thread may have been faster: then what was mapped here goes again.
        if let Some(opened) = table.find(bytes) {
            drop(table);
            return Ok(ImportedMemory { opened });
        }
        let (start, memory) = match (greeting, mapped) {
            (Greeting::Token(token), _) => {
                let base = table.base(common, &token)?;
                (base.start.address(), Memory::Based { base })
            }
            (Greeting::Local(address), _) => (address, Memory::Local),
            (Greeting::ChunkTable(_), None) => return Err(link.misunderstood().into()),
            (Greeting::ChunkTable(_), Some(mapped)) => {
                // Here, so that no peer is allowed between this and the entry in the table.
                mapped.grant()?;
                (mapped.address(), Memory::Mapped(mapped))
            }
        };
        let address = handle.span.address(start);
        let opened = Arc::new(Opened {
            common: Arc::clone(common),
            address: address.ok_or(ShareProblem::Damaged)?,
            bytes: handle.span.bytes,
            memory,
            link,
        });
        table.opened.insert(bytes.to_vec(), Arc::downgrade(&opened));
        drop(table);
        Ok(ImportedMemory { opened })
    }

    /// Lets the peers of the device touch everything that is mapped.
    pub(crate) fn grant(&self) -> hal::Result<()> {
        let all: Vec<Arc<Opened<D>>> = {
            let table = self.table();
            table.opened.values().filter_map(Weak::upgrade).collect()
        };
        all.iter().try_for_each(|opened| match &opened.memory {
            Memory::Mapped(mapped) => mapped.grant(),
            Memory::Based { .. } | Memory::Local => Ok(()),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table<D>> {
        // Entries come and go whole, so a panic leaves the table sound.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Table<D> {
    /// What is open already by a handle. Entries of what is closed go.
    fn find(&mut self, handle: &[u8]) -> Option<Arc<Opened<D>>> {
        self.opened.retain(|_, opened| opened.strong_count() > 0);
        self.bases.retain(|_, base| base.strong_count() > 0);
        self.opened.get(handle)?.upgrade()
    }

    /// The segment that a token names.
    fn base(&mut self, common: &Arc<DeviceState<D>>, token: &IpcToken) -> Result<Arc<Base<D>>, Error> {
        if let Some(base) = self.bases.get(token).and_then(Weak::upgrade) {
            return Ok(base);
        }
        let base = Arc::new(Base::open(common, token)?);
        self.bases.insert(*token, Arc::downgrade(&base));
        Ok(base)
    }
}

/// Maps all chunks side by side, for nobody yet.
fn map_all<D: Device>(
    common: &Arc<DeviceState<D>>,
    link: &Link,
    handle: &Handle,
    count: u32,
) -> Result<Mapped<D>, Error> {
    // First, so that the other process has begun when this one has addresses.
    let mut batches = link.batches(count)?;
    let mut mapped = Mapped::reserve(common, handle.span.extent)?;
    // The descriptors of a batch are closed before those of the next one are received.
    while let Some(pieces) = batches.hear()? {
        for piece in pieces {
            if piece.bytes == 0 || piece.bytes > mapped.missing() {
                return Err(link.misunderstood().into());
            }
            mapped.add(&piece)?;
        }
    }
    if mapped.missing() > 0 {
        return Err(ShareProblem::Damaged.into());
    }
    Ok(mapped)
}
