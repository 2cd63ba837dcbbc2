//! The counts of a run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use router_core::{Nanos, Outcome, Reason, Router};
use workload::{DURATION_MAX, RequestOverhead, Workload};

use crate::inflight::Request;
use crate::lanes::Running;
use crate::report::{Span, SpanEnd};
use crate::series::Series;
use crate::timeline::Timeline;

/// Histogram steps of an SLO, for latencies in multiples of it.
pub(crate) const SLO_STEPS: u64 = 10_000;

/// The same for the latencies of one model, of which there may be thousands.
pub(crate) const MODEL_STEPS: u64 = 1_000;

/// Multiples of the SLO that are told apart.
const SLO_MULTIPLES: u64 = 100_000;

/// Between the end of the warm-up and the end of the traffic, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub from: u64,
    /// The far future while it is not known.
    pub to: u64,
}

impl Window {
    pub(crate) fn contains(self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }

    pub(crate) fn length(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ModelCount {
    pub slo: u64,
    pub offered: u64,
    pub good: u64,
    pub rows: u64,
    pub batches: u64,
    /// In [`MODEL_STEPS`] of its SLO.
    pub latencies: Option<Histogram<u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TenantCount {
    pub offered: u64,
    pub good: u64,
    pub refused_by_quota: u64,
    /// Lane time that the router counted for it when the window began, and when it ended.
    lane_time: (Nanos, Nanos),
}

impl TenantCount {
    /// Lane time inside the window.
    pub fn lane_time(&self) -> Nanos {
        self.lane_time.1.since(self.lane_time.0)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub window: Window,
    /// Overhead between a client and the router, both ways.
    overhead: RequestOverhead,
    pub offered: u64,
    pub good: u64,
    pub late: u64,
    pub expired: u64,
    pub failed: u64,
    pub refused: BTreeMap<Reason, u64>,
    /// Latencies of answered requests, in nanoseconds.
    pub latencies: Histogram<u64>,
    pub latency_sum: u128,
    pub latency_max: u64,
    /// In [`SLO_STEPS`] of the model's SLO.
    pub multiples: Histogram<u64>,
    pub models: Vec<ModelCount>,
    /// Whether the figures of all models count each.
    counted: Vec<bool>,
    pub tenants: Vec<TenantCount>,
    window_began: bool,
    window_ended: bool,
    /// Number of batches, by rows.
    pub batch_sizes: Vec<u64>,
    pub preempted: u64,
    pub lost: u64,
    pub lane_time: LaneTime,
    pub series: Series,
    pub timeline: Timeline,
}

/// Nanoseconds of lanes inside the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneTime {
    pub up: u128,
    pub busy: u128,
    /// Part of `busy` spent on batches that were preempted or failed.
    pub wasted: u128,
    /// In which batches ran at idle priority.
    pub at_idle_priority: u128,
    lanes_at_idle_priority: u32,
    lanes_up: u32,
    lanes_busy: u32,
    at: u64,
}

impl Figures {
    /// `largest` is the largest batch of all models, `to` when the traffic ends if that is known, `expected` about when.
    pub(crate) fn new(
        workload: &Workload,
        largest: u32,
        to: Option<u64>,
        expected: u64,
    ) -> Result<Self, hdrhistogram::CreationError> {
        let window = Window { from: workload.warmup, to: to.unwrap_or(u64::MAX) };
        let models = workload.models.iter().map(|model| ModelCount {
            slo: model.slo.max(1),
            offered: 0,
            good: 0,
            rows: 0,
            batches: 0,
            latencies: None,
        });
        Ok(Self {
            window,
            overhead: RequestOverhead::new(workload),
            offered: 0,
            good: 0,
            late: 0,
            expired: 0,
            failed: 0,
            refused: BTreeMap::new(),
            latencies: Histogram::new_with_bounds(1_000, DURATION_MAX, 3)?,
            latency_sum: 0,
            latency_max: 0,
            multiples: Histogram::new_with_bounds(1, SLO_STEPS * SLO_MULTIPLES, 3)?,
            models: models.collect(),
            counted: workload.counted(),
            tenants: vec![TenantCount::default(); workload.tenants.len()],
            window_began: false,
            window_ended: false,
            batch_sizes: vec![0; largest as usize + 1],
            preempted: 0,
            lost: 0,
            lane_time: LaneTime::default(),
            series: Series::new(expected)?,
            timeline: Timeline::new(workload, expected),
        })
    }

    fn model(&mut self, model: u32) -> Option<&mut ModelCount> {
        known(self.models.get_mut(model as usize))
    }

    /// Keeps the lane time of each tenant when the window begins and when it ends. Called before each event.
    pub(crate) fn note_lane_time(&mut self, now: u64, router: &Router) {
        if !self.window_began && now >= self.window.from {
            self.window_began = true;
            for (tenant, used) in self.tenants.iter_mut().zip(router.tenant_uses()) {
                tenant.lane_time.0 = used.lane_time;
            }
        }
        if !self.window_ended && now > self.window.to {
            self.end_lane_time(router);
        }
    }

    /// Keeps the lane time of each tenant at the end of the window or of the run, whichever comes first.
    pub(crate) fn end_lane_time(&mut self, router: &Router) {
        if self.window_ended {
            return;
        }
        self.window_ended = true;
        for (tenant, used) in self.tenants.iter_mut().zip(router.tenant_uses()) {
            tenant.lane_time.1 = used.lane_time;
        }
    }

    /// Counts an arrival.
    pub(crate) fn came(&mut self, request: &Request) {
        let inside = self.window.contains(request.arrived);
        if let Some(model) = self.model(request.model).filter(|_| inside) {
            model.offered += 1;
        }
        if !self.counts(request) {
            return;
        }
        self.series.offered(request.arrived);
        if !inside {
            return;
        }
        self.offered += 1;
        if let Some(tenant) = known(self.tenants.get_mut(usize::from(request.tenant))) {
            tenant.offered += 1;
        }
    }

    /// Counts a request that ended.
    pub(crate) fn went(&mut self, now: u64, request: &Request, outcome: Outcome, reason: Reason) {
        if outcome == Outcome::Done {
            self.answered(now, request);
            return;
        }
        if !self.counts(request) {
            return;
        }
        self.series.refused(request.arrived);
        if !self.window.contains(request.arrived) {
            return;
        }
        if reason == Reason::Quota
            && let Some(tenant) = known(self.tenants.get_mut(usize::from(request.tenant)))
        {
            tenant.refused_by_quota += 1;
        }
        match outcome {
            Outcome::Refused => *self.refused.entry(reason).or_insert(0) += 1,
            Outcome::Expired => self.expired += 1,
            _ => self.failed += 1,
        }
    }

    fn answered(&mut self, now: u64, request: &Request) {
        let seen = now.saturating_add(self.overhead.draw(request.model));
        let latency = seen.saturating_sub(request.arrived);
        let good = request.deadline.is_none_or(|deadline| Nanos(seen) <= deadline);
        let (counts, inside) = (self.counts(request), self.window.contains(request.arrived));
        if inside {
            self.answered_of_model(request, latency, good);
        }
        if counts {
            self.series.answered(request.arrived, latency, good);
        }
        if !counts || !inside {
            return;
        }
        self.good += u64::from(good);
        self.late += u64::from(!good);
        self.latencies.saturating_record(latency);
        self.latency_sum += u128::from(latency);
        self.latency_max = self.latency_max.max(latency);
        let slo = self.model(request.model).map_or(1, |model| model.slo);
        self.multiples.saturating_record(scaled(latency, SLO_STEPS, slo));
        if let Some(tenant) = known(self.tenants.get_mut(usize::from(request.tenant))) {
            tenant.good += u64::from(good);
        }
    }

    fn answered_of_model(&mut self, request: &Request, latency: u64, good: bool) {
        let Some(model) = self.model(request.model) else { return };
        model.good += u64::from(good);
        let in_model_steps = scaled(latency, MODEL_STEPS, model.slo);
        if model.latencies.is_none() {
            model.latencies = Histogram::new(2).ok();
        }
        if let Some(latencies) = &mut model.latencies {
            // Grows by itself, so nothing is out of range.
            let _ = latencies.record(in_model_steps);
        }
    }

    /// Whether the figures of all models count a request.
    pub(crate) fn counts(&self, request: &Request) -> bool {
        self.counted.get(request.model as usize).copied().unwrap_or(true)
    }

    /// Counts a batch that ended in any way.
    pub(crate) fn ran(&mut self, now: u64, lane: u32, running: &Running, end: SpanEnd) {
        let Running { held, start, .. } = *running;
        let (model, rows) = (held.model, held.rows);
        self.timeline.note(lane, start, now, || Span {
            lane,
            model,
            rows,
            from_ms: crate::units::millis(start),
            to_ms: crate::units::millis(now),
            end,
        });
        if end == SpanEnd::Done {
            self.series.batch(start, rows);
        } else {
            let inside = now.min(self.window.to).saturating_sub(start.max(self.window.from));
            self.lane_time.wasted += u128::from(inside);
        }
        if !self.window.contains(start) {
            return;
        }
        if end != SpanEnd::Done {
            return;
        }
        if let Some(count) = known(self.batch_sizes.get_mut(rows as usize)) {
            *count += 1;
        }
        if let Some(model) = self.model(model) {
            model.rows += u64::from(rows);
            model.batches += 1;
        }
    }

    /// Sets how many lanes run a batch at idle priority from `now` on.
    pub(crate) fn at_idle_priority(&mut self, now: u64, lanes: u32) {
        if lanes != self.lane_time.lanes_at_idle_priority {
            self.lanes(now, 0, 0);
            self.lane_time.lanes_at_idle_priority = lanes;
        }
    }

    /// Counts `busy` more busy lanes and `up` more available lanes from `now` on, of ordinary priority. Negative values count fewer.
    pub(crate) fn lanes(&mut self, now: u64, busy: i32, up: i32) {
        let (from, to) = (self.lane_time.at, now.min(self.window.to));
        if to > from {
            let inside = u128::from(to.saturating_sub(from.max(self.window.from)));
            self.lane_time.up += inside * u128::from(self.lane_time.lanes_up);
            self.lane_time.busy += inside * u128::from(self.lane_time.lanes_busy);
            self.lane_time.at_idle_priority += inside * u128::from(self.lane_time.lanes_at_idle_priority);
            self.series.busy(from, to, self.lane_time.lanes_busy);
            self.lane_time.at = to;
        }
        self.lane_time.lanes_busy = self.lane_time.lanes_busy.saturating_add_signed(busy);
        self.lane_time.lanes_up = self.lane_time.lanes_up.saturating_add_signed(up);
    }
}

/// A counter of the workload's models, tenants or batch sizes. The router reports no others.
fn known<T>(counter: Option<T>) -> Option<T> {
    if counter.is_none() {
        invariant::violated!("sim.missing_counter");
    }
    counter
}

fn scaled(value: u64, by: u64, over: u64) -> u64 {
    match value.checked_mul(by) {
        Some(product) => product / over,
        None => (value / over).saturating_mul(by),
    }
}
