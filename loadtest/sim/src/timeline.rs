//! The batches of a few lanes in a short window in the middle of a run, one by one.

use workload::Workload;

use crate::report::{Span, TIMELINE_LANES};

/// SLOs that the window lasts.
const SLOS: u64 = 10;

/// Batches that are kept at most.
const SPANS_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    from: u64,
    to: u64,
    spans: Vec<Span>,
}

impl Timeline {
    /// Creates the timeline of a run of about `expected` nanoseconds. Its window is a multiple of the median SLO.
    pub(crate) fn new(workload: &Workload, expected: u64) -> Self {
        let mut slos: Vec<u64> = workload.models.iter().map(|model| model.slo).collect();
        slos.sort_unstable();
        let slo = slos.get(slos.len() / 2).copied().unwrap_or(0);
        let from = workload.warmup.midpoint(expected.max(workload.warmup));
        Self { from, to: from.saturating_add(slo.saturating_mul(SLOS)), spans: Vec::new() }
    }

    /// A batch that ran from `start` to `end`.
    pub(crate) fn note(&mut self, lane: u32, start: u64, end: u64, span: impl FnOnce() -> Span) {
        let shown = lane < TIMELINE_LANES && start < self.to && end > self.from;
        if shown && self.spans.len() < SPANS_MAX {
            self.spans.push(span());
        }
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }
}
