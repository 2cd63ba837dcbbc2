//! Both engines on small graphs. Tests of `ort` say so when ONNX Runtime is not found.

use bytes::Bytes;
use oip::{Datatype, Shape, Tensor};
use proptest::prelude::*;
use tract_onnx::pb::tensor_proto::DataType;

use super::*;
use crate::engine::ort::{Accelerator, Environment, GraphLevel, OrtSettings, Provider, discover};
use crate::engine::{Batch, RunError};
use crate::onnx::fixture::{Builder, D, matmul};
use crate::{Dim, Signature, enter_background, release_unused_memory};

/// ONNX Runtime from this process's environment; prints why when it is not found.
pub(crate) fn loader() -> Loader {
    let environment = Environment::of_variables(|name| std::env::var_os(name));
    let loader = Loader::new(discover(None, &environment));
    if let Err(missing) = &loader.ort {
        eprintln!("not tested on engine `ort`: {missing}");
    }
    loader
}

fn engines(loader: &Loader) -> Vec<&'static str> {
    if loader.ort.is_ok() { vec!["tract", "ort"] } else { vec!["tract"] }
}

fn named(engine: &'static str) -> LoadOptions {
    LoadOptions { engine: EngineChoice::Named(engine), ..LoadOptions::default() }
}

fn floats(name: &str, extents: &[u64], values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor {
        name: name.into(),
        datatype: Datatype::Fp32,
        shape: Shape::from_extents(extents),
        data: data.into(),
    }
}

