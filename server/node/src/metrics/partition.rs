//! Plans of gpulets.

use std::collections::BTreeMap;

use metrics::Gauge;

use super::names;

/// Registers the counters, so that alerts see them rise from 0.
pub fn plans_begin() {
    metrics::counter!(names::PLANS.name).increment(0);
    metrics::counter!(names::PLAN_FAILURES.name).increment(0);
}

/// Counts a plan that came into force, or did not.
pub fn plan_ended(is_in_force: bool) {
    let name = if is_in_force { names::PLANS.name } else { names::PLAN_FAILURES.name };
    metrics::counter!(name).increment(1);
}

/// Gauges of the plan in force. A device that is lost, and a model that is unloaded, shows 0.
#[derive(Default)]
pub struct PlanMetrics {
    gpulets: BTreeMap<String, Gauge>,
    planned: BTreeMap<String, Gauge>,
}

impl PlanMetrics {
    /// Shows gpulets by device, rows a second by model, and the share of them that the plan serves.
    pub fn show(&mut self, gpulets: &BTreeMap<&str, usize>, planned: &BTreeMap<&str, f64>, share: f64) {
        let gpulets = gpulets.iter().map(|(device, count)| (*device, *count as f64)).collect();
        set(
            &mut self.gpulets,
            &gpulets,
            |device| metrics::gauge!(names::GPULETS.name, names::DEVICE => device),
        );
        set(
            &mut self.planned,
            planned,
            |model| metrics::gauge!(names::PLANNED_RATE.name, names::MODEL => model),
        );
        metrics::gauge!(names::PLANNED_SHARE.name).set(share);
    }
}

/// Sets the gauges of these names, and all others to 0.
fn set(
    gauges: &mut BTreeMap<String, Gauge>,
    values: &BTreeMap<&str, f64>,
    register: impl Fn(String) -> Gauge,
) {
    for (name, gauge) in gauges.iter() {
        if !values.contains_key(name.as_str()) {
            gauge.set(0.0);
        }
    }
    for (name, value) in values {
        match gauges.get(*name) {
            Some(gauge) => gauge.set(*value),
            None => {
                let gauge = register((*name).to_owned());
                gauge.set(*value);
                gauges.insert((*name).to_owned(), gauge);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[test]
    fn an_unloaded_model_and_a_lost_device_show_0() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let text = metrics::with_local_recorder(&recorder, || {
            let mut shown = PlanMetrics::default();
            shown.show(&BTreeMap::from([("a", 2), ("b", 1)]), &BTreeMap::from([("m", 7.0)]), 1.0);
            shown.show(&BTreeMap::from([("b", 3)]), &BTreeMap::from([("n", 4.0)]), 0.5);
            recorder.handle().render()
        });
        for line in [
            "tessera_gpulets{device=\"a\"} 0",
            "tessera_gpulets{device=\"b\"} 3",
            "tessera_planned_rows_per_second{model=\"m\"} 0",
            "tessera_planned_rows_per_second{model=\"n\"} 4",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
    }
}
