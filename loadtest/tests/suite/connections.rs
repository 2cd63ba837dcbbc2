//! Connections are opened when there is need, kept, replaced when the server ends them, and never more than allowed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loadtest::Protocol::{Grpc, Http, Http2};
use loadtest::{Drive, Report, Session, Settings};
use workload::Stages;

use crate::server::{Act, Gate, Server, What};
use crate::support::{self, PROTOCOLS};

fn assert_all_answered(report: &Report) {
    support::assert_all_ended(report);
    assert_eq!(report.total.answered, report.total.offered, "{:?} {:?}", report.total, report.messages);
}

/// Answers the first request, by which the client sees that it is understood, and holds every other answer until
/// `wanted` requests are under way at once.
fn crowd(wanted: usize) -> impl Fn() -> Act + Send + Sync {
    let (gate, arrived) = (Gate::closed(), AtomicUsize::new(0));
    move || match arrived.fetch_add(1, Ordering::Relaxed) {
        0 => Act::Right,
        number => {
            if number == wanted {
                gate.open();
            }
            Act::Behind(gate.clone())
        }
    }
}

/// Sends that many requests that are all due at once.
fn burst(server: &Server, requests: u32, connections: u32) -> Report {
    let workload = support::workload(&format!(
        "name = 'burst'\nrequests = {requests}\n[models.m]\nslo = '20s'\nrate = 1000000.0"
    ));
    let settings = Settings { connections, ..support::settings(server) };
    let session = Session::open(&workload, settings).unwrap();
    server.forget();
    let drive = Drive::Open(Stages::constant(1_000_000_000).unwrap());
    session.run(&workload, &drive, &Arc::default(), &mut |_| {}).unwrap()
}

#[test]
fn full_connections_are_joined_by_others_up_to_the_limit_and_then_requests_wait() {
    for protocol in [Http2, Grpc] {
        for (streams, connections) in [(1, 4), (10, 3)] {
            // Nothing is answered until as many are under way as the connections allow: fewer would be no answer at
            // all. Most requests are due before the server has said how many it takes.
            let hold = crowd((streams * connections) as usize);
            let server = Server::limited(protocol, Some(streams), move |call| match call.what {
                What::Infer => hold(),
                _ => Act::Right,
            });
            // The first request tests whether the server answers.
            let report = burst(&server, 100, connections);
            assert_all_answered(&report);
            assert_eq!(report.total.offered, 100);
            assert_eq!(report.client.connections, u64::from(connections), "{protocol:?}, {streams} streams");
            assert!(report.client.held > 0, "{protocol:?}, {streams} streams");
        }
    }
}

#[test]
fn one_connection_is_enough_where_the_server_takes_all_on_it() {
    for protocol in [Http2, Grpc] {
        let server = Server::inferring(protocol, |_| Act::Right);
        let report = burst(&server, 2_000, 8);
        assert_all_answered(&report);
        assert_eq!((report.total.offered, report.client.connections, report.client.held), (2_000, 1, 0));
    }
}

#[test]
fn what_is_due_while_a_connection_ends_politely_goes_over_another() {
    // Request 5 makes the server say goodbye while 0 to 4 wait; they are answered once 40 others have come.
    for protocol in [Http2, Grpc] {
        let gate = Gate::closed();
        let held = gate.clone();
        let server = Server::inferring(protocol, move |call| match call.number {
            0..5 => Act::Behind(held.clone()),
            5 => Act::Last,
            number => {
                if number == 45 {
                    held.open();
                }
                Act::Right
            }
        });
        gate.open();
        let workload = support::even("500ms", 100.0);
        let session = Session::open(&workload, support::settings(&server)).unwrap();
        server.forget();
        gate.close();
        let drive = support::open_loop(&workload);
        let report = session.run(&workload, &drive, &Arc::default(), &mut |_| {}).unwrap();
        assert_all_answered(&report);
        assert_eq!((report.total.offered, report.client.connections), (50, 2), "{protocol:?}");
    }
}

#[test]
fn http1_opens_as_many_as_are_under_way_and_keeps_them() {
    let hold = crowd(12);
    let server = Server::inferring(Http, move |_| hold());
    let report = support::run(&server, &support::even("400ms", 250.0), support::settings(&server)).unwrap();
    assert_all_answered(&report);
    assert!((12..40).contains(&report.client.connections), "{}", report.client.connections);
    assert_eq!(report.client.held, 0);
}

