//! Stages of small models against the whole, with the built-in engine.

use std::collections::BTreeMap;
use std::fs;

use oip::Tensor;
use oip::proto::model_config::SchedulingChoice;
use oip::proto::{ModelConfig, ModelSequenceBatching};
use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_proto::DataType;

use super::*;
use crate::engine::Batch;
use crate::onnx::fixture::{Builder, D};
use crate::repository::Pbtxt;
use crate::{EngineChoice, LoadOptions, SampleInputs, Version};

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

/// `y = relu(x w + b) w`, `half = x w + b` and `total` of both: shared weights, an early output, a skip connection.
fn branched() -> Builder {
    Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(2)])
        .output("half", DataType::Float, &[D::S("n"), D::N(2)])
        .output("total", DataType::Float, &[D::S("n"), D::N(2)])
        .floats("w", &[2, 2], &[1.0, -2.0, 3.0, 0.5])
        .floats("b", &[2], &[0.25, -0.5])
        .node("MatMul", &["x", "w"], &["xw"])
        .node("Add", &["xw", "b"], &["half"])
        .node("Relu", &["half"], &["r"])
        .node("MatMul", &["r", "w"], &["rw"])
        .node("Add", &["rw", "r"], &["sum"])
        .node("Neg", &["sum"], &["total"])
}

fn changed(builder: Builder, change: impl FnOnce(&mut pb::ModelProto)) -> ModelFiles {
    let mut proto = pb::ModelProto::decode(builder.bytes().as_slice()).unwrap();
    change(&mut proto);
    ModelFiles::from_bytes(name("made"), Version(1), Format::Onnx, proto.encode_to_vec())
}

fn run(loader: &Loader, files: &ModelFiles, given: &BTreeMap<String, Tensor>, rows: u32) -> Vec<Tensor> {
    let mut session =
        loader.load(files, &LoadOptions { max_batch: Some(4), ..LoadOptions::default() }).unwrap();
    let inputs = session.signature().inputs.iter().map(|spec| given.get(&spec.name).cloned()).collect();
    session.run(&Batch { inputs, rows }).unwrap()
}

/// Splits at every position that `crossing` tensors cross at most; checks that stages give what the whole gives. Returns the
/// positions.
fn check_all_points(files: &ModelFiles, free_batch: bool, crossing: usize) -> Vec<usize> {
    let loader = Loader::without_ort();
    let mut whole = loader.load(files, &LoadOptions { free_batch, ..LoadOptions::default() }).unwrap();
    let samples = SampleInputs::of(whole.as_mut()).unwrap();
    let mut model = SplitModel::read(files, free_batch).unwrap();
    model.set_batched();
    let points = model.graph().split_points(crossing);
    for point in &points {
        model.learn_types(&loader, &point.crossing).unwrap();
        let stages = model.graph().stages(&[point.position]).unwrap();
        for rows in [1, 3] {
            let batch = samples.batches(rows, 1, 1 << 20).unwrap().remove(0);
            let known = whole.run(&batch).unwrap();
            let inputs = batch.inputs.into_iter().flatten();
            let mut tensors: BTreeMap<String, Tensor> =
                inputs.map(|tensor| (tensor.name.clone(), tensor)).collect();
            for (number, stage) in stages.iter().enumerate() {
                let part = model.stage(stage, &name(&format!("part-{number}"))).unwrap();
                let outputs = run(&loader, &part, &tensors, rows);
                tensors.extend(outputs.into_iter().map(|tensor| (tensor.name.clone(), tensor)));
            }
            for output in known {
                assert_eq!(tensors[&output.name], output, "split point {point:?}, {rows} rows");
            }
        }
    }
    points.into_iter().map(|point| point.position).collect()
}

#[test]
fn stages_give_what_the_whole_gives_wherever_it_is_split() {
    assert_eq!(check_all_points(&branched().files(), false, 1), [1, 2, 3, 5]);
    assert_eq!(check_all_points(&branched().files(), false, 2), [1, 2, 3, 4, 5]);
}

