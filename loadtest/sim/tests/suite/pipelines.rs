//! Pipelines in virtual time.

use router_core::batch::{BatchOptions, Policy};
use sim::{Report, Setup, Simulation};
use workload::Workload;

fn parse(text: &str) -> Workload {
    Workload::parse(text, &mut |name| Err(format!("no file {name}"))).unwrap()
}

fn run(text: &str) -> Report {
    Simulation::new(&parse(text), &Setup::default().checked()).unwrap().run(&mut |_| {}).unwrap()
}

/// Rows of all batches.
fn rows(report: &Report) -> u64 {
    report.batch_sizes.iter().map(|size| u64::from(size.rows) * size.batches).sum()
}

fn ocr(stages: &str) -> String {
    format!(
        r#"
        name = "ocr"
        seed = 3
        duration = "20s"
        [lanes]
        count = 2
        [models.det]
        profile = {{ alpha = "1ms", beta = "20ms", max_batch = 4 }}
        [models.rec]
        profile = {{ alpha = "2ms", beta = "4ms", max_batch = 8 }}
        [pipelines.ocr]
        slo = "300ms"
        rate = 20.0
        stages = [{stages}]
        "#
    )
}

#[test]
fn each_request_runs_its_stages_with_the_rows_that_come_of_them() {
    let report = run(&ocr(r#"{ model = "det", fan_out = 3 }, { model = "rec", from = "det" }"#));
    let [det, rec, whole] = &report.models[..] else { panic!("{:?}", report.models) };
    assert_eq!((whole.name.as_str(), report.requests.offered), ("ocr", whole.offered));
    assert!(report.attainment > 0.999, "{}", report.attainment);
    assert!(whole.offered > 300 && det.offered == 0, "{whole:?} {det:?}");
    assert!(rows(&report).abs_diff(4 * whole.offered) <= 8 && rec.mean_batch > 2.0, "{rec:?}");
}

#[test]
fn stages_without_rows_end_at_once_and_early_answers_leave_the_rest_out() {
    let none = run(&ocr(r#"{ model = "det", fan_out = 0 }, { model = "rec", from = "det" }"#));
    assert_eq!((none.models[1].mean_batch, none.attainment), (0.0, 1.0));
    let half = run(&ocr(r#"{ model = "det", answers = 0.5 }, { model = "rec", from = "det" }"#));
    let share = rows(&half) as f64 / half.models[2].offered as f64 - 1.0;
    assert!((0.4..0.6).contains(&share) && half.attainment > 0.999, "{share}");
}

#[test]
fn parts_larger_than_a_batch_are_divided() {
    let many =
        run(&ocr(r#"{ model = "det", fan_out = 20 }, { model = "rec", from = "det" }"#)
            .replace("20.0", "5.0"));
    assert!(many.attainment > 0.99, "{}", many.attainment);
    assert!(many.models[1].mean_batch > 5.0, "{:?}", many.models[1]);
}

#[test]
fn batches_form_across_pipelines_that_share_a_model() {
    let text = ocr(r#"{ model = "det" }, { model = "rec", from = "det" }"#)
        .replace("20.0", "60.0")
        .replace("count = 2", "count = 3");
    let two = format!(
        "{}\n[pipelines.other]\nslo = \"300ms\"\nrate = 60.0\nstages = [{{ model = \"rec\" }}]\n",
        text
    );
    let (one, two) = (run(&text), run(&two));
    assert!(two.models[1].mean_batch > one.models[1].mean_batch, "{:?} {:?}", one.models, two.models);
    assert!(two.attainment > 0.98, "{}", two.attainment);
}

#[test]
fn no_policy_and_no_division_breaks_an_invariant() {
    for (seed, (policy, _)) in (0_u64..).zip(Policy::ALL.iter().cycle().take(18)) {
        let deadlines = ["end_to_end", "static", "per_stage"][seed as usize % 3];
        let text = workload::random::pipeline_document(seed).replace(
            "\nstages = [",
            &format!("\nsplit = \"nexus\"\ndeadlines = \"{deadlines}\"\nstages = ["),
        );
        let workload = parse(&text).lasting(4_000_000_000).unwrap();
        let setup = Setup::named(policy, &BatchOptions::default()).unwrap().checked();
        let report = Simulation::new(&workload, &setup).unwrap().run(&mut |_| {}).unwrap();
        assert!(report.requests.good <= report.requests.offered, "{seed}: {policy}");
    }
}

#[test]
fn the_simulation_chooses_how_objectives_are_divided() {
    // Of these workloads, each has another best way.
    for seed in [2, 5, 19] {
        let text = workload::random::pipeline_document(seed);
        let with = |way: &str| {
            let text = text.replace("\nstages = [", &format!("\n{way}\nstages = ["));
            Simulation::new(&parse(&text), &Setup::default()).unwrap().run(&mut |_| {}).unwrap()
        };
        let planned = with("split = \"plan\"");
        let ways = ["even", "nexus"].iter().flat_map(|split| {
            ["end_to_end", "static"].map(|deadlines| {
                with(&format!("split = \"{split}\"\ndeadlines = \"{deadlines}\"")).attainment
            })
        });
        let best = ways.fold(0.0, f64::max);
        assert!(planned.attainment > best - 0.02, "{seed}: {} instead of {best}", planned.attainment);
        assert_eq!(planned.splits.len(), text.matches("[pipelines.").count());
        for chosen in &planned.splits {
            assert!(chosen.shares.iter().all(|(_, share)| *share > 0.0 && *share <= 1.0), "{chosen:?}");
        }
        assert!(with("split = \"even\"").splits.is_empty());
        assert_eq!(planned, with("split = \"plan\""), "the choice is the same each time");
    }
}

#[test]
fn sections_of_pipelines_are_checked() {
    let refused = |stages: &str, more: &str| {
        let text = format!("{}\n{more}", ocr(stages));
        Workload::parse(&text, &mut |_| Err(String::new())).unwrap_err().to_string()
    };
    let two = r#"{ model = "det" }, { model = "rec", from = "det" }"#;
    for (stages, more, expected) in [
        ("", "", "pipelines.ocr.stages: expected 1 to 64 stages, got 0"),
        (r#"{ model = "dett" }"#, "", "`dett`: no such model in [models], did you mean `det`?"),
        (r#"{ model = "ocr" }"#, "", "`ocr`: no such model in [models]"),
        (
            r#"{ model = "rec", from = "det" }, { model = "det" }"#,
            "",
            "`rec`: from: `det`: expected the name of an earlier stage",
        ),
        (
            r#"{ model = "det" }, { model = "det", from = "det" }, { model = "rec" }"#,
            "",
            "`det`: two stages have this name",
        ),
        (
            r#"{ model = "rec" }, { model = "det", answers = 1.0 }"#,
            "",
            "`det`: answers: expected a share from 0 to less than 1, got 1",
        ),
        (
            r#"{ model = "rec" }, { model = "det", fan_out = -1.0 }"#,
            "",
            "`det`: fan_out: expected rows from 0 to 10000",
        ),
        (
            two,
            "split = { det = 0.7, rec = 0.7 }",
            "the shares along a path add up to 1.400: expected at most 1",
        ),
        (two, "split = \"plan\"\ndeadlines = \"static\"", "deadlines: is chosen by `split = \"plan\"`"),
        (two, "split = { det = 0.7 }", "expected a share above 0 and at most 1 for stage `rec`"),
        (two, "split = \"fair\"", "expected \"plan\", \"nexus\", \"even\", or a share for each stage"),
    ] {
        let error = refused(stages, more);
        assert!(error.contains(expected), "{error}");
    }
    let error = Workload::parse(&ocr(two).replace("300ms", "25ms"), &mut |_| Err(String::new())).unwrap_err();
    assert!(error.to_string().contains("25ms cannot be met: the stages alone take 27ms"), "{error}");
    let error = Workload::parse(&ocr(two).replace("[pipelines.ocr]", "[models.lone]\nslo = \"1s\"\nprofile = { alpha = \"1ms\", beta = \"1ms\", max_batch = 1 }\n[pipelines.ocr]"), &mut |_| Err(String::new())).unwrap_err();
    assert!(error.to_string().contains("models.lone.rate: expected a value"), "{error}");
}
