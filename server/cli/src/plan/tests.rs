mod mistakes;
mod pipelines;
mod splitting;
mod variants;

use super::*;
use crate::commands::Command;
use crate::testing::Cli;
use clap::Parser as _;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gpulet/core/examples/igniter-12.toml");
const GOLDEN: &str = include_str!("golden/igniter-12.txt");

/// Two models on four cores: 10 ms and 20 ms per row on one core, less on more.
const PROFILES: &str = r#"{"profile":{"version":1,"model":"light","device":"cpu","engine":"tract","source":"measured","note":"a test","units_total":4,"weights_bytes":1048576}}
{"cell":{"batch":1,"units":1,"p50_us":9000,"p95_us":9500,"p99_us":10000,"count":200}}
{"cell":{"batch":8,"units":1,"p50_us":40000,"p95_us":41000,"p99_us":42000,"count":200}}
{"cell":{"batch":1,"units":4,"p50_us":3000,"p95_us":3500,"p99_us":4000,"count":200}}
{"cell":{"batch":8,"units":4,"p50_us":12000,"p95_us":13000,"p99_us":14000,"count":200}}
{"arena":{"batch":8,"bytes":1048576}}
{"profile":{"version":1,"model":"heavy","device":"cpu","engine":"tract","source":"synthesised","units_total":4}}
{"cell":{"batch":1,"units":1,"p50_us":19000,"p95_us":19500,"p99_us":20000,"count":200}}
{"cell":{"batch":4,"units":4,"p50_us":19000,"p95_us":19500,"p99_us":20000,"count":200}}
{"cell":{"batch":1,"units":4,"p50_us":7000,"p95_us":7500,"p99_us":8000,"count":200}}
{"cell":{"batch":4,"units":1,"p50_us":59000,"p95_us":59500,"p99_us":60000,"count":200}}
"#;

const SMALL: &str = "\
profiles = \"profiles/*.jsonl\"
interference = \"none\"

[devices.cpu]
count = 2
memory = \"1GiB\"

[workloads.light]
slo = \"100ms\"
rate = 100

[workloads.slow]
model = \"heavy\"
slo = \"200ms\"
rate = 20.5
tenant = \"a\"
";

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("profiles")).unwrap();
        std::fs::write(folder.path().join("profiles/cpu.jsonl"), PROFILES).unwrap();
        std::fs::write(folder.path().join("small.toml"), text).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn arguments(&self, flags: &[&str]) -> PlanArgs {
        arguments(&self.file("small.toml"), flags)
    }

    fn mistake(&self, flags: &[&str]) -> String {
        let arguments = self.arguments(flags);
        let error = reading::read(&arguments.problem, &arguments.devices).unwrap_err();
        format!("{error:#}").replace(&self.file(""), "")
    }

    fn answer(&self, flags: &[&str]) -> String {
        answered(&self.arguments(flags))
    }

    fn json(&self, flags: &[&str]) -> Value {
        serde_json::from_str(&self.answer(&[&["--json"], flags].concat())).unwrap()
    }
}

fn arguments(file: &str, flags: &[&str]) -> PlanArgs {
    match Cli::try_parse_from([&["tessera", "plan", file], flags].concat()).unwrap().command {
        Some(Command::Plan(arguments)) => *arguments,
        other => panic!("expected plan, got {other:?}"),
    }
}

fn read_and_studied(arguments: &PlanArgs) -> (PlanQuery, Study, Option<FamilyStudy>) {
    let query = reading::read(&arguments.problem, &arguments.devices).unwrap();
    studied(arguments, query)
}

fn answered(arguments: &PlanArgs) -> String {
    let (query, study, families) = read_and_studied(arguments);
    answer(arguments, &query, &study, families.as_ref()).unwrap()
}

fn code(arguments: &PlanArgs) -> String {
    format!("{:?}", run(arguments).unwrap())
}

#[test]
fn the_published_twelve_need_six_gpus_and_that_is_proved() {
    let (_, study, _) = read_and_studied(&arguments(EXAMPLE, &[]));
    let (entry, planned) = study::best(&study).unwrap();
    println!("{} {:?} {:?}", planned.validation.devices_used, planned.growth_unchanged, study.least);
    assert_eq!((entry.policy, planned.validation.devices_used), ("tessera", 6));
    assert!(planned.validation.is_sound());
    let fluid = study.least.devices_fluid.unwrap();
    assert!(fluid > 4.0 && fluid < 5.42, "{fluid}: less than on whole devices, for small shares waste less");
    assert_eq!(study.least.dedicated.map(|found| (found.cost_least, found.complete)), Some((6.0, true)));
    let replanned = planned.growth_replanned.unwrap().factor;
    assert!(replanned >= planned.growth_unchanged.unwrap() && replanned < 1.2, "{replanned}");
}

