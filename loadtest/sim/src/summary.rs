//! From counts to a report.

use std::collections::BTreeMap;

use router_core::Reason;
use serde::Serialize as _;
use workload::Tenant;

use crate::figures::{Figures, MODEL_STEPS, ModelCount, SLO_STEPS, TenantCount};
use crate::report::{BatchSize, Latency, ModelFigures, Quantile, Report, Requests, TenantFigures};
use crate::simulation::Simulation;
use crate::units::{millis, quantile, seconds, share};

impl Simulation {
    pub(crate) fn report(&self) -> Report {
        let figures = &self.figures;
        let virtual_seconds = seconds(figures.window.length());
        let a_second = |count: u64| if virtual_seconds > 0.0 { count as f64 / virtual_seconds } else { 0.0 };
        let rows: u64 = figures.models.iter().map(|model| model.rows).sum();
        let batches: u64 = figures.models.iter().map(|model| model.batches).sum();
        let lane_time = figures.lane_time;
        let of_up = |part: u128| if lane_time.up == 0 { 0.0 } else { part as f64 / lane_time.up as f64 };
        let names = self.workload.models.iter().map(|model| &model.name);
        let models = names.zip(&figures.models).map(|(name, count)| model_figures(name, count, &a_second));
        Report {
            workload: self.workload.name.clone(),
            policy: self.setup.label.clone(),
            seed: self.workload.seed,
            lanes: self.workload.lanes.count,
            splits: self.chosen_splits(),
            families: self.family_figures(),
            virtual_seconds,
            requests: self.requests_by_end(),
            offered_rate: a_second(figures.offered),
            goodput: a_second(figures.good),
            attainment: share(figures.good, figures.offered, 1.0),
            latency_ms: latency(figures),
            mean_batch: share(rows, batches, 0.0),
            batches,
            lane_busy: of_up(lane_time.busy),
            at_idle_priority: of_up(lane_time.at_idle_priority),
            lost_lane_time: of_up(lane_time.wasted),
            preempted: figures.preempted,
            lost: figures.lost,
            events: self.events,
            hash: format!("{:016x}", self.digest.value()),
            stopped: self.stopped,
            models: models.collect(),
            tenants: self.tenant_figures(virtual_seconds),
            series: figures.series.report(figures.window.to),
            latency_cdf: distribution(figures),
            batch_sizes: batch_sizes(figures),
            lane_timeline: figures.timeline.spans().to_vec(),
            rollouts: self.rollouts.figures(&self.workload),
            partition: self.partition.as_ref().map(|one| {
                let end = if figures.window.to == u64::MAX { self.now } else { figures.window.to };
                let terms = &one.control_inputs.inputs;
                let words = (terms.policy.name(), one.control_inputs.options.scaling.as_str());
                one.record.figures(end, figures.window, &one.controller, words)
            }),
        }
    }

    fn tenant_figures(&self, virtual_seconds: f64) -> Vec<TenantFigures> {
        let tenants = &self.workload.tenants;
        let due = |tenant: &Tenant, count: &TenantCount| if count.offered > 0 { tenant.weight } else { 0.0 };
        let counted = || tenants.iter().zip(&self.figures.tenants);
        let weights: f64 = counted().map(|(tenant, count)| due(tenant, count)).sum();
        // A router with one tenant and no quota does not count.
        let alone = if tenants.len() == 1 { self.figures.lane_time.busy as f64 / 1e9 } else { 0.0 };
        let used = |count: &TenantCount| (count.lane_time().0 as f64 / 1e9).max(alone);
        let used_in_all: f64 = self.figures.tenants.iter().map(used).sum();
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let tenant = |(tenant, count): (&Tenant, &TenantCount)| TenantFigures {
            name: tenant.name.clone(),
            offered: count.offered,
            good: count.good,
            attainment: share(count.good, count.offered, 1.0),
            refused_by_quota: count.refused_by_quota,
            device_seconds_per_second: part(used(count), virtual_seconds),
            device_seconds_quota: tenant.quota.device_seconds.map(|quota| quota.per_second),
            requests_quota: tenant.quota.requests.map(|quota| quota.per_second),
            device_share: part(used(count), used_in_all),
            weight_share: part(due(tenant, count), weights),
        };
        counted().map(tenant).collect()
    }

    fn requests_by_end(&self) -> Requests {
        let figures = &self.figures;
        let unfinished = self
            .requests
            .iter()
            .filter(|request| figures.counts(request) && figures.window.contains(request.arrived))
            .count();
        let mut refused = BTreeMap::new();
        for (&reason, &count) in &figures.refused {
            *refused.entry(word(reason)).or_insert(0) += count;
        }
        Requests {
            offered: figures.offered,
            good: figures.good,
            late: figures.late,
            refused,
            expired: figures.expired,
            failed: figures.failed,
            unfinished: unfinished as u64,
        }
    }
}

/// The word of a reason in JSON.
fn word(reason: Reason) -> String {
    match reason.serialize(serde_json::value::Serializer) {
        Ok(serde_json::Value::String(word)) => word,
        _ => format!("{reason:?}"),
    }
}

fn model_figures(name: &str, count: &ModelCount, a_second: &dyn Fn(u64) -> f64) -> ModelFigures {
    let p99 = count.latencies.as_ref().map(|latencies| quantile(latencies, 0.99));
    ModelFigures {
        name: name.to_owned(),
        slo_ms: millis(count.slo),
        offered: count.offered,
        good: count.good,
        attainment: share(count.good, count.offered, 1.0),
        p99_ms: p99.map(|steps| millis(count.slo) * steps as f64 / MODEL_STEPS as f64),
        mean_batch: share(count.rows, count.batches, 0.0),
        rate: a_second(count.offered),
    }
}

fn latency(figures: &Figures) -> Option<Latency> {
    let latencies = &figures.latencies;
    let at = |share: f64| millis(quantile(latencies, share).min(figures.latency_max));
    (!latencies.is_empty()).then(|| Latency {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p99_9: at(0.999),
        max: millis(figures.latency_max),
        mean: figures.latency_sum as f64 / latencies.len() as f64 / 1e6,
    })
}

/// Every hundredth up to 95 %, every thousandth above, and the ends of the tail.
fn distribution(figures: &Figures) -> Vec<Quantile> {
    if figures.multiples.is_empty() {
        return Vec::new();
    }
    let coarse = (0..95).map(|step| f64::from(step) / 100.0);
    let fine = (950..1_000).map(|step| f64::from(step) / 1_000.0);
    let shares = coarse.chain(fine).chain([0.9995, 0.9999, 1.0]);
    let point = |share| {
        let steps = quantile(&figures.multiples, share);
        Quantile { share, of_slo: steps as f64 / SLO_STEPS as f64 }
    };
    shares.map(point).collect()
}

fn batch_sizes(figures: &Figures) -> Vec<BatchSize> {
    let sizes = (0..).zip(&figures.batch_sizes).filter(|(_, batches)| **batches > 0);
    sizes.map(|(rows, &batches)| BatchSize { rows, batches }).collect()
}
