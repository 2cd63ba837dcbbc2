//! Explains a plan of families: what variants cost, what quality costs, which devices alone would do, and what losses do.

use gpulet_core::placement::Policy;
use gpulet_core::problem::Device;
use serde::Serialize;
use variant_plan::{
    Found, Question, VariantCost, WithoutDevice, best_quality, plan, variant_costs, without_each,
};

/// A point of quality.
const POINT: f64 = 0.01;

/// The explanation of the best plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// What each variant costs on each type of device; the cheapest of each family first.
    pub variants: Vec<VariantCost>,
    /// What other qualities would cost, by family.
    pub qualities: Vec<OtherQuality>,
    /// Mean quality of the family on the same devices, if what they have left over went to better variants.
    pub on_the_same: Vec<OtherQuality>,
    /// What plans on one type of device alone would cost.
    pub alone: Vec<Alone>,
    /// What the loss of a spot device does.
    pub losses: Vec<WithoutDevice>,
}

/// The plan for another mean quality of a family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OtherQuality {
    pub family: String,
    pub quality_mean: f64,
    /// Cost of its plan; `None` if the devices do not suffice.
    pub cost: Option<f64>,
}

/// A plan on devices of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alone {
    pub device_type: String,
    /// Cost of the plan; `None` if the devices do not suffice.
    pub cost: Option<f64>,
}

/// Explains a plan.
pub fn explain(question: &Question, policy: &Policy, found: &Found) -> Explained {
    let cost = |question: &Question| plan(question, policy).map(|found| found.validation.cost);
    let mut qualities = Vec::new();
    for family in question.families() {
        let demand =
            question.demands().iter().zip(&found.mixes).find(|(demand, _)| demand.name == family.name);
        let Some((demand, mix)) = demand else { continue };
        let (has, best) = (mix.quality(demand), question.quality_max(&family.name));
        for quality_mean in [has - POINT, has + POINT] {
            if quality_mean <= best && quality_mean > 0.0 {
                let other = question.clone().with_quality_mean(&family.name, quality_mean);
                qualities.push(OtherQuality {
                    family: family.name.clone(),
                    quality_mean,
                    cost: cost(&other),
                });
            }
        }
    }
    let raised = best_quality(question, policy, found);
    let on_the_same =
        question.demands().iter().zip(&raised.mixes).filter(|(demand, _)| demand.entries.len() > 1);
    let on_the_same = on_the_same.map(|(demand, mix)| OtherQuality {
        family: demand.name.clone(),
        quality_mean: mix.quality(demand),
        cost: Some(raised.validation.cost),
    });
    let on_the_same = on_the_same.collect();
    let mut kinds: Vec<&str> = Vec::new();
    for group in question.groups() {
        if !kinds.contains(&group.device_type.name.as_str()) {
            kinds.push(&group.device_type.name);
        }
    }
    let alone = kinds.iter().filter(|_| kinds.len() > 1).map(|kind| {
        let is_own = |device: &&Device| device.device_type.name == *kind;
        let devices: Vec<Device> = question.problem().devices().iter().filter(is_own).cloned().collect();
        let cost = question.on(devices).ok().and_then(|question| cost(&question));
        Alone { device_type: (*kind).to_owned(), cost }
    });
    Explained {
        variants: variant_costs(question),
        qualities,
        on_the_same,
        alone: alone.collect(),
        losses: without_each(question, policy, found),
    }
}
