//! Runs a model before it gets traffic: the slow first runs happen here, and batch times are measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oip::{Shape, Tensor};

use crate::engine::{Batch, Session};
use crate::repository::{WarmUp, WarmUpValues};
use crate::stopwatch::Stopwatch;
use crate::{EffectiveConfig, LoadError, Padding, Reference, sample};

/// CPU time for measuring a session. A run that has started is finished.
const BUDGET: Duration = Duration::from_secs(1);

/// CPU time for measuring one bucket of padded lengths.
const BUDGET_OF_BUCKET: Duration = Duration::from_millis(200);

/// Wall time for measuring a session, for cores that mostly run other threads.
const WALL_TIME_MAX: Duration = Duration::from_secs(10);

/// Runs of each batch size that is measured; the first warms and does not count.
const RUNS: usize = 5;

/// Bound on the rows of a measured batch.
const ROWS_MAX: u32 = 4096;

/// Bound on the bytes of one sample batch, inputs and outputs together.
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Batch times of a session that was warmed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmTimes {
    /// Rows, rising, with the shortest time of a batch.
    pub times: Vec<(u32, Duration)>,
    /// Shape of a row by input, for inputs whose shape the session leaves open: the first that it accepts.
    pub shapes: BTreeMap<String, Vec<u64>>,
}

/// Runs the warm-up requests of the configuration, then measures batches of 1, 2, 4, ... up to the largest
/// batch. Gives (rows, shortest time) with rows rising; shortest, because everything else that happens on the
/// machine only adds. Time for which the core ran other threads does not count, here or in the process that runs
/// the session.
///
/// Stops early when the time or memory for it is used up, so the largest batch may be missing. A model for which
/// no sample input is valid gives no measurements; that is not an error. A warm-up request of the configuration
/// that fails is one.
pub fn warm_and_profile(session: &mut dyn Session, config: &EffectiveConfig) -> Result<WarmTimes, LoadError> {
    run_sizes(session, config, RUNS)
}

/// The same without measuring, each size once: for the second and further sessions of a model.
pub fn warm(session: &mut dyn Session, config: &EffectiveConfig) -> Result<(), LoadError> {
    run_sizes(session, config, 1).map(drop)
}

/// Runs a further session of a model for batches of up to `rows` rows: the warm-up requests of the configuration, then
/// one batch of as many copies of the known row, or, where [each size settles](Session::settles_each_size) by itself,
/// one of each size up to it. Smaller batches then find their working memory; nothing is measured or given back.
///
/// # Errors
/// A run that failed.
pub fn warm_for(
    session: &mut dyn Session,
    config: &EffectiveConfig,
    reference: &Reference,
    rows: u32,
) -> Result<(), LoadError> {
    let refuse = |reason: String| LoadError::Warm { model: config.name.to_string(), reason };
    run_requested(session, config).map_err(refuse)?;
    let row = reference.input();
    let row_bytes =
        bytes(row.inputs.iter().flatten()).saturating_add(bytes(reference.outputs().iter())).max(1);
    let affordable = u32::try_from(BATCH_BYTES_MAX / row_bytes).unwrap_or(u32::MAX).max(1);
    let largest = rows.min(session.signature().max_batch).clamp(1, affordable.min(ROWS_MAX));
    let smallest = if session.settles_each_size() { 1 } else { largest };
    for size in sizes(largest).filter(|size| *size >= smallest) {
        let batch = sample::join(&vec![row.clone(); size as usize]);
        session.run(&batch).map_err(|error| refuse(format!("a batch of {size} rows: {error}")))?;
    }
    Ok(())
}

/// Runs the warm-up requests of the configuration.
fn run_requested(session: &mut dyn Session, config: &EffectiveConfig) -> Result<(), String> {
    for warm_up in &config.warm_ups {
        let batch = requested(session, warm_up)?;
        for _ in 0..warm_up.count {
            session.run(&batch).map_err(|error| format!("`{}`: {error}", warm_up.name))?;
        }
    }
    Ok(())
}

