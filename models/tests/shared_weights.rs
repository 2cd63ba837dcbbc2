//! Sessions of one model share its weights: their memory, their answers, and what is left when one of them ends.

#![expect(clippy::unwrap_used, reason = "a test, with helpers outside its test functions")]

mod dense;

use std::path::Path;
use std::process::Command;

use models::engine::Session;
use models::engine::ort::{Environment, discover};
use models::repository::Repository;
use models::{
    Format, Known, LoadOptions, Loader, ModelFiles, ModelName, SampleInputs, Version, give_back_large_blocks,
    release_unused_memory,
};
use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension::Value as Extent};

const WIDTH: usize = 2048;
const WEIGHTS_KIB: u64 = (2 * WIDTH * WIDTH * size_of::<f32>() / 1024) as u64;

/// A loader with ONNX Runtime; `None` where it is not found.
fn loader() -> Option<Loader> {
    let environment = Environment::of_variables(|name| std::env::var_os(name));
    match discover(None, &environment) {
        Ok(library) => Some(Loader::new(Ok(library))),
        Err(missing) => {
            eprintln!("not tested: {missing}");
            None
        }
    }
}

fn sharing() -> LoadOptions {
    LoadOptions { share_weights: true, ..LoadOptions::default() }
}

fn after(first: &dyn Session, options: LoadOptions) -> LoadOptions {
    let known = Known { engine: first.engine(), signature: first.signature().clone() };
    LoadOptions { known: Some(known), ..options }
}

/// Answers to sample batches of a session, as bytes.
fn answers(session: &mut dyn Session, inputs: &SampleInputs) -> Vec<Vec<u8>> {
    let rows = session.signature().max_batch.clamp(1, 2);
    let batches = inputs.batches(rows, 2, 64 << 20).unwrap();
    let outputs = batches.iter().flat_map(|batch| session.run(batch).unwrap());
    outputs.map(|tensor| tensor.data.to_vec()).collect()
}

