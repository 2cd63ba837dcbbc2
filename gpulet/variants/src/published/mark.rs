//! MArk (Zhang et al., ATC 2019): while capacity is below the predicted load times 1.2, start the instance type with the lowest cost
//! for each request. A model does not change; here it is the variant with the lowest cost that has the quality.

use super::Proposal;
use super::dedicated::Devices;
use super::peaks::Peaks;
use crate::question::Question;

/// Headroom over the predicted load.
const HEADROOM: f64 = 1.2;

pub(super) fn plan(question: &Question, peaks: &Peaks) -> Option<Proposal> {
    let mut devices = Devices::of(question);
    for (at, demand) in question.demands().iter().enumerate() {
        fill(&mut devices, peaks, (at, demand.wanted, HEADROOM * demand.wanted), question)?;
    }
    devices.proposal()
}

/// Takes the cheapest devices for each request until they serve `target`, and sends `wanted` to them.
pub(super) fn fill(
    devices: &mut Devices<'_>,
    peaks: &Peaks,
    (at, wanted, target): (usize, f64, f64),
    question: &Question,
) -> Option<()> {
    let demand = question.demands().get(at)?;
    let cheapest = |left: &super::peaks::Peak, right: &super::peaks::Peak| {
        left.cost_per_rate().total_cmp(&right.cost_per_rate())
    };
    let entry = peaks.picked(at, demand).filter(|peak| devices.has(peak.group)).min_by(cheapest)?.entry;
    let first = devices.len();
    let mut capacity = 0.0;
    while capacity < target || devices.len() == first {
        let own = peaks.picked(at, demand).filter(|peak| peak.entry == entry && devices.has(peak.group));
        let next = own.min_by(cheapest)?;
        devices.take(next);
        capacity += next.rate;
    }
    devices.send(first, wanted);
    Some(())
}
