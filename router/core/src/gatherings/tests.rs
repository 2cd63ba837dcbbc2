use std::collections::BTreeMap;

use crate::{Class, ShapeKey, Tenant};
use proptest::prelude::*;

use super::*;

const WAIT: Nanos = Nanos::from_millis(2);
const OPEN: usize = 3;

fn at_us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn arrival(slot: u32, model: u32, rows: u32, deadline: Option<Nanos>) -> Arrival {
    Arrival {
        request: RequestId::new(slot, 0),
        model: ModelId(model),
        class: Class::default(),
        tenant: Tenant::default(),
        shape: ShapeKey(0),
        rows,
        bytes: 1,
        deadline,
        timeout_action: Default::default(),
        pipeline: None,
    }
}

fn slots(released: Option<Vec<Arrival>>) -> Option<Vec<u32>> {
    Some(released?.iter().map(|arrival| arrival.request.slot()).collect())
}

/// What is released, by slot.
fn released(gatherings: &mut Gatherings) -> Vec<Vec<u32>> {
    std::iter::from_fn(|| slots(gatherings.next_released())).collect()
}

fn counts(complete: u64, incomplete: u64, too_many: u64) -> GatherCounts {
    GatherCounts { complete, incomplete, too_many }
}

#[test]
fn a_batch_goes_when_its_last_rows_come() {
    let mut g = Gatherings::new(WAIT, OPEN);
    let of = |batch: u64| Gather { batch, rows: 4 };
    g.arrive(at_us(0), of(7), arrival(1, 0, 1, None));
    g.arrive(at_us(10), of(7), arrival(2, 1, 1, None));
    g.arrive(at_us(20), of(8), arrival(3, 0, 1, None));
    g.arrive(at_us(30), of(7), arrival(4, 0, 2, None));
    assert!(g.next_released().is_none(), "model 0 has 3 of 4 rows of batch 7");
    g.arrive(at_us(40), of(7), arrival(5, 0, 1, None));
    assert_eq!(released(&mut g), [[1, 4, 5]]);
    assert_eq!((g.next_wake(), g.counts()), (Some(at_us(2_010)), counts(1, 0, 0)));
}

#[test]
fn a_batch_goes_without_what_has_not_come_in_time() {
    let mut g = Gatherings::new(WAIT, OPEN);
    let of = |batch: u64| Gather { batch, rows: 4 };
    g.arrive(at_us(0), of(1), arrival(1, 0, 1, None));
    g.arrive(at_us(1_000), of(1), arrival(2, 0, 1, None));
    g.arrive(at_us(1_000), of(2), arrival(3, 0, 1, Some(at_us(1_500))));
    assert_eq!(g.next_wake(), Some(at_us(1_500)), "a deadline is not waited past");
    g.tick(at_us(1_499));
    assert!(g.next_released().is_none());
    g.tick(at_us(1_500));
    assert_eq!(released(&mut g), [[3]]);
    g.tick(at_us(2_000));
    assert_eq!(released(&mut g), [[1, 2]]);
    assert_eq!((g.next_wake(), g.counts()), (None, counts(0, 2, 0)));
}

#[test]
fn a_batch_does_not_wait_for_clients_that_left() {
    let mut g = Gatherings::new(WAIT, OPEN);
    let gather = Gather { batch: 1, rows: 4 };
    g.arrive(at_us(0), gather, arrival(1, 0, 1, None));
    g.arrive(at_us(0), gather, arrival(2, 0, 1, None));
    assert!(g.cancel(RequestId::new(1, 0)) && !g.cancel(RequestId::new(1, 0)));
    g.absent(ModelId(0), gather, 1);
    assert!(g.next_released().is_none());
    g.arrive(at_us(9), gather, arrival(3, 0, 1, None));
    assert_eq!(released(&mut g), [[2, 3]]);
    assert!(!g.cancel(RequestId::new(2, 0)), "the core has it");

    g.arrive(at_us(10), gather, arrival(4, 0, 3, None));
    assert!(g.cancel(RequestId::new(4, 0)));
    g.absent(ModelId(0), gather, 1);
    assert_eq!((g.next_wake(), released(&mut g).len()), (None, 0), "all of its clients left");
    assert_eq!(g.counts(), counts(1, 0, 0));
}

