//! FaST-GShare: gpulets that share units in time, by quotas.

use gpulet_core::plan::{Gpulet, Plan, Slot, Window};
use sim::{Report, Setup, Simulation};
use workload::Workload;

use crate::support::checked;

/// Units of a device, of 2 % each.
const UNITS: u32 = 50;
/// The pods of the packing experiment of FaST-GShare (slide 18): name, number, percent of SMs, percent of time. The
/// milliseconds of a batch on that share and on the whole device are ours: the authors' figure shows that 24 % of the
/// SMs are as good as all for ResNet, and 12 % nearly.
const PODS: [(&str, u32, u32, u32, f64, f64); 3] =
    [("bert", 2, 50, 60, 12.0, 11.0), ("rnnt", 2, 24, 40, 20.0, 19.0), ("resnet", 4, 12, 40, 10.0, 9.5)];
const WINDOW_MS: f64 = 100.0;

fn profiles() -> String {
    let profile = |(model, _, share, _, own, whole): (&str, u32, u32, u32, f64, f64)| {
        let header = format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"{model}\",\"device\":\"toy\",\"engine\":\"none\",\"source\":\"typed_in\",\"units_total\":{UNITS}}}}}\n"
        );
        let cell = |(units, ms): (u32, f64)| {
            let us = 1e3 * ms;
            format!(
                "{{\"cell\":{{\"batch\":1,\"units\":{units},\"p50_us\":{us},\"p95_us\":{us},\"p99_us\":{us},\"count\":1}}}}\n"
            )
        };
        header + &[(share * UNITS / 100, own), (UNITS, whole)].map(cell).concat()
    };
    PODS.map(profile).concat()
}

/// A gpulet with a quota in percent of the window. Rates are 85 % of what the quotas serve.
fn gpulet(device: &str, first_unit: u32, from: u32, model: &str, on_whole: bool) -> Gpulet {
    let (_, _, share, quota, own, whole) = PODS.into_iter().find(|pod| pod.0 == model).unwrap();
    let (units, ms) = if on_whole { (UNITS, whole) } else { (share * UNITS / 100, own) };
    let percent = |percent: u32| f64::from(percent) * WINDOW_MS * 10.0;
    let window = Window {
        period_us: 1e3 * WINDOW_MS,
        offset_us: percent(from),
        length_us: percent(quota),
        limit_us: None,
    };
    let slot = Slot { workload: model.to_owned(), batch: 1, budget_us: 1e3 * ms, rate: 0.85 * served(model) };
    Gpulet {
        device: device.into(),
        first_unit,
        units,
        window: Some(window),
        duty_us: None,
        slots: vec![slot],
    }
}

/// Requests per second that one pod serves in its quota on its share.
fn served(model: &str) -> f64 {
    let (.., quota, own, _) = PODS.into_iter().find(|pod| pod.0 == model).unwrap();
    (f64::from(quota) / 100.0 * WINDOW_MS / own).floor() * 1e3 / WINDOW_MS
}

/// All eight pods as rectangles on one device: the two of BERT side by side, then all others side by side.
fn rectangles() -> Plan {
    let berts = [0, 25].map(|unit| gpulet("toy", unit, 0, "bert", false));
    let rnnts = [0, 12].map(|unit| gpulet("toy", unit, 60, "rnnt", false));
    let resnets = [24, 30, 36, 42].map(|unit| gpulet("toy", unit, 60, "resnet", false));
    Plan::new(berts.into_iter().chain(rnnts).chain(resnets).collect())
}

/// The pods that fit if each takes a whole device for its quota, on as many devices as they need or the first `most`.
fn time_only(most: u32) -> Plan {
    let pods = [
        (0, 0, "bert"),
        (0, 60, "resnet"),
        (1, 0, "bert"),
        (1, 60, "resnet"),
        (2, 0, "rnnt"),
        (2, 40, "rnnt"),
        (3, 0, "resnet"),
        (3, 40, "resnet"),
    ];
    let on_first = pods.into_iter().filter(|(device, ..)| *device < most);
    let name = |device| if most == 1 { "toy".to_owned() } else { format!("toy-{device}") };
    Plan::new(on_first.map(|(device, from, model)| gpulet(&name(device), 0, from, model, true)).collect())
}

fn run_for(plan: &Plan, devices: u32, models: &[(&str, f64)]) -> Report {
    let has = |gpulet: &&Gpulet| models.iter().any(|(model, _)| gpulet.slots[0].workload == *model);
    let plan = Plan::new(plan.gpulets.iter().filter(has).cloned().collect());
    let model = |(model, load): &(&str, f64)| {
        let pods = PODS.into_iter().find(|pod| pod.0 == *model).unwrap().1;
        let rate = load * f64::from(pods) * served(model);
        format!("[models.{model}]\nslo = \"300ms\"\nrate = {rate:?}\n")
    };
    let text = format!(
        "name = \"pods\"\nduration = \"60s\"\nseed = 3\n[devices.toy]\ncount = {devices}\nmemory = \"16GiB\"\n[partition]\nprofiles = \"toy.jsonl\"\nplan = \"plan.json\"\npolicy = \"fast-gshare\"\n{}",
        models.iter().map(model).collect::<String>()
    );
    let plan = serde_json::to_string(&plan).unwrap();
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles()),
        "plan.json" => Ok(plan.clone()),
        _ => Err(format!("no file {name}")),
    };
    let workload = Workload::parse(&text, &mut files).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = Simulation::new(&workload, &checked("deadline")).unwrap().run(&mut |_| {}).unwrap();
    assert_eq!(report.requests.failed, 0);
    report
}

