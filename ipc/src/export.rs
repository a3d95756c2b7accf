//! Exported memory, and the table that importers open it from.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};

use crate::handle::{DeviceTag, ExporterAddress, Handle, HandleKind, Key, Span};
use crate::listener::Listener;
use crate::local::{self, LocalTable};
use crate::message::{BatchHandles, FabricName, Refusal, Reply, Token};
use crate::server::serve;

/// Memory that other processes can open.
///
/// The exporter drops it once it is withdrawn and every importer has closed. The server thread calls it.
pub trait Export: Send + Sync {
    /// Where the memory lies in its segment, or in its chunks.
    fn span(&self) -> Span;

    /// How the memory is handed over.
    fn kind(&self) -> ExportKind;

    /// At most `most` chunks from `first` on, or why the driver failed. Only called for [`ExportKind::Chunks`].
    fn chunks(&self, first: usize, most: usize) -> Result<Vec<ExportedChunk>, String>;
}

/// How exported memory is handed over.
#[derive(Clone, Copy, Debug)]
pub enum ExportKind {
    /// By one token for a whole segment.
    Token {
        /// The driver's name of the segment.
        token: Token,
        /// The address of the segment in this process.
        base: u64,
    },
    /// By a descriptor or a fabric name for each chunk.
    Chunks {
        /// The number of chunks.
        count: u32,
    },
}

/// One chunk on its way to another process.
#[derive(Debug)]
pub struct ExportedChunk {
    /// Its bytes.
    pub bytes: u64,
    /// Its name.
    pub handle: ChunkHandle,
}

/// The name of a chunk, valid in another process.
#[derive(Debug)]
pub enum ChunkHandle {
    /// A descriptor, which its owner closes.
    Descriptor(OwnedFd),
    /// A fabric name, which is never closed.
    Fabric(FabricName),
}

/// Publishes memory to other processes of the same user.
///
/// The first export starts the server thread.
#[derive(Debug)]
pub struct Exporter<E> {
    running: Mutex<Option<Running<E>>>,
}

#[derive(Debug)]
struct Running<E> {
    table: Arc<ExportTable<E>>,
    thread: JoinHandle<()>,
}

impl<E> Default for Exporter<E> {
    fn default() -> Self {
        Self { running: Mutex::new(None) }
    }
}

impl<E: Export> Exporter<E> {
    /// Exports memory until the guard is dropped.
    pub fn export(&self, export: E) -> io::Result<ExportGuard<E>>
    where
        E: 'static,
    {
        let table = self.table()?;
        let key = Key::random()?;
        let mut state = table.state();
        state.last_id += 1;
        let entry = Arc::new(Entry { id: state.last_id, key, readers: AtomicUsize::new(0), export });
        state.entries.insert(entry.id, Arc::clone(&entry));
        drop(state);
        Ok(ExportGuard { entry, table })
    }

    fn table(&self) -> io::Result<Arc<ExportTable<E>>>
    where
        E: 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(Arc::clone(&running.table));
        }
        let (listener, address) = Listener::bind()?;
        let table = Arc::new(ExportTable {
            address,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::default(),
            settled: Condvar::new(),
        });
        let local: Arc<dyn LocalTable> = Arc::clone(&table) as _;
        local::register(address.socket, Arc::downgrade(&local));
        let served = Arc::clone(&table);
        let named = thread::Builder::new().name("cachette-ipc".to_owned());
        let thread = named.spawn(move || serve(&served, listener))?;
        *running = Some(Running { table: Arc::clone(&table), thread });
        Ok(table)
    }

    /// Ends all exports. The thread ends now, or when the last importer has closed its connection.
    pub fn close(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running
            && running.table.close()
        {
            // A thread that panicked has nothing left to do.
            let _ = running.thread.join();
        }
    }
}

/// One exported memory. Dropping it withdraws the export; importers that have opened the memory keep it.
#[derive(Debug)]
pub struct ExportGuard<E> {
    entry: Arc<Entry<E>>,
    table: Arc<ExportTable<E>>,
}

impl<E: Export> ExportGuard<E> {
    /// The handle by which another process opens the memory. It contains a secret.
    #[must_use]
    pub fn handle(&self, device: DeviceTag) -> Handle {
        let Entry { id, key, export, .. } = &*self.entry;
        let kind = match export.kind() {
            ExportKind::Token { .. } => HandleKind::Token,
            ExportKind::Chunks { .. } => HandleKind::Chunks,
        };
        Handle { kind, device, exporter: self.table.address, export: *id, key: *key, span: export.span() }
    }
}

impl<E> ExportGuard<E> {
    /// The exported memory.
    #[must_use]
    pub fn get(&self) -> &E {
        &self.entry.export
    }

    /// How many connections have the memory open.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.entry.readers.load(Relaxed)
    }
}

