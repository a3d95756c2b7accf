//! Trains a small network on the first CUDA device. Prints losses to stdout as bits, and times to stderr.

use std::time::Instant;

use burn::backend::{Autodiff, Cuda};
use burn::module::{AutodiffModule, Module};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

type Device = Autodiff<Cuda<f32>>;

const STEPS: u32 = 200;
const BATCH: usize = 256;
const WIDTH: usize = 256;

#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    third: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        let layer = |outputs| LinearConfig::new(WIDTH, outputs).init(device);
        Self { first: layer(WIDTH), second: layer(WIDTH), third: layer(1) }
    }

    fn forward(&self, input: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = Relu::new().forward(self.first.forward(input));
        self.third.forward(Relu::new().forward(self.second.forward(hidden)))
    }
}

fn main() {
    let device = Default::default();
    Device::seed(&device, 1);
    let inputs: Vec<f32> = (0..BATCH * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    let targets: Vec<f32> = inputs.chunks(WIDTH).map(|row| row[..8].iter().sum()).collect();
    let inputs = Tensor::<Device, 2>::from_data(TensorData::new(inputs, [BATCH, WIDTH]), &device);
    let targets = Tensor::<Device, 2>::from_data(TensorData::new(targets, [BATCH, 1]), &device);

    let mut network = Network::<Device>::new(&device);
    let mut optimizer = AdamWConfig::new().init();
    let mut times = Vec::new();
    for step in 1..=STEPS {
        let begun = Instant::now();
        let loss = MseLoss::new().forward(network.forward(inputs.clone()), targets.clone(), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(1e-3, network, gradients);
        let loss = loss.into_scalar();
        times.push(begun.elapsed());
        if step % 50 == 0 {
            println!("step {step}: loss {:08x}", loss.to_bits());
        }
    }
    let output: f32 = network.valid().forward(inputs.inner()).sum().into_scalar();
    println!("sum of the outputs: {:08x}", output.to_bits());
    times.sort_unstable();
    eprintln!("step_us {:.1}", times[times.len() / 2].as_secs_f64() * 1e6);
}