const ALL: [(&str, f64); 3] = [("bert", 0.85), ("rnnt", 0.85), ("resnet", 0.85)];

/// "1 GPU against 4" (slide 18), with Poisson arrivals at 85 % of what the quotas serve.
#[test]
fn one_device_with_quotas_serves_what_four_serve_with_time_sharing_only() {
    let attained = |plan: &Plan, devices: u32, models: &[(&str, f64)]| {
        let report = run_for(plan, devices, models);
        let requests = &report.requests;
        let attainment = requests.good as f64 / requests.offered as f64;
        println!(
            "{devices} device(s), {} pods: {} offered, {attainment:.4} in time",
            plan.gpulets.len(),
            requests.offered
        );
        (requests.good, attainment)
    };
    let (good, attainment) = attained(&rectangles(), 1, &ALL);
    assert!(attainment > 0.99, "{attainment}");
    let (four, attainment) = attained(&time_only(4), 4, &ALL);
    assert!(attainment > 0.99, "{attainment}");
    assert!(good.abs_diff(four) < four / 100, "{good} on one device, {four} on four");
    // One device with time sharing only holds one pod of BERT and one of ResNet.
    let (good, attainment) = attained(&time_only(1), 1, &[ALL[0], ALL[2]]);
    assert!(attainment < 0.5 && good < four / 2, "{good} of {four}, {attainment}");
}

/// A model that offers five times its quota takes nothing from the guaranteed time of the others. Theirs are filled to
/// 70 %, so that Poisson arrivals wait for no longer than the objective.
#[test]
fn a_model_that_offers_too_much_leaves_the_others_their_quota() {
    let report = run_for(&rectangles(), 1, &[("bert", 5.0), ("rnnt", 0.7), ("resnet", 0.7)]);
    for model in &report.models {
        println!("{}: {:?}", model.name, model.attainment);
    }
    let attained = |name: &str| report.models.iter().find(|model| model.name == name).unwrap().attainment;
    assert!(attained("rnnt") > 0.99 && attained("resnet") > 0.99 && attained("bert") > 0.18);
}

/// Time that no other model uses: one model alone serves more than its quota, unless the quota is also the limit.
#[test]
fn idle_time_goes_to_the_only_model_with_requests_up_to_the_limit() {
    let good = |plan: &Plan| {
        let report = run_for(plan, 1, &[("resnet", 2.0)]);
        report.requests.good as f64 / report.requests.offered as f64
    };
    let mut strict = rectangles();
    for gpulet in &mut strict.gpulets {
        gpulet.window.iter_mut().for_each(|window| window.limit_us = Some(window.length_us));
    }
    let (elastic, strict) = (good(&rectangles()), good(&strict));
    println!("{elastic:.4} with a limit of the whole window, {strict:.4} with the quota as the limit");
    assert!(elastic > 0.99 && (0.4..=0.51).contains(&strict), "{elastic} {strict}");
}

/// The policy places the pods itself, and follows a load that rises and falls.
#[test]
fn the_autoscaler_adds_replicas_and_removes_them_again() {
    let steps = "arrivals = { process = \"trace\", format = \"counts-per-second\", file = \"ramp.txt\", repeat = false }";
    let text = format!(
        "name = \"ramp\"\nduration = \"190s\"\nseed = 3\n[devices.toy]\ncount = 2\nmemory = \"16GiB\"\n[partition]\nprofiles = \"toy.jsonl\"\npolicy = \"fast-gshare\"\nscaling = \"fast-gshare\"\n[models.resnet]\nslo = \"100ms\"\n{steps}\n"
    );
    let ramp = |second: u32| match second {
        0..60 => 20,
        60..130 => 110,
        _ => 20,
    };
    let mut files = |name: &str| match name {
        "toy.jsonl" => Ok(profiles()),
        "ramp.txt" => Ok((0..190).map(|second| format!("{}\n", ramp(second))).collect()),
        _ => Err(format!("no file {name}")),
    };
    let workload = Workload::parse(&text, &mut files).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = Simulation::new(&workload, &Setup::default()).unwrap().run(&mut |_| {}).unwrap();
    let partition = report.partition.as_ref().unwrap();
    println!("{:?} {partition:?}", report.requests);
    assert!(partition.changes >= 3, "{partition:?}");
}
