//! The storages of the patched runtimes, each in the surroundings that its source names.

#[cfg(feature = "hip")]
#[macro_use]
extern crate derive_new;
// All that the storages use of cubecl-core is what it re-exports from here.
extern crate cubecl_server as cubecl_core;

/// cubecl-cuda.
pub mod device {
    pub const CUDA_MAX_BINDINGS: u32 = 1024;
}
/// cubecl-hip.
pub const AMD_MAX_BINDINGS: u32 = 1024;

#[cfg(feature = "cuda")]
pub mod compute {
    pub mod storage {
        #[path = "../../../crates/cubecl-cuda/src/compute/storage/external.rs"]
        pub mod external;
        #[path = "../../../crates/cubecl-cuda/src/compute/storage/gpu.rs"]
        pub mod gpu;
    }

    /// # Safety
    ///
    /// Every pattern of bits is a value of `I`.
    pub unsafe fn uninit_vec<I: Default + Clone>(len: usize) -> Vec<I> {
        vec![I::default(); len]
    }
}

#[cfg(feature = "hip")]
pub mod compute {
    #[path = "../../crates/cubecl-hip/src/compute/storage/external.rs"]
    pub mod external;
    #[path = "../../crates/cubecl-hip/src/compute/storage/gpu.rs"]
    pub mod gpu;
    #[path = "../../crates/cubecl-hip/src/compute/status.rs"]
    pub mod status;
}

#[cfg(test)]
mod cachette;
