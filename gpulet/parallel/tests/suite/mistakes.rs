//! Mistakes name the value and what would be right.

use model_parallel::ap2::genetic_split;
use model_parallel::chain::Chain;
use model_parallel::device::{Device, Link};
use model_parallel::hexgen::Machine;
use model_parallel::profile::ModelProfile;
use model_parallel::simulation::{Pipeline, System};
use model_parallel::split::{Problem, best_split};
use model_parallel::two_models::Example;
use model_parallel::{Effort, Objective, placement, queueing, traffic};

use crate::fixtures::{Setting, profile};

const LAYERS: &str = "name,latency_s,memory_bytes,output_bytes\na,0.1,10,5\nb,0.2,10,0\n";

fn problem(speed: f64, memory_bytes: u64, stages: usize) -> Result<Problem, model_parallel::ParallelError> {
    let device = Device { name: "a".to_owned(), speed, memory_bytes };
    let chain = Chain::parse(LAYERS).unwrap();
    Problem::new(chain, vec![device.clone(), device], Link::INSTANT, stages, Objective::Bottleneck)
}

#[test]
fn mistakes_name_the_value_and_what_would_be_right() {
    let text = |result: Result<String, model_parallel::ParallelError>| result.unwrap_err().to_string();
    let shown = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let found = [
        text(Chain::parse("").map(|value| shown(&value))),
        text(Chain::parse("name\na\n").map(|value| shown(&value))),
        text(Chain::parse("name,latency_s,memory_bytes,output_bytes\na,-1,0,0\n").map(|value| shown(&value))),
        text(problem(0.0, 100, 2).map(|value| shown(&value))),
        text(problem(1.0, 100, 3).map(|value| shown(&value))),
        text(best_split(&problem(1.0, 5, 2).unwrap()).map(|value| shown(&value))),
        text(
            genetic_split(&problem(1.0, 100, 2).unwrap(), Effort { population: 1, generations: 1 }, 1)
                .map(|value| shown(&value)),
        ),
        text(
            ModelProfile::parse(
                "a",
                "operator_parallel,pipeline_stages,batch,stage,latency_s\n1,2,1,0,0.1\n",
                1,
            )
            .map(|value| shown(&value)),
        ),
        text(
            ModelProfile::parse(
                "a",
                "operator_parallel,pipeline_stages,batch,stage,latency_s\n1,1,1,0,nan\n",
                1,
            )
            .map(|value| shown(&value)),
        ),
        text(
            System::new(vec![Pipeline { times_s: vec![Some(Vec::new())] }], vec![1.0])
                .map(|value| shown(&value)),
        ),
        text(System::new(Vec::new(), vec![0.0]).map(|value| shown(&value))),
        text(Machine::of_type("h900", 1).map(|value| shown(&value))),
        text(queueing::single_s(11.0, 0.1).map(|value| shown(&value))),
        text(traffic::requests(&[1.0], -1.0, 10.0, 1).map(|value| shown(&value))),
        text(Objective::find("speed").map(|value| shown(&value))),
        text(
            Example { latency_s: f64::NAN, overhead: 0.0, rates: [1.0, 1.0], cv: 1.0, duration_s: 1.0 }
                .compare(1)
                .map(|value| shown(&value)),
        ),
    ];
    let expected = [
        "`layers`: expected 1 to 10000 layers, got 0",
        "`layers`: expected a table with the columns name,latency_s,memory_bytes,output_bytes",
        "`layers.0.latency_s`: expected a number of at least 0, got -1",
        "`devices.0.speed`: expected a number above 0, got 0",
        "`stages`: expected a number from 1 to 2, got 3",
        "does not fit: expected every stage to fit the memory of its device",
        "`effort.population`: expected a number from 4 to 10000, got 1",
        "`layouts.op1:pp2`: expected the stages 0 to 1, got 0",
        "latency_s`: expected a number above 0, got NaN",
        "`groups.0.times_s.0`: expected seconds of at least one stage",
        "`objectives_s.0`: expected a number above 0, got 0",
        "`machines`: expected one of a6000, a5000, a4000, v100, a100, got `h900`",
        "`rate`: expected less than 10.000 a second, got 11",
        "`cv`: expected",
        "`objective`: expected one of bottleneck, latency, got `speed`",
        "`latency_s`: expected a number above 0, got NaN",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn an_enumeration_that_is_too_large_says_so() {
    let setting = Setting {
        profile: profile(1, 0.0),
        models: 30,
        devices: 16,
        memory_bytes: 30,
        rate: 1.0,
        cv: 1.0,
        slo_scale: 5.0,
        duration_s: 5.0,
        seed: 1,
    };
    let error = placement::optimum::enumerate(&setting.problem()).unwrap_err().to_string();
    assert!(error.contains("`placements`: expected at most 200000 for an exact search"), "{error}");
}
