//! Time slices: which model of a lane with a cycle runs next.
//!
//! A lane with a cycle goes through its slots in order. Time is measured on the lane's clock, from the start of a slot's
//! first batch, so batches that take longer than expected cost their own slot. Nothing is preempted: the first batch of
//! a slot may always run, whatever its length. Those after it run only if they should end within the budget.

use crate::{ConfigError, ModelId, Nanos};

/// Most slots of a cycle.
const SLOTS_MAX: usize = 256;

/// The time slice of a model in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleSlot {
    /// The model that may run in this slot.
    pub model: ModelId,
    /// Most rows of its batches. A single request of more rows runs alone.
    pub rows: u32,
    /// Lane time for its batches. The first one may exceed it.
    pub budget: Nanos,
}

/// Slots in order, at least one. A model may have several.
///
/// If the policy of a slot's model would start nothing, the next slot begins. Unused time is not saved. Models of the lane without a slot run when no slot's model has anything to start. The lane is never
/// idle while a queue is ready that may run on it. The cycle decides between models. Classes, maximum waits and
/// starvation limits decide within a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(Vec<CycleSlot>);

impl Cycle {
    /// Refuses a cycle without slots or with more than 256, and slots without rows or budget.
    pub fn new(slots: Vec<CycleSlot>) -> Result<Self, ConfigError> {
        if slots.is_empty() || slots.len() > SLOTS_MAX {
            let problem = format!("has {} slots, expected 1 to {SLOTS_MAX}", slots.len());
            return Err(ConfigError::new("cycle", problem));
        }
        for (index, slot) in slots.iter().enumerate() {
            if slot.rows == 0 {
                return Err(ConfigError::new(format!("cycle[{index}].rows"), "is 0, expected at least 1"));
            }
            if slot.budget == Nanos::ZERO {
                return Err(ConfigError::new(format!("cycle[{index}].budget"), "is 0, expected more"));
            }
        }
        Ok(Self(slots))
    }

    /// The slots in order.
    pub fn slots(&self) -> &[CycleSlot] {
        &self.0
    }

    /// The largest batch of a model in any of its slots; `None` if it has none.
    pub(crate) fn rows_of(&self, model: ModelId) -> Option<u32> {
        self.0.iter().filter(|slot| slot.model == model).map(|slot| slot.rows).max()
    }
}

/// A batch that a slot may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotBatch {
    /// Position of the slot.
    pub slot: u16,
    /// Whether it is the first batch of the slot.
    pub first: bool,
    /// Most rows.
    pub rows: u32,
}

/// A cycle and the position of a lane in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub cycle: Cycle,
    current: usize,
    /// End of the current slot; `None` before its first batch.
    until: Option<Nanos>,
}

impl Round {
    pub(crate) fn new(cycle: Cycle) -> Self {
        Self { cycle, current: 0, until: None }
    }

    /// The slot for a batch that would begin at `begins`, with what `ready` returned for it: what the slot's model can
    /// start, if anything. `time` predicts how long that takes. `None` if no model with a slot can start anything.
    pub(crate) fn next_slot<T>(
        &self,
        begins: Nanos,
        mut ready: impl FnMut(&CycleSlot) -> Option<T>,
        time: impl FnOnce(&CycleSlot, &T) -> Nanos,
    ) -> Option<(SlotBatch, T)> {
        let slots = self.cycle.slots();
        if let (Some(until), Some(slot)) = (self.until, slots.get(self.current))
            && begins < until
            && let Some(found) = ready(slot)
            && begins.after(time(slot, &found)) <= until
        {
            return Some((SlotBatch { slot: self.current as u16, first: false, rows: slot.rows }, found));
        }
        let next = self.current + usize::from(self.until.is_some());
        let order = (next..next + slots.len()).map(|position| position % slots.len());
        order
            .filter_map(|position| Some((position as u16, slots.get(position)?)))
            .find_map(|(slot, its)| Some((SlotBatch { slot, first: true, rows: its.rows }, ready(its)?)))
    }