#[test]
fn a_connection_that_ends_behind_every_answer_is_replaced() {
    for protocol in PROTOCOLS {
        let server = Server::inferring(protocol, |_| Act::Last);
        let workload = support::even("600ms", 50.0);
        let report = support::run(&server, &workload, support::settings(&server)).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.offered, 30);
        assert!(report.client.connections > 1, "{protocol:?}: {}", report.client.connections);
        // A request may be on its way while the server closes; none is lost, and nearly all are answered.
        assert!(report.total.answered >= 25, "{protocol:?}: {:?} {:?}", report.total, report.messages);
    }
}

#[test]
fn a_graceful_end_of_a_connection_fails_no_request() {
    // What a load balancer or a server with a maximum age of connections does all the time.
    for protocol in [Http2, Grpc] {
        let server =
            Server::inferring(protocol, |call| if call.number % 50 == 25 { Act::Last } else { Act::Right });
        let workload = support::even("500ms", 1_000.0);
        let report = support::run(&server, &workload, support::settings(&server)).unwrap();
        assert_all_answered(&report);
        assert!((10..=12).contains(&report.client.connections), "{}", report.client.connections);
    }
}

#[test]
fn a_connection_that_breaks_fails_what_was_on_it_and_nothing_else() {
    for protocol in PROTOCOLS {
        for act in [|| Act::Close, || Act::Truncated, || Act::Reset] {
            let server = Server::inferring(
                protocol,
                move |call| if call.number % 10 == 9 { act() } else { Act::Right },
            );
            let workload = support::even("1s", 50.0);
            let report = support::run(&server, &workload, support::settings(&server)).unwrap();
            support::assert_all_ended(&report);
            let broke = report.total.failed.get("connection_broke").copied().unwrap_or(0);
            // Others may be on the same HTTP/2 connection.
            assert!((5..=25).contains(&broke), "{protocol:?}: {:?} {:?}", report.total, report.messages);
            assert_eq!(report.total.answered + broke, 50, "{protocol:?}: {:?}", report.total);
            assert!(!report.messages["connection_broke"].is_empty());
        }
    }
}

#[test]
fn answers_may_come_in_chunks_in_pieces_and_behind_a_continue() {
    for protocol in PROTOCOLS {
        for act in
            [|| Act::Pieces(1), || Act::Pieces(7), || Act::Chunks(1), || Act::Chunks(10), || Act::Continued]
        {
            let server = Server::inferring(protocol, move |_| act());
            let workload = support::even("200ms", 100.0);
            let report = support::run(&server, &workload, support::settings(&server)).unwrap();
            assert_all_answered(&report);
            assert_eq!(report.total.offered, 20);
        }
    }
}

#[test]
fn a_server_that_goes_away_is_told_to_be_away() {
    for protocol in PROTOCOLS {
        let server = Server::inferring(protocol, |_| Act::Right);
        let workload = support::even("200ms", 100.0);
        let settings = support::settings(&server);
        let session = Session::open(&workload, settings.clone()).unwrap();
        drop(server);
        let stop = Arc::default();
        let report = session.run(&workload, &support::open_loop(&workload), &stop, &mut |_| {}).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.failed["cannot_connect"], 20, "{:?}", report.total);
        assert!(report.messages["cannot_connect"].contains("refused"), "{:?}", report.messages);
        let error = Session::open(&workload, settings).unwrap_err().to_string();
        assert!(error.contains("cannot connect") && error.contains("refused"), "{error}");
    }
}

#[test]
fn a_server_that_never_says_anything_is_not_waited_for_without_end() {
    let workload = support::even("100ms", 100.0);
    for protocol in PROTOCOLS {
        for silent in [What::Server, What::Model, What::Infer] {
            let server = Server::start(
                protocol,
                move |call| if call.what == silent { Act::Never } else { Act::Right },
            );
            let settings = Settings { timeout: Duration::from_millis(200), ..support::settings(&server) };
            let error = support::run(&server, &workload, settings).unwrap_err().to_string();
            assert!(error.contains("no answer in time"), "{protocol:?}, {silent:?}: {error}");
        }
        let server =
            Server::start(
                protocol,
                |call| if call.what == What::Statistics { Act::Never } else { Act::Right },
            );
        let settings = Settings { timeout: Duration::from_secs(1), ..support::settings(&server) };
        assert_all_answered(&support::run(&server, &workload, settings).unwrap());
    }
}
