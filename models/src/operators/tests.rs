//! Work that is counted, with types as tract infers them.

use super::*;
use crate::onnx::fixture::{Builder, D, matmul};
use tract_onnx::pb::tensor_proto::DataType;

fn found(files: &ModelFiles, rows: &[(&str, &[u64])]) -> Vec<OperatorWork> {
    let rows = rows.iter().map(|(name, row)| ((*name).to_owned(), row.to_vec())).collect();
    operators(&Loader::without_ort(), files, &rows, true).unwrap().all
}

#[test]
fn a_product_of_matrices_has_the_work_of_one_row() {
    for batch in [D::S("n"), D::N(-1), D::N(1)] {
        let [product] = found(&matmul(batch).files(), &[]).try_into().unwrap();
        assert_eq!((product.operator.as_str(), product.macs, product.width), ("MatMul", 6.0, 2.0));
        assert_eq!((product.weight_bytes, product.activation_bytes), (24.0, 20.0));
    }
}

fn names(files: &ModelFiles) -> Vec<String> {
    found(files, &[]).into_iter().map(|found| found.operator).collect()
}

fn convolution(channels: i64, groups: i64) -> Builder {
    let of_group = channels / groups;
    let weights = vec![0.5; usize::try_from(channels * of_group * 9).unwrap()];
    Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(channels), D::S("h"), D::S("w")])
        .output("y", DataType::Float, &[D::S("n"), D::N(channels), D::S("h2"), D::S("w2")])
        .floats("k", &[channels, of_group, 3, 3], &weights)
        .node("Conv", &["x", "k"], &["c"])
        .attribute("group", groups)
        .node("Relu", &["c"], &["y"])
}

#[test]
fn convolutions_have_the_work_of_the_shapes_that_are_given() {
    let found_all = found(&convolution(4, 1).files(), &[("x", &[4, 10, 12])]);
    let [dense] = found_all.as_slice() else { panic!("{found_all:?}") };
    let made = 4.0 * 8.0 * 10.0;
    assert_eq!((dense.macs, dense.width, dense.is_depthwise), (made * 36.0, made, false));
    assert_eq!((dense.weight_bytes, dense.activation_bytes), (4.0 * 144.0, 4.0 * (480.0 + made)));
    let single = found(&convolution(4, 4).files(), &[("x", &[1, 4, 10, 12])]);
    assert_eq!((single[0].macs, single[0].is_depthwise), (made * 9.0, true));
    let usual =
        operators(&Loader::without_ort(), &convolution(4, 1).files(), &BTreeMap::new(), true).unwrap();
    assert_eq!(usual.all[0].width, 4.0 * 30.0 * 30.0, "free extents are 32");
    assert_eq!(usual.rows, BTreeMap::from([("x".to_owned(), vec![4, 32, 32])]));
}

#[test]
fn what_depends_on_constants_only_does_not_count() {
    let files = matmul(D::S("n"))
        .floats("b", &[2], &[1.0, 2.0])
        .node("Neg", &["b"], &["negative"])
        .node("Max", &["y", "negative"], &["z"])
        .output("z", DataType::Float, &[D::S("n"), D::N(2)])
        .files();
    assert_eq!(names(&files), ["MatMul", "Max"]);
}

#[test]
fn other_formats_do_not_say_their_operators() {
    let mut files = matmul(D::S("n")).files();
    files.format = Format::Synthetic;
    let refusal = operators(&Loader::without_ort(), &files, &BTreeMap::new(), true).unwrap_err();
    assert!(refusal.contains("does not say its operators: expected an ONNX model"), "{refusal}");
}

#[test]
fn convolutions_read_their_weights_again_for_each_image() {
    let images = Builder::default()
        .input("x", DataType::Float, &[D::N(5), D::N(4), D::N(10), D::N(10)])
        .output("y", DataType::Float, &[D::N(5), D::N(4), D::N(8), D::N(8)])
        .floats("k", &[4, 4, 3, 3], &[0.5; 144])
        .node("Conv", &["x", "k"], &["y"]);
    let found = operators(&Loader::without_ort(), &images.files(), &BTreeMap::new(), false).unwrap().all;
    assert_eq!(found[0].weight_bytes, 5.0 * 4.0 * 144.0);
}

