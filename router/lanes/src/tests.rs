use std::sync::Arc;

use gpulet_core::control::Model;
use gpulet_core::plan::{Gpulet, Slot, Window};
use gpulet_core::profile::{Cell, Header, Line, Profile, Source};
use gpulet_core::rollout::{self, Active, GpuletId, Route, RouteSlot};
use router_core::{
    Cycle, CycleSlot, LaneClass, LaneClassTimes, LaneId, ModelId, ModelLanes, Nanos, ProfilePoint,
    QuotaUnits, TimeQuota,
};

use super::*;

const MS: u64 = 1_000_000;

/// Median microseconds by batch and units, on devices of type `toy` with two units.
fn profile(model: &str, cells: &[(u32, u32, f64)]) -> Profile {
    let header = Header {
        version: 1,
        model: model.to_owned(),
        model_sha256: None,
        device: "toy".to_owned(),
        engine: "none".to_owned(),
        source: Source::TypedIn,
        note: String::new(),
        shapes: Vec::new(),
        units_total: 2,
        weights_bytes: None,
        load_us_per_row: 0.0,
    };
    let cell = |&(batch, units, us): &(u32, u32, f64)| {
        let (count, doubt, left_out) = (1, None, None);
        Line::Cell(Cell {
            batch,
            units,
            p50_us: us,
            p95_us: us,
            p99_us: us,
            count,
            doubt,
            left_out,
            predicted: None,
        })
    };
    let lines = [Line::Profile(header)].into_iter().chain(cells.iter().map(cell));
    Profile::of_lines(lines).unwrap().remove(0)
}

/// 10 ms for a batch of up to 8 on one unit, 5 ms on both.
fn model(name: &str) -> Model {
    let cells = [(1, 1, 10e3), (8, 1, 10e3), (1, 2, 5e3), (8, 2, 5e3)];
    Model {
        name: name.to_owned(),
        model: name.to_owned(),
        slo_us: 50e3,
        batch_max: 8,
        profiles: Ok(Arc::from([profile(name, &cells)])),
        load_us: gpulet_core::time::Micros::ZERO,
        may_leave: false,
        is_waited_for: false,
        replicas_min: 1,
        has_place: true,
        stages: Vec::new(),
    }
}

fn id(number: u64) -> GpuletId {
    GpuletId { epoch: rollout::Epoch(0), number }
}

fn active(number: u64, device: &str, units: u32, models: &[&str], rate: f64) -> Active {
    let slot = |name: &&str| Slot { workload: (*name).to_owned(), batch: 4, budget_us: 5e3, rate };
    let gpulet = Gpulet {
        device: device.into(),
        first_unit: 0,
        units,
        window: None,
        duty_us: None,
        slots: models.iter().map(slot).collect(),
    };
    Active { id: id(number), gpulet, after: Vec::new() }
}

fn table(active: Vec<Active>, routes: &[(&str, &[u64])]) -> rollout::Switch {
    let slot = |number: &u64| RouteSlot { gpulet: id(*number), batch: 4, budget_us: 5e3, rate: 1.0 };
    let route = |(name, gpulets): &(&str, &[u64])| Route {
        workload: (*name).to_owned(),
        slots: gpulets.iter().map(slot).collect(),
    };
    let routes = routes.iter().map(route).collect();
    rollout::Switch {
        epoch: rollout::Epoch(1),
        proposal: rollout::ProposalId(1),
        is_rollback: false,
        active,
        draining: vec![id(9)],
        routes,
    }
}

fn lane(gpulet: GpuletId) -> Option<LaneId> {
    Some(LaneId(u32::try_from(gpulet.number).unwrap()))
}

fn classes() -> LaneClasses {
    LaneClasses::new([("toy-0", "toy"), ("toy-1", "toy")])
}

#[test]
fn gpulets_become_lanes_with_classes_times_and_time_slices() {
    let models = [model("a"), model("b"), model("elsewhere")];
    let version =
        |(id, at): (u32, usize)| Version { id: ModelId(id), model: &models[at], row_bytes: Some(4) };
    let versions = [(10, 0), (11, 0), (20, 1), (30, 2)].map(version);
    let shared = active(0, "toy-0", 2, &["a", "b"], 1.0);
    let alone = Active { after: vec![id(9), id(77)], ..active(1, "toy-1", 1, &["b"], 1.0) };
    let table = table(vec![shared, alone], &[("a", &[0]), ("b", &[0, 1])]);
    let lane = |gpulet: GpuletId| (gpulet.number != 77).then(|| lane(gpulet)).flatten();
    let switch = lanes_of(&table, lane, &versions, &mut classes()).unwrap();

    let slice = |id| CycleSlot { model: ModelId(id), rows: 4, budget: Nanos(5 * MS) };
    let cycle = Cycle::new(vec![slice(10), slice(11), slice(20)]).unwrap();
    assert_eq!(switch.up[0].spec.cycle, Some(cycle), "every version of `a` has the time slice of `a`");
    assert_eq!(switch.up[1].spec.cycle, None, "a single model needs no time slices");
    assert_eq!(switch.up[1].after, [LaneId(9)], "a gpulet that was closed holds no batch");
    assert_eq!(
        [0, 1].map(|at| switch.up[at].spec.lane_class),
        [LaneClass(1), LaneClass(2)],
        "two units and one"
    );
    assert_eq!(switch.drain, [LaneId(9)]);

    let points = |time| {
        let point = |rows| ProfilePoint { rows, row_bytes: 4, time: Nanos(time) };
        [1, 2, 4, 8].map(point).to_vec()
    };
    let (both, one) = (points(5 * MS), points(10 * MS));
    assert_eq!(switch.models[0].times, [LaneClassTimes { lane_class: LaneClass(1), profile: both.clone() }]);
    assert_eq!(switch.models[2].lanes, ModelLanes::Only(vec![LaneId(0), LaneId(1)]));
    let times = [(1, both), (2, one)]
        .map(|(lane_class, profile)| LaneClassTimes { lane_class: LaneClass(lane_class), profile });
    assert_eq!(switch.models[2].times, times);
    assert_eq!(switch.models[3].lanes, ModelLanes::Only(Vec::new()), "a model without a route runs nowhere");
}

