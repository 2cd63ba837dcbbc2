use std::io::Read as _;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::Value;

use super::*;

/// Answers `{"x": n}` with `{"y": 2n}`. Refuses and fails as told.
#[derive(Default)]
struct Doubling {
    ready: AtomicBool,
    /// Rows that are refused once.
    refused: Mutex<Vec<u64>>,
    /// Rows on which the model always fails.
    failing: Vec<u64>,
    run: AtomicUsize,
    ended: Mutex<Vec<JobState>>,
}

impl RowRunner for Doubling {
    fn run(&self, _: &Record, row: u64, line: Bytes) -> Pin<Box<dyn Future<Output = RowOutcome> + Send>> {
        self.run.fetch_add(1, Ordering::SeqCst);
        let refused = {
            let mut refused = self.refused.lock().unwrap();
            let at = refused.iter().position(|one| *one == row);
            at.map(|at| refused.remove(at)).is_some()
        };
        let fails = self.failing.contains(&row);
        Box::pin(async move {
            // Later rows overtake earlier ones.
            for _ in 0..(7 - row % 7) {
                tokio::task::yield_now().await;
            }
            if refused {
                return RowOutcome::Refused("the queue is full".to_owned());
            }
            if fails {
                return RowOutcome::Failed("the model failed".to_owned());
            }
            let Ok(Value::Object(row)) = serde_json::from_slice(&line) else {
                return RowOutcome::Mistake("expected an object".to_owned());
            };
            match row.get("x").and_then(Value::as_u64) {
                Some(x) => RowOutcome::Answer {
                    result: serde_json::json!({ "y": 2 * x }).to_string().into(),
                    columns: Vec::new(),
                },
                None => RowOutcome::Mistake("expected `x`".to_owned()),
            }
        })
    }

    fn window(&self, _: &Record) -> Option<u32> {
        self.ready.load(Ordering::SeqCst).then_some(16)
    }
}

impl JobMetrics for Doubling {
    fn open(&self, _: usize, _: u64) {}
    fn row(&self, _: &RowOutcome) {}
    fn ended(&self, state: JobState) {
        self.ended.lock().unwrap().push(state);
    }
}

fn options(folder: &std::path::Path) -> Options {
    let folder = folder.to_owned();
    Options { folder, bytes_max: 1 << 20, jobs_max: 3, row_max: 100, keep: Duration::from_secs(60) }
}

fn open(folder: &std::path::Path, runner: &Arc<Doubling>) -> Jobs {
    let (runner, metrics) = (Arc::<Doubling>::clone(runner), Arc::<Doubling>::clone(runner));
    Jobs::open(options(folder), runner, metrics, Handle::current()).unwrap()
}

fn ready() -> Arc<Doubling> {
    Arc::new(Doubling { ready: true.into(), ..Doubling::default() })
}

fn request(by: Option<Millis>) -> Request {
    Request {
        model: "m".to_owned(),
        version: None,
        outputs: Vec::new(),
        input: Format::JsonLines,
        results: Format::JsonLines,
        tenant: "default".to_owned(),
        by,
    }
}

fn rows(count: u64) -> String {
    (0..count).map(|x| format!("{{\"x\": {x}}}\n")).collect()
}

async fn submit(jobs: &Jobs, text: &str) -> Result<JobView, String> {
    let mut input = jobs.receive(Format::JsonLines).unwrap();
    // In parts that end anywhere.
    for part in text.as_bytes().chunks(7) {
        input.add(part).map_err(|error| error.to_string())?;
    }
    jobs.submit(input, request(None)).await.map_err(|error| error.to_string())
}

async fn view(jobs: &Jobs, id: JobId) -> JobView {
    jobs.list().await.unwrap().into_iter().find(|view| view.record.id == id).unwrap()
}

async fn ended(jobs: &Jobs, id: JobId) -> JobView {
    loop {
        let view = view(jobs, id).await;
        if view.record.state != JobState::Open {
            return view;
        }
        tokio::task::yield_now().await;
    }
}

fn output(jobs: &Jobs, record: &Record) -> String {
    let mut text = String::new();
    jobs.output(record, 0).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text.len() as u64, record.output_bytes);
    text
}

