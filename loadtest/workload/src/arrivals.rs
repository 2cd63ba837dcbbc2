//! Merges the requests of all models in order of time.
//!
//! HOT PATH: a heap of one entry a model; no allocation after the first request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::limits::{DURATION_MAX, REQUESTS_MAX};
use crate::seeds::{Generator, Purpose, generator};
use crate::shares::Shares;
use crate::stream::Stream;
use crate::workload::{Extent, Workload};

/// An offered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Virtual time from the start, in nanoseconds.
    pub at: u64,
    /// Number of the model in [`Workload::models`].
    pub model: u32,
    /// Number of the tenant in [`Workload::tenants`].
    pub tenant: u16,
    /// Number of rows, at least 1.
    pub rows: u32,
}

/// The requests of a workload in order of time. Requests of the same nanosecond are in order of their models.
///
/// They depend only on the workload and its seed. A model's requests depend only on the seed, its name and its own
/// section. The iterator ends at [`Workload::extent`], or earlier if every trace has ended and none repeats. It never
/// goes beyond [`DURATION_MAX`].
#[derive(Debug)]
pub struct Arrivals {
    models: Vec<Source>,
    /// The next request of each model that has one.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    left: u64,
}

#[derive(Debug)]
struct Source {
    stream: Stream,
    generator: Generator,
    rows: Shares<u32>,
    tenants: Shares<u16>,
}

impl Arrivals {
    /// Creates the arrivals of a workload, from its start.
    pub fn new(workload: &Workload) -> Self {
        let (horizon, left) = match workload.extent {
            Extent::Time(time) => (time.min(DURATION_MAX), REQUESTS_MAX),
            Extent::Requests(requests) => (DURATION_MAX, requests),
        };
        let sources = workload.models.iter().map(|model| Source {
            stream: Stream::new(&model.process, workload.seed, &model.name, horizon),
            generator: generator(workload.seed, Purpose::Requests, &model.name),
            rows: model.rows.clone(),
            tenants: model.tenants.clone(),
        });
        let mut models: Vec<Source> = sources.collect();
        let first = (0..)
            .zip(&mut models)
            .filter_map(|(model, source)| Some(Reverse((source.stream.next()?, model))));
        let next = first.collect();
        Self { models, next, left }
    }
}

impl Iterator for Arrivals {
    type Item = Offered;

    fn next(&mut self) -> Option<Offered> {
        self.left = self.left.checked_sub(1)?;
        let mut top = self.next.peek_mut()?;
        let Reverse((at, model)) = *top;
        let source = self.models.get_mut(usize::try_from(model).ok()?)?;
        let rows = source.rows.draw(&mut source.generator)?;
        let tenant = source.tenants.draw(&mut source.generator)?;
        match source.stream.next() {
            Some(following) => *top = Reverse((following, model)),
            None => {
                PeekMut::pop(top);
            }
        }
        Some(Offered { at, model, tenant, rows })
    }
}

impl std::iter::FusedIterator for Arrivals {}
