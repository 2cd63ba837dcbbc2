//! Counts devices and gpulets during a run, for the report.

use std::collections::{BTreeMap, BTreeSet};

use gpulet_core::control::Controller;
use gpulet_core::rollout::{DeviceId, GpuletId, Outcome, Switch};
use workload::Workload;

use super::ControlInputs;
use crate::figures::Window;
use crate::report::{DeviceStep, GpuletSpan, PartitionFigures, SPANS_MAX, STEPS_MAX};
use crate::units::seconds;

/// Counts of a run. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    there_are: u32,
    costs: BTreeMap<DeviceId, f64>,
    plan: Option<String>,
    at: u64,
    used: u32,
    cost: f64,
    /// Device-nanoseconds inside the window, and the same times what devices cost.
    device_time: u128,
    cost_time: f64,
    most: u32,
    changes: u64,
    failures: u64,
    share_least: f64,
    unplanned: u64,
    steps: Vec<DeviceStep>,
    spans: Vec<GpuletSpan>,
    active: BTreeMap<GpuletId, GpuletSpan>,
    no_plan: Option<String>,
}

impl Record {
    pub fn new(workload: &Workload, control_inputs: &ControlInputs) -> Self {
        let costs = control_inputs.inputs.devices.iter().map(|device| (device.name.clone(), device.cost));
        Self {
            there_are: workload.lanes.count,
            costs: costs.collect(),
            plan: control_inputs.plan_name.clone(),
            at: 0,
            used: 0,
            cost: 0.0,
            device_time: 0,
            cost_time: 0.0,
            most: 0,
            changes: 0,
            failures: 0,
            share_least: 1.0,
            unplanned: 0,
            steps: Vec::new(),
            spans: Vec::new(),
            active: BTreeMap::new(),
            no_plan: None,
        }
    }

    /// Records which devices are used from `now` on.
    pub fn uses(&mut self, now: u64, window: Window, devices: &BTreeSet<&str>) {
        self.pass(now, window);
        let used = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let step = DeviceStep { t: seconds(now), devices: used };
        // Several gpulets open and close at one moment. Only the last state of the moment counts.
        if let Some(last) = self.steps.last_mut().filter(|last| last.t >= step.t) {
            *last = step;
        } else if used != self.used && self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
        self.used = used;
        self.cost = devices.iter().filter_map(|name| self.costs.get(*name)).sum();
        if now >= window.from && now < window.to {
            self.most = self.most.max(used);
        }
    }

    /// Adds device time up to `now`.
    pub fn pass(&mut self, now: u64, window: Window) {
        let (from, to) = (self.at.max(window.from), now.min(window.to));
        if to > from {
            self.device_time += u128::from(to - from) * u128::from(self.used);
            self.cost_time += (to - from) as f64 * self.cost;
            self.most = self.most.max(self.used);
        }
        self.at = self.at.max(now);
    }

    /// Records a plan that came into force.
    pub fn switched(&mut self, now: u64, switch: &Switch) {
        self.changes += 1;
        let mut before = std::mem::take(&mut self.active);
        for active in &switch.active {
            let gpulet = &active.gpulet;
            let span = GpuletSpan {
                device: gpulet.device.clone(),
                first_unit: gpulet.first_unit,
                units: gpulet.units,
                models: gpulet.slots.iter().map(|slot| slot.workload.clone()).collect(),
                from_s: seconds(now),
                to_s: seconds(now),
            };
            // A gpulet that runs the same models as before stays one box in the plot.
            let span = match before.remove(&active.id) {
                Some(same) if same.models == span.models => same,
                Some(other) => {
                    self.end(now, other);
                    span
                }
                None => span,
            };
            self.active.insert(active.id, span);
        }
        for closed in before.into_values() {
            self.end(now, closed);
        }
    }

    fn end(&mut self, now: u64, span: GpuletSpan) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push(GpuletSpan { to_s: seconds(now), ..span });
        }
    }

    /// Records the share of the planned rates that a plan serves.
    pub fn planned(&mut self, share: f64) {
        self.share_least = self.share_least.min(share);
    }

    /// Records that the planner found no plan for the load.
    pub fn no_plan(&mut self, reason: &str) {
        self.unplanned += 1;
        self.no_plan = Some(reason.to_owned());
    }

    /// Records the outcome of a rollout.
    pub fn ended(&mut self, outcome: &Outcome) {
        if let Some(reason) = outcome.reason() {
            self.failures += 1;
            self.no_plan = Some(reason);
        }
    }

    /// The figures of a run that ended at `end`.
    pub fn figures(
        &self,
        end: u64,
        window: Window,
        controller: &Controller,
        words: (&str, &str),
    ) -> PartitionFigures {
        let mut last = self.clone();
        last.pass(end, window);
        for span in std::mem::take(&mut last.active).into_values() {
            last.end(end, span);
        }
        last.spans.sort_by(|a, b| {
            let place = |span: &GpuletSpan| (span.device.clone(), span.first_unit);
            place(a).cmp(&place(b)).then(a.from_s.total_cmp(&b.from_s))
        });
        let length = seconds(window.length().min(end.saturating_sub(window.from)));
        let device_seconds = last.device_time as f64 / 1e9;
        let (policy, scaling) = words;
        PartitionFigures {
            policy: policy.to_owned(),
            scaling: scaling.to_owned(),
            plan: last.plan,
            devices: last.there_are,
            devices_most: last.most,
            devices_mean: if length > 0.0 { device_seconds / length } else { 0.0 },
            device_seconds,
            cost_seconds: last.cost_time / 1e9,
            changes: last.changes,
            failures: last.failures,
            unplanned: last.unplanned,
            share_least: last.share_least,
            problem: last.no_plan,
            steps: last.steps,
            gpulets: last.spans,
            interference: controller.interference(),
            decisions: controller.latest().decisions().cloned().collect(),
        }
    }
}