#[test]
fn a_model_whose_batch_is_freed_is_split_as_it_is_served() {
    let fixed = Builder::default()
        .input("x", DataType::Float, &[D::N(1), D::N(2), D::N(3)])
        .output("y", DataType::Float, &[D::N(1), D::N(6)])
        .whole("target", &[1, 6])
        .node("Relu", &["x"], &["r"])
        .node("Reshape", &["r", "target"], &["flat"])
        .node("Neg", &["flat"], &["y"]);
    assert_eq!(check_all_points(&fixed.files(), true, 1), [1, 2]);
}

#[test]
fn a_constant_that_is_listed_as_an_input_stays_a_constant() {
    let old = changed(branched(), |proto| {
        proto.ir_version = 3;
        let graph = proto.graph.as_mut().unwrap();
        for (tensor, dims) in [("w", vec![2, 2]), ("b", vec![2])] {
            let dims = dims.into_iter().map(GraphDim::Fixed).collect();
            let known = TensorType { element: DataType::Float as i32, dims };
            let dims = known.dims.iter().map(assembly::dimension).collect();
            graph.input.push(TensorType::value_info(tensor, known.element, dims));
        }
    });
    assert_eq!(check_all_points(&old, false, 1), [1, 2, 3, 5]);
}

#[test]
fn weights_in_other_files_go_into_one_file_of_each_stage() {
    let folder = tempfile::tempdir().unwrap();
    let (builder, data) = branched().external("w", "weights.bin");
    fs::write(folder.path().join("weights.bin"), data).unwrap();
    let files = builder.files().in_folder(folder.path().to_owned());
    assert_eq!(check_all_points(&files, false, 1), [1, 2, 3, 5]);

    let loader = Loader::without_ort();
    let mut model = SplitModel::read(&files, false).unwrap();
    model.learn_types(&loader, &["r".to_owned()]).unwrap();
    let stages = model.graph().stages(&[3]).unwrap();
    let mut outputs = Vec::new();
    for stage in &stages {
        assert!(model.weights_bytes(stage) >= 16);
        let target = tempfile::tempdir().unwrap();
        model.write_stage(stage, target.path()).unwrap();
        assert_eq!(fs::metadata(target.path().join("model.onnx.data")).unwrap().len(), 16);
        let bytes = fs::read(target.path().join("model.onnx")).unwrap();
        let written = ModelFiles::from_bytes(name("stage"), Version(1), Format::Onnx, bytes);
        let mut session =
            loader.load(&written.in_folder(target.path().to_owned()), &LoadOptions::default()).unwrap();
        let batch = SampleInputs::of(session.as_mut()).unwrap().batches(1, 1, 1 << 20).unwrap().remove(0);
        outputs.extend(session.run(&batch).unwrap());
    }
    assert_eq!(outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["r", "half", "total"]);
    fs::write(folder.path().join("weights.bin"), [0; 3]).unwrap();
    let target = tempfile::tempdir().unwrap();
    let error = model.write_stage(&stages[0], target.path()).unwrap_err().to_string();
    assert!(error.contains("weights.bin") && error.contains("it is not complete"), "{error}");
}

/// A node with a subgraph that reads `r` of the graph around it, and a weight, and defines a tensor of its own.
fn conditional() -> ModelFiles {
    let builder = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(2)])
        .input("which", DataType::Bool, &[D::N(1)])
        .output("y", DataType::Float, &[D::S("n"), D::N(2)])
        .floats("w", &[2], &[1.0, 2.0])
        .node("Relu", &["x"], &["r"])
        .node("Neg", &["r"], &["m"])
        .node("If", &["which"], &["chosen"])
        .node("Add", &["chosen", "m"], &["y"]);
    changed(builder, |proto| {
        let node = |operator: &str, inputs: &[&str], output: &str| pb::NodeProto {
            op_type: operator.to_owned(),
            input: inputs.iter().map(ToString::to_string).collect(),
            output: vec![output.to_owned()],
            ..Default::default()
        };
        let branch = |attribute: &str, nodes: Vec<pb::NodeProto>| pb::AttributeProto {
            name: attribute.to_owned(),
            r#type: pb::attribute_proto::AttributeType::Graph as i32,
            g: Some(pb::GraphProto {
                output: vec![pb::ValueInfoProto { name: "own".to_owned(), ..Default::default() }],
                node: nodes,
                ..Default::default()
            }),
            ..Default::default()
        };
        let inner = vec![node("Mul", &["r", "w"], "scaled"), node("Neg", &["scaled"], "own")];
        let graph = proto.graph.as_mut().unwrap();
        graph.node[2].attribute =
            vec![branch("then_branch", inner), branch("else_branch", vec![node("Identity", &["r"], "own")])];
    })
}

