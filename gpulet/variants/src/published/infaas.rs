//! INFaaS (Romero et al., ATC 2021; constants of the released code): the variant with the least latency of those that have the quality
//! and answer within 0.6 of the objective, then the worker autoscaler. While the load exceeds what the replicas serve, it adds as many
//! replicas as are lacking, or upgrades to the variant that serves the load with one, if the replicas would cost more than 1.5 times as
//! much. Workers are filled to 80 %.

use super::Proposal;
use super::peaks::{Peak, Peaks};
use super::shared::{self, Left};
use crate::question::Question;

/// Part of the objective that the latency of a variant may take.
const LATENCY_PART: f64 = 0.6;
/// Cost of replicas, in parts of that of an upgrade, above which it upgrades.
const UPGRADE_ABOVE: f64 = 1.5;
/// Utilisation above which a worker gets no more work.
const UTILISATION_MAX: f64 = 0.8;

/// What the worker autoscaler does about a load that its replicas do not serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Enough replicas.
    Stay,
    /// This many more of the same variant.
    Replicate(f64),
    /// One replica of a variant that serves all.
    Upgrade(Peak),
}

/// The rule of the worker autoscaler for `load` requests a second on `replicas` of a variant.
pub(super) fn step(load: f64, replicas: f64, current: &Peak, others: &[Peak]) -> Step {
    let lacking = load - replicas * current.rate;
    if lacking <= 1e-9 * load {
        return Step::Stay;
    }
    let more = (lacking / current.rate).ceil();
    let enough = others.iter().filter(|other| other.rate >= load && other.entry != current.entry);
    let upgrade = enough
        .min_by(|left, right| left.cost.total_cmp(&right.cost).then(left.one_us.total_cmp(&right.one_us)));
    match upgrade {
        Some(other) if more * current.cost > UPGRADE_ABOVE * other.cost => Step::Upgrade(*other),
        _ => Step::Replicate(more),
    }
}

pub(super) fn plan(question: &Question, peaks: &Peaks) -> Option<Proposal> {
    let (mut parts, mut left) = (Vec::new(), Left::of(question));
    for (at, demand) in question.demands().iter().enumerate() {
        let slo_us = |peak: &Peak| question.entries().get(peak.entry).map_or(0.0, |entry| entry.slo_us);
        let suits = |peak: &Peak| peak.one_us <= LATENCY_PART * slo_us(peak);
        let own: Vec<Peak> = peaks.picked(at, demand).filter(suits).collect();
        let fastest = own.iter().min_by(|left, right| left.one_us.total_cmp(&right.one_us))?;
        let chosen = match step(demand.wanted, 1.0, fastest, &own) {
            Step::Upgrade(peak) => peak,
            Step::Stay | Step::Replicate(_) => *fastest,
        };
        let mut own: Vec<Peak> = own.into_iter().filter(|peak| peak.entry == chosen.entry).collect();
        own.sort_by(|left, right| {
            let is_other = |peak: &Peak| peak.group != chosen.group;
            is_other(left).cmp(&is_other(right)).then(left.one_us.total_cmp(&right.one_us))
        });
        parts.extend(left.fill(&own, demand.wanted, UTILISATION_MAX)?);
    }
    shared::place(question, &parts, 1.0 / UTILISATION_MAX)
}
