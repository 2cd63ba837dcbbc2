//! Policies for families while a server runs: they plan the rates that a scaler asks for, again and again.

use gpulet_core::control::{ChooseVariants, FamilyDemand};
use gpulet_core::placement::Policy;
use gpulet_core::plan::Plan;
use gpulet_core::problem::{Problem, Workload};
use gpulet_core::validate::validate;

use crate::current_devices::on_current_devices;
use crate::published;
use crate::question::{Family, Question, SpotRules, Variant};
use crate::search::replan;

/// Our own policy.
const OURS: &str = "tessera";
/// Policies that choose a mix of variants. Where the devices do not suffice, they lower the mean quality before the rate.
const MIXING: [&str; 2] = [OURS, "proteus"];

/// A policy for families by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivePolicy(&'static str);

/// Names of the policies that a server may use for families.
pub fn live_policies() -> impl Iterator<Item = &'static str> {
    std::iter::once(OURS).chain(published::names())
}

impl LivePolicy {
    /// The policy of that name; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        live_policies().find(|known| *known == name).map(Self)
    }

    fn planned(self, question: &Question, placement: &Policy) -> Option<(Problem, Plan)> {
        if self.0 == OURS {
            return replan(question, placement).map(|found| (found.problem, found.plan));
        }
        let proposal = published::propose(self.0, question)?;
        let plan = on_current_devices(question.problem(), question.groups(), proposal.plan);
        validate(&proposal.problem, &plan).is_sound().then_some((proposal.problem, plan))
    }
}

impl ChooseVariants for LivePolicy {
    fn name(&self) -> &'static str {
        self.0
    }

    fn choose(
        &self,
        problem: &Problem,
        demands: &[FamilyDemand],
        placement: &Policy,
    ) -> Result<(Problem, Plan), String> {
        let mut question = question(problem, demands)?;
        if let Some(planned) = self.planned(&question, placement) {
            return Ok(planned);
        }
        if MIXING.contains(&self.0) {
            for demand in demands {
                question = question.with_quality_mean(&demand.family.name, 0.0);
            }
            if let Some(planned) = self.planned(&question, placement) {
                return Ok(planned);
            }
        }
        let rates = demands.iter().map(|demand| format!("{}: {:.1}/s", demand.family.name, demand.rate));
        let rates = rates.collect::<Vec<_>>().join(", ");
        Err(format!("policy `{}` for families finds no plan ({rates})", self.0))
    }
}

/// What is to be planned. Workloads that need no gpulet are left out.
fn question(problem: &Problem, demands: &[FamilyDemand]) -> Result<Question, String> {
    let is_variant = |name: &str| {
        demands.iter().flat_map(|demand| &demand.family.variants).any(|variant| variant.name == name)
    };
    let plain = problem.workloads().iter();
    let plain = plain.filter(|workload| workload.is_needed() && !is_variant(&workload.name));
    let families = demands.iter().filter_map(|demand| family(problem, demand)).collect();
    let plain = problem.clone().with_workloads(plain.cloned().collect());
    let question = plain.and_then(|plain| Question::new(plain, families, SpotRules::default()));
    question.map_err(|error| error.to_string())
}

/// `None` if no variant has the quality that each answer must have.
fn family(problem: &Problem, FamilyDemand { family, rate }: &FamilyDemand) -> Option<Family> {
    let workload = |name: &str| problem.workloads().iter().find(|workload| workload.name == name);
    let variants = family.variants.iter().filter_map(|variant| {
        let Workload { name, model, batch_max, .. } = workload(&variant.name)?.clone();
        Some(Variant { name, model, batch_max, quality: variant.quality })
    });
    let variants: Vec<Variant> = variants.collect();
    let best = variants.iter().map(|variant| variant.quality).fold(f64::NEG_INFINITY, f64::max);
    if best < family.quality_min {
        return None;
    }
    let demand = Workload {
        name: family.name.clone(),
        model: family.name.clone(),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: family.slo_us,
        rate: *rate,
        headroom: 1.0,
        replicas_min: 1,
        batch_max: variants.iter().map(|variant| variant.batch_max).max()?,
    };
    Some(Family {
        name: family.name.clone(),
        demand,
        quality_min: family.quality_min,
        quality_mean: family.quality_mean.min(best),
        variants,
    })
}
