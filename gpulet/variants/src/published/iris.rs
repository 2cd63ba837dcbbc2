//! IRIS (Ferikoglou et al., CLOUD 2023), whose predictor is not public: engines share devices, which are filled by the rate predicted
//! for each under co-location. Here the prediction is the profile, and batches of co-located models run one after the other. In its
//! model-less mode it picks the variant, here the one with the lowest cost of those that have the quality.

use super::Proposal;
use super::peaks::{Peak, Peaks};
use super::shared::{self, Left};
use crate::question::Question;

pub(super) fn plan(question: &Question, peaks: &Peaks) -> Option<Proposal> {
    let mut parts = Vec::new();
    let mut left = Left::of(question);
    for (at, demand) in question.demands().iter().enumerate() {
        let by_cost = |left: &Peak, right: &Peak| left.cost_per_rate().total_cmp(&right.cost_per_rate());
        let entry = peaks.picked(at, demand).min_by(by_cost)?.entry;
        let mut own: Vec<Peak> = peaks.picked(at, demand).filter(|peak| peak.entry == entry).collect();
        own.sort_by(by_cost);
        parts.extend(left.fill(&own, demand.wanted, 1.0)?);
    }
    shared::place(question, &parts, 1.0)
}