#[test]
fn what_a_subgraph_captures_counts_as_read() {
    let model = SplitModel::read(&conditional(), false).unwrap();
    let reads = &model.graph().description().nodes[2].reads;
    assert_eq!(reads, &["which", "r", "w"]);
    let points = model.graph().split_points(9);
    assert_eq!(points[1].crossing, ["which", "r", "m"]);
    let stages = model.graph().stages(&[2]).unwrap();
    let second = model.assemble(&stages[1], true);
    let graph = second.graph.unwrap();
    assert_eq!(graph.initializer[0].name, "w", "the weight that only the subgraph reads");
    assert_eq!(graph.node[0].attribute.len(), 2);
    assert!(model.assemble(&stages[0], true).graph.unwrap().initializer.is_empty());
}

#[test]
fn types_come_from_the_engine_or_from_the_file() {
    let loader = Loader::without_ort();
    let mut model = SplitModel::read(&branched().files(), false).unwrap();
    model.learn_types(&loader, &["r".to_owned()]).unwrap();
    assert!(model.has_type("r") && !model.has_type("rw"));
    // No engine has this operator, and the file says nothing.
    let mystery = |declared: bool| {
        changed(Builder::default(), |proto| {
            *proto = pb::ModelProto::decode(conditional().bytes.as_ref()).unwrap();
            let graph = proto.graph.as_mut().unwrap();
            graph.node[2].op_type = "Mystery".to_owned();
            graph.node[2].attribute.clear();
            if declared {
                graph.value_info.push(TensorType::value_info("chosen", DataType::Float as i32, Vec::new()));
            }
        })
    };
    let mut silent = SplitModel::read(&mystery(false), false).unwrap();
    let error = silent.learn_types(&loader, &["chosen".to_owned()]).unwrap_err().to_string();
    assert!(error.starts_with("model `made`: no engine infers its types: ort: "), "{error}");
    let mut told = SplitModel::read(&mystery(true), false).unwrap();
    told.learn_types(&loader, &["chosen".to_owned()]).unwrap();
    assert!(told.has_type("chosen"));
    let stages = silent.graph().stages(&[3]).unwrap();
    let error = silent.stage(&stages[0], &name("part")).unwrap_err().to_string();
    assert!(error.contains("the type of tensor `m` is not known"), "{error}");
}

#[test]
fn runs_correct_what_is_known_of_dimensions() {
    let loader = Loader::without_ort();
    let mut model = SplitModel::read(&branched().files(), false).unwrap();
    model.learn_types(&loader, &["r".to_owned()]).unwrap();
    let mut after = |shapes: &[Vec<u64>], varied| {
        model.observe("r", shapes, varied);
        model.types["r"].dims.clone()
    };
    let (free, two) = (GraphDim::Unnamed, GraphDim::Fixed(2));
    assert_eq!(after(&[vec![3, 2], vec![6, 2]], false), [free.clone(), two.clone()]);
    assert_eq!(after(&[vec![3, 2], vec![6, 4]], true), [free.clone(), free.clone()]);
    assert_eq!(
        after(&[vec![3, 2], vec![3, 2]], false),
        [free.clone(), free.clone()],
        "the inputs may not have varied"
    );
    assert_eq!(after(&[vec![3, 2], vec![6, 2]], true), [free, two]);
}