fn batch(tensor: Tensor, rows: u32) -> Batch {
    Batch { inputs: vec![Some(tensor)], rows }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.data.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// The data again, starting at an odd address.
fn unaligned(tensor: &Tensor) -> Tensor {
    let mut shifted = vec![0_u8];
    shifted.extend_from_slice(&tensor.data);
    let whole = Bytes::from(shifted);
    let offset = if (whole.as_ptr() as usize).is_multiple_of(2) { 1 } else { 0 };
    let data = if offset == 1 { whole.slice(1..) } else { tensor.data.clone() };
    Tensor { data, ..tensor.clone() }
}

#[test]
fn engines_agree_on_a_product_of_matrices() {
    let loader = loader();
    let files = matmul(D::S("batch")).files();
    for engine in engines(&loader) {
        let mut session = loader.load(&files, &named(engine)).unwrap();
        assert_eq!((session.engine(), session.signature().max_batch), (engine, crate::DEFAULT_MAX_BATCH));
        assert_eq!(session.signature().inputs[0].dims, [Dim::Free, Dim::Fixed(3)]);
        let input = floats("x", &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        for input in [unaligned(&input), input] {
            let outputs = session.run(&batch(input, 2)).unwrap();
            assert_eq!(
                (outputs[0].name.as_str(), outputs[0].shape.extents()),
                ("y", &[2, 2][..]),
                "{engine}"
            );
            assert_eq!(values(&outputs[0]), [1.0, 2.0, 9.0, 12.0]);
        }
    }
}

#[test]
fn every_setting_of_onnx_runtime_keeps_the_answers() {
    let loader = loader();
    if loader.ort.is_err() {
        return;
    }
    let two = std::num::NonZeroUsize::new(2);
    let settings = [
        OrtSettings { graph_level: GraphLevel::Basic, ..OrtSettings::default() },
        OrtSettings { graph_level: GraphLevel::Extended, intra_threads: two, ..OrtSettings::default() },
        OrtSettings { graph_level: GraphLevel::Disabled, arena: Some(false), ..OrtSettings::default() },
        OrtSettings { parallel: true, inter_threads: two, ..OrtSettings::default() },
        OrtSettings { shrink_arena: true, memory_pattern: Some(false), ..OrtSettings::default() },
        OrtSettings { initializers_outside_arena: true, ..OrtSettings::default() },
    ];
    let each = settings.iter().flat_map(|ort| [(ort, false), (ort, true)]);
    for (ort, share_weights) in each {
        let options =
            LoadOptions { threads: 2, cores: vec![0, 0], ort: ort.clone(), share_weights, ..named("ort") };
        let mut session = loader.load(&matmul(D::S("batch")).files(), &options).unwrap();
        assert_eq!(session.prepared().is_some(), share_weights, "{ort:?}");
        for _ in 0..3 {
            session.trim();
            let input = floats("x", &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
            let outputs = session.run(&batch(input, 2)).unwrap();
            assert_eq!(values(&outputs[0]), [1.0, 2.0, 9.0, 12.0], "{ort:?}");
        }
    }
}

#[test]
fn an_accelerator_that_the_library_lacks_is_refused_and_never_replaced_by_another_engine() {
    let loader = loader();
    if loader.ort.is_err() {
        return;
    }
    let accelerator = Accelerator { provider: Provider::Cuda, options: Default::default() };
    let ort = |accelerators_required| OrtSettings {
        accelerators: vec![accelerator.clone()],
        accelerators_required,
        ..OrtSettings::default()
    };
    let files = matmul(D::S("batch")).files();
    let loaded = loader.load(&files, &LoadOptions { ort: ort(false), ..LoadOptions::default() }).unwrap();
    assert_eq!(loaded.engine(), "ort");
    // A library of onnxruntime-gpu has the provider.
    if let Err(error) = loader.load(&files, &LoadOptions { ort: ort(true), ..LoadOptions::default() }) {
        let said = error.to_string();
        assert!(said.contains("has no provider `cuda`: expected one of ") && said.contains("cpu"), "{said}");
        assert!(!said.contains("tract"), "{said}");
    }
}

#[test]
fn openvino_answers_as_the_cpu_does_where_the_library_has_it() {
    let loader = loader();
    let options = [("precision".to_owned(), "FP32".to_owned())].into();
    let ort = OrtSettings {
        accelerators: vec![Accelerator { provider: Provider::OpenVino, options }],
        accelerators_required: true,
        ..OrtSettings::default()
    };
    let files = matmul(D::S("batch")).files();
    match loader.load(&files, &LoadOptions { ort, ..LoadOptions::default() }) {
        Err(error) => eprintln!("not tested on OpenVINO: {error}"),
        Ok(mut session) => {
            let input = floats("x", &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
            let outputs = session.run(&batch(input, 2)).unwrap();
            assert_eq!(values(&outputs[0]), [1.0, 2.0, 9.0, 12.0]);
        }
    }
}

#[test]
fn answers_outlive_their_session() {
    let loader = loader();
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::N(4096)])
        .output("y", DataType::Float, &[D::N(4096)])
        .node("Neg", &["x"], &["y"]);
    let given: Vec<f32> = (0..4096).map(|value| value as f32).collect();
    for engine in engines(&loader) {
        let mut session = loader.load(&graph.clone().files(), &named(engine)).unwrap();
        let outputs = session.run(&batch(floats("x", &[4096], &given), 1)).unwrap();
        drop(session);
        release_unused_memory();
        assert!(values(&outputs[0]).iter().zip(&given).all(|(out, given)| *out == -given), "{engine}");
    }
}

#[test]
fn a_further_session_is_what_the_first_was_found_to_be() {
    let loader = loader();
    // Rows that mix: found out by running it, so the graph alone would say that it may be batched.
    let mixing = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(3)])
        .output("y", DataType::Float, &[D::S("n"), D::N(3)])
        .node("ReduceMax", &["x"], &["most"])
        .attribute("keepdims", 0)
        .node("Sub", &["x", "most"], &["y"]);
    for engine in engines(&loader) {
        let files = mixing.clone().files();
        let mut first = loader.load(&files, &named(engine)).unwrap();
        let known = Known { engine: first.engine(), signature: first.signature().clone() };
        assert_eq!(known.signature.max_batch, 0, "{engine}");
        let options = LoadOptions { known: Some(known.clone()), ..LoadOptions::default() };
        let mut second = loader.load(&files, &options).unwrap();
        assert_eq!((second.engine(), second.signature()), (known.engine, &known.signature));
        let given = batch(floats("x", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 1);
        let answers = [&mut first, &mut second].map(|session| session.run(&given).unwrap());
        assert_eq!(values(&answers[0][0]), values(&answers[1][0]));
        assert_eq!(values(&answers[0][0]), [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0]);
    }
    let elsewhere = Known {
        engine: "synthetic",
        signature: Signature { inputs: Vec::new(), outputs: Vec::new(), max_batch: 0 },
    };
    let options = LoadOptions { known: Some(elsewhere), ..LoadOptions::default() };
    let refused = loader.load(&mixing.files(), &options).err().unwrap().to_string();
    assert!(refused.contains("does not run ONNX models"), "{refused}");
}

#[test]
fn whole_numbers_booleans_and_scalars_keep_their_types() {
    let loader = loader();
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::N(-1), D::N(3)])
        .input("flag", DataType::Bool, &[])
        .output("best", DataType::Int64, &[D::N(-1)])
        .output("not", DataType::Bool, &[])
        .node("ArgMax", &["x"], &["best"])
        .attribute("axis", 1)
        .attribute("keepdims", 0)
        .node("Not", &["flag"], &["not"]);
    for engine in engines(&loader) {
        let mut session = loader.load(&graph.clone().files(), &named(engine)).unwrap();
        assert_eq!(session.signature().max_batch, 0, "a scalar has no batch");
        let flag = |byte: u8| {
            let data = Bytes::copy_from_slice(&[byte]);
            Tensor { name: "flag".into(), datatype: Datatype::Bool, shape: Shape::from_extents(&[]), data }
        };
        let x = floats("x", &[2, 3], &[0.0, 2.0, 1.0, 3.0, 2.0, 1.0]);
        let inputs = |byte| Batch { inputs: vec![Some(x.clone()), Some(flag(byte))], rows: 1 };
        let outputs = session.run(&inputs(1)).unwrap();
        assert_eq!(outputs[0].datatype, Datatype::Int64);
        assert_eq!(outputs[0].data.as_ref(), [1_i64.to_le_bytes(), 0_i64.to_le_bytes()].concat(), "{engine}");
        assert_eq!((outputs[1].datatype, outputs[1].data.as_ref()), (Datatype::Bool, &[0_u8][..]));
        assert!(matches!(session.run(&inputs(2)), Err(RunError::Input(_))), "{engine}: 2 is not a boolean");
    }
}

