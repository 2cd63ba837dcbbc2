//! Proteus (Ahmad et al., ASPLOS 2024): one variant on each device and shares of the requests for each device, by mixed-integer
//! programming. The published program maximises accuracy on given devices for 1.05 times the load. Here the same constraints, with the
//! quality that is asked for, decide which devices cost least.

use good_lp::{
    Expression, ProblemVariables, Solution as _, SolverModel as _, Variable, constraint, microlp, variable,
};

use super::Proposal;
use super::dedicated::Devices;
use super::peaks::{Peak, Peaks};
use crate::question::Question;

/// What is served, in parts of the load.
const BETA: f64 = 1.05;
/// Most variants times groups of devices; the program takes too long for more.
const SIZE_MAX: usize = 64;

struct Choice {
    demand: usize,
    peak: Peak,
    devices: Variable,
    rate: Variable,
}

pub(super) fn plan(question: &Question, peaks: &Peaks) -> Option<Proposal> {
    let mut variables = ProblemVariables::new();
    let mut choices = Vec::new();
    for demand in 0..question.demands().len() {
        for peak in peaks.all(demand) {
            let has = question.groups().get(peak.group)?.devices.len() as f64;
            let devices = variables.add(variable().integer().min(0.0).max(has));
            choices.push(Choice { demand, peak, devices, rate: variables.add(variable().min(0.0)) });
        }
    }
    if choices.len() > SIZE_MAX {
        return None;
    }
    let cost: Expression = choices.iter().map(|choice| choice.peak.cost * choice.devices).sum();
    let mut constraints = Vec::new();
    for (at, demand) in question.demands().iter().enumerate() {
        let own = || choices.iter().filter(|choice| choice.demand == at);
        let served: Expression = own().map(|choice| Expression::from(choice.rate)).sum();
        constraints.push(constraint!(served == BETA * demand.wanted));
        let quality: Expression = own().map(|choice| choice.peak.quality * choice.rate).sum();
        constraints.push(constraint!(quality >= BETA * demand.quality_mean * demand.wanted));
        // Also for a model that requests wait for and that had none before.
        let hosts: Expression = own().map(|choice| Expression::from(choice.devices)).sum();
        constraints.push(constraint!(hosts >= 1));
    }
    for choice in &choices {
        constraints.push(constraint!(choice.rate <= choice.peak.rate * choice.devices));
    }
    for (at, group) in question.groups().iter().enumerate() {
        let own = choices.iter().filter(|choice| choice.peak.group == at);
        let used: Expression = own.map(|choice| Expression::from(choice.devices)).sum();
        constraints.push(constraint!(used <= group.devices.len() as f64));
    }
    let solution = variables.minimise(cost).using(microlp).with_all(constraints).solve().ok()?;
    let mut devices = Devices::of(question);
    for choice in &choices {
        let count = solution.value(choice.devices).round();
        let mut taken = 0.0;
        while taken < count {
            devices.take(choice.peak);
            taken += 1.0;
        }
    }
    devices.set(|peak| {
        let choice =
            choices.iter().find(|choice| choice.peak.entry == peak.entry && choice.peak.group == peak.group);
        choice.map_or(0.0, |choice| {
            solution.value(choice.rate) / BETA / solution.value(choice.devices).round().max(1.0)
        })
    });
    devices.proposal()
}