fn run_sizes(
    session: &mut dyn Session,
    config: &EffectiveConfig,
    runs: usize,
) -> Result<WarmTimes, LoadError> {
    let refuse = |reason: String| LoadError::Warm { model: config.name.to_string(), reason };
    run_requested(session, config).map_err(refuse)?;
    let mut time = Time::start(BUDGET);
    // The other sessions of the model say the same.
    let is_first = runs > 1;
    if !session.takes_samples() {
        if is_first {
            tracing::info!(model = %config.name, "sample inputs are not run: batch times will be learned from traffic");
        }
        return Ok(WarmTimes::default());
    }
    let (extent, outputs) = match sample::try_extents(session) {
        Ok(found) => found,
        Err(reason) => {
            if is_first {
                tracing::info!(model = %config.name, reason, "no sample input runs: batch times will be learned from traffic");
            }
            return Ok(WarmTimes::default());
        }
    };
    let signature = session.signature().clone();
    let Some(one) = sample::row(&signature, extent, 0) else { return Ok(WarmTimes::default()) };
    let shapes = sample::open_shapes(&signature, &signature, extent);
    let row_bytes = bytes(outputs.iter()) + bytes(one.inputs.iter().flatten());
    let mut profile: Vec<(u32, Duration)> = Vec::new();
    for rows in sizes(signature.max_batch) {
        let fits = row_bytes.saturating_mul(rows as usize) <= BATCH_BYTES_MAX;
        // Twice the rows take at most about twice the time.
        let expected = profile.last().map_or(Duration::ZERO, |(_, shortest)| *shortest * 2);
        if !fits || (rows > 1 && time.is_over_after(expected)) {
            break;
        }
        let all = (0..u64::from(rows)).map(|row| sample::row(&signature, extent, row));
        let Some(all) = all.collect::<Option<Vec<_>>>() else { break };
        match measure(session, &sample::join(&all), runs, &mut time) {
            Ok(shortest) => profile.push((rows, shortest)),
            // A model of code may refuse made-up data.
            Err(reason) if session.takes_requests() => {
                if is_first {
                    tracing::info!(model = %config.name, rows, reason, "sample inputs are refused: larger batches are not measured");
                }
                return Ok(WarmTimes { times: profile, shapes });
            }
            Err(reason) => return Err(refuse(format!("a batch of {rows} rows: {reason}"))),
        }
    }
    session.trim();
    match session.run(&one) {
        Err(error) if !session.takes_requests() => Err(refuse(error.to_string())),
        Ok(_) | Err(_) => Ok(WarmTimes { times: profile, shapes }),
    }
}

/// Measures padded batches: for each bucket of lengths, batches of 1, 2, 4, ... rows. Gives (rows, input bytes of a row,
/// shortest time). Stops early as [`warm_and_profile`] does, for each bucket.
///
/// # Errors
/// A run that failed.
pub fn profile_padded(
    session: &mut dyn Session,
    padding: &Padding,
) -> Result<Vec<(u32, u64, Duration)>, String> {
    let mut points = Vec::new();
    for &bucket in padding.buckets() {
        let mut time = Time::start(BUDGET_OF_BUCKET);
        let mut last = Duration::ZERO;
        for rows in sizes(session.signature().max_batch) {
            if rows > 1 && time.is_over_after(last * 2) {
                break;
            }
            let Some(batch) = padding.batch(session, bucket, rows) else { break };
            let input_bytes = bytes(batch.inputs.iter().flatten());
            if input_bytes > BATCH_BYTES_MAX {
                break;
            }
            last = measure(session, &batch, RUNS, &mut time)
                .map_err(|reason| format!("{rows} rows of length {bucket}: {reason}"))?;
            points.push((rows, input_bytes as u64 / u64::from(rows), last));
        }
    }
    session.trim();
    Ok(points)
}

/// Time spent on measuring a session so far.
struct Time {
    budget: Duration,
    own: Stopwatch,
    passed: Instant,
    /// Part of `own` in which another process had the batch and did not run it.
    waited: Duration,
}

impl Time {
    fn start(budget: Duration) -> Self {
        Self { budget, own: Stopwatch::start(), passed: Instant::now(), waited: Duration::ZERO }
    }

    fn is_over_after(&self, more: Duration) -> bool {
        let own = self.own.elapsed().saturating_sub(self.waited);
        own + more > self.budget || self.passed.elapsed() + more > WALL_TIME_MAX
    }
}

/// 1, 2, 4, ... and the largest batch itself.
fn sizes(max_batch: u32) -> impl Iterator<Item = u32> {
    let largest = max_batch.clamp(1, ROWS_MAX);
    let powers = std::iter::successors(Some(1_u32), |size| size.checked_mul(2))
        .take_while(move |&size| size < largest);
    powers.chain(std::iter::once(largest))
}

