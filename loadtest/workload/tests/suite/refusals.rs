//! Every fault in a file is refused with its line, its key and what would be right.

use crate::support::try_parse;
use proptest::prelude::*;
use workload::Workload;

/// A sound file; each case below changes one thing.
const SOUND: &str = r#"name = "x"
seed = 1
duration = "60s"
warmup = "2s"
[lanes]
count = 8
[lanes.noise]
cv = 0.02
bias = 1.2
spread = 0.2
stalls = { every = "10s", time = "200ms" }
[[lanes.failures]]
lane = 3
from = "20s"
until = "40s"
[tenants]
gold = 3
[models.resnet]
count = 10
slo = "25ms"
profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }
rate = 360.0
arrivals = { process = "poisson" }
rows = [[1, 0.9], [4, 0.1]]
row_bytes = 10
priority = 1
tenants = { gold = 1.0 }
[models.own]
slo = "25ms"
profile = { points = [[1, "6.1ms"], [8, "13.4ms"]] }
arrivals = { process = "trace", format = "timestamps", file = "own.csv" }
"#;

const OWN: (&str, &str) = ("own.csv", "seconds,model\n0,own\n1,own\n");

#[test]
fn the_sound_file_is_sound() {
    assert_eq!(try_parse(SOUND, &[OWN]).unwrap().models.len(), 11);
}

#[test]
fn settings_of_servers_that_are_not_simulated_are_refused_by_name() {
    let none = "the simulator and the planner have no ";
    for (key, what, remedy) in [
        ("sequence_batching = { direct = {} }", "sequences", "count as independent ones"),
        ("rate_limiter = { priority = 1 }", "rate limiter", "run `tessera load`"),
        (
            "default_queue_policy = { timeout_action = \"DELAY\" }",
            "queue policies such as `DELAY`",
            "are dropped",
        ),
        ("timeout_action = \"DELAY\"", "queue policies such as `DELAY`", "are dropped"),
    ] {
        let text = SOUND.replacen("row_bytes = 10", key, 1);
        let said = try_parse(&text, &[OWN]).unwrap_err().to_string();
        let name = key.split(' ').next().unwrap();
        assert!(said.contains(&format!("models.resnet.{name}: {none}{what}: remove the key; ")), "{said}");
        assert!(said.contains(remedy), "{said}");
    }
    let whole = format!("{SOUND}\n[rate_limit]\nmode = \"execution_count\"\n");
    let said = try_parse(&whole, &[OWN]).unwrap_err().to_string();
    assert!(said.contains("rate_limit: the simulator and the planner have no rate limiter"), "{said}");
}

