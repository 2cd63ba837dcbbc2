//! A lower bound on the cost of any plan, and the mix of variants that it suggests.
//!
//! Work is treated as a fluid: each request takes the least time of a share that any batch in time gives it, and devices have no
//! leftovers. Every plan is a solution of this program, so none costs less than its optimum. With whole numbers of devices it is a
//! mixed-integer program, which `microlp` solves.

use good_lp::{
    Expression, ProblemVariables, Solution as _, SolverModel as _, Variable, constraint, microlp, variable,
};

use crate::mix::Mix;
use crate::question::{Demand, Question};
use crate::work::Work;

/// Most groups of devices, and entries, for whole numbers of devices; larger programs are solved with parts of devices.
const INTEGER_GROUPS_MAX: usize = 8;
const INTEGER_ENTRIES_MAX: usize = 64;
/// Steps of the bisection of what devices carry: to a thousandth of the load and less.
const CARRIED_STEPS: u32 = 20;
/// Relative tolerance of the solver.
const TOLERANCE: f64 = 1e-6;

/// The optimum of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluid {
    /// Cost of the devices.
    pub cost: f64,
    /// Devices of each group.
    pub devices: Vec<f64>,
    /// Whether they are whole numbers.
    pub whole: bool,
    /// The mix of each demand.
    pub mixes: Vec<Mix>,
}

/// The variables of a program.
struct Program<'a> {
    question: &'a Question,
    variables: ProblemVariables,
    /// Requests a second, by demand: variant of the demand, group, variable, seconds of a device that a request takes.
    rates: Vec<Vec<Rate>>,
}

#[derive(Clone, Copy)]
struct Rate {
    variant: usize,
    group: usize,
    variable: Variable,
    seconds: f64,
}

impl<'a> Program<'a> {
    fn new(question: &'a Question, work: &Work) -> Self {
        let mut variables = ProblemVariables::new();
        let rates = question.demands().iter().map(|demand| {
            let mut rates = Vec::new();
            for (variant, (entry, _)) in demand.entries.iter().enumerate() {
                for group in 0..question.groups().len() {
                    let Some(seconds) = work.seconds(*entry, group) else { continue };
                    rates.push(Rate {
                        variant,
                        group,
                        variable: variables.add(variable().min(0.0)),
                        seconds,
                    });
                }
            }
            rates
        });
        let rates = rates.collect();
        Self { question, variables, rates }
    }

    /// Every request is answered, with the mean quality that is asked for, and little enough is lost with spot devices.
    fn constraints(&self) -> Vec<good_lp::Constraint> {
        let mut all = Vec::new();
        let lost_max = self.question.spot().lost_max;
        for (demand, rates) in self.question.demands().iter().zip(&self.rates) {
            let sum: Expression = rates.iter().map(|rate| Expression::from(rate.variable)).sum();
            all.push(constraint!(sum == demand.wanted));
            if demand.quality_mean > 0.0 {
                let quality =
                    |rate: &Rate| demand.entries.get(rate.variant).map_or(0.0, |(_, quality)| *quality);
                let sum: Expression = rates.iter().map(|rate| quality(rate) * rate.variable).sum();
                all.push(constraint!(sum >= demand.quality_mean * demand.wanted));
            }
            let lost = |rate: &Rate| self.question.groups().get(rate.group).map_or(0.0, |group| group.lost);
            if rates.iter().any(|rate| lost(rate) > lost_max) {
                let sum: Expression = rates.iter().map(|rate| lost(rate) * rate.variable).sum();
                all.push(constraint!(sum <= lost_max * demand.wanted));
            }
        }
        all
    }

    /// Device seconds a second in a group, if requests take `factor` of their least time.
    fn used(&self, group: usize, factor: f64) -> Expression {
        let own = self.rates.iter().flatten().filter(|rate| rate.group == group);
        own.map(|rate| factor * rate.seconds * rate.variable).sum()
    }
}

