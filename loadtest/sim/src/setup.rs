//! The setup of a run of a workload: the policy, and the bounds of the run.

use gpulet_core::control::Model;
use router_core::batch::{BatchOptions, Policy};
use router_core::{
    Allowance, ConfigError, LaneClass, LaneClassTimes, ModelId, ModelLanes, ModelSpec, Nanos, ProfilePoint,
    Protect, RouterConfig, TenantQuota, TenantTable,
};
use workload::{Fleet, NodeType, Workload, WorkloadError};

/// How a workload is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Batching policy of every model.
    pub policy: Policy,
    /// Placement policy in place of the workload's. Without devices it has no effect.
    pub placement: Option<String>,
    /// Scaler in place of the workload's.
    pub scaling: Option<String>,
    /// The policy for the variants of families; `None` for the workload's.
    pub variants: Option<String>,
    /// Name of the policy in reports.
    pub label: String,
    /// Whether every invariant is checked after every event. Costs time in proportion to all that is in flight, at
    /// each event.
    pub check: bool,
    /// Whether a broken invariant is reported with the events before it.
    pub trace: bool,
    /// Upper bound on events. A run that needs more stops there, and its report says so.
    pub max_events: u64,
    /// Upper bound on unfinished requests. Further requests are rejected as `queue_full`.
    pub max_requests: u32,
    /// Upper bound on queued requests of one model and class. Further requests are rejected as `queue_full`.
    pub queue_limit: u32,
    /// Upper bound on payload bytes of queued requests. Further requests are rejected as `memory_full`.
    pub queued_bytes_limit: u64,
    /// Number of decisions that the router records.
    pub records: u32,
    /// How long before a deadline the router aims to finish. A server needs a margin because its timers are coarse.
    pub margin: Nanos,
}

impl Default for Setup {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

impl Setup {
    /// Creates a setup with bounds that a run at reasonable rates does not reach.
    pub fn new(policy: Policy) -> Self {
        Self {
            label: policy.name().to_owned(),
            policy,
            placement: None,
            scaling: None,
            variants: None,
            check: false,
            trace: false,
            max_events: 20_000_000_000,
            max_requests: 1 << 20,
            queue_limit: 1 << 16,
            queued_bytes_limit: 1 << 40,
            records: 0,
            margin: Nanos::ZERO,
        }
    }

    /// Creates a setup from the name of a policy and its options.
    pub fn named(policy: &str, options: &BatchOptions) -> Result<Self, ConfigError> {
        Policy::new(policy, options).map(Self::new)
    }

    /// Sets the name of the policy in reports.
    #[must_use]
    pub fn labelled(self, label: impl Into<String>) -> Self {
        Self { label: label.into(), ..self }
    }

    /// Checks every invariant after every event.
    #[must_use]
    pub fn checked(self) -> Self {
        Self { check: true, trace: true, ..self }
    }

    pub(crate) fn router(&self, workload: &Workload, lanes: u32) -> Result<RouterConfig, ConfigError> {
        if self.queue_limit == 0 {
            return Err(ConfigError::new("queue_limit", "is 0, expected at least 1"));
        }
        if self.max_events == 0 {
            return Err(ConfigError::new("max_events", "is 0, expected at least 1"));
        }
        let config = RouterConfig {
            max_requests: self.max_requests,
            max_models: u32::try_from(workload.models.len() + rollouts(workload)).unwrap_or(u32::MAX),
            max_lanes: lanes,
            queued_bytes_limit: self.queued_bytes_limit,
            tenants: TenantTable::new(
                whole_weights(workload.tenants.iter().map(|tenant| tenant.weight)),
                workload.tenants.iter().map(|tenant| quota(&tenant.quota)).collect(),
            )?,
            records: self.records,
            margin: self.margin,
            protect: workload
                .protect
                .map(|limit| Protect { percentile: limit.percentile, factor: limit.factor }),
            ..RouterConfig::default()
        };
        config.validate()?;
        Ok(config)
    }
}

impl Setup {
    /// A model as the router is told: its profile at powers of two and the largest batch, straight lines in between. `time`: how often
    /// the time of the profile its batches take.
    pub(crate) fn spec(
        &self,
        id: ModelId,
        model: &workload::Model,
        time: f64,
    ) -> Result<ModelSpec, WorkloadError> {
        let profile = model.profiled()?;
        let largest = profile.max_batch();
        let point = |rows| ProfilePoint {
            rows,
            row_bytes: model.row_bytes,
            time: Nanos(scaled(profile.time(rows), time)),
        };
        Ok(ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model: id,
            max_batch: largest,
            queue_limit: self.queue_limit,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: self.policy.clone(),
            lanes: ModelLanes::All,
            profile: workload::sizes(largest).map(point).collect(),
        })
    }
}