#[test]
fn the_table_of_the_example_is_the_one_on_file() {
    let text = answered(&arguments(EXAMPLE, &["--explain"]));
    assert_eq!(text, GOLDEN, "as it is now:\n{text}");
}

#[test]
fn all_policies_are_compared_and_the_best_comes_first() {
    let answer: Value =
        serde_json::from_str(&answered(&arguments(EXAMPLE, &["--compare", "--json"]))).unwrap();
    let policies = answer["policies"].as_array().unwrap();
    let named = |name: &str| policies.iter().find(|line| line["policy"] == name).unwrap();
    assert_eq!(policies.len(), Policy::NAMES.len());
    assert_eq!((&policies[0]["policy"], &policies[0]["devices_used"]), (&"tessera".into(), &6.into()));
    assert_eq!(
        (&named("igniter")["devices_used"], &named("temporal")["devices_used"]),
        (&6.into(), &7.into())
    );
    assert_eq!((&named("igniter")["sound"], &named("gslice")["sound"]), (&true.into(), &false.into()));
    let class = |line: &Value| (!line["infeasible"].is_null(), !line["sound"].as_bool().unwrap());
    assert!(policies.is_sorted_by_key(class), "sound plans first");
    let text = answered(&arguments(EXAMPLE, &["--compare"]));
    for name in Policy::NAMES {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
    }
}

#[test]
fn too_few_devices_give_no_plan_and_the_report_names_the_remedy() {
    let few = arguments(EXAMPLE, &["--devices", "5"]);
    let text = answered(&few);
    assert!(text.contains("tessera: no plan: workloads."), "{text}");
    assert!(text.contains(": does not fit on 5 devices; expected 1 more of `v100`\n"), "{text}");
    assert_eq!(code(&few), format!("{:?}", ExitCode::FAILURE));
    let answer: Value =
        serde_json::from_str(&answered(&arguments(EXAMPLE, &["--devices", "v100=5", "--json"]))).unwrap();
    let line = &answer["policies"][0];
    assert_eq!((&line["sound"], &line["devices_used"]), (&false.into(), &Value::Null));
    assert_eq!(line["infeasible"]["remedy"]["devices"]["more"], 1);
    assert_eq!(answer["devices"].as_array().unwrap().len(), 5);
}

#[test]
fn devices_of_several_sections_are_planned_with_and_named() {
    let text = SMALL.replace("rate = 100", "rate = 100\nreplicas_min = 2")
        + "[devices.spot]\nkind = \"cpu\"\ncount = 11\nmemory = \"1GiB\"\ncost = 0.25\nfault_domain = \"rack\"\n";
    let bench = Bench::new(&text);
    let answer = bench.json(&["--devices", "cpu=1"]);
    let devices = answer["devices"].as_array().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[1], names[11], names.len()), ("cpu", "spot-00", "spot-10", 12));
    assert_eq!((&devices[0]["fault_domain"], &devices[3]["fault_domain"]), (&"cpu".into(), &"rack".into()));
    let line = &answer["policies"][0];
    assert_eq!(
        (&line["sound"], &line["devices_used"], &line["cost"]),
        (&true.into(), &2.into(), &1.25.into())
    );
    let text = bench.answer(&["--devices", "cpu=1"]);
    assert!(text.contains("devices needed: 2 of 12, cost 1.25"), "{text}");
}

#[test]
fn notes_describe_the_inputs() {
    let text = Bench::new(&SMALL.replace("interference = \"none\"\n", "")).answer(&[]);
    for note in [
        "note: profiles of light on cpu (tract) are measured: a test\n",
        "note: profiles of heavy on cpu (tract) are synthesised\n",
        "note: interference is not set: the plan assumes no slowdown by co-located batches\n",
        "note: memory of heavy was not measured: the plan may need more memory than the devices have\n",
    ] {
        assert!(text.contains(note), "{note} in {text}");
    }
}

/// The validator accepts every share that an explanation calls the smallest, and rejects the next smaller one.
#[test]
fn explanations_agree_with_the_validator() {
    let bench = Bench::new(&SMALL.replace("rate = 100", "rate = 300"));
    let small = bench.file("small.toml");
    for (file, policy) in
        [(EXAMPLE, "tessera"), (EXAMPLE, "igniter"), (EXAMPLE, "temporal"), (&small, "fast-gshare")]
    {
        let (query, study, _) = read_and_studied(&arguments(file, &["--policy", policy]));
        let (_, planned) = study::best(&study).unwrap();
        let explained = explain::explain(&query, &planned.plan);
        let slots: usize = planned.plan.gpulets.iter().map(|gpulet| gpulet.slots.len()).sum();
        assert_eq!(explained.len(), slots, "{policy}");
        for slot in &explained {
            assert!(slot.units_least.is_some_and(|least| least <= slot.units), "{policy}: {slot:?}");
            assert!(slot.units_least_alone <= slot.units_least, "{policy}: {slot:?}");
            let Some(below) = slot.below else { continue };
            let late = below.worst_us > slot.slo_us;
            let slow = below.capacity < slot.predicted.rate;
            match slot.binds {
                explain::Binding::Time => assert!(late, "{policy}: {slot:?}"),
                explain::Binding::Rate => assert!(slow && !late, "{policy}: {slot:?}"),
                explain::Binding::TimeSlices => assert!(!late, "{policy}: {slot:?}"),
                other => panic!("{policy}: {other:?} in {slot:?}"),
            }
        }
    }
}