/// Convolutions of 1 x 1 with two channels, of an image of 2 x 4 x 4: each result has 128 bytes.
fn image() -> Builder {
    Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(2), D::N(4), D::N(4)])
        .output("y", DataType::Float, &[D::S("n"), D::N(2), D::N(4), D::N(4)])
        .floats("k", &[2, 2, 1, 1], &[1.0; 4])
        .floats("c", &[2], &[1.0; 2])
        .floats("channels", &[2, 1, 1], &[1.0; 2])
        .floats("scalar", &[], &[3.0])
        .node("Conv", &["x", "k"], &["a"])
}

const SCALED: [&str; 5] = ["a", "c", "c", "c", "c"];

#[test]
fn convolutions_scale_channels_and_compute_activations_in_their_pass() {
    let chain = image()
        .node("BatchNormalization", &SCALED, &["b"])
        .node("Mul", &["b", "channels"], &["d"])
        .node("Add", &["channels", "d"], &["e"])
        .node("Relu", &["e"], &["y"]);
    let [convolution] = found(&chain.files(), &[]).try_into().unwrap();
    assert_eq!((convolution.macs, convolution.activation_bytes), (64.0, 256.0));
    let clipped = image().node("Clip", &["a", "scalar"], &["y"]);
    assert_eq!(names(&clipped.files()), ["Conv"]);
    let second = image().node("Relu", &["a"], &["b"]).node("Tanh", &["b"], &["y"]);
    assert_eq!(names(&second.files()), ["Conv", "Tanh"], "only one activation");
    for other in ["Elu", "Exp"] {
        assert_eq!(names(&image().node(other, &["a"], &["y"]).files()), ["Conv", other]);
    }
    let scalar = image().node("Add", &["a", "scalar"], &["y"]);
    assert_eq!(names(&scalar.files()), ["Conv", "Add"], "an addend of all channels is not part of the bias");
}

#[test]
fn results_that_something_else_reads_are_not_merged() {
    let output = image().node("Relu", &["a"], &["y"]).output(
        "a",
        DataType::Float,
        &[D::S("n"), D::N(2), D::N(4), D::N(4)],
    );
    assert_eq!(names(&output.files()), ["Conv", "Relu"]);
    let read = image().node("Relu", &["a"], &["b"]).node("Max", &["a", "b"], &["y"]);
    assert_eq!(names(&read.files()), ["Conv", "Relu", "Max"]);
}

#[test]
fn convolutions_add_the_result_of_another_one() {
    let shortcut = image()
        .node("Relu", &["a"], &["b"])
        .node("Conv", &["b", "k"], &["d"])
        .node("Add", &["b", "d"], &["e"])
        .node("Relu", &["e"], &["y"]);
    let [first, second] = found(&shortcut.files(), &[]).try_into().unwrap();
    assert_eq!((first.activation_bytes, second.activation_bytes), (256.0, 384.0), "it reads both");
    let input = image().node("Sum", &["x", "a"], &["e"]).node("Relu", &["e"], &["y"]);
    assert_eq!(names(&input.files()), ["Conv", "Sum", "Relu"], "inputs are not in blocks of channels");
}

#[test]
fn a_normalisation_of_blocks_of_channels_computes_the_activation() {
    let before = image()
        .node("MaxPool", &["a"], &["p"])
        .node("BatchNormalization", &["p", "c", "c", "c", "c"], &["b"])
        .node("Relu", &["b"], &["y"]);
    let ones = before.ints("kernel_shape", 1, &[1, 1]);
    assert_eq!(names(&ones.files()), ["Conv", "MaxPool", "BatchNormalization"]);
    let alone = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(2), D::N(4), D::N(4)])
        .output("y", DataType::Float, &[D::S("n"), D::N(2), D::N(4), D::N(4)])
        .floats("c", &[2], &[1.0; 2])
        .node("BatchNormalization", &["x", "c", "c", "c", "c"], &["b"])
        .node("Relu", &["b"], &["y"]);
    assert_eq!(names(&alone.files()), ["BatchNormalization", "Relu"]);
}

