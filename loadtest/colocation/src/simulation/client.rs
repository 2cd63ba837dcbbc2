//! A client: requests that wait, and the one whose kernels the host launches.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Job;
use crate::arrivals::{Arrivals, Stream};
use crate::kernel::Kernel;

/// The host side of a model. One request runs at a time, as in Orion's clients; later ones wait.
#[derive(Debug)]
pub(super) struct Client {
    kernels: Arc<[Kernel]>,
    arrivals: Stream,
    back_to_back: bool,
    waiting: VecDeque<u64>,
    /// Arrival of the request that runs.
    current: Option<u64>,
    /// Kernels of it that the host has launched.
    issued: usize,
    /// Arrival and end of the requests that have ended, in nanoseconds.
    pub(super) served: Vec<(u64, u64)>,
    /// Kernels that the host has launched since the start.
    pub(super) kernels_issued: u64,
    /// Kernels that have ended since the start.
    pub(super) kernels_ended: u64,
}

impl Client {
    pub(super) fn new(job: &Job, seed: u64, index: usize) -> Self {
        Self {
            kernels: Arc::clone(&job.program.kernels),
            arrivals: Stream::new(job.arrivals.clone(), seed, index),
            back_to_back: matches!(job.arrivals, Arrivals::BackToBack),
            waiting: VecDeque::new(),
            current: None,
            issued: 0,
            served: Vec::new(),
            kernels_issued: 0,
            kernels_ended: 0,
        }
    }

    pub(super) fn is_back_to_back(&self) -> bool {
        self.back_to_back
    }

    pub(super) fn next_arrival(&mut self, now: u64) -> u64 {
        self.arrivals.next().unwrap_or(now)
    }

    pub(super) fn arrive(&mut self, now: u64) {
        self.waiting.push_back(now);
    }

    /// Takes the next request if none runs; tells whether there was one.
    pub(super) fn begin(&mut self) -> bool {
        if self.current.is_some() {
            return false;
        }
        self.current = self.waiting.pop_front();
        self.issued = 0;
        self.current.is_some()
    }

    /// The kernel that the host launches next, and whether it is the last one of the request.
    pub(super) fn issue(&mut self) -> Option<(Kernel, bool)> {
        let kernel = self.kernels.get(self.issued).copied()?;
        self.issued += 1;
        self.kernels_issued += 1;
        Some((kernel, self.issued == self.kernels.len()))
    }

    pub(super) fn kernel_ended(&mut self) {
        self.kernels_ended += 1;
    }

    pub(super) fn request_ended(&mut self, now: u64) {
        if let Some(arrived) = self.current.take() {
            self.served.push((arrived, now));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Requests that have arrived and have not ended.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }
}