#[test]
fn the_most_urgent_batch_runs_next_where_no_rate_was_planned() {
    let models = [model("a"), model("b")];
    let versions = [0, 1].map(|at| Version { id: ModelId(at), model: &models[at as usize], row_bytes: None });
    let table = table(vec![active(0, "toy-0", 2, &["a", "b"], 0.0)], &[("a", &[0]), ("b", &[0])]);
    let switch = lanes_of(&table, lane, &versions, &mut classes()).unwrap();
    assert_eq!(switch.up[0].spec.cycle, None);
    assert!(switch.models[0].times.is_empty(), "rows of unknown size: the router measures the times");
}

#[test]
fn a_gpulet_without_a_lane_is_named() {
    let table = table(vec![active(3, "toy-0", 2, &["a"], 1.0)], &[]);
    let error = lanes_of(&table, |_| None, &[], &mut classes()).unwrap_err();
    assert_eq!(error.to_string(), "gpulet 0.3 has no lane");
}

#[test]
fn lanes_of_the_same_size_on_the_same_device_type_share_a_class() {
    let mut classes = classes();
    let found = [("toy-0", 1), ("toy-1", 1), ("toy-0", 2), ("other", 1)]
        .map(|(device, units)| classes.of(&device.into(), units));
    assert_eq!(found, [1, 1, 2, 3].map(LaneClass));
}

#[test]
fn a_batch_beyond_the_profile_runs_as_several_of_the_largest_measured_on_that_share() {
    // Batches of 8 do not fit on one unit: the profile's largest batch, 8, was measured on two units only.
    let cells = [(1, 1, 4e3), (4, 1, 10e3), (1, 2, 2e3), (4, 2, 5e3), (8, 2, 9e3)];
    let profile = profile("m", &cells);
    let time = |rows, units| batch_time(&profile, rows, units).map(|time| time.0 / MS);
    assert_eq!((time(8, 2), time(16, 2), time(20, 2)), (Some(9), Some(18), Some(23)));
    assert_eq!((time(4, 1), time(8, 1), time(9, 1)), (Some(10), Some(20), Some(24)));
    assert_eq!(time(1, 3), None, "nothing was measured on three units");
}

#[test]
fn a_batch_smaller_than_any_measured_one_takes_as_long_as_the_smallest() {
    let profile = profile("m", &[(4, 2, 5e3), (8, 2, 9e3)]);
    let time = |rows| batch_time(&profile, rows, 2).map(|time| time.0 / MS);
    assert_eq!((time(1), time(9)), (Some(5), Some(14)));
}

#[test]
fn there_are_four_lanes_for_each_unit_within_the_bound() {
    assert_eq!(lanes_max([4, 2], 3), 24);
    assert_eq!(lanes_max([1_000; 100], 1), LANES_MAX);
    assert_eq!((lanes_max([], 0), lanes_max([], 3), lanes_max([1], 70_000)), (1, 3, 70_000));
    assert_eq!(free_lane(3, |lane| lane == 0), Ok(1));
    assert_eq!(free_lane(3, |_| true).unwrap_err().to_string(), "all 3 lanes are in use");
}

/// A gpulet with half of a 20 ms window from `offset_ms` on.
fn timed(number: u64, device: &str, offset_ms: f64, limit_us: Option<f64>) -> Active {
    let mut active = active(number, device, 2, &["a"], 1.0);
    active.gpulet.window =
        Some(Window { period_us: 20e3, offset_us: 1e3 * offset_ms, length_us: 10e3, limit_us });
    active
}

#[test]
fn the_window_of_a_gpulet_is_the_time_quota_of_its_lane() {
    let models = [model("a")];
    let versions = [Version { id: ModelId(0), model: &models[0], row_bytes: Some(4) }];
    let always = active(2, "toy-0", 1, &["a"], 1.0);
    let table = table(
        vec![
            timed(0, "toy-0", 0.0, None),
            timed(1, "toy-0", 10.0, Some(15e3)),
            always,
            timed(3, "toy-1", 10.0, None),
        ],
        &[("a", &[0, 1, 2, 3])],
    );
    let quotas = |mut classes: LaneClasses| {
        let switch = lanes_of(&table, lane, &versions, &mut classes).unwrap();
        switch.up.into_iter().map(|up| up.spec.quota.unwrap()).collect::<Vec<TimeQuota>>()
    };
    let quota = TimeQuota {
        device: 0,
        device_units: 2,
        units: 2,
        which: QuotaUnits::Any,
        window: Nanos(20 * MS),
        offset: Nanos::ZERO,
        request: Nanos(10 * MS),
        limit: Nanos(20 * MS),
        batch: Nanos(5 * MS - 1_000),
        rows: 4,
    };
    let later = TimeQuota { offset: Nanos(10 * MS), ..quota };
    let whole = TimeQuota { units: 1, request: Nanos(20 * MS), ..quota };
    let expected =
        [quota, TimeQuota { limit: Nanos(15 * MS), ..later }, whole, TimeQuota { device: 1, ..later }];
    assert_eq!(quotas(classes().on_any_units(["toy-0", "toy-1"])), expected);
    let from = quotas(classes()).into_iter().map(|quota| quota.which).collect::<Vec<_>>();
    assert_eq!(from, [QuotaUnits::From(0); 4], "cores are certain ones");
}
