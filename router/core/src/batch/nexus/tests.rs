use super::super::Scene;
use super::*;
use crate::{CostModel, ProfilePoint};

fn nexus(drop: Option<DropMode>, assignments: &[(u32, f64, u32)]) -> Nexus {
    let mut policy = Nexus::new(&BatchOptions { drop, ..BatchOptions::default() }).unwrap();
    let assignment = |&(lane, rate, batch): &(u32, f64, u32)| Assignment { lane: LaneId(lane), rate, batch };
    policy.assign(assignments.iter().map(assignment).collect());
    policy
}

/// On lane 0; a batch takes 2 ms and 1 ms a row; requests of one row that came at the origin are due at these times.
fn scene(due_us: &[u64]) -> Scene {
    let mut scene = Scene::new(&[(1, 3_000), (32, 34_000)]);
    scene.only = Some(LaneId(0));
    for &due in due_us {
        scene.arrive(0, Some(due));
    }
    scene
}

fn decided(policy: &Nexus, micros: u64, scene: &Scene) -> Result<Proposal, Nanos> {
    match policy.decide(Nanos::from_micros(micros), &scene.view()) {
        Decision::Fire(proposal) => Ok(proposal),
        Decision::Wait(until) => Err(until),
    }
}

#[test]
fn a_lane_takes_the_planned_batch_or_what_there_is() {
    let policy = nexus(None, &[(0, 100.0, 8)]);
    let sized =
        |waiting| decided(&policy, 0, &scene(&vec![50_000; waiting])).map(|proposal| (proposal.take, proposal.reason));
    assert_eq!(sized(20), Ok((8, StartReason::Planned)));
    assert_eq!(sized(3), Ok((3, StartReason::LaneFree)));
    let unplanned = nexus(None, &[]);
    assert_eq!(decided(&unplanned, 0, &scene(&[20_500; 20])).unwrap().take, 8, "twice L(8) in the objective");
}

#[test]
fn requests_that_would_shrink_the_batch_are_dropped() {
    let policy = nexus(None, &[(0, 100.0, 4)]);
    let proposal = decided(&policy, 0, &scene(&[5_500, 5_900, 6_100, 7_000, 8_000, 9_000, 9_000])).unwrap();
    assert_eq!((proposal.skip, proposal.take), (2, 4), "L(4) is 6 ms");
}

#[test]
fn the_window_shrinks_with_what_is_left() {
    let policy = nexus(None, &[(0, 100.0, 4)]);
    let proposal = decided(&policy, 0, &scene(&[3_500, 4_500, 4_600, 4_700])).unwrap();
    assert_eq!((proposal.skip, proposal.take), (2, 2), "two are passed over for 4 and for 3, two are in time for 2");
}

#[test]
fn lazy_drop_keeps_the_oldest_and_takes_what_it_has_time_for() {
    let policy = nexus(Some(DropMode::Lazy), &[(0, 100.0, 4)]);
    assert_eq!(policy.drop_mode(), DropMode::Lazy);
    let proposal = decided(&policy, 0, &scene(&[4_500, 15_000, 15_000, 15_000])).unwrap();
    assert_eq!((proposal.skip, proposal.take), (0, 2));
    let proposal = decided(&policy, 0, &scene(&[1_000, 15_000, 15_000])).unwrap();
    assert_eq!((proposal.skip, proposal.take), (1, 2), "the first is late even alone");
    assert_eq!(decided(&policy, 0, &scene(&[1_000, 2_000])).unwrap().take, 1, "so are both");
}

#[test]
fn a_fixed_size_stands_in_for_the_planned_one() {
    let fixed = |preferred: &[u32]| {
        Nexus::new(&BatchOptions { preferred: preferred.to_vec(), ..BatchOptions::default() })
    };
    let mut policy = fixed(&[6]).unwrap();
    policy.assign(vec![Assignment { lane: LaneId(0), rate: 1.0, batch: 2 }]);
    assert_eq!(decided(&policy, 0, &scene(&[50_000; 20])).unwrap().take, 6);
    let error = fixed(&[4, 8]).unwrap_err().to_string();
    assert_eq!(
        error,
        "preferred: expected one size of 1 row or more, which is used in place of the planned ones"
    );
}

#[test]
fn requests_are_dealt_out_in_proportion_to_the_rates() {
    let mut policy = nexus(None, &[(0, 30.0, 4), (3, 60.0, 4), (5, 15.0, 4)]);
    let mut count = [0; 6];
    for _ in 0..700 {
        count[policy.bind().unwrap().0 as usize] += 1;
    }
    assert_eq!(count, [200, 0, 0, 400, 0, 100]);
    assert_eq!(nexus(None, &[]).bind(), None);
}

#[test]
fn the_model_that_ran_longest_ago_on_the_lane_is_next() {
    let (mut one, mut other) = (nexus(None, &[(0, 1.0, 4), (1, 1.0, 4)]), nexus(None, &[(0, 1.0, 4)]));
    one.fired(Nanos(7), LaneId(0));
    one.fired(Nanos(12), LaneId(1));
    other.fired(Nanos(9), LaneId(0));
    let rank = |policy: &Nexus| decided(policy, 0, &scene(&[50_000])).unwrap().rank;
    assert!(rank(&one) < rank(&other));
    one.assign(vec![
        Assignment { lane: LaneId(1), rate: 2.0, batch: 4 },
        Assignment { lane: LaneId(0), rate: 1.0, batch: 4 },
    ]);
    assert_eq!(rank(&one), 7, "a new plan keeps the position in the round");
}

#[test]
fn a_plan_covers_all_lanes_and_models_and_nothing_is_planned_without_a_rate() {
    let points: Vec<_> = [(1, 3_000), (32, 34_000)]
        .map(|(rows, micros)| ProfilePoint { rows, row_bytes: 64, time: Nanos::from_micros(micros) })
        .into();
    let cost = CostModel::from_profile(&points);
    let session =
        |rate| Session { rate, slo: Nanos::from_millis(60), max_batch: 32, row_bytes: 64, cost: &cost };
    let lanes = [LaneId(2), LaneId(4), LaneId(7)];
    let policy = nexus(None, &[]);
    let plan = policy.plan(&[session(900.0), session(20.0), session(0.0)], &lanes);
    assert_eq!(plan.len(), 3);
    assert!(plan.iter().all(|assignments| !assignments.is_empty()));
    for lane in lanes {
        assert!(plan.iter().flatten().any(|assignment| assignment.lane == lane));
    }
    assert!(policy.plan(&[session(0.0), session(0.0)], &lanes).iter().all(Vec::is_empty));
}
