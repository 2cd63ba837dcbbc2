use proptest::prelude::*;

use super::*;

fn header(units_total: u32) -> Header {
    Header {
        version: 1,
        model: "m".to_owned(),
        model_sha256: None,
        device: "d".to_owned(),
        engine: "e".to_owned(),
        source: Source::Synthesised,
        note: String::new(),
        shapes: Vec::new(),
        units_total,
        weights_bytes: Some(1_000),
        load_us_per_row: 0.0,
    }
}

fn cell(batch: u32, units: u32, time: f64) -> Line {
    Line::Cell(Cell {
        batch,
        units,
        p50_us: time,
        p95_us: 1.1 * time,
        p99_us: 1.2 * time,
        count: 100,
        left_out: None,
        doubt: None,
        predicted: None,
    })
}

fn profile(lines: impl IntoIterator<Item = Line>) -> Profile {
    let lines = std::iter::once(Line::Profile(header(16))).chain(lines);
    Profile::of_lines(lines).unwrap().remove(0)
}

#[test]
fn between_cells_time_is_linear_in_batch_and_in_reciprocal_units() {
    let known = profile([cell(1, 4, 100.0), cell(5, 4, 300.0), cell(1, 8, 50.0), cell(5, 8, 200.0)]);
    assert_eq!(known.latency_us(Quantile::P50, 3, 4), Ok(200.0));
    let sixth = known.latency_us(Quantile::P50, 1, 6).unwrap();
    assert!((sixth - (50.0 + 50.0 / 3.0)).abs() < 1e-9, "{sixth}");
    assert_eq!(known.latency_us(Quantile::P99, 1, 8), Ok(60.0));
    assert_eq!((known.batches(), known.shares()), ((1, 5), (4, 8)));
}

#[test]
fn times_outside_the_measured_range_are_errors() {
    let known = profile([cell(1, 4, 100.0), cell(5, 4, 300.0), cell(1, 8, 50.0)]);
    for (batch, units) in [(0, 4), (6, 4), (1, 3), (1, 9), (3, 6), (3, 8)] {
        let outside = known.latency_us(Quantile::P50, batch, units).unwrap_err();
        assert_eq!((outside.batch, outside.units), (batch, units));
    }
    let text = known.latency_us(Quantile::P50, 6, 4).unwrap_err().to_string();
    assert_eq!(
        text,
        "profile of `m` on `d`: nothing known about batch 6 on 4 units, expected batch 1 to 5 and 4 to 8 units"
    );
}

#[test]
fn contradictions_are_repaired_and_reported() {
    let known = profile([cell(1, 4, 100.0), cell(2, 4, 90.0), cell(1, 8, 96.0), cell(2, 8, 97.0)]);
    let at = |batch, units| known.latency_us(Quantile::P50, batch, units).unwrap();
    assert!(at(1, 4) <= at(2, 4) && at(2, 8) <= at(2, 4));
    let told = known.repairs().iter().filter(|repair| repair.quantile == Quantile::P50);
    assert!(told.clone().any(|repair| (repair.batch, repair.units, repair.measured_us) == (2, 4, 90.0)));
    assert!(profile([cell(1, 4, 100.0), cell(2, 4, 110.0)]).repairs().is_empty());
}

#[test]
fn memory_and_utilisation_are_looked_up() {
    let line = |batch, cache| {
        Line::Utilisation(UtilisationLine { batch, used: Utilisation { cache, bandwidth: cache / 2.0 } })
    };
    let arenas = [(4, 1_000), (8, 3_000)].map(|(batch, bytes)| Line::Arena(ArenaLine { batch, bytes }));
    let known = profile([cell(1, 4, 1.0), line(2, 0.2), line(4, 0.4)].into_iter().chain(arenas));
    assert_eq!(
        [1, 4, 5, 8, 16].map(|batch| known.arena_bytes(batch).unwrap()),
        [1_000, 1_000, 3_000, 3_000, 6_000]
    );
    assert_eq!(
        [1, 2, 3, 4, 9].map(|batch| (10.0 * known.utilisation(batch).unwrap().cache).round()),
        [2.0, 2.0, 3.0, 4.0, 4.0]
    );
    assert_eq!(profile([cell(1, 4, 1.0)]).arena_bytes(1), None);
}

