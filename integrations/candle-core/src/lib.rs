//! Cachette as the memory of candle's CUDA devices, by `on-new-context.patch` and the patch of cudarc.

use std::sync::Arc;

use candle_core::Error;
use candle_core::cuda::cudarc::driver::CudaContext;

/// Gives Cachette to `candle_core::cuda::on_new_context`: `on_new_context(cachette_candle_core::install)`.
///
/// # Errors
///
/// If Cachette does not open the device, or the context has allocated memory.
pub fn install(context: &Arc<CudaContext>) -> candle_core::Result<()> {
    let device = context.ordinal().try_into().map_err(Error::wrap)?;
    let allocator = cachette_process::allocator(device).map_err(Error::wrap)?;
    cachette_cudarc_allocator::install(context, allocator).map_err(Error::wrap)
}