impl<E> Drop for ExportGuard<E> {
    fn drop(&mut self) {
        let withdrawn = self.table.state().entries.remove(&self.entry.id);
        // Without the lock, as the export may be dropped here.
        drop(withdrawn);
    }
}

/// The exports of one exporter.
#[derive(Debug)]
pub(crate) struct ExportTable<E> {
    address: ExporterAddress,
    /// Wakes the server thread.
    wake: OwnedFd,
    state: Mutex<TableState<E>>,
    /// Signals that the server thread has polled every connection since `closed` was set.
    settled: Condvar,
}

#[derive(Debug)]
struct TableState<E> {
    entries: HashMap<u64, Arc<Entry<E>>>,
    last_id: u64,
    /// Leases of all entries, withdrawn ones included.
    leases: usize,
    closed: bool,
    settled: bool,
}

impl<E> Default for TableState<E> {
    fn default() -> Self {
        Self { entries: HashMap::new(), last_id: 0, leases: 0, closed: false, settled: false }
    }
}

/// One export, kept alive by its guard and by its leases.
#[derive(Debug)]
struct Entry<E> {
    id: u64,
    key: Key,
    /// Its leases. Relaxed: only a count.
    readers: AtomicUsize,
    export: E,
}

impl<E> ExportTable<E> {
    /// The descriptor that wakes the server thread.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether the exporter has closed, so that no export can be opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Makes all exports unavailable; returns whether no lease is left.
    fn close(&self) -> bool {
        self.state().closed = true;
        // It can only fail if the thread is woken already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        // Importers that have closed by now are noticed first.
        let state = self.settled.wait_while(self.state(), |state| !state.settled);
        state.unwrap_or_else(PoisonError::into_inner).leases == 0
    }

    /// States that the server thread has polled every connection since the table was closed, or ends.
    pub(crate) fn settle(&self) {
        self.state().settled = true;
        self.settled.notify_all();
    }

    /// Opens an export for an importer that has its key.
    pub(crate) fn open(self: &Arc<Self>, id: u64, key: &Key) -> Option<Lease<E>> {
        let mut state = self.state();
        let entry = state.find(id, key)?;
        if state.closed {
            return None;
        }
        state.leases += 1;
        entry.readers.fetch_add(1, Relaxed);
        Some(Lease { entry, table: Arc::clone(self) })
    }

    fn state(&self) -> MutexGuard<'_, TableState<E>> {
        // Each change is one step, so a panic leaves the table valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> TableState<E> {
    fn find(&self, id: u64, key: &Key) -> Option<Arc<Entry<E>>> {
        self.entries.get(&id).filter(|entry| entry.key.matches(key)).cloned()
    }
}

impl<E: Export> LocalTable for ExportTable<E> {
    fn base_of(&self, export: u64, key: &Key) -> Option<u64> {
        let entry = self.state().find(export, key)?;
        match entry.export.kind() {
            ExportKind::Token { base, .. } => Some(base),
            ExportKind::Chunks { .. } => None,
        }
    }
}

/// The right of one connection to memory that it has opened.
///
/// Leases belong to the server thread. A forked child has no such thread, so no lease ends there.
#[derive(Debug)]
pub(crate) struct Lease<E> {
    entry: Arc<Entry<E>>,
    table: Arc<ExportTable<E>>,
}

impl<E: Export> Lease<E> {
    /// The reply to the request that opened the memory.
    pub(crate) fn open_reply(&self, same_process: bool) -> Reply {
        let export = &self.entry.export;
        match export.kind() {
            // Not every driver opens a token in the process that made it.
            ExportKind::Token { .. } if same_process => Reply::Local(export.span()),
            ExportKind::Token { token, .. } => Reply::Token(token, export.span()),
            ExportKind::Chunks { count } => Reply::Chunks(count, export.span()),
        }
    }