/// On one core, batches of 3 rows would serve the rate, but their arena is larger than the device.
#[test]
fn shares_are_limited_by_memory_where_larger_batches_do_not_fit() {
    let arenas =
        "{\"arena\":{\"batch\":2,\"bytes\":1048576}}\n{\"arena\":{\"batch\":8,\"bytes\":1073741824}}";
    let profiles = PROFILES.replace("{\"arena\":{\"batch\":8,\"bytes\":1048576}}", arenas);
    let text = SMALL
        .replace("1GiB", "64MiB")
        .replace("rate = 100", "rate = 150")
        .replace("rate = 20.5", "rate = 0\nreplicas_min = 0");
    let bench = Bench::new(&text);
    std::fs::write(bench.file("profiles/cpu.jsonl"), profiles).unwrap();
    let query = reading::read(&bench.arguments(&[]).problem, &[]).unwrap();
    let slot = Slot { workload: "light".to_owned(), batch: 1, budget_us: 50_000.0, rate: 150.0 };
    let gpulet = Gpulet {
        device: "cpu-0".into(),
        first_unit: 0,
        units: 2,
        window: None,
        duty_us: None,
        slots: vec![slot],
    };
    let plan = Plan::new(vec![gpulet]);
    let validation = gpulet_core::validate::validate(&query.problem, &plan);
    assert!(validation.is_sound(), "{:?}", validation.violations);
    let explained = explain::explain(&query, &plan);
    let [only] = explained.as_slice() else { panic!("{explained:?}") };
    assert_eq!(
        (only.binds, only.units_least, only.below.unwrap().batch),
        (explain::Binding::Memory, Some(2), 3)
    );
    let text = explanation::text(&query, &plan, &explained);
    assert!(
        text.contains(
            "limited by memory: on 25 %, it needs batches of 3, and the device has no memory for them"
        ),
        "{text}"
    );
    assert!(text.contains("slow: 0 requests per second within 200 ms\n  has no load"), "{text}");
}

