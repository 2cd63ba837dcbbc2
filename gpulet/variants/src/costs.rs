//! What each variant costs on each type of device.

use serde::Serialize;

use crate::question::Question;
use crate::work::Work;

/// A variant on a type of device, at its cheapest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantCost {
    /// Name of the workload or family.
    pub demand: String,
    /// Name of the variant.
    pub model: String,
    /// Its quality.
    pub quality: f64,
    /// Type of the device.
    pub device_type: String,
    /// Cost of the device per hour.
    pub device_cost: f64,
    /// Whether the device is a spot device.
    pub spot: bool,
    /// Requests a second that a whole device answers in time, if shares were never left over.
    pub rate: f64,
    /// Cost of a million requests at that rate.
    pub per_million: f64,
}

/// The costs of all variants that each request may get, where they can answer in time; the cheapest of each demand first.
pub fn variant_costs(question: &Question) -> Vec<VariantCost> {
    let Some(work) = Work::of(question) else { return Vec::new() };
    let mut all = Vec::new();
    for demand in question.demands() {
        let mut own = Vec::new();
        for (entry, quality) in &demand.entries {
            for (at, group) in question.groups().iter().enumerate() {
                let (Some(seconds), Some(model)) = (work.seconds(*entry, at), question.entries().get(*entry))
                else {
                    continue;
                };
                own.push(VariantCost {
                    demand: demand.name.clone(),
                    model: model.name.clone(),
                    quality: *quality,
                    device_type: group.device_type.name.clone(),
                    device_cost: group.cost,
                    spot: group.lost > 0.0,
                    rate: 1.0 / seconds,
                    per_million: group.cost * seconds / 3_600.0 * 1e6,
                });
            }
        }
        own.sort_by(|left, right| left.per_million.total_cmp(&right.per_million));
        all.extend(own);
    }
    all
}
