//! The gRPC codec from outside.

mod client;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;

use super::{decode_infer, decode_message, encode_infer};
use crate::proto::infer_parameter::ParameterChoice;
use crate::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::proto::{InferParameter, InferTensorContents, ModelInferRequest};
use crate::sample::{datatype, tensor};
use crate::{
    Datatype, ErrorKind, InferResponse, Limits, OutputParameters, Parameter, SharedMemoryRef, Tensor,
    TensorData,
};

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.into(),
        ..InferInputTensor::default()
    }
}

fn typed(datatype: &str, contents: InferTensorContents) -> ModelInferRequest {
    let input = InferInputTensor { contents: Some(contents), ..input("x", datatype, &[2]) };
    ModelInferRequest { inputs: vec![input], ..ModelInferRequest::default() }
}

fn raw(inputs: Vec<InferInputTensor>, raw: &[&'static [u8]]) -> ModelInferRequest {
    let raw_input_contents = raw.iter().map(|data| Bytes::from_static(data)).collect();
    ModelInferRequest { inputs, raw_input_contents, ..ModelInferRequest::default() }
}

fn parameters(entries: &[(&str, ParameterChoice)]) -> std::collections::BTreeMap<String, InferParameter> {
    let value = |choice: &ParameterChoice| InferParameter { parameter_choice: Some(choice.clone()) };
    entries.iter().map(|(name, choice)| ((*name).to_owned(), value(choice))).collect()
}

fn decoded(message: ModelInferRequest) -> Result<Bytes, String> {
    let request = decode_infer(message, &Limits::default()).map_err(|error| error.to_string())?;
    match &request.inputs[0].data {
        TensorData::Inline(data) => Ok(data.clone()),
        TensorData::Shared(region) => Err(format!("{region:?}")),
    }
}

#[test]
fn typed_contents_become_little_endian() {
    type Contents = InferTensorContents;
    let table: [(&str, Contents, Vec<u8>); 12] = [
        ("BOOL", Contents { bool_contents: vec![true, false], ..Contents::default() }, vec![1, 0]),
        ("INT8", Contents { int_contents: vec![-1, 2], ..Contents::default() }, vec![255, 2]),
        ("INT16", Contents { int_contents: vec![-1, 2], ..Contents::default() }, vec![255, 255, 2, 0]),
        (
            "INT32",
            Contents { int_contents: vec![-1, 2], ..Contents::default() },
            vec![255, 255, 255, 255, 2, 0, 0, 0],
        ),
        ("UINT8", Contents { uint_contents: vec![255, 2], ..Contents::default() }, vec![255, 2]),
        ("UINT16", Contents { uint_contents: vec![258, 2], ..Contents::default() }, vec![2, 1, 2, 0]),
        (
            "UINT32",
            Contents { uint_contents: vec![1, 2], ..Contents::default() },
            vec![1, 0, 0, 0, 2, 0, 0, 0],
        ),
        (
            "INT64",
            Contents { int64_contents: vec![-1, 0], ..Contents::default() },
            [[255; 8], [0; 8]].concat(),
        ),
        (
            "UINT64",
            Contents { uint64_contents: vec![u64::MAX, 0], ..Contents::default() },
            [[255; 8], [0; 8]].concat(),
        ),
        (
            "FP32",
            Contents { fp32_contents: vec![1.5, f32::NAN], ..Contents::default() },
            [1.5_f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat(),
        ),
        (
            "FP64",
            Contents { fp64_contents: vec![1.5, -0.0], ..Contents::default() },
            [1.5_f64.to_le_bytes(), (-0.0_f64).to_le_bytes()].concat(),
        ),
        (
            "BYTES",
            Contents {
                bytes_contents: vec![Bytes::from_static(b"a\xff"), Bytes::new()],
                ..Contents::default()
            },
            b"\x02\0\0\0a\xff\0\0\0\0".to_vec(),
        ),
    ];
    for (datatype, contents, expected) in table {
        assert_eq!(decoded(typed(datatype, contents)), Ok(expected.into()), "{datatype}");
    }
}

#[test]
fn raw_contents_are_moved() {
    let message = raw(vec![input("x", "FP32", &[1, 2])], &[&[0; 8]]);
    let sent = message.raw_input_contents[0].as_ptr();
    assert_eq!(decoded(message).unwrap().as_ptr(), sent);
}

#[test]
fn a_decoded_message_shares_its_bytes() {
    let encoded = Bytes::from(raw(vec![input("x", "INT8", &[3])], &[b"abc"]).encode_to_vec());
    let message = decode_message(encoded.clone(), &Limits::default()).unwrap();
    assert!(encoded.as_ptr_range().contains(&message.raw_input_contents[0].as_ptr()));
}

#[test]
fn unsound_messages_are_refused() {
    type Contents = InferTensorContents;
    let x = |extent| input("x", "INT8", &[extent]);
    let ints = |ints: &[i32]| Contents { int_contents: ints.into(), ..Contents::default() };
    let with = |entries: &[(&str, ParameterChoice)]| ModelInferRequest {
        parameters: parameters(entries),
        ..ModelInferRequest::default()
    };
    let shared = |entries: &[(&str, ParameterChoice)]| {
        raw(vec![InferInputTensor { parameters: parameters(entries), ..input("x", "INT8", &[1]) }], &[])
    };
    let region = ("shared_memory_region", ParameterChoice::StringParam("r".into()));
    let table = [
        (
            typed("INT8", ints(&[1, 128])),
            "inputs[0].contents.int_contents: element 1 is 128: expected a value in the range of INT8",
        ),
        (
            typed("UINT8", ints(&[1, 2])),
            "inputs[0].contents: elements in `int_contents`: expected all in `uint_contents` for UINT8",
        ),
        (typed("INT8", ints(&[1])), "inputs[0].contents.int_contents: 1 elements: expected 2 for shape [2]"),
        (
            typed("FP16", ints(&[1])),
            "inputs[0].contents: no typed list holds FP16: send `raw_input_contents`",
        ),
        (
            typed("FLOAT", ints(&[1])),
            "inputs[0].datatype: unknown datatype `FLOAT`: expected BOOL, UINT8, UINT16, UINT32, UINT64, \
             INT8, INT16, INT32, INT64, FP16, FP32, FP64, BF16 or BYTES",
        ),
        (raw(vec![x(2)], &[]), "inputs[0].contents.int_contents: 0 elements: expected 2 for shape [2]"),
        (raw(vec![x(-2)], &[b"a"]), "inputs[0].shape: dimension 0 is -2: expected 0 or more"),
        (raw(vec![x(2)], &[b"a"]), "raw_input_contents[0]: 1 bytes: expected 2 for INT8 of shape [2]"),
        (
            raw(vec![input("x", "BYTES", &[1])], &[b"a"]),
            "raw_input_contents[0]: element 0 is cut off after 1 bytes: expected a 4-byte little-endian \
             length and that many bytes",
        ),
        (
            raw(vec![x(1)], &[b"a", b"b"]),
            "raw_input_contents: 2 entries: expected 1, one for each input that is not in shared memory",
        ),
        (
            raw(vec![x(1), input("y", "INT8", &[1])], &[b"a"]),
            "raw_input_contents: 1 entries: expected one for each input that is not in shared memory",
        ),
        (
            raw(vec![x(1), x(1)], &[b"a", b"b"]),
            "inputs[1].name: `x` was given before: expected every name once",
        ),
        (raw(vec![input("", "INT8", &[1])], &[b"a"]), "inputs[0].name: missing: expected a string"),
        (
            ModelInferRequest {
                raw_input_contents: vec![Bytes::from_static(b"ab")],
                ..typed("INT8", ints(&[1, 2]))
            },
            "inputs[0]: `contents` and `raw_input_contents`: expected exactly one of `contents`, \
             `raw_input_contents` and `parameters.shared_memory_region`",
        ),
        (
            shared(std::slice::from_ref(&region)),
            "inputs[0].parameters.shared_memory_byte_size: missing: expected a number of bytes",
        ),
        (
            shared(&[region, ("shared_memory_byte_size", ParameterChoice::Int64Param(-1))]),
            "inputs[0].parameters.shared_memory_byte_size: a value of another type or range: expected an \
             integer of 0 or more",
        ),
        (
            with(&[("timeout", ParameterChoice::DoubleParam(f64::NAN))]),
            "parameters.timeout: NaN: expected a finite number",
        ),
        (
            with(&[("priority", ParameterChoice::Uint64Param(u64::MAX))]),
            "parameters.priority: 18446744073709551615: expected at most 9223372036854775807",
        ),
        (
            ModelInferRequest {
                parameters: [("p".to_owned(), InferParameter::default())].into(),
                ..ModelInferRequest::default()
            },
            "parameters.p: no value: expected one of the parameter types",
        ),
    ];
    for (message, error) in table {
        assert_eq!(decoded(message), Err(error.to_owned()));
    }
}

#[test]
fn parameters_and_outputs_are_understood() {
    let output = InferRequestedOutputTensor {
        name: "y".into(),
        parameters: parameters(&[
            ("classification", ParameterChoice::Int64Param(3)),
            ("other", ParameterChoice::BoolParam(true)),
        ]),
    };
    let message = ModelInferRequest {
        model_name: "m".into(),
        outputs: vec![output],
        parameters: parameters(&[
            ("priority", ParameterChoice::Uint64Param(2)),
            ("timeout", ParameterChoice::Int64Param(9)),
        ]),
        inputs: vec![
            InferInputTensor {
                parameters: parameters(&[
                    ("shared_memory_region", ParameterChoice::StringParam("r".into())),
                    ("shared_memory_byte_size", ParameterChoice::Int64Param(8)),
                ]),
                ..input("x", "FP64", &[1])
            },
            input("z", "INT8", &[1]),
        ],
        raw_input_contents: vec![Bytes::from_static(b"a")],
        ..ModelInferRequest::default()
    };
    let request = decode_infer(message, &Limits::default()).unwrap();
    assert_eq!((request.model_name.as_str(), request.model_version), ("m", None));
    let expected = [("priority".to_owned(), Parameter::Int(2)), ("timeout".to_owned(), Parameter::Int(9))];
    assert_eq!(request.parameters, expected);
    let outputs = request.outputs.unwrap();
    assert_eq!(
        outputs[0].parameters,
        OutputParameters { classification: Some(3), ..OutputParameters::default() }
    );
    let region = SharedMemoryRef { region: "r".into(), offset: 0, byte_size: 8 };
    assert_eq!(request.inputs[0].data, TensorData::Shared(region));
    assert_eq!(request.inputs[1].data, TensorData::Inline(Bytes::from_static(b"a")));
}

#[test]
fn an_output_in_shared_memory_keeps_its_place_in_the_raw_contents() {
    let tensor = |name: &str| Tensor {
        name: name.into(),
        datatype: Datatype::Int8,
        shape: crate::Shape::from_extents(&[1]),
        data: Bytes::from_static(b"a"),
    };
    let target = SharedMemoryRef { region: "r".into(), offset: 0, byte_size: 1 };
    let shared = OutputParameters { shared_memory: Some(target), ..OutputParameters::default() };
    let message = encode_infer(InferResponse {
        model_name: "m".into(),
        model_version: "1".into(),
        id: String::new(),
        parameters: vec![],
        outputs: vec![(tensor("x"), shared), (tensor("y"), OutputParameters::default())],
    });
    assert_eq!(message.raw_output_contents, [Bytes::new(), Bytes::from_static(b"a")]);
    assert_eq!(
        message.outputs[0].parameters["shared_memory_region"].parameter_choice,
        Some(ParameterChoice::StringParam("r".into()))
    );
}

#[test]
fn messages_that_swell_when_decoded_are_refused_before() {
    let limits = Limits { tensor_bytes: 64, tensors: 2, parameters: 2, ..Limits::default() };
    let refused = |message: &ModelInferRequest| {
        let error = decode_message(message.encode_to_vec().into(), &limits).unwrap_err();
        (error.to_string(), error.kind())
    };
    let many = |list: &str| (format!("{list}: more than 2 entries: expected fewer"), ErrorKind::Malformed);
    let three = |name: &str| {
        parameters(&[("a", 1), ("b", 2), (name, 3)].map(|(n, v)| (n, ParameterChoice::Int64Param(v))))
    };

    let empty = InferInputTensor::default;
    assert_eq!(refused(&raw(vec![empty(), empty(), empty()], &[])), many("inputs"));
    assert_eq!(refused(&raw(vec![], &[b"", b"", b""])), many("raw_input_contents"));
    let outputs = vec![InferRequestedOutputTensor::default(); 3];
    assert_eq!(refused(&ModelInferRequest { outputs, ..ModelInferRequest::default() }), many("outputs"));
    assert_eq!(
        refused(&ModelInferRequest { parameters: three("c"), ..ModelInferRequest::default() }),
        many("parameters")
    );
    assert_eq!(
        refused(&raw(vec![InferInputTensor { parameters: three("c"), ..empty() }], &[])),
        many("inputs.parameters")
    );
    let shape = vec![1; 65];
    let (message, _) = refused(&raw(vec![InferInputTensor { shape, ..empty() }], &[]));
    assert_eq!(message, "inputs.shape: more than 64 entries: expected fewer");

    let large = (
        "inputs.contents: 65 bytes with those before it: expected at most 64".to_owned(),
        ErrorKind::TooLarge,
    );
    let contents = InferTensorContents { int64_contents: vec![0; 9], ..InferTensorContents::default() };
    assert_eq!(refused(&typed("INT64", contents)), large);
    let contents =
        InferTensorContents { bytes_contents: vec![Bytes::new(); 3], ..InferTensorContents::default() };
    assert_eq!(refused(&typed("BYTES", contents)), large);
    let contents = InferTensorContents { int64_contents: vec![-1; 8], ..InferTensorContents::default() };
    assert!(decode_message(typed("INT64", contents).encode_to_vec().into(), &limits).is_ok());
}

#[test]
fn bytes_that_are_not_a_message_are_refused() {
    let refused = |bytes: &'static [u8]| {
        decode_message(Bytes::from_static(bytes), &Limits::default()).unwrap_err().to_string()
    };
    let broken = "request body: a field that is cut off or of no known wire type: expected an encoded \
         inference.ModelInferRequest";
    assert_eq!(refused(b"\x0a\xff"), broken);
    assert_eq!(refused(b"\x0b"), broken);
    assert_eq!(refused(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), broken);
    assert!(refused(b"\x0a\x01\xff").ends_with("expected an encoded inference.ModelInferRequest"));
    let small = Limits { body_bytes: 1, ..Limits::default() };
    let error = decode_message(Bytes::from_static(b"ab"), &small).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.kind()),
        ("request body: 2 bytes: expected at most 1", ErrorKind::TooLarge)
    );
}

