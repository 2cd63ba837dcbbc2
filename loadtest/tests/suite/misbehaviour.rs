//! Whatever a server does, every request is counted once.

use std::time::Duration;

use loadtest::{Protocol, Session, Settings};
use proptest::prelude::*;

use crate::server::{Act, Answer, Server};
use crate::support;

/// Something that a server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Right,
    Pieces,
    Chunks,
    Continued,
    Last,
    Wrong,
    Garbage,
    Busy,
    Close,
    Truncated,
    Reset,
    Never,
}

use Deed::{Busy, Chunks, Close, Continued, Garbage, Last, Never, Pieces, Reset, Right, Truncated, Wrong};

const DEEDS: [Deed; 12] =
    [Right, Pieces, Chunks, Continued, Last, Wrong, Garbage, Busy, Close, Truncated, Reset, Never];

fn act(deed: Deed, protocol: Protocol) -> Act {
    match deed {
        Right => Act::Right,
        Pieces => Act::Pieces(3),
        Chunks => Act::Chunks(5),
        Continued => Act::Continued,
        Last => Act::Last,
        Wrong => Act::Response(|response| response.outputs.clear()),
        Garbage => Act::Raw(|answer| *answer = Answer::json(200, "<html>")),
        Busy if protocol == Protocol::Grpc => Act::Raw(|answer| *answer = Answer::grpc_status(14, "busy")),
        Busy => Act::Raw(|answer| *answer = Answer::json(503, "busy")),
        Close => Act::Close,
        Truncated => Act::Truncated,
        Reset => Act::Reset,
        Never => Act::Never,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once(
        protocol in prop::sample::select(support::PROTOCOLS.to_vec()),
        deeds in prop::collection::vec(prop::sample::select(DEEDS.to_vec()), 1..40),
        connections in prop::sample::select(vec![1_u32, 2, 30]),
        threads in 1_u32..3,
        rate in prop::sample::select(vec![200.0, 2_000.0]),
    ) {
        let told = deeds.clone();
        let server = Server::inferring(protocol, move |call| act(told[call.number % told.len()], protocol));
        let workload = support::even("60ms", rate);
        let settings = Settings {
            connections,
            threads,
            timeout: Duration::from_millis(150),
            ..support::settings(&server)
        };
        // A server that misbehaves at the first request is refused, and there is no report.
        let first = [Right, Pieces, Chunks, Continued, Last, Busy].contains(&deeds[0]);
        let session = match Session::open(&workload, settings) {
            Ok(session) => session,
            Err(error) => {
                prop_assert!(!first, "{}", error);
                return Ok(());
            }
        };
        prop_assert!(first);
        server.forget();
        let stop = std::sync::Arc::default();
        let report = session.run(&workload, &support::open_loop(&workload), &stop, &mut |_| {}).unwrap();
        support::assert_all_ended(&report);
        prop_assert_eq!(report.total.offered, workload::Arrivals::new(&workload).count() as u64);
        let done = |wanted: &[Deed]| {
            let calls = server.inferences();
            let deeds = calls.iter().map(|call| deeds[call.number % deeds.len()]);
            deeds.filter(|deed| wanted.contains(deed)).count() as u64
        };
        // Others on a connection that ends are cut off, so some right answers may never arrive, but none arrives that
        // was not given.
        prop_assert!(report.total.answered <= done(&[Right, Pieces, Chunks, Continued, Last]));
        prop_assert!(report.total.refused.values().sum::<u64>() <= done(&[Busy]));
        let wrong = ["wrong_answer", "not_grpc"].map(|reason| report.total.failed.get(reason).unwrap_or(&0));
        prop_assert!(wrong.into_iter().sum::<u64>() <= done(&[Wrong, Garbage]));
        let named = report.total.failed.keys().all(|reason| {
            ["wrong_answer", "not_grpc", "connection_broke", "cannot_connect", "no_answer_in_time"]
                .contains(&reason.as_str())
        });
        prop_assert!(named, "{:?}", report.total.failed);
    }
}
