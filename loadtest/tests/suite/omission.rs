//! A server that stalls cannot hide it: latency counts from when a request was due.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use loadtest::{Drive, Protocol, Report, Session, Settings};

use crate::server::{Act, Server};
use crate::support;

/// Answers at once, but for the second after the first one, in which it answers nothing.
fn stalling(protocol: Protocol) -> Server {
    let first = OnceLock::new();
    Server::inferring(protocol, move |call| {
        if call.number == 0 {
            // The request with which the client looks whether it is understood.
            return Act::Right;
        }
        let now = Instant::now();
        let begin = *first.get_or_init(|| now) + Duration::from_secs(1);
        let end = begin + Duration::from_secs(1);
        if (begin..end).contains(&now) { Act::At(end) } else { Act::Right }
    })
}

/// 3 s at 200/s.
fn measure(settings: Settings, drive: impl Fn(Drive, u64) -> Drive) -> Report {
    let workload = support::even("3s", 200.0);
    let session = Session::open(&workload, settings).unwrap();
    let drive = drive(support::open_loop(&workload), support::time(&workload));
    let report = session.run(&workload, &drive, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap();
    support::assert_all_ended(&report);
    assert_eq!(report.total.answered, report.total.offered, "{:?}", report.messages);
    report
}

/// Requests are evenly spaced, so wherever the stall falls, 5 ms apart are as many in it, give or take the one at its
/// edge; those due in its first 1000 - x ms take at least x.
fn assert_told(report: &Report) {
    let latency = report.total.latency.as_ref().unwrap();
    assert!((599..=601).contains(&report.total.offered));
    for x in [100, 300, 500, 800] {
        let (slow, due) = (support::slower(latency, x), (1_000 - x) / 5);
        assert!(slow + 1 >= due, "{slow} answers took {x} ms, {due} requests were due in the stall");
        // A busy machine may delay a few more.
        assert!(slow <= due + 100, "{slow} answers took {x} ms, {due} requests were due in the stall");
    }
    assert!(latency.p99_ms >= 950.0 && latency.max_ms >= 990.0, "{latency:?}");
    assert!(latency.p50_ms < 500.0, "{latency:?}");
}

#[test]
fn a_stall_is_in_the_latency_of_everything_due_in_it_over_http2_and_grpc() {
    for protocol in [Protocol::Http2, Protocol::Grpc] {
        let server = stalling(protocol);
        let report = measure(support::settings(&server), |open, _| open);
        assert_told(&report);
        assert_eq!((report.client.held, report.client.connections), (0, 1));
    }
}

#[test]
fn a_stall_is_in_the_latency_of_everything_due_in_it_over_http() {
    let server = stalling(Protocol::Http);
    let report = measure(support::settings(&server), |open, _| open);
    assert_told(&report);
    assert_eq!(report.client.held, 0);
}

#[test]
fn a_stall_is_told_though_connections_run_out_and_so_is_that() {
    let server = stalling(Protocol::Http);
    let settings = Settings { connections: 8, ..support::settings(&server) };
    let report = measure(settings, |open, _| open);
    assert_told(&report);
    assert!(report.client.connections <= 8, "{}", report.client.connections);
    // 200 are due in the stall, and 8 of them have a connection.
    assert!(report.client.held >= 190, "{}", report.client.held);
    // From when it was sent, the server looks fast: that is the omission.
    let service = report.total.service.as_ref().unwrap();
    assert!(support::slower(service, 500) < 100, "{service:?}");
}

#[test]
fn a_closed_loop_sees_next_to_nothing_of_a_stall() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let server = stalling(protocol);
        let settings = support::settings(&server);
        let report = measure(settings, |_, time| Drive::Closed { concurrency: 4, time });
        let slow = support::slower(report.total.latency.as_ref().unwrap(), 500);
        assert!((4..=12).contains(&slow), "{slow} answers took 500 ms");
        assert!(report.total.answered > 1_000, "{}", report.total.answered);
    }
}
