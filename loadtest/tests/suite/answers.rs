//! Every answer is looked at: one that is not what the model's metadata says is a failure that says why.

use loadtest::Protocol::{Grpc, Http, Http2};
use loadtest::{Payloads, Protocol, Session, Settings, Tensors};
use oip::{Datatype, Shape};

use crate::server::{Act, Answer, Server, What};
use crate::support::{self, PROTOCOLS};

/// What is wrong, over which protocols, how it is counted, and what is said of it.
struct Case {
    name: &'static str,
    protocols: &'static [Protocol],
    act: fn() -> Act,
    reason: &'static str,
    said: &'static str,
}

const REST: [Protocol; 2] = [Http, Http2];

fn cases() -> Vec<Case> {
    let wrong = |name, protocols, act, said| Case { name, protocols, act, reason: "wrong_answer", said };
    vec![
        wrong(
            "extent",
            &PROTOCOLS,
            || Act::Response(|r| r.outputs[0].0.shape = Shape::from_extents(&[2, 2])),
            "output `y`: expected [-1, 4] for 1 row(s), got [2,2]",
        ),
        wrong(
            "rank",
            &PROTOCOLS,
            || Act::Response(|r| r.outputs[0].0.shape = Shape::from_extents(&[4])),
            "output `y`: expected [-1, 4] for 1 row(s), got [4]",
        ),
        wrong(
            "datatype",
            &PROTOCOLS,
            || Act::Response(|r| r.outputs[0].0.datatype = Datatype::Int32),
            "output `y`: expected FP32, got INT32",
        ),
        wrong("no output", &PROTOCOLS, || Act::Response(|r| r.outputs.clear()), "no output `y`"),
        wrong(
            "other output",
            &PROTOCOLS,
            || Act::Response(|r| r.outputs[0].0.name = "z".into()),
            "no output `y`",
        ),
        wrong("other model", &PROTOCOLS, || Act::Response(|r| r.model_name = "n".into()), "got one of `n`"),
        wrong("truncated", &REST, || Act::Raw(|a| a.body.truncate(a.body.len() - 3)), "outputs[0]"),
        wrong(
            "no header length",
            &REST,
            || Act::Raw(|a| a.headers.retain(|(n, _)| !n.starts_with("inf"))),
            "body",
        ),
        wrong(
            "header length beyond the body",
            &REST,
            || Act::Raw(|a| set(a, "inference-header-content-length", "99999")),
            "99999",
        ),
        wrong(
            "header length of letters",
            &REST,
            || Act::Raw(|a| set(a, "inference-header-content-length", "many")),
            "expected a whole number",
        ),
        wrong("no JSON", &REST, || Act::Raw(|a| *a = Answer::json(200, "garbage")), "response body"),
        wrong("nothing", &REST, || Act::Raw(|a| *a = Answer::json(200, "")), "response body"),
        wrong(
            "a page",
            &REST,
            || Act::Raw(|a| *a = Answer::json(200, "<html><h1>It works!</h1>")),
            "response body",
        ),
        wrong(
            "an error that says 200",
            &REST,
            || Act::Raw(|a| *a = Answer::json(200, r#"{"error":"no"}"#)),
            "outputs",
        ),
        wrong(
            "compressed",
            &[Grpc],
            || Act::Raw(|a| a.body = [&[1], &a.body[1..]].concat().into()),
            "expected an uncompressed message",
        ),
        wrong("no message", &[Grpc], || Act::Raw(|a| a.body.clear()), "an answer without a message"),
        wrong(
            "garbage message",
            &[Grpc],
            || Act::Raw(|a| a.body = vec![0xff; 40].into()),
            "expected an uncompressed message",
        ),
        wrong(
            "truncated message",
            &[Grpc],
            || Act::Raw(|a| a.body.truncate(a.body.len() - 3)),
            "cannot read a message",
        ),
        Case {
            name: "a page",
            protocols: &[Grpc],
            act: || Act::Raw(|a| *a = Answer::json(200, "<html>")),
            reason: "not_grpc",
            said: "http status 200 OK and no grpc-status",
        },
        Case {
            name: "not found",
            protocols: &REST,
            act: || Act::Raw(|a| *a = Answer::json(404, "no such thing")),
            reason: "http_404",
            said: "no such thing",
        },
    ]
}

fn set(answer: &mut Answer, name: &'static str, value: &str) {
    answer.headers.retain(|(found, _)| *found != name);
    answer.headers.push((name, value.to_owned()));
}

#[test]
fn what_is_wrong_from_the_start_ends_the_run_before_it_begins() {
    let workload = support::even("100ms", 100.0);
    for case in cases() {
        for &protocol in case.protocols {
            let server = Server::inferring(protocol, move |_| (case.act)());
            let error = support::run(&server, &workload, support::settings(&server)).unwrap_err().to_string();
            let start = format!("model `m`: {}: ", case.reason);
            assert!(
                error.starts_with(&start) && error.contains(case.said),
                "{}, {protocol:?}: {error}",
                case.name
            );
            // This server does not report the binary tensor extension, which may be the reason.
            assert_eq!(error.ends_with("try --tensors json"), protocol != Grpc, "{error}");
            assert_eq!(server.inferences().len(), 1);
        }
    }
}

#[test]
fn what_is_wrong_later_is_counted_and_told() {
    let workload = support::even("200ms", 100.0);
    for case in cases() {
        for &protocol in case.protocols {
            // The first is the question whether the server answers; then every other one is wrong.
            let act = case.act;
            let server = Server::inferring(
                protocol,
                move |call| if call.number % 2 == 1 { act() } else { Act::Right },
            );
            let report = support::run(&server, &workload, support::settings(&server)).unwrap();
            support::assert_all_ended(&report);
            let told = format!("{}, {protocol:?}: {:?} {:?}", case.name, report.total, report.messages);
            assert_eq!(report.total.offered, 20, "{told}");
            assert_eq!((report.total.answered, report.total.good), (10, 10), "{told}");
            assert_eq!(report.total.failed.get(case.reason), Some(&10), "{told}");
            assert!(report.messages[case.reason].contains(case.said), "{told}");
            assert!((report.total.attainment - 0.5).abs() < 1e-9, "{told}");
        }
    }
}

#[test]
fn the_right_answer_to_another_request_is_wrong() {
    // Both shapes are right for some request of the run.
    let workload = support::one_model("300ms", 200.0, "rows = [[1, 0.5], [3, 0.5]]");
    for protocol in PROTOCOLS {
        let server = Server::inferring(protocol, |call| {
            if call.number < 30 || call.rows == 1 {
                return Act::Right;
            }
            Act::Response(|response| {
                let tensor = &mut response.outputs[0].0;
                tensor.shape = Shape::from_extents(&[1, 4]);
                tensor.data.truncate(16);
            })
        });
        let report = support::run(&server, &workload, support::settings(&server)).unwrap();
        support::assert_all_ended(&report);
        let wrong =
            server.inferences().iter().filter(|call| call.rows == 3 && call.number >= 30).count() as u64;
        assert!(wrong > 0);
        assert_eq!(report.total.failed.get("wrong_answer"), Some(&wrong), "{protocol:?}: {:?}", report.total);
        assert_eq!(report.messages["wrong_answer"], "output `y`: expected [-1, 4] for 3 row(s), got [1,4]");
    }
}

#[test]
fn tensors_travel_as_json_too() {
    let workload = support::even("200ms", 100.0);
    for protocol in REST {
        let server = Server::inferring(protocol, |call| match call.number {
            5 => Act::Raw(|answer| {
                assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("inference-header")));
            }),
            _ => Act::Right,
        });
        let settings = Settings { tensors: Tensors::Json, ..support::settings(&server) };
        let report = support::run(&server, &workload, settings).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.answered, 20, "{:?}", report.messages);
    }
    let server = Server::inferring(Grpc, |_| Act::Right);
    let settings = Settings { tensors: Tensors::Json, ..support::settings(&server) };
    let error = support::run(&server, &workload, settings).unwrap_err().to_string();
    assert_eq!(error, "--tensors: gRPC: expected binary tensors, got JSON");
}