#[test]
fn profiles_round_trip_through_text() {
    let known = profile([cell(1, 4, 40.0), cell(2, 4, 60.0), Line::Arena(ArenaLine { batch: 2, bytes: 7 })]);
    let text = known.write().unwrap();
    assert_eq!(Profile::read(&text).unwrap(), [known]);
    assert!(text.starts_with("{\"profile\":{\"version\":1,\"model\":\"m\""), "{text}");
}

#[test]
fn later_contention_lines_replace_earlier_ones() {
    let line = |aggressor, slowdown| {
        Line::Contention(ContentionLine {
            batch: 2,
            units: 4,
            aggressor,
            aggressor_units: 12,
            slowdown,
            pressure: 1.02,
            count: 100,
        })
    };
    let (compute, stream, again) =
        (line(Aggressor::Compute, 1.01), line(Aggressor::Stream, 1.3), line(Aggressor::Stream, 1.4));
    let known = profile([cell(1, 4, 40.0), stream, compute.clone(), again.clone()]);
    let text = known.write().unwrap();
    assert!(text.contains("{\"contention\":{\"batch\":2,\"units\":4,\"aggressor\":\"compute\""), "{text}");
    let read = Profile::read(&text).unwrap().remove(0);
    assert_eq!(read, known);
    assert_eq!(read.lines()[2..], [compute, again]);
}

#[test]
fn doubts_about_a_cell_are_kept() {
    let Line::Cell(sure) = cell(1, 4, 40.0) else { panic!("a cell is a cell") };
    let doubted = Cell { left_out: Some(9), doubt: Some("others used its cores".to_owned()), ..sure.clone() };
    let known = profile([Line::Cell(doubted.clone())]);
    let text = known.write().unwrap();
    assert!(text.contains("\"left_out\":9,\"doubt\":\"others used its cores\""), "{text}");
    assert!(Profile::read(&text).unwrap()[0].lines().contains(&Line::Cell(doubted.clone())));
    let plain = profile([Line::Cell(sure)]).write().unwrap();
    assert!(!plain.contains("left_out") && !plain.contains("doubt"), "{plain}");
    let long = Line::Cell(Cell { doubt: Some("x".repeat(1_025)), ..doubted });
    let error = Profile::of_lines([Line::Profile(header(16)), long]).unwrap_err();
    assert_eq!(error.to_string(), "cell.doubt: expected at most 1024 bytes");
}

/// A predicted cell, between 0.8 and 1.5 times the time.
fn predicted(batch: u32, units: u32, time: f64) -> Line {
    let Line::Cell(measured) = cell(batch, units, time) else { return cell(batch, units, time) };
    let interval = Interval { low_us: 0.8 * time, high_us: 1.5 * time };
    Line::Cell(Cell { count: 0, predicted: Some(interval), ..measured })
}