fn mixes(question: &Question, rates: &[Vec<Rate>], value: impl Fn(Variable) -> f64) -> Vec<Mix> {
    let of = |(demand, rates): (&Demand, &Vec<Rate>)| {
        let mut sums = vec![0.0; demand.entries.len()];
        for rate in rates {
            if let Some(sum) = sums.get_mut(rate.variant) {
                *sum += value(rate.variable);
            }
        }
        Mix::of_rates(&sums, demand)
    };
    question.demands().iter().zip(rates).map(of).collect()
}

impl Fluid {
    /// The lowest cost, if requests take `factor` of their least time: 1 for a lower bound, more for what a plan may really need.
    /// `None` if the devices do not suffice, or the problem is too large.
    pub fn cheapest(question: &Question, factor: f64) -> Option<Self> {
        let work = Work::of(question)?;
        let small =
            question.groups().len() <= INTEGER_GROUPS_MAX && question.entries().len() <= INTEGER_ENTRIES_MAX;
        if small && let Some(found) = Self::solve(question, &work, factor, true) {
            return Some(found);
        }
        Self::solve(question, &work, factor, false)
    }

    /// Part of the load that the devices carry at most, if requests take their least time and devices have no leftovers; up to 1. `None`
    /// if the problem is too large, or some requests cannot be answered in time at all.
    pub fn carried(question: &Question) -> Option<f64> {
        let work = Work::of(question)?;
        let fits = |part: f64| Self::solve(question, &work, part, false).is_some();
        if fits(1.0) {
            return Some(1.0);
        }
        if !fits(0.0) {
            return None;
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..CARRIED_STEPS {
            let middle = f64::midpoint(low, high);
            if fits(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    fn solve(question: &Question, work: &Work, factor: f64, whole: bool) -> Option<Self> {
        let mut program = Program::new(question, work);
        let groups = question.groups();
        let device = |count: usize| {
            let device = variable().min(0.0).max(count as f64);
            if whole { device.integer() } else { device }
        };
        let devices: Vec<Variable> =
            groups.iter().map(|group| program.variables.add(device(group.devices.len()))).collect();
        let cost: Expression = groups.iter().zip(&devices).map(|(group, device)| group.cost * *device).sum();
        let mut constraints = program.constraints();
        for (group, device) in devices.iter().enumerate() {
            let used = program.used(group, factor);
            constraints.push(constraint!(used <= *device));
        }
        let Program { variables, rates, .. } = program;
        let model = variables.minimise(cost.clone()).using(microlp);
        let solution = model.with_all(constraints).solve().ok()?;
        let counts: Vec<f64> = devices.iter().map(|device| solution.value(*device).max(0.0)).collect();
        let cost = groups.iter().zip(&counts).map(|(group, count)| group.cost * count).sum::<f64>();
        let mixes = mixes(question, &rates, |variable| solution.value(variable).max(0.0));
        Some(Self { cost: cost * (1.0 - TOLERANCE), devices: counts, whole, mixes })
    }

    /// The mix with the highest quality on `devices` of each group, if requests take `factor` of their least time.
    pub(crate) fn best_quality(question: &Question, devices: &[f64], factor: f64) -> Option<Vec<Mix>> {
        let work = Work::of(question)?;
        let program = Program::new(question, &work);
        let mut constraints = program.constraints();
        for (group, count) in devices.iter().enumerate() {
            let used = program.used(group, factor);
            constraints.push(constraint!(used <= *count));
        }
        let quality = |(demand, rates): (&Demand, &Vec<Rate>)| -> Expression {
            let of = |rate: &Rate| demand.entries.get(rate.variant).map_or(0.0, |(_, quality)| *quality);
            rates.iter().map(|rate| of(rate) * rate.variable).sum()
        };
        let total: Expression = question.demands().iter().zip(&program.rates).map(quality).sum();
        let Program { variables, rates, .. } = program;
        let solution = variables.maximise(total).using(microlp).with_all(constraints).solve().ok()?;
        Some(mixes(question, &rates, |variable| solution.value(variable).max(0.0)))
    }
}
