//! libamdhip64's C interface over any Cachette device.
//!
//! It stands in for AMD's library where there is no AMD device, so that the real loader, the real foreign
//! calls and the real mapping of errors run anywhere. It is for tests alone and says so: it exports the
//! symbol `cachette_emulated_library`, and a program that loads it labels its results as emulated.
//!
//! It behaves as one version of AMD's library does, with that version's defects, and refuses what HIP
//! refuses even where the device beneath would not. Where AMD's library would crash the process, it writes a
//! line and aborts, so that a test which gets there cannot pass.
//!
//! | variable | meaning |
//! |---|---|
//! | `CACHETTE_EMULATED_HIP` | the version to be: `6.4`, `7.2` (the usual one), `7.14` or `10`; without it, the name of the folder that the library lies in |
//! | `CACHETTE_EMULATED_OVER` | `cuda`: over NVIDIA's devices instead of host memory, where built with the feature `over-cuda` |
//! | `CACHETTE_EMULATED_DEVICES` | how many devices there are, 2 as a rule; 0 for none |
//! | `CACHETTE_EMULATED_CAPACITY` | bytes of each, 256 MiB as a rule |
//! | `CACHETTE_EMULATED_SHARED` | a file by which processes share the devices |
//! | `CACHETTE_EMULATED_INTEGRATED` | 1: the devices share their memory with the host |
//! | `CACHETTE_EMULATED_PEERS` | 0: the devices cannot reach each other |
//! | `CACHETTE_EMULATED_VERSION` | the number to answer `hipRuntimeGetVersion` with |
//! | `CACHETTE_EMULATED_ARCHITECTURE` | the architecture to be, `gfx942:sramecc+:xnack-` as a rule |
//! | `CACHETTE_EMULATED_BAD_POOL` | 1: the stream-ordered pool of 7.x cannot map its memory, and does not tell |
//! | `CACHETTE_EMULATED_CAPTURES_STAY` | 1: no call takes a broken capture off its streams, but to destroy them |
//! | `CACHETTE_EMULATED_REFUSED_MAPS` | n: every n-th map fails inside, as a kernel without memory makes it; n:k: of every n the last k |
//! | `CACHETTE_EMULATED_REFUSED_RANGES` | the same for questions what is mapped at an address |
//! | `CACHETTE_EMULATED_REFUSED_RIGHTS` | the same for rights to a mapping |
//! | `CACHETTE_EMULATED_REFUSED_ENDS` | n: every n-th unmap or release of addresses fails inside; n:k: of every n the last k |
//! | `CACHETTE_EMULATED_LOST_AFTER` | how many calls there are before the devices vanish |
//!
//! [`install()`] puts a copy where a loader finds it.

mod abi;
mod capture;
mod captures;
mod copies;
mod descriptors;
mod device;
mod entry_points;
mod events;
mod host_calls;
mod host_memory;
mod install;
mod ipc;
mod machine;
mod mappings;
mod memory;
mod nodes;
mod peer_access;
mod personality;
mod pointers;
mod pools;
mod prelude;
mod programs;
mod prototypes;
mod stream_ordered;
mod streams;
mod transfer;
mod virtual_memory;
mod visible;
mod vm_state;

pub use install::install;
pub use personality::Personality;
