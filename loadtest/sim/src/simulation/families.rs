//! Requests of families: which variant answers them.

use std::collections::BTreeMap;

use router_core::{
    Event, FamilyId, FamilyRequest, FamilySpec, Incoming, ModelId, Nanos, Router, Variant, millionths,
};
use workload::{Family, Workload};

use super::Simulation;
use crate::inflight::{Part, Request};
use crate::report::{FamilyFigures, VariantFigures};

/// The families of a workload, and what their variants answered.
#[derive(Debug, Default)]
pub(super) struct Families {
    /// By number in the list of models.
    counts: BTreeMap<u32, Vec<Count>>,
}

/// Requests that a variant answered.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    answered: u64,
    good: u64,
}

impl Families {
    pub fn new(workload: &Workload) -> Self {
        let counts = workload.families();
        let counts =
            counts.map(|(number, _, family)| (number, vec![Count::default(); family.variants.len()]));
        Self { counts: counts.collect() }
    }

    /// What the router is told of a family.
    pub fn spec(number: u32, family: &Family, objective: Nanos) -> FamilySpec {
        let variant = |variant: &workload::FamilyVariant| Variant {
            model: ModelId(variant.model),
            quality: millionths(variant.quality),
        };
        FamilySpec {
            family: FamilyId(number),
            variants: family.variants.iter().map(variant).collect(),
            objective: Some(objective),
        }
    }

    /// A request was answered. Of no interest unless it is one of a family.
    pub fn answered(&mut self, now: u64, request: &Request, workload: &Workload) {
        let model = workload.models.get(request.model as usize);
        let Some(family) = model.and_then(|model| model.family.as_ref()) else { return };
        let Part::Variant(variant) = request.part else { return };
        let is_good = request.deadline.is_none_or(|deadline| Nanos(now) <= deadline);
        let place = family.variants.iter().position(|one| one.model == variant);
        let counts = self.counts.get_mut(&request.model);
        if let Some(count) = counts.zip(place).and_then(|(counts, place)| counts.get_mut(place)) {
            count.answered += 1;
            count.good += u64::from(is_good);
        }
    }
}

/// The variant that a request gets. Without a served one it is the first, for which the router refuses it.
pub(super) fn choose(
    router: &mut Router,
    now: u64,
    incoming: &Incoming,
    (number, family): (u32, &Family),
) -> ModelId {
    let wanted = FamilyRequest {
        family: FamilyId(number),
        quality_min: millionths(family.quality_min),
        lane_time_max: Nanos::NEVER,
    };
    let first = || ModelId(family.variants.first().map_or(u32::MAX, |variant| variant.model));
    router.choose(Nanos(now), incoming, &wanted).unwrap_or_else(first)
}

impl Simulation {
    /// Tells the router of the families.
    pub(super) fn begin_families(&mut self) -> Result<(), crate::error::Breach> {
        let families = self.workload.families();
        let specs: Vec<FamilySpec> = families
            .map(|(number, model, family)| Families::spec(number, family, Nanos(model.slo)))
            .collect();
        specs.iter().try_for_each(|spec| self.feed(Event::FamilyUp(spec)))
    }

    /// What the variants of each family answered.
    pub(crate) fn family_figures(&self) -> Vec<FamilyFigures> {
        let of = |(number, model, family): (u32, &workload::Model, &Family)| {
            let counts = self.families.counts.get(&number)?;
            let answered: u64 = counts.iter().map(|count| count.answered).sum();
            let share = |count: u64| count as f64 / answered.max(1) as f64;
            let variants = family.variants.iter().zip(counts).filter_map(|(variant, count)| {
                let name = self.workload.models.get(variant.model as usize)?.name.clone();
                let (quality, share) = (variant.quality, share(count.answered));
                Some(VariantFigures { name, quality, answered: count.answered, good: count.good, share })
            });
            let variants: Vec<VariantFigures> = variants.collect();
            let quality = variants.iter().map(|variant| variant.quality * variant.share).sum();
            let (falls, rises) = self.router.family_changes(FamilyId(number)).unwrap_or_default();
            Some(FamilyFigures { family: model.name.clone(), quality, falls, rises, variants })
        };
        self.workload.families().filter_map(of).collect()
    }
}
