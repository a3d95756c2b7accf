//! Cachette's memory as DLPack tensors, and DLPack tensors of other libraries.
//!
//! DLPack is the C structure in which array libraries pass memory to each other without a copy. This crate has its
//! structures ([`abi`]), the export of memory ([`Tensor`], [`IntoDlpack`]) and the import ([`Imported`]).
//!
//! ```
//! use cachette::{Allocator, Backends};
//! use cachette_dlpack::{Imported, IntoDlpack};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let mut buffer = allocator.allocate_buffer::<f32>(6, &stream)?;
//! buffer.write(&[1.0; 6])?;
//!
//! let tensor = buffer.into_dlpack(&[2, 3])?.into_versioned();
//! let imported = unsafe { Imported::from_versioned(tensor) }?; // the tensor is whole and has no other owner
//! assert_eq!((imported.shape(), imported.bytes()), (&[2, 3][..], 24));
//! drop(imported); // runs the deleter, which frees the memory
//! assert_eq!(allocator.allocated_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Streams
//!
//! The structures name no stream. Before memory is passed to a consumer that works in another stream, call
//! [`hand_over`]. Then the consumer's stream waits on the device for the work of the owner's stream. The deleter frees
//! the memory behind the work that the consumer's stream has by then.

pub mod abi;
mod data_type;
mod device;
mod error;
mod export;
mod import;

pub use data_type::{Element, data_type, type_text};
pub use device::{device_of, hand_over, order};
pub use error::Error;
pub use export::{IntoDlpack, Tensor};
pub use import::Imported;
