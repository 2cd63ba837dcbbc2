//! Families in problem files.

use super::*;

const FAMILY: &str = "\
profiles = \"profiles/*.jsonl\"
interference = \"none\"

[devices.cpu]
count = 4
memory = \"1GiB\"
cost = 2.0

[families.digits]
slo = \"210ms\"
rate = 40
quality_mean = 0.9
variants = { light = 0.85, heavy = 0.95 }
";

#[test]
fn a_mean_quality_gives_a_mix_whose_shares_and_rates_add_up() {
    let answer = Bench::new(FAMILY).json(&[]);
    let best = &answer["families"]["policies"][0];
    assert_eq!((&best["policy"], &best["sound"]), (&"tessera".into(), &true.into()));
    assert!(best["quality"].as_f64().unwrap() >= 0.9 - 1e-6, "{best}");
    let variants = best["served"][0]["variants"].as_array().unwrap();
    let sum = |key: &str| variants.iter().map(|variant| variant[key].as_f64().unwrap()).sum::<f64>();
    assert!((sum("share") - 1.0).abs() < 1e-9 && (sum("rate") - 40.0).abs() < 1e-6, "{best}");
    assert!(answer["families"]["cost_least"].as_f64().unwrap() <= best["cost"].as_f64().unwrap() + 1e-6);
    // The plan itself is that of the best policy, with the variants as workloads.
    assert_eq!(answer["policies"][0]["cost"], best["cost"]);
    assert_eq!(code(&Bench::new(FAMILY).arguments(&[])), format!("{:?}", ExitCode::SUCCESS));
}

#[test]
fn the_comparison_has_every_policy_and_the_best_is_first() {
    let answer = Bench::new(FAMILY).json(&["--compare"]);
    let policies = answer["families"]["policies"].as_array().unwrap();
    let mut names: Vec<&str> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    let costs: Vec<f64> = policies
        .iter()
        .filter(|policy| policy["sound"] == true)
        .map(|policy| policy["cost"].as_f64().unwrap())
        .collect();
    assert!(costs.is_sorted(), "{costs:?}");
    names.sort_unstable();
    let mut all = families::names();
    all.sort_unstable();
    assert_eq!(names, all);
}

#[test]
fn the_plan_has_the_name_of_the_policy_that_made_it() {
    let answer = Bench::new(FAMILY).json(&["--policy", "proteus", "--policy", "proteus"]);
    assert_eq!(answer["policies"][0]["policy"], "proteus");
    assert_eq!(answer["families"]["policies"].as_array().unwrap().len(), 1);
}

#[test]
fn the_explanation_says_what_quality_and_losses_cost() {
    let spot = FAMILY.replace("cost = 2.0", "cost = 2.0\nloss_per_hour = 0.02");
    let text = Bench::new(&spot).answer(&["--explain"]);
    for said in [
        "family  variant  quality  on          cost per hour  requests/s  cost of a million",
        "requests/s: of a whole device, in the best batches and shares in time",
        "digits: a mean quality of ",
        "lost with spot devices: 0.07 % of the requests in the long run, of at most 0.10 %",
        "without cpu-0: ",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_quality_may_come_from_the_file_that_measured_it() {
    let bench = Bench::new(&FAMILY.replace("heavy = 0.95", "heavy = \"heavy/quality.json\""));
    let folder = bench.folder.path().join("heavy");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("quality.json"),
        r#"{"quality": 0.97, "kind": "accuracy", "rows": 360, "digest": "ab"}"#,
    )
    .unwrap();
    let answer = bench.json(&[]);
    let variants = answer["families"]["policies"][0]["served"][0]["variants"].as_array().unwrap();
    assert!(variants.iter().any(|variant| variant["quality"] == 0.97), "{variants:?}");
}

#[test]
fn mistakes_in_families_name_the_line_and_the_key() {
    for (from, to, said) in [
        (
            "heavy = 0.95",
            "havy = 0.95",
            "small.toml:13: families.digits.variants.havy: no profile of `havy`, did you mean `heavy`?",
        ),
        (
            "0.95",
            "1.95",
            "small.toml:13: families.digits.variants: `heavy`: expected a quality from 0 to 1, got 1.95",
        ),
        (
            "quality_mean = 0.9",
            "quality_mean = 0.96",
            "small.toml:12: families.digits.quality_mean: expected 0 to 0.95, the best variant's, got 0.96",
        ),
        ("0.95", "\"missing.json\"", "small.toml:13: families.digits.variants.heavy: "),
        (
            "0.95",
            "true",
            "small.toml:13: families.digits.variants.heavy: expected a quality from 0 to 1, or the path of a quality.json",
        ),
        (
            "cost = 2.0",
            "replace = \"5m\"",
            "small.toml:7: devices.cpu.replace: of use with `loss_per_hour` only: expected both, or neither",
        ),
        (
            "cost = 2.0",
            "loss_per_hour = -1.0",
            "small.toml:7: devices.cpu.loss_per_hour: expected 0 to 1000000, got -1",
        ),
        (
            "[devices",
            "spot_lost_max = 0.1\n[devices",
            "small.toml:4: spot_lost_max: of use with spot devices only: expected `loss_per_hour` in a section of devices",
        ),
    ] {
        let error = read_error(&FAMILY.replacen(from, to, 1));
        assert!(error.contains(said), "{to}: {error}");
    }
    let plain = SMALL.replacen("count = 2", "count = 2\nloss_per_hour = 0.1", 1);
    let error = read_error(&plain);
    assert!(
        error.contains("small.toml:6: devices.cpu.loss_per_hour: of use with [families.NAME] only"),
        "{error}"
    );
}

fn read_error(text: &str) -> String {
    let bench = Bench::new(text);
    let arguments = bench.arguments(&[]);
    reading::read(&arguments.problem, &arguments.devices).unwrap_err().to_string()
}

#[test]
fn policies_that_cannot_plan_the_file_are_refused_by_name() {
    let refused = |text: &str, policy: &str| {
        let arguments = Bench::new(text).arguments(&["--policy", policy]);
        let query = Bench::new(text);
        let query = reading::read(&query.arguments(&[]).problem, &[]).unwrap();
        unknown_policy(&arguments, &query)
    };
    let said = refused(FAMILY, "exact").unwrap();
    assert!(
        said.starts_with("--policy: `exact` does not place families: expected one of tessera, "),
        "{said}"
    );
    let said = refused(SMALL, "infaas").unwrap();
    assert!(
        said.starts_with("--policy: `infaas` chooses variants: expected [families.NAME] in the file"),
        "{said}"
    );
    assert_eq!(refused(FAMILY, "infaas"), None);
    assert_eq!(refused(SMALL, "exact"), None);
}

#[test]
fn a_question_without_a_plan_says_what_the_devices_carry() {
    let text = Bench::new(&FAMILY.replace("rate = 40", "rate = 40000")).answer(&[]);
    assert!(text.contains("no plan: even in their best batches, the devices carry "), "{text}");
    assert!(text.contains(" of the load: expected more devices, lower rates, or a lower quality"), "{text}");
    assert!(text.starts_with("small: 1 family on 4 cpu, "), "{text}");
    let text = Bench::new(&FAMILY.replace("210ms", "1ms")).answer(&[]);
    assert!(text.contains("no plan: no variant of `digits` answers within its objective"), "{text}");
}
