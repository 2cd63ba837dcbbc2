use super::*;
use crate::fixture;

fn sound(html: &str) {
    for outside in ["<script", "<link", "<img", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let elsewhere = html.matches("http").count() - html.matches("http://127.0.0.1:8000").count();
    assert_eq!(elsewhere, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert!(!html.contains("NaN") && !html.contains("inf\""), "every number is finite");
}

#[test]
fn a_page_shows_every_result_and_needs_no_other_file() {
    let mut report = fixture::report();
    report.interrupted = true;
    report.client.late_from = Some("2026-11-21T13:02:10Z".to_owned());
    report.client.late_seconds = 3;
    report.seconds[30].kept_up = false;
    report.messages.insert("overloaded".to_owned(), "the queue <is> full".to_owned());
    let html = html(&report, "tessera load pair.toml --report out.html");
    sound(&html);
    for told in [
        "pair: a run against tessera 0.1.0",
        "85.10 % of requests were answered within their latency objective: 492 of 578 a second.",
        "<h2>The client limited the results</h2>\n<ul>\n<li>this client could not keep up: results from 13:02:10 UTC",
        "the run was stopped early",
        "3 models (each with its own SLO) on tessera 0.1.0 at",
        "Driven by an open loop, 578 requests a second for 56 s",
        "tessera load pair.toml --report out.html",
        "<th scope=\"row\">bert &lt;base&gt;</th>",
        "Latency by percentile",
        ">99.9<",
        "in multiples of the SLO",
        "client too slow",
        "Requests a second",
        "Goodput against offered rate",
        "refused: deadline unmeetable",
        "the queue &lt;is&gt; full",
        "resnet: 3,370 batches, 7.19 rows and 5.87 ms on average",
        "The client that measured: 1 thread",
    ] {
        assert!(html.contains(told), "{told}");
    }
    assert_eq!(html.matches("<figure>").count(), 7);
    assert_eq!(html, super::html(&report, "tessera load pair.toml --report out.html"));
}

#[test]
fn one_slo_is_a_line_over_milliseconds() {
    let html = html(&fixture::plain(), "tessera load");
    sound(&html);
    assert!(html.contains("One model (SLO 25 ms)") && html.contains("each second&#39;s requests</text>"));
    assert_eq!(html.matches(">SLO</text>").count(), 4, "over the percentiles and over time, in two layouts");
    assert!(!html.contains("Goodput against") && !html.contains("class=\"notes\""));
}

#[test]
fn an_slo_far_above_all_times_does_not_flatten_them() {
    let mut report = fixture::plain();
    report.models[0].slo_ms = 5_000.0;
    let html = html(&report, "tessera load");
    assert!(!html.contains(">SLO</text>"), "{html}");
    assert_eq!(html.matches("The SLO, 5,000 ms, lies far above the picture.").count(), 2);
}

#[test]
fn a_long_list_of_models_is_shortened_and_the_page_says_so() {
    let mut report = fixture::plain();
    let model = report.models[0].clone();
    report.models = (0..60)
        .map(|number| crate::report::ModelFigures { name: format!("model-{number}"), ..model.clone() })
        .collect();
    let html = html(&report, "tessera load");
    sound(&html);
    for told in ["The first 8 of 60 models.", "and 10 more models", "56 more models are in the table below"] {
        assert!(html.contains(told), "{told}");
    }
    assert!(!html.contains(">model-50</th>"));
}

#[test]
fn a_closed_loop_is_told_for_what_it_is() {
    let mut report = fixture::plain();
    report.driven = Driven::Closed { concurrency: 16 };
    report.stages.clear();
    let html = html(&report, "tessera load");
    sound(&html);
    assert!(
        html.contains("Driven by a closed loop, 16 requests in flight")
            && html.contains("not that with more clients")
    );
}

#[test]
fn what_has_no_data_is_left_out() {
    let html = html(&fixture::idle(), "tessera load");
    sound(&html);
    assert!(html.contains("<h2>Results</h2>") && !html.contains("<svg"), "{html}");
}

#[test]
fn a_day_has_no_more_points_than_can_be_seen() {
    let mut report = fixture::plain();
    let seconds = report.seconds.clone();
    report.seconds = seconds.iter().cycle().take(86_400).cloned().collect();
    report.seconds.iter_mut().zip(0..).for_each(|(second, t)| second.t = t);
    let html = html(&report, "tessera load");
    assert!(html.contains("A point is the worst of 72 seconds.") && html.len() < 300_000, "{}", html.len());
}

#[test]
fn a_search_for_the_capacity_shows_what_it_tried() {
    let mut report = fixture::plain();
    let trial = |rate: f64, attainment: f64| sim::Trial {
        scale: rate / 500.0,
        rate,
        attainment,
        holds: attainment >= 0.99,
    };
    report.capacity = Some(sim::Capacity {
        rate: 812.0,
        scale: 1.6,
        attainment: 0.992,
        settled: true,
        trials: vec![trial(500.0, 1.0), trial(1_000.0, 0.6), trial(812.0, 0.992)],
    });
    let html = html(&report, "tessera load --find-capacity");
    sound(&html);
    assert!(
        html.contains(
            "Capacity: 812 requests a second, the highest sustained rate (99.20 % within the SLO); 1,000 were too many."
        )
    );
    assert!(
        html.contains("a rate that was tried: 812 at 812")
            || html.contains("a rate that was tried: 806 at 812")
    );
    assert!(html.contains(">capacity</text>"));
}
