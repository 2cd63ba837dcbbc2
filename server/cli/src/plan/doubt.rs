//! What predicted cells cost: plans use longer times than expected, so they have less headroom than with measured times.

use std::fmt::Write as _;

use gpulet_core::placement::Policy;
use gpulet_core::profile::{Cell, Profile, Quantile};
use serde::Serialize;

use super::format;
use super::reading::PlanQuery;
use super::study::{Growth, Planned, Study, best, slots};
use crate::profile::cores_words;

/// Predicted cells that a note names.
const NAMED: usize = 6;

/// The best plan with predicted cells as they are expected, and the measurement that narrows its doubt most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doubt {
    /// Factor on all rates up to which the same plan suffices if all predicted cells take the expected time.
    growth_unchanged: Option<f64>,
    /// The same for a new plan of the policy.
    growth_replanned: Option<Growth>,
    /// Devices of that new plan; `None` without one.
    devices_used: Option<usize>,
    /// The most uncertain batch of the plan; `None` if the plan uses measured cells only.
    measure: Option<Uncertain>,
}

/// A batch of the plan whose time was predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Uncertain {
    model: String,
    batch: u32,
    units: u32,
    /// Planned time divided by the expected time.
    factor: f64,
}

impl Doubt {
    /// `None` without a plan, and if no profile has predicted cells.
    pub fn of(query: &PlanQuery, study: &Study) -> Option<Self> {
        query.profiles.iter().find(|profile| profile.predicted().next().is_some())?;
        let (entry, planned) = best(study)?;
        let sure = query.problem.clone().without_doubt();
        let unchanged = Planned::of(&sure, planned.plan.clone());
        let replanned = Policy::named(entry.policy).and_then(|policy| Planned::find(&sure, &policy).ok());
        let uncertain = slots(&query.problem, planned).filter_map(|(device, gpulet, slot, _)| {
            let workload =
                query.problem.workloads().iter().find(|workload| workload.name == slot.workload)?;
            let profile = query.problem.profile(workload, &device.device_type)?;
            let time = profile.latency_us(Quantile::P50, slot.batch, gpulet.units).ok()?;
            let factor = time / profile.expected_us(Quantile::P50, slot.batch, gpulet.units).ok()?;
            let model = profile.model().to_owned();
            (factor > 1.0).then_some(Uncertain { model, batch: slot.batch, units: gpulet.units, factor })
        });
        Some(Self {
            growth_unchanged: unchanged.growth_unchanged,
            growth_replanned: replanned.as_ref().and_then(|planned| planned.growth_replanned),
            devices_used: replanned.map(|planned| planned.validation.devices_used),
            measure: uncertain.max_by(|one, other| one.factor.total_cmp(&other.factor)),
        })
    }

    /// One or two lines for readers.
    pub fn words(&self, planned: &Planned) -> String {
        let mut text = "doubt: some batch times are predicted, and planned with a margin".to_owned();
        if let Some(growth) = self.growth_unchanged {
            let _ =
                write!(text, "; without it, all rates may grow by {} with this plan", format::growth(growth));
            if let Some(replanned) = self.growth_replanned {
                let _ = write!(text, ", by {} with a new plan", format::growth(replanned.factor));
            }
        }
        if let Some(devices) = self.devices_used.filter(|devices| *devices != planned.validation.devices_used)
        {
            let _ = write!(text, ", which needs {}", format::counted(devices, "device"));
        }
        match &self.measure {
            Some(Uncertain { model, batch, units, factor }) => {
                let _ = write!(
                    text,
                    "\nto know more: `tessera profile --model {model} --batches {batch} --cores {units}` (planned {} above the expected time)",
                    format::growth(*factor)
                );
            }
            None => text.push_str("; this plan uses measured ones only"),
        }
        text
    }
}

/// Says which cells of a profile were predicted.
pub fn note(profile: &Profile) -> Option<String> {
    let predicted: Vec<&Cell> = profile.predicted().collect();
    let count = predicted.len();
    let named = predicted.iter().take(NAMED);
    let named = named.map(|cell| format!("batch {} on {}", cell.batch, cores_words(cell.units)));
    let more = match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (count > 0).then(|| {
        format!(
            "{count} of {} of {} on {} predicted, not measured: {}{more}",
            format::counted(profile.cells().len(), "cell"),
            profile.model(),
            profile.device(),
            named.collect::<Vec<_>>().join(", "),
        )
    })
}
