//! A model as a chain of layers, or of segments between the tensors where it can be split.

use serde::Deserialize;

use crate::error::{ParallelError, not_negative};

/// Layers of a chain at most.
pub const LAYERS_MAX: usize = 10_000;

/// A layer, or a segment that is never split.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// The name in reports.
    pub name: String,
    /// Time of one request on a device of speed 1, in seconds.
    pub latency_s: f64,
    /// Weights and activations, in bytes.
    pub memory_bytes: u64,
    /// Size of what the next layer reads, in bytes. Zero for the last layer.
    pub output_bytes: u64,
}

/// Layers in the order in which a request passes them.
#[derive(Clone, Debug)]
pub struct Chain {
    layers: Vec<Layer>,
    /// Seconds of all layers before each place; one more entry than layers.
    latency_before: Vec<f64>,
    /// Bytes of all layers before each place; one more entry than layers.
    memory_before: Vec<u64>,
}

impl Chain {
    /// A chain of at least one layer.
    pub fn new(layers: Vec<Layer>) -> Result<Self, ParallelError> {
        if layers.is_empty() || layers.len() > LAYERS_MAX {
            let expected = format!("1 to {LAYERS_MAX} layers");
            return Err(ParallelError::invalid("layers", expected, layers.len()));
        }
        let (mut latency, mut memory) = (0.0, 0_u64);
        let (mut latency_before, mut memory_before) = (vec![latency], vec![memory]);
        for (place, layer) in layers.iter().enumerate() {
            not_negative(format!("layers.{place}.latency_s"), layer.latency_s)?;
            latency += layer.latency_s;
            memory = memory.saturating_add(layer.memory_bytes);
            latency_before.push(latency);
            memory_before.push(memory);
        }
        Ok(Self { layers, latency_before, memory_before })
    }

    /// Reads a table with the columns `name,latency_s,memory_bytes,output_bytes`.
    pub fn parse(text: &str) -> Result<Self, ParallelError> {
        let rows: Result<Vec<Layer>, csv::Error> =
            csv::Reader::from_reader(text.as_bytes()).deserialize().collect();
        let columns = "a table with the columns name,latency_s,memory_bytes,output_bytes";
        Self::new(rows.map_err(|error| ParallelError::invalid("layers", columns, error))?)
    }

    /// The layers in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Number of layers, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a chain is never empty")]
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Seconds of layers `from` up to, but without, `to` on a device of speed 1.
    pub fn latency_s(&self, from: usize, to: usize) -> f64 {
        let before = |place: usize| self.latency_before.get(place).copied().unwrap_or(0.0);
        before(to) - before(from)
    }

    /// Bytes of layers `from` up to, but without, `to`.
    pub fn memory_bytes(&self, from: usize, to: usize) -> u64 {
        let before = |place: usize| self.memory_before.get(place).copied().unwrap_or(0);
        before(to).saturating_sub(before(from))
    }

    /// Bytes that cross a split before layer `place`. Zero at both ends of the chain.
    pub fn crossing_bytes(&self, place: usize) -> u64 {
        let last = place.checked_sub(1).filter(|_| place < self.len()).and_then(|last| self.layers.get(last));
        last.map_or(0, |layer| layer.output_bytes)
    }
}
