use tract_onnx::pb::tensor_proto::DataType;

use super::*;
use crate::engine::{Batch, Session};
use crate::loader::tests::loader;
use crate::onnx::fixture::{Builder, D};
use crate::{LoadOptions, ModelName, sample};

const DIMS: [D; 2] = [D::S("batch"), D::S("length")];

fn prove(session: &mut dyn Session, settings: &PaddingSettings) -> Result<Padding, String> {
    Padding::prove(&ModelName::new("m").unwrap(), session, settings)
}

/// An embedding of `ids`, and its mean over the elements that `attention_mask` selects.
fn masked_mean() -> Builder {
    let table: Vec<f32> = (0..32).map(|value| (value as f32 * 0.7).sin()).collect();
    Builder::default()
        .input("ids", DataType::Int64, &DIMS)
        .input("attention_mask", DataType::Int64, &DIMS)
        .output("mean", DataType::Float, &[D::S("batch"), D::N(4)])
        .output("tokens", DataType::Float, &[D::S("batch"), D::S("length"), D::N(4)])
        .floats("table", &[8, 4], &table)
        .whole("last", &[2])
        .whole("along", &[1])
        .node("Gather", &["table", "ids"], &["tokens"])
        .node("Cast", &["attention_mask"], &["mask"])
        .attribute("to", DataType::Float as i64)
        .node("Unsqueeze", &["mask", "last"], &["column"])
        .node("Mul", &["tokens", "column"], &["chosen"])
        .node("ReduceSum", &["chosen", "along"], &["sum"])
        .attribute("keepdims", 0)
        .node("ReduceSum", &["mask", "along"], &["count"])
        .attribute("keepdims", 1)
        .node("Div", &["sum", "count"], &["mean"])
}

/// The mean over everything, padding included.
fn plain_mean() -> Builder {
    Builder::default()
        .input("x", DataType::Float, &DIMS)
        .output("y", DataType::Float, &[D::S("batch"), D::N(1)])
        .whole("along", &[1])
        .node("Abs", &["x"], &["size"])
        .node("ReduceSum", &["size", "along"], &["y"])
        .attribute("keepdims", 1)
}

fn session(graph: Builder) -> Box<dyn Session> {
    loader().load(&graph.files(), &LoadOptions::default()).unwrap()
}

fn settings(text: &str) -> PaddingSettings {
    let table: toml::Table = toml::from_str(&format!("padding = {text}")).unwrap();
    table["padding"].clone().try_into().unwrap()
}