fn doubled(count: u64) -> String {
    (0..count).map(|x| format!("{{\"y\":{}}}\n", 2 * x)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_in_the_order_of_the_rows_and_refused_rows_are_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let runner = Doubling { ready: true.into(), refused: vec![3, 3, 40].into(), ..Doubling::default() };
    let runner = Arc::new(runner);
    let jobs = open(folder.path(), &runner);
    let submitted = submit(&jobs, &format!("\n{}   \n", rows(100))).await.unwrap();
    assert_eq!((submitted.record.rows, submitted.record.id), (100, JobId(1)));
    let done = ended(&jobs, JobId(1)).await;
    assert_eq!((done.record.state, done.record.committed, done.record.mistakes), (JobState::Done, 100, 0));
    assert_eq!(output(&jobs, &done.record), doubled(100));
    assert_eq!(runner.run.load(Ordering::SeqCst), 103);
    assert_eq!(*runner.ended.lock().unwrap(), [JobState::Done]);
    let taken = done.record.input_bytes + done.record.output_bytes;
    assert_eq!(jobs.space.used(), taken);
    // What several callers send at once counts too.
    let mut first = jobs.receive(Format::JsonLines).unwrap();
    let row = rows(1).repeat(60_000);
    first.add(row.as_bytes()).unwrap();
    let refused = jobs.receive(Format::JsonLines).unwrap().add(row.as_bytes()).unwrap_err().to_string();
    assert!(refused.contains("more than 1048576 bytes"), "{refused}");
    drop(first);
    jobs.receive(Format::JsonLines).unwrap().add(row.as_bytes()).unwrap();
    assert_eq!(jobs.space.used(), taken);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_be_answered_have_an_error_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let runner = Arc::new(Doubling { ready: true.into(), failing: vec![2], ..Doubling::default() });
    let jobs = open(folder.path(), &runner);
    submit(&jobs, "{\"x\": 1}\n{\"z\": 1}\n{\"x\": 2}\n{\"x\": 3}").await.unwrap();
    let done = ended(&jobs, JobId(1)).await;
    assert_eq!((done.record.state, done.record.mistakes), (JobState::Done, 2));
    let lines = "{\"y\":2}\n{\"error\":\"expected `x`\"}\n{\"error\":\"the model failed\"}\n{\"y\":6}\n";
    assert_eq!(output(&jobs, &done.record), lines);
    assert_eq!(runner.run.load(Ordering::SeqCst), 6, "a row on which the model fails is run three times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_that_cannot_be_meant_are_refused_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = open(folder.path(), &ready());
    let long = format!("{{\"x\": 1}}\n\n{{\"x\": \"{}\"}}\n", "1".repeat(100));
    for (text, told) in [
        ("", "the input has no rows"),
        (" \n\n", "the input has no rows"),
        ("{}\n[1]\n", "line 2: expected a JSON object"),
        (&long, "line 3: expected at most 100 bytes"),
        (&rows(100_000), "more than 1048576 bytes"),
    ] {
        let error = submit(&jobs, text).await.unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    assert!(jobs.list().await.unwrap().is_empty());
    assert_eq!(jobs.space.used(), 0, "inputs that were refused take no space");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["journal.redb"], "no files are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_for_its_model_and_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let runner = Arc::<Doubling>::default();
    let jobs = open(folder.path(), &runner);
    for _ in 0..3 {
        submit(&jobs, &rows(5)).await.unwrap();
    }
    assert!(submit(&jobs, &rows(5)).await.unwrap_err().starts_with("3 jobs have not ended"));
    assert_eq!(view(&jobs, JobId(2)).await.waits_for, "model `m` is not ready");
    let cancelled = jobs.cancel(JobId(2)).await.unwrap();
    assert_eq!((cancelled.record.state, cancelled.record.committed), (JobState::Cancelled, 0));
    assert_eq!(jobs.cancel(JobId(2)).await.unwrap_err().to_string(), "job 2 has ended");
    assert_eq!(jobs.cancel(JobId(9)).await.unwrap_err().to_string(), "job 9: not found");
    runner.ready.store(true, Ordering::SeqCst);
    assert_eq!(ended(&jobs, JobId(3)).await.record.state, JobState::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_on_behind_its_last_committed_row() {
    let (folder, runner) = (tempfile::tempdir().unwrap(), ready());
    let jobs = open(folder.path(), &runner);
    submit(&jobs, &rows(4_000)).await.unwrap();
    while view(&jobs, JobId(1)).await.done < 1_500 {
        tokio::task::yield_now().await;
    }
    drop(jobs);
    // What a crash leaves behind the last commit.
    let path = files::output_of(folder.path(), JobId(1), Format::JsonLines);
    let mut text = fs::read_to_string(&path).unwrap();
    let durable = text.lines().count() as u64;
    assert!((1_500..4_000).contains(&durable), "{durable}");
    text.push_str("{\"y\":1}\n{\"y\"");
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("incoming-x"), "{").unwrap();
    for other in ["7", "2024"] {
        fs::create_dir(folder.path().join(other)).unwrap();
        fs::write(folder.path().join(other).join("input.jsonl"), "{}").unwrap();
    }
    fs::write(folder.path().join("2025"), "a file").unwrap();
    fs::write(folder.path().join("2024/notes.txt"), "of the operator").unwrap();
    let before = runner.run.load(Ordering::SeqCst);
    let jobs = open(folder.path(), &runner);
    let done = ended(&jobs, JobId(1)).await;
    assert_eq!(output(&jobs, &done.record), doubled(4_000));
    let again = runner.run.load(Ordering::SeqCst) - before;
    assert_eq!(again as u64, 4_000 - durable, "no committed row runs again");
    assert!(!folder.path().join("incoming-x").exists() && !folder.path().join("7").exists());
    assert!(folder.path().join("2024/input.jsonl").exists());
    assert_eq!(submit(&jobs, &rows(1)).await.unwrap().record.id, JobId(2), "numbers are not used again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_output_fails_the_job_and_not_the_server() {
    let (folder, runner) = (tempfile::tempdir().unwrap(), Arc::<Doubling>::default());
    let jobs = open(folder.path(), &runner);
    submit(&jobs, &rows(5)).await.unwrap();
    drop(jobs);
    fs::remove_file(files::input_of(folder.path(), JobId(1), Format::JsonLines)).unwrap();
    let jobs = open(folder.path(), &runner);
    let failed = view(&jobs, JobId(1)).await.record;
    assert!(failed.state == JobState::Failed && failed.error.contains("input.jsonl"), "{failed:?}");
    submit(&jobs, &rows(5)).await.unwrap();
    runner.ready.store(true, Ordering::SeqCst);
    assert_eq!(ended(&jobs, JobId(2)).await.record.state, JobState::Done);
}

#[tokio::test]
async fn the_oldest_of_too_many_jobs_that_ended_are_removed() {
    let (folder, runner) = (tempfile::tempdir().unwrap(), Arc::<Doubling>::default());
    let counts = Arc::<Doubling>::clone(&runner);
    let (mut worker, _inbox) =
        Worker::open(&options(folder.path()), runner, counts, Handle::current()).unwrap();
    let mut input = Incoming::new(folder.path(), Format::JsonLines, 100, worker.space.clone()).unwrap();
    input.add(b"{}").unwrap();
    let first = worker.submit((input.complete().unwrap(), request(None))).unwrap().record;
    worker.end(first.id, JobState::Cancelled, String::new());
    let ended = worker.records[&first.id].clone();
    let at = worker.clock.now();
    let others = (2..)
        .take(ENDED_MAX)
        .map(|id| (JobId(id), Record { id: JobId(id), ended: Some(at), ..ended.clone() }));
    worker.records.extend(others);
    worker.records.get_mut(&first.id).unwrap().ended = Some(Millis(at.0 - 1));
    worker.clean();
    assert_eq!((worker.records.len(), worker.records.contains_key(&first.id)), (ENDED_MAX, false));
    assert!(!files::folder_of(folder.path(), first.id).exists());
}

#[tokio::test]
async fn a_job_whose_last_results_cannot_be_written_is_not_done() {
    let (folder, runner) = (tempfile::tempdir().unwrap(), Arc::<Doubling>::default());
    let counts = Arc::<Doubling>::clone(&runner);
    let (mut worker, _inbox) =
        Worker::open(&options(folder.path()), runner, counts, Handle::current()).unwrap();
    let space = worker.space.clone();
    let mut input = Incoming::new(folder.path(), Format::JsonLines, 100, space).unwrap();
    input.add(b"{}").unwrap();
    let id = worker.submit((input.complete().unwrap(), request(None))).unwrap().record.id;
    // The scheduler says both together, and carrying out the first one fails.
    worker.end(id, JobState::Failed, "no space left".to_owned());
    worker.carry_out(Effect::Ended(id));
    let record = worker.view(id).unwrap().record;
    assert_eq!((record.state, record.error.as_str()), (JobState::Failed, "no space left"));
}
