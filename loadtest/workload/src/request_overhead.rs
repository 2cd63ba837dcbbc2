//! Overhead of each request of a workload.

use crate::overhead::Spans;
use crate::seeds::{Generator, Purpose, generator};
use crate::workload::{Model, Workload};

/// Overhead of requests outside the scheduler, drawn per model. A function of the workload and its seed.
#[derive(Clone, Debug)]
pub struct RequestOverhead(Vec<(Spans, Generator)>);

impl RequestOverhead {
    /// Creates the overhead of a workload, from its start.
    pub fn new(workload: &Workload) -> Self {
        let of = |model: &Model| {
            (model.overhead.clone(), generator(workload.seed, Purpose::Overhead, &model.name))
        };
        Self(workload.models.iter().map(of).collect())
    }

    /// Nanoseconds of overhead of a model's next request; 0 for an unknown model.
    pub fn draw(&mut self, model: u32) -> u64 {
        let model = usize::try_from(model).ok().and_then(|model| self.0.get_mut(model));
        model.map_or(0, |(spans, generator)| spans.draw(generator))
    }
}
