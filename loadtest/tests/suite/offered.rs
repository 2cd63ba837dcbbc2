//! The requests are those of the workload, with any number of threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use loadtest::{Drive, Payloads, Protocol, Samples, Session, Settings};
use workload::{Arrivals, Offered, Stages, Workload};

use crate::server::{Act, Server};
use crate::support::{self, PROTOCOLS};

const MIX: &str = "
name = 'mix'
seed = 7
duration = '600ms'
[models.one]
slo = '20s'
rate = 300.0
rows = [[1, 0.5], [2, 0.3], [7, 0.2]]
[models.two]
count = 2
slo = '20s'
rate = 80.0
arrivals = { process = 'gamma', cv = 3.0 }
rows = 4
priority = 2
";

/// Number of requests by model and rows.
fn asked(server: &Server) -> BTreeMap<(String, u32), u64> {
    let mut counts = BTreeMap::new();
    for call in server.inferences() {
        *counts.entry((call.model, call.rows)).or_insert(0) += 1;
    }
    counts
}

fn due(workload: &Workload, requests: impl Iterator<Item = Offered>) -> BTreeMap<(String, u32), u64> {
    let mut counts = BTreeMap::new();
    for Offered { model, rows, .. } in requests {
        *counts.entry((workload.models[model as usize].name.clone(), rows)).or_insert(0) += 1;
    }
    counts
}

#[test]
fn requests_are_those_of_the_workload_however_many_threads_send() {
    let workload = support::workload(MIX);
    let expected = due(&workload, Arrivals::new(&workload));
    assert!(expected.len() == 5 && expected.values().sum::<u64>() > 150, "{expected:?}");
    for protocol in PROTOCOLS {
        for threads in [1, 2, 3] {
            let server = Server::inferring(protocol, |_| Act::Right);
            let settings = Settings { threads, ..support::settings(&server) };
            let report = support::run(&server, &workload, settings).unwrap();
            support::assert_all_ended(&report);
            assert_eq!(report.total.answered, report.total.offered, "{:?}", report.messages);
            assert_eq!(asked(&server), expected, "{protocol:?}, {threads} threads");
            for model in &report.models {
                let of =
                    |((name, _), count): (&(String, u32), &u64)| if *name == model.name { *count } else { 0 };
                assert_eq!(model.figures.offered, expected.iter().map(of).sum::<u64>(), "{}", model.name);
            }
            assert_eq!(report.client.threads, threads);
        }
    }
}

#[test]
fn a_workload_that_ends_by_count_sends_that_many() {
    let workload = support::workload(
        "name = 'n'\nrequests = 123\n[models.a]\nslo = '20s'\nrate = 400.0\n[models.b]\nslo = '20s'\nrate = 100.0",
    );
    let server = Server::inferring(Protocol::Http, |_| Act::Right);
    let session = Session::open(&workload, support::settings(&server)).unwrap();
    server.forget();
    let drive = Drive::Open(Stages::constant(workload::DURATION_MAX).unwrap());
    let report = session.run(&workload, &drive, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap();
    support::assert_all_ended(&report);
    assert_eq!((report.total.offered, report.total.answered), (123, 123));
    assert_eq!(asked(&server), due(&workload, Arrivals::new(&workload)));
}

#[test]
fn stages_have_the_rates_that_were_asked_for() {
    let workload = support::even("1s", 100.0);
    let stages: Vec<_> =
        ["500ms:1", "500ms:4", "400ms:0", "600ms:0..4"].map(|text| text.parse().unwrap()).into();
    let stages = Stages::new(stages).unwrap();
    let server = Server::inferring(Protocol::Grpc, |_| Act::Right);
    let session = Session::open(&workload, support::settings(&server)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = session.run(&workload, &Drive::Open(stages.clone()), &stop, &mut |_| {}).unwrap();
    support::assert_all_ended(&report);
    let mut expected = [0; 4];
    let lasting = workload.lasting(stages.nominal()).unwrap();
    stages.apply(Arrivals::new(&lasting)).for_each(|offered| expected[stages.stage_at(offered.at)] += 1);
    let found: Vec<u64> = report.stages.iter().map(|stage| stage.figures.offered).collect();
    assert_eq!(found, expected);
    for (stage, rate) in report.stages.iter().zip([100.0, 400.0, 0.0, 200.0]) {
        // One request more or less in half a second.
        assert!(
            (stage.figures.offered_rate - rate).abs() <= 4.0,
            "{} for {rate}",
            stage.figures.offered_rate
        );
    }
    let edges: Vec<_> = report.stages.iter().map(|stage| (stage.from_s, stage.to_s)).collect();
    assert_eq!(edges, [(0.0, 0.5), (0.5, 1.0), (1.0, 1.4), (1.4, 2.0)]);
}

#[test]
fn a_closed_loop_keeps_as_many_under_way_as_asked_for_whatever_the_threads() {
    for protocol in PROTOCOLS {
        for (concurrency, threads) in [(1, 2), (3, 2), (2, 3)] {
            let server = Server::inferring(protocol, |_| Act::Right);
            let workload = support::even("200ms", 10.0);
            let settings = Settings { threads, ..support::settings(&server) };
            let session = Session::open(&workload, settings).unwrap();
            let drive = Drive::Closed { concurrency, time: support::time(&workload) };
            let stop = Arc::new(AtomicBool::new(false));
            let report = session.run(&workload, &drive, &stop, &mut |_| {}).unwrap();
            support::assert_all_ended(&report);
            assert!(report.total.answered >= u64::from(concurrency), "{:?}", report.total);
            assert_eq!(report.total.answered, report.total.offered, "{:?}", report.messages);
            if protocol == Protocol::Http {
                assert!(report.client.connections <= u64::from(concurrency), "{}", report.client.connections);
            }
        }
    }
}

#[test]
fn samples_are_sent_in_turn_and_their_answers_expected() {
    let line = |value: f32, expected: f32| {
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,4],"data":[{value},0,0,0]}}],"expect":[{{"name":"y","datatype":"FP32","shape":[1,4],"data":[{expected},0,0,0]}}]}}"#
        )
    };
    let workload = support::even("400ms", 100.0);
    let with = |text: &str, server: &Server| {
        let samples = Arc::new(Samples::parse("s.jsonl", text).unwrap());
        let payloads = Payloads { samples: [("m".to_owned(), samples)].into(), ..Payloads::default() };
        Settings { payloads, ..support::settings(server) }
    };
    for protocol in PROTOCOLS {
        let server = Server::inferring(protocol, |_| Act::Right);
        let right = [line(1.0, 1.0), line(2.0, 2.000_1), line(3.0, 3.0)].join("\n");
        let report = support::run(&server, &workload, with(&right, &server)).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.answered, report.total.offered, "{:?}", report.messages);
        // The first is right, so the run starts; one in three is not.
        let wrong = [line(1.0, 1.0), line(2.0, 2.0), line(3.0, 4.0)].join("\n");
        let report = support::run(&server, &workload, with(&wrong, &server)).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.failed["wrong_answer"], report.total.offered / 3, "{:?}", report.total);
        assert_eq!(report.messages["wrong_answer"], "output `y`: element 0: expected 4, got 3");
    }
}
