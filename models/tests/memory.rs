//! Unloading gives memory back. Alone in its process, because it reads the size of the process.

#![expect(clippy::unwrap_used, reason = "a test, with helpers outside its test function")]

use models::engine::ort::{Environment, discover};
use models::engine::{Batch, Session};
use models::{
    EngineChoice, Format, LoadOptions, Loader, ModelFiles, ModelName, Version, release_unused_memory,
};
use oip::{Datatype, Shape, Tensor};
use prost::Message;
use tract_onnx::pb;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension::Value as Extent};

const WIDTH: u64 = 1024;
const FLOAT: i32 = pb::tensor_proto::DataType::Float as i32;

/// Two dense layers of 4 MiB each.
fn dense_layers() -> ModelFiles {
    let info = |name: &str| {
        let dims = [Extent::DimParam("batch".into()), Extent::DimValue(WIDTH as i64)];
        let dim = dims.map(|value| Dimension { value: Some(value), ..Default::default() }).to_vec();
        let shape = Some(pb::TensorShapeProto { dim });
        let tensor = pb::type_proto::Tensor { elem_type: FLOAT, shape };
        let value = Some(pb::type_proto::Value::TensorType(tensor));
        let r#type = Some(pb::TypeProto { value, ..Default::default() });
        pb::ValueInfoProto { name: name.into(), r#type, ..Default::default() }
    };
    let weights = |name: &str| pb::TensorProto {
        name: name.into(),
        dims: vec![WIDTH as i64; 2],
        data_type: FLOAT,
        raw_data: (0..WIDTH * WIDTH).flat_map(|index| ((index % 97) as f32 / 97.0).to_le_bytes()).collect(),
        ..Default::default()
    };
    let node = |operator: &str, inputs: &[&str], output: &str| pb::NodeProto {
        op_type: operator.into(),
        name: output.into(),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.into()],
        ..Default::default()
    };
    let graph = pb::GraphProto {
        name: "dense".into(),
        input: vec![info("x")],
        output: vec![info("y")],
        initializer: vec![weights("v"), weights("w")],
        node: vec![
            node("MatMul", &["x", "v"], "hidden"),
            node("Relu", &["hidden"], "rectified"),
            node("MatMul", &["rectified", "w"], "y"),
        ],
        ..Default::default()
    };
    let model = pb::ModelProto {
        ir_version: 8,
        opset_import: vec![pb::OperatorSetIdProto { version: 17, ..Default::default() }],
        graph: Some(graph),
        ..Default::default()
    };
    ModelFiles::from_bytes(ModelName::new("dense").unwrap(), Version(1), Format::Onnx, model.encode_to_vec())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn run(session: &mut dyn Session, rows: u64) {
    let data: Vec<u8> = (0..rows * WIDTH).flat_map(|index| (index as f32).to_le_bytes()).collect();
    let shape = Shape::from_extents(&[rows, WIDTH]);
    let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape, data: data.into() };
    session.run(&Batch { inputs: vec![Some(input)], rows: rows as u32 }).unwrap();
}

#[test]
fn twenty_cycles_of_load_run_and_unload_leave_nothing_behind() {
    const BOUND_KIB: u64 = 16 * 1024;
    let variable = |name: &str| std::env::var_os(name);
    let environment = Environment {
        path: variable("PATH"),
        virtual_env: variable("VIRTUAL_ENV").map(Into::into),
        ort_dylib_path: variable("ORT_DYLIB_PATH").map(Into::into),
        program: None,
    };
    let loader = Loader::new(discover(None, &environment));
    let files = dense_layers();
    for engine in ["tract", "ort"] {
        if let ("ort", Err(missing)) = (engine, &loader.ort) {
            eprintln!("not tested on engine `ort`: {missing}");
            continue;
        }
        let options = LoadOptions { engine: EngineChoice::Named(engine), ..LoadOptions::default() };
        let cycle = || {
            let mut session = loader.load(&files, &options).unwrap();
            [1, 4, 16].into_iter().for_each(|rows| run(session.as_mut(), rows));
            let loaded = resident_kib();
            drop(session);
            release_unused_memory();
            loaded
        };
        // The first cycles set up what an engine keeps for ever: thread stacks, kernels, allocator arenas.
        let loaded = (0..3).map(|_| cycle()).max().unwrap_or_default();
        let before = resident_kib();
        (0..20).for_each(|_| {
            cycle();
        });
        let after = resident_kib();
        eprintln!(
            "{engine}: resident {loaded} KiB loaded, {before} KiB unloaded, {after} KiB after 20 more cycles"
        );
        assert!(after <= before + BOUND_KIB, "{engine}: grew from {before} to {after} KiB");
        assert!(loaded >= after + 2 * 4 * 1024, "{engine}: the weights were not given back");
    }
}
