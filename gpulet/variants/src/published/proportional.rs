//! After Cho et al. (MLSys 2022), of which only ideas are public: for each type of device, the highest rate at which a model meets its
//! objective. While the sum of these rates is below the load, the available type with the lowest cost for its rate is added.
//! Requests go to devices in proportion to their rates. The margin is 0, the cheapest that the rule allows.

use super::dedicated::Devices;
use super::peaks::Peaks;
use super::{Proposal, mark};
use crate::question::Question;

pub(super) fn plan(question: &Question, peaks: &Peaks) -> Option<Proposal> {
    let mut devices = Devices::of(question);
    for (at, demand) in question.demands().iter().enumerate() {
        mark::fill(&mut devices, peaks, (at, demand.wanted, demand.wanted), question)?;
    }
    devices.proposal()
}
