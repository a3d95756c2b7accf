//! A CUDA kernel on memory of the cache, launched with the crate cudarc.
//!
//! `cargo run -p cachette --features cudarc --example kernel` needs an NVIDIA device and the library `libnvrtc` of the
//! CUDA toolkit, which `LD_LIBRARY_PATH` must name if the system does not find it (often /usr/local/cuda/lib64).

use std::error::Error;

use cachette::Allocator;
use cachette::hal::Ordinal;
use cachette_hal_cuda::CudaBackend;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;

const SOURCE: &str = r#"
extern "C" __global__ void step(float *out, const float *in, float factor, unsigned int len) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = factor * in[i];
}
"#;
const LEN: u32 = 100_003;
const ROUNDS: u32 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let device = CudaBackend::load()?.device(Ordinal(0))?;
    // Both libraries work in the primary context of the device, so each can use the memory of the other.
    let context = CudaContext::new(0)?;
    let step = context.load_module(compile_ptx(SOURCE)?)?.load_function("step")?;
    let cuda_stream = context.new_stream()?;

    let allocator = Allocator::new(device);
    let accepted = allocator.device().accept(&cuda_stream)?;
    // SAFETY: 1. The device has accepted the stream. 2. `cuda_stream` outlives the allocator.
    let stream = unsafe { allocator.adopt_stream(accepted) }?;

    let mut current = allocator.allocate_buffer::<f32>(LEN as usize, &stream)?;
    current.write(&vec![1.0; LEN as usize])?;
    for round in 0..ROUNDS {
        let factor: f32 = if round % 2 == 0 { 2.0 } else { 0.5 };
        let next = allocator.allocate_buffer::<f32>(LEN as usize, &stream)?;
        let (out, from) = (next.allocation().address(), current.allocation().address());
        let mut launch = cuda_stream.launch_builder(&step);
        launch.arg(&out).arg(&from).arg(&factor).arg(&LEN);
        // SAFETY: 1. The arguments have the kernel's types, in its order. 2. The kernel writes `next` alone.
        // 3. Both buffers have `LEN` elements and belong to this stream, so a free takes effect after the kernel.
        unsafe { launch.launch(LaunchConfig::for_num_elems(LEN)) }?;
        // Frees the old buffer while the kernel may still read it. Stream order makes that safe.
        current = next;
    }

    assert_eq!(current.read()?, vec![1.0; LEN as usize]);
    println!("{ROUNDS} kernels; {} requests reached the driver", allocator.stats().num_device_alloc);
    Ok(())
}
