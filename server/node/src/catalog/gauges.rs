//! Gauges of models, read once a second: whether they are ready, their objectives, their lanes.

use std::collections::BTreeSet;

use super::Catalog;
use crate::metrics::names;

/// The gauges. Remembers which models it showed, because a gauge stays where it was set.
#[derive(Debug, Default)]
pub struct ModelGauges {
    shown: BTreeSet<String>,
}

impl ModelGauges {
    /// Sets the gauges to the state of now.
    pub fn update(&mut self, catalog: &Catalog) {
        let wanted: BTreeSet<String> = catalog.wanted_names().into_iter().collect();
        for name in &wanted {
            let ready = if catalog.is_ready(name) { 1.0 } else { 0.0 };
            metrics::gauge!(names::MODEL_READY.name, names::MODEL => name.clone()).set(ready);
        }
        for name in self.shown.difference(&wanted) {
            metrics::gauge!(names::MODEL_READY.name, names::MODEL => name.clone()).set(f64::NAN);
        }
        self.shown = wanted;
        for loaded in catalog.serving_names().iter().flat_map(|name| catalog.serving(name)) {
            let labels =
                || [(names::MODEL, loaded.name.clone()), (names::VERSION, loaded.version.to_string())];
            let lanes = u32::try_from(loaded.lanes().len()).unwrap_or(u32::MAX);
            metrics::gauge!(names::MODEL_LANES.name, &labels()).set(f64::from(lanes));
            if let Some(slo) = loaded.config().slo {
                metrics::gauge!(names::OBJECTIVE.name, &labels()).set(slo.as_secs_f64());
            }
        }
    }
}
