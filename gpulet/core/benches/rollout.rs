//! Measures how long the rollout state machine takes to decide: `cargo bench -p gpulet-core --bench rollout`. Prints
//! one line per case. There are no thresholds, because machines differ.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark has a clock and fails by panicking"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use gpulet_core::interference::{Interference, NoInterference};
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::problem::{Device, DeviceType, Problem, Workload};
use gpulet_core::profile::Profile;
use gpulet_core::rollout::{Effect, Event, Proposal, Rollout, RolloutOptions};

use gpulet_core::time::Micros;

const MODEL: &str = r#"{"profile":{"version":1,"model":"m","device":"gpu","engine":"none","source":"synthesised","units_total":8,"weights_bytes":100}}
{"cell":{"batch":1,"units":1,"p50_us":900,"p95_us":900,"p99_us":900,"count":1}}
{"cell":{"batch":8,"units":1,"p50_us":5000,"p95_us":5000,"p99_us":5000,"count":1}}
{"cell":{"batch":1,"units":8,"p50_us":300,"p95_us":300,"p99_us":300,"count":1}}
{"cell":{"batch":8,"units":8,"p50_us":900,"p95_us":900,"p99_us":900,"count":1}}
{"arena":{"batch":8,"bytes":50}}"#;

/// Returns a problem of `count` workloads, with two gpulets per device.
fn problem(count: usize, memory_bytes: u64) -> Problem {
    let kind = Arc::new(DeviceType {
        name: "gpu".to_owned(),
        units: 8,
        sizes: (1..=8).collect(),
        gpulets_max: 8,
        base_bytes: 0,
        gpulet_bytes: 10,
    });
    let device = |at| Device {
        name: format!("gpu{at:05}").into(),
        device_type: Arc::clone(&kind),
        memory_bytes,
        fault_domain: format!("gpu{at:05}"),
        cost: 1.0,
    };
    let workload = |at| Workload {
        name: format!("w{at:05}"),
        model: format!("m{at:05}"),
        tenant: String::new(),
        not_with: Vec::new(),
        slo_us: 1e6,
        rate: 10.0,
        headroom: 1.0,
        replicas_min: 0,
        batch_max: 8,
    };
    let profile = |at| Profile::read(&MODEL.replace("\"m\"", &format!("\"m{at:05}\""))).unwrap().remove(0);
    let devices = (0..count.div_ceil(2) + 1).map(device).collect();
    let (workloads, profiles) = ((0..count).map(workload).collect(), (0..count).map(profile).collect());
    Problem::new(devices, workloads, profiles, Interference::NoInterference(NoInterference)).unwrap()
}

/// Returns a plan in which the first of the two gpulets of each device has `first` of its eight units. Workloads are
/// shifted by `moved` gpulets.
fn plan(count: usize, first: u32, moved: usize) -> Plan {
    let gpulet = |at: usize| {
        let (first_unit, units) = if at.is_multiple_of(2) { (0, first) } else { (first, 8 - first) };
        let workload = format!("w{:05}", (at + moved) % count);
        Gpulet {
            device: format!("gpu{:05}", at / 2).into(),
            first_unit,
            units,
            window: None,
            duty_us: None,
            slots: vec![Slot { workload, batch: 4, budget_us: 1e4, rate: 10.0 }],
        }
    };
    Plan::new((0..count).map(gpulet).collect())
}

/// Runs from a proposal to its end with a shell that takes no time. Returns the number of events.
fn reach(machine: &mut Rollout, now: &mut Micros, proposal: Proposal) -> u32 {
    let mut events = 1;
    let mut effects = Vec::new();
    machine.handle(*now, Event::Propose(proposal), &mut effects);
    while !machine.is_idle() {
        let mut next: Vec<Event> = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Step { id, .. } => next.push(Event::StepDone(id)),
                Effect::Switch { switch, .. } => {
                    next.push(Event::Switched { epoch: switch.epoch });
                    next.extend(switch.draining.into_iter().map(Event::Drained));
                }
                Effect::Ended { .. }
                | Effect::Incident { .. }
                | Effect::CannotOpen { .. }
                | Effect::PlanNeeded { .. } => {}
            }
        }
        if next.is_empty() {
            *now = machine.next_wake().unwrap();
            next.push(Event::Tick);
        }
        for event in next {
            machine.handle(*now, event, &mut effects);
            events += 1;
        }
    }
    events
}

fn measure(name: &str, count: usize, memory_bytes: u64, moved: usize, runs: u32) {
    let problem = problem(count, memory_bytes);
    let (one, other) = (plan(count, 3, 0), plan(count, 5, moved));
    let start = Instant::now();
    let proposals: Vec<Proposal> = (0..runs)
        .map(|at| Proposal::new(if at.is_multiple_of(2) { &other } else { &one }, &problem).unwrap())
        .collect();
    let weighed = start.elapsed() / runs;
    let mut machine = Rollout::new(RolloutOptions::default()).unwrap();
    let mut now = Micros::ZERO;
    reach(&mut machine, &mut now, Proposal::new(&one, &problem).unwrap());
    let mut events = 0;
    let start = Instant::now();
    for proposal in proposals {
        events += reach(&mut machine, &mut now, black_box(proposal));
    }
    let each = start.elapsed() / runs;
    let event = start.elapsed() / events;
    println!(
        "{name:32} weigh {weighed:>10.2?} change {each:>10.2?} an event {event:>10.2?} epoch {}",
        machine.epoch()
    );
}

fn main() {
    measure("12 workloads, repartitioned", 12, 1_000_000, 0, 2_000);
    measure("12 workloads, moved", 12, 1_000_000, 2, 2_000);
    measure("12 workloads, moved in waves", 12, 550, 2, 500);
    measure("1,000 workloads, repartitioned", 1_000, 1_000_000, 0, 4);
}