impl Setup {
    /// Times of a model on lanes of the device types of a fleet after the first one.
    pub(crate) fn other_times(
        &self,
        id: ModelId,
        (model, time): (&workload::Model, f64),
        fleet: &Fleet,
    ) -> Result<Vec<LaneClassTimes>, WorkloadError> {
        let of = |(number, one): (u32, &NodeType)| {
            let profile = self.spec(id, model, time / one.speed_of(&model.name))?.profile;
            Ok(LaneClassTimes { lane_class: LaneClass(number), profile })
        };
        (0..).zip(&fleet.types).skip(1).map(of).collect()
    }

    /// Models as the router is told where they run on gpulets: without lanes and without times, for both come with the
    /// first table.
    pub(crate) fn specs_on_gpulets(&self, models: &[Model]) -> Vec<ModelSpec> {
        let spec = |(id, model): (u32, &Model)| ModelSpec {
            measured_on: LaneClass::default(),
            preemptible: true,
            model: ModelId(id),
            max_batch: model.batch_max,
            queue_limit: self.queue_limit,
            class_limits: Vec::new(),
            rate_limit: Default::default(),
            policy: self.policy.clone(),
            lanes: ModelLanes::Only(Vec::new()),
            profile: Vec::new(),
        };
        (0..).zip(models).map(spec).collect()
    }
}

/// A time in nanoseconds, times a factor.
pub(crate) fn scaled(time: u64, factor: f64) -> u64 {
    if factor == 1.0 { time } else { libm::round(time as f64 * factor) as u64 }
}

/// Number of new versions that are rolled out.
fn rollouts(workload: &Workload) -> usize {
    workload.models.iter().filter(|model| model.rollout.is_some()).count()
}

/// A quota as the router counts it.
fn quota(quota: &workload::Quota) -> TenantQuota {
    TenantQuota {
        lane_time: quota.device_seconds.map(|one| Allowance::of_lane_time(one.per_second, one.burst)),
        requests: quota.requests.map(|one| Allowance::of_requests(one.per_second, one.burst)),
        borrow: quota.borrow,
    }
}

/// Weights as whole numbers: as they are if they are whole, else by thousandths of the smallest.
pub fn whole_weights(weights: impl Iterator<Item = f64> + Clone) -> Vec<u32> {
    let is_whole = |weight: f64| weight >= 1.0 && weight <= f64::from(u32::MAX) && weight.fract() == 0.0;
    let scale = if weights.clone().all(is_whole) {
        1.0
    } else {
        1_000.0 / weights.clone().fold(f64::MAX, f64::min).max(f64::MIN_POSITIVE)
    };
    weights.map(|weight| ((weight * scale).round() as u32).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_proportions() {
        assert_eq!(whole_weights([3.0, 1.0].into_iter()), [3, 1]);
        assert_eq!(whole_weights([0.5, 0.25].into_iter()), [2_000, 1_000]);
        assert_eq!(whole_weights([1.0, 2.5].into_iter()), [1_000, 2_500]);
    }

    #[test]
    fn bounds_of_zero_are_refused_by_name() {
        let mut files = |name: &str| Err(format!("no file {name}"));
        let text = r#"
            name = "one"
            duration = "1s"
            [models.m]
            slo = "25ms"
            profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
            rate = 10.0
        "#;
        let workload = Workload::parse(text, &mut files).unwrap();
        for (setup, field) in [
            (Setup { max_events: 0, ..Setup::default() }, "max_events"),
            (Setup { queue_limit: 0, ..Setup::default() }, "queue_limit"),
            (Setup { max_requests: 0, ..Setup::default() }, "max_requests"),
        ] {
            assert_eq!(setup.router(&workload, 1).unwrap_err().field, field);
        }
    }
}