fn whole(name: &str, extents: &[u64], values: &[i64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = Shape::from_extents(extents);
    Tensor { name: name.to_owned(), datatype: Datatype::Int64, shape, data: data.into() }
}

fn request(ids: &[i64], rows: u64) -> Vec<Option<Tensor>> {
    let extents = [rows, ids.len() as u64 / rows];
    vec![Some(whole("ids", &extents, ids)), Some(whole("attention_mask", &extents, &vec![1; ids.len()]))]
}

#[test]
fn padded_requests_share_a_batch_and_get_their_own_answers() {
    let mut session = session(masked_mean());
    let padding = prove(session.as_mut(), &settings("{ buckets = [4, 8], values = { ids = 7 } }")).unwrap();
    assert_eq!(padding.buckets(), [4, 8]);
    let requests = [request(&[1, 2, 3, 4, 5], 1), request(&[6, 5, 4, 3, 2, 1, 0], 1)];
    let alone = requests.clone().map(|inputs| session.run(&Batch { inputs, rows: 1 }).unwrap());
    let mut longer = requests;
    let padded = longer.each_mut().map(|inputs| padding.pad(inputs).unwrap());
    let ids = longer[0][0].as_ref().unwrap();
    assert_eq!(ids.shape.extents(), [1, 8]);
    assert_eq!(ids.data, whole("ids", &[1, 8], &[1, 2, 3, 4, 5, 7, 7, 7]).data);
    let batches = longer.map(|inputs| Batch { inputs, rows: 1 });
    let together = session.run(&sample::join(&batches)).unwrap();
    for (row, (alone, padded)) in alone.iter().zip(padded).enumerate() {
        let own = together.iter().map(|output| {
            let bytes = output.data.len() / 2;
            let data = output.data.slice(row * bytes..(row + 1) * bytes);
            Tensor { shape: output.shape.with_outermost(1), data, ..output.clone() }
        });
        let own = padding.restore(padded, own.collect()).unwrap();
        for (own, alone) in own.iter().zip(alone) {
            assert_eq!(own.shape, alone.shape, "{}", own.name);
            assert!(crate::batching::difference(&own.data, &alone.data, Datatype::Fp32) < 1e-6);
        }
    }
}

#[test]
fn each_row_of_a_request_is_padded_and_shortened() {
    let mut session = session(masked_mean());
    let padding = prove(session.as_mut(), &settings("{ buckets = [4] }")).unwrap();
    let mut inputs = request(&[1, 2, 3, 4, 5, 6], 2);
    let alone = session.run(&Batch { inputs: inputs.clone(), rows: 2 }).unwrap();
    let padded = padding.pad(&mut inputs).unwrap();
    assert_eq!(inputs[1].as_ref().unwrap().data, whole("", &[2, 4], &[1, 1, 1, 0, 1, 1, 1, 0]).data);
    let outputs = padding.restore(padded, session.run(&Batch { inputs, rows: 2 }).unwrap()).unwrap();
    assert_eq!(outputs[1].shape.extents(), [2, 3, 4]);
    assert_eq!(outputs[1].data, alone[1].data);
    let short = vec![Tensor { shape: Shape::from_extents(&[2, 3, 4]), ..alone[1].clone() }; 2];
    assert!(padding.restore(padded, short).unwrap_err().contains("expected length 4"));
}

#[test]
fn what_has_a_bucket_s_length_or_none_stays_as_it_is() {
    let mut session = session(masked_mean());
    let padding = prove(session.as_mut(), &settings("{ buckets = [4] }")).unwrap();
    for ids in [&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5]] {
        let mut inputs = request(ids, 1);
        assert_eq!((padding.pad(&mut inputs), &inputs), (None, &request(ids, 1)));
    }
    let mut unlike = vec![request(&[1, 2], 1)[0].clone(), request(&[1, 2, 3], 1)[1].clone()];
    assert_eq!(padding.pad(&mut unlike), None, "the model says what is wrong with it");
}

#[test]
fn buckets_are_derived_as_far_as_the_model_runs() {
    let limited = masked_mean()
        .floats("positions", &[1, 40, 4], &[0.5; 160])
        .whole("begin", &[0])
        .whole("size", &[1])
        .node("Shape", &["ids"], &["shape"])
        .node("Gather", &["shape", "size"], &["end"])
        .node("Slice", &["positions", "begin", "end", "size"], &["used"])
        .node("Add", &["tokens", "used"], &["placed"])
        .output("placed", DataType::Float, &[D::S("batch"), D::S("length"), D::N(4)]);
    let mut session = session(limited);
    let padding = prove(session.as_mut(), &PaddingSettings::default()).unwrap();
    assert_eq!(padding.buckets(), [8, 12, 16, 24, 32], "there are 40 positions");
    let said = prove(session.as_mut(), &settings("{ buckets = [8, 64] }")).unwrap_err();
    assert!(said.contains("length 36") || said.contains("bucket 64"), "{said}");
}

#[test]
fn a_model_that_padding_would_change_is_refused_with_the_reason() {
    let mut session = session(masked_mean());
    let mut refused = |text: &str| prove(session.as_mut(), &settings(text)).unwrap_err();
    for (text, part) in [
        ("{ mask = [\"mask\"] }", "`mask` is not an input: expected one of ids, attention_mask"),
        (
            "{ mask = [], values = { attention_mask = 1 } }",
            "output `mean` of a request of length 1 differs by",
        ),
        (
            "{ values = { attention_mask = 1 } }",
            "input `attention_mask` is a mask, which is padded with 0: got 1",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(part), "{text}: {said}");
    }
    let mut plain = self::session(plain_mean());
    assert!(prove(plain.as_mut(), &PaddingSettings::default()).is_ok(), "zeros add nothing to a sum");
    let said = prove(plain.as_mut(), &settings("{ values = { x = 1 } }")).unwrap_err();
    assert!(said.contains("differs by") && said.contains("expected at most 1.00 %"), "{said}");
    let fixed = crate::onnx::fixture::matmul(D::S("batch"));
    let said = prove(self::session(fixed).as_mut(), &PaddingSettings::default()).unwrap_err();
    assert_eq!(said, "no input has a free dimension: requests have one length already");
}
