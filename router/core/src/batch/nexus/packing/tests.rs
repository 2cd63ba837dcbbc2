use super::*;
use proptest::prelude::*;

/// Batch times `alpha b + beta` in microseconds, objective in multiples of the shortest that can be kept.
#[derive(Clone, Copy, Debug)]
struct Linear {
    rate: f64,
    alpha: u64,
    beta: u64,
    slack: f64,
    max_batch: u32,
}

impl Linear {
    fn time(&self, rows: u32) -> Nanos {
        Nanos::from_micros(self.alpha * u64::from(rows) + self.beta)
    }

    fn slo(&self) -> Nanos {
        Nanos((2.0 * self.slack * self.time(1).0 as f64) as u64)
    }
}

fn linear() -> impl Strategy<Value = Linear> {
    (0.0_f64..2_000.0, 10_u64..3_000, 10_u64..20_000, 1.0_f64..20.0, 1_u32..64)
        .prop_map(|(rate, alpha, beta, slack, max_batch)| Linear { rate, alpha, beta, slack, max_batch })
}

fn with_demands<R>(models: &[Linear], run: impl FnOnce(&[Demand<'_>]) -> R) -> R {
    let times: Vec<_> = models.iter().map(|model| |rows| model.time(rows)).collect();
    let demand = |(model, time)| {
        let (model, time): (&Linear, &dyn Fn(u32) -> Nanos) = (model, time);
        Demand { rate: model.rate, slo: model.slo(), max_batch: model.max_batch, time }
    };
    let pairs = models.iter().zip(times.iter().map(|time| time as &dyn Fn(u32) -> Nanos));
    let demands: Vec<Demand<'_>> = pairs.map(demand).collect();
    run(&demands)
}

fn check_node(models: &[Linear], node: &Node) {
    let busy =
        node.shares.iter().fold(Nanos::ZERO, |sum, share| sum.after(models[share.session].time(share.batch)));
    assert_eq!(busy, node.busy);
    assert!(busy <= node.cycle, "batches of {busy} in a cycle of {}", node.cycle);
    for share in &node.shares {
        let model = &models[share.session];
        assert!(share.batch <= model.max_batch);
        let answered = node.cycle.after(model.time(share.batch));
        assert!(answered <= model.slo(), "{answered} for {}", model.slo());
        let gathered = share.rate * node.cycle.0 as f64 / 1e9;
        assert!(gathered <= f64::from(share.batch) + 0.01, "{gathered} rows for a batch of {}", share.batch);
    }
}

fn rate_of(nodes: &[Node], session: usize) -> f64 {
    let shares = nodes.iter().flat_map(|node| &node.shares).filter(|share| share.session == session);
    shares.map(|share| share.rate).sum()
}

proptest! {
    #[test]
    fn nothing_is_packed_that_does_not_fit(models in prop::collection::vec(linear(), 0..12)) {
        let nodes = with_demands(&models, pack);
        nodes.iter().for_each(|node| check_node(&models, node));
        for (session, model) in models.iter().enumerate() {
            let missing = model.rate.max(RATE_LEAST) - rate_of(&nodes, session);
            prop_assert!(missing.abs() <= RATE_LEAST + 1e-6, "{missing} req/s of {model:?} are nowhere");
        }
    }

    #[test]
    fn every_lane_is_used_and_every_model_has_one(
        models in prop::collection::vec(linear(), 1..12),
        lanes in 1_usize..20,
    ) {
        let nodes = with_demands(&models, |demands| fit(demands, lanes));
        prop_assert_eq!(nodes.len(), lanes);
        let needed = with_demands(&models, pack).len();
        // With fewer lanes than models a cycle may be longer than objectives allow.
        if lanes >= needed.min(models.len()) {
            nodes.iter().for_each(|node| check_node(&models, node));
        }
        for (session, model) in models.iter().enumerate() {
            let rate = rate_of(&nodes, session);
            prop_assert!(rate > 0.0, "{model:?} has no lane");
            if lanes >= needed {
                prop_assert!(rate > model.rate - RATE_LEAST - 1e-6, "{rate} for {model:?}");
            }
        }
    }
}

#[test]
fn spare_lanes_go_to_the_most_loaded() {
    let busy = Linear { rate: 90.0, alpha: 1_000, beta: 9_000, slack: 1.0, max_batch: 1 };
    let calm = Linear { rate: 30.0, ..busy };
    let nodes = with_demands(&[busy, calm], |demands| fit(demands, 6));
    let lanes = |session| nodes.iter().filter(|node| node.shares[0].session == session).count();
    assert_eq!((lanes(0), lanes(1)), (4, 2));
    assert!((nodes[0].shares[0].rate - 22.5).abs() < 1e-9);
}

#[test]
fn rates_that_do_not_fit_are_scaled_down_alike() {
    let model = Linear { rate: 150.0, alpha: 1_000, beta: 9_000, slack: 1.0, max_batch: 1 };
    let other = Linear { rate: 50.0, ..model };
    let nodes = with_demands(&[model, other], |demands| fit(demands, 1));
    assert_eq!(nodes.len(), 1);
    assert!((rate_of(&nodes, 0) / rate_of(&nodes, 1) - 3.0).abs() < 1e-9);
}

#[test]
fn models_of_unknown_cost_share_the_lanes() {
    let time = |_| Nanos::ZERO;
    let demand = Demand { rate: 100.0, slo: Nanos::NEVER, max_batch: 8, time: &time };
    let nodes = fit(&[demand; 5], 2);
    assert_eq!(nodes.len(), 2);
    assert!((0..5).all(|session| rate_of(&nodes, session) > 0.0));
}
