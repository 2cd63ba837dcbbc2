//! Families: models that answer the same requests with different quality. A policy chooses which of them get gpulets.
//!
//! The scaler sees a family as one stream of requests, so that its forecast does not depend on which variant the router
//! chose for each. Without a [`ChooseVariants`], variants are planned as separate models.

use std::fmt;
use std::sync::Arc;

use super::{Model, Targets};
use crate::placement::Policy;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::scaling::{ModelObservation, Service};

/// A model that answers requests of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyVariant {
    /// Name of the model in plans.
    pub name: String,
    /// Share of right answers, from 0 to 1.
    pub quality: f64,
}

/// Models that answer the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name, which no model has.
    pub name: String,
    /// Objective: microseconds from arrival to answer.
    pub slo_us: f64,
    /// Least quality of each answer, from 0 to 1.
    pub quality_min: f64,
    /// Least mean quality that plans aim for, from 0 to 1.
    pub quality_mean: f64,
    /// Its variants.
    pub variants: Vec<FamilyVariant>,
}

/// A family with the rate to plan for.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyDemand {
    /// The family, without variants that must not get a gpulet.
    pub family: Family,
    /// Requests a second, headroom included.
    pub rate: f64,
}

/// A policy that chooses the variants of families, and the devices that serve them.
pub trait ChooseVariants: fmt::Debug + Send + Sync {
    /// Name in configurations. Two policies of the same name are the same.
    fn name(&self) -> &'static str;

    /// Plans a problem that has all models as workloads, those of families without a rate. Returns the plan and the
    /// problem whose workloads are the planned models with their rates.
    ///
    /// # Errors
    /// Why there is no plan.
    fn choose(
        &self,
        problem: &Problem,
        demands: &[FamilyDemand],
        placement: &Policy,
    ) -> Result<(Problem, Plan), String>;
}

/// The policy for the variants of families; none if variants are planned as separate models.
#[derive(Clone, Debug, Default)]
pub struct VariantPolicy(pub Option<Arc<dyn ChooseVariants>>);

impl PartialEq for VariantPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl VariantPolicy {
    /// Name of the policy.
    pub fn name(&self) -> Option<&'static str> {
        self.0.as_ref().map(|policy| policy.name())
    }
}

/// The streams of requests that a scaler decides on: models of no family, then families.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Each with the places of its models.
    streams: Vec<(String, Vec<usize>)>,
}

impl Demands {
    /// `families`: empty if variants are planned as separate models.
    pub(super) fn of(models: &[Model], families: &[Family]) -> Self {
        let own = |family: &Family| -> Vec<usize> {
            let is_own = |model: &Model| family.variants.iter().any(|variant| variant.name == model.name);
            models.iter().enumerate().filter(|(_, model)| is_own(model)).map(|(at, _)| at).collect()
        };
        let families: Vec<(String, Vec<usize>)> =
            families.iter().map(|family| (family.name.clone(), own(family))).collect();
        let is_single = |at: usize| families.iter().all(|(_, own)| !own.contains(&at));
        let single = models.iter().enumerate().filter(|(at, _)| is_single(*at));
        let mut streams: Vec<(String, Vec<usize>)> =
            single.map(|(at, model)| (model.name.clone(), vec![at])).collect();
        streams.extend(families.into_iter().filter(|(_, own)| !own.is_empty()));
        Self { streams }
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.streams.iter().map(|(name, _)| name)
    }

    /// What happened to each: the sum of what happened to its models, whose attainments count by their ended requests.
    pub(super) fn observed(&self, models: &[ModelObservation]) -> Vec<ModelObservation> {
        let sum = |places: &Vec<usize>| {
            let own: Vec<&ModelObservation> = places.iter().filter_map(|at| models.get(*at)).collect();
            if let [one] = own.as_slice() {
                return **one;
            }
            let (mut sum, mut ended, mut good) = (ModelObservation::default(), 0.0, 0.0);
            for one in own {
                sum.arrivals = sum.arrivals.saturating_add(one.arrivals);
                sum.queued = sum.queued.saturating_add(one.queued);
                sum.refused = sum.refused.saturating_add(one.refused);
                sum.capacity += one.capacity;
                if let Some(attainment) = one.attainment {
                    let weight = one.arrivals.max(1) as f64;
                    ended += weight;
                    good += weight * attainment;
                }
            }
            sum.attainment = (ended > 0.0).then(|| good / ended);
            sum
        };
        self.streams.iter().map(|(_, places)| sum(places)).collect()
    }

    /// Each as a service of a scaler. A replica of a family is that of the variant with the lowest rate, so that scalers that
    /// plan whole replicas ask for as little more than the load as possible.
    ///
    /// # Errors
    /// When a model has no profile.
    pub(super) fn services(&self, models: &[Model]) -> Result<Vec<Service>, String> {
        let of = |(name, places): &(String, Vec<usize>)| {
            let own = places.iter().filter_map(|at| models.get(*at));
            let own = own.map(Model::service).collect::<Result<Vec<Service>, String>>()?;
            let is_needed = own.iter().any(|service| service.replicas_min > 0);
            let slowest =
                own.into_iter().min_by(|left, right| left.replica_rate.total_cmp(&right.replica_rate));
            let slowest = slowest.ok_or_else(|| format!("`{name}`: no model of it is served"))?;
            Ok(Service { name: name.clone(), replicas_min: u32::from(is_needed), ..slowest })
        };
        self.streams.iter().map(of).collect()
    }
}

/// The families that are planned, with their rates. A variant for which requests of its own wait is planned as a
/// separate model, and one without a place has no part.
pub(super) fn demands(families: &[Family], models: &[Model], targets: &Targets) -> Vec<FamilyDemand> {
    let planned = families.iter().filter(|family| !targets.unplaced.contains(&family.name));
    let demand = |family: &Family| {
        let mut own = family.clone();
        own.variants.retain(|variant| {
            let model = models.iter().find(|model| model.name == variant.name);
            model.is_some_and(|model| !model.is_waited_for) && !targets.unplaced.contains(&variant.name)
        });
        let rate = targets.rates.get(&family.name).copied().unwrap_or_default();
        (!own.variants.is_empty()).then_some(FamilyDemand { family: own, rate })
    };
    planned.filter_map(demand).collect()
}
