//! Metrics: one recorder per process, and handles per model version, so that the hot path needs no look-ups.

mod busy;
mod configuration;
mod credential_files;
mod devices;
mod family;
mod fleet;
mod front;
mod gpus;
mod interference;
mod jobs;
mod machine;
mod model;
mod model_source;
pub mod names;
mod partition;
mod process;
mod profile_factors;
mod rollout;
mod telemetry;
mod tenant;
mod violations;

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use names::{Metric, MetricType};

pub use busy::BusySink;
pub use configuration::{configuration_not_reloaded, configuration_reloaded, configuration_started};
pub use credential_files::{
    certificate_expires, identity_loaded, identity_reload_failed, register_identity_file,
};
pub use devices::device_up;
pub use family::{family_ended, family_level};
pub use fleet::{AgentMetrics, ForwardOutcome, GatherMetrics, NodeMetrics, malformed_batch_marks};
pub use front::{FrontMetrics, Transport};
pub use gpus::{GpuMetrics, GpuWatch, WatchedGpu, watch};
pub use interference::InterferenceMetrics;
pub use jobs::{END_STATES, JobsMetrics, ROW_OUTCOMES};
pub use machine::MachineMetrics;
pub use model::{LaneMetrics, ModelLabels, ModelMetrics};
pub use model_source::{repository_listed, repository_refresh_failed};
pub use partition::{PlanMetrics, plan_ended, plans_begin};
pub use process::process_read;
pub use profile_factors::ProfileFactors;
pub use rollout::{rollout_began, rollout_decided, rollout_ended};
pub use telemetry::telemetry_sent;
pub use tenant::TenantMetrics;
pub use violations::ViolationMetrics;

/// Interval at which histogram samples are folded into buckets, which bounds their memory.
pub const UPKEEP: Duration = Duration::from_secs(1);

/// A recorder with the buckets of every histogram set.
pub fn recorder() -> Result<PrometheusRecorder, metrics_exporter_prometheus::BuildError> {
    let mut builder = PrometheusBuilder::new();
    for metric in names::TESSERA {
        let buckets: &[f64] = match metric.metric_type {
            MetricType::Seconds => &names::SECONDS,
            MetricType::Rows => &names::ROWS,
            MetricType::Counter | MetricType::Gauge | MetricType::Time => continue,
        };
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)?;
    }
    Ok(builder.build_recorder())
}

