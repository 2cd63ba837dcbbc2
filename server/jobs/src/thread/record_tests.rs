//! Jobs whose files are not JSON lines.

use std::path::Path;
use std::pin::Pin;

use bytes::Bytes;
use job_formats::{Column, record};
use oip::{Datatype, Shape, Tensor};

use super::*;

/// Answers the tensor `x` with `y`, the same with every byte one more. Some rows have mistakes, and results of another shape.
#[derive(Default)]
struct Adding {
    mistakes: Vec<u64>,
    flat: Vec<u64>,
}

impl RowRunner for Adding {
    fn run(&self, _: &Record, row: u64, input: Bytes) -> Pin<Box<dyn Future<Output = RowOutcome> + Send>> {
        let (is_wrong, is_flat) = (self.mistakes.contains(&row), self.flat.contains(&row));
        Box::pin(async move {
            if is_wrong {
                return RowOutcome::Mistake("too wrong".to_owned());
            }
            let mut tensor = record::decode(&input).unwrap().unwrap().remove(0);
            tensor.name = "y".to_owned();
            tensor.data = tensor.data.iter().map(|byte| byte.wrapping_add(1)).collect();
            if is_flat {
                tensor.shape = Shape::from_extents(&[4]);
            }
            let columns = vec![Column::from(&tensor)];
            RowOutcome::Answer { result: record::encode(Ok(vec![tensor])).unwrap(), columns }
        })
    }

    fn window(&self, _: &Record) -> Option<u32> {
        Some(16)
    }
}

impl JobMetrics for Adding {
    fn open(&self, _: usize, _: u64) {}
    fn row(&self, _: &RowOutcome) {}
    fn ended(&self, _: JobState) {}
}

fn open(folder: &Path, runner: Adding) -> Jobs {
    let folder = folder.to_owned();
    let keep = Duration::from_secs(60);
    let options = Options { folder, bytes_max: 1 << 20, jobs_max: 3, row_max: 100, keep };
    Jobs::open(options, Arc::new(runner), Arc::new(Adding::default()), Handle::current()).unwrap()
}

/// A file with rows of two times two bytes.
fn file(format: Format, rows: u8) -> Vec<u8> {
    let row = |row: u8| Tensor {
        name: "x".to_owned(),
        datatype: Datatype::Uint8,
        shape: Shape::from_extents(&[2, 2]),
        data: vec![row; 4].into(),
    };
    let columns = [Column::from(&row(0))];
    let records: Vec<u8> =
        (0..rows).flat_map(|number| record::encode(Ok(vec![row(number)])).unwrap()).collect();
    let open = || Ok(Box::new(io::Cursor::new(records.clone())) as Box<dyn io::Read + Send>);
    let mut written = Vec::new();
    job_formats::write(format, &columns, u64::from(rows), &open, &mut written).unwrap();
    written
}

async fn submit(jobs: &Jobs, file: &[u8], (input, results): (Format, Format)) -> Result<JobView, String> {
    let mut incoming = jobs.receive(input).unwrap();
    for part in file.chunks(77) {
        incoming.add(part).map_err(|error| error.to_string())?;
    }
    let request = Request {
        model: "m".to_owned(),
        version: None,
        outputs: Vec::new(),
        input,
        results,
        tenant: "default".to_owned(),
        by: None,
    };
    jobs.submit(incoming, request).await.map_err(|error| error.to_string())
}

async fn ended(jobs: &Jobs, id: JobId) -> Record {
    loop {
        let record = jobs.list().await.unwrap().into_iter().find(|view| view.record.id == id).unwrap().record;
        if record.state != JobState::Open {
            return record;
        }
        tokio::task::yield_now().await;
    }
}

fn results(jobs: &Jobs, record: &Record) -> Vec<u8> {
    let mut written = Vec::new();
    jobs.write_results(record, &mut written).unwrap();
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_one_format_become_files_of_another_also_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut jobs = open(folder.path(), Adding::default());
    for (number, input) in (1..).zip([Format::Npz, Format::Parquet]) {
        submit(&jobs, &file(input, 200), (input, Format::Npy)).await.unwrap();
        if number == 1 {
            drop(jobs);
            jobs = open(folder.path(), Adding::default());
        }
        let done = ended(&jobs, JobId(number)).await;
        assert_eq!((done.state, done.committed, done.error.as_str()), (JobState::Done, 200, ""));
        let array = results(&jobs, &done);
        let rows = array.len() - 200 * 4;
        assert!(array.starts_with(b"\x93NUMPY") && rows.is_multiple_of(64));
        let expected: Vec<u8> = (0..200_u8).flat_map(|row| [row + 1; 4]).collect();
        assert_eq!(array.get(rows..), Some(expected.as_slice()));
    }
    let taken: u64 = jobs
        .list()
        .await
        .unwrap()
        .iter()
        .map(|view| view.record.input_bytes + view.record.output_bytes)
        .sum();
    assert_eq!(jobs.space.used(), taken, "what was received is not kept twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_without_an_answer_ends_a_job_with_numpy_results_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = open(folder.path(), Adding { mistakes: vec![7], flat: vec![9] });
    let input = file(Format::Npy, 8);
    submit(&jobs, &input, (Format::Npy, Format::Npz)).await.unwrap();
    let failed = ended(&jobs, JobId(1)).await;
    assert_eq!((failed.state, failed.error.as_str()), (JobState::Failed, "row 7: too wrong"));
    submit(&jobs, &input, (Format::Npy, Format::Parquet)).await.unwrap();
    let done = ended(&jobs, JobId(2)).await;
    assert_eq!((done.state, done.committed, done.mistakes), (JobState::Done, 8, 1));
    assert!(results(&jobs, &done).starts_with(b"PAR1"));
    submit(&jobs, &file(Format::Npy, 12), (Format::Npy, Format::Parquet)).await.unwrap();
    let failed = ended(&jobs, JobId(3)).await;
    assert_eq!(failed.error, "row 9: output `y` has shape [4], and [2, 2] in the first row: use jsonl");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_of_another_format_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = open(folder.path(), Adding::default());
    let told = submit(&jobs, &file(Format::Npy, 5), (Format::Parquet, Format::Npy)).await.unwrap_err();
    assert!(told.starts_with("expected a Parquet file"), "{told}");
    let told = submit(&jobs, b"{}\n", (Format::Npz, Format::Npy)).await.unwrap_err();
    assert!(told.starts_with("expected NumPy arrays by name (`numpy.savez`)"), "{told}");
    let told = submit(&jobs, &file(Format::Npy, 0), (Format::Npy, Format::Npy)).await.unwrap_err();
    assert_eq!(told, "the input has no rows");
    assert_eq!((jobs.space.used(), jobs.list().await.unwrap().len()), (0, 0));
}
