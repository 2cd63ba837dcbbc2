//! Which models are batched, on graphs made for the purpose.

use tract_onnx::pb::tensor_proto::DataType;

use super::*;
use crate::loader::tests::loader;
use crate::onnx::fixture::{Builder, D, matmul};
use crate::{EngineChoice, Loader, inspect};

fn options(max_batch: Option<u32>, free_batch: bool) -> LoadOptions {
    LoadOptions { max_batch, free_batch, ..LoadOptions::default() }
}

fn tract(graph: &Builder, options: LoadOptions) -> Result<Box<dyn Session>, LoadError> {
    let options = LoadOptions { engine: EngineChoice::Named("tract"), ..options };
    Loader::without_ort().load(&graph.clone().files(), &options)
}

/// Like a recurrent model whose state has its batch in dimension 1.
fn stateful() -> Builder {
    Builder::default()
        .input("input", DataType::Float, &[D::S("batch"), D::N(4)])
        .input("state", DataType::Float, &[D::N(2), D::S("batch"), D::N(4)])
        .output("output", DataType::Float, &[D::S("batch"), D::N(4)])
        .output("next", DataType::Float, &[D::N(2), D::S("batch"), D::N(4)])
        .node("Neg", &["input"], &["output"])
        .node("Neg", &["state"], &["next"])
}

#[test]
fn state_with_its_batch_elsewhere_is_not_batched() {
    assert_eq!(inspect(&stateful().files(), &LoadOptions::default()).unwrap().max_batch, 0);
    let error = inspect(&stateful().files(), &options(Some(8), false)).unwrap_err().to_string();
    assert!(error.contains("input `state` has a first dimension fixed at 2"), "{error}");
}

#[test]
fn a_batch_named_in_another_place_is_not_batched() {
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(4)])
        .output("y", DataType::Float, &[D::N(-1), D::S("n")])
        .node("Neg", &["x"], &["y"]);
    let error = inspect(&graph.files(), &options(Some(2), false)).unwrap_err().to_string();
    assert!(error.contains("output `y` has the batch as dimension 1"), "{error}");
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("batch"), D::N(4)])
        .input("z", DataType::Float, &[D::S("words"), D::N(4)])
        .output("y", DataType::Float, &[D::N(-1), D::N(4)])
        .node("Add", &["x", "z"], &["y"]);
    let error = inspect(&graph.files(), &options(Some(2), false)).unwrap_err().to_string();
    assert!(error.contains("`batch` and `words`"), "{error}");
}

#[test]
fn numbered_symbols_do_not_stand_in_the_way() {
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("unk__1"), D::N(4)])
        .output("y", DataType::Float, &[D::S("unk__2"), D::N(4)])
        .node("Neg", &["x"], &["y"]);
    assert_eq!(inspect(&graph.files(), &LoadOptions::default()).unwrap().max_batch, DEFAULT_MAX_BATCH);
}

#[test]
fn rows_that_mix_are_found_out() {
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::S("n"), D::N(4)])
        .output("y", DataType::Float, &[D::S("n"), D::N(4)])
        .node("Softmax", &["x"], &["y"])
        .attribute("axis", 0);
    let session = tract(&graph, LoadOptions::default()).unwrap();
    assert_eq!(session.signature().max_batch, 0);
    let error = tract(&graph, options(Some(8), false)).err().unwrap().to_string();
    assert!(error.contains("when another row is in the batch"), "{error}");
    assert_eq!(tract(&graph, options(Some(0), false)).unwrap().signature().max_batch, 0);
}

/// An export traced with one row: x[1,6] -> reshape to [1,2,3] -> y[1,2,3].
fn traced() -> Builder {
    Builder::default()
        .input("x", DataType::Float, &[D::N(1), D::N(6)])
        .output("y", DataType::Float, &[D::N(1), D::N(2), D::N(3)])
        .whole("target", &[1, 2, 3])
        .node("Neg", &["x"], &["h"])
        .node("Reshape", &["h", "target"], &["y"])
}

#[test]
fn a_batch_fixed_at_one_can_be_freed() {
    let loader = loader();
    let fixed = inspect(&traced().files(), &LoadOptions::default()).unwrap();
    assert_eq!(fixed.max_batch, 0);
    let error = inspect(&traced().files(), &options(Some(4), false)).unwrap_err().to_string();
    assert!(error.contains("input `x` fixes its first dimension at 1 (`free_batch = true`"), "{error}");
    let engines = if loader.ort.is_ok() { vec!["tract", "ort"] } else { vec!["tract"] };
    for engine in engines {
        let options = LoadOptions { engine: EngineChoice::Named(engine), ..options(Some(4), true) };
        let mut session = loader.load(&traced().files(), &options).unwrap();
        let signature = session.signature().clone();
        assert_eq!((signature.max_batch, signature.outputs[0].dims[0]), (4, crate::Dim::Free), "{engine}");
        let rows = [0, 1, 2].map(|row| sample::row(&signature, 1, row).unwrap());
        let outputs = session.run(&sample::join(&rows)).unwrap();
        assert_eq!(outputs[0].shape.extents(), [3, 2, 3], "{engine}");
    }
}

#[test]
fn freeing_a_batch_that_mixes_rows_is_refused() {
    let graph = Builder::default()
        .input("x", DataType::Float, &[D::N(1), D::N(4)])
        .output("y", DataType::Float, &[D::N(1), D::N(4)])
        .node("Softmax", &["x"], &["y"])
        .attribute("axis", 0);
    let error = tract(&graph, options(None, true)).err().unwrap();
    assert!(matches!(&error, LoadError::Batch { .. }), "{error}");
    let error = tract(&stateful(), options(None, true)).err().unwrap().to_string();
    assert!(error.contains("input `state` has no first dimension of 1"), "{error}");
}

#[test]
fn an_asked_batch_is_taken_as_it_is() {
    let session = tract(&matmul(D::S("batch")), options(Some(3), false)).unwrap();
    assert_eq!(session.signature().max_batch, 3);
}

#[test]
fn differences_are_shares_of_the_largest_value() {
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let compare = |left: &[f32], right: &[f32]| difference(&bytes(left), &bytes(right), Datatype::Fp32);
    assert_eq!(compare(&[1.0, -4.0], &[1.0, -2.0]), 0.5);
    assert_eq!(compare(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]), 0.0);
    assert_eq!(compare(&[1.0], &[f32::NAN]), f64::INFINITY);
}