/// Installs the recorder of the process with its help texts, and returns the handle that renders it. Fails if one is
/// installed already.
pub fn install(triton_names: bool) -> anyhow::Result<PrometheusHandle> {
    let recorder = recorder()?;
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| anyhow::anyhow!("metrics are installed already"))?;
    describe(triton_names);
    metrics::gauge!(names::BUILD_INFO.name, names::RELEASE => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// Adds every help text to the current recorder.
pub fn describe(triton_names: bool) {
    let triton: &[Metric] = if triton_names { names::TRITON } else { &[] };
    for metric in names::TESSERA.iter().chain(names::PROCESS).chain(triton) {
        match metric.metric_type {
            MetricType::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricType::Gauge | MetricType::Time => metrics::describe_gauge!(metric.name, metric.help),
            MetricType::Seconds | MetricType::Rows => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use gpulet_core::control::{ErrorEntry, InterferenceEntry, ProfileCorrection};
    use router::Timing;
    use router_core::{Allowance, FamilyId, FamilySnapshot, TenantQuota};
    use std::collections::BTreeMap;
    use std::time::UNIX_EPOCH;

    fn rendered(triton_names: bool) -> String {
        let recorder = recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            describe(triton_names);
            let front = FrontMetrics::new();
            front.refused(Transport::Http, Reason::Malformed);
            let (team, none) = (BTreeMap::from([("team".to_owned(), "blue".to_owned())]), BTreeMap::new());
            let labels = ModelLabels { model: "cached", version: 1, tags: &team };
            let cached = ModelMetrics::new(&labels, true, triton_names);
            cached.record_cache_miss(Duration::from_micros(8));
            cached.record_cache_hit(Duration::from_micros(5), Duration::from_micros(50));
            for metric in [names::CACHE_BYTES, names::CACHE_ENTRIES] {
                metrics::gauge!(metric.name).set(0.0);
            }
            for metric in [names::CACHE_EVICTIONS, names::TRACES, names::TRACES_LOST] {
                metrics::counter!(metric.name).increment(1);
            }
            if triton_names {
                MachineMetrics::new().update();
            }
            let labels = ModelLabels { model: "digits", version: 1, tags: &none };
            let model = ModelMetrics::new(&labels, false, triton_names);
            let timing = Timing {
                queue: Duration::from_millis(1),
                batch_wait: Duration::from_micros(20),
                compute: Duration::from_millis(2),
                hand_back: Duration::from_micros(30),
                lane: 0,
                batch: None,
                batch_rows: 3,
                leads_batch: true,
            };
            model.record_answer(&timing, Duration::from_millis(4), Some(true));
            model.record_answer(&timing, Duration::from_millis(4), Some(false));
            model.record_batch(3);
            model.record_refusal(Reason::Expired);
            model.queue_depth(2);
            model.over_predicted(1.0);
            LaneMetrics::new(0).busy(true);
            for metric in [names::LANE_BUSY_TIME, names::PREEMPTED, names::PREEMPTED_TIME] {
                metrics::counter!(metric.name, names::LANE => "0").increment(1);
            }
            metrics::counter!(names::INVARIANT_VIOLATIONS.name, names::ID => "router.test").increment(1);
            repository_listed(UNIX_EPOCH);
            configuration_started();
            rollout_began("m");
            process_read();
            NodeMetrics::new("b").connected(true);
            AgentMetrics::new().running(true);
            JobsMetrics::new().open(1, 10);
            GatherMetrics::new().update(router::GatherCounts::default());
            malformed_batch_marks().increment(1);
            plans_begin();
            PlanMetrics::default().show(&BTreeMap::from([("gpu-0", 2)]), &BTreeMap::from([("m", 5.0)]), 1.0);
            telemetry_sent(&::telemetry::Statistics::default());
            metrics::counter!(names::ACCESS_LOG_LOST.name).increment(1);
            metrics::gauge!(names::BEST_EFFORT_SHARE.name).set(0.5);
            let state = FamilySnapshot { family: FamilyId(0), quality: 950_000, falls: 1, rises: 0 };
            family_level("digits", &state);
            metrics::counter!(names::LOAD_FAILURES.name, names::MODEL => "cached").increment(1);
            metrics::gauge!(names::MODEL_READY.name, names::MODEL => "cached").set(1.0);
            metrics::gauge!(names::BUILD_INFO.name, names::RELEASE => "0").set(1.0);
            for metric in [names::MODEL_LANES, names::OBJECTIVE] {
                metrics::gauge!(metric.name, names::MODEL => "cached", names::VERSION => "1").set(1.0);
            }
            GpuMetrics::new("gpu0", triton_names.then_some(&"GPU-1".to_owned()))
                .set(Some(&throttled()), None);
            InterferenceMetrics::default().tell(&[learned()]);
            ProfileFactors::default().show(&[ProfileCorrection {
                model: "m".to_owned(),
                device_type: "cpu".to_owned(),
                factor: 1.5,
                replaced_cells: 0,
            }]);
            device_up(&"gpu0".into(), true);
            let allowance = Some(Allowance { per_second: 1, burst: 1 });
            let quota = TenantQuota { lane_time: allowance, requests: allowance, borrow: false };
            TenantMetrics::new("search", &quota, &TenantQuota::default()).refused(Reason::Quota);
            identity_reload_failed("keys");
            identity_loaded("keys", std::time::UNIX_EPOCH);
            certificate_expires("cert", std::time::UNIX_EPOCH);
        });
        handle.render()
    }

    fn learned() -> InterferenceEntry {
        let error = |mean_pct| Some(ErrorEntry { mean_pct, p90_pct: 30.0 });
        InterferenceEntry {
            device_type: "cpu".to_owned(),
            used_by_plans: true,
            observations: 40,
            weights: [1.25, 0.0, 0.0, 0.0],
            margin: 0.0,
            error: error(2.5),
            error_uncorrected: error(20.0),
        }
    }

    #[test]
    fn errors_under_contention_are_shown_with_and_without_learning() {
        let text = rendered(false);
        for (belief, error) in [("learned", "0.025"), ("none", "0.2")] {
            let line = format!(
                "tessera_interference_error_ratio{{device_type=\"cpu\",interference=\"{belief}\"}} {error}"
            );
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }

    fn throttled() -> gpulet_cuda::Readings {
        gpulet_cuda::Readings {
            uuid: None,
            name: None,
            busy_percent: Some(1),
            memory_busy_percent: None,
            memory_used_bytes: None,
            memory_total_bytes: None,
            clock_sm_mhz: None,
            clock_memory_mhz: None,
            throttle_reasons: Some(vec!["GPU_IDLE"]),
            power_milliwatts: None,
            temperature_celsius: None,
            mig: false,
            instances: Vec::new(),
        }
    }

    /// Names with their kind and label names, sorted: what dashboards depend on.
    fn shape(rendered: &str) -> String {
        let mut lines: Vec<String> = Vec::new();
        for line in rendered.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                lines.push(kind.to_owned());
            } else if !line.starts_with('#') && !line.is_empty() {
                let (name, labels) = line.split_once('{').unwrap_or((line, ""));
                let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
                // Tags of a model are its owner's.
                let labels: Vec<&str> = names.filter(|name| !name.starts_with('_')).collect();
                let name = name.split(' ').next().unwrap_or(name);
                lines.push(format!("  {name} {}", labels.join(",")).trim_end().to_owned());
            }
        }
        lines.sort();
        lines.dedup();
        lines.join("\n") + "\n"
    }

    #[test]
    fn the_registry_matches_its_golden_file() {
        assert_eq!(shape(&rendered(false)), include_str!("../../tests/golden/metrics.txt"));
    }

    #[test]
    fn each_metric_is_recorded_with_the_labels_that_it_declares() {
        let shape = shape(&rendered(true));
        for metric in names::TESSERA.iter().chain(names::PROCESS).chain(names::TRITON) {
            let sample = match metric.metric_type {
                MetricType::Seconds | MetricType::Rows => format!("{}_count", metric.name),
                MetricType::Counter | MetricType::Gauge | MetricType::Time => metric.name.to_owned(),
            };
            let line = format!("  {sample} {}", metric.labels.join(","));
            assert!(shape.lines().any(|known| known == line.trim_end()), "{line} is missing in {shape}");
            for label in metric.labels {
                assert!(names::LABELS.iter().any(|(known, _)| known == label), "{label} has no meaning");
            }
        }
    }

    #[test]
    fn triton_names_appear_only_when_switched_on() {
        assert!(!rendered(false).contains("nv_inference"));
        let with = rendered(true);
        for metric in names::TRITON {
            assert!(with.contains(&format!("# TYPE {} ", metric.name)), "{} is missing", metric.name);
        }
        assert!(with.contains("nv_inference_count{model=\"digits\",version=\"1\"} 3"), "{with}");
        assert!(with.contains("nv_inference_exec_count{model=\"digits\",version=\"1\"} 1"), "{with}");
        assert!(
            with.contains("nv_inference_queue_duration_us{model=\"digits\",version=\"1\"} 2000"),
            "{with}"
        );
        let output = "nv_inference_compute_output_duration_us{model=\"digits\",version=\"1\"} 60";
        assert!(with.contains(output), "{with}");
        for (reason, count) in [("REJECTED", 1), ("CANCELED", 0), ("BACKEND", 0), ("OTHER", 0)] {
            let labels = format!("model=\"digits\",version=\"1\",reason=\"{reason}\"");
            assert!(with.contains(&format!("nv_inference_request_failure{{{labels}}} {count}")), "{with}");
        }
    }

    #[test]
    fn metric_tags_are_labels_and_only_caching_models_have_cache_counters() {
        let with = rendered(true);
        let labels = "model=\"cached\",version=\"1\",_team=\"blue\"";
        for line in [
            format!("tessera_requests_total{{{labels}}} 1"),
            format!("tessera_cache_hits_total{{{labels}}} 1"),
            format!("tessera_cache_misses_total{{{labels}}} 1"),
            format!("nv_inference_request_success{{{labels}}} 1"),
            format!("nv_cache_num_hits_per_model{{{labels}}} 1"),
            format!("nv_cache_miss_duration_per_model{{{labels}}} 8"),
        ] {
            assert!(with.contains(&line), "{line}\n{with}");
        }
        assert!(!with.contains("tessera_cache_hits_total{model=\"digits\""), "{with}");
    }

    #[test]
    fn every_name_is_described_and_follows_the_rules() {
        let text = rendered(true);
        for metric in names::TESSERA.iter().chain(names::TRITON) {
            assert!(text.contains(&format!("# HELP {} ", metric.name)), "{} has no help", metric.name);
        }
        for metric in names::TESSERA {
            assert!(metric.name.starts_with("tessera_"));
            assert_eq!(
                metric.name.ends_with("_total"),
                metric.metric_type == MetricType::Counter,
                "{}",
                metric.name
            );
            let (in_seconds, time) = (
                metric.name.ends_with("_seconds"),
                matches!(metric.metric_type, MetricType::Seconds | MetricType::Time),
            );
            let gauge = metric.metric_type == MetricType::Gauge;
            assert!(if time { in_seconds } else { !in_seconds || gauge }, "{}", metric.name);
        }
    }

    #[test]
    fn durations_land_in_buckets_of_seconds() {
        let text = rendered(false);
        assert!(
            text.contains("tessera_compute_seconds_bucket{model=\"digits\",version=\"1\",le=\"0.0025\"} 2"),
            "{text}"
        );
        assert!(
            text.contains("tessera_compute_seconds_bucket{model=\"digits\",version=\"1\",le=\"0.001\"} 0"),
            "{text}"
        );
        assert!(text.contains("tessera_deadline_hits_total{model=\"digits\",version=\"1\"} 1"), "{text}");
        assert!(text.contains("tessera_deadline_misses_total{model=\"digits\",version=\"1\"} 1"), "{text}");
    }
}
