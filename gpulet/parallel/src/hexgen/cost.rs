//! HexGen's cost model of a stage: reading weights or computing, all-reduce, hand-over and memory.

use crate::device::Link;
use crate::error::{ParallelError, positive, within};

/// Bytes of a number in fp16.
const FP16_BYTES: f64 = 2.0;

/// A machine with equal GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Type of the GPUs.
    pub name: String,
    /// Number of GPUs, from 1 to 16.
    pub gpus: usize,
    /// Memory of each GPU, in bytes.
    pub memory_bytes: u64,
    /// Memory bandwidth of each GPU, in bytes a second.
    pub bandwidth: f64,
    /// Peak of each GPU, in fp16 operations a second.
    pub flops: f64,
    /// The link between GPUs of this machine.
    pub link: Link,
}

/// A transformer with equal layers, in fp16.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformer {
    /// Number of layers, from 1 to 1,000.
    pub layers: usize,
    /// Weights of one layer, in bytes.
    pub layer_bytes: u64,
    /// Width of the activations.
    pub hidden: usize,
    /// Keys and values of one token in one layer, in bytes.
    pub cache_bytes: u64,
}

/// What a request asks, and how many are in memory at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Tokens of the prompt, from 1 to 1,000,000.
    pub prompt_tokens: u32,
    /// Tokens that are generated, from 1 to 1,000,000.
    pub output_tokens: u32,
    /// Requests whose keys and values are in memory at the same time, from 1 to 1,000.
    pub concurrent: u32,
}

impl Machine {
    pub(super) fn check(&self, number: usize) -> Result<(), ParallelError> {
        within(&format!("machines.{number}.gpus"), self.gpus, 1, 16)?;
        positive(format!("machines.{number}.bandwidth"), self.bandwidth)?;
        positive(format!("machines.{number}.flops"), self.flops)?;
        self.link.check()
    }

    /// Type words with memory (GB), memory bandwidth (GB/s) and dense fp16 peak (TFLOPS) of data sheets.
    pub const TYPES: [(&str, u64, f64, f64); 5] = [
        ("a6000", 48, 768.0, 154.8),
        ("a5000", 24, 768.0, 111.1),
        ("a4000", 16, 448.0, 76.7),
        ("v100", 16, 900.0, 125.0),
        ("a100", 80, 2_039.0, 312.0),
    ];

    /// A machine with GPUs of a known type, linked by PCIe 4.0 (24 GB/s and 10 us, ours).
    pub fn of_type(word: &str, gpus: usize) -> Result<Self, ParallelError> {
        let Some((name, memory, bandwidth, flops)) = Self::TYPES.into_iter().find(|(name, ..)| *name == word)
        else {
            let names: Vec<&str> = Self::TYPES.iter().map(|(name, ..)| *name).collect();
            return Err(ParallelError::invalid(
                "machines",
                format!("one of {}", names.join(", ")),
                format!("`{word}`"),
            ));
        };
        within("machines.gpus", gpus, 1, 16)?;
        Ok(Self {
            name: name.to_owned(),
            gpus,
            memory_bytes: memory * 1_000_000_000,
            bandwidth: bandwidth * 1e9,
            flops: flops * 1e12,
            link: Link { latency_s: 10e-6, bytes_per_second: 24e9 },
        })
    }
}

impl Transformer {
    /// Llama-2 70B: 80 layers of 855.6 million parameters, width 8,192, 8 groups of keys and values.
    pub fn llama2_70b() -> Self {
        Self { layers: 80, layer_bytes: 1_711_276_032, hidden: 8_192, cache_bytes: 4_096 }
    }

    pub(super) fn check(&self) -> Result<(), ParallelError> {
        within("model.layers", self.layers, 1, 1_000)?;
        within("model.hidden", self.hidden, 1, 1_000_000)
    }

    /// Memory of `layers` layers on each of `gpus` GPUs, with keys and values.
    pub(super) fn memory_bytes(&self, layers: usize, gpus: usize, task: &Task) -> u64 {
        let tokens = u64::from(task.prompt_tokens) + u64::from(task.output_tokens);
        let cache = self.cache_bytes.saturating_mul(tokens).saturating_mul(u64::from(task.concurrent));
        let layers = u64::try_from(layers).unwrap_or(u64::MAX);
        let gpus = u64::try_from(gpus).unwrap_or(1).max(1);
        layers.saturating_mul(self.layer_bytes.saturating_add(cache)).div_ceil(gpus)
    }

    fn activation_bytes(&self, tokens: f64) -> f64 {
        FP16_BYTES * self.hidden as f64 * tokens
    }
}

impl Task {
    pub(super) fn check(&self) -> Result<(), ParallelError> {
        let number = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        within("task.prompt_tokens", number(self.prompt_tokens), 1, 1_000_000)?;
        within("task.output_tokens", number(self.output_tokens), 1, 1_000_000)?;
        within("task.concurrent", number(self.concurrent), 1, 1_000)
    }

    /// Seconds that a request takes in `layers` layers on GPUs like these: one pass for the prompt, and one for each token.
    /// A pass takes the longer of reading the weights and computing; GPUs that share operators exchange the activations
    /// twice a layer.
    pub(super) fn stage_s(&self, model: &Transformer, layers: usize, gpus: &StageGpus) -> f64 {
        let degree = gpus.count as f64;
        let pass = |tokens: f64| {
            let reading = model.layer_bytes as f64 / (gpus.bandwidth * degree);
            let computing = model.layer_bytes as f64 / FP16_BYTES * 2.0 * tokens / (gpus.flops * degree);
            let bytes = model.activation_bytes(tokens) * 2.0 * (degree - 1.0) / degree;
            let exchange = gpus.link.latency_s + bytes / gpus.link.bytes_per_second;
            let exchange = if gpus.count > 1 { 2.0 * exchange } else { 0.0 };
            layers as f64 * (reading.max(computing) + exchange)
        };
        pass(f64::from(self.prompt_tokens)) + f64::from(self.output_tokens) * pass(1.0)
    }

    /// Seconds to hand a request over to the next stage, over all its passes.
    pub(super) fn hand_over_s(&self, model: &Transformer, network: &Link) -> f64 {
        let pass =
            |tokens: f64| network.latency_s + model.activation_bytes(tokens) / network.bytes_per_second;
        pass(f64::from(self.prompt_tokens)) + f64::from(self.output_tokens) * pass(1.0)
    }
}

/// The GPUs of a stage: those of the slowest one, if they differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageGpus {
    pub(super) count: usize,
    pub(super) bandwidth: f64,
    pub(super) flops: f64,
    pub(super) link: Link,
}
