//! Runs that are stopped, answers that never come, clients that cannot keep up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadtest::{Drive, Protocol, Session, Settings};

use crate::server::{Act, Server};
use crate::support::{self, PROTOCOLS};

#[test]
fn a_run_that_is_stopped_tells_what_was_measured() {
    for protocol in PROTOCOLS {
        for closed in [false, true] {
            let stop = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&stop);
            let server = Server::inferring(protocol, move |call| {
                told.fetch_or(call.number == 60, Ordering::Relaxed);
                Act::Right
            });
            let workload = support::even("10m", 100.0);
            let session = Session::open(&workload, support::settings(&server)).unwrap();
            let drive = match closed {
                true => Drive::Closed { concurrency: 2, time: support::time(&workload) },
                false => support::open_loop(&workload),
            };
            let report = session.run(&workload, &drive, &stop, &mut |_| {}).unwrap();
            support::assert_all_ended(&report);
            assert!(report.interrupted);
            assert!(report.total.answered >= 60 && report.total.answered == report.total.offered);
            assert!(report.measured_s < 300.0, "{}", report.measured_s);
            let rate = report.total.offered as f64 / report.measured_s;
            assert!(closed || (50.0..=150.0).contains(&rate), "{rate}");
        }
    }
}

#[test]
fn a_search_that_is_stopped_tells_what_held_until_then() {
    let stop = Arc::new(AtomicBool::new(false));
    let server = Server::inferring(Protocol::Http, |_| Act::Right);
    let workload = support::even("400ms", 100.0);
    let session = Session::open(&workload, support::settings(&server)).unwrap();
    let mut after_two = |trials: &[sim::Trial], _: f64, _: &loadtest::Live| {
        stop.fetch_or(trials.len() == 2, Ordering::Relaxed);
    };
    let time = support::time(&workload);
    let report = session.capacity(&workload, &sim::Search::default(), time, &stop, &mut after_two).unwrap();
    assert!(report.interrupted);
    let capacity = report.capacity.unwrap();
    // The run that is under way when it is stopped may still end.
    assert!(!capacity.settled && (2..=3).contains(&capacity.trials.len()), "{capacity:?}");
    assert!(capacity.trials.iter().all(|trial| trial.holds), "{capacity:?}");
    assert!(capacity.rate >= 110.0, "the second rate was a quarter above the first: {}", capacity.rate);
}

#[test]
fn a_run_that_is_stopped_waits_for_no_server_that_says_nothing() {
    for protocol in PROTOCOLS {
        for drive in [None, Some(Drive::Closed { concurrency: 20, time: 600_000_000_000 })] {
            let stop = Arc::new(AtomicBool::new(false));
            let told = Arc::clone(&stop);
            let server = Server::inferring(protocol, move |call| {
                if call.number == 0 {
                    return Act::Right;
                }
                told.fetch_or(call.number == 10, Ordering::Relaxed);
                Act::Never
            });
            let workload = support::even("10m", 100.0);
            let settings = Settings { timeout: Duration::from_secs(3_600), ..support::settings(&server) };
            let session = Session::open(&workload, settings).unwrap();
            let drive = drive.unwrap_or_else(|| support::open_loop(&workload));
            let report = session.run(&workload, &drive, &stop, &mut |_| {}).unwrap();
            support::assert_all_offered_ended(&report);
            assert!(report.interrupted);
            assert!(report.total.failed["unanswered_when_stopped"] >= 10, "{protocol:?}: {:?}", report.total);
        }
    }
}

#[test]
fn answers_that_never_come_are_counted() {
    for protocol in PROTOCOLS {
        let server =
            Server::inferring(protocol, |call| if call.number % 4 == 3 { Act::Never } else { Act::Right });
        let settings = Settings { timeout: Duration::from_secs(2), ..support::settings(&server) };
        let report = support::run(&server, &support::even("400ms", 100.0), settings).unwrap();
        support::assert_all_ended(&report);
        assert_eq!(report.total.failed["no_answer_in_time"], 10, "{protocol:?}: {:?}", report.total);
        assert_eq!((report.total.offered, report.total.answered), (40, 30));
    }
}

#[test]
fn an_endless_answer_times_out() {
    let server = Server::inferring(Protocol::Http, |call| match call.number {
        0 => Act::Right,
        _ => Act::Raw(|answer| answer.body = vec![b' '; (256 << 20) + 1].into()),
    });
    let workload = support::even("200ms", 10.0);
    let report = support::run(&server, &workload, support::settings(&server)).unwrap();
    support::assert_all_ended(&report);
    assert_eq!(report.total.failed["answer_too_long"], 1, "{:?}", report.total);
}

#[test]
fn a_client_that_is_asked_for_too_much_says_so() {
    // Ten times what one core sends.
    let workload =
        support::workload("name = 'flood'\nduration = '200ms'\n[models.m]\nslo = '10ms'\nrate = 500000.0");
    let server = Server::inferring(Protocol::Grpc, |_| Act::Right);
    let settings = Settings { timeout: Duration::from_secs(1), ..support::settings(&server) };
    let report = support::run(&server, &workload, settings).unwrap();
    support::assert_all_ended(&report);
    assert!(report.total.offered > 90_000, "{}", report.total.offered);
    assert!(report.client.late_from.is_some() && report.client.late_seconds >= 1, "{:?}", report.client);
    assert!(report.seconds.iter().any(|second| !second.kept_up));
    assert!(report.client.busy > 0.0 && report.client.cpu_us > 0.0);
}

#[test]
fn a_client_that_has_little_to_do_keeps_up() {
    for protocol in PROTOCOLS {
        let server = Server::inferring(protocol, |_| Act::Right);
        // A twentieth of the SLO of 20 s may be lost by the client: a second, on whatever machine.
        let report = support::run(&server, &support::even("1s", 50.0), support::settings(&server)).unwrap();
        support::assert_all_ended(&report);
        assert_eq!((report.client.late_from, report.client.late_seconds), (None, 0), "{:?}", report.seconds);
        assert_eq!((report.total.answered, report.total.good, report.total.attainment), (50, 50, 1.0));
    }
}

#[test]
fn what_the_server_does_slowly_is_not_the_clients_fault() {
    // Every connection busy for the whole run: requests wait long, the client is on time.
    let server = Server::inferring(Protocol::Http, |call| match call.number {
        0 => Act::Right,
        _ => Act::At(std::time::Instant::now() + Duration::from_millis(20)),
    });
    let settings = Settings { connections: 1, ..support::settings(&server) };
    let report = support::run(&server, &support::even("1s", 100.0), settings).unwrap();
    support::assert_all_ended(&report);
    assert_eq!((report.total.answered, report.client.late_seconds, report.client.connections), (100, 0, 1));
    // 100 answers one behind the other take 2 s at least; the last was due after 1 s.
    assert!(report.total.latency.as_ref().unwrap().max_ms >= 990.0, "{:?}", report.total);
    assert!(report.client.held >= 90, "{}", report.client.held);
}