fn resident_kib() -> u64 {
    release_unused_memory();
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Set in the process that measures its own memory.
const MEASURES: &str = "TESSERA_TEST_MEASURES_MEMORY";

#[test]
fn a_second_session_takes_at_most_a_tenth_of_the_weights_and_the_last_one_gives_them_back() {
    if std::env::var_os(MEASURES).is_some() {
        return measure();
    }
    // Other tests of this process would change its memory.
    let name = "a_second_session_takes_at_most_a_tenth_of_the_weights_and_the_last_one_gives_them_back";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let status = child.args([name, "--exact", "--nocapture"]).env(MEASURES, "1").status().unwrap();
    assert!(status.success());
}

fn measure() {
    give_back_large_blocks();
    let Some(loader) = loader() else { return };
    let files = dense::layers(WIDTH);
    let cycle = || {
        let before = resident_kib();
        let mut first = loader.load(&files, &sharing()).unwrap();
        let inputs = SampleInputs::of(first.as_mut()).unwrap();
        let one = resident_kib();
        let options = after(first.as_ref(), sharing());
        let mut second = loader.load(&files, &options).unwrap();
        let two = resident_kib();
        let alone = loader.load(&files, &LoadOptions { share_weights: false, ..options }).unwrap();
        let three = resident_kib();
        drop(alone);
        let expected = answers(first.as_mut(), &inputs);
        drop(first);
        assert_eq!(answers(second.as_mut(), &inputs), expected, "the other session went on");
        drop(second);
        (before, one, two, three, resident_kib())
    };
    // The first cycle sets up what the runtime keeps for ever.
    cycle();
    let (before, one, two, three, after) = cycle();
    eprintln!(
        "KiB: {WEIGHTS_KIB} of weights; {before} before, {one} with one session, {two} with two, {three} with one alone, {after} after"
    );
    assert!(two <= one + WEIGHTS_KIB / 10, "the second session took {} KiB", two - one);
    assert!(three >= two + WEIGHTS_KIB / 2, "a session that shares nothing has its own weights");
    assert!(after <= before + WEIGHTS_KIB / 10, "{} KiB stayed", after - before);
}

#[test]
fn answers_have_the_same_bits_as_without_sharing() {
    let Some(loader) = loader() else { return };
    let mut models = vec![dense::layers(WIDTH)];
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/zoo");
    match Repository::open(&std::env::var_os("TESSERA_ZOO").map_or(zoo, Into::into)) {
        Ok(zoo) => {
            for name in [
                "magika",
                "minilm_int8",
                "mtcnn_rnet",
                "rapidocr_cls",
                "silero_vad",
                "shufflenet",
                "squeezenet",
            ] {
                models.push(zoo.read(&ModelName::new(name).unwrap(), Version(1), None).unwrap());
            }
        }
        Err(error) => eprintln!("not tested on the models of `tests/run zoo`: {error}"),
    }
    for files in models {
        let mut alone = loader.load(&files, &LoadOptions::default()).unwrap();
        let inputs = SampleInputs::of(alone.as_mut()).unwrap();
        let expected = answers(alone.as_mut(), &inputs);
        let mut first = loader.load(&files, &sharing()).unwrap();
        assert_eq!(answers(first.as_mut(), &inputs), expected, "{}", files.name);
        let prepared = first.prepared().unwrap();
        assert!(prepared.bytes() > 0, "{}", files.name);
        let options = after(first.as_ref(), LoadOptions::default());
        drop(first);
        let mut again = loader.load_prepared(&prepared, &options).unwrap();
        drop(prepared);
        assert_eq!(answers(again.as_mut(), &inputs), expected, "{}: without the files", files.name);
    }
}

#[test]
fn a_weight_that_is_an_output_outlives_its_session() {
    let Some(loader) = loader() else { return };
    let mut model = pb::ModelProto::decode(dense::layers(WIDTH).bytes.as_ref()).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let mut output = graph.output[0].clone();
    output.name = "v".into();
    if let Some(pb::type_proto::Value::TensorType(tensor)) =
        output.r#type.as_mut().and_then(|t| t.value.as_mut())
    {
        let dims = [const { Extent::DimValue(WIDTH as i64) }; 2]
            .map(|value| Dimension { value: Some(value), ..Default::default() });
        tensor.shape = Some(pb::TensorShapeProto { dim: dims.to_vec() });
    }
    graph.output.push(output);
    let name = ModelName::new("dense").unwrap();
    let files = ModelFiles::from_bytes(name, Version(1), Format::Onnx, model.encode_to_vec());
    let mut session = loader.load(&files, &LoadOptions { max_batch: Some(0), ..sharing() }).unwrap();
    assert!(session.prepared().is_some());
    let inputs = SampleInputs::of(session.as_mut()).unwrap();
    let outputs = session.run(&inputs.batches(1, 1, 64 << 20).unwrap()[0]).unwrap();
    drop(session);
    release_unused_memory();
    let elements = outputs[1].data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(elements.enumerate().all(|(index, element)| element == (index % 97) as f32 / 97.0 - 0.5));
}

#[test]
fn sessions_on_two_threads_answer_at_the_same_time() {
    let Some(loader) = loader() else { return };
    let files = dense::layers(WIDTH);
    let mut first = loader.load(&files, &sharing()).unwrap();
    let inputs = SampleInputs::of(first.as_mut()).unwrap();
    let expected = answers(first.as_mut(), &inputs);
    let options = after(first.as_ref(), sharing());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..3 {
                    // Sessions are made and dropped while others run.
                    let mut session = loader.load(&files, &options).unwrap();
                    (0..3).for_each(|_| assert_eq!(answers(session.as_mut(), &inputs), expected));
                }
            });
        }
        (0..10).for_each(|_| assert_eq!(answers(first.as_mut(), &inputs), expected));
    });
}
