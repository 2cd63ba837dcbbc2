//! Families in virtual time: which variants answer, and how many requests.

use router_core::batch::{BatchOptions, Policy};
use sim::{Report, Setup, Simulation};
use workload::Workload;

fn parse(text: &str) -> Workload {
    Workload::parse(text, &mut |name| Err(format!("no file {name}")))
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(text: &str) -> Report {
    let report =
        Simulation::new(&parse(text), &Setup::default().checked()).unwrap().run(&mut |_| {}).unwrap();
    assert_eq!(invariant::violations(), []);
    report
}

/// Three variants that answer 100, 250 and 1,000 requests a second and lane, on two lanes.
fn digits(rate: f64, more: &str) -> String {
    format!(
        r#"
        name = "digits"
        seed = 4
        duration = "60s"
        warmup = "2s"
        [lanes]
        count = 2
        [models.large]
        profile = {{ points = [[1, "10ms"], [2, "20ms"], [4, "40ms"]] }}
        [models.medium]
        profile = {{ points = [[1, "4ms"], [2, "8ms"], [4, "16ms"]] }}
        [models.small]
        profile = {{ points = [[1, "1ms"], [2, "2ms"], [4, "4ms"]] }}
        [families.digits]
        slo = "100ms"
        rate = {rate}
        variants = {{ large = 0.98, medium = 0.95, small = 0.90 }}
        {more}
        "#
    )
}

/// The best mean quality at which two lanes carry this rate: of two variants next to each other.
fn best_quality(rate: f64) -> f64 {
    let variants = [(200.0, 0.98), (500.0, 0.95), (2_000.0, 0.90)];
    let of = |pair: &[(f64, f64)]| {
        let ((slow, better), (fast, worse)) = (pair[0], pair[1]);
        // Share of the better one: its lane time and that of the other are all there is.
        let share = ((1.0 / rate - 1.0 / fast) / (1.0 / slow - 1.0 / fast)).clamp(0.0, 1.0);
        (rate <= fast).then_some(share * better + (1.0 - share) * worse)
    };
    variants.windows(2).filter_map(of).fold(0.0, f64::max)
}

#[test]
fn quality_falls_no_further_than_the_load_demands_and_requests_are_answered() {
    for rate in [50.0, 150.0, 300.0, 450.0, 600.0, 1_200.0] {
        let report = run(&digits(rate, ""));
        let [family] = &report.families[..] else { panic!("{:?}", report.families) };
        let best = best_quality(rate);
        assert!(report.attainment > 0.99, "{rate}: {}", report.attainment);
        assert!(family.quality > 0.99 * best, "{rate}: {} of {best}: {family:?}", family.quality);
    }
}

#[test]
fn without_overload_the_best_variant_answers() {
    let report = run(&digits(60.0, ""));
    let large = report.families[0].variants.iter().find(|variant| variant.name == "large").unwrap();
    assert!(large.share > 0.99, "{:?}", report.families);
}

#[test]
fn no_request_gets_less_quality_than_it_asks_for() {
    let report = run(&digits(900.0, "quality_min = 0.95"));
    let share = |name: &str| {
        report.families[0].variants.iter().find(|variant| variant.name == name).map(|variant| variant.share)
    };
    assert_eq!((share("small"), share("large").map(|share| share < 0.1)), (Some(0.0), Some(true)));
    // 500 a second are what two lanes answer.
    assert!((0.45..0.57).contains(&report.attainment), "{}", report.attainment);
}

#[test]
fn quality_returns_when_the_load_falls() {
    let flash = "arrivals = { process = \"flash\", at = \"20s\", lasts = \"10s\", factor = 6.0 }";
    let report = run(&digits(90.0, flash));
    let family = &report.families[0];
    assert!(report.attainment > 0.98, "{}", report.attainment);
    assert!(family.falls > 0 && family.rises > 0, "{family:?}");
    // 900 of 6,300 requests or so come in the burst, which the best variant answers a third of.
    assert!(family.quality > 0.96, "{family:?}");
}

#[test]
fn other_models_of_the_same_lanes_keep_their_objectives() {
    let other = r#"
        [models.other]
        slo = "100ms"
        rate = 60.0
        profile = { points = [[1, "10ms"], [2, "20ms"], [4, "40ms"]] }
        "#;
    let report = run(&format!("{}{other}", digits(300.0, "")));
    for model in report.models.iter().filter(|model| model.offered > 0) {
        let attained = model.good as f64 / model.offered as f64;
        assert!(attained > 0.98, "{}: {attained}", model.name);
    }
}

#[test]
fn no_policy_breaks_an_invariant() {
    for (policy, _) in Policy::ALL {
        let workload = parse(&digits(700.0, "")).lasting(5_000_000_000).unwrap();
        let setup = Setup::named(policy, &BatchOptions::default()).unwrap().checked();
        let report = Simulation::new(&workload, &setup).unwrap().run(&mut |_| {}).unwrap();
        let answered: u64 = report.families[0].variants.iter().map(|variant| variant.answered).sum();
        assert!(answered > 0 && report.requests.good <= report.requests.offered, "{policy}: {report:?}");
        assert_eq!(invariant::violations(), []);
    }
}

#[test]
fn sections_of_families_are_checked() {
    let error = |from: &str, to: &str| {
        let text = digits(50.0, "").replace(from, to);
        assert_ne!(text, digits(50.0, ""));
        Workload::parse(&text, &mut |name| Err(format!("no file {name}"))).unwrap_err().to_string()
    };
    for (from, to, said) in [
        (
            "large = 0.98",
            "lorge = 0.98",
            "families.digits.variants: `lorge`: no such model in [models], did you mean `large`?",
        ),
        ("large = 0.98", "large = 1.98", "`large`: expected a quality from 0 to 1, got 1.98"),
        (
            "variants = {",
            "quality_min = 0.99\n variants = {",
            "families.digits.quality_min: expected 0 to 0.98, the best variant's, got 0.99",
        ),
        (
            "slo = \"100ms\"",
            "slo = \"500us\"",
            "families.digits.slo: 500us cannot be met: the fastest variant alone takes 1ms",
        ),
        (
            "rate = 50",
            "rows = 9\n rate = 50",
            "families.digits.rows: expected at most 4, the largest batch of `large`, got 9",
        ),
        ("[families.digits]", "[families.large]", "families.large: the name `large` is taken"),
    ] {
        let found = error(from, to);
        assert!(found.contains(said), "{found}");
    }
}
