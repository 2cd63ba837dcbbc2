//! A run that reaches a state that cannot happen is an error. In its own process, because violations are counted by
//! process.

use sim::{Setup, Simulation};
use workload::Workload;

const WORKLOAD: &str = r#"
    name = "one"
    duration = "1s"
    [lanes]
    count = 1
    [models.m]
    slo = "25ms"
    profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
    rate = 100.0
"#;

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "invariant violated: test.reached"))]
fn a_state_that_cannot_happen_is_an_error_of_the_run_and_not_of_the_next() {
    let workload = Workload::parse(WORKLOAD, &mut |_| Err("no such file".to_owned())).unwrap();
    let simulate = || Simulation::new(&workload, &Setup::default()).unwrap();
    let failed = simulate().run(&mut |_| invariant::violated!("test.reached"));
    let failed = failed.map(|report| report.hash).map_err(|error| error.to_string());
    let expected = "test.reached is broken: states that cannot happen were reached: `test.reached` at \
                    loadtest/sim/tests/violations.rs:";
    assert!(failed.as_ref().is_err_and(|error| error.starts_with(expected)), "{failed:?}");
    simulate().run(&mut |_| {}).unwrap();
}