    /// A reply with at most `most` chunks from `first` on, its descriptors, and whether more chunks follow.
    pub(crate) fn batch(&self, first: u32, most: u8) -> Result<(Reply, Vec<OwnedFd>, bool), Refusal> {
        let export = &self.entry.export;
        let ExportKind::Chunks { count } = export.kind() else { return Err(Refusal::Withdrawn) };
        let chunks = export.chunks(first as usize, usize::from(most)).map_err(Refusal::Driver)?;
        let (mut sizes, mut names, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
        for chunk in chunks {
            // A message has handles of one kind; the importer requests the rest.
            match chunk.handle {
                ChunkHandle::Descriptor(descriptor) if names.is_empty() => descriptors.push(descriptor),
                ChunkHandle::Fabric(name) if descriptors.is_empty() => names.push(name),
                _ => break,
            }
            sizes.push(chunk.bytes);
        }
        if sizes.is_empty() {
            return Err(Refusal::Withdrawn);
        }
        let has_more = first as usize + sizes.len() < count as usize;
        let handles = if names.is_empty() { BatchHandles::Descriptors } else { BatchHandles::Fabric(names) };
        Ok((Reply::Batch { sizes, handles }, descriptors, has_more))
    }
}

impl<E> Drop for Lease<E> {
    fn drop(&mut self) {
        self.table.state().leases -= 1;
        self.entry.readers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{OFlags, fcntl_getfl};
    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::import::Connection;
    use crate::message::Request;
    use crate::socket;
    use crate::transport::connect;

    /// After which a thread counts as hanging.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Memory in chunks, by fabric name (`f`) or descriptor (`d`).
    #[derive(Debug)]
    struct Chunks(&'static [u8]);

    impl Export for Chunks {
        fn span(&self) -> Span {
            Span { bytes: 1, offset: 0, extent: 1 }
        }

        fn kind(&self) -> ExportKind {
            ExportKind::Chunks { count: u32::try_from(self.0.len()).unwrap() }
        }

        fn chunks(&self, first: usize, most: usize) -> Result<Vec<ExportedChunk>, String> {
            let handle = |kind: &u8| match kind {
                b'f' => ChunkHandle::Fabric([7; 64]),
                _ => ChunkHandle::Descriptor(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
            };
            let chunks = self.0.iter().skip(first).take(most).map(handle);
            Ok(chunks.map(|handle| ExportedChunk { bytes: 1, handle }).collect())
        }
    }

    #[test]
    fn a_batch_has_handles_of_one_kind_and_tells_whether_more_follow() {
        let exporter = Exporter::default();
        let guard = exporter.export(Chunks(b"ffdddf")).unwrap();
        let lease = guard.table.open(guard.entry.id, &guard.entry.key).unwrap();
        let batch = |first, most| {
            let (reply, descriptors, has_more) = lease.batch(first, most)?;
            let Reply::Batch { sizes, handles } = reply else { panic!("{reply:?} is no batch") };
            let names = if let BatchHandles::Fabric(names) = handles { names.len() } else { 0 };
            assert_eq!(sizes.len(), names + descriptors.len());
            Ok((names, descriptors.len(), has_more))
        };
        for (first, most, found) in
            [(0, 9, (2, 0, true)), (0, 1, (1, 0, true)), (2, 9, (0, 3, true)), (5, 9, (1, 0, false))]
        {
            assert_eq!(batch(first, most), Ok(found), "from {first}, {most} at most");
        }
        assert_eq!(batch(6, 9), Err(Refusal::Withdrawn));
    }

    #[test]
    fn a_client_that_is_refused_is_closed_at_once() {
        const SOON: Duration = Duration::from_secs(3);
        let exporter = Exporter::default();
        let guard = exporter.export(Chunks(b"f")).unwrap();
        let socket = connect(&guard.table.address, SOON).unwrap();
        let request = Request::Open { export: guard.entry.id, key: Key::random().unwrap(), process: [0; 16] };
        socket::send(socket.as_fd(), &request.encode(), &[]).unwrap();
        let receive = || socket::receive_within(socket.as_fd(), SOON).unwrap().0;
        assert_eq!([receive(), receive()], [Reply::Refused(Refusal::Withdrawn).encode(), Vec::new()]);
    }

    #[test]
    fn an_exporter_that_has_closed_opens_nothing() {
        let exporter = Exporter::default();
        let guard = exporter.export(Chunks(b"f")).unwrap();
        let open = |key: &Key| guard.table.open(guard.entry.id, key);
        drop(open(&guard.entry.key).expect("it is exported"));
        assert_eq!(guard.table.state().leases, 0, "it has ended");
        assert!(open(&Key::random().unwrap()).is_none(), "the key is another");
        exporter.close();
        assert!(open(&guard.entry.key).is_none(), "an importer got a lease after the end");
    }

    #[test]
    fn an_exporter_that_closes_waits_for_its_thread_but_for_no_importer() {
        for is_open in [false, true] {
            let exporter = Exporter::default();
            let guard = exporter.export(Chunks(b"f")).unwrap();
            let connection = Connection::open(&guard.handle(DeviceTag { vendor: b'h', uuid: [0; 16] })).unwrap().0;
            let kept = is_open.then_some(connection);
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                exporter.close();
                tell.send(()).unwrap();
            });
            told.recv_timeout(PATIENCE).expect("it waits for an importer");
            assert_eq!(Arc::strong_count(&guard.table) == 1, !is_open, "the thread and its leases have the table");
            drop(kept);
        }
    }

    #[test]
    fn no_descriptor_of_an_exporter_reaches_the_programs_that_its_process_starts() {
        let exporter = Exporter::default();
        let guard = exporter.export(Chunks(b"f")).unwrap();
        assert!(fcntl_getfd(guard.table.wake()).unwrap().contains(FdFlags::CLOEXEC));
        assert!(fcntl_getfl(guard.table.wake()).unwrap().contains(OFlags::NONBLOCK), "its thread must not block");
    }
}
