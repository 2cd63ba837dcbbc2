//! Which models run as stages of which ensembles, and how much of the objective each has.

use std::collections::BTreeMap;

use gpulet_core::control::StageOf;

use super::Catalog;
use super::served_ensemble::ServedEnsemble;

impl Catalog {
    /// The stages that each model runs, by its name: of pipelines and ensembles with their shares of the objective, and of families, whose
    /// variants have the whole. An ensemble that is a step of another one divides the share of that step.
    pub fn stages(&self) -> BTreeMap<String, Vec<StageOf>> {
        let mut stages = BTreeMap::new();
        for loaded in self.all_serving() {
            if let Some(served) = &loaded.ensemble {
                let slo_us = loaded.config().slo.map(|slo| slo.as_secs_f64() * 1e6);
                self.add_stages(&loaded.name, served, slo_us, &mut stages);
            }
        }
        stages
    }

    /// Ensembles do not run each other in a circle, so this ends.
    fn add_stages(
        &self,
        name: &str,
        served: &ServedEnsemble,
        slo_us: Option<f64>,
        stages: &mut BTreeMap<String, Vec<StageOf>>,
    ) {
        for (step, share) in served.ensemble.steps.iter().zip(&served.shares) {
            let share = if served.family.is_some() { 1.0 } else { *share };
            let (own, slo_us) = (format!("{name}.{}", step.name), slo_us.map(|slo_us| slo_us * share));
            let version = step.version.map(|version| version.to_string());
            let member = self.find(&step.model, version.as_deref()).ok();
            match member.as_ref().and_then(|member| member.ensemble.as_ref()) {
                Some(inner) => self.add_stages(&own, inner, slo_us, stages),
                None => {
                    stages.entry(step.model.clone()).or_default().push(StageOf { name: own, slo_us });
                }
            }
        }
    }
}
