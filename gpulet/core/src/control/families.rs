//! Families: models that answer the same requests with different quality. A policy chooses which of them get gpulets.
//!
//! Without a [`ChooseVariants`], variants are planned as separate models.

use std::fmt;
use std::sync::Arc;

use crate::placement::Policy;
use crate::plan::Plan;
use crate::problem::Problem;

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
    /// The reason why planning failed.
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
