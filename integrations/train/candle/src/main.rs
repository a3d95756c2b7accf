//! Trains a small network on the first CUDA device. Prints losses to stdout as bits, and times to stderr.

#[cfg(feature = "cachette")]
use cachette_front as _;

use std::time::Instant;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap};

const STEPS: u32 = 200;
const BATCH: usize = 256;
const WIDTH: usize = 256;

fn main() -> Result<()> {
    let device = Device::new_cuda_with_stream(0)?;
    train(&device)?;
    eprintln!("pair_ns {}", median_pair(&device)?);
    // SAFETY: the program has one stream.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    eprintln!("pair_without_events_ns {}", median_pair(&device)?);
    #[cfg(feature = "cachette")]
    for (number, allocator) in cachette_process::opened() {
        let stats = allocator.stats();
        let (requests, misses) = (stats.allocation.all.allocated, stats.num_device_alloc);
        eprintln!("cachette: device {number}: requests {requests}, of which {misses} reached the driver");
    }
    Ok(())
}

fn train(device: &Device) -> Result<()> {
    device.set_seed(1)?;
    let inputs: Vec<f32> = (0..BATCH * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    let targets: Vec<f32> = inputs.chunks(WIDTH).map(|row| row[..8].iter().sum()).collect();
    let inputs = Tensor::from_vec(inputs, (BATCH, WIDTH), device)?;
    let targets = Tensor::from_vec(targets, (BATCH, 1), device)?;

    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, device);
    let layer = |outputs, name| candle_nn::linear(WIDTH, outputs, builder.pp(name));
    let network = candle_nn::seq()
        .add(layer(WIDTH, "first")?)
        .add(candle_nn::Activation::Relu)
        .add(layer(WIDTH, "second")?)
        .add(candle_nn::Activation::Relu)
        .add(layer(1, "third")?);
    let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW::default())?;

    let mut times = Vec::new();
    for step in 1..=STEPS {
        let begun = Instant::now();
        let loss = candle_nn::loss::mse(&network.forward(&inputs)?, &targets)?;
        optimizer.backward_step(&loss)?;
        let loss: f32 = loss.to_scalar()?;
        times.push(begun.elapsed());
        if step % 50 == 0 {
            println!("step {step}: loss {:08x}", loss.to_bits());
        }
    }
    let output: f32 = network.forward(&inputs)?.sum_all()?.to_scalar()?;
    println!("sum of the outputs: {:08x}", output.to_bits());
    times.sort_unstable();
    eprintln!("step_us {:.1}", times[times.len() / 2].as_secs_f64() * 1e6);
    Ok(())
}

/// The median time to make and drop a tensor, in batches, in nanoseconds.
fn median_pair(device: &Device) -> Result<u128> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let begun = Instant::now();
        for _ in 0..200 {
            drop(Tensor::zeros((BATCH, WIDTH), DType::F32, device)?);
        }
        times.push(begun.elapsed().as_nanos() / 200);
        device.synchronize()?;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