#[test]
fn an_unknown_operator_is_named() {
    let loader = loader();
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::N(2)])
        .output("y", DataType::Float, &[D::N(2)])
        .node("Frobnicate", &["x"], &["y"]);
    let error = loader.load(&graph.files(), &LoadOptions::default()).err().unwrap();
    let LoadError::Engines { model, version: 1, failures } = &error else { panic!("{error}") };
    assert_eq!(model, "made");
    assert_eq!(failures.iter().map(|failure| failure.engine).collect::<Vec<_>>(), ["ort", "tract"]);
    for failure in failures.iter().filter(|failure| engines(&loader).contains(&failure.engine)) {
        assert_eq!(failure.operator.as_deref(), Some("Frobnicate"), "{failure}");
    }
    assert!(error.to_string().starts_with("model `made` version 1: engine `ort`: "), "{error}");
}

#[test]
fn a_file_cut_off_anywhere_does_not_load() {
    let whole = matmul(D::S("batch")).bytes();
    let name = || crate::ModelName::new("made").unwrap();
    for length in 0..whole.len() {
        let files = ModelFiles::from_bytes(name(), crate::Version(1), Format::Onnx, whole[..length].to_vec());
        let outcome = Loader::without_ort().load(&files, &LoadOptions::default());
        assert!(outcome.is_err(), "{length} of {} bytes loaded", whole.len());
    }
}

#[test]
fn a_configured_file_that_is_not_a_library_is_reported() {
    let library = std::path::Path::new("/bin/true");
    let missing = discover(Some(library), &Environment::default()).unwrap_err();
    assert_eq!(missing.tried.len(), 1);
    assert!(missing.to_string().starts_with("no ONNX Runtime library: configuration: "), "{missing}");
}

#[test]
fn several_threads_on_their_cores_give_the_same_answer() {
    let loader = loader();
    let options = |engine| LoadOptions { threads: 2, cores: vec![0, 1], ..named(engine) };
    for engine in engines(&loader) {
        let mut session = loader.load(&matmul(D::N(1)).files(), &options(engine)).unwrap();
        let outputs = session.run(&batch(floats("x", &[1, 3], &[1.0, 1.0, 1.0]), 1)).unwrap();
        assert_eq!(values(&outputs[0]), [9.0, 12.0], "{engine}");
    }
}

#[test]
fn helpers_of_a_session_keep_their_priority_when_a_background_thread_loads_it() {
    let loader = loader();
    if loader.ort.is_err() {
        return;
    }
    let niceness = |task: std::path::PathBuf| -> Option<(String, i64)> {
        // Threads of other tests come and go.
        let status = std::fs::read_to_string(task.join("stat")).ok()?;
        let (name, rest) = status.split_once('(')?.1.rsplit_once(") ")?;
        Some((name.to_owned(), rest.split(' ').nth(16)?.parse().ok()?))
    };
    let (_, own) = niceness("/proc/thread-self".into()).unwrap();
    let load = || {
        enter_background().unwrap();
        loader.load(&matmul(D::N(1)).files(), &LoadOptions { threads: 2, ..named("ort") }).unwrap()
    };
    let session = std::thread::scope(|scope| scope.spawn(load).join().unwrap());
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let threads = tasks.filter_map(|task| niceness(task.ok()?.path()));
    let helpers: Vec<_> = threads.filter(|(name, _)| name == "ort-pool").collect();
    assert!(!helpers.is_empty() && helpers.iter().all(|(_, nice)| *nice == own), "{own}: {helpers:?}");
    drop(session);
}

