//! Memory that several processes use.
//!
//! One process allocates memory and shares it; others of the same user open it and see the same bytes. What travels
//! between them is a [handle](SharedMemory::handle) of some hundred bytes, by whatever means they have.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let config = "expandable_segments:True".parse()?;
//! let allocator = Allocator::with_config(Backends::open("host")?, &config);
//! let stream = allocator.create_stream()?;
//! let memory = allocator.allocate(4 << 20, &stream)?;
//! let shared = allocator.share(&memory)?;
//! let handle = shared.handle();
//!
//! // … in another process, as a rule …
//! let imported = allocator.open_shared(&handle)?;
//! assert_eq!((imported.bytes(), shared.readers()), (4 << 20, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who keeps what
//!
//! Whoever opens memory keeps a connection to the process that shared it. As long as there is one, and as long as the
//! [`SharedMemory`] lives, the memory stays where it is and serves nobody else, even if its allocation is freed. A process
//! that ends, in whatever way, loses its connections; so nothing is kept for the dead.
//!
//! If the process that shared the memory ends, memory in chunks stays with those who have opened it. Of memory that the
//! device made in one piece the driver decides: [`ImportedMemory::is_kept`] says when it is time to close it.
//!
//! # Order
//!
//! Streams are not shared. Before another process reads what was written, the writer waits for its stream; and before
//! it closes what it opened, [`ImportedMemory`] waits for the device.
//!
//! | who | does |
//! |---|---|
//! | `offer`, `desk` | what is offered, and to whom it was given |
//! | `server` | the thread that answers, begun by the first offer |
//! | `fetch` | asks another process |
//! | `import`, `mapped` | what was opened, once each |
//! | `here` | the desks of this process, which are asked for addresses |
//! | `handle`, `wire` | what is said, as bytes |
//! | `way`, `door` | how it is reached: by name, or by a descriptor of its own |
//! | `link` | sockets, and who is at the other end |
//! | `descriptors` | how many descriptors may come at once |

mod descriptors;
mod desk;
mod door;
mod fetch;
mod handle;
mod here;
mod import;
mod link;
mod mapped;
mod offer;
mod problem;
mod server;
mod way;
mod wire;

use std::sync::OnceLock;

use cachette_hal::Device;

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::error::Error;

pub(crate) use desk::Exports;
pub use import::ImportedMemory;
pub(crate) use import::Imports;
pub use offer::SharedMemory;
pub use problem::ShareProblem;

impl<D: Device + 'static> Allocator<D> {
    /// Lets other processes of this user open an allocation.
    ///
    /// They see all bytes of its chunks or its segment, those of neighbours too. A pool whose memory is shared cannot
    /// sleep, and one that sleeps cannot share.
    pub fn share(&self, allocation: &Allocation<D>) -> Result<SharedMemory<D>, Error> {
        self.share_raw(allocation.address())
    }

    /// As [`share`](Self::share), for memory that is known by its address.
    pub fn share_raw(&self, address: u64) -> Result<SharedMemory<D>, Error> {
        self.inner().shared.origin.check()?;
        if address == 0 {
            return Err(ShareProblem::Empty.into());
        }
        if self.inner().shared.uncached.knows(address) {
            return Err(ShareProblem::PastCache.into());
        }
        let (heap, id) = self.find(address)?;
        self.inner().exports.offer(&heap, id)
    }
}

impl<D: Device> Allocator<D> {
    /// Opens memory that another process has shared, by its [handle](SharedMemory::handle).
    ///
    /// Opened once more it is at the same addresses. It takes no more addresses than the memory needs.
    pub fn open_shared(&self, handle: &[u8]) -> Result<ImportedMemory<D>, Error> {
        self.inner().shared.origin.check()?;
        let inner = self.inner();
        inner.imports.open(&inner.shared, handle)
    }
}

/// What tells this process from every other: random bytes, and its number, which differs after a fork; `None` if the
/// system has no random bytes.
fn this_process() -> Option<[u8; 16]> {
    static RANDOM: OnceLock<Option<[u8; 12]>> = OnceLock::new();
    let random = RANDOM.get_or_init(|| link::random().ok()).as_ref()?;
    let mut name = [0; 16];
    name[..12].copy_from_slice(random);
    name[12..].copy_from_slice(&std::process::id().to_le_bytes());
    Some(name)
}
