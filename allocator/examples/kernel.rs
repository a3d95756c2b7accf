//! A kernel on memory of the cache, in a stream of the crate cudarc.
//!
//! `cargo run --release -p cachette --features cudarc --example kernel` needs an NVIDIA device, and the library
//! `libnvrtc` of the CUDA toolkit where the system or `LD_LIBRARY_PATH` finds it.

use std::error::Error;
use std::process::ExitCode;

use cachette::hal::{Backend, Ordinal};
use cachette::{Allocator, Buffer};
use cachette_hal_cuda::{CudaBackend, CudaDevice};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileError, Ptx, compile_ptx};

/// The multiplication and the addition are rounded once, as `f32::mul_add` does.
const SOURCE: &str = r#"
extern "C" __global__ void step(float *out, const float *in, const float *more, float factor, unsigned int len) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) out[i] = fmaf(factor, in[i], more[i]);
}
"#;
const FACTOR: f32 = 0.7;
/// Not a multiple of anything that a grid is made of.
const LEN: u32 = 100_003;
const ROUNDS: u32 = 50;

type Numbers = Buffer<f32, CudaDevice>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let backend = CudaBackend::load()?;
    let device = backend.device(Ordinal(0))?;
    check_libraries()?;
    println!("driver: {}", backend.info().library);

    // Both work in the primary context of the device, so what one makes the other may use.
    let context = CudaContext::new(0)?;
    let step = context.load_module(compile()?)?.load_function("step")?;
    let theirs = context.new_stream()?;

    let allocator = Allocator::new(device);
    println!("device: {}", allocator.device_info().name);
    let stream = allocator.device().accept(&theirs)?;
    // SAFETY: 1. the device has just accepted it. 2. `theirs` was made before the allocator and goes after it.
    let stream = unsafe { allocator.adopt_stream(stream) }?;

    let start: Vec<f32> = numbers(1.0 / 3.0).collect();
    let more: Vec<f32> = numbers(1.0 / 7.0).collect();
    let mut current = allocator.allocate_buffer(start.len(), &stream)?;
    current.write(&start)?;
    let mut added = allocator.allocate_buffer(more.len(), &stream)?;
    added.write(&more)?;

    for _round in 0..ROUNDS {
        let mut next = allocator.allocate_buffer(start.len(), &stream)?;
        launch(&theirs, &step, &mut next, &current, &added)?;
        // Frees the old numbers while the kernel may still read them. The stream's order makes that safe.
        current = next;
    }

    compare(&current.read()?, &expected(&start, &more))?;
    let stats = allocator.stats();
    println!("{ROUNDS} kernels over {LEN} numbers: every bit is as the host computes it");
    println!("{} requests, of which {} went to the driver", ROUNDS + 2, stats.num_device_alloc);
    Ok(())
}

/// Says what is missing, where cudarc would panic at its first call.
fn check_libraries() -> Result<(), String> {
    // SAFETY: it opens the driver's library, which this process has open already, by its usual names.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("cudarc finds no libcuda by its usual names".to_owned());
    }
    // SAFETY: it opens NVIDIA's compiler by its usual names; loading it has no effect but that.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("no libnvrtc was found: install the CUDA toolkit, or add its folder to \
             LD_LIBRARY_PATH (often /usr/local/cuda/lib64)"
            .to_owned());
    }
    Ok(())
}

/// Compiles the kernel; a mistake in it is reported in the compiler's own words.
fn compile() -> Result<Ptx, String> {
    compile_ptx(SOURCE).map_err(|error| match error {
        CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
        other => other.to_string(),
    })
}

/// Numbers whose last bits matter.
fn numbers(unit: f32) -> impl Iterator<Item = f32> {
    (0_u16..=u16::MAX).cycle().take(LEN as usize).map(move |number| f32::from(number) * unit)
}

/// Queues `out = FACTOR * from + added` in the stream that all three belong to.
fn launch(
    stream: &CudaStream,
    step: &CudaFunction,
    out: &mut Numbers,
    from: &Numbers,
    added: &Numbers,
) -> Result<(), DriverError> {
    let [out, from, added] = [out, from, added].map(|buffer| buffer.allocation().address());
    let mut kernel = stream.launch_builder(step);
    kernel.arg(&out).arg(&from).arg(&added);
    kernel.arg(&FACTOR).arg(&LEN);
    // SAFETY: 1. the arguments are of the kernel's types, in its order. 2. It writes `out` alone, which is borrowed
    // for that. 3. Each buffer has `LEN` numbers, and its memory serves nobody else before the stream has passed.
    unsafe { kernel.launch(LaunchConfig::for_num_elems(LEN)) }?;
    Ok(())
}

/// The same on the host.
fn expected(start: &[f32], more: &[f32]) -> Vec<f32> {
    let each = |(&start, &more): (&f32, &f32)| (0..ROUNDS).fold(start, |number, _| FACTOR.mul_add(number, more));
    start.iter().zip(more).map(each).collect()
}

/// Compares bit for bit; the error names the first difference.
fn compare(found: &[f32], expected: &[f32]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} numbers came back, not {}", found.len(), expected.len()));
    }
    let mut pairs = found.iter().zip(expected).enumerate();
    match pairs.find(|(_, (found, expected))| found.to_bits() != expected.to_bits()) {
        None => Ok(()),
        Some((i, (found, expected))) => Err(format!("number {i} is {found:e}, and should be {expected:e}")),
    }
}
