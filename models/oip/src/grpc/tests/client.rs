//! The client's side: the server decodes what the client encodes, and the client decodes responses of this and other
//! servers.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;

use super::parameters;
use crate::grpc::{decode_infer, decode_message, decode_response, encode_infer, encode_request};
use crate::proto::infer_parameter::ParameterChoice;
use crate::proto::model_infer_response::InferOutputTensor;
use crate::proto::{InferParameter, InferTensorContents, ModelInferResponse};
use crate::sample::{request, response};
use crate::{InferRequest, InferResponse, Limits, OutputParameters, Parameter, ProtocolError, TensorData};

type Contents = InferTensorContents;

fn output(name: &str, datatype: &str, contents: Option<Contents>) -> InferOutputTensor {
    InferOutputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: vec![2],
        parameters: [].into(),
        contents,
    }
}

fn answer(outputs: Vec<InferOutputTensor>, raw: &[&'static [u8]]) -> ModelInferResponse {
    let raw_output_contents = raw.iter().map(|data| Bytes::from_static(data)).collect();
    ModelInferResponse { outputs, raw_output_contents, ..ModelInferResponse::default() }
}

fn ints(values: &[i32]) -> Option<Contents> {
    Some(Contents { int_contents: values.into(), ..Contents::default() })
}

fn answered(message: ModelInferResponse) -> Result<InferResponse, String> {
    decode_response(message, &Limits::default()).map_err(|error| error.to_string())
}

#[test]
fn data_is_shared_and_moved() {
    let message = answer(vec![output("y", "INT8", None)], &[b"ab"]);
    let sent = message.raw_output_contents[0].as_ptr();
    assert_eq!(answered(message).unwrap().outputs[0].0.data.as_ptr(), sent);
    let request = InferRequest {
        model_name: "m".into(),
        model_version: None,
        id: String::new(),
        parameters: vec![],
        inputs: vec![crate::InputTensor {
            name: "x".into(),
            datatype: crate::Datatype::Int8,
            shape: crate::Shape::from_extents(&[2]),
            data: TensorData::Inline(Bytes::from_static(b"ab")),
            parameters: vec![],
        }],
        outputs: None,
        binary_output: true,
    };
    let TensorData::Inline(data) = &request.inputs[0].data else { panic!("not inline") };
    assert_eq!(encode_request(&request).raw_input_contents[0].as_ptr(), data.as_ptr());
}

#[test]
fn typed_contents_of_other_servers_are_read() {
    let texts =
        Contents { bytes_contents: vec![Bytes::from_static(b"a"), Bytes::new()], ..Contents::default() };
    let mut y = output("y", "INT16", ints(&[-1, 2]));
    y.parameters = parameters(&[("content_type", ParameterChoice::StringParam("np".into()))]);
    y.parameters.insert("nothing".to_owned(), InferParameter::default());
    let mut message = answer(vec![y, output("z", "BYTES", Some(texts))], &[]);
    message.parameters = parameters(&[
        ("content_type", ParameterChoice::StringParam("np".into())),
        ("odd", ParameterChoice::DoubleParam(f64::NAN)),
    ]);
    message.parameters.insert("nothing".to_owned(), InferParameter::default());
    let answer = answered(message).unwrap();
    assert_eq!(answer.parameters, [("content_type".to_owned(), Parameter::String("np".into()))]);
    let data: Vec<_> = answer.outputs.iter().map(|(tensor, _)| &tensor.data[..]).collect();
    assert_eq!(data, [&[255, 255, 2, 0][..], b"\x01\0\0\0a\0\0\0\0"]);
}

#[test]
fn empty_places_do_not_count_as_data() {
    let empty = Some(Contents::default());
    let both =
        answered(answer(vec![output("y", "INT8", empty), output("z", "INT8", ints(&[1, 2]))], &[b"ab", b""]));
    let data: Vec<_> = both.unwrap().outputs.into_iter().map(|(tensor, _)| tensor.data).collect();
    assert_eq!(data, [&b"ab"[..], &[1, 2]]);
}

#[test]
fn unsound_answers_are_refused() {
    let shared = |contents| {
        let mut output = output("y", "INT8", contents);
        output.parameters = parameters(&[
            ("shared_memory_region", ParameterChoice::StringParam("r".into())),
            ("shared_memory_byte_size", ParameterChoice::Int64Param(2)),
        ]);
        output
    };
    let y = || output("y", "INT8", None);
    let shaped = |shape: &[i64]| InferOutputTensor { shape: shape.into(), ..y() };
    let table = [
        (answer(vec![output("", "INT8", None)], &[b"ab"]), "outputs[0].name: missing: expected a string"),
        (
            answer(vec![y(), y()], &[b"ab", b"ab"]),
            "outputs[1].name: `y` was given before: expected every name once",
        ),
        (answer(vec![y(), y()], &[b"ab"]), "raw_output_contents: 1 entries: expected 2, one for each output"),
        (answer(vec![y()], &[b"abc"]), "raw_output_contents[0]: 3 bytes: expected 2 for INT8 of shape [2]"),
        (answer(vec![y()], &[]), "outputs[0].contents.int_contents: 0 elements: expected 2 for shape [2]"),
        (answer(vec![shaped(&[-2])], &[b"ab"]), "outputs[0].shape: dimension 0 is -2: expected 0 or more"),
        (
            answer(vec![output("y", "INT8", ints(&[1, 128]))], &[]),
            "outputs[0].contents.int_contents: element 1 is 128: expected a value in the range of INT8",
        ),
        (
            answer(vec![output("y", "UINT8", ints(&[1, 2]))], &[]),
            "outputs[0].contents: elements in `int_contents`: expected all in `uint_contents` for UINT8",
        ),
        (
            answer(vec![output("y", "FP16", ints(&[1]))], &[]),
            "outputs[0].contents: no typed list holds FP16: send `raw_output_contents`",
        ),
        (
            answer(vec![output("y", "float", None)], &[b"ab"]),
            "outputs[0].datatype: unknown datatype `float`: expected BOOL, UINT8, UINT16, UINT32, UINT64, \
             INT8, INT16, INT32, INT64, FP16, FP32, FP64, BF16 or BYTES",
        ),
        (
            answer(vec![output("y", "INT8", ints(&[1, 2]))], &[b"ab"]),
            "outputs[0]: `contents` and `raw_output_contents`: expected exactly one of `contents`, \
             `raw_output_contents` and `parameters.shared_memory_region`",
        ),
        (
            answer(vec![shared(None)], &[b"ab"]),
            "outputs[0]: `raw_output_contents` and `parameters.shared_memory_region`: expected exactly one of \
             `contents`, `raw_output_contents` and `parameters.shared_memory_region`",
        ),
        (
            answer(vec![shared(ints(&[1, 2]))], &[]),
            "outputs[0]: `contents` and `parameters.shared_memory_region`: expected exactly one of \
             `contents`, `raw_output_contents` and `parameters.shared_memory_region`",
        ),
    ];
    for (message, error) in table {
        assert_eq!(answered(message), Err(error.to_owned()));
    }
    let small = Limits { tensor_bytes: 3, ..Limits::default() };
    let two = answer(vec![y(), output("z", "INT8", None)], &[b"ab", b"ab"]);
    let error = decode_response(two, &small).unwrap_err();
    assert!(matches!(error, ProtocolError::TensorTooLarge { bytes: 4, limit: 3, .. }), "{error}");
}

proptest! {
    #[test]
    fn requests_arrive_as_they_were_sent(request in request()) {
        let message = encode_request(&request).encode_to_vec();
        let message = decode_message(message.into(), &Limits::default()).unwrap();
        let decoded = decode_infer(message, &Limits::default()).unwrap();
        // gRPC requests do not say how outputs are returned.
        let mut sent = InferRequest { binary_output: true, ..request };
        sent.outputs.iter_mut().flatten().for_each(|output| output.parameters.binary = None);
        prop_assert_eq!(decoded, sent);
    }

    #[test]
    fn answers_arrive_as_they_were_sent(response in response()) {
        let message = encode_infer(response.clone()).encode_to_vec();
        let message = ModelInferResponse::decode(&message[..]).unwrap();
        let decoded = decode_response(message, &Limits::default()).unwrap();
        let mut sent = response;
        for (_, parameters) in &mut sent.outputs {
            *parameters = OutputParameters { binary: None, ..parameters.clone() };
        }
        prop_assert_eq!(decoded, sent);
    }

    #[test]
    fn mutated_answers_never_panic(
        response in response(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encode_infer(response).encode_to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(message) = ModelInferResponse::decode(&bytes[..]) else { return Ok(()) };
        if let Ok(answer) = decode_response(message, &Limits::default()) {
            for (tensor, parameters) in answer.outputs {
                if parameters.shared_memory.is_none() {
                    let field = crate::error::Field::Top("x");
                    crate::binary::check(&tensor.data, tensor.datatype, &tensor.shape, field).unwrap();
                }
            }
        }
    }
}