#[test]
fn each_fault_names_line_key_and_problem() {
    let arrivals = r#"arrivals = { process = "poisson" }"#;
    let rate = "rate = 360.0";
    let profile = r#"profile = { alpha = "1.053ms", beta = "5.072ms", max_batch = 64 }"#;
    let points = r#"points = [[1, "6.1ms"], [8, "13.4ms"]]"#;
    let trace = r#"format = "timestamps", file = "own.csv""#;
    let cases: Vec<(&str, &str, &str)> = vec![
        (
            r#"slo = "25ms""#,
            r#"slo = "6ms""#,
            "workload.toml:20: models.resnet.slo: 6ms cannot be met: a request of 4 row(s) alone takes 9.284ms",
        ),
        (
            r#"slo = "25ms""#,
            r#"slo = "25""#,
            "workload.toml:20: models.resnet.slo: expected a duration such as `50ms`",
        ),
        (
            r#"slo = "25ms""#,
            "",
            "workload.toml:18: models.resnet.slo: expected a value: this key has no default",
        ),
        (
            r#"slo = "25ms""#,
            r#"sl0 = "25ms""#,
            "workload.toml:20: models.resnet.sl0: unknown key, did you mean `slo`?",
        ),
        ("warmup =", "warm_up =", "workload.toml:4: warm_up: unknown key, did you mean `warmup`?"),
        ("seed = 1", "colour = 1", "workload.toml:2: colour: unknown key: expected one of name"),
        (
            "spread = 0.2",
            "spraed = 0.2",
            "workload.toml:10: lanes.noise.spraed: unknown key, did you mean `spread`?",
        ),
        (rate, "rate = 0", "workload.toml:22: models.resnet.rate: expected more than 0"),
        (rate, "rate = -1.5", "workload.toml:22: models.resnet.rate: expected more than 0"),
        (rate, "rate = nan", "workload.toml:22: models.resnet.rate: expected more than 0"),
        (rate, "rate = inf", "workload.toml:22: models.resnet.rate: expected more than 0"),
        (rate, "rate = \"fast\"", "workload.toml:22: models.resnet.rate: expected a number"),
        (rate, "", "workload.toml:18: models.resnet.rate: expected a value: this key has no default"),
        (profile, "profile = {}", "workload.toml:21: models.resnet.profile: expected one of `alpha`"),
        (
            profile,
            r#"profile = { alpha = "1ms", max_batch = 64 }"#,
            "workload.toml:21: models.resnet.profile: expected all three",
        ),
        (
            profile,
            r#"profile = { alpha = "1ms", beta = "1ms", max_batch = 0 }"#,
            "workload.toml:21: models.resnet.profile.max_batch: expected 1 to",
        ),
        (
            profile,
            r#"profile = { alpha = "0s", beta = "0s", max_batch = 4 }"#,
            "workload.toml:21: models.resnet.profile: a batch takes no time",
        ),
        (
            profile,
            r#"profile = { file = "none.csv" }"#,
            "workload.toml:21: models.resnet.profile.file: cannot read `none.csv`: no such file",
        ),
        (
            profile,
            r#"profile = { file = "own.csv" }"#,
            "own.csv:1: models.resnet.profile.file: expected the header `batch,milliseconds`",
        ),
        (
            points,
            r#"points = [[1, "6.1ms"], [8, "5ms"]]"#,
            "workload.toml:30: models.own.profile.points[1]: batch 8 takes 5ms",
        ),
        (
            points,
            r#"points = [[1, "0ms"]]"#,
            "workload.toml:30: models.own.profile.points[0]: batch 1 takes no time",
        ),
        (points, "points = []", "workload.toml:30: models.own.profile.points: expected at least one"),
        (
            arrivals,
            r#"arrivals = { process = "poison" }"#,
            "workload.toml:23: models.resnet.arrivals.process: expected one of poisson, uniform, gamma, mmpp, diurnal, flash, trace, got `poison`, did you mean `poisson`?",
        ),
        (
            arrivals,
            r#"arrivals = { cv = 2.0 }"#,
            "workload.toml:23: models.resnet.arrivals.cv: process `poisson` has no such key",
        ),
        (
            arrivals,
            r#"arrivals = { process = "gamma" }"#,
            "workload.toml:23: models.resnet.arrivals.cv: expected a value: this key has no default",
        ),
        (
            arrivals,
            r#"arrivals = { process = "gamma", cv = 0.0 }"#,
            "workload.toml:23: models.resnet.arrivals.cv: expected 0.01 to 100, got 0",
        ),
        (
            arrivals,
            r#"arrivals = { process = "gamma", cv = -2 }"#,
            "models.resnet.arrivals.cv: expected 0.01 to 100, got -2",
        ),
        (
            arrivals,
            r#"arrivals = { process = "gamma", cv = nan }"#,
            "models.resnet.arrivals.cv: expected 0.01 to 100, got NaN",
        ),
        (
            arrivals,
            r#"arrivals = { process = "mmpp", rates = [1.0], stay = ["1s"] }"#,
            "models.resnet.arrivals.rates: expected 2 to 64",
        ),
        (
            arrivals,
            r#"arrivals = { process = "mmpp", rates = [0.0, 0.0], stay = ["1s", "1s"] }"#,
            "models.resnet.arrivals.rates: expected at least one",
        ),
        (
            arrivals,
            r#"arrivals = { process = "mmpp", rates = [1.0, nan], stay = ["1s", "1s"] }"#,
            "models.resnet.arrivals.rates: expected 0 or more, got NaN",
        ),
        (
            arrivals,
            r#"arrivals = { process = "mmpp", rates = [1.0, 2.0], stay = ["1s", "0s"] }"#,
            "models.resnet.arrivals.stay: expected 100us",
        ),
        (
            arrivals,
            r#"arrivals = { process = "diurnal", period = "0s", low = 0.1 }"#,
            "models.resnet.arrivals.period: expected",
        ),
        (
            arrivals,
            r#"arrivals = { process = "diurnal", period = "1s", low = 1.1 }"#,
            "models.resnet.arrivals.low: expected 0 to 1",
        ),
        (
            arrivals,
            r#"arrivals = { process = "flash", at = "1s", lasts = "1s", factor = 0 }"#,
            "models.resnet.arrivals.factor: expected more than 0",
        ),
        (
            trace,
            r#"format = "timestamp", file = "own.csv""#,
            "models.own.arrivals.format: expected one of azure-functions-minute, azure-llm, counts-per-second, timestamps, got `timestamp`, did you mean `timestamps`?",
        ),
        (
            trace,
            r#"format = "timestamps", file = "other.csv""#,
            "workload.toml:31: models.own.arrivals.file: cannot read `other.csv`: no such file",
        ),
        (
            trace,
            r#"format = "timestamps", file = "own.csv", rate_scale = 2.0"#,
            "models.own.arrivals.rate_scale: format `timestamps` has no such key",
        ),
        (
            trace,
            r#"format = "timestamps", file = "own.csv", time_scale = 0"#,
            "models.own.arrivals.time_scale: expected more than 0",
        ),
        (
            trace,
            r#"format = "timestamps""#,
            "models.own.arrivals.file: expected a value: this key has no default",
        ),
        (
            "[models.own]",
            "[models.own]\nrate = 3.0",
            "workload.toml:29: models.own.rate: a trace has its own rate",
        ),
        (
            "[models.own]",
            "[models.resnet-3]",
            "workload.toml:28: models.resnet-3: the name `resnet-3` is taken",
        ),
        ("[models.own]", "[models.\"o w n\"]", "workload.toml:28: models.o w n: expected a name"),
        ("count = 10", "count = 0", "workload.toml:19: models.resnet.count: expected 1 or more"),
        (
            "count = 10",
            "count = 10001",
            "workload.toml:19: models.resnet.count: expected 1 or more, and at most 10000",
        ),
        (
            "count = 10",
            "count = -1",
            "workload.toml:19: models.resnet.count: expected a whole number of at least 0",
        ),
        (
            "rows = [[1, 0.9], [4, 0.1]]",
            "rows = 0",
            "workload.toml:24: models.resnet.rows: expected 1 to 64 rows",
        ),
        (
            "rows = [[1, 0.9], [4, 0.1]]",
            "rows = [[65, 1.0]]",
            "workload.toml:24: models.resnet.rows: expected 1 to 64 rows, as the profile goes, got 65",
        ),
        (
            "rows = [[1, 0.9], [4, 0.1]]",
            "rows = [[1, 0.0]]",
            "workload.toml:24: models.resnet.rows: expected pairs",
        ),
        ("rows = [[1, 0.9], [4, 0.1]]", "rows = \"many\"", "workload.toml:24: models.resnet.rows: expected "),
        ("row_bytes = 10", "row_bytes = 0", "workload.toml:25: models.resnet.row_bytes: expected 1 to"),
        ("priority = 1", "priority = 8", "workload.toml:26: models.resnet.priority: expected 0 to 7, got 8"),
        (
            "priority = 1",
            "lanes = [8]",
            "workload.toml:26: models.resnet.lanes: expected lanes from 0 to 7, got 8",
        ),
        ("priority = 1", "lanes = []", "workload.toml:26: models.resnet.lanes: expected at least one lane"),
        ("priority = 1", "lanes = [2, 2]", "workload.toml:26: models.resnet.lanes: expected each lane once"),
        (
            "tenants = { gold = 1.0 }",
            "tenants = { gald = 1.0 }",
            "workload.toml:27: models.resnet.tenants.gald: no such tenant in [tenants], did you mean `gold`?",
        ),
        (
            "tenants = { gold = 1.0 }",
            "tenants = { gold = 0.0 }",
            "workload.toml:27: models.resnet.tenants.gold: expected a share above 0",
        ),
        ("gold = 3", "gold = -3", "workload.toml:17: tenants.gold: expected a weight above 0"),
        (
            "gold = 3",
            "gold = \"much\"",
            "workload.toml:17: tenants.gold: expected a weight like 3, or a table like",
        ),
        ("gold = 3", "gold = { weigth = 3 }", "workload.toml:17: tenants.gold.weigth: unknown key"),
        (
            "gold = 3",
            "gold = { device_seconds_per_second = 0 }",
            "workload.toml:17: tenants.gold.device_seconds_per_second: expected more than 0 and at most",
        ),
        (
            "gold = 3",
            "gold = { requests_per_second = 5, requests_burst = 0.5 }",
            "workload.toml:17: tenants.gold.requests_burst: expected at least 1 and at most",
        ),
        (
            "gold = 3",
            "gold = { device_seconds_burst = 1 }",
            "workload.toml:17: tenants.gold.device_seconds_burst: has no effect without the quota",
        ),
        (
            "gold = 3",
            "gold = { borrow = true }",
            "workload.toml:17: tenants.gold.borrow: has no effect without a quota",
        ),
        (
            "lane = 3",
            "lane = 8",
            "workload.toml:13: lanes.failures[0].lane: expected a lane from 0 to 7, got 8",
        ),
        (
            r#"until = "40s""#,
            r#"until = "20s""#,
            "workload.toml:15: lanes.failures[0].until: expected a time after `from`",
        ),
        (
            "[tenants]",
            "[[lanes.failures]]\nlane = 3\nfrom = \"30s\"\n[tenants]",
            "workload.toml:18: lanes.failures[1].from: lane 3 is already down",
        ),
        ("count = 8", "count = 0", "workload.toml:6: lanes.count: expected 1 to 65536"),
        ("count = 8", "count = 65537", "workload.toml:6: lanes.count: expected 1 to 65536"),
        ("cv = 0.02", "cv = -0.02", "workload.toml:8: lanes.noise.cv: expected 0 to 10"),
        ("bias = 1.2", "bias = 0", "workload.toml:9: lanes.noise.bias: expected more than 0"),
        ("spread = 0.2", "spread = 1.0", "workload.toml:10: lanes.noise.spread: expected 0 to less than 1"),
        (
            r#"every = "10s""#,
            r#"every = "0s""#,
            "workload.toml:11: lanes.noise.stalls.every: expected at least 1ms",
        ),
        (
            r#"duration = "60s""#,
            r#"duration = "401d""#,
            "workload.toml:3: duration: expected more than 0 and at most 400d",
        ),
        (r#"duration = "60s""#, r#"duration = "0s""#, "workload.toml:3: duration: expected more than 0"),
        (
            r#"duration = "60s""#,
            "requests = 20000000000",
            "workload.toml:3: requests: expected 1 to 10000000000",
        ),
        (
            r#"duration = "60s""#,
            "",
            "workload.toml: duration: expected `duration` or `requests`, got neither",
        ),
        (
            r#"duration = "60s""#,
            "duration = \"60s\"\nrequests = 5",
            "workload.toml:4: requests: expected `duration` or `requests`, got both",
        ),
        (
            rate,
            "rate = 1e9",
            "workload.toml:3: duration: offers 6.000e11 requests: expected at most 10000000000",
        ),
        (
            r#"warmup = "2s""#,
            r#"warmup = "60s""#,
            "workload.toml:4: warmup: expected less than the duration of 60s, got 60s",
        ),
        (r#"name = "x""#, r#"name = """#, "workload.toml:1: name: expected a name"),
        ("seed = 1", "seed 1", "workload.toml:2: "),
        ("seed = 1", "seed = 1\nseed = 2", "workload.toml:3: duplicate key"),
    ];
    for (old, new, expected) in cases {
        assert!(SOUND.contains(old), "{old}");
        let error = try_parse(&SOUND.replacen(old, new, 1), &[OWN]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{new}\n  is:       {error}\n  expected: {expected}");
    }
}

#[test]
fn lanes_of_models_are_those_of_one_machine() {
    let text = r#"name = "x"
duration = "10s"
[lanes]
count = 4
[fleet]
nodes = 2
[models.m]
slo = "50ms"
profile = { alpha = "1ms", beta = "5ms", max_batch = 8 }
rate = 10
lanes = [0]
"#;
    let said = try_parse(text, &[]).unwrap_err().to_string();
    assert!(
        said.contains("11: models.m.lanes: models choose among fixed lanes of one machine only"),
        "{said}"
    );
}

#[test]
fn a_live_server_needs_no_profile() {
    let bare = "name = \"x\"\nduration = \"10s\"\n[models.digits]\nslo = \"50ms\"\nrate = 500\n";
    let workload = try_parse(&format!("{bare}rows = 4096"), &[]).unwrap();
    let digits = &workload.models[0];
    assert!(digits.profile.is_none() && digits.process() == "poisson" && workload.lanes.count == 1);
    assert!(workload::Arrivals::new(&workload).count() > 4_000);
    let missing = "models.digits.profile: missing: a simulation needs to know how long batches take";
    assert_eq!(digits.profiled().unwrap_err().to_string(), missing);
    assert_eq!(workload::ExecutionNoise::new(&workload).unwrap_err().to_string(), missing);
    let refused = |text: String| try_parse(&text, &[]).unwrap_err().to_string();
    assert_eq!(
        refused(format!("{bare}rows = 4097")),
        "workload.toml:6: models.digits.rows: expected 1 to 4096 rows, got 4097"
    );
    assert_eq!(
        refused(bare.replace("50ms", "0ms")),
        "workload.toml:4: models.digits.slo: expected more than 0"
    );
}

#[test]
fn faults_in_traces_name_the_trace_and_its_line() {
    for (trace, expected) in [
        ("seconds,model\n0,own\n2,own\n1,own\n", "own.csv:4: models.own.arrivals.file: seconds: 1s after 2s"),
        (
            "seconds,model\n0,own\nnan,own\n",
            "own.csv:3: models.own.arrivals.file: seconds: expected a number",
        ),
        (
            "seconds,model\n0,own\n1,resnet\n",
            "own.csv:3: models.own.arrivals.file: model: no model of the workload takes the rows of `resnet`",
        ),
        ("seconds,model\n0,own\n", "own.csv: models.own.arrivals.file: expected at least two"),
        ("", "own.csv:1: models.own.arrivals.file: expected the header `seconds,model`"),
    ] {
        let error = try_parse(SOUND, &[("own.csv", trace)]).map(|_| ()).unwrap_err();
        assert!(
            error.to_string().starts_with(expected),
            "{trace:?}\n  is:       {error}\n  expected: {expected}"
        );
    }
}

#[test]
fn a_file_may_be_named_but_the_files_it_names_keep_their_names() {
    let error = try_parse("name = 1", &[]).map(|_| ()).unwrap_err().named("arena/x.toml");
    assert_eq!((error.file.as_str(), error.line), ("arena/x.toml", Some(1)));
    let error = try_parse(SOUND, &[("own.csv", "")]).map(|_| ()).unwrap_err().named("arena/x.toml");
    assert_eq!(error.file, "own.csv");
    let none = try_parse("name = \"x\"\nduration = \"1s\"", &[]).map(|_| ()).unwrap_err();
    assert!(none.to_string().contains("models: expected at least one"), "{none}");
}

#[test]
fn a_file_is_asked_for_once() {
    let second = SOUND.replace("[models.own]", "[models.own2]\nslo = \"25ms\"\nprofile = { points = [[1, \"6.1ms\"]] }\narrivals = { process = \"trace\", format = \"timestamps\", file = \"own.csv\" }\n[models.own]");
    let mut asked = Vec::new();
    let mut files = |name: &str| {
        asked.push(name.to_owned());
        Ok("seconds,model\n0,own\n1,own2\n".to_owned())
    };
    Workload::parse(&second, &mut files).unwrap();
    assert_eq!(asked, ["own.csv"]);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(start in 0..SOUND.len(), garbage in "[\\PC\n]{0,12}", drop in 0_usize..40) {
        let head: String = SOUND.chars().take(start).collect();
        let tail: String = SOUND.chars().skip(start + drop).collect();
        let _ = try_parse(&format!("{head}{garbage}{tail}"), &[OWN]);
        let _ = try_parse(SOUND, &[("own.csv", &format!("seconds,model\n0,own\n{garbage}"))]);
    }
}
