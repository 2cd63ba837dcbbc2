//! Fleets of nodes: as good as one machine, and no request is lost by what fails outside the node that holds it.

use sim::fleet::{Balancing, FleetReport, FleetSimulation};
use sim::{Setup, Simulation};
use workload::Workload;

use crate::support::parse;

const FAULTS: &str = include_str!("../../../fleet/faults.toml");

fn run(workload: &Workload, method: Balancing) -> FleetReport {
    FleetSimulation::new(workload, &Setup::default(), method).unwrap().run().unwrap()
}

#[test]
fn the_same_workload_gives_the_same_figures() {
    let workload = parse(&workload::random::fleet_document(11, 6)).lasting(4_000_000_000).unwrap();
    for method in Balancing::ALL {
        assert_eq!(run(&workload, method), run(&workload, method), "{}", method.name());
        assert_eq!(Balancing::named(method.name()), Some(method));
    }
}

#[test]
fn faults_cost_only_the_requests_inside_a_node_that_fails() {
    let workload = parse(FAULTS);
    let report = run(&workload, Balancing::Tessera);
    assert!(report.lost_inside < 60, "{report:?}");
    assert!(report.retried > 0, "{report:?}");
    assert!(report.attainment > 0.99, "{report:?}");
    assert!(report.loads > 0, "the leader planned again: {report:?}");
}

#[test]
fn a_fleet_is_close_to_one_machine_and_better_than_with_a_balancer() {
    let equal = [21, 22, 23].map(|seed| (seed, workload::random::fleet_document(seed, 20)));
    let unequal = [21, 22, 23].map(|seed| (seed, workload::random::unequal_fleet_document(seed, 20)));
    for (seed, document) in equal.into_iter().chain(unequal) {
        let workload = parse(&document).lasting(9_000_000_000).unwrap();
        let one = Simulation::new(&workload, &Setup::default()).unwrap().run(&mut |_| {}).unwrap();
        let own = run(&workload, Balancing::Tessera);
        assert!(own.goodput > 0.85 * one.goodput, "{seed}: {} of {}", own.goodput, one.goodput);
        for other in Balancing::ALL.into_iter().filter(|method| *method != Balancing::Tessera) {
            let other = run(&workload, other);
            assert!(own.goodput > other.goodput, "{seed}: {} of {}", own.goodput, other.goodput);
        }
    }
}
