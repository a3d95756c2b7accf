//! Generates tokens with a small decoder of random weights, to compare memory of the driver and of Cachette.
//!
//! usage: cachette-candle-core driver|cachette. Results are on stdout, and figures on stderr.

use std::time::Instant;

use candle_core::cuda::cudarc::driver::result;
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::softmax_last_dim;

const VOCABULARY: usize = 4096;
const WIDTH: usize = 512;
const INNER: usize = 1536;
const LAYERS: usize = 6;
const HEADS: usize = 8;
const PROMPT: usize = 128;
const TOKENS: usize = 128;

fn main() -> Result<()> {
    let cachette = std::env::args().nth(1).as_deref() == Some("cachette");
    if cachette {
        candle_core::cuda::on_new_context(cachette_candle_core::install);
    }
    let device = Device::new_cuda_with_stream(0)?;
    device.set_seed(1)?;
    let before = used()?;
    let model = Model::new(&device)?;
    // Once to load kernels.
    model.generate(&device, 2)?;
    for tracked in [true, false] {
        if !tracked {
            // SAFETY: the program has one stream.
            unsafe { device.as_cuda_device()?.disable_event_tracking() };
        }
        let begun = Instant::now();
        let (tokens, bits) = model.generate(&device, TOKENS)?;
        device.synchronize()?;
        let name = if tracked { "token_us" } else { "token_without_events_us" };
        eprintln!("{name} {:.1}", begun.elapsed().as_secs_f64() * 1e6 / TOKENS as f64);
        println!("{tokens:?} {bits:08x}");
    }
    eprintln!("memory_mib {}", (used()? - before) >> 20);
    for (number, allocator) in cachette_process::opened() {
        let stats = allocator.stats();
        let (requests, misses) = (stats.allocation.all.allocated, stats.num_device_alloc);
        eprintln!("cachette: device {number}: requests {requests}, of which {misses} reached the driver");
    }
    Ok(())
}

fn used() -> Result<u64> {
    let (free, total) = result::mem_get_info().map_err(candle_core::Error::wrap)?;
    Ok((total - free) as u64)
}

struct Layer {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    up: Tensor,
    down: Tensor,
}

struct Model {
    embedding: Tensor,
    layers: Vec<Layer>,
}

impl Model {
    fn new(device: &Device) -> Result<Self> {
        let random =
            |rows: usize, columns: usize| Tensor::randn(0f32, (rows as f32).powf(-0.5), (rows, columns), device);
        let layer = |_| -> Result<Layer> {
            Ok(Layer {
                query: random(WIDTH, WIDTH)?,
                key: random(WIDTH, WIDTH)?,
                value: random(WIDTH, WIDTH)?,
                output: random(WIDTH, WIDTH)?,
                up: random(WIDTH, INNER)?,
                down: random(INNER, WIDTH)?,
            })
        };
        Ok(Self { embedding: random(VOCABULARY, WIDTH)?, layers: (0..LAYERS).map(layer).collect::<Result<_>>()? })
    }

    /// The most probable tokens after a fixed prompt, and the sum of the last logits as bits.
    fn generate(&self, device: &Device, count: usize) -> Result<(Vec<u32>, u32)> {
        let mut caches: Vec<Option<(Tensor, Tensor)>> = vec![None; LAYERS];
        let mut input: Vec<u32> = (0..PROMPT as u32).map(|i| i * 31 % VOCABULARY as u32).collect();
        let (mut tokens, mut bits) = (Vec::new(), 0);
        for _ in 0..count {
            let x = self.forward(&Tensor::new(input, device)?, &mut caches)?;
            let last = x.narrow(0, x.dim(0)? - 1, 1)?.matmul(&self.embedding.t()?)?;
            bits = last.sum_all()?.to_scalar::<f32>()?.to_bits();
            let next = last.argmax(D::Minus1)?.squeeze(0)?.to_scalar()?;
            tokens.push(next);
            input = vec![next];
        }
        Ok((tokens, bits))
    }

    fn forward(&self, tokens: &Tensor, caches: &mut [Option<(Tensor, Tensor)>]) -> Result<Tensor> {
        let mut x = self.embedding.index_select(tokens, 0)?;
        let length = tokens.dim(0)?;
        let heads = |x: &Tensor| x.reshape((length, HEADS, WIDTH / HEADS))?.transpose(0, 1)?.contiguous();
        for (layer, cache) in self.layers.iter().zip(caches) {
            let query = heads(&x.matmul(&layer.query)?)?;
            let (mut key, mut value) = (heads(&x.matmul(&layer.key)?)?, heads(&x.matmul(&layer.value)?)?);
            if let Some((keys, values)) = cache.take() {
                // The cache grows by a copy, so each token has other sizes.
                (key, value) = (Tensor::cat(&[keys, key], 1)?, Tensor::cat(&[values, value], 1)?);
            }
            let scores = (query.matmul(&key.t()?)? * (HEADS as f64 / WIDTH as f64).sqrt())?;
            let mixed = softmax_last_dim(&scores)?.matmul(&value)?;
            *cache = Some((key, value));
            let mixed = mixed.transpose(0, 1)?.contiguous()?.reshape((length, WIDTH))?;
            x = (x + mixed.matmul(&layer.output)?)?;
            x = (&x + x.matmul(&layer.up)?.gelu()?.matmul(&layer.down)?)?;
            x = x.broadcast_div(&x.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?)?.to_dtype(DType::F32)?;
        }
        Ok(x)
    }
}
