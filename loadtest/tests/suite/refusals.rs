//! A rejection under overload does not count as a failure, and a client error does not count as a rejection.

use loadtest::Protocol::{Grpc, Http, Http2};

use crate::server::{Act, Answer, Server};
use crate::support::{self, PROTOCOLS};

/// How a server says no, how that is counted, and whether it is a refusal.
type Case = (fn(&mut Answer), &'static str, bool);

fn with_reason(answer: &mut Answer) {
    *answer = Answer::json(503, r#"{"error":"full"}"#);
    answer.headers.push(("x-tessera-reason", "queue_full".to_owned()));
}

#[test]
fn refusals_and_failures_are_told_apart() {
    let workload = support::even("300ms", 100.0);
    let rest: [Case; 6] = [
        (with_reason, "queue_full", true),
        (|a| *a = Answer::json(429, "{}"), "http_429", true),
        (|a| *a = Answer::json(503, "{}"), "http_503", true),
        (|a| *a = Answer::json(504, "{}"), "http_504", true),
        (|a| *a = Answer::json(400, "bad"), "http_400", false),
        (|a| *a = Answer::json(500, "bad"), "http_500", false),
    ];
    let grpc: [Case; 6] = [
        (|a| *a = Answer::grpc_status(8, "full"), "grpc_resource_exhausted", true),
        (|a| *a = Answer::grpc_status(14, "later"), "grpc_unavailable", true),
        (|a| *a = Answer::grpc_status(4, "late"), "grpc_deadline_exceeded", true),
        (|a| *a = Answer::grpc_status(3, "bad"), "grpc_invalid_argument", false),
        (|a| *a = Answer::grpc_status(13, "bad"), "grpc_internal", false),
        (|a| *a = Answer::grpc_status(99, "what"), "grpc_unknown", false),
    ];
    for protocol in PROTOCOLS {
        for (change, reason, is_refusal) in if protocol == Grpc { grpc } else { rest } {
            let server = Server::inferring(protocol, move |call| match call.number % 3 {
                2 => Act::Raw(change),
                _ => Act::Right,
            });
            let report = support::run(&server, &workload, support::settings(&server)).unwrap();
            support::assert_all_ended(&report);
            let total = &report.total;
            let (counted, empty) =
                if is_refusal { (&total.refused, &total.failed) } else { (&total.failed, &total.refused) };
            assert_eq!(counted.get(reason), Some(&10), "{protocol:?}: {total:?}");
            assert_eq!((counted.len(), empty.len()), (1, 0), "{protocol:?}: {total:?}");
            assert_eq!((total.offered, total.answered), (30, 20));
            assert!(report.messages.contains_key(reason));
            let refusals = total.refusal.as_ref().map_or(0, |refusal| refusal.count);
            assert_eq!(refusals, if is_refusal { 10 } else { 0 });
            assert_eq!(total.latency.as_ref().unwrap().count, 20);
        }
    }
}

#[test]
fn a_server_that_is_too_busy_to_be_asked_is_measured_all_the_same() {
    let workload = support::even("100ms", 100.0);
    for protocol in [Http, Http2] {
        let server = Server::inferring(protocol, |_| Act::Raw(with_reason));
        let report = support::run(&server, &workload, support::settings(&server)).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.refused["queue_full"], 10);
        assert_eq!((report.total.attainment, report.total.latency), (0.0, None));
        assert_eq!(report.messages["queue_full"], "full");
    }
}

#[test]
fn words_of_a_server_are_bounded() {
    let workload = support::even("300ms", 1_000.0);
    let server = Server::inferring(Http, |call| match call.number {
        0 => Act::Right,
        _ => Act::Raw(|answer| {
            use std::sync::atomic::{AtomicU64, Ordering};
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            *answer = Answer::json(503, vec![b'x'; 100_000]);
            let reason = format!("reason-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
            answer.headers.push(("x-tessera-reason", reason));
        }),
    });
    let report = support::run(&server, &workload, support::settings(&server)).unwrap();
    support::assert_all_ended(&report);
    assert!(report.total.refused["other"] > 100, "{:?}", report.total.refused);
    assert!(report.total.refused.len() <= 65 && report.messages.values().all(|said| said.len() <= 500));
}