#[test]
fn what_a_stage_would_lose_is_refused_by_name() {
    let refusal = |change: fn(&mut pb::ModelProto)| {
        SplitModel::read(&changed(branched(), change), false).map(|_| ()).unwrap_err().to_string()
    };
    let function = refusal(|proto| {
        proto.functions.push(pb::FunctionProto { name: Some("gelu".to_owned()), ..Default::default() });
    });
    assert!(
        function.starts_with("model `made`: function `gelu`: ")
            && function.contains("inline_local_functions")
    );
    let training = refusal(|proto| proto.training_info.push(pb::TrainingInfoProto::default()));
    assert!(training.contains("training_info: "), "{training}");
    let sequence = refusal(|proto| {
        let info = pb::ValueInfoProto {
            name: "list".to_owned(),
            r#type: Some(pb::TypeProto::default()),
            ..Default::default()
        };
        let graph = Some(pb::GraphProto { input: vec![info], ..Default::default() });
        let attribute = pb::AttributeProto { name: "body".to_owned(), g: graph, ..Default::default() };
        let nodes = &mut proto.graph.as_mut().unwrap().node;
        nodes[0].attribute.push(attribute);
        nodes[2].op_type = "SequenceConstruct".to_owned();
    });
    assert!(sequence.contains("`list` of its subgraph is not a tensor"), "{sequence}");
    let cycle = refusal(|proto| proto.graph.as_mut().unwrap().node.reverse());
    assert!(cycle.contains("expected nodes in topological order"), "{cycle}");
    let synthetic = ModelFiles::from_bytes(name("made"), Version(1), Format::Synthetic, Vec::new());
    let error = SplitModel::read(&synthetic, false).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "model `made`: format: a synthetic model cannot be split: expected an ONNX model");
}

#[test]
fn configurations_chain_the_stages_under_the_old_name() {
    let text = r#"backend: "onnxruntime" max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 }
        instance_group { count: 2 kind: KIND_CPU } version_policy { latest { num_versions: 2 } }
        output { name: "total" data_type: TYPE_FP32 dims: [2] label_filename: "labels.txt" }"#;
    let written = Pbtxt::parse(&name("made"), text, true).unwrap();
    let signature = |inputs: &[&str], outputs: &[&str]| {
        let spec = |tensor: &&str| crate::TensorSpec {
            name: (*tensor).to_owned(),
            datatype: oip::Datatype::Fp32,
            dims: vec![crate::Dim::Free, crate::Dim::Fixed(2)],
            optional: false,
        };
        crate::Signature {
            inputs: inputs.iter().map(spec).collect(),
            outputs: outputs.iter().map(spec).collect(),
            max_batch: 4,
        }
    };
    let stages = [
        (name("made-1"), signature(&["x"], &["r", "half"])),
        (name("made-2"), signature(&["r"], &["total"])),
    ];
    let whole = signature(&["x"], &["half", "total"]);
    let owner = name("made");
    let config = PipelineConfig {
        name: &owner,
        source: Some(&written.source),
        engine: EngineChoice::Auto,
        whole: &whole,
        stages: &stages,
    };
    config.check().unwrap();
    assert_eq!(config.left_out().len(), 1);
    let second = Pbtxt::parse(&stages[1].0, &config.stage_text(1).unwrap(), true).unwrap();
    assert_eq!(
        (second.max_batch, second.dynamic_batching, second.instances.map(u32::from)),
        (Some(4), true, Some(2))
    );
    assert_eq!(second.inputs[0].name, "r");
    assert_eq!(second.outputs[0].label_filename, None, "clients ask the ensemble");
    assert!(config.stage_text(2).is_err());
    let ensemble = config.ensemble_text().unwrap();
    for part in [
        r#"platform: "ensemble""#,
        r#"model_name: "made-1""#,
        r#"label_filename: "labels.txt""#,
        "max_batch_size: 4",
    ] {
        assert!(ensemble.contains(part), "{ensemble}");
    }
    let stateful = ModelConfig {
        scheduling_choice: Some(SchedulingChoice::SequenceBatching(ModelSequenceBatching::default())),
        ..ModelConfig::default()
    };
    let error = PipelineConfig { source: Some(&stateful), ..config }.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "config.pbtxt of model `made`: sequence_batching: state between requests cannot be split over stages"
    );
}
