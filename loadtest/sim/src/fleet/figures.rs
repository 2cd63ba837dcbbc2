//! The counts of a run of a fleet.

use std::collections::BTreeMap;

use fleet_core::planner::FleetPlan;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::node::Node;

/// What a run of a fleet measured, between the end of the warm-up and the end of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetReport {
    /// Method of spreading requests.
    pub balancing: String,
    /// Requests that arrived.
    pub offered: u64,
    /// Requests answered by their deadline, the time for the answer to arrive included.
    pub good: u64,
    /// Requests answered late.
    pub late: u64,
    /// Requests refused or dropped, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Requests inside a node when it failed.
    pub lost_inside: u64,
    /// Requests that went to their second or third node, because the first did not take them.
    pub retried: u64,
    /// Share of the offered requests that were answered by their deadline.
    pub attainment: f64,
    /// Good answers per second.
    pub goodput: f64,
    /// Share of the lanes' time in which they ran batches.
    pub busy: f64,
    /// Mean rows of a batch.
    pub batch: f64,
    /// 99th percentile of the latency of answered requests, in microseconds.
    pub p99_us: u64,
    /// Least attainment of a model that was asked for.
    pub worst_model: f64,
    /// By model, in the order of the workload: offered and good requests.
    pub models: Vec<(u64, u64)>,
    /// What the last plan says the fleet can serve, relative to the rates of the workload.
    pub planned_share: f64,
    /// Devices that the last plan wants.
    pub devices_wanted: usize,
    /// Copies of models that plans made nodes load, without the first plan.
    pub loads: usize,
}

/// Counts by model.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModelCount {
    pub offered: u64,
    pub good: u64,
}

#[derive(Debug)]
pub(super) struct Figures {
    pub window: (u64, u64),
    pub report: FleetReport,
    pub models: Vec<ModelCount>,
    pub latencies: Histogram<u64>,
    /// Plans so far.
    plans: usize,
}

impl Figures {
    pub(super) fn new(
        balancing: &str,
        window: (u64, u64),
        models: usize,
    ) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            window,
            report: FleetReport { balancing: balancing.to_owned(), ..FleetReport::default() },
            plans: 0,
            models: vec![ModelCount::default(); models],
            latencies: Histogram::new_with_bounds(1, 3_600_000_000, 3)?,
        })
    }

    fn counts(&self, arrived: u64) -> bool {
        (self.window.0..self.window.1).contains(&arrived)
    }

    pub(super) fn offered(&mut self, arrived: u64, model: u32) {
        if self.counts(arrived) {
            self.report.offered += 1;
            if let Some(count) = self.models.get_mut(model as usize) {
                count.offered += 1;
            }
        }
    }

    pub(super) fn answered(&mut self, arrived: u64, now: u64, model: u32, in_time: bool) {
        if !self.counts(arrived) {
            return;
        }
        self.latencies.saturating_record((now - arrived) / 1_000);
        if in_time {
            self.report.good += 1;
            if let Some(count) = self.models.get_mut(model as usize) {
                count.good += 1;
            }
        } else {
            self.report.late += 1;
        }
    }

    pub(super) fn refused(&mut self, arrived: u64, reason: String) {
        if self.counts(arrived) {
            *self.report.refused.entry(reason).or_default() += 1;
        }
    }

    /// A request was inside a node that failed.
    pub(super) fn lost_inside(&mut self, arrived: u64) {
        self.report.lost_inside += u64::from(self.counts(arrived));
    }

    /// A node did not take a request.
    pub(super) fn retried(&mut self, arrived: u64) {
        self.report.retried += u64::from(self.counts(arrived));
    }

    pub(super) fn planned(&mut self, plan: &FleetPlan) {
        self.report.planned_share = plan.share;
        self.report.devices_wanted = plan.devices_wanted;
        if self.plans > 0 {
            self.report.loads += plan.loads;
        }
        self.plans += 1;
    }

    /// Requests that arrived, and those that ended.
    pub(super) fn balance(&self) -> (u64, u64) {
        let FleetReport { offered, good, late, refused, lost_inside, .. } = &self.report;
        (*offered, good + late + refused.values().sum::<u64>() + lost_inside)
    }

    pub(super) fn done(self, nodes: &[Node], lanes: u64) -> FleetReport {
        let Self { window, mut report, models, latencies, .. } = self;
        let seconds = (window.1 - window.0) as f64 / 1e9;
        let busy: u64 = nodes.iter().map(|node| node.busy).sum();
        let (batches, rows) =
            nodes.iter().fold((0, 0), |sum, node| (sum.0 + node.batches.0, sum.1 + node.batches.1));
        report.attainment = report.good as f64 / report.offered.max(1) as f64;
        report.goodput = report.good as f64 / seconds.max(f64::MIN_POSITIVE);
        report.busy = busy as f64 / (window.1 as f64 * lanes as f64).max(1.0);
        report.batch = rows as f64 / batches.max(1) as f64;
        report.p99_us = latencies.value_at_quantile(0.99);
        report.models = models.iter().map(|count| (count.offered, count.good)).collect();
        let asked = models.iter().filter(|count| count.offered > 0);
        report.worst_model = asked.map(|count| count.good as f64 / count.offered as f64).fold(1.0, f64::min);
        report
    }
}