    /// Records that the batch was started and when it begins.
    pub(crate) fn started(&mut self, batch: SlotBatch, begins: Nanos) {
        if batch.first {
            self.current = usize::from(batch.slot);
            self.until = self.cycle.slots().get(self.current).map(|slot| begins.after(slot.budget));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Model n has slot n, with this budget in milliseconds.
    fn cycle(budgets: &[u64]) -> Round {
        let slot = |(model, &budget)| CycleSlot { model: ModelId(model), rows: 8, budget: ms(budget) };
        Round::new(Cycle::new((0..).zip(budgets).map(slot).collect()).unwrap())
    }

    /// Runs batches of these times, in milliseconds, of the models that have such, one after another.
    fn run(round: &mut Round, times: &[Option<u64>], batches: usize) -> Vec<(u32, u64)> {
        let (mut now, mut ran) = (Nanos::ZERO, Vec::new());
        let time = |model: ModelId| times[model.0 as usize];
        for _ in 0..batches {
            let next = round.next_slot(
                now,
                |slot| time(slot.model).map(|time| (slot.model, ms(time))),
                |_, found| found.1,
            );
            let Some((batch, (model, time))) = next else { break };
            round.started(batch, now);
            ran.push((model.0, now.0 / 1_000_000));
            now = now.after(time);
        }
        ran
    }

    #[test]
    fn slots_go_round_and_batches_that_do_not_fit_wait_for_the_next_round() {
        let ran = run(&mut cycle(&[10, 5]), &[Some(3), Some(2)], 7);
        assert_eq!(ran, [(0, 0), (0, 3), (0, 6), (1, 9), (1, 11), (0, 13), (0, 16)]);
    }

    #[test]
    fn the_first_batch_of_a_slot_may_be_too_long_and_takes_the_whole_slot() {
        assert_eq!(run(&mut cycle(&[10, 5]), &[Some(40), Some(5)], 4), [(0, 0), (1, 40), (0, 45), (1, 85)]);
    }

    #[test]
    fn an_empty_slot_is_given_away_to_the_next_in_order() {
        assert_eq!(
            run(&mut cycle(&[4, 4, 4]), &[Some(4), None, Some(2)], 4),
            [(0, 0), (2, 4), (2, 6), (0, 8)]
        );
        assert_eq!(
            run(&mut cycle(&[4, 4]), &[None, Some(3)], 3),
            [(1, 0), (1, 3), (1, 6)],
            "all to the only one"
        );
        assert_eq!(run(&mut cycle(&[4, 4]), &[None, None], 1), []);
    }

    #[test]
    fn what_a_slot_did_not_use_is_not_saved() {
        let mut round = cycle(&[10, 10]);
        let mut start = |at: u64, who: &[u32]| {
            let has = |slot: &CycleSlot| who.contains(&slot.model.0).then_some(());
            let (batch, ()) = round.next_slot(ms(at), has, |_, ()| ms(3)).unwrap();
            round.started(batch, ms(at));
            batch.slot
        };
        assert_eq!(
            [start(0, &[0, 1]), start(3, &[1]), start(6, &[0, 1])],
            [0, 1, 1],
            "the second has its own 10 ms"
        );
        assert_eq!([start(9, &[0, 1]), start(12, &[0, 1])], [1, 0]);
        // Nothing was to be done for a while: the slot that had begun is over by the clock.
        assert_eq!(start(30, &[0, 1]), 1);
    }

    #[test]
    fn invalid_cycles_are_rejected_by_name() {
        let slot = CycleSlot { model: ModelId(0), rows: 1, budget: ms(1) };
        let refused = |slots: Vec<CycleSlot>| Cycle::new(slots).unwrap_err().to_string();
        assert_eq!(refused(Vec::new()), "cycle: has 0 slots, expected 1 to 256");
        assert_eq!(refused(vec![slot; 257]), "cycle: has 257 slots, expected 1 to 256");
        assert_eq!(
            refused(vec![slot, CycleSlot { rows: 0, ..slot }]),
            "cycle[1].rows: is 0, expected at least 1"
        );
        assert_eq!(
            refused(vec![CycleSlot { budget: Nanos::ZERO, ..slot }]),
            "cycle[0].budget: is 0, expected more"
        );
    }

    proptest! {
        /// With something to start for each, every slot gets its budget in every round, less or more by less than a
        /// batch. A slot with something to start is passed over at most once by each other slot.
        #[test]
        fn a_busy_lane_gives_each_slot_its_share(slots in prop::collection::vec((1_u64..50, 1_u64..30), 1..6)) {
            let budgets: Vec<u64> = slots.iter().map(|(budget, _)| *budget).collect();
            let times: Vec<Option<u64>> = slots.iter().map(|(_, time)| Some(*time)).collect();
            let ran = run(&mut cycle(&budgets), &times, 400);
            let slices = ran.chunk_by(|a, b| a.0 == b.0 && slots.len() > 1);
            let slices: Vec<(u32, u64)> = slices.map(|slice| (slice[0].0, slice.len() as u64)).collect();
            for (position, &(model, batches)) in slices.iter().enumerate().take(slices.len() - 1) {
                prop_assert_eq!(model as usize, position % slots.len());
                let (budget, time) = slots[model as usize];
                if slots.len() > 1 {
                    prop_assert!((batches * time).abs_diff(budget) < time || batches == 1, "{batches} of {time}");
                }
            }
        }
    }
}
