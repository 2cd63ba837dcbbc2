use super::files::{Files, Lost};
use super::settings::{Field, SentValue, Settings, Target, Value, Values, read};

fn values() -> Values {
    Values { timestamps: false, rate: 1000, count: None, log_frequency: 0, file: "trace.json".into() }
}

fn sampled(settings: &mut Settings, model: &str, requests: u32) -> usize {
    (0..requests).filter(|_| settings.sample(model).is_some()).count()
}

#[test]
fn every_nth_request_is_traced_until_the_count_is_reached() {
    let mut settings = Settings::new(values());
    assert_eq!(sampled(&mut settings, "m", 5000), 0);
    let changes = vec![
        (Field::Level, Some(Value::Level(true))),
        (Field::Rate, Some(Value::Rate(3))),
        (Field::Count, Some(Value::Count(Some(2)))),
    ];
    settings.change(None, changes).unwrap();
    let traced: Vec<bool> = (0..12).map(|_| settings.sample("m").is_some()).collect();
    let expected = [false, false, true, false, false, true];
    assert_eq!(traced[..6], expected);
    assert!(traced[6..].iter().all(|traced| !traced) && !settings.any_on());
    assert_eq!(settings.values(None).count, Some(0));
}

#[test]
fn a_model_falls_back_to_the_server_field_by_field() {
    let mut settings = Settings::new(values());
    settings.change(Some("m"), vec![(Field::Rate, Some(Value::Rate(1)))]).unwrap();
    settings.change(None, vec![(Field::Level, Some(Value::Level(true)))]).unwrap();
    assert_eq!(settings.values(Some("m")), &Values { timestamps: true, rate: 1, ..values() });
    assert_eq!((sampled(&mut settings, "m", 5), sampled(&mut settings, "other", 5)), (5, 0));
    settings.change(Some("m"), vec![(Field::Rate, None)]).unwrap();
    assert_eq!(settings.values(Some("m")).rate, 1000);
    settings.change(None, vec![(Field::Level, None), (Field::Rate, None)]).unwrap();
    assert_eq!(settings.values(None), &values());
}

#[test]
fn a_contradiction_changes_nothing() {
    let mut settings = Settings::new(Values { file: "".into(), ..values() });
    let on = || (Field::Level, Some(Value::Level(true)));
    let error = settings.change(None, vec![(Field::Rate, Some(Value::Rate(5))), on()]).unwrap_err();
    assert!(error.contains("trace file name is not given"), "{error}");
    assert_eq!(settings.values(None).rate, 1000);
    let mut settings = Settings::new(values());
    settings.change(Some("m"), vec![on()]).unwrap();
    let error = settings.change(None, vec![(Field::Rate, Some(Value::Rate(0)))]).unwrap_err();
    assert!(error.contains("sample rate must be non-zero (settings of model `m`)"), "{error}");
}

#[test]
fn values_that_cannot_be_read_are_named() {
    let error =
        |name: &str, value: &str| read(name, SentValue::One(value.to_owned()), true).unwrap_err().message;
    assert_eq!(error("trace_rate", "x"), "Unable to parse 'trace_rate', got: x");
    assert_eq!(error("trace_rate", "-5"), "Unable to parse 'trace_rate', got: -5");
    assert!(error("trace_rate", "99999999999").contains("out of range [ 0, 4294967295 ]"));
    assert!(error("trace_count", "-2").contains("Expecting value >= -1, got:-2"));
    assert!(error("trace_level", "OFF").contains("expected a list"));
    assert!(error("rate", "1").contains("unknown trace setting"));
    for name in ["../x.json", "/etc/passwd", "", ".hidden", "a/b", "a\0b", &"x".repeat(200)] {
        assert!(error("trace_file", name).contains("name of a file in `trace.dir`"), "{name}");
    }
    let refused = read("trace_file", SentValue::One("t.json".to_owned()), false).unwrap_err().message;
    assert!(refused.contains("set `trace.dir`"), "{refused}");
}

fn target(log_frequency: u32) -> Target {
    Target { file: "t.json".into(), log_frequency }
}

fn numbers(path: &std::path::Path) -> Vec<u64> {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_file_is_a_complete_array_after_each_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    std::fs::write(&path, "of an earlier run").unwrap();
    let mut files = Files::new(folder.path(), 1 << 20);
    for number in 1..4 {
        files.add(&target(0), &number.to_string()).unwrap();
        assert_eq!(numbers(&path), (1..=number).collect::<Vec<_>>());
    }
    // Moved away, as a log rotation does.
    std::fs::remove_file(&path).unwrap();
    files.add(&target(0), "9").unwrap();
    assert_eq!(numbers(&path), [9]);
    for number in 0..5 {
        files.add(&target(2), &number.to_string()).unwrap();
    }
    let part = |number: usize| numbers(&folder.path().join(format!("t.json.{number}")));
    assert_eq!((part(0), part(1), part(2)), (vec![0, 1], vec![2, 3], vec![4]));
}

#[test]
fn files_stay_within_their_bounds_and_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Files::new(folder.path(), 10_000);
    files.add(&target(1), "1").unwrap();
    files.add(&target(1), "2").unwrap();
    assert!(matches!(files.add(&target(1), "3"), Err(Lost::Bytes(10_000))));
    let outside = tempfile::tempdir().unwrap();
    let aim = outside.path().join("aim");
    std::fs::write(&aim, "kept").unwrap();
    std::os::unix::fs::symlink(&aim, folder.path().join("t.json")).unwrap();
    let mut files = Files::new(folder.path(), 1 << 20);
    assert!(matches!(files.add(&target(0), "1"), Err(Lost::Disk(..))));
    assert_eq!(std::fs::read_to_string(&aim).unwrap(), "kept");
}