fn measure(
    session: &mut dyn Session,
    batch: &Batch,
    runs: usize,
    time: &mut Time,
) -> Result<Duration, String> {
    let mut shortest = Duration::MAX;
    for run in 1..=runs {
        let begin = Stopwatch::start();
        session.run(batch).map_err(|error| error.to_string())?;
        let passed = begin.elapsed();
        let took = session.took().unwrap_or(passed);
        time.waited += passed.saturating_sub(took);
        // The first run allocates; it counts only if it is the only one.
        let last = run == runs || time.is_over_after(Duration::ZERO);
        if run > 1 || last {
            shortest = shortest.min(took);
        }
        if last {
            break;
        }
    }
    Ok(shortest)
}

fn bytes<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> usize {
    tensors.map(|tensor| tensor.data.len()).sum()
}

/// The batch that a warm-up request describes.
fn requested(session: &dyn Session, warm_up: &WarmUp) -> Result<Batch, String> {
    let signature = session.signature();
    let refuse = |reason: String| format!("`{}`: {reason}", warm_up.name);
    if let Some(name) =
        warm_up.inputs.keys().find(|name| !signature.inputs.iter().any(|spec| spec.name == **name))
    {
        return Err(refuse(format!("input `{name}` is not in the graph")));
    }
    if warm_up.batch > signature.max_batch.max(1) {
        return Err(refuse(format!(
            "batch_size is {}: expected at most {}",
            warm_up.batch,
            signature.max_batch.max(1)
        )));
    }
    let inputs = signature.inputs.iter().map(|spec| {
        let Some(input) = warm_up.inputs.get(&spec.name) else {
            return if spec.optional {
                Ok(None)
            } else {
                Err(refuse(format!("input `{}` is missing", spec.name)))
            };
        };
        if input.datatype != spec.datatype {
            let reason = format!("input `{}` is {}: expected {}", spec.name, input.datatype, spec.datatype);
            return Err(refuse(reason));
        }
        let batch_dim = (signature.max_batch > 0 && warm_up.batch > 0).then_some(u64::from(warm_up.batch));
        let extents: Vec<u64> = batch_dim.into_iter().chain(input.dims.iter().copied()).collect();
        let shape = Shape::from_extents(&extents);
        let samples = || {
            let samples = sample::elements(spec.datatype, &shape, 1);
            samples.ok_or_else(|| refuse(format!("input `{}` of shape {shape} is too large", spec.name)))
        };
        let data = match &input.values {
            WarmUpValues::Zero => vec![0_u8; samples()?.len()].into(),
            WarmUpValues::Random => samples()?,
            WarmUpValues::File { path, data } => {
                let data = input.batch_data(data, warm_up.batch);
                data.map_err(|reason| refuse(format!("input `{}`: file `{path}` {reason}", spec.name)))?
            }
        };
        Ok(Some(Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }))
    });
    Ok(Batch { inputs: inputs.collect::<Result<_, _>>()?, rows: warm_up.batch.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RunError;
    use crate::onnx::fixture::{D, matmul};
    use crate::repository::Pbtxt;
    use crate::{
        Format, LoadOptions, Loader, ModelFiles, ModelName, ModelSettings, Signature, Version, inspect,
    };

    fn profile_of(files: &ModelFiles, pbtxt: &str) -> Result<Vec<(u32, Duration)>, LoadError> {
        let pbtxt = Pbtxt::parse(&files.name, pbtxt, true).unwrap();
        let signature = inspect(files, &LoadOptions::default()).unwrap();
        let settings = ModelSettings::default();
        let config = EffectiveConfig::resolve(&files.name, Some(&pbtxt), &settings, &signature).unwrap();
        let mut session = Loader::without_ort().load(files, &config.load_options(&[], false)).unwrap();
        warm_and_profile(session.as_mut(), &config).map(|warm| warm.times)
    }

    fn synthetic(text: &'static str) -> ModelFiles {
        ModelFiles::from_bytes(ModelName::new("fake").unwrap(), Version(1), Format::Synthetic, text)
    }

    #[test]
    fn a_profile_has_every_power_of_two_and_the_largest_batch() {
        let rows: Vec<u32> = profile_of(&matmul(D::S("batch")).files(), "max_batch_size: 6")
            .unwrap()
            .iter()
            .map(|(rows, _)| *rows)
            .collect();
        assert_eq!(rows, [1, 2, 4, 6]);
        let rows = profile_of(&matmul(D::N(1)).files(), "").unwrap();
        assert_eq!(rows.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_profile_shows_the_time_of_batches() {
        let files = synthetic(
            "max_batch = 4\n\
             inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1] }]\n\
             outputs = [{ name = \"y\", datatype = \"FP32\", dims = [-1] }]\n\
             time = { alpha_us = 3000, beta_us = 2000 }",
        );
        let profile = profile_of(&files, "").unwrap();
        assert_eq!(profile.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [1, 2, 4]);
        for (rows, time) in &profile {
            // Time that the thread waited for a core does not count, while the time of the model goes on.
            let least = Duration::from_micros(3000 + 2000 * u64::from(*rows)) * 4 / 5;
            assert!(*time >= least, "{profile:?}");
        }
    }

    #[test]
    fn measuring_stops_when_its_time_is_used_up() {
        let files = synthetic(
            "max_batch = 64\n\
             inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1] }]\n\
             outputs = [{ name = \"y\", datatype = \"FP32\", dims = [-1] }]\n\
             time = { alpha_us = 0, beta_us = 150000 }",
        );
        let profile = profile_of(&files, "").unwrap();
        assert!(profile.len() < 4, "{profile:?}");
    }

    /// Gives its input back, a while after the time that it says it took.
    struct Elsewhere(Signature, Duration);

    impl Session for Elsewhere {
        fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
            std::thread::sleep(Duration::from_millis(30));
            Ok(vec![Tensor { name: "y".to_owned(), ..batch.inputs[0].clone().unwrap() }])
        }

        fn signature(&self) -> &Signature {
            &self.0
        }

        fn engine(&self) -> &'static str {
            "elsewhere"
        }

        fn took(&self) -> Option<Duration> {
            Some(self.1)
        }
    }

    fn identity() -> (Signature, EffectiveConfig) {
        let files = synthetic(IDENTITY);
        let signature = inspect(&files, &LoadOptions::default()).unwrap();
        let settings = ModelSettings::default();
        let config = EffectiveConfig::resolve(&files.name, None, &settings, &signature).unwrap();
        (signature, config)
    }

    #[test]
    fn a_session_elsewhere_is_measured_by_what_it_says_it_took() {
        let (signature, config) = identity();
        let took = Duration::from_micros(700);
        let profile = warm_and_profile(&mut Elsewhere(signature, took), &config).unwrap().times;
        // By the caller's clock 8 sizes of 5 runs would be more than it may take in all.
        assert_eq!(profile, [1, 2, 4, 8, 16, 32, 64, 128].map(|rows| (rows, took)));
    }

    /// Takes note of the rows that it runs.
    struct Noted(Elsewhere, bool, Vec<u32>);

    impl Session for Noted {
        fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
            let x = batch.inputs[0].as_ref().unwrap();
            assert_eq!(x.shape.extents()[0], u64::from(batch.rows));
            self.2.push(batch.rows);
            Ok(vec![Tensor { name: "y".to_owned(), ..x.clone() }])
        }

        fn signature(&self) -> &Signature {
            self.0.signature()
        }

        fn engine(&self) -> &'static str {
            "noted"
        }

        fn settles_each_size(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn a_further_session_is_warmed_for_the_batches_that_it_will_get() {
        let (signature, config) = identity();
        let session = |settles| Noted(Elsewhere(signature.clone(), Duration::ZERO), settles, Vec::new());
        let reference = Reference::of(&mut session(false)).unwrap();
        for (settles, rows, expected) in
            [(false, 6, vec![6]), (true, 6, vec![1, 2, 4, 6]), (false, 1000, vec![128]), (false, 0, vec![1])]
        {
            let mut session = session(settles);
            warm_for(&mut session, &config, &reference, rows).unwrap();
            assert_eq!(session.2, expected, "{settles}, {rows}");
        }
    }

    const IDENTITY: &str = "max_batch = 128\n\
         inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1] }]\n\
         outputs = [{ name = \"y\", datatype = \"FP32\", dims = [-1] }]";

    fn in_repository(pbtxt: &str, files: &[(&str, &[u8])]) -> Result<Vec<(u32, Duration)>, LoadError> {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = folder.path().join("made").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("1/model.onnx", &matmul(D::S("batch")).bytes());
        write("config.pbtxt", pbtxt.as_bytes());
        files.iter().for_each(|(path, content)| write(path, content));
        let repository = crate::repository::Repository::open(folder.path()).unwrap();
        let name = ModelName::new("made").unwrap();
        let pbtxt = repository.config(&name)?;
        let files = repository.read(&name, Version(1), pbtxt.as_ref())?;
        let signature = inspect(&files, &LoadOptions::default())?;
        let config = EffectiveConfig::resolve(&name, pbtxt.as_ref(), &ModelSettings::default(), &signature)?;
        let mut session = Loader::without_ort().load(&files, &config.load_options(&[], false))?;
        warm_and_profile(session.as_mut(), &config).map(|warm| warm.times)
    }

    #[test]
    fn warm_up_data_comes_from_files_in_the_folder_of_the_model() {
        let warm_up = |file: &str| {
            format!(
                "max_batch_size: 4 model_warmup [{{ name: \"w\" batch_size: 2 count: 3 inputs {{ key: \"x\" value: \
                 {{ data_type: TYPE_FP32 dims: 3 input_data_file: \"{file}\" }} }} }}]"
            )
        };
        let (row, both) = ([0_u8; 12], [0_u8; 24]);
        assert!(
            in_repository(&warm_up("x"), &[("warmup/x", &row)]).is_ok(),
            "one row, for every row of the batch"
        );
        assert!(in_repository(&warm_up("a/x"), &[("warmup/a/x", &both)]).is_ok(), "all rows of the batch");
        let field = "model `made`: config.pbtxt: model_warmup `w`: input `x`: input_data_file: ";
        for (file, content, said) in [
            (
                "x",
                &[0; 16][..],
                "warmup/x has 4 elements: expected 3 for one row, or 2 times as many for the batch",
            ),
            ("x", &[0; 13][..], "warmup/x has 13 bytes: expected a multiple of 4"),
            ("../x", &row[..], "is `../x`: expected a file in the folder `warmup` of the model"),
            ("y", &row[..], "made/warmup/y: No such file"),
        ] {
            let error = in_repository(&warm_up(file), &[("warmup/x", content)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{field}{said}")), "{error}");
        }
    }

    #[test]
    fn warm_up_strings_are_counted() {
        let input = |dims: Vec<u64>| crate::repository::WarmUpInput {
            datatype: oip::Datatype::Bytes,
            dims,
            values: WarmUpValues::Zero,
        };
        let data = bytes::Bytes::from_static(b"\x02\0\0\0ab\0\0\0\0");
        assert_eq!(input(vec![2]).batch_data(&data, 0).unwrap(), data);
        assert_eq!(input(vec![2]).batch_data(&data, 3).unwrap(), data.repeat(3));
        assert_eq!(input(vec![1]).batch_data(&data, 2).unwrap(), data);
        let said = input(vec![3]).batch_data(&data, 1).unwrap_err();
        assert_eq!(said, "has 2 strings: expected 3 for one row");
        let short = data.slice(..5);
        assert!(input(vec![1]).batch_data(&short, 1).unwrap_err().starts_with("is cut off"));
    }

    #[test]
    fn warm_up_requests_run_and_are_checked() {
        let warm_up = |input: &str| {
            let text = format!("max_batch_size: 4 model_warmup {{ name: \"w\" batch_size: 2 {input} }}");
            profile_of(&matmul(D::S("batch")).files(), &text)
        };
        let value = |name: &str, rest: &str| format!("inputs {{ key: \"{name}\" value {{ {rest} }} }}");
        assert!(warm_up(&value("x", "data_type: TYPE_FP32 dims: [3] random_data: true")).is_ok());
        for (input, part) in [
            (value("x", "data_type: TYPE_FP32 dims: [4]"), "warm-up: `w`"),
            (value("x", "data_type: TYPE_INT8 dims: [3]"), "is INT8: expected FP32"),
            (value("x", "data_type: TYPE_FP32 dims: [9000000000000]"), "too large"),
            (value("q", "data_type: TYPE_FP32 dims: [3]"), "`q` is not in the graph"),
            (String::new(), "input `x` is missing"),
        ] {
            let said = warm_up(&input).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