/// Tags open and close in order, attributes are quoted, and nothing is left unescaped.
fn is_well_formed(svg: &str) -> Result<usize, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut tags = 0;
    let mut rest = svg;
    while let Some((text, tail)) = rest.split_once('<') {
        if text.contains('>') && open.last() != Some(&"style") {
            return Err(format!("a stray > in {text}"));
        }
        let (tag, after) = tail.split_once('>').ok_or("a tag that does not end")?;
        rest = after;
        tags += 1;
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.matches('"').count() % 2 == 1 {
            return Err(format!("quotes in {tag}"));
        }
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return Err(format!("{name} closes what is not open"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(tags) } else { Err(format!("still open: {open:?}")) }
}

#[test]
fn pictures_show_every_slot_once_and_are_well_formed() {
    let bench = Bench::new(SMALL);
    let small = bench.file("small.toml");
    for (file, policy) in
        [(EXAMPLE, "tessera"), (EXAMPLE, "temporal"), (&small, "temporal"), (&small, "fast-gshare")]
    {
        let (query, study, _) = read_and_studied(&arguments(file, &["--policy", policy]));
        let (_, planned) = study::best(&study).unwrap();
        let svg = drawn(&query, &study).unwrap();
        assert!(is_well_formed(&svg).unwrap() > 20);
        let slots: usize = planned.plan.gpulets.iter().map(|gpulet| gpulet.slots.len()).sum();
        assert_eq!(svg.matches("<g><title>").count(), slots, "{policy}");
        assert!(svg.contains(&query.problem.workloads()[0].name) && !svg.contains("NaN"), "{policy}");
        assert_eq!(svg.contains("one cycle of "), policy != "tessera", "{policy}");
    }
    let hostile = SMALL.replace("[workloads.slow]", "[workloads.\"<b>&'\"]");
    let (query, study, _) = read_and_studied(&Bench::new(&hostile).arguments(&[]));
    let svg = drawn(&query, &study).unwrap();
    assert!(is_well_formed(&svg).is_ok() && svg.contains("&lt;b&gt;&amp;&#39;"), "{svg}");
    assert!(is_well_formed("<svg><g></svg>").is_err() && is_well_formed("<svg>a > b</svg>").is_err());
}

#[test]
fn the_same_file_gives_the_same_bytes_and_the_picture_is_written() {
    let bench = Bench::new(SMALL);
    let once = |name: &str| {
        let path = bench.file(name);
        let arguments = bench.arguments(&["--compare", "--explain", "--json", "--svg", &path]);
        assert_eq!(code(&arguments), format!("{:?}", ExitCode::SUCCESS));
        (
            answered(&arguments),
            std::fs::read_to_string(path).unwrap(),
            bench.answer(&["--compare", "--explain"]),
        )
    };
    assert_eq!(once("one.svg"), once("two.svg"));
}

#[test]
fn the_json_report_is_complete() {
    let answer = Bench::new(SMALL).json(&["--explain"]);
    assert_eq!(
        (&answer["problem"], &answer["interference"], &answer["quantile"]),
        (&"small".into(), &"none".into(), &"p99".into())
    );
    assert_eq!(answer["workloads"][1]["slo_us"], 200_000.0);
    assert_eq!(answer["workloads"][1]["tenant"], "a");
    assert_eq!(answer["profiles"][1]["source"], "synthesised");
    let line = &answer["policies"][0];
    let (plan, predicted) = (&line["plan"]["gpulets"], line["predicted"].as_array().unwrap());
    assert_eq!(predicted.len(), 2);
    assert!(plan[0]["units"].as_u64().unwrap() >= 1 && line["growth_unchanged"].as_f64().unwrap() >= 1.0);
    assert!(
        line["growth_replanned"]["factor"].as_f64().unwrap() >= line["growth_unchanged"].as_f64().unwrap()
    );
    assert!(line["headrooms"]["slow"].as_f64().unwrap() >= line["growth_unchanged"].as_f64().unwrap());
    assert!(line["unused"][0]["share"].as_f64().unwrap() < 1.0);
    assert!(answer["least"]["devices_fluid"].as_f64().unwrap() > 0.0);
    assert!(answer["devices"][0]["memory_bytes_planned"].as_u64().unwrap() >= 2_097_152);
    let explained = answer["explained"].as_array().unwrap();
    assert_eq!(explained.len(), 2);
    assert_eq!((&explained[0]["workload"], &explained[1]["workload"]), (&"light".into(), &"slow".into()));
    assert!(Bench::new(SMALL).json(&[])["explained"].is_null());
}

#[test]
fn the_guide_shows_what_the_command_prints() {
    let guide = include_str!("../../../../docs/plan.md");
    let shown: Vec<&str> =
        guide.split("```text\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    let [plan, explained, compared] = shown.as_slice() else { panic!("{} blocks", shown.len()) };
    let printed = answered(&arguments(EXAMPLE, &[]));
    assert!(printed.starts_with(plan), "{printed}");
    assert!(GOLDEN.contains(explained));
    let printed = answered(&arguments(EXAMPLE, &["--compare"]));
    assert!(printed.contains(compared), "{printed}");
    let (query, study, _) = read_and_studied(&arguments(EXAMPLE, &[]));
    assert_eq!(drawn(&query, &study).as_deref(), Some(include_str!("../../../../docs/plan/igniter-12.svg")));
}

#[test]
fn predicted_cells_are_told_with_what_their_doubt_costs() {
    let bench = Bench::new(SMALL);
    let profiles = PROFILES.replace(
        r#""batch":8,"units":1,"p50_us":40000,"p95_us":41000,"p99_us":42000,"count":200"#,
        r#""batch":8,"units":1,"p50_us":40000,"p95_us":41000,"p99_us":42000,"count":0,"source":"predicted","low_us":30000,"high_us":48000"#,
    );
    std::fs::write(bench.folder.path().join("profiles/cpu.jsonl"), profiles).unwrap();
    let text = bench.answer(&[]);
    for part in [
        "doubt: some batch times are predicted, and planned with a margin; without it, all rates may grow by",
        "to know more: `tessera profile --model light --batches",
        "note: 1 of 4 cells of light on cpu predicted, not measured: batch 8 on 1 core\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json = bench.json(&[]);
    assert_eq!((&json["profiles"][0]["predicted"], &json["profiles"][0]["cells"]), (&1.into(), &4.into()));
    let planned = json["policies"][0]["growth_unchanged"].as_f64().unwrap();
    let expected = json["doubt"]["growth_unchanged"].as_f64().unwrap();
    assert!(expected >= planned, "{expected} {planned}");
    assert!(Bench::new(SMALL).json(&[])["doubt"].is_null());
}
