//! S1 to S4 of [`Sequences`], step by step and under random events.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use router_core::{
    CorrelationId, Nanos, Reason, RequestId, SequenceEffect, SequenceLimits, SequenceRequest, Sequences,
};

const IDLE_MS: u64 = 100;

struct World {
    sequences: Sequences,
    now: Nanos,
    issued: u32,
    /// Order of arrival by sequence.
    arrived: BTreeMap<u64, Vec<u32>>,
    of: BTreeMap<u32, u64>,
    held: BTreeSet<u32>,
    running: BTreeMap<u64, u32>,
    released: Vec<u32>,
    refused: Vec<(u32, Reason)>,
    ended: Vec<u64>,
}

impl World {
    fn new(slots: u32, held: u32) -> Self {
        let limits = SequenceLimits { slots, held, idle: Nanos::from_millis(IDLE_MS) };
        Self {
            sequences: Sequences::new(limits),
            now: Nanos::ZERO,
            issued: 0,
            arrived: BTreeMap::new(),
            of: BTreeMap::new(),
            held: BTreeSet::new(),
            running: BTreeMap::new(),
            released: Vec::new(),
            refused: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn carry_out(&mut self, effects: Vec<SequenceEffect>) {
        for effect in effects {
            match effect {
                SequenceEffect::Release(request) => {
                    let slot = request.slot();
                    let sequence = *self.of.get(&slot).unwrap();
                    assert!(self.held.remove(&slot), "S3: released twice, or after it was refused");
                    assert_eq!(self.running.insert(sequence, slot), None, "S1: two at a time");
                    let arrived = self.arrived.get(&sequence).unwrap();
                    let mut before = arrived.iter().take_while(|other| **other != slot);
                    assert!(before.all(|other| !self.held.contains(other)), "S1: out of order");
                    self.released.push(slot);
                }
                SequenceEffect::Finish { request, reason, .. } => {
                    assert!(self.held.remove(&request.slot()), "S3: {request:?} ended twice");
                    self.refused.push((request.slot(), reason));
                }
                SequenceEffect::Ended(CorrelationId::Number(id)) => self.ended.push(id),
                SequenceEffect::Ended(CorrelationId::Text(_)) => unreachable!("no texts were sent"),
            }
        }
        assert_eq!(self.sequences.held() as usize, self.held.len());
        assert_eq!(invariant::violations(), []);
    }

    fn arrive(&mut self, sequence: u64, flags: &str) -> u32 {
        self.arrive_until(sequence, flags, None)
    }

    fn arrive_until(&mut self, sequence: u64, flags: &str, deadline: Option<Nanos>) -> u32 {
        self.issued += 1;
        let slot = self.issued;
        self.arrived.entry(sequence).or_default().push(slot);
        self.of.insert(slot, sequence);
        self.held.insert(slot);
        let request = SequenceRequest {
            request: RequestId::new(slot, 0),
            id: CorrelationId::Number(sequence),
            start: flags.contains('s'),
            end: flags.contains('e'),
            deadline,
        };
        let mut effects = Vec::new();
        self.sequences.arrive(self.now, request, &mut effects);
        self.carry_out(effects);
        slot
    }

    fn end(&mut self, sequence: u64, ran: bool) {
        let Some(slot) = self.running.remove(&sequence) else { return };
        let mut effects = Vec::new();
        self.sequences.ended(self.now, RequestId::new(slot, 0), ran, &mut effects);
        self.carry_out(effects);
    }

    fn cancel(&mut self, slot: u32) {
        let mut effects = Vec::new();
        let was_held = self.sequences.cancel(self.now, RequestId::new(slot, 0), &mut effects);
        assert_eq!(was_held, self.held.contains(&slot));
        self.carry_out(effects);
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now.after(Nanos::from_millis(ms));
        while let Some(at) = self.sequences.next_wake().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let mut effects = Vec::new();
            self.sequences.tick(self.now, &mut effects);
            self.carry_out(effects);
            assert!(self.sequences.next_wake().is_none_or(|next| next > self.now), "a wake-up would spin");
        }
        self.now = until;
    }

    fn refusal(&self, slot: u32) -> Option<Reason> {
        self.refused.iter().find(|(other, _)| *other == slot).map(|(_, reason)| *reason)
    }
}

#[test]
fn requests_of_a_sequence_run_one_after_another() {
    let mut world = World::new(2, 16);
    let first = world.arrive(7, "s");
    let (second, third) = (world.arrive(7, ""), world.arrive(7, "e"));
    assert_eq!(world.released, [first]);
    world.end(7, true);
    assert_eq!(world.released, [first, second]);
    world.end(7, true);
    world.end(7, true);
    assert_eq!((world.released.clone(), world.ended.clone()), (vec![first, second, third], vec![7]));
}

#[test]
fn a_sequence_must_start_and_not_go_on_after_its_end() {
    let mut world = World::new(2, 16);
    let unknown = world.arrive(7, "");
    assert_eq!(world.refusal(unknown), Some(Reason::SequenceNotStarted));
    world.arrive(7, "se");
    let late = world.arrive(7, "");
    assert_eq!(world.refusal(late), Some(Reason::SequenceNotStarted));
    let again = world.arrive(7, "s");
    world.end(7, true);
    assert!(world.released.contains(&again), "the next sequence of the same id follows");
}

#[test]
fn sequences_without_a_slot_wait_in_the_order_of_their_arrival() {
    let mut world = World::new(1, 16);
    let first = world.arrive(1, "s");
    let (second, third) = (world.arrive(2, "se"), world.arrive(3, "se"));
    world.end(1, true);
    assert_eq!(world.released, [first], "sequence 1 keeps its slot");
    assert_eq!((world.sequences.with_slot(), world.sequences.backlog()), (1, 2));
    let last = world.arrive(1, "e");
    world.end(1, true);
    world.end(2, true);
    assert_eq!(world.released, [first, last, second, third]);
}

#[test]
fn an_idle_sequence_loses_its_slot() {
    let mut world = World::new(1, 16);
    world.arrive(1, "s");
    let waiting = world.arrive(2, "se");
    world.pass(10 * IDLE_MS);
    assert_eq!(world.ended, [], "a sequence whose request runs is not idle");
    world.end(1, true);
    world.pass(IDLE_MS - 1);
    assert_eq!(world.ended, []);
    world.pass(1);
    assert_eq!((world.ended.clone(), world.released.last()), (vec![1], Some(&waiting)));
    let late = world.arrive(1, "");
    assert_eq!(world.refusal(late), Some(Reason::SequenceNotStarted));
}

#[test]
fn a_sequence_ends_with_a_request_that_did_not_run() {
    let mut world = World::new(2, 16);
    world.arrive(1, "s");
    let (next, last) = (world.arrive(1, ""), world.arrive(1, "e"));
    let again = world.arrive(1, "s");
    world.end(1, false);
    assert_eq!([next, last].map(|slot| world.refusal(slot)), [Some(Reason::SequenceEnded); 2]);
    assert_eq!(world.released.last(), Some(&again), "the sequence that starts after it is another one");

    world.arrive(2, "s");
    let (held, after) = (world.arrive(2, ""), world.arrive(2, "e"));
    world.cancel(held);
    assert_eq!(world.refusal(held), Some(Reason::ClientDisconnected));
    assert_eq!(world.refusal(after), Some(Reason::SequenceEnded));
}

#[test]
fn a_request_in_the_backlog_is_refused_at_its_deadline() {
    let mut world = World::new(1, 16);
    world.arrive(1, "s");
    let deadline = Some(Nanos::from_millis(50));
    let (start, next) = (world.arrive_until(2, "s", deadline), world.arrive(2, ""));
    world.pass(50);
    assert_eq!(world.refusal(start), Some(Reason::DeadlinePassed));
    assert_eq!(world.refusal(next), Some(Reason::SequenceEnded));
    assert_eq!(world.sequences.backlog(), 0);
}

#[test]
fn no_more_requests_are_held_than_the_limit() {
    let mut world = World::new(1, 2);
    world.arrive(1, "s");
    world.arrive(1, "");
    world.arrive(2, "s");
    let beyond = world.arrive(3, "s");
    assert_eq!(world.refusal(beyond), Some(Reason::QueueFull));
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { sequence: u64, start: bool, end: bool, slack_ms: Option<u64> },
    End { sequence: u64, ran: bool },
    Cancel { nth: u32 },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let arrive =
        (0_u64..6, prop::bool::weighted(0.4), prop::bool::weighted(0.3), prop::option::of(0_u64..200));
    prop_oneof![
        8 => arrive.prop_map(|(sequence, start, end, slack_ms)| Step::Arrive { sequence, start, end, slack_ms }),
        8 => (0_u64..6, prop::bool::weighted(0.85)).prop_map(|(sequence, ran)| Step::End { sequence, ran }),
        1 => (1_u32..60).prop_map(|nth| Step::Cancel { nth }),
        2 => (0_u64..150).prop_map(|ms| Step::Pass { ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn s1_to_s4_hold_under_random_events(slots in 1_u32..4, steps in prop::collection::vec(step(), 0..150)) {
        let mut world = World::new(slots, 12);
        for step in steps {
            match step {
                Step::Arrive { sequence, start, end, slack_ms } => {
                    let flags = [if start { "s" } else { "" }, if end { "e" } else { "" }].concat();
                    let deadline = slack_ms.map(|slack| world.now.after(Nanos::from_millis(slack)));
                    world.arrive_until(sequence, &flags, deadline);
                }
                Step::End { sequence, ran } => world.end(sequence, ran),
                Step::Cancel { nth } => {
                    if world.held.contains(&nth) {
                        world.cancel(nth);
                    }
                }
                Step::Pass { ms } => world.pass(ms),
            }
            prop_assert!(world.sequences.with_slot() <= slots, "S2");
            prop_assert!(world.running.len() <= slots as usize, "S2");
            prop_assert!(world.held.len() <= 12);
        }
        for _ in 0..200 {
            (0..6).for_each(|sequence| world.end(sequence, true));
            world.pass(2 * IDLE_MS);
        }
        prop_assert!(world.held.is_empty(), "S3: {:?} wait forever", world.held);
        prop_assert_eq!((world.sequences.with_slot(), world.sequences.backlog()), (0, 0), "S4");
        prop_assert_eq!(world.released.len() + world.refused.len(), world.issued as usize);
    }

    #[test]
    fn closing_refuses_all_that_is_held(slots in 1_u32..4, arrivals in prop::collection::vec((0_u64..6, any::<bool>()), 0..30)) {
        let mut world = World::new(slots, 12);
        for (sequence, end) in arrivals {
            world.arrive(sequence, if end { "se" } else { "s" });
        }
        let mut effects = Vec::new();
        world.sequences.close(world.now, Reason::Draining, &mut effects);
        world.carry_out(effects);
        prop_assert!(world.held.is_empty());
        (0..6).for_each(|sequence| world.end(sequence, true));
        prop_assert_eq!(world.sequences.with_slot(), 0);
        let late = world.arrive(9, "s");
        prop_assert_eq!(world.refusal(late), Some(Reason::Draining));
    }
}