#[test]
fn strings_pass_through() {
    let loader = loader();
    let graph = Builder::default()
        .input("x", DataType::String, &[D::S("n")])
        .output("y", DataType::String, &[D::S("n")])
        .node("Identity", &["x"], &["y"]);
    for engine in engines(&loader) {
        let mut session = loader.load(&graph.clone().files(), &named(engine)).unwrap();
        let mut ask = |data: &'static [u8]| {
            let shape = Shape::from_extents(&[2]);
            session.run(&batch(
                Tensor { name: "x".into(), datatype: Datatype::Bytes, shape, data: data.into() },
                2,
            ))
        };
        let words: &[u8] = b"\x02\0\0\0ab\x03\0\0\0c\xc3\xa4";
        assert_eq!(ask(words).unwrap()[0].data, words, "{engine}");
        let any_bytes: &[u8] = b"\x04\0\0\0\xff\0a\0\0\0\0\0";
        match engine {
            "ort" => assert_eq!(ask(any_bytes).unwrap()[0].data, any_bytes),
            other => assert!(matches!(ask(any_bytes), Err(RunError::Input(_))), "{other} takes only UTF-8"),
        }
    }
}

#[test]
fn clients_see_the_shapes_of_the_configuration_and_the_graph_those_of_reshape() {
    let loader = loader();
    let graph = matmul(D::S("batch"));
    let config = |text: &str| {
        let name = crate::ModelName::new("made").unwrap();
        let pbtxt = crate::repository::Pbtxt::parse(&name, text, true).unwrap();
        let signature = inspect(&graph.clone().files(), &LoadOptions::default()).unwrap();
        crate::EffectiveConfig::resolve(&name, Some(&pbtxt), &crate::ModelSettings::default(), &signature)
    };
    let text = "max_batch_size: 4
        input { name: \"x\" data_type: TYPE_FP32 dims: [1, 3] reshape { shape: [3] } }
        output { name: \"y\" data_type: TYPE_FP32 dims: [2, 1] reshape { shape: [2] } }";
    for engine in engines(&loader) {
        let options = LoadOptions {
            engine: EngineChoice::Named(engine),
            ..config(text).unwrap().load_options(&[], false)
        };
        let mut session = loader.load(&graph.clone().files(), &options).unwrap();
        let signature = session.signature().clone();
        let dims = |spec: &crate::TensorSpec| spec.dims.iter().map(|dim| dim.to_wire()).collect::<Vec<_>>();
        assert_eq!(
            (dims(&signature.inputs[0]), dims(&signature.outputs[0])),
            (vec![-1, 1, 3], vec![-1, 2, 1])
        );
        assert_eq!(inspect(&graph.clone().files(), &options).unwrap(), signature, "without loading");
        let known = Some(Known { engine, signature });
        let mut second = loader.load(&graph.clone().files(), &LoadOptions { known, ..options }).unwrap();
        for session in [&mut session, &mut second] {
            let input = floats("x", &[2, 1, 3], &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
            let outputs = session.run(&batch(input, 2)).unwrap();
            assert_eq!(outputs[0].shape, Shape::from_extents(&[2, 2, 1]), "{engine}");
            assert_eq!(values(&outputs[0]), [1.0, 2.0, 5.0, 6.0], "{engine}");
        }
    }
    let error =
        config(&text.replace("dims: [1, 3] reshape { shape: [3] }", "dims: [2, 2] reshape { shape: [4] }"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("input `x`: reshape: is [4]: the graph has [3] without the batch"), "{error}");
}

proptest! {
    /// A damaged file may load or not, but it neither panics nor asks for memory without bound.
    #[test]
    fn damaged_files_do_no_harm(at in 0_usize..200, byte: u8) {
        let mut bytes = matmul(D::S("batch")).bytes();
        if let Some(damaged) = bytes.get_mut(at) {
            *damaged = byte;
        }
        let name = crate::ModelName::new("made").unwrap();
        let files = ModelFiles::from_bytes(name, crate::Version(1), Format::Onnx, bytes);
        let _ = Loader::without_ort().load(&files, &LoadOptions::default());
    }
}

#[test]
fn what_a_request_does_wrong_is_not_the_engines_fault() {
    let loader = loader();
    let graph = Builder::default()
        .input("index", DataType::Int64, &[D::N(1)])
        .output("y", DataType::Float, &[D::N(1), D::N(2)])
        .floats("table", &[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
        .node("Gather", &["table", "index"], &["y"]);
    for engine in engines(&loader) {
        let mut session = loader.load(&graph.clone().files(), &named(engine)).unwrap();
        let mut ask = |index: i64| {
            let data = Bytes::copy_from_slice(&index.to_le_bytes());
            let shape = Shape::from_extents(&[1]);
            session.run(&batch(Tensor { name: "index".into(), datatype: Datatype::Int64, shape, data }, 1))
        };
        assert!(matches!(ask(99), Err(RunError::Input(_))), "{engine}");
        assert_eq!(values(&ask(2).unwrap()[0]), [4.0, 5.0], "{engine} goes on");
    }
}

#[test]
fn shapes_that_do_not_fit_together_are_the_clients_mistake() {
    let loader = loader();
    let graph = Builder::default()
        .input("a", DataType::Float, &[D::N(2), D::S("n")])
        .input("b", DataType::Float, &[D::N(2), D::S("m")])
        .output("y", DataType::Float, &[D::N(2), D::S("k")])
        .node("Add", &["a", "b"], &["y"]);
    for engine in engines(&loader) {
        let mut session = loader.load(&graph.clone().files(), &named(engine)).unwrap();
        let mut add = |n: u64, m: u64| {
            let tensor = |name, n| floats(name, &[2, n], &vec![1.0; 2 * n as usize]);
            session.run(&Batch { inputs: vec![Some(tensor("a", n)), Some(tensor("b", m))], rows: 1 })
        };
        assert!(matches!(add(2, 3), Err(RunError::Input(_))), "{engine}");
        for n in 1..40 {
            assert_eq!(add(n, n).unwrap()[0].shape.extents(), [2, n], "{engine}");
        }
    }
}

#[test]
fn weights_in_other_files_load_only_from_the_versions_folder() {
    let loader = loader();
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    let (graph, weights) = matmul(D::N(1)).external("w", "weights.bin");
    std::fs::write(folder.path().join("weights.bin"), &weights).unwrap();
    std::fs::write(outside.path(), &weights).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link.bin")).unwrap();
    std::fs::write(folder.path().join("short.bin"), &weights[..5]).unwrap();
    let in_folder = |graph: Builder| graph.files().in_folder(folder.path().to_owned());
    for engine in engines(&loader) {
        let mut session = loader.load(&in_folder(graph.clone()), &named(engine)).unwrap();
        let outputs = session.run(&batch(floats("x", &[1, 3], &[1.0, 1.0, 1.0]), 1)).unwrap();
        assert_eq!(values(&outputs[0]), [9.0, 12.0], "{engine}");
        let known = Known { engine: session.engine(), signature: session.signature().clone() };
        let options = LoadOptions { known: Some(known), ..LoadOptions::default() };
        let mut further = loader.load(&in_folder(graph.clone()), &options).unwrap();
        let again = further.run(&batch(floats("x", &[1, 3], &[1.0, 1.0, 1.0]), 1)).unwrap();
        assert_eq!(values(&again[0]), [9.0, 12.0], "{engine}");
    }
    for (location, part) in [
        ("../weights.bin", "leaves the version's folder"),
        ("/etc/passwd", "leaves the version's folder"),
        ("link.bin", "link that leaves"),
        ("short.bin", "not complete"),
        ("none.bin", "cannot be opened"),
    ] {
        let (graph, _) = matmul(D::N(1)).external("w", location);
        let error = loader.load(&in_folder(graph.clone()), &LoadOptions::default()).err().unwrap();
        assert!(
            matches!(error, LoadError::Files { .. }) && error.to_string().contains(part),
            "{location}: {error}"
        );
        assert!(loader.load(&graph.files(), &LoadOptions::default()).is_err(), "no folder, no other files");
    }
}

#[test]
fn a_loader_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Loader>();
    shared::<ModelFiles>();
    shared::<LoadError>();
}

#[test]
fn engine_words_are_checked() {
    assert_eq!("auto".parse(), Ok(EngineChoice::Auto));
    assert_eq!("tract".parse(), Ok(EngineChoice::Named("tract")));
    let error = "tracts".parse::<EngineChoice>().unwrap_err().to_string();
    assert!(error.contains("did you mean `tract`?") && error.contains("`synthetic`"), "{error}");
    let wrong = Loader::without_ort().load(&matmul(D::N(1)).files(), &named("synthetic")).err().unwrap();
    assert!(wrong.to_string().contains("does not run ONNX models"), "{wrong}");
}