#[test]
fn values_for_an_unknown_model_are_refused() {
    let workload = support::even("100ms", 100.0);
    let server = Server::inferring(Http, |_| Act::Right);
    let line = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#;
    let samples = || std::sync::Arc::new(loadtest::Samples::parse("s.jsonl", line).unwrap());
    let payloads = |shape: &str, range: &str, model: &str| Payloads {
        shapes: [(shape.to_owned(), vec![1, 4])].into(),
        ranges: [(range.to_owned(), (0.0, 1.0))].into(),
        samples: [(model.to_owned(), samples())].into(),
        of_other_models: false,
    };
    for (payloads, said) in [
        (payloads("x", "m/x", "m"), None),
        (Payloads { of_other_models: true, ..payloads("y", "mx", "m") }, None),
        (payloads("y", "x", "m"), Some("--shape: no model of the workload has an input `y`")),
        (payloads("n/x", "x", "m"), Some("--shape: no model of the workload has an input `n/x`")),
        (payloads("x", "mx", ""), Some("--range: no model of the workload has an input `mx`")),
        (payloads("x", "x", "n"), Some("--samples: the server is asked for no model `n`")),
    ] {
        let settings = Settings { payloads, ..support::settings(&server) };
        let opened = Session::open(&workload, settings).err().map(|error| error.to_string());
        assert_eq!(opened.as_deref(), said);
    }
}

#[test]
fn a_server_of_another_kind_is_refused() {
    let workload = support::even("100ms", 100.0);
    let page = |what| {
        move |call: &crate::server::Call| {
            if call.what == what {
                Act::Raw(|answer| *answer = Answer::json(200, "<html>"))
            } else {
                Act::Right
            }
        }
    };
    for (protocol, what, said) in [
        (Http, What::Server, "/v2: expected the Open Inference Protocol"),
        (Http2, What::Server, "/v2: expected the Open Inference Protocol"),
        (Grpc, What::Server, "not_grpc: http status 200 OK and no grpc-status"),
        (Http, What::Model, "model `m`: /v2/models/m: expected the Open Inference Protocol"),
        (Grpc, What::Model, "model `m`: not_grpc"),
    ] {
        let server = Server::start(protocol, page(what));
        let error = support::run(&server, &workload, support::settings(&server)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
