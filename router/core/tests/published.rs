//! Numbers that were published for the policies, or computed from what was.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use router_core::Nanos;
use router_core::batch::packing::{Demand, Node, merge, pack, residue, saturate};
use router_core::bound::{staggered, uncoordinated};

/// Nexus' example: batch times of models A, B and C at 4, 8 and 16 rows in milliseconds, straight lines between.
const TABLE: [[f64; 3]; 3] = [[50.0, 75.0, 100.0], [50.0, 90.0, 125.0], [60.0, 95.0, 125.0]];

/// Their objectives in milliseconds.
const OBJECTIVES: [u64; 3] = [200, 250, 250];

/// Largest batch in the table.
const MAX_BATCH: u32 = 16;

fn time(model: usize, rows: u32) -> Nanos {
    let [at_4, at_8, at_16] = TABLE[model];
    let rows = f64::from(rows);
    let (from, low, high, span) = if rows <= 8.0 { (4.0, at_4, at_8, 4.0) } else { (8.0, at_8, at_16, 8.0) };
    Nanos(((low + (rows - from) * (high - low) / span) * 1e6).round() as u64)
}

/// With A, B and C at these rates.
fn with_rates<R>(rates: [f64; 3], run: impl FnOnce(&[Demand<'_>]) -> R) -> R {
    let times: [&dyn Fn(u32) -> Nanos; 3] =
        [&|rows| time(0, rows), &|rows| time(1, rows), &|rows| time(2, rows)];
    let demand = |model: usize| Demand {
        rate: rates[model],
        slo: Nanos::from_millis(OBJECTIVES[model]),
        max_batch: MAX_BATCH,
        time: times[model],
    };
    run(&[demand(0), demand(1), demand(2)])
}

fn batches(node: &Node) -> Vec<(usize, u32)> {
    node.shares.iter().map(|share| (share.session, share.batch)).collect()
}

#[test]
fn nexus_saturates_a_lane_with_sixteen_rows_of_each_model() {
    let saturated =
        |model: usize| saturate(Nanos::from_millis(OBJECTIVES[model]), MAX_BATCH, |rows| time(model, rows));
    assert_eq!(saturated(0), (16, 160.0));
    assert_eq!(saturated(1), (16, 128.0));
    assert_eq!(saturated(2), (16, 128.0));
}

#[test]
fn nexus_lets_b_share_the_lane_of_a_but_not_c() {
    with_rates([64.0, 32.0, 32.0], |demands| {
        let a = residue(&demands[0], 0, 64.0);
        assert_eq!(batches(&a), [(0, 8)]);
        assert_eq!((a.busy, a.cycle), (Nanos::from_millis(75), Nanos::from_millis(125)));

        let with_b = merge(demands, &a, &residue(&demands[1], 1, 32.0)).expect("75 + 50 ms fit in 125 ms");
        assert_eq!(batches(&with_b), [(0, 8), (1, 4)]);
        assert_eq!((with_b.busy, with_b.cycle), (Nanos::from_millis(125), Nanos::from_millis(125)));

        let c = residue(&demands[2], 2, 32.0);
        assert_eq!(merge(demands, &a, &c), None, "75 + 60 ms do not fit in 125 ms");

        let plan = pack(demands);
        assert_eq!(plan.len(), 2);
        assert_eq!(batches(&plan[0]), [(0, 8), (1, 4)]);
        assert_eq!(plan[1], c);
    });
}

#[test]
fn nexus_gives_whole_lanes_to_what_fills_them() {
    with_rates([64.0 + 2.0 * 160.0, 32.0 + 128.0, 32.0 + 128.0], |demands| {
        let plan = pack(demands);
        let sizes: Vec<_> = plan.iter().map(batches).collect();
        assert_eq!(sizes.len(), 6);
        assert_eq!(sizes[..4], [vec![(0, 16)], vec![(0, 16)], vec![(1, 16)], vec![(2, 16)]]);
        assert_eq!(sizes[4], [(0, 8), (1, 4)]);
    });
}

/// Batch time of `alpha b + beta` milliseconds on 8 lanes: (batch, rows a second) of lanes each for itself, and
/// staggered.
fn bounds(alpha: f64, beta: f64, slo_ms: u64) -> [(u32, u32); 2] {
    let time = |rows: u32| Nanos(((alpha * f64::from(rows) + beta) * 1e6).round() as u64);
    let slo = Nanos::from_millis(slo_ms);
    [uncoordinated(time, slo, 8, 64), staggered(time, slo, 8, 64)].map(|bound| {
        let bound = bound.expect("one row is in time");
        (bound.batch, bound.throughput.round() as u32)
    })
}

#[test]
fn symphonys_bounds() {
    assert_eq!(bounds(1.053, 5.072, 25), [(7, 4_501), (16, 5_839)]);
    assert_eq!(bounds(5.090, 18.368, 70), [(3, 713), (8, 1_083)]);
}