#[test]
fn beyond_the_limit_and_after_a_drain_requests_do_not_wait() {
    let mut g = Gatherings::new(WAIT, OPEN);
    let of = |batch: u64| Gather { batch, rows: 2 };
    for slot in 0..3 {
        g.arrive(at_us(0), of(u64::from(slot)), arrival(slot, slot / 2, 1, None));
    }
    g.arrive(at_us(0), of(3), arrival(3, 0, 1, None));
    g.arrive(at_us(0), of(4), arrival(4, 0, 2, None));
    assert_eq!((released(&mut g), g.counts()), (vec![vec![3], vec![4]], counts(1, 0, 1)));
    g.release_model(ModelId(0));
    assert_eq!(released(&mut g), [[0], [1]]);
    g.close();
    assert_eq!(released(&mut g), [[2]]);
    g.arrive(at_us(0), of(5), arrival(5, 0, 1, None));
    assert_eq!((released(&mut g), g.counts()), (vec![vec![5]], counts(1, 3, 1)));
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { model: u32, batch: u64, of: u32, rows: u32, slack_us: Option<u64> },
    Cancel { nth: usize },
    Absent { model: u32, batch: u64 },
    Pass { micros: u64 },
    ReleaseModel { model: u32 },
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let mark = (0_u32..2, 0_u64..4, 1_u32..7);
    let slack = prop::option::of(0_u64..4_000);
    prop_oneof![
        20 => (mark, 0_u32..4, slack).prop_map(|((model, batch, of), rows, slack_us)| Step::Arrive {
            model, batch, of, rows, slack_us
        }),
        5 => (0_usize..64).prop_map(|nth| Step::Cancel { nth }),
        2 => (0_u32..2, 0_u64..4).prop_map(|(model, batch)| Step::Absent { model, batch }),
        8 => (0_u64..1_500).prop_map(|micros| Step::Pass { micros }),
        1 => (0_u32..2).prop_map(|model| Step::ReleaseModel { model }),
        1 => Just(Step::Close),
    ]
}

/// A request that is held, and when it must be released.
type Held = BTreeMap<u32, Nanos>;

/// Takes what was released out of `held`. Nothing else may be released.
fn collect(g: &mut Gatherings, held: &mut Held) {
    for batch in released(g) {
        assert!(!batch.is_empty());
        for slot in batch {
            assert!(held.remove(&slot).is_some(), "G1: {slot} was released twice or after it was cancelled");
        }
    }
    assert!(g.open.len() <= OPEN, "G3");
    assert_eq!(g.ends.len(), g.open.len());
    assert_eq!(g.requests.len(), held.len());
    assert_eq!(g.open.values().map(|one| one.held.len()).sum::<usize>(), held.len());
}

proptest! {
    #[test]
    fn every_request_is_released_or_cancelled_once_and_in_time(steps in prop::collection::vec(step(), 0..200)) {
        let mut g = Gatherings::new(WAIT, OPEN);
        let mut held = Held::new();
        let mut now = Nanos::ZERO;
        for (slot, step) in (0_u32..).zip(steps) {
            match step {
                Step::Arrive { model, batch, of, rows, slack_us } => {
                    let deadline = slack_us.map(|slack| now.after(at_us(slack)));
                    let longest = now.after(WAIT);
                    held.insert(slot, deadline.map_or(longest, |deadline| deadline.min(longest)));
                    g.arrive(now, Gather { batch, rows: of }, arrival(slot, model, rows, deadline));
                }
                Step::Cancel { nth } => {
                    let slot = held.keys().nth(nth % held.len().max(1)).copied();
                    if let Some(slot) = slot {
                        held.remove(&slot);
                        prop_assert!(g.cancel(RequestId::new(slot, 0)));
                    }
                }
                Step::Absent { model, batch } => g.absent(ModelId(model), Gather { batch, rows: 1 }, 1),
                Step::Pass { micros } => {
                    now = now.after(at_us(micros));
                    g.tick(now);
                    collect(&mut g, &mut held);
                    prop_assert!(g.next_wake().is_none_or(|wake| wake > now), "a wake-up in the past would spin");
                    prop_assert!(held.values().all(|due| *due > now), "G2");
                }
                Step::ReleaseModel { model } => g.release_model(ModelId(model)),
                Step::Close => {
                    g.close();
                    collect(&mut g, &mut held);
                    prop_assert!(held.is_empty());
                }
            }
            collect(&mut g, &mut held);
        }
        g.close();
        collect(&mut g, &mut held);
        prop_assert!(held.is_empty(), "G1");
        prop_assert!(g.next_wake().is_none());
    }
}
