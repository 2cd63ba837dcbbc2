use std::io::Read as _;
use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::config::AccessLogRequests;

fn log(kept: u32) -> RequestLog {
    RequestLog::new(
        &RequestLogSettings { kept, ..RequestLogSettings::default() },
        TenantNames::default(),
        None,
    )
    .unwrap()
}

fn origin(id: &str) -> Origin<'_> {
    let tenant = RequestTenant::default();
    Origin { id, arrived: Instant::now(), transport: Transport::Http, tenant, span: None }
}

fn answer(log: &RequestLog, id: &str) {
    log.begin(origin(id), "m", 1).answered();
}

fn refuse(log: &RequestLog, id: &str, reason: Reason) {
    log.begin(origin(id), "m", 1).failed(&Refusal::new(reason, "why"));
}

#[test]
fn answered_requests_do_not_displace_refused_ones() {
    let log = log(3);
    refuse(&log, "refused", Reason::DeadlineUnmeetable);
    for nth in 0..10 {
        answer(&log, &format!("answered-{nth}"));
    }
    let refused = log.find("refused").unwrap();
    assert_eq!((refused.outcome, refused.reason), (Outcome::Refused, Some(Reason::DeadlineUnmeetable)));
    assert!(log.find("answered-6").is_none() && log.find("answered-7").is_some());
    for nth in 0..3 {
        refuse(&log, &format!("failed-{nth}"), Reason::EngineFailed);
    }
    assert!(log.find("refused").is_none());
    assert_eq!(log.find("failed-2").unwrap().outcome, Outcome::Failed);
}

#[test]
fn the_last_request_of_an_id_is_found() {
    let log = log(8);
    refuse(&log, "same", Reason::QueueFull);
    answer(&log, "same");
    assert_eq!(log.find("same").unwrap().outcome, Outcome::InTime);
    refuse(&log, "same", Reason::Shed);
    assert_eq!(log.find("same").unwrap().reason, Some(Reason::Shed));
}

#[test]
fn a_request_that_is_dropped_was_cancelled_and_a_late_one_is_late() {
    let log = log(8);
    drop(log.begin(origin("left"), "m", 1));
    assert_eq!(log.find("left").unwrap().outcome, Outcome::Cancelled);
    let mut open = log.begin(origin("late"), "m", 1);
    open.entry().unwrap().objective = Some(Duration::ZERO);
    open.answered();
    let late = log.find("late").unwrap();
    assert_eq!(late.outcome, Outcome::Late);
    let told = log.summary(&late);
    assert!(told.remedies[0].starts_with("an objective of at least "), "{told:?}");
}

#[test]
fn a_request_that_was_refused_early_is_noted_once() {
    let log = log(8);
    let refusal = Refusal::new(Reason::Malformed, "why");
    log.refused_early(origin("early"), "m", &refusal);
    log.refused_early(origin("logged"), "m", &Refusal { logged: true, ..refusal });
    assert!(log.find("early").is_some() && log.find("logged").is_none());
}

#[test]
fn without_a_log_nothing_is_kept() {
    let log = log(0);
    answer(&log, "a");
    refuse(&log, "b", Reason::Shed);
    assert!(log.find("a").is_none() && log.find("b").is_none());
}

#[test]
fn lists_are_filtered_and_newest_first() {
    let log = log(8);
    answer(&log, "a");
    refuse(&log, "b", Reason::Shed);
    refuse(&log, "c", Reason::QueueFull);
    log.refused_early(origin("d"), "other", &Refusal::new(Reason::Shed, "why"));
    let ids = |query: &str| {
        let query = Query::parse(query).unwrap();
        log.list(&query).iter().map(|entry| entry.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(""), ["d", "c", "b", "a"]);
    assert_eq!(ids("model=m&outcome=refused"), ["c", "b"]);
    assert_eq!(ids("reason=shed&limit=1"), ["d"]);
    for (wrong, message) in [
        ("outcome=bad", "outcome: expected in_time, late, refused, failed or cancelled, got `bad`"),
        ("reason=bad", "reason: expected a reason such as deadline_unmeetable, got `bad`"),
        ("limit=0", "limit: expected a number from 1 to 1000, got `0`"),
        ("modle=m", "unknown parameter `modle`: expected model, tenant, outcome, reason or limit"),
    ] {
        assert_eq!(Query::parse(wrong).unwrap_err().message, message);
    }
}

#[test]
fn the_access_log_has_a_line_a_request_also_after_its_file_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let settings = RequestLogSettings {
        kept: 0,
        access_log: Some(path.clone()),
        access_log_requests: AccessLogRequests::Unsuccessful,
        access_log_one_in: NonZeroU32::MIN,
    };
    let log = RequestLog::new(&settings, TenantNames::default(), None).unwrap();
    answer(&log, "answered");
    refuse(&log, "refused", Reason::Shed);
    let deadline = Instant::now() + Duration::from_secs(20);
    let read = |wanted: &str| loop {
        let mut text = String::new();
        if let Ok(mut file) = std::fs::File::open(&path) {
            file.read_to_string(&mut text).unwrap();
        }
        if text.contains(wanted) && text.ends_with('\n') {
            return text;
        }
        assert!(Instant::now() < deadline, "no `{wanted}` in `{text}`");
        std::thread::yield_now();
    };
    let line: Explanation = serde_json::from_str(read("refused").trim()).unwrap();
    assert_eq!(
        (line.id.as_str(), line.reason.as_deref(), line.model.as_str()),
        ("refused", Some("shed"), "m")
    );
    std::fs::rename(&path, folder.path().join("old")).unwrap();
    let mut sent = 0;
    while !path.exists() {
        refuse(&log, "again", Reason::Shed);
        sent += 1;
        assert!(sent < 100_000 || Instant::now() < deadline);
        std::thread::yield_now();
    }
    read("again");
}

#[test]
fn an_access_log_that_cannot_be_written_is_an_error() {
    let path = std::path::PathBuf::from("/nowhere/access.log");
    let settings = RequestLogSettings { access_log: Some(path), ..RequestLogSettings::default() };
    let message = RequestLog::new(&settings, TenantNames::default(), None).err().unwrap();
    assert!(message.starts_with("request_log.access_log: cannot write `/nowhere/access.log`: "), "{message}");
}
