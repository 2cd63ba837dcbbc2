//! A digest of all events and effects, to tell whether two runs are the same.

use router_core::{Effect, Event};

/// 64 bits over a sequence of numbers, in the manner of FxHash with a rotation; not for adversaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u64);

/// Fractional part of the golden ratio, odd: multiplication by it spreads low bits upwards.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Digest {
    fn note(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(FACTOR);
    }

    /// Adds an event.
    pub(crate) fn event(&mut self, now: u64, event: &Event<'_>) {
        let (kind, what) = match event {
            Event::Arrive(arrival) => {
                (1, u64::from(arrival.request.slot()) << 32 | u64::from(arrival.model.0))
            }
            Event::ArriveTogether(arrivals) => (22, arrivals.len() as u64),
            Event::StageDone(arrivals) => (23, arrivals.len() as u64),
            Event::PipelineUp(spec) => (24, u64::from(spec.pipeline.0)),
            Event::PipelineDown(pipeline) => (25, u64::from(pipeline.0)),
            Event::ArriveAtVariant(arrival, _) => {
                (26, u64::from(arrival.request.slot()) << 32 | u64::from(arrival.model.0))
            }
            Event::FamilyUp(spec) => (27, u64::from(spec.family.0)),
            Event::FamilyDown(family) => (28, u64::from(family.0)),
            Event::BatchDone(report) => (2, report.batch.0),
            Event::BatchReturned { batch, .. } => (3, batch.0),
            Event::LaneUp(spec) => (4, u64::from(spec.lane.0)),
            Event::LaneDown(lane) => (5, u64::from(lane.0)),
            Event::LaneFailed(lane) => (19, u64::from(lane.0)),
            Event::ModelUp(spec) => (6, u64::from(spec.model.0)),
            Event::Tick => (7, 0),
            Event::Cancel(request) => (8, u64::from(request.slot())),
            Event::ModelDown(model) => (9, u64::from(model.0)),
            Event::ModelChanged(spec) => (20, u64::from(spec.model.0)),
            Event::TenantsChanged(table) => (21, table.weights().len() as u64),
            Event::Drain { until } => (10, until.0),
            Event::Switch(switch) => (15, (switch.up.len() as u64) << 32 | switch.drain.len() as u64),
        };
        self.note(now);
        self.note(kind);
        self.note(what);
    }

    /// Adds an effect.
    pub(crate) fn effect(&mut self, effect: &Effect) {
        let (kind, what, more) = match effect {
            Effect::Dispatch { lane, batch, rows, .. } => {
                (11, batch.0, u64::from(lane.0) << 32 | u64::from(*rows))
            }
            Effect::Finish { request, outcome, reason } => {
                (12, u64::from(request.slot()), (*outcome as u64) << 8 | *reason as u64)
            }
            Effect::Preempt { lane, batch } => (13, batch.0, u64::from(lane.0)),
            Effect::Retired(model) => (14, u64::from(model.0), 0),
            Effect::Switched => (16, 0, 0),
            Effect::SwitchRefused(_) => (17, 0, 0),
            Effect::LaneIdle(lane) => (18, u64::from(lane.0), 0),
        };
        self.note(kind);
        self.note(what);
        self.note(more);
    }

    /// With the high bits, which depend on all input, mixed into the low ones (the finaliser of SplitMix64).
    pub(crate) fn value(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn digest(numbers: &[u64]) -> u64 {
        let mut digest = Digest::default();
        numbers.iter().for_each(|&number| digest.note(number));
        digest.value()
    }

    #[test]
    fn order_and_every_bit_matter() {
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        let flipped: BTreeSet<u64> = (0..64).map(|bit| digest(&[7, 1 << bit, 9])).collect();
        assert_eq!(flipped.len(), 64);
        let even = (0..64).map(|bit| (digest(&[0]) ^ digest(&[1 << bit])).count_ones()).sum::<u32>();
        assert!((1_600..2_500).contains(&even), "{even} of 4096 bits changed, expected about half");
    }
}