#[test]
fn products_add_their_bias_and_compute_activations() {
    let product = |activation| {
        let out = DataType::Float;
        let product = matmul(D::S("n")).floats("bias", &[2], &[1.0, 2.0]).node("Add", &["y", "bias"], &["b"]);
        names(
            &product
                .node(activation, &["b"], &["z"])
                .output("z", out, &[D::S("n"), D::N(2)])
                .without_output("y")
                .files(),
        )
    };
    assert_eq!(product("Relu"), ["MatMul"]);
    assert_eq!(product("Elu"), ["MatMul"]);
    assert_eq!(product("Exp"), ["MatMul", "Exp"]);
    let plain = matmul(D::S("n")).node("Relu", &["y"], &["z"]).without_output("y");
    let plain = plain.output("z", DataType::Float, &[D::S("n"), D::N(2)]);
    assert_eq!(names(&plain.files()), ["MatMul", "Relu"], "without a bias");
}

#[test]
fn normalisations_of_layers_add_in_their_pass() {
    let dims = [D::S("n"), D::N(3), D::N(2)];
    let sum = Builder::default()
        .input("x", DataType::Float, &dims)
        .input("z", DataType::Float, &dims)
        .output("y", DataType::Float, &dims)
        .floats("bias", &[2], &[1.0; 2])
        .node("Add", &["x", "bias"], &["a"])
        .node("Add", &["a", "z"], &["b"])
        .node("LayerNormalization", &["b", "bias", "bias"], &["y"]);
    assert_eq!(names(&sum.files()), ["LayerNormalization"]);
}

#[test]
fn operators_that_pass_tensors_on_do_not_run_and_a_gate_runs_once() {
    let gate = image()
        .node("Exp", &["a"], &["b"])
        .node("Identity", &["b"], &["d"])
        .node("Sigmoid", &["d"], &["e"])
        .node("Mul", &["d", "e"], &["y"]);
    assert_eq!(names(&gate.files()), ["Conv", "Exp", "Sigmoid"]);
}

/// A condition on an input: a product, or what `other` does.
fn condition(other: Builder) -> ModelFiles {
    let inner = |inner: Builder| inner.output("r", DataType::Float, &[D::N(-1), D::N(-1)]);
    Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(3)])
        .input("is", DataType::Bool, &[])
        .output("y", DataType::Float, &[D::S("n"), D::N(3)])
        .floats("w", &[3, 3], &[0.5; 9])
        .node("If", &["is"], &["z"])
        .subgraph("else_branch", inner(other))
        .subgraph(
            "then_branch",
            inner(Builder::default().node("MatMul", &["x", "w"], &["p"]).node("Relu", &["p"], &["r"])),
        )
        .node("MatMul", &["z", "w"], &["y"])
        .files()
}

#[test]
fn of_a_condition_the_branch_with_more_operators_counts() {
    let found = found(&condition(Builder::default().node("Identity", &["x"], &["r"])), &[]);
    let [inside, relu, after] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((inside.operator.as_str(), inside.macs), ("MatMul", 9.0));
    assert_eq!((relu.activation_bytes, after.macs), (24.0, 9.0));
}

#[test]
fn a_branch_whose_shapes_contradict_the_rest_does_not_count() {
    let longer = Builder::default().node("Transpose", &["x"], &["p"]).node("Exp", &["p"], &["q"]).node(
        "Exp",
        &["q"],
        &["r"],
    );
    let files = condition(longer);
    // Of the longer branch, either the engine says that it does not fit, or it infers another shape than it did for the condition.
    let of = |extents: [u64; 2]| {
        let dims = extents.into_iter().map(GraphDim::Fixed).collect();
        BTreeMap::from([("z".to_owned(), TensorType { element: DataType::Float as i32, dims })])
    };
    for of_longer in [Err("3 x 1 times 3 x 3".to_owned()), Ok(of([3, 1]))] {
        let infer = |model: &pb::ModelProto| {
            let mut nodes = model.graph.iter().flat_map(|graph| &graph.node);
            if nodes.any(|node| node.op_type == "Transpose") { of_longer.clone() } else { Ok(of([1, 3])) }
        };
        let graph = onnx::Graph::decode(&files).unwrap();
        let (model, types) = branches::unfolded(graph.proto, of([1, 3]), infer);
        let names = model.graph.unwrap().node.into_iter().map(|node| node.op_type);
        assert_eq!(names.collect::<Vec<_>>(), ["MatMul", "Relu", "Identity", "MatMul"]);
        assert_eq!(types, of([1, 3]));
    }
}