proptest! {
    #[test]
    fn round_trip(tensor in datatype().prop_flat_map(tensor)) {
        prop_assume!(!tensor.name.is_empty());
        let response = InferResponse {
            model_name: "m".into(),
            model_version: "1".into(),
            id: "7".into(),
            parameters: vec![("a".into(), Parameter::Bool(true)), ("b".into(), Parameter::Double(0.5))],
            outputs: vec![(tensor.clone(), OutputParameters::default())],
        };
        let answer = encode_infer(response.clone());
        let inputs = answer.outputs.into_iter().map(|output| InferInputTensor {
            name: output.name, datatype: output.datatype, shape: output.shape, ..InferInputTensor::default()
        });
        let message = ModelInferRequest {
            model_name: answer.model_name,
            model_version: answer.model_version,
            id: answer.id,
            parameters: answer.parameters,
            inputs: inputs.collect(),
            outputs: vec![],
            raw_input_contents: answer.raw_output_contents,
        };
        let message = decode_message(message.encode_to_vec().into(), &Limits::default()).unwrap();
        let request = decode_infer(message, &Limits::default()).unwrap();
        prop_assert_eq!(request.parameters, response.parameters);
        let input = &request.inputs[0];
        prop_assert_eq!((&input.name, input.datatype, &input.shape), (&tensor.name, tensor.datatype, &tensor.shape));
        prop_assert_eq!(&input.data, &TensorData::Inline(tensor.data));
    }

    #[test]
    fn random_messages_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        if let Ok(message) = decode_message(bytes.into(), &Limits::default()) {
            let _ = decode_infer(message, &Limits::default());
        }
    }

    #[test]
    fn mutated_messages_never_panic(
        tensor in datatype().prop_flat_map(tensor),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let message = ModelInferRequest {
            inputs: vec![input("x", tensor.datatype.as_str(), &tensor.shape.to_wire())],
            raw_input_contents: vec![tensor.data],
            parameters: parameters(&[("a", ParameterChoice::DoubleParam(1.0))]),
            ..ModelInferRequest::default()
        };
        let mut bytes = message.encode_to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(message) = decode_message(bytes.into(), &Limits::default()) {
            let _ = decode_infer(message, &Limits::default());
        }
    }
}