#[test]
fn plans_use_a_longer_time_than_expected_for_predicted_cells_and_batches_the_expected_time() {
    let known = profile([cell(1, 4, 100.0), predicted(2, 4, 160.0), predicted(4, 4, 300.0)]);
    let at = |batch| [known.latency_us(Quantile::P99, batch, 4), known.expected_us(Quantile::P99, batch, 4)];
    assert_eq!(at(1), [Ok(120.0), Ok(120.0)]);
    // The upper end is 1.5 times the expected time.
    let planned = known.latency_us(Quantile::P99, 2, 4).unwrap() / (1.2 * 160.0);
    assert!((planned - 1.5_f64.sqrt()).abs() < 1e-9, "{planned}");
    assert_eq!(known.expected_us(Quantile::P99, 2, 4), Ok(1.2 * 160.0));
    assert_eq!((known.predicted().count(), known.cells().len()), (2, 3));
    let text = known.write().unwrap();
    assert!(text.contains(r#""count":0,"source":"predicted","low_us":128.0,"high_us":240.0"#), "{text}");
    assert!(Profile::read(&text).unwrap()[0].predicted().eq(known.predicted()));
    let sure = known.without_doubt();
    assert_eq!(sure.latency_us(Quantile::P99, 2, 4), Ok(1.2 * 160.0));
    assert_eq!((sure.predicted().count(), sure.expected_us(Quantile::P50, 4, 4)), (0, Ok(300.0)));
    assert_eq!(Profile::read(&sure.write().unwrap()).unwrap()[0].latency_us(Quantile::P50, 4, 4), Ok(300.0));
}

#[test]
fn work_of_operators_is_kept_by_class() {
    let work = |class: &str, macs| {
        let class = class.to_owned();
        WorkLine { class, operators: 2.0, macs, weight_bytes: 8.0, activation_bytes: 4.0, path: 1.0 }
    };
    let lines = [work("convolution", 5.0), work("other", 0.0), work("convolution", 6.0)].map(Line::Work);
    let known = profile(std::iter::once(cell(1, 4, 40.0)).chain(lines));
    assert_eq!(known.work(), [work("convolution", 6.0), work("other", 0.0)]);
    assert_eq!(Profile::read(&known.write().unwrap()).unwrap()[0].work(), known.work());
    for (wrong, says) in [
        (work("", 1.0), "work.class: expected 1 to 64 bytes"),
        (work("other", -1.0), "work.macs: expected 0 or more, got -1"),
    ] {
        let error = Profile::of_lines([Line::Profile(header(16)), Line::Work(wrong)]).unwrap_err();
        assert_eq!(error.to_string(), says);
    }
}

#[test]
fn a_measured_cell_replaces_a_predicted_one_and_decides_where_they_contradict() {
    let known =
        profile([predicted(1, 4, 90.0), predicted(2, 4, 500.0), cell(4, 4, 400.0), cell(1, 4, 100.0)]);
    assert_eq!(known.predicted().map(|cell| cell.batch).collect::<Vec<_>>(), [2]);
    let [two, four] = [2, 4].map(|batch| known.latency_us(Quantile::P50, batch, 4).unwrap());
    assert!((two / 400.0 - 1.0).abs() < 1e-3 && (four / 400.0 - 1.0).abs() < 1e-3, "{two} {four}");
    assert!(known.repairs().iter().all(|repair| repair.batch == 4), "{:?}", known.repairs());
}

#[test]
fn invalid_lines_name_the_field() {
    let first = serde_json::to_string(&Line::Profile(header(16))).unwrap();
    let table = [
        ("nonsense", "line 1: line: expected a JSON object"),
        ("{\"cell\":{}}", "line 1: line: expected a JSON object like {\"cell\": ...}: missing field `batch`"),
        (
            "{\"arena\":{\"batch\":1,\"bytes\":1}}",
            "line 1: profile: expected a profile line before all others",
        ),
        ("HEAD", "line 1: profile: `m` has neither cells nor coefficients"),
        (
            "HEAD\n{\"cell\":{\"batch\":0,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":1}}",
            "line 2: cell.batch: expected 1 to 4096, got 0",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":17,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":1}}",
            "line 2: cell.units: expected 1 to 16, got 17",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":2,\"p95_us\":1,\"p99_us\":1,\"count\":1}}",
            "line 2: cell.p95_us: expected p50_us <= p95_us <= p99_us",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":-2,\"p95_us\":1,\"p99_us\":1,\"count\":1}}",
            "line 2: cell.p50_us: expected above 0",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":0,\"source\":\"predicted\"}}",
            "line 2: line: expected a JSON object like {\"cell\": ...}: expected `low_us` and `high_us` in a cell with source `predicted`",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":0,\"source\":\"predicted\",\"low_us\":2,\"high_us\":3}}",
            "line 2: cell.low_us: expected above 0 and low_us <= p50_us <= high_us, at most 3600000000, got 2, 1 and 3",
        ),
        (
            "HEAD\n{\"cell\":{\"batch\":1,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\"count\":5,\"source\":\"predicted\",\"low_us\":1,\"high_us\":3}}",
            "line 2: cell.count: expected 0 runs of a predicted cell, got 5",
        ),
        (
            "HEAD\n{\"contention\":{\"batch\":1,\"units\":15,\"aggressor\":\"stream\",\"aggressor_units\":2,\"slowdown\":1,\"pressure\":1,\"count\":1}}",
            "line 2: contention.aggressor_units: expected 1 to 1, the units that the batch leaves, got 2",
        ),
        (
            "HEAD\n{\"contention\":{\"batch\":1,\"units\":8,\"aggressor\":\"stream\",\"aggressor_units\":8,\"slowdown\":0,\"pressure\":1,\"count\":1}}",
            "line 2: contention.slowdown: expected above 0 and at most 1000, got 0",
        ),
        (
            "HEAD\n{\"contention\":{\"batch\":1,\"units\":8,\"aggressor\":\"noise\",\"aggressor_units\":8,\"slowdown\":1,\"pressure\":1,\"count\":1}}",
            "line 2: line: expected a JSON object like {\"cell\": ...}: unknown variant `noise`, expected `compute` or `stream`",
        ),
        (
            "HEAD\n{\"utilisation\":{\"batch\":1,\"cache\":1.5,\"bandwidth\":0}}",
            "line 2: utilisation.cache: expected a share from 0 to 1, got 1.5",
        ),
    ];
    for (text, expected) in table {
        let error = Profile::read(&text.replace("HEAD", &first)).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn without_overlap_latency_is_unchanged_and_load_is_zero() {
    for known in Profile::read(include_str!("../../examples/igniter-v100.jsonl")).unwrap() {
        let alone = known.clone().without_overlap();
        assert!(known.load_us(8) > 0.0 && alone.load_us(8) == 0.0, "{}", known.model());
        for (batch, units) in [(1, 1), (8, 20), (32, 40)] {
            let times =
                [&known, &alone].map(|profile| profile.latency_us(Quantile::P99, batch, units).unwrap());
            assert!((times[0] - times[1]).abs() < 1e-6 * times[0], "{times:?}");
        }
    }
}

proptest! {
    #[test]
    fn more_rows_are_never_faster_nor_more_units_slower(
        cells in prop::collection::vec((1_u32..12, 1_u32..=16, 1.0_f64..1_000.0, 1_u64..1_000), 1..60),
    ) {
        let lines = cells.iter().map(|&(batch, units, time, count)| {
            Line::Cell(Cell { batch, units, p50_us: time, p95_us: time, p99_us: time, count, left_out: None, doubt: None, predicted: None })
        });
        let known = profile(lines);
        for units in 1..=16 {
            for batch in 1..12 {
                let Ok(here) = known.latency_us(Quantile::P50, batch, units) else { continue };
                prop_assert!(here > 0.0);
                if let Ok(larger) = known.latency_us(Quantile::P50, batch + 1, units) {
                    prop_assert!(larger >= here * (1.0 - 1e-12), "batch {batch} on {units}: {here} then {larger}");
                }
                if let Ok(wider) = known.latency_us(Quantile::P50, batch, units + 1) {
                    prop_assert!(wider <= here * (1.0 + 1e-12), "batch {batch} on {units}: {here} then {wider}");
                }
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = Profile::read(&text);
    }
}

#[test]
fn a_correction_multiplies_times_and_replaces_predicted_cells_that_ran() {
    let known = profile([cell(1, 4, 100.0), predicted(2, 4, 160.0), predicted(4, 4, 300.0)]);
    let measured = std::collections::BTreeMap::from([((4, 1), 90.0), ((4, 2), 220.0)]);
    let corrected = known.corrected(1.5, &measured);
    assert_eq!(corrected.predicted().map(|cell| cell.batch).collect::<Vec<_>>(), [4]);
    let us = |batch| corrected.expected_us(Quantile::P50, batch, 4).unwrap();
    // The first was measured, so that only the factor applies.
    for (batch, expected) in [(1, 150.0), (2, 220.0), (4, 450.0)] {
        assert!((us(batch) - expected).abs() < 1e-9, "{batch}: {}", us(batch));
    }
    assert_eq!(known.corrected(1.0, &std::collections::BTreeMap::new()), known);
}
