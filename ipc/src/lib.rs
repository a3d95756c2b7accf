//! Same-host hand-over of memory to other processes, with a lease, and questions to them: see [`reclaim`].
//!
//! An exporter publishes memory and gets a [`Handle`] of about a hundred bytes. An importer that receives the handle,
//! by any channel, connects to the exporter's thread and gets the descriptors. The crate depends on no device or
//! allocator.
//!
//! ```
//! # use std::fs::File;
//! # use cachette_ipc::*;
//! # #[derive(Debug)] struct Chunks(Vec<File>);
//! impl Export for Chunks {
//!     fn span(&self) -> Span {
//!         Span { bytes: 4096, offset: 0, extent: 4096 * self.0.len() as u64 }
//!     }
//!     fn kind(&self) -> ExportKind {
//!         ExportKind::Chunks { count: self.0.len() as u32 }
//!     }
//!     fn chunks(&self, first: usize, most: usize) -> Result<Vec<ExportedChunk>, String> {
//!         let files = self.0.iter().skip(first).take(most).map(|file| file.try_clone().unwrap());
//!         Ok(files.map(|file| ExportedChunk { bytes: 4096, handle: ChunkHandle::Descriptor(file.into()) }).collect())
//!     }
//! }
//! # let files = vec![File::open("/dev/null")?];
//! # let device = DeviceTag { vendor: b'h', uuid: [0; 16] };
//! // Exporter: starts the thread, and serves until the guard is dropped and every importer has closed.
//! let exporter = Exporter::default();
//! let export = exporter.export(Chunks(files))?;
//! let bytes = export.handle(device).encode();
//!
//! // Importer, usually in another process: connects, shows the key, receives descriptors. The connection is the lease.
//! let handle = Handle::decode(&bytes)?;
//! let (connection, reply) = Connection::open(&handle)?;
//! let OpenReply::Chunks(count) = reply else { panic!("not in chunks") };
//! let mut batches = connection.batches(count)?;
//! while let Some(chunks) = batches.receive()? { /* map them */ }
//! assert_eq!(export.readers(), 1);
//! # drop(connection);
//! # exporter.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The lease
//!
//! While a [`Connection`] is open, the exporter keeps the [`Export`] alive. The kernel closes the sockets of a process
//! that ends, even by a crash, so the exporter keeps nothing for dead importers.
//!
//! | module | holds |
//! |---|---|
//! | `handle`, [`message`] | the handle and the protocol, as values and as bytes |
//! | `export`, `server` | the table of exports, and the thread that serves it |
//! | `import` | the importer's connection |
//! | `transport`, `pidfd`, `listener` | how an importer reaches the exporter: by socket name, or by `pidfd_getfd` |
//! | `socket` | messages, descriptors, and the credentials of the peer |
//! | `fd_table` | how many descriptors one message may carry |
//! | `local` | the export tables of this process, which resolve addresses |

mod error;
mod export;
mod fd_table;
mod handle;
mod import;
mod listener;
mod local;
pub mod message;
mod pidfd;
pub mod reclaim;
mod server;
mod socket;
mod transport;

pub use error::OpenError;
pub use export::{ChunkHandle, Export, ExportGuard, ExportKind, ExportedChunk, Exporter};
pub use handle::{DeviceTag, ExporterAddress, Handle, HandleKind, Key, Span};
pub use import::{Batches, Connection, OpenReply};
